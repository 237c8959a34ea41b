//! What a watch reports about servers that answer in various ways.

use std::collections::VecDeque;
use std::sync::Mutex;

use kube::ResourceExt;
use nm_shared::NodeMaintenance;
use serde_json::{Value, json};

use super::*;
use crate::testing::fake_server::{NEVER, cluster, failure, list};
use crate::testing::objects::requested;

/// One event of a watch, after which the watch ends in good order.
fn event(kind: &str, object: &NodeMaintenance) -> (u16, Value) {
    (200, json!({"type": kind, "object": object}))
}

/// An update in a few words.
fn word(update: Result<WatchUpdate<NodeMaintenance>, Error>) -> String {
    match update {
        Ok(WatchUpdate::Change(WatchChange::Listed(objects))) => {
            let names: Vec<String> = objects.iter().map(|object| object.name_any()).collect();
            format!("listed {}", names.join(" "))
        }
        Ok(WatchUpdate::Change(WatchChange::Applied(object))) => format!("applied {}", object.name_any()),
        Ok(WatchUpdate::Change(WatchChange::Deleted(object))) => format!("deleted {}", object.name_any()),
        Ok(WatchUpdate::Live) => "live".into(),
        Ok(WatchUpdate::Lost { error, .. }) => format!("lost: {error}"),
        Err(error) => format!("ended: {error}"),
    }
}

/// The first updates, and the requests for them, from a server whose lists and watches get these answers in turn, the last
/// one for ever.
async fn updates(
    policy: WatchPolicy,
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
    let api = Api::<NodeMaintenance>::all(cluster.client());
    let target = WatchTarget::all(api, "nodemaintenances", cluster.server());
    let updates = watch(target, policy, Some).map(word).take(count).collect().await;
    let requests = requests.lock().unwrap().clone();
    (updates, requests)
}

fn lists(requests: &[String]) -> usize {
    requests.iter().filter(|request| !request.ends_with("watch")).count()
}

const DASHBOARD: WatchPolicy = WatchPolicy::DASHBOARD;
const COMMAND: WatchPolicy = WatchPolicy::COMMAND;

