//! Rolls whose objects cannot be read or written.

use nm_tests::cluster::Cluster;
use nm_tests::programs::{plugin, plugin_of};
use nm_tests::rbac::{bind_cluster_role, service_account};
use nm_tests::reconciler::Reconciler;
use nm_tests::workload::Workload;
use serde_json::json;

use super::running_roll::RunningRoll;

#[tokio::test(flavor = "multi_thread")]
async fn a_program_that_cannot_resume_a_roll_gives_it_up_at_once() {
    let cluster = Cluster::start(2).await;
    let nodes = cluster.nodes().await;
    let _reconciler = Reconciler::start(&cluster);
    let mut roll = RunningRoll::begin(&cluster, "given-up", &nodes[..1], &["--run", "false"]);
    assert_eq!(roll.end().await, Some(3), "{:#?}", roll.lines);
    // An account that may change maintenances, and delete none.
    let workload = Workload::new(&cluster, "undeletable").await;
    let account = service_account("default", workload.namespace());
    let rules = [
        json!({"apiGroups": [""], "resources": ["nodes", "pods"], "verbs": ["get", "list", "watch"]}),
        json!({"apiGroups": ["nodemaintenance.medik8s.io"], "resources": ["nodemaintenances"],
            "verbs": ["get", "list", "watch", "patch"]}),
    ];
    bind_cluster_role(&cluster, &format!("{}-patches", workload.namespace()), workload.namespace(), &rules)
        .await;
    let kubeconfig = cluster.kubeconfig_of(&account).await;
    let args = ["roll", "resume", "given-up", "--run", "false", "--skip", &nodes[0]];
    let refused = plugin_of(&kubeconfig, &args).await;
    assert_eq!(refused.code, Some(1), "{refused:?}");
    assert!(refused.stderr.contains("you need permission to delete nodemaintenances"), "{refused:?}");
    let status = plugin(&cluster, &["roll", "status", "given-up"]).await.ok();
    assert!(status.stdout.starts_with("roll given-up: 0 done, 1 left, nobody runs it\n"), "{status:?}");
    let _ = plugin(&cluster, &["roll", "abort", "given-up", "--return", "--yes"]).await.ok();
}
