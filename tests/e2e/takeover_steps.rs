//! What we leave behind when we are killed after each of our writes is what the medik8s operator would have written, as
//! far as it reads it, so that it goes on from there.

use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Node;
use kube::Api;
use kube::api::DeleteParams;
use kube_sandbox::faults::{Action, Moment, Rule, Target};
use nm_shared::api::names::{EXCLUDE_LABEL, LEASE_NAMESPACE};
use nm_shared::cluster::node_lease;
use nm_tests::cluster::Cluster;
use nm_tests::reconciler::Reconciler;
use nm_tests::until::PATIENCE;
use nm_tests::workload::Workload;
use serde_json::{Map, Value, json};

use crate::takeover_recorded::Recorded;
use crate::{configuration, drained, only_sandbox, start};

const NAME: &str = "e2e-steps";
const WHY: &str = "only a sandbox stops a reconciler between two writes";

fn ours() -> Target {
    Target::any().user_agent("nm-reconciler/*")
}

/// Runs a reconciler up to the request that `target` names, which is never carried out, and kills it there.
async fn killed_before(cluster: &Cluster, target: Target) {
    let sandbox = cluster.sandbox().unwrap();
    let rule = sandbox.faults().add(Rule::new(target, Action::Disconnect(Moment::BeforeEffect)));
    let reconciler = Reconciler::start(cluster);
    let stuck = sandbox.requests().until(|_| sandbox.faults().played(rule) > 0);
    tokio::time::timeout(PATIENCE, stuck).await.expect("it comes to that write");
    reconciler.crash().await;
    sandbox.faults().clear();
}

/// The fields of an object that the operator reads; those that it leaves out when they are empty are left out.
fn picked(object: &Value, keys: &[&str]) -> Value {
    let is_empty = |value: &Value| [json!(0), json!(""), json!([]), Value::Null].contains(value);
    let fields = keys.iter().filter(|key| !is_empty(&object[**key]));
    fields.map(|key| ((*key).to_owned(), object[*key].clone())).collect::<Map<_, _>>().into()
}

/// What the operator reads of a lease. Of the times it matters that they are there.
fn of_lease(lease: &Value) -> Value {
    let owners = lease["metadata"]["ownerReferences"].as_array().unwrap();
    let owners: Vec<Value> =
        owners.iter().map(|owner| picked(owner, &["apiVersion", "kind", "name", "uid"])).collect();
    let spec = &lease["spec"];
    json!({
        "name": lease["metadata"]["name"],
        "owners": owners,
        "spec": picked(spec, &["holderIdentity", "leaseDurationSeconds"]),
        "transitions": spec["leaseTransitions"],
        "times": [spec["acquireTime"].is_string(), spec["renewTime"].is_string()],
    })
}

/// What the operator reads of a node, and undoes.
fn of_node(node: &Value) -> Value {
    let untainted = Vec::new();
    let taints = node["spec"]["taints"].as_array().unwrap_or(&untainted).iter();
    let mut taints: Vec<_> =
        taints.map(|taint| (taint["key"].to_string(), taint["effect"].to_string())).collect();
    taints.sort();
    json!({
        "label": node["metadata"]["labels"][EXCLUDE_LABEL],
        "unschedulable": node["spec"]["unschedulable"],
        "taints": taints,
    })
}

fn of_status(status: &Value) -> Value {
    let keys = [
        "phase",
        "drainProgress",
        "totalpods",
        "evictionPods",
        "pendingPods",
        "pendingPodsRefs",
        "errorOnLeaseCount",
    ];
    picked(status, &keys)
}

/// What there is now, part by part in the order in which we write; null for what is not written.
async fn written(cluster: &Cluster, node: &str) -> [Value; 4] {
    let maintenance = json!(cluster.maintenances().get(NAME).await.unwrap());
    let leases: Api<Lease> = Api::namespaced(cluster.client.clone(), LEASE_NAMESPACE);
    let lease = leases.get_opt(&node_lease::name(node)).await.unwrap();
    let node = of_node(&json!(cluster.node(node).await));
    [
        maintenance["metadata"]["finalizers"].clone(),
        lease.map_or(Value::Null, |lease| of_lease(&json!(lease))),
        if node["unschedulable"] == true { node } else { Value::Null },
        if maintenance["status"]["phase"].is_null() {
            Value::Null
        } else {
            of_status(&maintenance["status"])
        },
    ]
}

/// The same of a recorded state.
fn recorded(name: &str, node: &Node, namespace: &str) -> [Value; 4] {
    let state = Recorded::named(name).on(node, namespace);
    [
        state["finalizers"].clone(),
        of_lease(&state["lease"]),
        of_node(&state["node"]),
        of_status(&state["status"]),
    ]
}

/// A cluster with the pods of the recorded states on a node, whose maintenance is asked for.
async fn asked_for() -> Option<(Cluster, Workload, String)> {
    let cluster = only_sandbox(2, WHY).await?;
    let workload = Workload::new(&cluster, "steps").await;
    let node = cluster.nodes().await.remove(0);
    for pod in ["moves", "stays"] {
        workload.pod_on(&node, pod, json!({})).await;
    }
    start(&cluster, NAME, &node).await;
    Some((cluster, workload, node))
}

// Case 34.
#[tokio::test(flavor = "multi_thread")]
async fn each_step_of_ours_leaves_what_the_medik8s_operator_would_have_written() {
    let next = [
        ours().verb("create").resource("leases").namespace(LEASE_NAMESPACE),
        ours().verb("patch").resource("nodes"),
        ours().verb("patch").resource("nodemaintenances").subresource("status"),
        ours().subresource("eviction"),
    ];
    for (step, next) in next.into_iter().enumerate() {
        let Some((cluster, workload, node)) = asked_for().await else { return };
        killed_before(&cluster, next).await;
        let mut expected = recorded("begun/6-cordoned", &cluster.node(&node).await, workload.namespace());
        for later in &mut expected[step + 1..] {
            *later = Value::Null;
        }
        assert_eq!(written(&cluster, &node).await, expected, "step {step}");
    }
    let Some((cluster, workload, node)) = asked_for().await else { return };
    let reconciler = Reconciler::start(&cluster);
    drained(&cluster, NAME).await;
    reconciler.crash().await;
    let expected = recorded("begun/9-succeeded", &cluster.node(&node).await, workload.namespace());
    assert_eq!(written(&cluster, &node).await, expected);
}

// Case 34.
#[tokio::test(flavor = "multi_thread")]
async fn while_we_give_a_node_back_the_finalizer_stays_until_nothing_is_left_to_do() {
    let next = [
        ours().verb("patch").resource("nodes"),
        ours().verb("delete").resource("leases").namespace(LEASE_NAMESPACE),
        ours().verb("patch").resource("nodemaintenances").subresource(""),
    ];
    for (step, next) in next.into_iter().enumerate() {
        let Some((cluster, _workload, node)) = asked_for().await else { return };
        let before = configuration(&cluster.node(&node).await);
        let reconciler = Reconciler::start(&cluster);
        drained(&cluster, NAME).await;
        reconciler.crash().await;
        let [finalizer, lease, cordon, status] = written(&cluster, &node).await;
        cluster.maintenances().delete(NAME, &DeleteParams::default()).await.unwrap();
        killed_before(&cluster, next).await;

        let lease = if step < 2 { lease } else { Value::Null };
        let cordon = if step < 1 { cordon } else { Value::Null };
        assert_eq!(written(&cluster, &node).await, [finalizer, lease, cordon, status], "step {step}");
        if step > 0 {
            assert_eq!(configuration(&cluster.node(&node).await), before, "step {step}");
        }
    }
}