#[tokio::test(start_paused = true)]
async fn all_objects_are_listed_before_changes_are_reported() {
    let (n1, n2) = (requested("n1"), requested("n2"));
    for policy in [DASHBOARD, COMMAND] {
        let watches = vec![event("ADDED", &n2), event("MODIFIED", &n1), event("DELETED", &n2)];
        let (updates, requests) = updates(policy, vec![list(std::slice::from_ref(&n1))], watches, 5).await;
        assert_eq!(updates, ["listed n1", "live", "applied n2", "applied n1", "deleted n2"]);
        assert_eq!(lists(&requests), 1, "{requests:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_loss_is_reported_once_and_the_dashboard_resumes_without_a_list() {
    let n1 = requested("n1");
    let watches = vec![
        event("ADDED", &n1),
        failure(500, "InternalError", "etcd"),
        failure(500, "InternalError", "etcd"),
        event("ADDED", &n1),
    ];
    let (updates, requests) = updates(DASHBOARD, vec![list(&[])], watches, 6).await;
    let lost = "lost: Error from server (InternalError): etcd InternalError";
    assert_eq!(updates, ["listed ", "live", "applied n1", lost, "live", "applied n1"]);
    assert_eq!(lists(&requests), 1, "{requests:?}");
}

#[tokio::test(start_paused = true)]
async fn a_command_lists_again_after_a_loss() {
    let n1 = requested("n1");
    let watches = vec![event("ADDED", &n1), failure(500, "InternalError", "etcd"), event("MODIFIED", &n1)];
    let (updates, requests) = updates(COMMAND, vec![list(&[])], watches, 7).await;
    let lost = "lost: Error from server (InternalError): etcd InternalError";
    assert_eq!(updates, ["listed ", "live", "applied n1", lost, "listed ", "live", "applied n1"]);
    assert_eq!(lists(&requests), 2, "{requests:?}");
}

#[tokio::test(start_paused = true)]
async fn an_expired_version_causes_a_list_and_is_not_reported_as_a_loss() {
    let (n1, n2) = (requested("n1"), requested("n2"));
    for policy in [DASHBOARD, COMMAND] {
        let watches = vec![
            event("ADDED", &n2),
            failure(410, "Expired", ""),
            event("MODIFIED", &n1),
            event("MODIFIED", &n1),
        ];
        let lists = vec![list(std::slice::from_ref(&n1)), list(&[n1.clone(), n2.clone()])];
        let (updates, _) = updates(policy, lists, watches, 5).await;
        assert_eq!(updates, ["listed n1", "live", "applied n2", "listed n1 n2", "applied n1"]);
    }
}

#[tokio::test(start_paused = true)]
async fn an_overdue_list_is_reported_as_a_loss_before_it_times_out() {
    let (n1, never) = (requested("n1"), || (NEVER, Value::Null));
    let overdue = "lost: the server https://c:6443 did not respond within 2s";
    let started = Instant::now();
    let (first, _) = updates(DASHBOARD, vec![never()], vec![event("ADDED", &n1)], 1).await;
    assert_eq!((first, started.elapsed().as_secs()), (vec![overdue.to_owned()], 2));
    let watches = vec![event("ADDED", &n1), failure(410, "Expired", "")];
    let (updates, _) = updates(DASHBOARD, vec![list(&[]), never()], watches, 5).await;
    assert_eq!(updates[..4], ["listed ", "live", "applied n1", overdue]);
    assert!(updates[4].contains("did not respond within 15s"), "{updates:?}");
}

#[tokio::test(start_paused = true)]
async fn missing_permission_ends_the_watch() {
    let forbidden = "ended: Error from server (Forbidden): n Forbidden";
    for policy in [DASHBOARD, COMMAND] {
        let (first, requests) =
            updates(policy, vec![failure(403, "Forbidden", "n")], vec![list(&[])], 9).await;
        assert_eq!((first, requests.len()), (vec![forbidden.to_owned()], 1));
        let (second, requests) =
            updates(policy, vec![list(&[])], vec![failure(403, "Forbidden", "n")], 9).await;
        assert_eq!((second, requests.len()), (vec!["listed ".to_owned(), forbidden.to_owned()], 2));
    }
}

#[tokio::test(start_paused = true)]
async fn only_the_dashboard_retries_errors_that_a_new_login_would_fix() {
    let unauthorized = || vec![failure(401, "Unauthorized", "")];
    let (updates, requests) = updates(COMMAND, unauthorized(), unauthorized(), 9).await;
    assert!(updates.len() == 1 && updates[0].starts_with("ended: "), "{updates:?}");
    assert_eq!(requests.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn further_failures_do_not_change_since_when_data_is_old() {
    let failures = ["a", "b"].map(|name| failure(500, "InternalError", name));
    let (cluster, _) = {
        let failures = Mutex::new(VecDeque::from(failures));
        cluster(move |_, _| {
            let mut failures = failures.lock().unwrap();
            failures.pop_front().unwrap_or_else(|| list(&[]))
        })
    };
    let api = Api::<NodeMaintenance>::all(cluster.client());
    let target = WatchTarget::all(api, "nodemaintenances", cluster.server());
    let updates: Vec<_> = watch(target, DASHBOARD, Some).take(2).collect().await;
    let since = |update: &Result<WatchUpdate<NodeMaintenance>, Error>| match update {
        Ok(WatchUpdate::Lost { since, .. }) => *since,
        other => panic!("{other:?}"),
    };
    assert_eq!(since(&updates[0]), since(&updates[1]));
}

#[test]
fn retry_intervals_grow_up_to_ten_seconds() {
    let intervals: Vec<u128> = (1..9).map(|failures| retry_interval(failures).as_millis()).collect();
    assert_eq!(intervals, [500, 1000, 2000, 4000, 8000, 10_000, 10_000, 10_000]);
}
