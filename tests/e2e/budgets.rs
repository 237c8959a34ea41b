//! Disruption budgets are understood, not hammered. Only a sandbox counts what it was asked, and when.

use jiff::SignedDuration;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::Node;
use kube::Api;
use kube::api::{Patch, PatchParams, PostParams};
use kube::runtime::watcher;
use kube_sandbox::controllers::kubelet::annotations::STOP_DELAY;
use kube_sandbox::faults::{Action, Failure, Moment, Rule, Target};
use nm_shared::BlockReason;
use nm_tests::cluster::Cluster;
use nm_tests::reconciler::Reconciler;
use nm_tests::until::{PATIENCE, until_all};
use nm_tests::workload::{Workload, merge, parse, pod_spec};
use serde_json::{Value, json};

use crate::answers::{blocked, budgets, nothing_is_left};
use crate::{evictions, once, only_sandbox, start};

const WHY: &str = "only a sandbox tells what it was asked";

/// A deployment all of whose pods are on this node, and may go anywhere from there.
async fn all_on(cluster: &Cluster, workload: &Workload, node: &str, name: &str, replicas: usize) {
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
    let deployments: Api<Deployment> = Api::namespaced(cluster.client.clone(), workload.namespace());
    deployments.create(&PostParams::default(), &deployment).await.unwrap();
    workload.until_running(name, replicas).await;
    for other in &others {
        nodes.uncordon(other).await.unwrap();
    }
}

/// A budget for the pods of a deployment, once it allows as many disruptions.
async fn budget(workload: &Workload, name: &str, rule: Value, allowed: i32) {
    let mut object = json!({
        "metadata": {"name": name}, "spec": {"selector": {"matchLabels": {"app": name}}},
    });
    merge(&mut object["spec"], rule);
    budgets(workload).create(&PostParams::default(), &parse(object)).await.unwrap();
    let selection = watcher::Config::default().fields(&format!("metadata.name={name}"));
    until_all(&budgets(workload), selection, "the budget counts its pods", |budgets| {
        let status = budgets.first().and_then(|budget| budget.status.as_ref());
        status.is_some_and(|status| status.expected_pods > 0 && status.disruptions_allowed == allowed)
    })
    .await;
}

