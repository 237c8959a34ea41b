//! What the dashboard does to the cluster, each command a task that ends with a message: maintenances are started and
//! stopped.

use futures::stream::{self, StreamExt};
use kube::ResourceExt;
use kube::core::Status;
use nm_shared::NodeMaintenance;
use tokio::sync::mpsc::Sender;

use super::message::Message;
use crate::cluster::{AT_ONCE, Cluster};
use crate::error::Error;

/// Creates maintenances, and says what became of it.
pub(crate) async fn start(cluster: Cluster, wanted: Vec<NodeMaintenance>, to: Sender<Message>) {
    let answers: Vec<(String, Result<(), Error>)> = stream::iter(&wanted)
        .map(async |maintenance| {
            let created = match cluster.create(maintenance, false).await {
                // Somebody was faster, which is just as well.
                Err(error) if error.status().is_some_and(Status::is_already_exists) => Ok(()),
                answer => answer.map(drop),
            };
            (maintenance.name_any(), created)
        })
        .buffered(AT_ONCE)
        .collect()
        .await;
    tell(to, "started", answers).await;
}

/// Deletes the maintenances of these names and uids, and says what became of it.
pub(crate) async fn stop(cluster: Cluster, unwanted: Vec<(String, String)>, to: Sender<Message>) {
    let answers: Vec<(String, Result<(), Error>)> = stream::iter(&unwanted)
        .map(async |(name, uid)| (name.clone(), cluster.delete(name, uid).await.map(drop)))
        .buffered(AT_ONCE)
        .collect()
        .await;
    tell(to, "stopping", answers).await;
}

async fn tell(to: Sender<Message>, what: &str, answers: Vec<(String, Result<(), Error>)>) {
    // Nobody listens when the dashboard has ended.
    let _ = to.send(Message::Done(outcome(what, answers))).await;
}

/// What became of a command, in a sentence: failures before successes, the first of them with its reason.
fn outcome(what: &str, answers: Vec<(String, Result<(), Error>)>) -> Result<String, String> {
    let mut done = Vec::new();
    let mut failed = Vec::new();
    for (name, answer) in answers {
        match answer {
            Ok(()) => done.push(name),
            Err(error) => failed.push((name, error.to_string())),
        }
    }
    match failed.as_slice() {
        [] => Ok(format!("{what}: {}", in_short(&done))),
        [(name, why)] if done.is_empty() => Err(format!("{name}: {why}")),
        [(name, why), others @ ..] => Err(match others.len() {
            0 => format!("{name}: {why}; {what}: {}", in_short(&done)),
            more => format!("{name} and {more} more: {why}; {what}: {}", in_short(&done)),
        }),
    }
}

/// Names, as far as a line holds them.
fn in_short(names: &[String]) -> String {
    const SHOWN: usize = 3;
    match names {
        [] => String::from("none"),
        names if names.len() <= SHOWN => names.join(", "),
        names => format!("{} and {} more", names[..SHOWN].join(", "), names.len() - SHOWN),
    }
}

#[cfg(test)]
mod tests {
    use tokio::sync::mpsc;

    use super::*;
    use crate::cluster::tests::{cluster, failure};
    use crate::maintenance::fixture::requested;

    async fn said(command: impl AsyncFnOnce(Sender<Message>)) -> Result<String, String> {
        let (to, mut from) = mpsc::channel(1);
        command(to).await;
        match from.recv().await {
            Some(Message::Done(outcome)) => outcome,
            other => panic!("{other:?}"),
        }
    }

    #[tokio::test]
    async fn what_became_of_a_start_is_told_in_a_sentence() {
        let (cluster, _) = cluster(|_, _| (201, serde_json::to_value(requested("n1")).unwrap()));
        let nodes = |names: &[&str]| names.iter().map(|name| requested(name)).collect::<Vec<_>>();
        for (wanted, expected) in [
            (nodes(&["n1"]), "started: n1"),
            (nodes(&["n1", "n2", "n3", "n4", "n5"]), "started: n1, n2, n3 and 2 more"),
        ] {
            assert_eq!(said(async |to| start(cluster.clone(), wanted, to).await).await.unwrap(), expected);
        }
    }

    #[tokio::test]
    async fn somebody_who_was_faster_is_no_failure_and_a_refusal_is_told_first() {
        let (taken, _) = cluster(|_, _| failure(409, "AlreadyExists", "n1"));
        assert_eq!(
            said(async |to| start(taken, vec![requested("n1")], to).await).await.unwrap(),
            "started: n1"
        );
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
            let outcome = said(async |to| stop(refusing.clone(), unwanted, to).await).await;
            assert_eq!(outcome.unwrap_err(), expected);
        }
    }
}
