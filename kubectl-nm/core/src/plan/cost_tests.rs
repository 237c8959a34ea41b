//! Costs in clusters that answer late, in part or not at all.

use serde_json::{Value, json};

use super::*;
use crate::testing::fake_server::{NEVER, cluster, failure};

fn items(items: &Value) -> (u16, Value) {
    (200, json!({"kind": "List", "apiVersion": "v1", "metadata": {}, "items": items}))
}

fn leader() -> (u16, Value) {
    let spec = json!({"holderIdentity": "a", "renewTime": "2026-01-01T00:00:00.000000Z", "leaseDurationSeconds": 15});
    items(&json!([{"metadata": {"namespace": "nm", "name": "nm-reconciler"}, "spec": spec}]))
}

/// The Deployment of nm-reconciler.
fn reconcilers() -> (u16, Value) {
    let spec = json!({"serviceAccountName": "nm-reconciler", "containers": [{"name": "reconciler"}]});
    items(&json!([{"metadata": {"namespace": "nm", "name": "nm-reconciler"},
        "spec": {"selector": {}, "template": {"spec": spec}}}]))
}

fn nodes() -> (u16, Value) {
    let node = |name: &str| json!({"metadata": {"name": name}, "status": {"conditions": [{"type": "Ready", "status": "True"}]}});
    items(&json!([node("n1"), node("n2")]))
}

/// A pod without a controller on the node.
fn pods() -> (u16, Value) {
    let pod = json!({"metadata": {"namespace": "shop", "name": "bare", "uid": "u"},
        "spec": {"nodeName": "n1", "containers": []}, "status": {"phase": "Running"}});
    items(&json!([pod]))
}

async fn cost(
    answer: impl Fn(&str, &str) -> Option<(u16, Value)> + Send + Sync + 'static,
) -> (Vec<String>, usize) {
    cost_of(None, answer).await
}

async fn cost_of(
    drain: Option<DrainSpec>,
    answer: impl Fn(&str, &str) -> Option<(u16, Value)> + Send + Sync + 'static,
) -> (Vec<String>, usize) {
    let (cluster, requests) = cluster(move |method, path| match path {
        _ if let Some(answer) = answer(method, path) => answer,
        "/apis/coordination.k8s.io/v1/leases" => leader(),
        "/api/v1/nodes" => nodes(),
        "/api/v1/pods" => pods(),
        "/apis/nodemaintenance.kubevirt.io/v1beta1" | "/apis/kubevirt.io/v1alpha1" => {
            (404, json!("404 page not found"))
        }
        _ if method == "POST" => (201, json!({"kind": "Status", "status": "Success"})),
        _ => items(&json!([])),
    });
    let now = "2026-01-01T00:00:01Z".parse().unwrap();
    let cost = Box::pin(assess(vec!["n1".into()], drain, &cluster, now, TIME_LIMIT)).await;
    let requests = requests.lock().unwrap().len();
    (
        cost.harm_lines().into_iter().chain(cost.unknown_line()).map(|line| line.to_string()).collect(),
        requests,
    )
}

const BARE: &str = "no controller replaces 1 pod: shop/bare";

#[tokio::test(start_paused = true)]
async fn what_is_harmed_is_said_and_the_rest_is_not() {
    let (lines, requests) = cost(|_, _| None).await;
    assert_eq!(lines, [BARE]);
    assert!(requests <= 12, "{requests}");
    let harmless = cost(|_, path| (path == "/api/v1/pods").then(|| items(&json!([])))).await.0;
    assert_eq!(harmless, [""; 0]);
}

#[tokio::test(start_paused = true)]
async fn a_plan_that_takes_too_long_is_not_waited_for() {
    let (lines, _) = cost(|_, path| (path == "/api/v1/pods").then_some((NEVER, Value::Null))).await;
    let late = "the plan took longer than 2s";
    assert_eq!(lines, [format!("unknown: the pods: {late}")]);
    let (lines, _) = cost(|method, _| (method == "POST").then_some((NEVER, Value::Null))).await;
    let answers = "the answers of the API server to 1 eviction";
    assert_eq!(lines, [BARE.to_owned(), format!("unknown: {answers}: {late}")], "the rest is known");
}

