//! Watches that end, and history that is forgotten.

use std::time::Duration;

use futures::{StreamExt, TryStreamExt};
use kube::api::{ListParams, WatchEvent, WatchParams};
use kube::runtime::WatchStreamExt;
use kube::runtime::watcher::{self, Event};
use kube::{Client, ResourceExt};
use kube_sandbox::faults::{Action, Rule, Target, When};
use kube_sandbox::sandbox::Sandbox;
use serde_json::json;
use tokio::sync::mpsc;

use super::{TEST_TIMEOUT, cluster, nodes, status};

fn watches() -> Target {
    Target::any().verb("watch").resource("nodes")
}

fn watches_begun(sandbox: &Sandbox) -> usize {
    sandbox.requests().count(|entry| entry.verb == "watch" && entry.resource == "nodes")
}

/// A watch that says what changes, and not how far it has come.
fn changes() -> WatchParams {
    WatchParams::default().disable_bookmarks()
}

/// Adds a label to the node.
async fn label(client: &Client, value: &str) {
    use kube::api::{Patch, PatchParams};
    let patch = json!({"metadata": {"labels": {"step": value}}});
    nodes(client).patch("node-01", &PatchParams::default(), &Patch::Merge(&patch)).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn ending_an_open_watch_does_not_end_others() {
    let (sandbox, client) = cluster(1).await;
    let api = nodes(&client);
    let (all, one) = (changes(), changes().labels("none=such"));
    let mut ended = api.watch(&all, "0").await.unwrap().boxed();
    assert!(matches!(ended.next().await, Some(Ok(WatchEvent::Added(_)))));
    let _other = api.watch(&one, "0").await.unwrap().boxed();
    assert_eq!(sandbox.faults().open_watches(&watches()), 2);
    assert_eq!(sandbox.faults().end_watches(&Target::any().resource("pods"), 0), 0);
    assert_eq!(sandbox.faults().end_watches(&watches(), 0), 2);
    assert!(ended.next().await.is_none());
}

#[tokio::test(start_paused = true)]
async fn a_watch_ends_after_so_many_events() {
    let (sandbox, client) = cluster(3).await;
    sandbox.faults().add(Rule::new(watches(), Action::EndWatch { after: 2 }).when(When::First(1)));
    let api = nodes(&client);
    let seen: Vec<_> = api.watch(&changes(), "0").await.unwrap().try_collect().await.unwrap();
    assert_eq!(seen.len(), 2, "of three that are there");
    let mut next = api.watch(&changes(), "0").await.unwrap().boxed();
    for _ in 0..3 {
        assert!(matches!(next.next().await, Some(Ok(WatchEvent::Added(_)))));
    }
    assert_eq!(sandbox.faults().end_watches(&watches(), 1), 1);
    label(&client, "one").await;
    label(&client, "two").await;
    assert!(matches!(next.next().await, Some(Ok(WatchEvent::Modified(_)))));
    assert!(next.next().await.is_none());
}

#[tokio::test(start_paused = true)]
async fn a_muted_watch_sends_nothing_and_does_not_end() {
    let (sandbox, client) = cluster(1).await;
    let api = nodes(&client);
    let mut muted = api.watch(&changes().timeout(5), "0").await.unwrap().boxed();
    assert!(matches!(muted.next().await, Some(Ok(WatchEvent::Added(_)))));
    assert_eq!(sandbox.faults().mute_watches(&watches()), 1);
    let mut next = api.watch(&changes(), "0").await.unwrap().boxed();
    assert!(matches!(next.next().await, Some(Ok(WatchEvent::Added(_)))));
    label(&client, "one").await;
    assert!(matches!(next.next().await, Some(Ok(WatchEvent::Modified(_)))), "others are reported");
    let word = tokio::time::timeout(Duration::from_secs(60), muted.next()).await;
    assert!(word.is_err(), "{word:?}, though its time was over long ago");
}

#[tokio::test(start_paused = true)]
async fn dropped_history_is_a_410_for_continue_tokens_and_watches() {
    let (sandbox, client) = cluster(3).await;
    let api = nodes(&client);
    let page = api.list(&ListParams::default().limit(1)).await.unwrap();
    let version = page.metadata.resource_version.clone().unwrap();
    let next = ListParams::default().limit(1).continue_token(&page.metadata.continue_.unwrap());
    api.list(&next).await.unwrap();
    label(&client, "one").await;
    sandbox.faults().forget_history();
    let expired = status(api.list(&next).await);
    assert_eq!((expired.code, expired.reason.as_str()), (410, "Expired"));
    let mut late = api.watch(&WatchParams::default(), &version).await.unwrap().boxed();
    match late.next().await {
        Some(Ok(WatchEvent::Error(status))) => assert_eq!(status.code, 410),
        other => panic!("{other:?}"),
    }
}

#[tokio::test(start_paused = true)]
async fn a_kube_watcher_survives_closed_watches_lost_history_and_a_restart() {
    let (sandbox, client) = cluster(1).await;
    let (tell, mut reported) = mpsc::unbounded_channel();
    let events = kube::runtime::watcher(nodes(&client), watcher::Config::default()).default_backoff();
    // Errors are what it survives.
    let told_all = events.for_each(move |event| {
        if let Ok(Event::Apply(node) | Event::InitApply(node)) = event {
            let _ = tell.send(node.labels().get("step").cloned());
        }
        std::future::ready(())
    });
    let watcher = tokio::spawn(told_all);
    let lists = || sandbox.requests().count(|entry| entry.verb == "list" && entry.resource == "nodes");
    for (step, watches_so_far, lists_in_all) in
        [("begun", 1, 1), ("closed", 1, 1), ("forgotten", 2, 2), ("restarted", 4, 2)]
    {
        let steady = sandbox.requests().until(|_| watches_begun(&sandbox) == watches_so_far);
        tokio::time::timeout(TEST_TIMEOUT, steady).await.unwrap();
        match step {
            "closed" => assert_eq!(sandbox.faults().end_watches(&watches(), 0), 1),
            "forgotten" => {
                // It comes back too late: by then there was a change of which nobody knows any more.
                let late = Rule::new(watches(), Action::Delay(Duration::from_secs(1))).when(When::First(1));
                sandbox.faults().add(late);
                assert_eq!(sandbox.faults().end_watches(&watches(), 0), 1);
            }
            "restarted" => {
                sandbox.server_down().await;
                sandbox.server_up().await.unwrap();
            }
            _ => {}
        }
        label(&client, step).await;
        if step == "forgotten" {
            sandbox.faults().forget_history();
        }
        let received = async { while reported.recv().await.unwrap().as_deref() != Some(step) {} };
        tokio::time::timeout(TEST_TIMEOUT, received).await.unwrap();
        assert_eq!(lists(), lists_in_all, "{step}");
    }
    watcher.abort();
}

#[tokio::test(start_paused = true)]
async fn a_watch_is_in_the_log_when_it_begins() {
    let (sandbox, client) = cluster(1).await;
    let api = nodes(&client);
    let watch = async {
        let mut watch = api.watch(&changes(), "0").await.unwrap().boxed();
        watch.next().await.unwrap().unwrap();
        watch
    };
    let logged = sandbox.requests().until(|log| log.count(|entry| entry.verb == "watch") == 1);
    let (_open, ()) =
        tokio::time::timeout(TEST_TIMEOUT, async { tokio::join!(watch, logged) }).await.unwrap();
    assert_eq!(watches_begun(&sandbox), 1);
}
