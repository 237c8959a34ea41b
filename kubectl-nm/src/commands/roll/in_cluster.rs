//! Lets the cluster run a roll: creates the Job that does.

use kube::core::Status;
use nm_core::client::cluster::Cluster;
use nm_core::client::objects;
use nm_core::client::reconciler_deployment;
use nm_core::error::Error;
use nm_core::terminal::output::Output;
use nm_core::terminal::text::Line;
use nm_roll::error::RollError;
use nm_roll::in_cluster::{history, runner_job};
use nm_roll::record::Roll;
use nm_roll::settings::RollSettings;
use serde_json::{Value, json};

use super::args::BeginArgs;
use crate::install::installation::Installation;

/// The image with the plugin for the Job: the one that was asked for, or that of nm-reconciler.
pub(super) async fn image(given: Option<&str>, cluster: &Cluster) -> Result<String, Error> {
    if let Some(given) = given {
        return Ok(given.to_owned());
    }
    let installation = Installation::find(cluster, None).await?;
    let image = installation.deployment.as_ref().and_then(reconciler_deployment::image);
    Ok(image.ok_or(RollError::NoRunnerImage)?.to_owned())
}

/// The Job that is to run a roll in the cluster, if it is to run there. The API server checks it before anything is created.
pub(super) async fn planned(
    args: &BeginArgs,
    name: &str,
    settings: &RollSettings,
    cluster: &Cluster,
) -> Result<Option<Value>, Error> {
    if !args.in_cluster {
        return Ok(None);
    }
    let image = image(args.runner_image.as_deref(), cluster).await?;
    let job = runner_job::of(name, settings, &image);
    match objects::create(cluster, &job, true).await {
        // That of an earlier roll of this name, which is replaced.
        Err(error) if error.status().is_some_and(Status::is_already_exists) => {}
        checked => checked.map(drop).map_err(explained)?,
    }
    Ok(Some(job))
}

/// Creates the Job, unless it runs already. One that has ended or is suspended, that runs other settings or whose image is not the
/// `given` one is replaced. The history of a roll that continues is kept.
pub(super) async fn ensure(
    cluster: &Cluster,
    job: &Value,
    given: Option<&str>,
    continued: Option<(&str, &mut Output)>,
) -> Result<(), Error> {
    if let Some(found) = objects::get(cluster, job).await? {
        if runs_as(&found, job, given) {
            return Ok(());
        }
        if let Some((roll, out)) = continued {
            keep_history(cluster, roll, out).await;
        }
        objects::delete(cluster, &found).await?;
        objects::wait_until_gone(cluster, &found).await;
    }
    objects::create(cluster, job, false).await.map(drop).map_err(explained)
}

/// Whether a Job runs a roll with exactly its settings, and with the `given` image.
pub(super) async fn is_running(roll: &Roll, given: Option<&str>, cluster: &Cluster) -> Result<bool, Error> {
    let wanted = runner_job::of(&roll.name, &roll.settings, given.unwrap_or_default());
    let found = objects::get(cluster, &wanted).await?;
    Ok(found.is_some_and(|found| runs_as(&found, &wanted, given)))
}

/// Whether a Job runs, and runs what another one would, with the `given` image.
fn runs_as(found: &Value, wanted: &Value, given: Option<&str>) -> bool {
    let container =
        |job: &Value| job.pointer("/spec/template/spec/containers/0").cloned().unwrap_or_default();
    let (runs, wanted) = (container(found), container(wanted));
    let is_same = runs["args"] == wanted["args"] && given.is_none_or(|image| runs["image"] == image);
    runner_job::is_live(found) && is_same
}

/// Reports the order within waves that only a roll in the cluster has: which node its pod is on is not known before it begins.
pub(super) fn report_order(settings: &RollSettings, out: &mut Output) {
    if settings.in_cluster && settings.waves.iter().any(|nodes| *nodes > 1) {
        out.message(&Line::new("In each wave, the node of the pod that runs the roll is the last one."));
    }
}

/// Lets the history of a roll outlive the Job that has ended. The next Job owns it then.
async fn keep_history(cluster: &Cluster, roll: &str, out: &mut Output) {
    let config_map = history::config_map(roll);
    let patch = json!({"metadata": {"ownerReferences": null}});
    match objects::patch(cluster, &config_map, &patch).await {
        Err(error) if !error.is_not_found() => out.message(&Line::new(format!(
            "warning: the history of the roll so far cannot be kept, and is deleted with the ended Job: {error}"
        ))),
        _ => {}
    }
}

/// Without its namespace, no Job can be created.
fn explained(error: Error) -> Error {
    let details =
        error.status().filter(|status| status.is_not_found()).and_then(|status| status.details.as_ref());
    if details.is_some_and(|details| details.kind == "namespaces") {
        RollError::NotGranted.into()
    } else {
        error
    }
}

/// The namespace of the Jobs that a roll in the cluster runs on nodes; an error if the file names another one.
pub(super) fn check_job(job: &Value) -> Result<(), RollError> {
    let namespace = &job["metadata"]["namespace"];
    if *namespace == json!(runner_job::NAMESPACE) {
        return Ok(());
    }
    Err(RollError::OtherJobNamespace(namespace.as_str().unwrap_or_default().to_owned()))
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use nm_core::testing::fake_server::{cluster, failure};

    use super::*;

    fn job() -> Value {
        let settings = json!({"waves": [1], "maxUnavailable": 1, "minReadySeconds": 30, "actionTimeoutSeconds": 1,
            "returnTimeoutSeconds": 1, "recoveryTimeoutSeconds": 1, "inCluster": true});
        runner_job::of("r", &serde_json::from_value(settings).unwrap(), "nm:1")
    }

    #[tokio::test]
    async fn a_job_that_somebody_has_suspended_is_replaced_when_its_roll_is_resumed() {
        for is_suspended in [false, true] {
            let mut stored = job();
            stored["spec"]["suspend"] = json!(is_suspended);
            let is_gone = AtomicBool::new(false);
            let (cluster, requests) = cluster(move |method, _| match method {
                "DELETE" => {
                    is_gone.store(true, Ordering::Relaxed);
                    (200, stored.clone())
                }
                "GET" if is_gone.load(Ordering::Relaxed) => {
                    let none = json!({"apiVersion": "batch/v1", "kind": "JobList", "metadata": {"resourceVersion": "1"}, "items": []});
                    (200, none)
                }
                _ => (200, stored.clone()),
            });
            ensure(&cluster, &job(), None, None).await.unwrap();
            let requests = requests.lock().unwrap();
            let mut methods: Vec<&str> =
                requests.iter().filter_map(|request| request.split_whitespace().next()).collect();
            methods.dedup();
            let wanted = if is_suspended { vec!["GET", "DELETE", "GET", "POST"] } else { vec!["GET"] };
            assert_eq!(methods, wanted, "{requests:?}");
        }
    }

    #[tokio::test]
    async fn only_a_missing_namespace_is_a_cluster_that_is_not_set_up() {
        for (kind, is_set_up) in [("namespaces", false), ("jobs", true)] {
            let (cluster, _) = cluster(move |method, _| {
                let mut answer = failure(404, "NotFound", "namespaces \"node-maintenance-rolls\" not found");
                answer.1["details"] = json!({"kind": kind, "name": "x"});
                if method == "GET" { failure(404, "NotFound", "jobs") } else { answer }
            });
            let error = ensure(&cluster, &job(), None, None).await.unwrap_err();
            assert_eq!(matches!(error.above(), Some(RollError::NotGranted)), !is_set_up);
        }
    }
}
