//! Disruption budgets: few evictions are refused, and none waits longer than its budget requires.

use jiff::SignedDuration;
use k8s_openapi::api::core::v1::Node;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kube::Api;
use kube::api::{Patch, PatchParams, PostParams};
use kube::runtime::watcher;
use kube_sandbox::controllers::kubelet::annotations::STOP_DELAY;
use kube_sandbox::faults::RuleId;
use kube_sandbox::faults::{Action, Failure, Moment, Rule};
use kube_sandbox::request_log::Entry;
use nm_shared::BlockReason;
use nm_tests::cluster::Cluster;
use nm_tests::maintenance::{
    start, until_blocked, until_drained_without_errors, until_status, until_waiting,
};
use nm_tests::reconciler::Reconciler;
use nm_tests::requests::{by_reconciler, evictions, is_eviction, until_requests, until_watched};
use nm_tests::wait::wait_until_all;
use nm_tests::workload::{Workload, merge, parse, pod_spec};
use serde_json::{Value, json};

const WHY: &str = "only a sandbox logs requests";

/// Creates a deployment all of whose pods run on one node. They may be moved to any other.
pub(super) async fn deployment_on(
    cluster: &Cluster,
    workload: &Workload,
    node: &str,
    name: &str,
    replicas: usize,
) {
    let nodes: Api<Node> = Api::all(cluster.client.clone());
    let others: Vec<String> = cluster.nodes().await.into_iter().filter(|other| other != node).collect();
    for other in &others {
        nodes.cordon(other).await.unwrap();
    }
    let labels = json!({"app": name});
    let deployment = parse(json!({
        "metadata": {"name": name},
        "spec": {"replicas": replicas, "selector": {"matchLabels": labels}, "template": {
            "metadata": {"labels": labels, "annotations": {STOP_DELAY: "10ms"}}, "spec": pod_spec(),
        }},
    }));
    workload.deployments().create(&PostParams::default(), &deployment).await.unwrap();
    workload.until_running(name, replicas).await;
    for other in &others {
        nodes.uncordon(other).await.unwrap();
    }
}

/// Creates a budget for the pods of a deployment, and waits until it allows this number of disruptions.
pub(super) async fn budget(workload: &Workload, name: &str, rule: Value, allowed: i32) {
    let mut object = json!({
        "metadata": {"name": name}, "spec": {"selector": {"matchLabels": {"app": name}}},
    });
    merge(&mut object["spec"], rule);
    workload.budgets().create(&PostParams::default(), &parse(object)).await.unwrap();
    let selection = watcher::Config::default().fields(&format!("metadata.name={name}"));
    wait_until_all(&workload.budgets(), selection, "the budget counts its pods", |budgets| {
        let status = budgets.first().and_then(|budget| budget.status.as_ref());
        status.is_some_and(|status| status.expected_pods > 0 && status.disruptions_allowed == allowed)
    })
    .await;
}