async fn lift(workload: &Workload, name: &str) {
    let lifted = Patch::Merge(json!({"spec": {"minAvailable": 0}}));
    budgets(workload).patch(name, &PatchParams::default(), &lifted).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn fifty_pods_that_may_go_one_at_a_time_cost_less_than_five_refusals_in_a_hundred_evictions() {
    let Some(cluster) = only_sandbox(2, WHY).await else { return };
    let workload = Workload::new(&cluster, "fifty").await;
    let node = &cluster.nodes().await[0];
    all_on(&cluster, &workload, node, "cart", 50).await;
    budget(&workload, "cart", json!({"maxUnavailable": 1}), 1).await;
    let _reconciler = Reconciler::start(&cluster);
    start(&cluster, "e2e-fifty", node).await;
    nothing_is_left(&cluster, "e2e-fifty").await;
    let all = evictions(cluster.sandbox().unwrap());
    let of = |code: u16| all.iter().filter(|entry| entry.code == code).count();
    let (accepted, refused) = (of(201), of(429));
    assert_eq!((accepted, accepted + refused), (50, all.len()));
    assert!(refused * 20 < all.len(), "{refused} of {} evictions were refused", all.len());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_budget_that_frees_up_wakes_its_pods_within_200_milliseconds() {
    let Some(cluster) = only_sandbox(9, WHY).await else { return };
    let workload = Workload::new(&cluster, "wakes").await;
    let nodes = cluster.nodes().await;
    let names = ["a", "b", "c", "d", "e", "f", "g", "h"];
    for (name, node) in names.iter().zip(&nodes) {
        all_on(&cluster, &workload, node, name, 1).await;
        budget(&workload, name, json!({"minAvailable": 1}), 0).await;
    }
    let _reconciler = Reconciler::start(&cluster);
    // Each pod on a node of its own and one after another, so that nothing else wakes the first when the last has begun.
    for (name, node) in names.iter().zip(&nodes) {
        start(&cluster, name, node).await;
        once(&cluster, name, "refused once", |status| {
            status.blocked_pods.len() == 1 && status.blocked_pods[0].attempts >= 1
        })
        .await;
    }
    let log = cluster.sandbox().unwrap().requests();
    let mut waits = Vec::new();
    for name in names {
        let pod = workload.until_running(name, 1).await.remove(0).metadata.name.unwrap();
        lift(&workload, name).await;
        let goes = |entry: &kube_sandbox::request_log::Entry| {
            entry.subresource == "eviction" && entry.name == pod && entry.code == 201
        };
        let gone = log.until(|log| log.count(goes) == 1);
        tokio::time::timeout(PATIENCE, gone).await.expect("it is evicted");
        let all = log.all();
        let freed =
            all.iter().rfind(|entry| entry.resource == "poddisruptionbudgets" && entry.verb == "patch");
        waits.push(all.iter().find(|entry| goes(entry)).unwrap().at.duration_since(freed.unwrap().at));
    }
    for name in names {
        nothing_is_left(&cluster, name).await;
    }
    // The machine may be busy for some of them.
    waits.sort();
    assert!(waits[waits.len() / 2] < SignedDuration::from_millis(200), "{waits:?}");
    assert!(*waits.last().unwrap() < SignedDuration::from_secs(5), "none waited for its retry: {waits:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_view_that_says_too_much_costs_one_refusal() {
    let Some(cluster) = only_sandbox(2, WHY).await else { return };
    let workload = Workload::new(&cluster, "too-much").await;
    let node = &cluster.nodes().await[0];
    all_on(&cluster, &workload, node, "cart", 3).await;
    budget(&workload, "cart", json!({"minAvailable": 0}), 3).await;
    let _reconciler = Reconciler::start(&cluster);
    let deaf = deafen(&cluster).await;
    let strict = Patch::Merge(json!({"spec": {"minAvailable": 3}}));
    budgets(&workload).patch("cart", &PatchParams::default(), &strict).await.unwrap();
    budget_allows(&workload, 0).await;
    start(&cluster, "e2e-too-much", node).await;
    let pod = blocked(&cluster, "e2e-too-much", BlockReason::DisruptionBudget).await;
    assert_eq!(pod.message, "The disruption budget cart needs 3 healthy pods and has 3 currently");
    cluster.sandbox().unwrap().faults().remove(deaf);
    lift(&workload, "cart").await;
    nothing_is_left(&cluster, "e2e-too-much").await;
    let refused = evictions(cluster.sandbox().unwrap()).iter().filter(|entry| entry.code == 429).count();
    // Asked at once for as many as the view allowed, and never again before the budget changes or is scouted.
    assert!((1..=4).contains(&refused), "{refused}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_view_that_says_no_for_ever_does_not_keep_pods_for_ever() {
    let Some(cluster) = only_sandbox(2, WHY).await else { return };
    let workload = Workload::new(&cluster, "says-no").await;
    let node = &cluster.nodes().await[0];
    all_on(&cluster, &workload, node, "cart", 2).await;
    budget(&workload, "cart", json!({"minAvailable": 2}), 0).await;
    let _reconciler = Reconciler::start(&cluster);
    start(&cluster, "e2e-says-no", node).await;
    once(&cluster, "e2e-says-no", "refused once", |status| {
        status.blocked_pods.iter().any(|pod| pod.attempts >= 1)
    })
    .await;
    let pod = blocked(&cluster, "e2e-says-no", BlockReason::DisruptionBudget).await;
    assert_eq!(pod.message, "The disruption budget cart needs 2 healthy pods and has 2 currently");
    deafen(&cluster).await;
    lift(&workload, "cart").await;
    nothing_is_left(&cluster, "e2e-says-no").await;
    let refused = evictions(cluster.sandbox().unwrap()).iter().filter(|entry| entry.code == 429).count();
    assert_eq!(refused, 1, "asked once while the view was right");
}

/// From now on the reconciler hears nothing of budgets, once it has heard of those that there are.
async fn deafen(cluster: &Cluster) -> kube_sandbox::faults::RuleId {
    let faults = cluster.sandbox().unwrap().faults();
    let budgets = Target::any().resource("poddisruptionbudgets").user_agent("nm-reconciler/*");
    let log = cluster.sandbox().unwrap().requests();
    let watching = |entry: &kube_sandbox::request_log::Entry| {
        entry.verb == "watch"
            && entry.resource == "poddisruptionbudgets"
            && entry.user_agent.starts_with("nm-reconciler/")
    };
    let begun = log.until(|log| log.count(watching) > 0);
    tokio::time::timeout(PATIENCE, begun).await.expect("it watches budgets");
    let deaf =
        faults.add(Rule::new(budgets.clone(), Action::Fail(Failure::Unavailable, Moment::BeforeEffect)));
    assert_eq!(faults.end_watches(&budgets, 0), 1);
    deaf
}

async fn budget_allows(workload: &Workload, disruptions: i32) {
    let allows = |budgets: &[k8s_openapi::api::policy::v1::PodDisruptionBudget]| {
        budgets.iter().all(|budget| {
            let (status, generation) = (budget.status.as_ref(), budget.metadata.generation);
            status.is_some_and(|status| {
                status.disruptions_allowed == disruptions && status.observed_generation == generation
            })
        })
    };
    until_all(&budgets(workload), watcher::Config::default(), "the budget is settled", allows).await;
}
