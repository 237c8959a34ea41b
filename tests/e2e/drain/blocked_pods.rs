//! What blocks an eviction, as `blockedPods`, `lastError` and the condition `Drained` report it.
//!
//! These causes occur on any cluster. `blocked_pods_simulated` and `failed_evictions` have those that only a sandbox
//! simulates.

use k8s_openapi::api::admissionregistration::v1::ValidatingWebhookConfiguration;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::api::rbac::v1::ClusterRole;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use kube::runtime::watcher;
use kube::{Api, ResourceExt};
use nm_shared::BlockReason;
use nm_shared::api::condition::{ConditionType, find, is_true};
use nm_tests::cluster::Cluster;
use nm_tests::maintenance::{start, stop, until_blocked, until_drained_without_errors, until_status};
use nm_tests::manifests;
use nm_tests::reconciler::Reconciler;
use nm_tests::wait::wait_until_all;
use nm_tests::workload::{Workload, node_of, parse, with_finalizer};
use serde_json::json;

// Defect kubernetes/kubectl#172, eksctl-io/eksctl#4004: A blocked drain prints nothing, or no name of the pod.
#[tokio::test(flavor = "multi_thread")]
async fn a_blocking_budget_is_reported_with_its_numbers() {
    let cluster = Cluster::start(2).await;
    let workload = Workload::new(&cluster, "budget").await;
    workload.deployment("cart", 2).await;
    workload.budget("cart", 2).await;
    let node = node_of(&workload.until_running("cart", 2).await[0]).to_owned();
    let _reconciler = Reconciler::start(&cluster);
    start(&cluster, "e2e-numbers", &node).await;
    let pod = until_blocked(&cluster, "e2e-numbers", BlockReason::DisruptionBudget).await;
    assert_eq!(pod.message, "The disruption budget cart needs 2 healthy pods and has 2 currently");
    let facts = json!({"name": "cart", "desiredHealthy": 2, "currentHealthy": 2, "disruptionsAllowed": 0,
        "expectedPods": 2});
    assert_eq!(json!(pod.facts.budget), facts);
    workload.delete_budget("cart").await;
    until_drained_without_errors(&cluster, "e2e-numbers").await;
}

