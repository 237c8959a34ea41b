//! Whether nm-reconciler is ready: its pods are available and its webhook works.

use std::cell::RefCell;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use kube::api::ListParams;
use nm_core::client::cluster::Cluster;
use nm_core::client::objects;
use nm_core::client::pod_problem::pod_problem;
use nm_core::client::reconciler_deployment::LABEL_SELECTOR;
use nm_core::client::webhook_probe::{self, ProbeResult};
use nm_core::error::Error;
use nm_core::interaction::progress;
use nm_core::terminal::output::Output;
use nm_core::terminal::text::counted;
use serde_json::Value;

use crate::install::error::SetupError;
use crate::install::installation::Installation;

const POLL_INTERVAL: Duration = Duration::from_millis(500);

#[derive(Debug, PartialEq, thiserror::Error)]
#[error("{available} of {} available{}{}", replicas(*wanted), under_way(*updated, *wanted), caused_by(cause.as_deref()))]
pub(crate) struct NotAvailable {
    /// How many replicas are available, whatever their version.
    available: u64,
    wanted: u64,
    /// How many replicas have been updated, while the Deployment replaces older ones.
    updated: Option<u64>,
    cause: Option<String>,
}

impl NotAvailable {
    /// Whether enough replicas are available, and nothing but an update is under way.
    pub(crate) fn is_only_update(&self) -> bool {
        self.available >= self.wanted && self.cause.is_none()
    }
}

/// How long after their creation pods may still be starting.
const STARTS_WITHIN: SignedDuration = SignedDuration::from_mins(2);

/// Whether a Deployment that is not available yet is on its way: its unready pods, none of which shows a problem, have just been
/// created.
pub(crate) fn is_starting(deployment: &Value, pods: &[Value], now: Timestamp) -> bool {
    let Err(why) = available_replicas(deployment, pods) else { return false };
    let has_failed = items(&deployment["status"]["conditions"])
        .any(|condition| condition["type"] == "Progressing" && condition["status"] == "False");
    let is_new = |pod: &Value| {
        let created =
            pod["metadata"]["creationTimestamp"].as_str().and_then(|at| at.parse::<Timestamp>().ok());
        created.is_some_and(|created| now.duration_since(created) < STARTS_WITHIN)
    };
    let is_ready = |pod: &&Value| {
        items(&pod["status"]["conditions"])
            .any(|condition| condition["type"] == "Ready" && condition["status"] == "True")
    };
    let mut unready = pods.iter().filter(|pod| !is_ready(pod)).peekable();
    !has_failed && why.cause.is_none() && unready.peek().is_some() && unready.all(is_new)
}

/// `1 replica is`, `2 replicas are`.
fn replicas(wanted: u64) -> String {
    format!("{} {}", counted(wanted, "replica"), if wanted == 1 { "is" } else { "are" })
}

fn under_way(updated: Option<u64>, wanted: u64) -> String {
    let words = |updated| format!(", and an update is under way ({updated} of {wanted} updated)");
    updated.map(words).unwrap_or_default()
}

fn caused_by(cause: Option<&str>) -> String {
    cause.map(|cause| format!("; {cause}")).unwrap_or_default()
}

enum InstallReadiness {
    Ready(String),
    NotReady(String),
}

/// Waits until nm-reconciler runs and its webhook works, and returns a message about it.
pub(crate) async fn wait(
    namespace: &str,
    timeout: Duration,
    cluster: &Cluster,
    out: &mut Output,
) -> Result<String, Error> {
    let why = RefCell::new(String::from("its state is not known yet"));
    let poll = async {
        loop {
            match readiness(namespace, cluster).await {
                Ok(InstallReadiness::Ready(message)) => return Ok(message),
                Ok(InstallReadiness::NotReady(reason)) => drop(why.replace(reason)),
                Err(error) if error.is_transient() => drop(why.replace(error.to_string())),
                Err(error) => return Err(error),
            }
            tokio::time::sleep(POLL_INTERVAL).await;
        }
    };
    let waiting = || format!("waiting for nm-reconciler to become ready: {}", why.borrow());
    let bounded = Box::pin(progress::within(timeout, poll));
    if let Some(result) = progress::during(out, waiting, bounded).await {
        return result;
    }
    let (namespace, why) = (namespace.to_owned(), why.take());
    Err(SetupError::NotReady { after: timeout, why, namespace }.into())
}

async fn readiness(namespace: &str, cluster: &Cluster) -> Result<InstallReadiness, Error> {
    let installation = Installation::find(cluster, Some(namespace)).await?;
    let selector = ListParams::default().labels(LABEL_SELECTOR);
    let pods = objects::list(cluster, ("v1", "Pod"), Some(namespace), &selector).await?;
    let replicas = match available_replicas(&installation.deployment.unwrap_or_default(), &pods) {
        Ok(replicas) => replicas,
        Err(why) => return Ok(InstallReadiness::NotReady(format!("deployment.apps/nm-reconciler: {why}"))),
    };
    let ready = format!("nm-reconciler is ready in namespace {namespace}: {}", counted(replicas, "replica"));
    Ok(match webhook_probe::probe(cluster).await? {
        ProbeResult::Works => InstallReadiness::Ready(format!("{ready}, and its webhook works")),
        ProbeResult::Failed(why) => {
            InstallReadiness::NotReady(format!("the webhook does not respond: {why}"))
        }
        ProbeResult::Admitted => {
            InstallReadiness::NotReady(String::from("the API server does not call the webhook yet"))
        }
        ProbeResult::RefusedByOther(why) => {
            InstallReadiness::Ready(format!("{ready}; another webhook refuses maintenances: {why}"))
        }
    })
}

