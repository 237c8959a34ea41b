//! The logs of nm-reconciler's pods, for a bug report.
//!
//! Only the logs of nm-reconciler's own container are read: those of sidecars may contain anything, and nobody reviews them
//! before they are passed on.

use kube::api::LogParams;
use nm_core::client::cluster::Cluster;
use nm_core::client::objects;
use nm_core::client::reconciler_deployment::{self, CONTAINER};
use nm_core::error::Error;
use serde_json::Value;

const MAX_BYTES: i64 = 10 * 1024 * 1024;

const MAX_LINES: i64 = 100_000;

/// The name of nm-reconciler's own container in its Deployment, or else in the manifests.
pub(crate) fn own_container(deployment: Option<&Value>) -> &str {
    let container = deployment.and_then(reconciler_deployment::container);
    container.and_then(|container| container["name"].as_str()).unwrap_or(CONTAINER)
}

/// The log of a pod's container, with a file name for it, and the log before the last restart. Empty if the pod has no such
/// container.
pub(crate) async fn read(
    cluster: &Cluster,
    pod: &Value,
    container: &str,
) -> Vec<(String, Result<String, Error>)> {
    let name = pod["metadata"]["name"].as_str().unwrap_or_default();
    let mut logs = Vec::new();
    for previous in [false, true] {
        if !has(pod, container) || (previous && !was_restarted(pod, container)) {
            continue;
        }
        let params = LogParams {
            container: Some(container.to_owned()),
            previous,
            limit_bytes: Some(MAX_BYTES),
            tail_lines: Some(MAX_LINES),
            ..LogParams::default()
        };
        let file = format!("logs/{name}/{container}{}.log", if previous { "-previous" } else { "" });
        logs.push((file, objects::log(cluster, pod, &params).await));
    }
    logs
}

fn has(pod: &Value, container: &str) -> bool {
    pod["spec"]["containers"].as_array().into_iter().flatten().any(|found| found["name"] == container)
}

fn was_restarted(pod: &Value, container: &str) -> bool {
    let mut statuses = pod["status"]["containerStatuses"].as_array().into_iter().flatten();
    statuses
        .any(|status| status["name"] == container && status["restartCount"].as_u64().unwrap_or_default() > 0)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn sidecars_are_not_the_own_container() {
        let containers = |names: &[&str]| json!({"containers": names.iter().map(|name| json!({"name": name})).collect::<Vec<_>>()});
        let deployment = |names: &[&str]| json!({"spec": {"template": {"spec": containers(names)}}});
        assert_eq!(own_container(Some(&deployment(&["proxy", "reconciler"]))), "reconciler");
        assert_eq!(
            own_container(Some(&deployment(&["main"]))),
            "main",
            "the only container may have another name"
        );
        assert_eq!(
            own_container(Some(&deployment(&["main", "other"]))),
            "reconciler",
            "of several, none is known"
        );
        assert_eq!(own_container(None), "reconciler");
        let pod = json!({"spec": containers(&["proxy", "main"])});
        assert!(has(&pod, "main") && !has(&pod, "reconciler"));
    }

    #[test]
    fn restarts_of_other_containers_do_not_count() {
        let pod = json!({"status": {"containerStatuses": [{"name": "proxy", "restartCount": 3},
            {"name": "reconciler", "restartCount": 0}]}});
        assert!(
            was_restarted(&pod, "proxy") && !was_restarted(&pod, "reconciler") && !was_restarted(&pod, "x")
        );
    }
}