#[tokio::test(start_paused = true)]
async fn what_has_been_read_in_time_counts_whatever_is_late() {
    let late = "the plan took longer than 2s";
    let answers = "the answers of the API server to 1 eviction";
    for (path, what) in [
        ("/apis/policy/v1/poddisruptionbudgets", "the disruption budgets"),
        ("/apis/apps/v1/daemonsets", "which DaemonSets exist"),
        ("/apis/nodemaintenance.medik8s.io/v1beta1/nodemaintenances", "which nodes are in maintenance"),
        ("/api/v1/nodes", "the capacity of other nodes, the control plane and the queue"),
    ] {
        let (lines, _) = cost(move |_, asked| (asked == path).then_some((NEVER, Value::Null))).await;
        assert_eq!(lines[0], BARE, "{path}");
        // The evictions are tried once the rest is read.
        let unknown = [what, answers].join(", ");
        assert!(
            [format!("unknown: {unknown}: {late}"), format!("unknown: {what}: {late}")].contains(&lines[1]),
            "{lines:?}"
        );
    }
    let (lines, _) = cost(|_, path| match path {
        "/api/v1/pods" => Some((NEVER, Value::Null)),
        "/api/v1/nodes" => {
            let ready = json!({"conditions": [{"type": "Ready", "status": "True"}]});
            Some(items(&json!([{"metadata": {"name": "n1"}, "status": ready}])))
        }
        _ => None,
    })
    .await;
    assert_eq!(
        lines,
        ["no schedulable node is left in the cluster".into(), format!("unknown: the pods: {late}")]
    );
}

#[tokio::test(start_paused = true)]
async fn nobody_leading_is_known_even_if_the_plan_is_late() {
    let (lines, _) = cost(|_, path| match path {
        "/api/v1/pods" => Some((NEVER, Value::Null)),
        "/apis/coordination.k8s.io/v1/leases" => Some(items(&json!([]))),
        _ => None,
    })
    .await;
    assert!(lines[0].starts_with("no nm-reconciler was found: "), "{lines:?}");
}

