//! Requests that fail, wait or lose their connection.

use std::time::Duration;

use k8s_openapi::api::core::v1::{Node, Pod};
use kube::api::{EvictParams, ListParams, Patch, PatchParams};
use kube::{Api, Client};
use nm_sandbox::faults::{Action, Failure, Moment, Rule, Target, When};
use nm_sandbox::workload::{App, Kind};
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::{cluster, is_lost, nodes, run, status, until};

/// Cordons or uncordons the node.
async fn cordon(client: &Client, cordoned: bool) -> kube::Result<Node> {
    let patch = json!({"spec": {"unschedulable": cordoned}});
    nodes(client).patch("node-01", &PatchParams::default(), &Patch::Merge(&patch)).await
}

async fn is_cordoned(client: &Client) -> bool {
    nodes(client).get("node-01").await.unwrap().spec.unwrap().unschedulable == Some(true)
}

#[tokio::test(start_paused = true)]
async fn a_request_is_answered_with_the_failure_of_its_rule_and_changes_nothing() {
    let (sandbox, client) = cluster(1).await;
    for (failure, code, reason) in [
        (Failure::Conflict, 409, "Conflict"),
        (Failure::TooManyRequests { retry_after: 2 }, 429, "TooManyRequests"),
        (Failure::Internal, 500, "InternalError"),
        (Failure::Unavailable, 503, "ServiceUnavailable"),
        (Failure::Timeout, 504, "Timeout"),
    ] {
        let action = Action::Fail(failure, Moment::BeforeEffect);
        let rule = sandbox.faults().add(Rule::new(Target::any().verb("patch").resource("nodes"), action));
        let status = status(cordon(&client, true).await);
        assert_eq!((status.code, status.reason.as_str()), (code, reason));
        assert!(!is_cordoned(&client).await);
        assert_eq!(sandbox.faults().played(rule), 1);
        sandbox.faults().remove(rule);
        assert_eq!(sandbox.requests().count(|entry| entry.code == code), 1, "it is in the log");
    }
    cordon(&client, true).await.unwrap();
    assert!(is_cordoned(&client).await);
}

#[tokio::test(start_paused = true)]
async fn a_throttled_request_is_told_when_to_come_back() {
    use http_body_util::BodyExt;
    use tower::ServiceExt;

    let (sandbox, _) = cluster(1).await;
    let action = Action::Fail(Failure::TooManyRequests { retry_after: 7 }, Moment::BeforeEffect);
    sandbox.faults().add(Rule::new(Target::any().resource("/version"), action));
    let body = http_body_util::Empty::new();
    let request = http::Request::get("/version").body(body).unwrap();
    let response = sandbox.service().oneshot(request).await.unwrap();
    assert_eq!(
        (response.status().as_u16(), &response.headers()["retry-after"]),
        (429, &"7".parse().unwrap())
    );
    let body = response.into_body().collect().await.unwrap().to_bytes();
    let status: Value = serde_json::from_slice(&body).unwrap();
    assert_eq!((&status["kind"], &status["details"]["retryAfterSeconds"]), (&json!("Status"), &json!(7)));
}

#[tokio::test(start_paused = true)]
async fn only_the_matches_that_a_rule_chooses_fail() {
    let (sandbox, client) = cluster(1).await;
    let action = Action::Fail(Failure::Unavailable, Moment::BeforeEffect);
    sandbox.faults().add(Rule::new(Target::any().verb("get").name("node-*"), action).when(When::Every(3)));
    let mut codes = Vec::new();
    for _ in 0..6 {
        // Lists do not match and are not counted.
        nodes(&client).list_metadata(&ListParams::default()).await.unwrap();
        codes.push(nodes(&client).get("node-01").await.is_ok());
    }
    assert_eq!(codes, [true, true, false, true, true, false]);
}

#[tokio::test(start_paused = true)]
async fn a_timeout_after_the_effect_leaves_the_effect() {
    let (sandbox, client) = cluster(1).await;
    let action = Action::Fail(Failure::Timeout, Moment::AfterEffect);
    sandbox.faults().add(Rule::new(Target::any().verb("patch"), action));
    assert_eq!(status(cordon(&client, true).await).code, 504);
    assert!(is_cordoned(&client).await);
}

#[tokio::test(start_paused = true)]
async fn a_delayed_request_waits_exactly_so_long() {
    let (sandbox, client) = cluster(1).await;
    let delay = Duration::from_millis(1_500);
    let rule = sandbox.faults().add(Rule::new(Target::any().verb("patch"), Action::Delay(delay)));
    let began = Instant::now();
    cordon(&client, true).await.unwrap();
    assert_eq!(began.elapsed(), delay);
    sandbox.faults().remove(rule);
    cordon(&client, false).await.unwrap();
    assert_eq!(began.elapsed(), delay);
    let took: Vec<Duration> =
        sandbox.requests().all().into_iter().filter(|entry| entry.verb == "patch").map(|e| e.took).collect();
    assert_eq!(took, [delay, Duration::ZERO]);
}

#[tokio::test(start_paused = true)]
async fn a_connection_dropped_before_the_effect_evicts_nobody_and_one_dropped_after_it_does() {
    let (sandbox, client) = cluster(1).await;
    let pods: Api<Pod> = Api::namespaced(client.clone(), "default");
    run(&sandbox, &App::new(Kind::Pod, "default", "web"));
    let running = |pod: Option<&Pod>| {
        let phase = pod.and_then(|pod| pod.status.as_ref()?.phase.as_deref());
        phase == Some("Running")
    };
    until(&pods, "web", running).await;
    let evictions = Target::any().verb("create").resource("pods").subresource("eviction");
    for (moment, terminating) in [(Moment::BeforeEffect, false), (Moment::AfterEffect, true)] {
        let rule = sandbox.faults().add(Rule::new(evictions.clone(), Action::Disconnect(moment)));
        assert!(is_lost(&pods.evict("web", &EvictParams::default()).await), "{moment:?}");
        sandbox.faults().remove(rule);
        let pod = pods.get("web").await.unwrap();
        assert_eq!(pod.metadata.deletion_timestamp.is_some(), terminating, "{moment:?}");
    }
    until(&pods, "web", |pod| pod.is_none()).await;
    let unanswered = sandbox.requests().count(|entry| entry.subresource == "eviction" && entry.code == 0);
    assert_eq!(unanswered, 2, "the log shows that nobody was answered");
}
