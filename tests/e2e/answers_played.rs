//! Answers to an eviction for which a sandbox has to play the cause: a pod that goes or changes at the wrong moment, a
//! namespace that ends, webhooks that refuse, a node that is silent, a budget that nobody processes.

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::admissionregistration::v1::ValidatingWebhookConfiguration;
use k8s_openapi::api::core::v1::{Namespace, Pod};
use kube::api::{DeleteParams, PostParams};
use kube::{Api, ResourceExt};
use kube_sandbox::admission::Reviewer;
use kube_sandbox::controllers::kubelet::annotations::STOP_DELAY;
use kube_sandbox::faults::{Action, Failure, Moment, Rule, Target, Writers};
use nm_shared::BlockReason;
use nm_shared::api::condition::{ConditionType, is_true};
use nm_tests::cluster::Cluster;
use nm_tests::reconciler::Reconciler;
use nm_tests::until::{PATIENCE, until};
use nm_tests::workload::{Workload, parse};
use serde_json::{Value, json};

use crate::answers::{blocked, budget, nothing_is_left};
use crate::{drained, evictions, once, only_sandbox, start};

const WHY: &str = "only a sandbox plays this cause";

/// So long an eviction is on its way: time enough for a test to change the world under it.
const ON_ITS_WAY: Duration = Duration::from_secs(4);

/// Starts a maintenance whose evictions are slow, and returns when one is on its way.
async fn start_slowly(cluster: &Cluster, name: &str, node: &str) {
    let faults = cluster.sandbox().unwrap().faults();
    let slow = Rule::new(Target::any().subresource("eviction"), Action::Delay(ON_ITS_WAY));
    let slow = faults.add(slow);
    start(cluster, name, node).await;
    // A request is in the log only once it is answered, so this one is asked for.
    while faults.played(slow) == 0 {
        cluster.node(node).await;
    }
    faults.remove(slow);
}

fn codes(cluster: &Cluster, pod: &str) -> Vec<u16> {
    let all = evictions(cluster.sandbox().unwrap());
    all.into_iter().filter(|entry| entry.name == pod).map(|entry| entry.code).collect()
}

async fn eviction_answered(cluster: &Cluster) {
    let log = cluster.sandbox().unwrap().requests();
    let answered = log.until(|log| log.count(|entry| entry.subresource == "eviction") > 0);
    tokio::time::timeout(PATIENCE, answered).await.expect("an eviction is answered");
}

