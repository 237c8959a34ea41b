//! Evictions of which nobody knows whether they took: the server fails, throttles, or the connection is lost before or
//! after the pod was told to go. Only a sandbox fails on demand.

use jiff::SignedDuration;
use kube_sandbox::faults::{Action, Failure, Moment, Rule, Target, When};
use nm_shared::{BlockReason, NodeMaintenanceStatus};
use nm_tests::reconciler::Reconciler;
use nm_tests::until::until;
use nm_tests::workload::{Workload, node_of};
use serde_json::json;

use crate::answers::{blocked, nothing_is_left};
use crate::{evictions, once, only_sandbox, start};

const WHY: &str = "only a sandbox fails on demand";

fn eviction_of(pod: &str) -> Target {
    Target::any().subresource("eviction").name(pod)
}

#[tokio::test(flavor = "multi_thread")]
async fn an_eviction_whose_answer_is_lost_is_repeated_only_if_it_did_not_take() {
    let Some(cluster) = only_sandbox(1, WHY).await else { return };
    let workload = Workload::new(&cluster, "lost").await;
    let node = &cluster.nodes().await[0];
    let sandbox = cluster.sandbox().unwrap();
    let mut cases = Vec::new();
    for moment in [Moment::BeforeEffect, Moment::AfterEffect] {
        for (name, code, action) in [
            ("internal", 500, Action::Fail(Failure::Internal, moment)),
            ("unavailable", 503, Action::Fail(Failure::Unavailable, moment)),
            ("timeout", 504, Action::Fail(Failure::Timeout, moment)),
            ("throttled", 429, Action::Fail(Failure::TooManyRequests { retry_after: 1 }, moment)),
            ("lost", 0, Action::Disconnect(moment)),
        ] {
            let pod = format!("{name}-{moment:?}").to_lowercase();
            workload.pod_on(node, &pod, json!({})).await;
            sandbox.faults().add(Rule::new(eviction_of(&pod), action).when(When::First(1)));
            let expected = if moment == Moment::BeforeEffect { vec![code, 201] } else { vec![code] };
            cases.push((pod, expected));
        }
    }
    let _reconciler = Reconciler::start(&cluster);
    start(&cluster, "e2e-lost", node).await;
    nothing_is_left(&cluster, "e2e-lost").await;
    let all = evictions(sandbox);
    for (pod, expected) in cases {
        let codes: Vec<u16> = all.iter().filter(|entry| entry.name == pod).map(|entry| entry.code).collect();
        assert_eq!(codes, expected, "{pod}");
        assert!(workload.pods().get_opt(&pod).await.unwrap().is_none(), "{pod}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_failed_is_told_in_words_for_as_long_as_it_fails() {
    let Some(cluster) = only_sandbox(1, WHY).await else { return };
    let workload = Workload::new(&cluster, "words").await;
    let node = &cluster.nodes().await[0];
    let cases = [
        ("a-failing", Action::Fail(Failure::Internal, Moment::BeforeEffect), "etcdserver: leader changed"),
        (
            "b-lost",
            Action::Disconnect(Moment::BeforeEffect),
            "no answer from the API server: the connection was lost",
        ),
        (
            "c-throttled",
            Action::Fail(Failure::TooManyRequests { retry_after: 3 }, Moment::BeforeEffect),
            "the API server throttles for 3 s: Too many requests, please try again later.",
        ),
    ];
    let faults = cluster.sandbox().unwrap().faults();
    for (pod, action, _) in &cases {
        workload.pod_on(node, pod, json!({})).await;
        faults.add(Rule::new(eviction_of(pod), action.clone()));
    }
    let _reconciler = Reconciler::start(&cluster);
    start(&cluster, "e2e-words", node).await;
    let all = |status: &NodeMaintenanceStatus| status.blocked_pods.len() == cases.len();
    let status = once(&cluster, "e2e-words", "all fail", all).await;
    for (shown, (pod, _, message)) in status.blocked_pods.iter().zip(&cases) {
        assert_eq!((shown.name.as_str(), shown.reason), (*pod, BlockReason::ServerError));
        assert!(shown.message.ends_with(message), "{}", shown.message);
    }
    blocked(&cluster, "e2e-words", BlockReason::ServerError).await;
    faults.clear();
    nothing_is_left(&cluster, "e2e-words").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_throttles_is_left_alone_for_as_long_as_it_asks() {
    let Some(cluster) = only_sandbox(1, WHY).await else { return };
    let workload = Workload::new(&cluster, "patience").await;
    let node = &cluster.nodes().await[0];
    workload.pod_on(node, "cart", json!({})).await;
    let sandbox = cluster.sandbox().unwrap();
    let throttles = Action::Fail(Failure::TooManyRequests { retry_after: 4 }, Moment::BeforeEffect);
    sandbox.faults().add(Rule::new(eviction_of("cart"), throttles).when(When::First(1)));
    let _reconciler = Reconciler::start(&cluster);
    start(&cluster, "e2e-patience", node).await;
    nothing_is_left(&cluster, "e2e-patience").await;
    let [first, second] = &evictions(sandbox)[..] else { panic!("asked twice") };
    assert_eq!((first.code, second.code), (429, 201));
    // A pause of ours would have been one second.
    let pause = second.at.duration_since(first.at);
    assert!(pause >= SignedDuration::from_secs(4), "{pause}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_replacement_is_never_evicted_for_the_pod_that_it_replaces() {
    let Some(cluster) = only_sandbox(2, WHY).await else { return };
    let workload = Workload::new(&cluster, "replaced").await;
    workload.deployment("web", 1).await;
    let old = workload.until_running("web", 1).await.remove(0);
    let node = node_of(&old).to_owned();
    workload.pod_on(&node, "same", json!({})).await;
    let sandbox = cluster.sandbox().unwrap();
    let lost = |pod: &str, moment| Rule::new(eviction_of(pod), Action::Disconnect(moment));
    sandbox.faults().add(lost("web-*", Moment::AfterEffect).when(When::First(1)));
    sandbox.faults().add(lost("same", Moment::BeforeEffect).when(When::First(3)));
    let _reconciler = Reconciler::start(&cluster);
    start(&cluster, "e2e-replaced", &node).await;
    blocked(&cluster, "e2e-replaced", BlockReason::ServerError).await;
    // While its eviction is still to be repeated, somebody moves the pod under its name.
    let at_once = kube::api::DeleteParams::default().grace_period(0);
    workload.pods().delete("same", &at_once).await.unwrap();
    until(&workload.pods(), "same", "gone", |found| found.is_none()).await;
    let there = cluster.nodes().await.into_iter().find(|other| *other != node).unwrap();
    let moved = workload.pod_on(&there, "same", json!({})).await;
    nothing_is_left(&cluster, "e2e-replaced").await;
    assert_eq!(workload.pods().get("same").await.unwrap().metadata.uid, moved.metadata.uid);
    let new = workload.until_running("web", 1).await.remove(0);
    assert_eq!(node_of(&new), there);
    let accepted: Vec<_> = evictions(sandbox).into_iter().filter(|entry| entry.code != 0).collect();
    assert_eq!(accepted, [], "the only eviction that took is the one whose answer was lost");
    let of_web = |entry: &kube_sandbox::request_log::Entry| entry.name.starts_with("web-");
    assert_eq!(evictions(sandbox).iter().filter(|entry| of_web(entry)).count(), 1);
}
