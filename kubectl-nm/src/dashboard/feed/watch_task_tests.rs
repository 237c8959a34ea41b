//! What relays say of servers that answer this and that.

use std::collections::VecDeque;

use futures::StreamExt;
use kube::Api;
use kube::api::ObjectMeta;
use nm_shared::NodeMaintenance;
use serde_json::{Value, json};
use tokio::sync::mpsc;

use super::*;
use crate::client::cluster::tests::{NEVER, cluster, failure, list};
use crate::maintenance::fixture::requested;

/// One event of a watch, after which the watch ends in good order.
fn event(kind: &str, object: &NodeMaintenance) -> (u16, Value) {
    (200, json!({"type": kind, "object": object}))
}

fn name(object: &NodeMaintenance) -> &str {
    let ObjectMeta { name, .. } = &object.metadata;
    name.as_deref().unwrap_or_default()
}

/// A message in a word or two.
fn told(message: Message) -> String {
    match message {
        Message::Maintenances(Change::All(objects)) => {
            format!("all {}", objects.iter().map(|object| name(object)).collect::<Vec<_>>().join(" "))
        }
        Message::Maintenances(Change::Applied(object)) => format!("applied {}", name(&object)),
        Message::Maintenances(Change::Gone(object)) => format!("gone {}", name(&object)),
        Message::Link { link: Link::Live, .. } => "live".into(),
        Message::Link { link: Link::Lost { error, .. }, .. } => format!("lost: {error}"),
        Message::Link { link: Link::Forbidden(error), .. } => format!("forbidden: {error}"),
        other => panic!("{other:?}"),
    }
}

/// The first messages about a server whose lists and watches meet these answers in turn, the last for ever.
async fn story(
    lists: Vec<(u16, Value)>,
    watches: Vec<(u16, Value)>,
    count: usize,
) -> (Vec<String>, Vec<String>) {
    let answers = |answers: Vec<(u16, Value)>| Mutex::new(VecDeque::from(answers));
    let (lists, watches) = (answers(lists), answers(watches));
    let (cluster, requests) = cluster(move |_, path| {
        let mut left = if path == "watch" { &watches } else { &lists }.lock().unwrap();
        let answer = left.pop_front().unwrap();
        if left.is_empty() {
            left.push_back(answer.clone());
        }
        answer
    });
    let (to, messages) = mpsc::channel(16);
    let maintenances = Collection::<NodeMaintenance> {
        api: Api::all(cluster.client()),
        fields: None,
        name: "nodemaintenances",
        server: cluster.server().into(),
    };
    let teller = Teller {
        to,
        feed: Feed::Maintenances,
        node: None,
        slim: Some,
        message: Box::new(Message::Maintenances),
    };
    let task = tokio::spawn(relay(vec![maintenances], teller));
    let messages = futures::stream::unfold(messages, async |mut from| Some((from.recv().await?, from)));
    let said = messages.map(told).take(count).collect().await;
    task.abort();
    let requests = requests.lock().unwrap().clone();
    (said, requests)
}

#[tokio::test(start_paused = true)]
async fn all_there_is_comes_first_and_then_what_changes() {
    let (n1, n2) = (requested("n1"), requested("n2"));
    let watches = vec![event("ADDED", &n2), event("MODIFIED", &n1), event("DELETED", &n2)];
    let (said, requests) = story(vec![list(&[n1])], watches, 5).await;
    assert_eq!(said, ["all n1", "live", "applied n2", "applied n1", "gone n2"]);
    assert_eq!(requests.iter().filter(|request| !request.ends_with("watch")).count(), 1, "{requests:?}");
}

#[tokio::test(start_paused = true)]
async fn what_breaks_is_told_once_and_taken_up_where_it_broke_off() {
    let n1 = requested("n1");
    let watches = vec![
        event("ADDED", &n1),
        failure(500, "InternalError", "etcd"),
        failure(500, "InternalError", "etcd"),
        event("ADDED", &n1),
    ];
    let (said, requests) = story(vec![list(&[])], watches, 6).await;
    let lost = "lost: Error from server (InternalError): etcd InternalError";
    assert_eq!(said, ["all ", "live", "applied n1", lost, "live", "applied n1"]);
    assert_eq!(requests.iter().filter(|request| !request.ends_with("watch")).count(), 1, "{requests:?}");
}

#[tokio::test(start_paused = true)]
async fn a_server_that_forgot_the_place_is_asked_for_everything_and_nothing_is_called_lost() {
    let (n1, n2) = (requested("n1"), requested("n2"));
    let watches = vec![
        event("ADDED", &n2),
        failure(410, "Expired", ""),
        event("MODIFIED", &n1),
        event("MODIFIED", &n1),
    ];
    let (said, _) = story(vec![list(std::slice::from_ref(&n1)), list(&[n1, n2])], watches, 5).await;
    assert_eq!(said, ["all n1", "live", "applied n2", "all n1 n2", "applied n1"]);
}

#[tokio::test(start_paused = true)]
async fn a_list_that_does_not_come_makes_the_picture_old_at_once() {
    let (n1, never) = (requested("n1"), || (NEVER, Value::Null));
    let (silent, unanswered) = ("lost: the server does not answer", "lost: error: the server https://c:6443");
    let begun = tokio::time::Instant::now();
    let (said, _) = story(vec![never()], vec![event("ADDED", &n1)], 1).await;
    assert_eq!((said, begun.elapsed().as_secs()), (vec![silent.to_owned()], 2));
    let watches = vec![event("ADDED", &n1), failure(410, "Expired", "")];
    let (said, _) = story(vec![list(&[]), never()], watches, 5).await;
    assert_eq!(said[..4], ["all ", "live", "applied n1", silent]);
    assert!(said[4].starts_with(unanswered), "{said:?}");
}

#[tokio::test(start_paused = true)]
async fn without_the_right_nobody_tries_again() {
    let (said, requests) = story(vec![failure(403, "Forbidden", "n")], vec![list(&[])], 9).await;
    assert_eq!(said, ["forbidden: Error from server (Forbidden): n Forbidden"]);
    assert_eq!(requests.len(), 1);
    let (said, requests) = story(vec![list(&[])], vec![failure(403, "Forbidden", "n")], 9).await;
    assert_eq!(said, ["all ", "forbidden: Error from server (Forbidden): n Forbidden"]);
    assert_eq!(requests.len(), 2);
}

#[test]
fn what_is_lost_stays_lost_since_it_was_lost_first() {
    let lost = |second: u32, error: &str| Link::Lost {
        since: format!("2026-01-02T03:04:{second:02}Z").parse().unwrap(),
        error: error.into(),
    };
    assert_eq!(news(None, Link::Live), Some(Link::Live));
    assert_eq!(news(Some(&Link::Live), Link::Live), None);
    assert_eq!(news(Some(&Link::Live), lost(5, "a")), Some(lost(5, "a")));
    assert_eq!(news(Some(&lost(5, "a")), lost(9, "a")), None);
    assert_eq!(news(Some(&lost(5, "a")), lost(9, "b")), Some(lost(5, "b")));
    assert_eq!(news(Some(&lost(5, "a")), Link::Live), Some(Link::Live));
}

#[test]
fn pauses_grow_up_to_ten_seconds() {
    let pauses: Vec<u128> = (1..9).map(|failures| pause(failures).as_millis()).collect();
    assert_eq!(pauses, [500, 1000, 2000, 4000, 8000, 10_000, 10_000, 10_000]);
}