async fn delete_at_once(workload: &Workload, pod: &str) {
    workload.pods().delete(pod, &DeleteParams::default().grace_period(0)).await.unwrap();
    until(&workload.pods(), pod, "gone", |found| found.is_none()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pod_whose_eviction_is_accepted_is_waited_for_until_it_is_gone() {
    let Some(cluster) = only_sandbox(1, WHY).await else { return };
    let workload = Workload::new(&cluster, "slow").await;
    let node = &cluster.nodes().await[0];
    workload.pod_on(node, "cart", json!({"metadata": {"annotations": {STOP_DELAY: "3s"}}})).await;
    let _reconciler = Reconciler::start(&cluster);
    start(&cluster, "e2e-slow", node).await;
    let status = once(&cluster, "e2e-slow", "terminating", |status| status.pod_counts.terminating == 1).await;
    assert_eq!((status.drain_progress, status.pending_pods.as_slice()), (0, &["cart".to_owned()][..]));
    assert_eq!((status.last_error.as_str(), status.blocked_pods.len()), ("", 0));
    nothing_is_left(&cluster, "e2e-slow").await;
    assert!(workload.pods().get_opt("cart").await.unwrap().is_none());
    assert_eq!(codes(&cluster, "cart"), [201]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pod_that_goes_before_its_eviction_arrives_is_done_and_one_of_the_same_name_is_another() {
    let Some(cluster) = only_sandbox(2, WHY).await else { return };
    let [here, there]: [String; 2] = cluster.nodes().await.try_into().unwrap();
    for (replaced, code) in [(false, 404), (true, 409)] {
        let workload = Workload::new(&cluster, "overtaken").await;
        let name = format!("cart-{code}");
        workload.pod_on(&here, &name, json!({})).await;
        let _reconciler = Reconciler::start(&cluster);
        start_slowly(&cluster, &name, &here).await;
        // The reconciler takes its request back when it hears that the pod is gone: so it must not hear it yet.
        let faults = cluster.sandbox().unwrap().faults();
        let pods = Target::any().verb("list").verb("watch").resource("pods").user_agent("nm-reconciler/*");
        let deaf =
            faults.add(Rule::new(pods.clone(), Action::Fail(Failure::Unavailable, Moment::BeforeEffect)));
        assert_eq!(faults.end_watches(&pods, 0), 1);
        delete_at_once(&workload, &name).await;
        if replaced {
            workload.pod_on(&there, &name, json!({})).await;
        }
        eviction_answered(&cluster).await;
        faults.remove(deaf);
        nothing_is_left(&cluster, &name).await;
        assert_eq!(codes(&cluster, &name), [code]);
        let left: Option<Pod> = workload.pods().get_opt(&name).await.unwrap();
        assert_eq!(left.is_some(), replaced);
        assert!(left.is_none_or(|pod| pod.metadata.deletion_timestamp.is_none()), "the replacement stays");
        crate::stop(&cluster, &name).await;
        cluster.sandbox().unwrap().requests().clear();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_namespace_that_ends_is_waited_for_and_is_no_missing_right() {
    let Some(cluster) = only_sandbox(1, WHY).await else { return };
    let workload = Workload::new(&cluster, "ending").await;
    let node = &cluster.nodes().await[0];
    let slow = json!({"metadata": {"annotations": {STOP_DELAY: "10s"}}, "spec": {"terminationGracePeriodSeconds": 20}});
    workload.pod_on(node, "cart", slow).await;
    let _reconciler = Reconciler::start(&cluster);
    start_slowly(&cluster, "e2e-ending", node).await;
    // The namespace tells its pods to go, and as a rule that is heard of first. This time the refusal is.
    let faults = cluster.sandbox().unwrap().faults();
    let pods = Target::any().verb("watch").resource("pods").user_agent("nm-reconciler/*");
    assert_eq!(faults.mute_watches(&pods), 1);
    let namespaces: Api<Namespace> = Api::all(cluster.client.clone());
    namespaces.delete(workload.namespace(), &DeleteParams::default()).await.unwrap();
    let pod = blocked(&cluster, "e2e-ending", BlockReason::NamespaceTerminating).await;
    assert_eq!(pod.message, "its namespace is terminating and will end it");
    let status = cluster.maintenances().get("e2e-ending").await.unwrap().status.unwrap();
    assert!(!is_true(&status.conditions, ConditionType::Degraded), "no right is missing");

    assert_eq!(faults.end_watches(&pods, 0), 1);
    let status =
        once(&cluster, "e2e-ending", "terminating", |status| status.pod_counts.terminating == 1).await;
    assert_eq!((status.last_error.as_str(), status.blocked_pods.len()), ("", 0));
    nothing_is_left(&cluster, "e2e-ending").await;
    let codes = codes(&cluster, "cart");
    assert!(codes.iter().all(|code| *code == 403), "{codes:?}");
}

/// Refuses every eviction, with the code that the pod's name ends with.
#[derive(Debug)]
struct Guard;

impl Reviewer for Guard {
    fn review(&self, request: &Value) -> Value {
        let name = request["name"].as_str().unwrap_or_default();
        let code: u16 = name.rsplit('-').next().and_then(|code| code.parse().ok()).unwrap_or(400);
        json!({"allowed": false, "status": {"code": code, "message": "not before noon"}})
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_webhook_that_refuses_is_named_with_what_it_said_whatever_its_code() {
    let Some(cluster) = only_sandbox(1, WHY).await else { return };
    let workload = Workload::new(&cluster, "guarded").await;
    let node = &cluster.nodes().await[0];
    let names = ["cart-400", "cart-403", "cart-409", "cart-429", "cart-500"];
    for name in names {
        workload.pod_on(node, name, json!({})).await;
    }
    let services = &cluster.sandbox().unwrap().cluster().admission.services;
    services.answer(workload.namespace(), "guard", Arc::new(Guard));
    let webhooks: Api<ValidatingWebhookConfiguration> = Api::all(cluster.client.clone());
    let webhook = parse(json!({"metadata": {"name": "guard"}, "webhooks": [{
        "name": "guard.example.com", "admissionReviewVersions": ["v1"], "sideEffects": "None",
        "clientConfig": {"service": {"namespace": workload.namespace(), "name": "guard"}},
        "rules": [{"operations": ["CREATE"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods/eviction"]}],
    }]}));
    webhooks.create(&PostParams::default(), &webhook).await.unwrap();
    let _reconciler = Reconciler::start(&cluster);
    start(&cluster, "e2e-guarded", node).await;
    let all = |status: &nm_shared::NodeMaintenanceStatus| status.blocked_pods.len() == names.len();
    let status = once(&cluster, "e2e-guarded", "all are refused", all).await;
    for (pod, name) in status.blocked_pods.iter().zip(names) {
        assert_eq!((pod.name.as_str(), pod.reason), (name, BlockReason::AdmissionWebhook));
        let said = "admission webhook \"guard.example.com\" denied the request: not before noon";
        assert_eq!(pod.message, said);
    }
    assert!(!is_true(&status.conditions, ConditionType::Degraded), "no right is missing");
    blocked(&cluster, "e2e-guarded", BlockReason::AdmissionWebhook).await;
    webhooks.delete(&webhook.name_any(), &DeleteParams::default()).await.unwrap();
    nothing_is_left(&cluster, "e2e-guarded").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_is_not_ready_is_named_for_the_pods_that_it_does_not_confirm() {
    let Some(cluster) = only_sandbox(1, WHY).await else { return };
    let workload = Workload::new(&cluster, "silent").await;
    let node = &cluster.nodes().await[0];
    workload.pod_on(node, "cart", json!({})).await;
    let faults = cluster.sandbox().unwrap().faults();
    faults.silence_node(node).unwrap();
    let _reconciler = Reconciler::start(&cluster);
    start(&cluster, "e2e-silent", node).await;
    let pod = blocked(&cluster, "e2e-silent", BlockReason::NodeNotReady).await;
    let said = format!("terminating, but its node {node} is not Ready: nobody confirms that it ended");
    assert_eq!(pod.message, said);
    faults.revive_node(node).unwrap();
    nothing_is_left(&cluster, "e2e-silent").await;
    assert_eq!(codes(&cluster, "cart"), [201], "nothing is forced");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_budget_that_nobody_has_processed_yet_is_named_as_such() {
    let Some(cluster) = only_sandbox(1, WHY).await else { return };
    let workload = Workload::new(&cluster, "new").await;
    let node = &cluster.nodes().await[0];
    workload.pod_on(node, "cart", json!({})).await;
    let faults = cluster.sandbox().unwrap().faults();
    let still = faults.freeze_status(Target::any().resource("poddisruptionbudgets"), Writers::Controllers);
    budget(&workload, "fresh", "cart", 0).await;
    let _reconciler = Reconciler::start(&cluster);
    start(&cluster, "e2e-new", node).await;
    let pod = blocked(&cluster, "e2e-new", BlockReason::DisruptionBudget).await;
    assert_eq!(pod.message, "The disruption budget fresh is still being processed by the server.");
    faults.thaw_status(still);
    drained(&cluster, "e2e-new").await;
    nothing_is_left(&cluster, "e2e-new").await;
}
