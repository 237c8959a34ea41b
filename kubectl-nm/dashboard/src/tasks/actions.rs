//! The requests of the dashboard that start, stop, pause and resume maintenances. Their results are in words.

use std::sync::Arc;

use futures::stream::{self, StreamExt};
use jiff::Timestamp;
use kube::ResourceExt;
use nm_core::client::all_groups;
use nm_core::client::cluster::{Cluster, Deletion, MAX_CONCURRENT_REQUESTS};
use nm_core::error::Error;
use nm_core::maintenance;
use nm_core::maintenance::ending::keep_cordon_patch;
use nm_core::maintenance::start::Together;
use nm_core::terminal::text::first_names;
use nm_shared::NodeMaintenance;

use crate::message::CommandError;

/// Starts maintenances, or plans those that are suspended.
pub(crate) async fn start(cluster: &Cluster, wanted: &[NodeMaintenance]) -> Result<String, CommandError> {
    // All have the same options. Nothing begins if the definition of the cluster would drop one.
    if let Some(last) = wanted.last()
        && let Err(error) = maintenance::start::check_definition(cluster, last).await
    {
        return summary("started", vec![(last.name_any(), Err(error))]);
    }
    let begin = wanted.iter().filter(|wanted| !wanted.spec.suspend).count();
    let together = Together::of(begin, Timestamp::now());
    let results: Vec<(String, Result<&str, Error>)> = stream::iter(wanted)
        .map(async |wanted| {
            let mut announced = wanted.clone();
            together.announce(&mut announced);
            let started = maintenance::start::start(cluster, &announced, false).await;
            let word = |created| match created {
                true if wanted.spec.suspend => "planned",
                true => "started",
                false => "already in maintenance",
            };
            (wanted.name_any(), started.map(|started| word(started.created)))
        })
        .buffered(MAX_CONCURRENT_REQUESTS)
        .collect()
        .await;
    summary("started", results)
}

pub(crate) async fn stop(
    cluster: &Cluster,
    unwanted: &[(String, String)],
    keep_cordon: bool,
) -> Result<String, CommandError> {
    let word = |deletion| match deletion {
        Deletion::UnderWay => "stopping",
        Deletion::Gone => "stopped",
        Deletion::Replaced => "stopped, and another maintenance was started",
    };
    let results: Vec<(String, Result<&str, Error>)> = stream::iter(unwanted)
        .map(async |(name, uid)| {
            let stopped = async {
                if keep_cordon {
                    cluster.patch(name, &keep_cordon_patch(uid), false).await?;
                }
                all_groups::delete_by_uid(cluster, name, uid).await
            };
            (name.clone(), stopped.await.map(word))
        })
        .buffered(MAX_CONCURRENT_REQUESTS)
        .collect()
        .await;
    summary("stopping", results)
}

pub(crate) async fn suspend(
    cluster: &Cluster,
    targets: &[Arc<NodeMaintenance>],
    suspend: bool,
) -> Result<String, CommandError> {
    let word = if suspend { "paused" } else { "resumed" };
    let results: Vec<(String, Result<&str, Error>)> = stream::iter(targets)
        .map(async |target| {
            let changed = maintenance::suspend::suspend(cluster, target, suspend).await;
            (target.name_any(), changed.map(|_| word))
        })
        .buffered(MAX_CONCURRENT_REQUESTS)
        .collect()
        .await;
    summary(word, results)
}

/// The results of the requests of a command. `wanted` is the word for success if there was none.
fn summary(wanted: &str, results: Vec<(String, Result<&str, Error>)>) -> Result<String, CommandError> {
    let mut done: Vec<(&str, Vec<String>)> = Vec::new();
    let mut failed = Vec::new();
    for (name, result) in results {
        match result {
            Ok(word) => match done.iter_mut().find(|(known, _)| *known == word) {
                Some((_, names)) => names.push(name),
                None => done.push((word, vec![name])),
            },
            Err(error) => failed.push((name, error)),
        }
    }
    let others = failed.len().saturating_sub(1);
    let succeeded: Vec<String> =
        done.iter().map(|(word, names)| format!("{word}: {}", first_names(names))).collect();
    let succeeded = if done.is_empty() { format!("{wanted}: none") } else { succeeded.join("; ") };
    let Some((name, source)) = failed.into_iter().next() else { return Ok(succeeded) };
    let succeeded = (others > 0 || !done.is_empty()).then_some(succeeded);
    Err(CommandError::Refused { name, others, source: Box::new(source), succeeded })
}

