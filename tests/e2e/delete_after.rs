//! Pods that are deleted past what refuses them: only after having been refused for so long, and with pauses.

use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::admissionregistration::v1::ValidatingWebhookConfiguration;
use kube::Api;
use kube::api::{DeleteParams, PostParams};
use kube_sandbox::admission::Reviewer;
use kube_sandbox::faults::{Action, Failure, Moment, Rule, Target, When};
use kube_sandbox::request_log::Entry;
use nm_shared::{BlockReason, NodeMaintenanceStatus};
use nm_tests::cluster::Cluster;
use nm_tests::reconciler::Reconciler;
use nm_tests::until::PATIENCE;
use nm_tests::workload::{Workload, parse};
use serde_json::{Value, json};

use crate::answers::nothing_is_left;
use crate::{change, once, only_sandbox, start};

const WHY: &str = "only a sandbox plays the webhook, and tells when it was asked";

/// Refuses everything.
#[derive(Debug)]
struct Guard;

impl Reviewer for Guard {
    fn review(&self, _: &Value) -> Value {
        json!({"allowed": false, "status": {"code": 403, "message": "not before noon"}})
    }
}

/// Has a webhook refuse these operations on pods and their evictions.
async fn guard(cluster: &Cluster, workload: &Workload, operations: &[&str]) {
    let services = &cluster.sandbox().unwrap().cluster().admission.services;
    services.answer(workload.namespace(), "guard", Arc::new(Guard));
    let webhook = parse(json!({"metadata": {"name": "guard"}, "webhooks": [{
        "name": "guard.example.com", "admissionReviewVersions": ["v1"], "sideEffects": "None",
        "clientConfig": {"service": {"namespace": workload.namespace(), "name": "guard"}},
        "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": workload.namespace()}},
        "rules": [{"operations": operations, "apiGroups": [""], "apiVersions": ["v1"],
            "resources": ["pods", "pods/eviction"]}],
    }]}));
    webhooks(cluster).create(&PostParams::default(), &webhook).await.unwrap();
}

fn webhooks(cluster: &Cluster) -> Api<ValidatingWebhookConfiguration> {
    Api::all(cluster.client.clone())
}

fn is_eviction(entry: &Entry) -> bool {
    entry.user_agent.starts_with("nm-reconciler/") && entry.subresource == "eviction"
}

fn is_deletion(entry: &Entry) -> bool {
    entry.user_agent.starts_with("nm-reconciler/") && entry.resource == "pods" && entry.verb == "delete"
}

/// What is asked, once there are so many such requests.
async fn asked(cluster: &Cluster, which: fn(&Entry) -> bool, count: usize) -> Vec<Entry> {
    let log = cluster.sandbox().unwrap().requests();
    let all = log.until(move |log| log.count(which) >= count);
    assert!(tokio::time::timeout(PATIENCE, all).await.is_ok(), "{count} requests: {:#?}", log.all());
    log.all().into_iter().filter(which).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn time_in_which_nobody_refused_counts_for_no_deletion() {
    let Some(cluster) = only_sandbox(1, WHY).await else { return };
    cluster.grant("pod_deletion").await;
    let workload = Workload::new(&cluster, "counts").await;
    let node = &cluster.nodes().await[0];
    workload.pod_on(node, "cart", json!({})).await;
    guard(&cluster, &workload, &["CREATE"]).await;
    let fails = Action::Fail(Failure::Unavailable, Moment::BeforeEffect);
    let evictions = Target::any().subresource("eviction");
    cluster.sandbox().unwrap().faults().add(Rule::new(evictions, fails).when(When::First(2)));
    let _reconciler = Reconciler::start(&cluster);
    start(&cluster, "e2e-counts", node).await;
    change(&cluster, "e2e-counts", json!({"deleteAfterSeconds": 2})).await;
    let deletion = asked(&cluster, is_deletion, 1).await.remove(0);
    let evictions = asked(&cluster, is_eviction, 3).await;
    let codes: Vec<u16> = evictions.iter().map(|eviction| eviction.code).collect();
    assert_eq!(codes[..3], [503, 503, 403]);
    let refused_for = deletion.at.duration_since(evictions[2].at);
    // The log has the time of the answer, and the reconciler hears of it a moment later.
    assert!(refused_for >= SignedDuration::from_millis(1_900), "{refused_for}");
    nothing_is_left(&cluster, "e2e-counts").await;
    webhooks(&cluster).delete("guard", &DeleteParams::default()).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_deletion_that_is_refused_is_repeated_with_pauses_and_reported() {
    let Some(cluster) = only_sandbox(1, WHY).await else { return };
    cluster.grant("pod_deletion").await;
    let workload = Workload::new(&cluster, "denied").await;
    let node = &cluster.nodes().await[0];
    workload.pod_on(node, "cart", json!({})).await;
    workload.budget("cart", 1).await;
    guard(&cluster, &workload, &["DELETE"]).await;
    let _reconciler = Reconciler::start(&cluster);
    start(&cluster, "e2e-denied", node).await;
    change(&cluster, "e2e-denied", json!({"deleteAfterSeconds": 1})).await;
    let denied = |status: &NodeMaintenanceStatus| {
        status.blocked_pods.iter().any(|pod| pod.reason == BlockReason::AdmissionWebhook)
    };
    let status = once(&cluster, "e2e-denied", "the webhook is named", denied).await;
    let said = "admission webhook \"guard.example.com\" denied the request: not before noon";
    assert_eq!(status.blocked_pods[0].message, said);
    assert_eq!(status.blocked_pods[0].facts.webhook.as_deref(), Some("guard.example.com"));
    let since = Timestamp::now();
    let is_status =
        |entry: &Entry| entry.verb == "patch" && entry.subresource == "status" && entry.at > since;
    let deletions = asked(&cluster, is_deletion, 3).await;
    for pair in deletions.windows(2) {
        let pause = pair[1].at.duration_since(pair[0].at);
        assert!(pause >= SignedDuration::from_millis(1_900), "{pause}");
    }
    assert_eq!(cluster.sandbox().unwrap().requests().count(is_status), 0, "nothing new is told");
    let status = once(&cluster, "e2e-denied", "still", denied).await;
    assert_eq!(status.blocked_pods.len(), 1);
    workload.free("cart").await;
    nothing_is_left(&cluster, "e2e-denied").await;
    webhooks(&cluster).delete("guard", &DeleteParams::default()).await.unwrap();
}