#[tokio::test(start_paused = true)]
async fn what_could_not_be_read_is_said_once_and_is_no_error() {
    let (lines, _) = cost(|_, _| Some(failure(403, "Forbidden", "x"))).await;
    let [line] = &lines[..] else { panic!("{lines:?}") };
    assert!(line.starts_with("unknown: whether nm-reconciler leads, the capacity of other nodes"), "{line}");
    assert!(line.contains(": you may not list leases.coordination.k8s.io, list nodes, list pods"), "{line}");
    let (lines, _) =
        cost(|_, path| (path == "/api/v1/pods").then(|| failure(500, "InternalError", "x"))).await;
    assert!(
        matches!(&lines[..], [line] if line.starts_with("unknown: what the drain would cost: ")),
        "{lines:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn the_refusal_of_a_budget_that_may_not_be_read_stands_for_the_others_of_the_workload() {
    let owner = json!([{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web", "uid": "o", "controller": true}]);
    let pod = move |name: &str| {
        let ready = json!({"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]});
        json!({"metadata": {"namespace": "shop", "name": name, "uid": name, "ownerReferences": owner},
            "spec": {"nodeName": "n1", "containers": []}, "status": ready})
    };
    let pods = json!([pod("a"), pod("b")]);
    let cause = json!({"reason": "DisruptionBudget", "message": "The disruption budget web needs 2 healthy pods and has 2 currently"});
    let refusal = json!({"kind": "Status", "status": "Failure", "reason": "TooManyRequests", "code": 429,
        "message": "Cannot evict pod as it would violate the pod's disruption budget.", "details": {"causes": [cause]}});
    let (lines, _) = cost(move |method, path| match path {
        "/api/v1/pods" => Some(items(&pods)),
        "/apis/policy/v1/poddisruptionbudgets" => Some(failure(403, "Forbidden", "x")),
        _ if method == "POST" => Some((429, refusal.clone())),
        _ => None,
    })
    .await;
    assert!(lines.iter().any(|line| line.starts_with("never leaves: shop/a, shop/b: ")), "{lines:?}");
}

#[tokio::test(start_paused = true)]
async fn the_denial_of_one_pod_of_a_workload_stands_for_the_others() {
    let pods = || {
        let owner = json!([{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web", "uid": "o", "controller": true}]);
        let pod = |name: &str| {
            json!({"metadata": {"namespace": "shop", "name": name, "uid": name, "ownerReferences": owner},
                "spec": {"nodeName": "n1", "containers": []}, "status": {"phase": "Running"}})
        };
        items(&json!([pod("a"), pod("b"), pod("c")]))
    };
    let denied = || {
        let message = "admission webhook \"guard.io\" denied the request: no";
        (
            403,
            json!({"kind": "Status", "status": "Failure", "message": message, "reason": "Forbidden", "code": 403}),
        )
    };
    let (lines, requests) = cost(move |method, path| match path {
        "/api/v1/pods" => Some(pods()),
        _ if method == "POST" => Some(denied()),
        _ => None,
    })
    .await;
    assert!(
        lines.iter().any(|line| line.starts_with("stays blocked: shop/a, shop/b, shop/c: ")),
        "{lines:?}"
    );
    assert!(requests <= 13, "one eviction is tried: {requests}");
}

#[tokio::test(start_paused = true)]
async fn a_pod_whose_twin_is_kept_for_its_role_is_not_said_to_stay() {
    let owner = json!([{"apiVersion": "apps/v1", "kind": "StatefulSet", "name": "db", "uid": "o", "controller": true}]);
    let pod = move |name: &str, role: &str| {
        let labels = json!({"role": role, "statefulset.kubernetes.io/pod-name": name});
        json!({"metadata": {"namespace": "shop", "name": name, "uid": name, "ownerReferences": owner, "labels": labels},
            "spec": {"nodeName": "n1", "containers": []}, "status": {"phase": "Running"}})
    };
    let pods = json!([pod("db-0", "primary"), pod("db-1", "replica"), pod("db-2", "replica")]);
    let denial = json!({"kind": "Status", "status": "Failure", "reason": "Forbidden", "code": 403,
        "message": "admission webhook \"guard.io\" denied the request: the primary stays"});
    let (lines, _) = cost(move |method, path| match path {
        "/api/v1/pods" => Some(items(&pods)),
        _ if method == "POST" && path.contains("/db-0/") => Some((403, denial.clone())),
        _ => None,
    })
    .await;
    let stays: Vec<&String> = lines.iter().filter(|line| line.starts_with("stays blocked: ")).collect();
    assert!(matches!(&stays[..], [line] if line.starts_with("stays blocked: shop/db-0: ")), "{lines:?}");
}

#[tokio::test(start_paused = true)]
async fn a_grant_of_nm_reconciler_matters_only_if_the_drain_needs_it() {
    let found = async |drain: Value, code: u16| {
        let (cluster, requests) = cluster(move |method, path| match path {
            "/apis/authorization.k8s.io/v1/subjectaccessreviews" if code == 403 => {
                failure(403, "Forbidden", "you may not")
            }
            "/apis/authorization.k8s.io/v1/subjectaccessreviews" => {
                let review = json!({"kind": "SubjectAccessReview", "apiVersion": "authorization.k8s.io/v1",
                    "metadata": {}, "status": {"allowed": code == 200}});
                (201, review)
            }
            "/apis/apps/v1/deployments" => reconcilers(),
            "/apis/coordination.k8s.io/v1/leases" => leader(),
            "/api/v1/nodes" => nodes(),
            "/apis/nodemaintenance.kubevirt.io/v1beta1" | "/apis/kubevirt.io/v1alpha1" => {
                (404, json!("404 page not found"))
            }
            _ if method == "POST" => (201, json!({"kind": "Status", "status": "Success"})),
            _ => items(&json!([])),
        });
        let drain = serde_json::from_value(drain).unwrap();
        let now = "2026-01-01T00:00:01Z".parse().unwrap();
        let cost = Box::pin(assess(vec!["n1".into()], Some(drain), &cluster, now, TIME_LIMIT)).await;
        let requests = requests.lock().unwrap();
        let asked = requests.iter().any(|request| request.contains("subjectaccessreviews"));
        let lines = cost.harm_lines().into_iter().map(|line| line.to_string());
        let denied: Vec<String> = lines.filter(|line| line.contains(" has no permission to ")).collect();
        (denied.join("; "), asked)
    };
    for (drain, effect) in [
        (json!({"deleteAfterSeconds": 5}), "--delete-after has no effect"),
        (json!({"waitForVolumeDetach": {}}), "the drain does not complete (--wait-for-volume-detach)"),
    ] {
        let (line, asked) = found(drain.clone(), 401).await;
        assert!(line.starts_with(effect) && asked, "{line}");
        assert_eq!(found(drain.clone(), 200).await, (String::new(), true));
        assert_eq!(found(drain, 403).await, (String::new(), true), "it cannot be found out");
    }
    assert_eq!(found(json!({}), 401).await, (String::new(), false));
}

#[tokio::test(start_paused = true)]
async fn a_slow_authorizer_does_not_delay_the_answers_to_evictions() {
    let pod = json!({"metadata": {"namespace": "shop", "name": "db-0", "uid": "u"},
        "spec": {"nodeName": "n1", "containers": []}, "status": {"phase": "Running"}});
    let (denial, pods) = (
        json!({"kind": "Status", "status": "Failure", "reason": "Forbidden", "code": 403,
            "message": "admission webhook \"guard.io\" denied the request: the primary stays"}),
        json!([pod]),
    );
    let drain = DrainSpec { delete_after_seconds: 5, ..DrainSpec::default() };
    let (lines, _) = cost_of(Some(drain), move |method, path| match path {
        "/apis/authorization.k8s.io/v1/subjectaccessreviews" => Some((NEVER, json!({}))),
        "/apis/apps/v1/deployments" => Some(reconcilers()),
        "/api/v1/pods" => Some(items(&pods)),
        _ if method == "POST" && path.contains("/db-0/") => Some((403, denial.clone())),
        _ => None,
    })
    .await;
    assert!(lines.iter().any(|line| line.contains("its eviction is refused: shop/db-0")), "{lines:?}");
    assert!(!lines.iter().any(|line| line.contains("the plan took longer than")), "{lines:?}");
}