#[cfg(test)]
mod tests {
    use nm_core::testing::fake_server::{cluster, failure};
    use nm_core::testing::objects::{named, requested, stopping};

    use super::*;

    #[tokio::test]
    async fn the_result_of_a_start_is_one_sentence() {
        let (cluster, _) = cluster(|_, _| (201, serde_json::to_value(requested("n1")).unwrap()));
        let nodes = |names: &[&str]| names.iter().map(|name| requested(name)).collect::<Vec<_>>();
        for (wanted, expected) in [
            (nodes(&["n1"]), "started: n1"),
            (nodes(&["n1", "n2", "n3", "n4", "n5"]), "started: n1, n2, n3 and 2 more"),
        ] {
            assert_eq!(start(&cluster, &wanted).await.unwrap(), expected);
        }
    }

    #[tokio::test]
    async fn nothing_begins_where_the_definition_would_drop_what_was_requested() {
        let (pruning, requests) = cluster(|_, _| (201, serde_json::to_value(requested("n1")).unwrap()));
        let mut later = requested("n2");
        later.spec.suspend = true;
        let wanted = vec![requested("n1"), later];
        let error = start(&pruning, &wanted).await.unwrap_err().to_string();
        assert!(error.starts_with("n2: "), "{error}");
        assert_eq!(requests.lock().unwrap().len(), 1, "only the dry run");
    }

    #[tokio::test]
    async fn planned_maintenances_are_reported_as_planned() {
        let (keeping, _) = cluster(|_, _| {
            let mut kept = requested("n1");
            kept.spec.suspend = true;
            (201, serde_json::to_value(kept).unwrap())
        });
        let mut later = requested("n2");
        later.spec.suspend = true;
        let done = start(&keeping, &[later]).await.unwrap();
        assert_eq!(done, "planned: n2");
    }

    #[tokio::test]
    async fn maintenances_that_others_started_or_stopped_meanwhile_are_reported() {
        let start_beside = async |theirs: NodeMaintenance| {
            let theirs = serde_json::to_value(theirs).unwrap();
            let (taken, _) = cluster(move |method, _| match method {
                "POST" => failure(409, "AlreadyExists", "n1"),
                _ => (200, theirs.clone()),
            });
            start(&taken, &[requested("n1")]).await
        };
        assert_eq!(start_beside(requested("n1")).await.unwrap(), "already in maintenance: n1");
        let ending = start_beside(stopping(requested("n1"))).await.unwrap_err().to_string();
        assert!(ending.contains("is returning to service"), "{ending}");
        let other = start_beside(named("n1", "n2", "u")).await.unwrap_err().to_string();
        assert!(other.contains("\"n1\" for node \"n2\" already exists"), "{other}");

        let (changed, _) = cluster(|_, path| match path.rsplit('/').next() {
            Some("a") => failure(404, "NotFound", "a"),
            Some("b") => failure(409, "Conflict", "b"),
            _ => (200, serde_json::to_value(requested("c")).unwrap()),
        });
        let unwanted = ["a", "b", "c", "d"].map(|name| (name.to_owned(), "u".to_owned())).to_vec();
        assert_eq!(
            stop(&changed, &unwanted, false).await.unwrap(),
            "stopped: a; stopped, and another maintenance was started: b; stopping: c, d"
        );
    }

    #[tokio::test]
    async fn failures_are_reported_first() {
        let (refusing, _) = cluster(|_, path| match path.rsplit('/').next() {
            Some("a") => (200, serde_json::to_value(requested("a")).unwrap()),
            _ => failure(403, "Forbidden", "b"),
        });
        let names = |names: &[&str]| names.iter().map(|name| ((*name).to_owned(), "u".to_owned())).collect();
        for (unwanted, expected) in [
            (names(&["a", "b"]), "b: Error from server (Forbidden): b Forbidden; stopping: a"),
            (names(&["b", "c"]), "b and 1 more: Error from server (Forbidden): b Forbidden; stopping: none"),
            (names(&["b"]), "b: Error from server (Forbidden): b Forbidden"),
        ] {
            let unwanted: Vec<(String, String)> = unwanted;
            let outcome = stop(&refusing, &unwanted, false).await;
            assert_eq!(outcome.unwrap_err().to_string(), expected);
        }
    }
}
