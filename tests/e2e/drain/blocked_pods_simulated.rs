//! What blocks an eviction, for causes that only a sandbox simulates: a pod that goes or changes at the wrong moment, a
//! terminating namespace, webhooks that refuse, a node that is not ready, a budget that no controller processes.

use kube_sandbox::request_log::Entry;
use nm_shared::NodeMaintenanceStatus;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::admissionregistration::v1::{
    ValidatingAdmissionPolicy, ValidatingAdmissionPolicyBinding,
};
use k8s_openapi::api::core::v1::{Namespace, Pod};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::Api;
use kube::api::{DeleteParams, PostParams};
use kube_sandbox::admission::Reviewer;
use kube_sandbox::controllers::kubelet::annotations::STOP_DELAY;
use kube_sandbox::faults::{Action, Failure, Moment, Rule, Target, Writers};
use nm_shared::api::condition::{ConditionType, is_true};
use nm_shared::{BlockReason, Group, PolicyFacts};
use nm_tests::cluster::Cluster;
use nm_tests::eviction_webhook;
use nm_tests::eviction_webhook::{REFUSAL, refusal};
use nm_tests::maintenance::{
    start, stop, until_blocked, until_drained, until_drained_without_errors, until_status,
};
use nm_tests::programs::plugin;
use nm_tests::reconciler::Reconciler;
use nm_tests::requests::{by_reconciler, evictions, until_fault_played, until_requests, until_watched};
use nm_tests::wait::wait_until;
use nm_tests::workload::{Workload, node_of};
use serde_json::{Value, json};

const WHY: &str = "only a sandbox simulates this cause";

/// How long an eviction takes, so that a test can change the cluster meanwhile.
const EVICTION_DELAY: Duration = Duration::from_secs(4);

/// Starts a maintenance whose evictions are slow, and returns when one is under way.
async fn start_slowly(cluster: &Cluster, name: &str, node: &str) {
    let sandbox = cluster.sandbox().unwrap();
    let slow = Rule::new(Target::any().subresource("eviction"), Action::Delay(EVICTION_DELAY));
    let slow = sandbox.faults().add(slow);
    start(cluster, name, node).await;
    until_fault_played(sandbox, slow).await;
    sandbox.faults().remove(slow);
}

/// How the API server answered the evictions of a pod.
fn codes(cluster: &Cluster, pod: &str) -> Vec<u16> {
    let all = evictions(cluster.sandbox().unwrap());
    all.into_iter().filter(|entry| entry.name == pod).map(|entry| entry.code).collect()
}

async fn delete_without_grace(workload: &Workload, pod: &str) {
    workload.pods().delete(pod, &DeleteParams::default().grace_period(0)).await.unwrap();
    wait_until(&workload.pods(), pod, "gone", |found| found.is_none()).await;
}

