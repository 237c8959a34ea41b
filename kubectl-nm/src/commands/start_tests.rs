//! What start decides, and what it asks of the server.

use serde_json::{Value, json};

use super::*;
use crate::cluster::tests::{cluster, failure, list};
use crate::maintenance::fixture::{named, requested, stopping};
use crate::output::captured::output;

fn present(name: &str, node: &str, uid: &str) -> Step {
    Step::Present(Target { node: node.into(), name: name.into(), uid: uid.into() })
}

#[test]
fn what_exists_decides_what_is_to_be_done() {
    for (existing, step) in [
        (vec![], Step::Create),
        (vec![requested("n2")], Step::Create),
        (vec![requested("n1")], present("n1", "n1", "uid-n1")),
        (vec![named("other", "n1", "u")], present("other", "n1", "u")),
        (vec![named("n1", "n2", "u")], Step::NameTaken("n2".into())),
        (vec![named("n1", "n2", "u"), named("n2", "n1", "v")], present("n2", "n1", "v")),
        (vec![stopping(requested("n1"))], Step::Ending),
        (vec![stopping(requested("n1")), named("other", "n1", "u")], present("other", "n1", "u")),
        (vec![stopping(named("other", "n1", "u"))], Step::Ending),
    ] {
        assert_eq!(Step::towards("n1", &existing), step, "{existing:?}");
    }
}

#[test]
fn nothing_begins_unless_everything_can() {
    let steps = |steps: &[Step]| -> Vec<(String, Step)> {
        steps.iter().enumerate().map(|(i, step)| (format!("n{i}"), step.clone())).collect()
    };
    let lookups = |found: &[(&str, NodeLookup)]| {
        found.iter().map(|(node, lookup)| ((*node).to_owned(), *lookup)).collect::<BTreeMap<_, _>>()
    };
    let all_missing =
        lookups(&[("n0", NodeLookup::Missing), ("n1", NodeLookup::Exists), ("n2", NodeLookup::Missing)]);
    let three = steps(&[Step::Create, Step::Create, Step::Create]);
    assert!(matches!(check(&three, &all_missing), Err(Error::UnknownNodes(nodes)) if nodes == ["n0", "n2"]));
    let hidden =
        lookups(&[("n0", NodeLookup::Hidden), ("n1", NodeLookup::Exists), ("n2", NodeLookup::Hidden)]);
    assert_eq!(check(&three, &hidden).unwrap(), ["n0", "n2"]);
    let ending = steps(&[present("a", "n0", "u"), Step::Ending]);
    assert!(matches!(check(&ending, &BTreeMap::new()), Err(Error::Ending(node)) if node == "n1"));
    let taken = steps(&[Step::NameTaken("x".into())]);
    assert!(matches!(check(&taken, &BTreeMap::new()), Err(Error::NameTaken { other, .. }) if other == "x"));
}

/// Starts these nodes in a cluster that answers so; how it ended, what was printed and what was created.
async fn start(
    nodes: &[&str],
    answer: impl Fn(&str, &str) -> (u16, Value) + Send + Sync + 'static,
) -> (Result<Exit, Error>, String, usize) {
    let (cluster, requests) = cluster(answer);
    let (mut out, captured) = output();
    let nodes = nodes.iter().map(ToString::to_string).collect();
    let args = StartArgs { nodes, reason: None, wait: false, timeout: None };
    let ended = run(args, &cluster, &mut out).await;
    let created = requests.lock().unwrap().iter().filter(|request| request.starts_with("POST")).count();
    (ended, captured.data() + &captured.talk(), created)
}

fn created(node: &str) -> (u16, Value) {
    (201, serde_json::to_value(requested(node)).unwrap())
}

#[tokio::test]
async fn a_typo_in_one_name_starts_nothing() {
    let (ended, _, posts) = start(&["n1", "n2"], |method, path| match (method, path) {
        ("POST", _) => created("n1"),
        (_, "/api/v1/nodes/n1") => (200, json!({"metadata": {"name": "n1"}})),
        (_, "/api/v1/nodes/n2") => failure(404, "NotFound", "n2"),
        _ => list(&[]),
    })
    .await;
    assert!(matches!(ended, Err(Error::UnknownNodes(nodes)) if nodes == ["n2"]));
    assert_eq!(posts, 0);
}

#[tokio::test]
async fn no_right_on_nodes_is_needed() {
    let (ended, printed, posts) = start(&["n1", "n1"], |method, path| match method {
        "POST" => created("n1"),
        _ if path.starts_with("/api/v1/nodes/") => failure(403, "Forbidden", "n1"),
        _ => list(&[]),
    })
    .await;
    assert_eq!((ended.unwrap(), posts), (Exit::Done, 1));
    assert_eq!(
        printed,
        "node/n1 maintenance started\nnode/n1: you may not read nodes, so nobody checked that it exists\n"
    );
}

#[tokio::test]
async fn losing_a_race_is_no_failure_if_the_winner_wanted_the_same() {
    for (winner, expected) in [
        (requested("n1"), "node/n1 is in maintenance already\n"),
        (
            stopping(requested("n1")),
            "error: node \"n1\" is just being given back: its maintenance is being deleted\n",
        ),
    ] {
        let (ended, printed, _) = start(&["n1"], move |method, path| match method {
            "POST" => failure(409, "AlreadyExists", "n1"),
            _ if path.starts_with("/api/v1/nodes/") => (200, json!({"metadata": {"name": "n1"}})),
            _ if path.ends_with("/n1") => (200, serde_json::to_value(&winner).unwrap()),
            _ => list(&[]),
        })
        .await;
        assert!(printed.starts_with(expected), "{printed}");
        assert_eq!(ended.unwrap() == Exit::Done, !printed.starts_with("error"));
    }
}

#[tokio::test]
async fn one_refusal_does_not_hide_what_was_started() {
    let (ended, printed, posts) = start(&["n1", "n2"], |method, path| match method {
        "POST" => failure(403, "Forbidden", "x"),
        _ if path.starts_with("/api/v1/nodes/") => failure(500, "InternalError", "x"),
        _ => list(&[requested("n1"), named("other", "n2", "u")]),
    })
    .await;
    assert_eq!((ended.unwrap(), posts), (Exit::Done, 0));
    assert_eq!(
        printed,
        "node/n1 is in maintenance already\nnode/n2 is in maintenance already, by the NodeMaintenance other\n"
    );
    let (ended, printed, _) = start(&["n1", "n2"], |method, path| match method {
        "POST" => failure(403, "Forbidden", "x"),
        _ if path.starts_with("/api/v1/nodes/") => (200, json!({"metadata": {"name": "n2"}})),
        _ => list(&[requested("n1")]),
    })
    .await;
    assert_eq!(ended.unwrap(), Exit::Error);
    assert!(
        printed.contains(
            "node/n1 is in maintenance already\nError from server (Forbidden): x Forbidden\nhint: "
        )
    );
}