// Defect kubernetes/kubernetes#75957, aws/karpenter-provider-aws#1414: Two budgets select a pod. The eviction fails
// with 500, the drain stops or hangs, and nothing says why.
#[tokio::test(flavor = "multi_thread")]
async fn two_budgets_of_a_pod_are_both_reported_and_it_is_evicted_when_one_is_left() {
    let cluster = Cluster::start(2).await;
    let workload = Workload::new(&cluster, "two").await;
    workload.deployment("cart", 1).await;
    for name in ["wide", "narrow"] {
        workload.create_budget(name, "cart", 0).await;
    }
    let allow_disruptions = |budgets: &[PodDisruptionBudget]| {
        let allows = |budget: &PodDisruptionBudget| {
            budget.status.as_ref().is_some_and(|status| status.disruptions_allowed > 0)
        };
        budgets.iter().filter(|budget| allows(budget)).count() == 2
    };
    let what = "both budgets count their pods";
    wait_until_all(&workload.budgets(), watcher::Config::default(), what, allow_disruptions).await;
    let node = node_of(&workload.until_running("cart", 1).await[0]).to_owned();
    let _reconciler = Reconciler::start(&cluster);
    start(&cluster, "e2e-two", &node).await;
    let pod = until_blocked(&cluster, "e2e-two", BlockReason::MultipleDisruptionBudgets).await;
    assert_eq!(
        pod.message,
        "2 disruption budgets select this pod, and the API server evicts no pod with more than one: change or delete \
         all but one. The disruption budget narrow needs 0 healthy pods and has 1 currently; The disruption budget \
         wide needs 0 healthy pods and has 1 currently"
    );
    let facts = ["narrow", "wide"]
        .map(|name| json!({"name": name, "desiredHealthy": 0, "currentHealthy": 1, "disruptionsAllowed": 1, "expectedPods": 1}));
    assert_eq!(json!(pod.facts.budgets), json!(facts));
    workload.delete_budget("wide").await;
    until_drained_without_errors(&cluster, "e2e-two").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_missing_permission_is_reported_as_degraded_until_it_is_granted() {
    let cluster = Cluster::start(1).await;
    let roles: Api<ClusterRole> = Api::all(cluster.client.clone());
    let role = manifests::cluster_role();
    let all = role.rules.clone().unwrap();
    let evicts = |resources: &Vec<String>| resources.iter().any(|resource| resource == "pods/eviction");
    let fewer: Vec<_> =
        all.iter().filter(|rule| !rule.resources.as_ref().is_some_and(evicts)).cloned().collect();
    assert_eq!(fewer.len() + 1, all.len());
    let grant = async |rules: &Vec<_>| {
        let patch = Patch::Merge(json!({"rules": rules}));
        roles.patch(&role.name_any(), &PatchParams::default(), &patch).await.unwrap();
    };
    grant(&fewer).await;
    let workload = Workload::new(&cluster, "right").await;
    let node = &cluster.nodes().await[0];
    workload.pod_on(node, "cart", json!({})).await;
    let _reconciler = Reconciler::start(&cluster);
    start(&cluster, "e2e-right", node).await;
    let pod = until_blocked(&cluster, "e2e-right", BlockReason::Forbidden).await;
    for part in
        ["pods \"cart\" is forbidden", "cannot create resource \"pods/eviction\"", workload.namespace()]
    {
        assert!(pod.message.contains(part), "{part} in {}", pod.message);
    }
    let access = pod.facts.forbidden.as_ref().unwrap();
    assert_eq!((access.verb.as_str(), access.resource.as_str()), ("create", "pods/eviction"));
    let status = until_status(&cluster, "e2e-right", "degraded", |status| {
        is_true(&status.conditions, ConditionType::Degraded)
    })
    .await;
    let degraded = find(&status.conditions, ConditionType::Degraded).unwrap();
    assert_eq!(degraded.reason, "MissingAccess");
    grant(&all).await;
    until_drained_without_errors(&cluster, "e2e-right").await;
}

// Defect deckhouse/deckhouse#23007: A webhook is unreachable for a second. The pod is never tried again, and the
// node is rebooted with it.
#[tokio::test(flavor = "multi_thread")]
async fn an_unreachable_webhook_is_reported_and_the_pod_is_evicted_once_it_is_removed() {
    let cluster = Cluster::start(1).await;
    let workload = Workload::new(&cluster, "unserved").await;
    let node = &cluster.nodes().await[0];
    workload.pod_on(node, "cart", json!({})).await;
    let webhooks: Api<ValidatingWebhookConfiguration> = Api::all(cluster.client.clone());
    let webhook = parse(json!({"metadata": {"name": workload.namespace()}, "webhooks": [{
        "name": "guard.example.com", "admissionReviewVersions": ["v1"], "sideEffects": "None", "timeoutSeconds": 5,
        "clientConfig": {"url": "https://127.0.0.1:1/guard"},
        "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": workload.namespace()}},
        "rules": [{"operations": ["CREATE"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods/eviction"]}],
    }]}));
    webhooks.create(&PostParams::default(), &webhook).await.unwrap();
    let _reconciler = Reconciler::start(&cluster);
    start(&cluster, "e2e-unserved", node).await;
    let pod = until_blocked(&cluster, "e2e-unserved", BlockReason::ServerError).await;
    let prefix = "the eviction failed and is retried: Internal error occurred: failed calling webhook \"guard.example.com\"";
    assert!(pod.message.starts_with(prefix), "{}", pod.message);
    webhooks.delete(workload.namespace(), &DeleteParams::default()).await.unwrap();
    until_drained_without_errors(&cluster, "e2e-unserved").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn finalizers_that_block_a_pod_are_reported_and_never_removed() {
    let cluster = Cluster::start(1).await;
    let workload = Workload::new(&cluster, "held").await;
    let node = &cluster.nodes().await[0];
    let two = json!({"metadata": {"finalizers": ["example.com/backup", "kubectl-nm.dev/e2e-hold"]}});
    workload.pod_on(node, "cart", two).await;
    let _reconciler = Reconciler::start(&cluster);
    start(&cluster, "e2e-held", node).await;
    let pod = until_blocked(&cluster, "e2e-held", BlockReason::Finalizers).await;
    let finalizers = "example.com/backup, kubectl-nm.dev/e2e-hold";
    assert_eq!(
        pod.message,
        format!("terminated, but finalizers keep the object until their owners remove them: {finalizers}")
    );
    assert_eq!(workload.pods().get("cart").await.unwrap().finalizers().len(), 2);
    workload.remove_finalizers("cart").await;
    until_drained_without_errors(&cluster, "e2e-held").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn blocked_pods_are_sorted_and_the_last_error_names_the_first_three() {
    let cluster = Cluster::start(1).await;
    let workload = Workload::new(&cluster, "sorted").await;
    let node = &cluster.nodes().await[0];
    let names = ["a", "b", "c", "d", "e"];
    for name in ["d", "b", "e", "a", "c"] {
        workload.pod_on(node, name, with_finalizer()).await;
    }
    let _reconciler = Reconciler::start(&cluster);
    start(&cluster, "e2e-sorted", node).await;
    let status =
        until_status(&cluster, "e2e-sorted", "all blocked", |status| status.blocked_pods.len() == 5).await;
    let of = |pods: &mut dyn Iterator<Item = (&String, &String)>| -> Vec<String> {
        pods.filter(|(namespace, _)| *namespace == workload.namespace())
            .map(|(_, name)| name.clone())
            .collect()
    };
    assert_eq!(of(&mut status.blocked_pods.iter().map(|pod| (&pod.namespace, &pod.name))), names);
    assert_eq!(of(&mut status.pending_pods_refs.iter().map(|pod| (&pod.namespace, &pod.name))), names);
    let is_named =
        |name: &str| status.last_error.contains(&format!("{}/{name} (Finalizers)", workload.namespace()));
    assert_eq!(names.map(is_named), [true, true, true, false, false], "{}", status.last_error);
    assert!(status.last_error.ends_with(", and 2 more"), "{}", status.last_error);
    for name in names {
        workload.remove_finalizers(name).await;
    }
    until_drained_without_errors(&cluster, "e2e-sorted").await;
    stop(&cluster, "e2e-sorted").await;
}