async fn allow_all_disruptions(workload: &Workload, name: &str) {
    let patch = Patch::Merge(json!({"spec": {"minAvailable": 0}}));
    workload.budgets().patch(name, &PatchParams::default(), &patch).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn fewer_than_five_percent_of_evictions_are_refused_where_one_pod_may_go_at_a_time() {
    let Some(cluster) = Cluster::sandbox_or_skip(2, WHY).await else { return };
    let workload = Workload::new(&cluster, "fifty").await;
    let node = &cluster.nodes().await[0];
    deployment_on(&cluster, &workload, node, "cart", 50).await;
    budget(&workload, "cart", json!({"maxUnavailable": 1}), 1).await;
    let _reconciler = Reconciler::start(&cluster);
    start(&cluster, "e2e-fifty", node).await;
    until_drained_without_errors(&cluster, "e2e-fifty").await;
    let all = evictions(cluster.sandbox().unwrap());
    let of = |code: u16| all.iter().filter(|entry| entry.code == code).count();
    let (accepted, refused) = (of(201), of(429));
    assert_eq!((accepted, accepted + refused), (50, all.len()));
    assert!(refused * 20 < all.len(), "{refused} of {} evictions were refused", all.len());
}

#[tokio::test(flavor = "multi_thread")]
async fn pods_are_evicted_when_their_budget_allows_it_and_not_at_their_next_retry() {
    let Some(cluster) = Cluster::sandbox_or_skip(9, WHY).await else { return };
    let workload = Workload::new(&cluster, "wakes").await;
    let nodes = cluster.nodes().await;
    let names = ["a", "b", "c", "d", "e", "f", "g", "h"];
    for (name, node) in names.iter().zip(&nodes) {
        deployment_on(&cluster, &workload, node, name, 1).await;
        budget(&workload, name, json!({"minAvailable": 1}), 0).await;
    }
    let _reconciler = Reconciler::start(&cluster);
    // Each pod has a node of its own, and the maintenances start one after another: no other event wakes the first
    // eviction when the last begins.
    for (name, node) in names.iter().zip(&nodes) {
        start(&cluster, name, node).await;
        until_status(&cluster, name, "refused once", |status| {
            status.blocked_pods.len() == 1 && status.blocked_pods[0].attempts >= 1
        })
        .await;
    }
    let sandbox = cluster.sandbox().unwrap();
    let mut waits = Vec::new();
    for name in names {
        let pod = workload.until_running(name, 1).await.remove(0).metadata.name.unwrap();
        allow_all_disruptions(&workload, name).await;
        let is_accepted = |entry: &Entry| is_eviction(entry) && entry.name == pod && entry.code == 201;
        let accepted = until_requests(sandbox, 1, "the pod is evicted", is_accepted).await.remove(0);
        let all = sandbox.requests().all();
        let allowed =
            all.iter().rfind(|entry| entry.resource == "poddisruptionbudgets" && entry.verb == "patch");
        waits.push(accepted.at.duration_since(allowed.unwrap().at));
    }
    for name in names {
        until_drained_without_errors(&cluster, name).await;
    }
    // A retry is due ten seconds after the last, and other tests may keep the processors busy.
    let longest = waits.iter().max().unwrap();
    assert!(*longest < SignedDuration::from_secs(5), "{waits:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_outdated_budget_that_allows_too_much_costs_few_refusals() {
    let Some(cluster) = Cluster::sandbox_or_skip(2, WHY).await else { return };
    let workload = Workload::new(&cluster, "too-much").await;
    let node = &cluster.nodes().await[0];
    deployment_on(&cluster, &workload, node, "cart", 3).await;
    budget(&workload, "cart", json!({"minAvailable": 0}), 3).await;
    let _reconciler = Reconciler::start(&cluster);
    let outage = stop_budget_watch(&cluster).await;
    let strict = Patch::Merge(json!({"spec": {"minAvailable": 3}}));
    workload.budgets().patch("cart", &PatchParams::default(), &strict).await.unwrap();
    until_budget_allows(&workload, 0).await;
    start(&cluster, "e2e-too-much", node).await;
    until_waiting(&cluster, "e2e-too-much").await;
    cluster.sandbox().unwrap().faults().remove(outage);
    allow_all_disruptions(&workload, "cart").await;
    until_drained_without_errors(&cluster, "e2e-too-much").await;
    let refused = evictions(cluster.sandbox().unwrap()).iter().filter(|entry| entry.code == 429).count();
    // One eviction for each disruption that the outdated budget allows, and one retry.
    assert!((1..=4).contains(&refused), "{refused}");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_outdated_budget_that_allows_nothing_does_not_block_pods_forever() {
    let Some(cluster) = Cluster::sandbox_or_skip(2, WHY).await else { return };
    let workload = Workload::new(&cluster, "says-no").await;
    let node = &cluster.nodes().await[0];
    deployment_on(&cluster, &workload, node, "cart", 2).await;
    budget(&workload, "cart", json!({"minAvailable": 2}), 0).await;
    let _reconciler = Reconciler::start(&cluster);
    start(&cluster, "e2e-says-no", node).await;
    until_status(&cluster, "e2e-says-no", "refused once", |status| {
        status.blocked_pods.iter().any(|pod| pod.attempts >= 1)
    })
    .await;
    let pod = until_blocked(&cluster, "e2e-says-no", BlockReason::DisruptionBudget).await;
    assert_eq!(pod.message, "The disruption budget cart needs 2 healthy pods and has 2 currently");
    stop_budget_watch(&cluster).await;
    allow_all_disruptions(&workload, "cart").await;
    until_drained_without_errors(&cluster, "e2e-says-no").await;
    let refused = evictions(cluster.sandbox().unwrap()).iter().filter(|entry| entry.code == 429).count();
    assert_eq!(refused, 1, "the only refusal came while the budget was up to date");
}

/// From now on the reconciler sees no change of a budget. It has seen those that exist.
async fn stop_budget_watch(cluster: &Cluster) -> RuleId {
    let sandbox = cluster.sandbox().unwrap();
    let budgets = by_reconciler().resource("poddisruptionbudgets");
    until_watched(sandbox, "poddisruptionbudgets").await;
    let outage = Action::Fail(Failure::Unavailable, Moment::BeforeEffect);
    let outage = sandbox.faults().add(Rule::new(budgets.clone(), outage));
    assert_eq!(sandbox.faults().end_watches(&budgets, 0), 1);
    outage
}

async fn until_budget_allows(workload: &Workload, disruptions: i32) {
    let allows = |budgets: &[PodDisruptionBudget]| {
        budgets.iter().all(|budget| {
            let (status, generation) = (budget.status.as_ref(), budget.metadata.generation);
            status.is_some_and(|status| {
                status.disruptions_allowed == disruptions && status.observed_generation == generation
            })
        })
    };
    let what = "the budget's status is up to date";
    wait_until_all(&workload.budgets(), watcher::Config::default(), what, allows).await;
}
