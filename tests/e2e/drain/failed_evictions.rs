//! Evictions that fail: the server reports an error or throttles, or the connection is lost before or after the eviction
//! takes effect.

use jiff::SignedDuration;
use kube_sandbox::faults::{Action, Failure, Moment, Rule, Target, When};
use nm_shared::{BlockReason, NodeMaintenanceStatus};
use nm_tests::cluster::Cluster;
use nm_tests::maintenance::{start, until_blocked, until_drained_without_errors, until_status};
use nm_tests::reconciler::Reconciler;
use nm_tests::requests::evictions;
use nm_tests::wait::wait_until;
use nm_tests::workload::{Workload, node_of};
use serde_json::json;

const WHY: &str = "only a sandbox injects failures";

fn eviction_of(pod: &str) -> Target {
    Target::any().subresource("eviction").name(pod)
}

#[tokio::test(flavor = "multi_thread")]
async fn an_eviction_without_a_response_is_retried_only_if_it_had_no_effect() {
    let Some(cluster) = Cluster::sandbox_or_skip(1, WHY).await else { return };
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
    until_drained_without_errors(&cluster, "e2e-lost").await;
    let all = evictions(sandbox);
    for (pod, expected) in cases {
        let codes: Vec<u16> = all.iter().filter(|entry| entry.name == pod).map(|entry| entry.code).collect();
        assert_eq!(codes, expected, "{pod}");
        assert!(workload.pods().get_opt(&pod).await.unwrap().is_none(), "{pod}");
    }
}

// Defect rancher/rancher#25999, Azure/aks-engine#2013: The drain fails with an error, and the upgrade goes on.
#[tokio::test(flavor = "multi_thread")]
async fn a_failing_eviction_is_reported_while_it_fails() {
    let Some(cluster) = Cluster::sandbox_or_skip(1, WHY).await else { return };
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
    let status = until_status(&cluster, "e2e-words", "all fail", all).await;
    for (shown, (pod, _, message)) in status.blocked_pods.iter().zip(&cases) {
        assert_eq!((shown.name.as_str(), shown.reason), (*pod, BlockReason::ServerError));
        assert!(shown.message.ends_with(message), "{}", shown.message);
    }
    until_blocked(&cluster, "e2e-words", BlockReason::ServerError).await;
    faults.clear();
    until_drained_without_errors(&cluster, "e2e-words").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_throttled_eviction_is_retried_after_the_servers_retry_after() {
    let Some(cluster) = Cluster::sandbox_or_skip(1, WHY).await else { return };
    let workload = Workload::new(&cluster, "throttled").await;
    let node = &cluster.nodes().await[0];
    workload.pod_on(node, "cart", json!({})).await;
    let sandbox = cluster.sandbox().unwrap();
    let throttles = Action::Fail(Failure::TooManyRequests { retry_after: 4 }, Moment::BeforeEffect);
    sandbox.faults().add(Rule::new(eviction_of("cart"), throttles).when(When::First(1)));
    let _reconciler = Reconciler::start(&cluster);
    start(&cluster, "e2e-throttled", node).await;
    until_drained_without_errors(&cluster, "e2e-throttled").await;
    let [first, second] = &evictions(sandbox)[..] else { panic!("two evictions") };
    assert_eq!((first.code, second.code), (429, 201));
    // Without `retryAfterSeconds` the retry would come after one second.
    let interval = second.at.duration_since(first.at);
    assert!(interval >= SignedDuration::from_secs(4), "{interval}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_retried_eviction_never_evicts_a_replacement() {
    let Some(cluster) = Cluster::sandbox_or_skip(2, WHY).await else { return };
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
    until_blocked(&cluster, "e2e-replaced", BlockReason::ServerError).await;
    // Before its eviction is retried, the pod is replaced by one of the same name on another node.
    let at_once = kube::api::DeleteParams::default().grace_period(0);
    workload.pods().delete("same", &at_once).await.unwrap();
    wait_until(&workload.pods(), "same", "gone", |found| found.is_none()).await;
    let there = cluster.nodes().await.into_iter().find(|other| *other != node).unwrap();
    let moved = workload.pod_on(&there, "same", json!({})).await;
    until_drained_without_errors(&cluster, "e2e-replaced").await;
    assert_eq!(workload.pods().get("same").await.unwrap().metadata.uid, moved.metadata.uid);
    let new = workload.until_running("web", 1).await.remove(0);
    assert_eq!(node_of(&new), there);
    let accepted: Vec<_> = evictions(sandbox).into_iter().filter(|entry| entry.code != 0).collect();
    assert_eq!(accepted, [], "the only eviction that took effect has no response");
    let of_web = |entry: &kube_sandbox::request_log::Entry| entry.name.starts_with("web-");
    assert_eq!(evictions(sandbox).iter().filter(|entry| of_web(entry)).count(), 1);
}
