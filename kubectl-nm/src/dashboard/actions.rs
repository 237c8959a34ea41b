//! What the dashboard does to the cluster, each command a task that ends with a message: maintenances are started and
//! stopped.

use futures::stream::{self, StreamExt};
use kube::ResourceExt;
use kube::core::Status;
use nm_shared::NodeMaintenance;
use tokio::sync::mpsc::Sender;

use crate::client::cluster::{Cluster, Deletion, MAX_CONCURRENT_REQUESTS};
use crate::dashboard::message::Message;
use crate::error::Error;
use crate::maintenance::request::Step;

/// Creates maintenances, and says what became of it.
pub(crate) async fn start(cluster: Cluster, wanted: Vec<NodeMaintenance>, to: Sender<Message>) {
    let answers: Vec<(String, Result<&str, Error>)> = stream::iter(&wanted)
        .map(async |maintenance| (maintenance.name_any(), begin(&cluster, maintenance).await))
        .buffered(MAX_CONCURRENT_REQUESTS)
        .collect()
        .await;
    tell(to, "started", answers).await;
}

/// Creates one, and says in a word what became of it.
async fn begin(cluster: &Cluster, wanted: &NodeMaintenance) -> Result<&'static str, Error> {
    let refused = match cluster.create(wanted, false).await {
        Ok(_) => return Ok("started"),
        Err(error) if error.status().is_some_and(Status::is_already_exists) => error,
        Err(error) => return Err(error),
    };
    // Somebody was faster; what they made may do, or be on its way out.
    let node = &wanted.spec.node_name;
    let theirs: Vec<NodeMaintenance> = cluster.maintenance(&wanted.name_any()).await?.into_iter().collect();
    match Step::towards(node, &theirs) {
        Step::Present(_) => Ok("in maintenance already"),
        step => Err(step.refusal(node).unwrap_or(refused)),
    }
}

/// Deletes the maintenances of these names and uids, and says what became of it.
pub(crate) async fn stop(cluster: Cluster, unwanted: Vec<(String, String)>, to: Sender<Message>) {
    let word = |deletion| match deletion {
        Deletion::UnderWay => "stopping",
        Deletion::Gone => "stopped",
        Deletion::Replaced => "gone, and a later one goes on",
    };
    let answers: Vec<(String, Result<&str, Error>)> = stream::iter(&unwanted)
        .map(async |(name, uid)| (name.clone(), cluster.delete(name, uid).await.map(word)))
        .buffered(MAX_CONCURRENT_REQUESTS)
        .collect()
        .await;
    tell(to, "stopping", answers).await;
}

async fn tell(to: Sender<Message>, what: &str, answers: Vec<(String, Result<&str, Error>)>) {
    // Nobody listens when the dashboard has ended.
    let _ = to.send(Message::Done(outcome(what, answers))).await;
}

/// What became of a command, in a sentence: failures before successes, the first of them with its reason. `what` is the
/// word for what was wanted.
fn outcome(what: &str, answers: Vec<(String, Result<&str, Error>)>) -> Result<String, String> {
    let mut done: Vec<(&str, Vec<String>)> = Vec::new();
    let mut failed = Vec::new();
    for (name, answer) in answers {
        match answer {
            Ok(word) => match done.iter_mut().find(|(known, _)| *known == word) {
                Some((_, names)) => names.push(name),
                None => done.push((word, vec![name])),
            },
            Err(error) => failed.push((name, error.to_string())),
        }
    }
    let told: Vec<String> = done.iter().map(|(word, names)| format!("{word}: {}", in_short(names))).collect();
    let told = if told.is_empty() { format!("{what}: none") } else { told.join("; ") };
    match failed.as_slice() {
        [] => Ok(told),
        [(name, why)] if done.is_empty() => Err(format!("{name}: {why}")),
        [(name, why), others @ ..] => Err(match others.len() {
            0 => format!("{name}: {why}; {told}"),
            more => format!("{name} and {more} more: {why}; {told}"),
        }),
    }
}

/// Names, as far as a line holds them.
fn in_short(names: &[String]) -> String {
    const SHOWN: usize = 3;
    match names {
        names if names.len() <= SHOWN => names.join(", "),
        names => format!("{} and {} more", names[..SHOWN].join(", "), names.len() - SHOWN),
    }
}

#[cfg(test)]
mod tests {
    use tokio::sync::mpsc;

    use super::*;
    use crate::client::cluster::tests::{cluster, failure};
    use crate::maintenance::fixture::{named, requested, stopping};

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
    async fn what_somebody_else_did_meanwhile_is_told_as_it_is() {
        let start_beside = async |theirs: NodeMaintenance| {
            let theirs = serde_json::to_value(theirs).unwrap();
            let (taken, _) = cluster(move |method, _| match method {
                "POST" => failure(409, "AlreadyExists", "n1"),
                _ => (200, theirs.clone()),
            });
            said(async |to| start(taken, vec![requested("n1")], to).await).await
        };
        assert_eq!(start_beside(requested("n1")).await.unwrap(), "in maintenance already: n1");
        let ending = start_beside(stopping(requested("n1"))).await.unwrap_err();
        assert!(ending.contains("is returning to service"), "{ending}");
        let other = start_beside(named("n1", "n2", "u")).await.unwrap_err();
        assert!(other.contains("and it is for node \"n2\""), "{other}");

        let (changed, _) = cluster(|_, path| match path.rsplit('/').next() {
            Some("a") => failure(404, "NotFound", "a"),
            Some("b") => failure(409, "Conflict", "b"),
            _ => (200, serde_json::to_value(requested("c")).unwrap()),
        });
        let unwanted = ["a", "b", "c", "d"].map(|name| (name.to_owned(), "u".to_owned())).to_vec();
        assert_eq!(
            said(async |to| stop(changed, unwanted, to).await).await.unwrap(),
            "stopped: a; gone, and a later one goes on: b; stopping: c, d"
        );
    }

    #[tokio::test]
    async fn a_refusal_is_told_first() {
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
