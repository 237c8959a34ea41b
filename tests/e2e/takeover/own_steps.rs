//! Whenever the reconciler is killed, it leaves what the medik8s operator would have written, so that the operator can
//! continue. Only what the operator reads is compared.

use crate::takeover::recorded_states::RecordedState;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Node;
use kube::Api;
use kube::api::DeleteParams;
use kube_sandbox::faults::{Action, Moment, Rule, Target};
use nm_shared::api::names::{EXCLUDE_LABEL, LEASE_NAMESPACE};
use nm_shared::cluster::node_lease;
use nm_tests::cluster::Cluster;
use nm_tests::maintenance::{start, until_drained};
use nm_tests::nodes::configuration;
use nm_tests::reconciler::Reconciler;
use nm_tests::requests::{by_reconciler, until_fault_played};
use nm_tests::workload::Workload;
use serde_json::{Map, Value, json};

const NAME: &str = "e2e-steps";
const WHY: &str = "only a sandbox stops a reconciler between two writes";

/// Runs a reconciler up to its first request for `target`, which has no effect, and kills it there. Without an answer, it does
/// not try again before.
async fn killed_before(cluster: &Cluster, target: Target) {
    let sandbox = cluster.sandbox().unwrap();
    let rule = sandbox.faults().add(Rule::new(target, Action::NeverAnswer(Moment::BeforeEffect)));
    let reconciler = Reconciler::start(cluster);
    until_fault_played(sandbox, rule).await;
    reconciler.crash().await;
    sandbox.faults().clear();
}

/// Fields of an object, without empty ones, which the operator omits.
fn pick(object: &Value, keys: &[&str]) -> Value {
    let is_empty = |value: &Value| [json!(0), json!(""), json!([]), Value::Null].contains(value);
    let fields = keys.iter().filter(|key| !is_empty(&object[**key]));
    fields.map(|key| ((*key).to_owned(), object[*key].clone())).collect::<Map<_, _>>().into()
}

/// The fields of a lease that the operator reads. Its times only have to exist.
fn lease_fields(lease: &Value) -> Value {
    let owners = lease["metadata"]["ownerReferences"].as_array().unwrap();
    let owners: Vec<Value> =
        owners.iter().map(|owner| pick(owner, &["apiVersion", "kind", "name", "uid"])).collect();
    let spec = &lease["spec"];
    json!({
        "name": lease["metadata"]["name"],
        "owners": owners,
        "spec": pick(spec, &["holderIdentity", "leaseDurationSeconds"]),
        "transitions": spec["leaseTransitions"],
        "times": [spec["acquireTime"].is_string(), spec["renewTime"].is_string()],
    })
}

/// The fields of a node that the operator reads and restores.
fn node_fields(node: &Value) -> Value {
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

fn status_fields(status: &Value) -> Value {
    let keys = [
        "phase",
        "drainProgress",
        "totalpods",
        "evictionPods",
        "pendingPods",
        "pendingPodsRefs",
        "errorOnLeaseCount",
    ];
    pick(status, &keys)
}

/// What the reconciler has written, in the order of its writes; null for what it has not written.
async fn written(cluster: &Cluster, node: &str) -> [Value; 4] {
    let maintenance = json!(cluster.maintenances().get(NAME).await.unwrap());
    let leases: Api<Lease> = Api::namespaced(cluster.client.clone(), LEASE_NAMESPACE);
    let lease = leases.get_opt(&node_lease::name(node)).await.unwrap();
    let node = node_fields(&json!(cluster.node(node).await));
    [
        maintenance["metadata"]["finalizers"].clone(),
        lease.map_or(Value::Null, |lease| lease_fields(&json!(lease))),
        if node["unschedulable"] == true { node } else { Value::Null },
        if maintenance["status"]["phase"].is_null() {
            Value::Null
        } else {
            status_fields(&maintenance["status"])
        },
    ]
}

/// The same parts of a recorded state.
fn recorded(name: &str, node: &Node, namespace: &str) -> [Value; 4] {
    let state = RecordedState::named(name).on(node, namespace);
    [
        state["finalizers"].clone(),
        lease_fields(&state["lease"]),
        node_fields(&state["node"]),
        status_fields(&state["status"]),
    ]
}

/// A cluster with the pods of the recorded states on a node, and a new maintenance of the node.
async fn new_maintenance() -> Option<(Cluster, Workload, String)> {
    let cluster = Cluster::sandbox_or_skip(2, WHY).await?;
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
async fn each_step_of_a_drain_leaves_what_the_medik8s_operator_would_have_written() {
    // Other maintenances may write, too.
    let next: [fn(&str) -> Target; 4] = [
        |_| by_reconciler().verb("create").resource("leases").namespace(LEASE_NAMESPACE),
        |node| by_reconciler().verb("patch").resource("nodes").name(node),
        |_| by_reconciler().verb("patch").resource("nodemaintenances").subresource("status").name(NAME),
        |_| by_reconciler().subresource("eviction"),
    ];
    for (step, next) in next.into_iter().enumerate() {
        let Some((cluster, workload, node)) = new_maintenance().await else { return };
        killed_before(&cluster, next(&node)).await;
        let mut expected = recorded("begun/6-cordoned", &cluster.node(&node).await, workload.namespace());
        for later in &mut expected[step + 1..] {
            *later = Value::Null;
        }
        assert_eq!(written(&cluster, &node).await, expected, "step {step}");
    }
    let Some((cluster, workload, node)) = new_maintenance().await else { return };
    let reconciler = Reconciler::start(&cluster);
    until_drained(&cluster, NAME).await;
    reconciler.crash().await;
    let expected = recorded("begun/9-succeeded", &cluster.node(&node).await, workload.namespace());
    assert_eq!(written(&cluster, &node).await, expected);
}

// Case 34.
#[tokio::test(flavor = "multi_thread")]
async fn the_finalizer_is_removed_last_when_a_node_returns_to_service() {
    let next: [fn(&str) -> Target; 3] = [
        |node| by_reconciler().verb("patch").resource("nodes").name(node),
        |_| by_reconciler().verb("delete").resource("leases").namespace(LEASE_NAMESPACE),
        |_| by_reconciler().verb("patch").resource("nodemaintenances").subresource("").name(NAME),
    ];
    for (step, next) in next.into_iter().enumerate() {
        let Some((cluster, _workload, node)) = new_maintenance().await else { return };
        let before = configuration(&cluster.node(&node).await);
        let reconciler = Reconciler::start(&cluster);
        until_drained(&cluster, NAME).await;
        reconciler.crash().await;
        let [finalizer, lease, cordon, status] = written(&cluster, &node).await;
        cluster.maintenances().delete(NAME, &DeleteParams::default()).await.unwrap();
        killed_before(&cluster, next(&node)).await;

        let lease = if step < 2 { lease } else { Value::Null };
        let cordon = if step < 1 { cordon } else { Value::Null };
        assert_eq!(written(&cluster, &node).await, [finalizer, lease, cordon, status], "step {step}");
        if step > 0 {
            assert_eq!(configuration(&cluster.node(&node).await), before, "step {step}");
        }
    }
}