// Defect aws/karpenter-provider-aws#633: The drain ends when all evictions were requested. The node is shut down
// while pods still terminate.
#[tokio::test(flavor = "multi_thread")]
async fn a_maintenance_waits_until_an_evicted_pod_is_gone() {
    let Some(cluster) = Cluster::sandbox_or_skip(1, WHY).await else { return };
    let workload = Workload::new(&cluster, "slow").await;
    let node = &cluster.nodes().await[0];
    workload.pod_on(node, "cart", json!({"metadata": {"annotations": {STOP_DELAY: "3s"}}})).await;
    let _reconciler = Reconciler::start(&cluster);
    start(&cluster, "e2e-slow", node).await;
    let status =
        until_status(&cluster, "e2e-slow", "terminating", |status| status.pod_counts.terminating == 1).await;
    assert_eq!((status.drain_progress, status.pending_pods.as_slice()), (0, &["cart".to_owned()][..]));
    assert_eq!((status.last_error.as_str(), status.blocked_pods.len()), ("", 0));
    until_drained_without_errors(&cluster, "e2e-slow").await;
    assert!(workload.pods().get_opt("cart").await.unwrap().is_none());
    assert_eq!(codes(&cluster, "cart"), [201]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pod_that_is_gone_before_its_eviction_counts_as_gone_and_its_namesake_is_not_evicted() {
    let Some(cluster) = Cluster::sandbox_or_skip(2, WHY).await else { return };
    let [here, there]: [String; 2] = cluster.nodes().await.try_into().unwrap();
    for (replaced, code) in [(false, 404), (true, 409)] {
        let workload = Workload::new(&cluster, "overtaken").await;
        let name = format!("cart-{code}");
        workload.pod_on(&here, &name, json!({})).await;
        let _reconciler = Reconciler::start(&cluster);
        start_slowly(&cluster, &name, &here).await;
        // The reconciler cancels an eviction when it learns that the pod is gone. So it must not learn it yet.
        let faults = cluster.sandbox().unwrap().faults();
        let pods = by_reconciler().verb("list").verb("watch").resource("pods");
        let deaf =
            faults.add(Rule::new(pods.clone(), Action::Fail(Failure::Unavailable, Moment::BeforeEffect)));
        until_watched(cluster.sandbox().unwrap(), "pods").await;
        assert_eq!(faults.end_watches(&pods, 0), 1);
        delete_without_grace(&workload, &name).await;
        if replaced {
            workload.pod_on(&there, &name, json!({})).await;
        }
        let is_eviction = |entry: &Entry| entry.subresource == "eviction";
        until_requests(cluster.sandbox().unwrap(), 1, "an eviction is answered", is_eviction).await;
        faults.remove(deaf);
        until_drained_without_errors(&cluster, &name).await;
        assert_eq!(codes(&cluster, &name), [code]);
        let left: Option<Pod> = workload.pods().get_opt(&name).await.unwrap();
        assert_eq!(left.is_some(), replaced);
        assert!(left.is_none_or(|pod| pod.metadata.deletion_timestamp.is_none()), "the replacement stays");
        stop(&cluster, &name).await;
        cluster.sandbox().unwrap().requests().clear();
    }
}

// Defect kubernetes/kubernetes#93947, kubernetes/kops#5988: A namespace is deleted during the drain. The eviction is
// forbidden, and the drain fails.
#[tokio::test(flavor = "multi_thread")]
async fn a_terminating_namespace_is_waited_for_and_not_reported_as_a_missing_permission() {
    let Some(cluster) = Cluster::sandbox_or_skip(1, WHY).await else { return };
    let workload = Workload::new(&cluster, "ending").await;
    let node = &cluster.nodes().await[0];
    let slow = json!({"metadata": {"annotations": {STOP_DELAY: "10s"}}, "spec": {"terminationGracePeriodSeconds": 20}});
    workload.pod_on(node, "cart", slow).await;
    let _reconciler = Reconciler::start(&cluster);
    start_slowly(&cluster, "e2e-ending", node).await;
    // Usually the reconciler sees the deleted pod first. Muted watches make it see the refusal first.
    let faults = cluster.sandbox().unwrap().faults();
    let pods = by_reconciler().verb("watch").resource("pods");
    until_watched(cluster.sandbox().unwrap(), "pods").await;
    assert_eq!(faults.mute_watches(&pods), 1);
    let namespaces: Api<Namespace> = Api::all(cluster.client.clone());
    namespaces.delete(workload.namespace(), &DeleteParams::default()).await.unwrap();
    let pod = until_blocked(&cluster, "e2e-ending", BlockReason::NamespaceTerminating).await;
    assert_eq!(pod.message, "its namespace is being deleted, together with the pod");
    let status = cluster.maintenances().get("e2e-ending").await.unwrap().status.unwrap();
    assert!(!is_true(&status.conditions, ConditionType::Degraded), "no permission is missing");

    assert_eq!(faults.end_watches(&pods, 0), 1);
    let status =
        until_status(&cluster, "e2e-ending", "terminating", |status| status.pod_counts.terminating == 1)
            .await;
    assert_eq!((status.last_error.as_str(), status.blocked_pods.len()), ("", 0));
    until_drained_without_errors(&cluster, "e2e-ending").await;
    let codes = codes(&cluster, "cart");
    assert!(codes.iter().all(|code| *code == 403), "{codes:?}");
}

/// Refuses every eviction with the code at the end of the pod's name.
#[derive(Debug)]
struct RefuseWithCode;

impl Reviewer for RefuseWithCode {
    fn review(&self, request: &Value) -> Value {
        let name = request["name"].as_str().unwrap_or_default();
        refusal(name.rsplit('-').next().and_then(|code| code.parse().ok()).unwrap_or(400))
    }
}

// Defect kubereboot/kured#1269, Azure/AKS#4720: A webhook refuses an eviction until it has moved the data, and the
// drain is aborted.
#[tokio::test(flavor = "multi_thread")]
async fn a_refusing_webhook_is_reported_with_its_message_whatever_its_code() {
    let Some(cluster) = Cluster::sandbox_or_skip(1, WHY).await else { return };
    let workload = Workload::new(&cluster, "guarded").await;
    let node = &cluster.nodes().await[0];
    let names = ["cart-400", "cart-403", "cart-409", "cart-429", "cart-500"];
    for name in names {
        workload.pod_on(node, name, json!({})).await;
    }
    eviction_webhook::install(&cluster, &workload, &["CREATE"], &["pods/eviction"], Arc::new(RefuseWithCode))
        .await;
    let _reconciler = Reconciler::start(&cluster);
    start(&cluster, "e2e-guarded", node).await;
    let all = |status: &NodeMaintenanceStatus| status.blocked_pods.len() == names.len();
    let status = until_status(&cluster, "e2e-guarded", "all are refused", all).await;
    for (pod, name) in status.blocked_pods.iter().zip(names) {
        assert_eq!((pod.name.as_str(), pod.reason), (name, BlockReason::AdmissionWebhook));
        assert_eq!(pod.message, REFUSAL);
    }
    assert!(!is_true(&status.conditions, ConditionType::Degraded), "no permission is missing");
    until_blocked(&cluster, "e2e-guarded", BlockReason::AdmissionWebhook).await;
    eviction_webhook::remove(&cluster).await;
    until_drained_without_errors(&cluster, "e2e-guarded").await;
}

/// A policy with a rule for each reason that a `ValidatingAdmissionPolicy` may give.
async fn refuse_by_policy(cluster: &Cluster, reasons: &[&str]) {
    let rule = |reason: &&str| {
        let pod = format!("cart-{}", reason.to_lowercase());
        json!({"expression": format!("object.metadata.name != '{pod}'"), "message": "not today", "reason": reason})
    };
    let policy = json!({"metadata": {"name": "no-evictions"}, "spec": {
        "matchConstraints": {"resourceRules": [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"],
            "resources": ["pods/eviction"]}]},
        "validations": reasons.iter().map(rule).collect::<Vec<_>>()}});
    let binding = json!({"metadata": {"name": "everywhere"},
        "spec": {"policyName": "no-evictions", "validationActions": ["Deny"]}});
    let policies: Api<ValidatingAdmissionPolicy> = Api::all(cluster.client.clone());
    let bindings: Api<ValidatingAdmissionPolicyBinding> = Api::all(cluster.client.clone());
    let params = PostParams::default();
    policies.create(&params, &serde_json::from_value(policy).unwrap()).await.unwrap();
    bindings.create(&params, &serde_json::from_value(binding).unwrap()).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refusing_policy_is_reported_by_name_whatever_its_code_and_predicted_by_a_plan() {
    let Some(cluster) = Cluster::sandbox_or_skip(2, WHY).await else { return };
    let workload = Workload::new(&cluster, "governed").await;
    let node = &cluster.nodes().await[0];
    let reasons = ["Forbidden", "Invalid", "RequestEntityTooLarge"];
    for reason in reasons {
        workload.pod_on(node, &format!("cart-{}", reason.to_lowercase()), json!({})).await;
    }
    refuse_by_policy(&cluster, &reasons).await;
    let plan = plugin(&cluster, &["plan", node, "-o", "json"]).await;
    let planned: Value = serde_json::from_str(&plan.stdout).unwrap();
    let refused = |pod: &&Value| pod["reason"] == json!(BlockReason::AdmissionPolicy);
    let count = planned["pods"].as_array().unwrap().iter().filter(refused).count();
    assert_eq!((count, plan.code), (reasons.len(), Some(3)), "{plan:?}");
    let _reconciler = Reconciler::start(&cluster);
    start(&cluster, "e2e-governed", node).await;
    let all = |status: &NodeMaintenanceStatus| status.blocked_pods.len() == reasons.len();
    let status = until_status(&cluster, "e2e-governed", "all are refused", all).await;
    for pod in &status.blocked_pods {
        let policy = PolicyFacts { name: "no-evictions".into(), binding: Some("everywhere".into()) };
        assert_eq!((pod.reason, pod.facts.policy.as_ref()), (BlockReason::AdmissionPolicy, Some(&policy)));
        assert!(pod.message.ends_with("denied request: not today"), "{}", pod.message);
    }
    assert!(!is_true(&status.conditions, ConditionType::Degraded), "no permission is missing");
    let explained = plugin(&cluster, &["explain", node]).await;
    let command = "kubectl get validatingadmissionpolicies no-evictions -o yaml";
    assert!(explained.stdout.contains(command), "{explained:?}");
    let bindings: Api<ValidatingAdmissionPolicyBinding> = Api::all(cluster.client.clone());
    bindings.delete("everywhere", &DeleteParams::default()).await.unwrap();
    until_drained_without_errors(&cluster, "e2e-governed").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_is_not_ready_is_reported_for_pods_that_do_not_terminate() {
    let Some(cluster) = Cluster::sandbox_or_skip(1, WHY).await else { return };
    let workload = Workload::new(&cluster, "silent").await;
    let node = &cluster.nodes().await[0];
    workload.pod_on(node, "cart", json!({})).await;
    let faults = cluster.sandbox().unwrap().faults();
    faults.silence_node(node).unwrap();
    let _reconciler = Reconciler::start(&cluster);
    start(&cluster, "e2e-silent", node).await;
    let pod = until_blocked(&cluster, "e2e-silent", BlockReason::NodeNotReady).await;
    let expected = format!(
        "terminating, but its node {node} is not Ready, so no kubelet confirms that it has terminated"
    );
    assert_eq!(pod.message, expected);
    faults.revive_node(node).unwrap();
    until_drained_without_errors(&cluster, "e2e-silent").await;
    assert_eq!(codes(&cluster, "cart"), [201], "no pod is force-deleted");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_unprocessed_budget_is_reported_as_unprocessed() {
    let Some(cluster) = Cluster::sandbox_or_skip(1, WHY).await else { return };
    let workload = Workload::new(&cluster, "new").await;
    let node = &cluster.nodes().await[0];
    workload.pod_on(node, "cart", json!({})).await;
    let faults = cluster.sandbox().unwrap().faults();
    let frozen = faults.freeze_status(Target::any().resource("poddisruptionbudgets"), Writers::Controllers);
    workload.create_budget("fresh", "cart", 0).await;
    let _reconciler = Reconciler::start(&cluster);
    start(&cluster, "e2e-new", node).await;
    let pod = until_blocked(&cluster, "e2e-new", BlockReason::DisruptionBudget).await;
    assert_eq!(pod.message, "The disruption budget fresh is still being processed by the server.");
    faults.thaw_status(frozen);
    until_drained(&cluster, "e2e-new").await;
    until_drained_without_errors(&cluster, "e2e-new").await;
}

/// The fields of the status that the medik8s operator's own definition has.
const MEDIK8S_STATUS: [&str; 9] = [
    "phase",
    "drainProgress",
    "lastUpdate",
    "lastError",
    "pendingPods",
    "pendingPodsRefs",
    "totalpods",
    "evictionPods",
    "errorOnLeaseCount",
];

#[tokio::test(flavor = "multi_thread")]
async fn last_error_has_the_details_where_the_definition_is_the_medik8s_operators() {
    let Some(cluster) = Cluster::sandbox_or_skip(2, "it changes the definition").await else { return };
    let definitions: Api<CustomResourceDefinition> = Api::all(cluster.client.clone());
    let mut definition = definitions.get(&Group::Medik8s.definition()).await.unwrap();
    let schema = definition.spec.versions[0].schema.as_mut().unwrap();
    let fields = schema.open_api_v3_schema.as_mut().unwrap().properties.as_mut().unwrap();
    let status = fields.get_mut("status").unwrap().properties.as_mut().unwrap();
    status.retain(|name, _| MEDIK8S_STATUS.contains(&name.as_str()));
    definitions.replace(&Group::Medik8s.definition(), &PostParams::default(), &definition).await.unwrap();
    let workload = Workload::new(&cluster, "pruned").await;
    workload.deployment("cart", 2).await;
    workload.budget("cart", 2).await;
    let node = node_of(&workload.until_running("cart", 2).await[0]).to_owned();
    let _reconciler = Reconciler::start(&cluster);
    start(&cluster, "e2e-pruned", &node).await;
    let sentence = "The disruption budget cart needs 2 healthy pods and has 2 currently";
    let status =
        until_status(&cluster, "e2e-pruned", "explained", |status| status.last_error.contains(sentence))
            .await;
    assert!(status.blocked_pods.is_empty() && status.conditions.is_empty(), "{status:?}");
    let explained = plugin(&cluster, &["explain", &node]).await;
    assert!(explained.code == Some(3) && explained.stdout.contains(sentence), "{explained:?}");
    let shown = plugin(&cluster, &["status", &node]).await.ok();
    assert!(shown.stdout.contains("<unknown>") && shown.stderr.contains(sentence), "{shown:?}");
    workload.delete_budget("cart").await;
    until_status(&cluster, "e2e-pruned", "drained", |status| status.drain_progress == 100).await;
}