/// The number of replicas, if all replicas of the current generation are available, and none of an earlier one is left.
pub(crate) fn available_replicas(deployment: &Value, pods: &[Value]) -> Result<u64, NotAvailable> {
    let status = &deployment["status"];
    let number = |value: &Value| value.as_u64().unwrap_or_default();
    let wanted = deployment["spec"]["replicas"].as_u64().unwrap_or(1);
    let is_observed = number(&status["observedGeneration"]) >= number(&deployment["metadata"]["generation"]);
    let (updated, available) = (number(&status["updatedReplicas"]), number(&status["availableReplicas"]));
    // Replicas of the previous generation may be what is available.
    let is_updating = !is_observed || number(&status["replicas"]) > updated;
    if !is_updating && updated >= wanted && available >= wanted {
        return Ok(wanted);
    }
    let updated = is_updating.then_some(if is_observed { updated } else { 0 });
    let cause = pods.iter().find_map(pod_problem).or_else(|| replica_failure(deployment));
    Err(NotAvailable { available, wanted, updated, cause })
}

fn replica_failure(deployment: &Value) -> Option<String> {
    items(&deployment["status"]["conditions"])
        .find(|condition| condition["type"] == "ReplicaFailure" && condition["status"] == "True")
        .and_then(|condition| condition["message"].as_str().map(str::to_owned))
}

fn items(list: &Value) -> impl Iterator<Item = &Value> {
    list.as_array().into_iter().flatten()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn deployment(generation: u64, updated: u64, available: u64) -> Value {
        json!({"metadata": {"generation": generation}, "spec": {"replicas": 2},
            "status": {"observedGeneration": 2, "updatedReplicas": updated, "availableReplicas": available,
                "replicas": updated.max(available)}})
    }

    #[test]
    fn all_replicas_of_the_current_generation_must_be_available() {
        let not_available = |available, updated| NotAvailable { available, wanted: 2, updated, cause: None };
        assert_eq!(available_replicas(&deployment(2, 2, 2), &[]), Ok(2));
        for (generation, updated, available, of_update, words) in [
            (3, 2, 2, Some(0), "2 of 2 replicas are available, and an update is under way (0 of 2 updated)"),
            (2, 1, 2, Some(1), "2 of 2 replicas are available, and an update is under way (1 of 2 updated)"),
            (2, 2, 1, None, "1 of 2 replicas are available"),
            // Another replica is only added.
            (2, 1, 1, None, "1 of 2 replicas are available"),
        ] {
            let found = available_replicas(&deployment(generation, updated, available), &[]).unwrap_err();
            assert_eq!(found, not_available(available, of_update));
            assert_eq!((found.to_string().as_str(), found.is_only_update()), (words, available == 2));
        }
        // The new replica of one that is replaced does not start.
        let mut one = deployment(2, 1, 1);
        (one["spec"]["replicas"], one["status"]["replicas"]) = (json!(1), json!(2));
        let found = available_replicas(&one, &[]).unwrap_err().to_string();
        assert_eq!(found, "1 of 1 replica is available, and an update is under way (1 of 1 updated)");
        let none = NotAvailable { wanted: 1, ..not_available(0, None) };
        assert_eq!(none.to_string(), "0 of 1 replica is available");
        assert_eq!(available_replicas(&json!({}), &[]), Err(none));
    }

    #[test]
    fn the_cause_comes_from_the_pods_or_the_deployment() {
        let cause =
            |deployment: &Value, pods: &[Value]| available_replicas(deployment, pods).unwrap_err().cause;
        let creating = json!({"metadata": {"name": "b"}, "status": {"containerStatuses": [
            {"state": {"waiting": {"reason": "ContainerCreating"}}}]}});
        let unpullable = json!({"metadata": {"name": "a"}, "status": {"containerStatuses": [
            {"state": {"waiting": {"reason": "ImagePullBackOff", "message": "no such image"}}}]}});
        assert_eq!(
            cause(&deployment(2, 2, 0), &[creating, unpullable]).as_deref(),
            Some("pod a: ImagePullBackOff: no such image")
        );
        let mut refused = deployment(2, 0, 0);
        refused["status"]["conditions"] =
            json!([{"type": "ReplicaFailure", "status": "True", "message": "exceeded quota"}]);
        assert_eq!(cause(&refused, &[]).as_deref(), Some("exceeded quota"));
        let error = available_replicas(&refused, &[]).unwrap_err().to_string();
        assert_eq!(error, "0 of 2 replicas are available; exceeded quota");
    }
}
