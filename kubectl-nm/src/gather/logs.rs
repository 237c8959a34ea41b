//! What nm-reconciler's pods have logged, for a bug report.
//!
//! Only its own container is asked for its: what was put beside it, such as a proxy, tells of other things, and nobody reads
//! that through before it is passed on. It is asked for by its name, without which the API server tells nothing of a pod that
//! has several.

use kube::api::LogParams;
use serde_json::Value;

use crate::client::cluster::Cluster;
use crate::client::objects;
use crate::client::reconciler_settings::{self, CONTAINER};
use crate::error::Error;

/// How much of a container's log is taken, in bytes.
const MOST_BYTES: i64 = 10 * 1024 * 1024;

/// How many of its lines, the last ones.
const MOST_LINES: i64 = 100_000;

/// The name of nm-reconciler's own container: as its Deployment has it, or else as the manifests do.
pub(crate) fn own(deployment: Option<&Value>) -> &str {
    let container = deployment.and_then(reconciler_settings::container);
    container.and_then(|container| container["name"].as_str()).unwrap_or(CONTAINER)
}

/// The log of a pod's container of that name, with the name of a file for it; and if it was started again the log of the one
/// before too. Nothing if the pod has no such container.
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
            limit_bytes: Some(MOST_BYTES),
            tail_lines: Some(MOST_LINES),
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
    fn only_the_container_of_nm_reconciler_is_its_own() {
        let containers = |names: &[&str]| json!({"containers": names.iter().map(|name| json!({"name": name})).collect::<Vec<_>>()});
        let deployment = |names: &[&str]| json!({"spec": {"template": {"spec": containers(names)}}});
        assert_eq!(own(Some(&deployment(&["proxy", "reconciler"]))), "reconciler");
        assert_eq!(own(Some(&deployment(&["main"]))), "main", "where somebody has renamed it");
        assert_eq!(own(Some(&deployment(&["main", "other"]))), "reconciler", "nobody can tell which it is");
        assert_eq!(own(None), "reconciler");
        let pod = json!({"spec": containers(&["proxy", "main"])});
        assert!(has(&pod, "main") && !has(&pod, "reconciler"));
    }

    #[test]
    fn only_the_container_itself_was_restarted() {
        let pod = json!({"status": {"containerStatuses": [{"name": "proxy", "restartCount": 3},
            {"name": "reconciler", "restartCount": 0}]}});
        assert!(
            was_restarted(&pod, "proxy") && !was_restarted(&pod, "reconciler") && !was_restarted(&pod, "x")
        );
    }
}
