//! Requests that fail, wait or lose their connection.

use std::time::Duration;

use k8s_openapi::api::core::v1::{Node, Pod};
use kube::api::{EvictParams, ListParams, Patch, PatchParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Api, Client, Config};
use kube_sandbox::faults::{Action, Failure, Moment, Rule, Target, When};
use kube_sandbox::sandbox::Sandbox;
use kube_sandbox::workload::{App, Kind};
use serde_json::{Value, json};
use tokio::time::Instant;

use super::{cluster, is_lost, nodes, run, status, until};

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
async fn a_throttled_request_has_a_retry_after_header_and_only_that_of_the_api_a_status() {
    use http_body_util::BodyExt;
    use tower::ServiceExt;

    for (failure, content_type) in [
        (Failure::TooManyRequests { retry_after: 7 }, "application/json"),
        (Failure::Throttled { retry_after: 7 }, "text/plain; charset=utf-8"),
    ] {
        let (sandbox, _) = cluster(1).await;
        let action = Action::Fail(failure, Moment::BeforeEffect);
        sandbox.faults().add(Rule::new(Target::any().resource("/version"), action));
        let body = http_body_util::Empty::new();
        let request = http::Request::get("/version").body(body).unwrap();
        let response = sandbox.service().oneshot(request).await.unwrap();
        assert_eq!(response.status().as_u16(), 429);
        assert_eq!(response.headers()["retry-after"], "7");
        assert_eq!(response.headers()["content-type"], content_type);
        let body = response.into_body().collect().await.unwrap().to_bytes();
        match serde_json::from_slice::<Value>(&body) {
            Ok(status) => {
                let facts = (&status["kind"], &status["details"]["retryAfterSeconds"]);
                assert_eq!(facts, (&json!("Status"), &json!(7)));
            }
            Err(_) => assert_eq!(body, "Too many requests, please try again later.\n"),
        }
    }
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
async fn a_rule_plays_on_the_first_on_one_or_by_a_chance_that_repeats_itself() {
    let (sandbox, client) = cluster(1).await;
    let play = async |when: When| {
        let action = Action::Fail(Failure::Internal, Moment::BeforeEffect);
        let rule =
            sandbox.faults().add(Rule::new(Target::any().verb("get").resource("nodes"), action).when(when));
        let mut failed = Vec::new();
        for number in 1..=20 {
            if nodes(&client).get("node-01").await.is_err() {
                failed.push(number);
            }
        }
        assert_eq!(sandbox.faults().played(rule), u64::try_from(failed.len()).unwrap());
        sandbox.faults().remove(rule);
        failed
    };
    assert_eq!(play(When::First(2)).await, [1, 2]);
    assert_eq!(play(When::Nth(4)).await, [4]);
    assert_eq!(play(When::Every(8)).await, [8, 16]);
    let chance = |seed| When::Chance { probability: 0.5, seed };
    let drawn = play(chance(7)).await;
    assert!(!drawn.is_empty() && drawn.len() < 20, "{drawn:?}");
    assert_eq!(play(chance(7)).await, drawn);
    assert_ne!(play(chance(8)).await, drawn);
}

#[tokio::test]
async fn a_client_is_refused_by_its_user_agent_and_another_is_not() {
    let (sandbox, _) = cluster(1).await;
    let (ours, theirs) =
        (named(&sandbox, "nm-reconciler/0.1.0").await, named(&sandbox, "kubectl/v1.36.2").await);
    // What kube's client does not try again by itself.
    let action = Action::Fail(Failure::Internal, Moment::BeforeEffect);
    sandbox.faults().add(Rule::new(Target::any().user_agent("nm-reconciler/*"), action));
    assert_eq!(status(nodes(&ours).get("node-01").await).code, 500);
    cordon(&theirs, true).await.unwrap();
    assert!(is_cordoned(&theirs).await);
    let by = |agent: &str, code: u16| {
        sandbox.requests().count(|entry| entry.user_agent == agent && entry.code == code)
    };
    assert_eq!((by("nm-reconciler/0.1.0", 500), by("nm-reconciler/0.1.0", 200)), (1, 0));
    assert_eq!((by("kubectl/v1.36.2", 500), by("kubectl/v1.36.2", 200)), (0, 2));
    sandbox.faults().clear();
    assert!(is_cordoned(&ours).await);
}

/// A client over a socket that calls itself so.
async fn named(sandbox: &Sandbox, user_agent: &str) -> Client {
    let kubeconfig = Kubeconfig::from_yaml(&sandbox.kubeconfig()).unwrap();
    let mut config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await.unwrap();
    config.headers.push((http::header::USER_AGENT, user_agent.parse().unwrap()));
    Client::try_from(config).unwrap()
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
async fn a_delayed_answer_comes_so_long_after_the_effect() {
    let (sandbox, client) = cluster(1).await;
    let delay = Duration::from_millis(1_500);
    sandbox.faults().add(Rule::new(Target::any().verb("patch"), Action::DelayAnswer(delay)));
    let began = Instant::now();
    let answered = async {
        cordon(&client, true).await.unwrap();
        began.elapsed()
    };
    let halfway = async {
        tokio::time::sleep(delay / 2).await;
        is_cordoned(&client).await
    };
    assert_eq!(tokio::join!(answered, halfway), (delay, true));
}

#[tokio::test(start_paused = true)]
async fn an_eviction_takes_effect_only_if_its_connection_is_dropped_afterwards() {
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
