//! Features that are off by default need permissions that are not installed by default, and say so.

use k8s_openapi::api::core::v1::Node;
use kube::Api;
use nm_shared::api::condition::{ConditionType, find, is_true};
use nm_shared::{BlockReason, NodeMaintenanceStatus, Phase};
use nm_tests::cluster::Cluster;
use nm_tests::manifests;
use nm_tests::programs::plugin;
use nm_tests::reconciler::Reconciler;
use nm_tests::until::until;
use nm_tests::workload::Workload;
use serde_json::json;

use crate::{change, drained, once, start, stop};

#[test]
fn the_default_role_lacks_what_only_optional_features_use() {
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
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pod_that_may_not_be_deleted_says_which_permission_is_missing_and_goes_when_its_budget_lets_it() {
    let cluster = Cluster::start(2).await;
    let node = &cluster.nodes().await[0];
    let workload = Workload::new(&cluster, "undeletable").await;
    workload.pod_on(node, "guarded", json!({})).await;
    workload.budget("guarded", 1).await;
    let _reconciler = Reconciler::start(&cluster);
    start(&cluster, "e2e-undeletable", node).await;
    change(&cluster, "e2e-undeletable", json!({"deleteAfterSeconds": 1})).await;
    let forbidden = |status: &NodeMaintenanceStatus| {
        status.blocked_pods.iter().any(|blocked| blocked.reason == BlockReason::Forbidden)
    };
    let status = once(&cluster, "e2e-undeletable", "what is missing", forbidden).await;
    let degraded = find(&status.conditions, ConditionType::Degraded).unwrap();
    assert_eq!((degraded.status.as_str(), degraded.reason.as_str()), ("True", "MissingRights"));
    let message = &status.blocked_pods[0].message;
    for part in ["cannot delete resource \"pods\"", "components/pod_deletion", "--grant pod-deletion"] {
        assert!(message.contains(part), "{part} in {message}");
    }
    let explained = plugin(&cluster, &["explain", node]).await;
    assert!(explained.stdout.contains("kubectl nm install --grant pod-deletion"), "{explained:?}");
    workload.free("guarded").await;
    drained(&cluster, "e2e-undeletable").await;
    stop(&cluster, "e2e-undeletable").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn conditions_of_nodes_that_may_not_be_written_degrade_the_maintenance_until_they_may() {
    let cluster = Cluster::start(1).await;
    let node = &cluster.nodes().await[0];
    let _reconciler = Reconciler::start_with(&cluster, &["--node-conditions"]);
    start(&cluster, "e2e-unpublished", node).await;
    let degraded = |status: &NodeMaintenanceStatus| is_true(&status.conditions, ConditionType::Degraded);
    let status = once(&cluster, "e2e-unpublished", "degraded", degraded).await;
    let condition = find(&status.conditions, ConditionType::Degraded).unwrap();
    assert_eq!(condition.reason, "MissingRights");
    let parts =
        ["cannot patch resource \"nodes/status\"", "components/node_conditions", "--grant node-conditions"];
    for part in parts {
        assert!(condition.message.contains(part), "{part} in {}", condition.message);
    }
    let status = drained(&cluster, "e2e-unpublished").await.status.unwrap();
    assert_eq!(
        (status.phase, status.last_error.as_str()),
        (Some(Phase::Succeeded), ""),
        "it waits for nothing"
    );

    cluster.grant("node_conditions").await;
    once(&cluster, "e2e-unpublished", "as expected", |status| !degraded(status)).await;
    let nodes: Api<Node> = Api::all(cluster.client.clone());
    until(&nodes, node, "published", |node| {
        let conditions =
            node.and_then(|node| node.status.as_ref()?.conditions.as_deref()).unwrap_or_default();
        conditions.iter().any(|condition| condition.type_ == "MaintenanceInProgress")
    })
    .await;
    stop(&cluster, "e2e-unpublished").await;
}
