//! The requests of the dashboard that start, stop, pause and resume maintenances. Their results are in words.

use std::sync::Arc;

use futures::stream::{self, StreamExt};
use jiff::Timestamp;
use kube::ResourceExt;
use nm_core::client::all_groups;
use nm_core::client::cluster::{Cluster, Deletion, MAX_CONCURRENT_REQUESTS};
use nm_core::error::Error;
use nm_core::maintenance::ending::keep_cordon_patch;
use nm_core::maintenance::start::Together;
use nm_core::maintenance::{self, uid};
use nm_core::terminal::text::first_names;
use nm_roll::store;
use nm_shared::NodeMaintenance;

use crate::message::CommandError;

/// Starts maintenances, or plans those that are suspended.
pub(crate) async fn start(cluster: &Cluster, wanted: &[NodeMaintenance]) -> Result<String, CommandError> {
    // All have the same options. Nothing begins if the definition of the cluster would drop one.
    if let Some(last) = wanted.last()
        && let Err(error) = maintenance::start::check_definition(cluster, last).await
    {
        return summary("started", vec![(last.name_any(), Err(error))], []);
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
    summary("started", results, [])
}

pub(crate) async fn stop(
    cluster: &Cluster,
    unwanted: &[Arc<NodeMaintenance>],
    keep_cordon: bool,
) -> Result<String, CommandError> {
    let unkept = store::keep_records(cluster, unwanted.iter().map(AsRef::as_ref)).await;
    let word = |deletion| match deletion {
        Deletion::UnderWay => "stopping",
        Deletion::Gone => "stopped",
        Deletion::Replaced => "stopped, and another maintenance was started",
    };
    let results: Vec<(String, Result<&str, Error>)> = stream::iter(unwanted)
        .map(async |unwanted| {
            let (name, uid) = (unwanted.name_any(), uid(unwanted));
            let stopped = async {
                if keep_cordon {
                    cluster.patch(&name, &keep_cordon_patch(&uid), false).await?;
                }
                all_groups::delete_by_uid(cluster, &name, &uid).await
            };
            let stopped = stopped.await.map(word);
            (name, stopped)
        })
        .buffered(MAX_CONCURRENT_REQUESTS)
        .collect()
        .await;
    summary("stopping", results, unkept.iter().map(|unkept| format!("warning: {unkept}")))
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
    summary(word, results, [])
}

/// The results of the requests of a command, and warnings. `wanted` is the word for success if there was none.
fn summary(
    wanted: &str,
    results: Vec<(String, Result<&str, Error>)>,
    warnings: impl IntoIterator<Item = String>,
) -> Result<String, CommandError> {
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
    let mut words: Vec<String> =
        done.iter().map(|(word, names)| format!("{word}: {}", first_names(names))).collect();
    if done.is_empty() && failed.len() != 1 {
        words.push(format!("{wanted}: none"));
    }
    words.extend(warnings);
    let words = words.join("; ");
    let Some((name, source)) = failed.into_iter().next() else { return Ok(words) };
    let succeeded = Some(words).filter(|words| !words.is_empty());
    Err(CommandError::Refused { name, others, source: Box::new(source), succeeded })
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use nm_core::maintenance::ROLL_LABEL;
    use nm_core::testing::fake_server::{cluster, failure, list};
    use nm_core::testing::objects::{named, requested, stopping};
    use nm_roll::record::{NODE, NodeRecord, RollRecord, SETTINGS, STATE, annotation};
    use serde_json::json;

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
        let unwanted = ["a", "b", "c", "d"].map(|name| Arc::new(requested(name)));
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
        let names = |names: &[&str]| names.iter().map(|name| Arc::new(requested(name))).collect();
        for (unwanted, expected) in [
            (names(&["a", "b"]), "b: Error from server (Forbidden): b Forbidden; stopping: a"),
            (names(&["b", "c"]), "b and 1 more: Error from server (Forbidden): b Forbidden; stopping: none"),
            (names(&["b"]), "b: Error from server (Forbidden): b Forbidden"),
        ] {
            let unwanted: Vec<Arc<NodeMaintenance>> = unwanted;
            let outcome = stop(&refusing, &unwanted, false).await;
            assert_eq!(outcome.unwrap_err().to_string(), expected);
        }
    }

    /// A maintenance of a roll of two nodes, the second of which has its state.
    fn of_roll(name: &str, position: usize) -> NodeMaintenance {
        let mut object = requested(name);
        let settings = json!({"waves": [2], "maxUnavailable": 1, "minReadySeconds": 30, "actionTimeoutSeconds": 1,
            "returnTimeoutSeconds": 1, "recoveryTimeoutSeconds": 1});
        let node = NodeRecord::planned(0, position, Timestamp::UNIX_EPOCH);
        let state = (position == 1).then(|| (STATE.to_owned(), annotation(&RollRecord::default())));
        object.labels_mut().insert(ROLL_LABEL.to_owned(), "r".to_owned());
        object
            .annotations_mut()
            .extend([(SETTINGS.to_owned(), settings.to_string()), (NODE.to_owned(), annotation(&node))]);
        object.annotations_mut().extend(state);
        object
    }

    #[tokio::test]
    async fn the_state_of_a_roll_moves_before_the_maintenance_with_it_is_deleted() {
        let stopped = async |moves: bool| {
            let objects = Mutex::new([of_roll("n1", 0), of_roll("n2", 1)]);
            let (cluster, requests) = cluster(move |method, path| match method {
                "GET" => list(&*objects.lock().unwrap()),
                "PATCH" if moves => {
                    let mut objects = objects.lock().unwrap();
                    let moved = annotation(&RollRecord { revision: 1, ..RollRecord::default() });
                    objects[0].annotations_mut().insert(STATE.to_owned(), moved);
                    (200, json!(objects[0]))
                }
                "PATCH" => failure(403, "Forbidden", "n1"),
                _ => (200, json!(path.ends_with("n2").then(|| of_roll("n2", 1)))),
            });
            let stopped = stop(&cluster, &[Arc::new(of_roll("n2", 1))], false).await.unwrap();
            let requests = requests.lock().unwrap();
            let last =
                |line: &String| Some(format!("{} {}", line.split_once(' ')?.0, line.rsplit('/').next()?));
            let changes: Vec<_> =
                requests.iter().filter(|line| !line.starts_with("GET")).filter_map(last).collect();
            assert_eq!(changes, ["PATCH n1", "DELETE n2"]);
            stopped
        };
        assert_eq!(stopped(true).await, "stopping: n2");
        assert_eq!(
            stopped(false).await,
            "stopping: n2; warning: the state of roll r may be deleted with a maintenance: Error from server (Forbidden): n1 \
             Forbidden"
        );
    }
}
