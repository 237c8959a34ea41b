//! Optional features need permissions that are not installed by default, and report them where they are missing.

use k8s_openapi::api::core::v1::Node;
use kube::Api;
use nm_shared::api::condition::{ConditionType, find, is_true};
use nm_shared::{BlockReason, NodeMaintenanceStatus, Phase};
use nm_tests::cluster::Cluster;
use nm_tests::maintenance::{patch_drain, start, stop, until_drained, until_status};
use nm_tests::manifests;
use nm_tests::programs::plugin;
use nm_tests::reconciler::Reconciler;
use nm_tests::wait::wait_until;
use nm_tests::workload::Workload;
use serde_json::json;

#[test]
fn the_default_role_lacks_the_permissions_of_optional_features() {
    let rules = manifests::cluster_role().rules.unwrap();
    let has = |verb: &str, resource: &str| {
        rules.iter().any(|rule| {
            rule.verbs.iter().any(|one| one == verb)
                && rule.resources.iter().flatten().any(|one| one == resource)
        })
    };
    assert!(has("patch", "nodes") && has("create", "pods/eviction"));
    assert!(!has("patch", "nodes/status"), "only --node-conditions needs it");
    assert!(!has("delete", "pods"), "only spec.drain.deleteAfterSeconds needs it");
    assert!(!has("patch", "deployments") && !has("get", "replicasets"), "only spec.drain.surge needs it");
}

#[tokio::test(flavor = "multi_thread")]
async fn missing_access_to_delete_pods_is_reported_and_the_pod_is_evicted_when_its_budget_allows_it() {
    let cluster = Cluster::start(2).await;
    let node = &cluster.nodes().await[0];
    let workload = Workload::new(&cluster, "undeletable").await;
    workload.pod_on(node, "guarded", json!({})).await;
    workload.budget("guarded", 1).await;
    let _reconciler = Reconciler::start(&cluster);
    start(&cluster, "e2e-undeletable", node).await;
    patch_drain(&cluster, "e2e-undeletable", json!({"deleteAfterSeconds": 1})).await;
    let forbidden = |status: &NodeMaintenanceStatus| {
        status.blocked_pods.iter().any(|blocked| blocked.reason == BlockReason::Forbidden)
    };
    let status =
        until_status(&cluster, "e2e-undeletable", "the missing permission is reported", forbidden).await;
    let degraded = find(&status.conditions, ConditionType::Degraded).unwrap();
    assert_eq!((degraded.status.as_str(), degraded.reason.as_str()), ("True", "MissingAccess"));
    let message = &status.blocked_pods[0].message;
    for part in ["cannot delete resource \"pods\"", "components/pod_deletion", "--grant pod-deletion"] {
        assert!(message.contains(part), "{part} in {message}");
    }
    let explained = plugin(&cluster, &["explain", node]).await;
    assert!(explained.stdout.contains("kubectl nm install --grant pod-deletion"), "{explained:?}");
    let denied = "is to be deleted (--delete-after), but nm-reconciler had no permission to delete pods when it last tried";
    assert!(explained.stdout.contains(denied), "{explained:?}");
    assert!(explained.stdout.contains("The budget can never allow an eviction"), "{explained:?}");
    assert!(!explained.stdout.contains("regardless of disruption budgets"), "{explained:?}");
    workload.delete_budget("guarded").await;
    until_drained(&cluster, "e2e-undeletable").await;
    stop(&cluster, "e2e-undeletable").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn missing_access_to_node_conditions_degrades_the_maintenance_until_it_is_granted() {
    let cluster = Cluster::start(1).await;
    let node = &cluster.nodes().await[0];
    let _reconciler = Reconciler::start_with(&cluster, &["--node-conditions"]);
    start(&cluster, "e2e-unpublished", node).await;
    let degraded = |status: &NodeMaintenanceStatus| is_true(&status.conditions, ConditionType::Degraded);
    let status = until_status(&cluster, "e2e-unpublished", "degraded", degraded).await;
    let condition = find(&status.conditions, ConditionType::Degraded).unwrap();
    assert_eq!(condition.reason, "MissingAccess");
    let parts =
        ["cannot patch resource \"nodes/status\"", "components/node_conditions", "--grant node-conditions"];
    for part in parts {
        assert!(condition.message.contains(part), "{part} in {}", condition.message);
    }
    let status = until_drained(&cluster, "e2e-unpublished").await.status.unwrap();
    assert_eq!(
        (status.phase, status.last_error.as_str()),
        (Some(Phase::Succeeded), ""),
        "the drain does not wait for it"
    );

    cluster.grant("node_conditions").await;
    until_status(&cluster, "e2e-unpublished", "not degraded", |status| !degraded(status)).await;
    let nodes: Api<Node> = Api::all(cluster.client.clone());
    wait_until(&nodes, node, "published", |node| {
        let conditions =
            node.and_then(|node| node.status.as_ref()?.conditions.as_deref()).unwrap_or_default();
        conditions.iter().any(|condition| condition.type_ == "MaintenanceInProgress")
    })
    .await;
    stop(&cluster, "e2e-unpublished").await;
}
