//! What nm-reconciler's pods have logged, for a bug report.
//!
//! Only its own containers are asked for theirs: what was put beside them, such as a proxy, tells of other things. Each is
//! asked for by its name, without which the API server tells nothing of a pod that has several.

use kube::api::LogParams;
use serde_json::Value;

use crate::cluster::Cluster;
use crate::error::Error;
use crate::objects;

/// How much of a container's log is taken, in bytes.
const MOST_BYTES: i64 = 10 * 1024 * 1024;

/// How many of its lines, the last ones.
const MOST_LINES: i64 = 100_000;

/// The names of the containers that a Deployment asks for.
pub(crate) fn deployed(deployment: Option<&Value>) -> Vec<String> {
    let spec = deployment.map(|deployment| &deployment["spec"]["template"]["spec"]);
    spec.map(|spec| containers(spec).map(str::to_owned).collect()).unwrap_or_default()
}

/// The logs of a pod's containers that are `deployed`, each with the name of a file for it; and of those that were started
/// again the log of the one before too.
pub(crate) async fn read(
    cluster: &Cluster,
    pod: &Value,
    deployed: &[String],
) -> Vec<(String, Result<String, Error>)> {
    let name = pod["metadata"]["name"].as_str().unwrap_or_default();
    let mut logs = Vec::new();
    for container in own(pod, deployed) {
        for previous in [false, true] {
            if previous && !was_restarted(pod, container) {
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
    }
    logs
}

/// The containers of a pod that are `deployed`, or all of them if none is.
fn own<'a>(pod: &'a Value, deployed: &[String]) -> Vec<&'a str> {
    let all: Vec<&str> = containers(&pod["spec"]).collect();
    let own: Vec<&str> = all.iter().copied().filter(|name| deployed.iter().any(|own| own == name)).collect();
    if own.is_empty() { all } else { own }
}

fn containers(spec: &Value) -> impl Iterator<Item = &str> {
    spec["containers"].as_array().into_iter().flatten().filter_map(|container| container["name"].as_str())
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

    fn spec(names: &[&str]) -> Value {
        json!({"containers": names.iter().map(|name| json!({"name": name})).collect::<Vec<_>>()})
    }

    #[test]
    fn logs_are_of_the_containers_that_we_deploy() {
        let deployed = deployed(Some(&json!({"spec": {"template": {"spec": spec(&["reconciler"])}}})));
        let of = |names: &[&str]| -> Vec<String> {
            own(&json!({"spec": spec(names)}), &deployed).into_iter().map(str::to_owned).collect()
        };
        assert_eq!(of(&["proxy", "reconciler"]), ["reconciler"]);
        assert_eq!(of(&["main", "other"]), ["main", "other"], "where somebody has renamed them");
        assert!(of(&[]).is_empty() && super::deployed(None).is_empty());
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
