//! `kubectl nm doctor`: what it finds in a cluster.

use k8s_openapi::api::core::v1::Node;
use kube::Api;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use nm_shared::api::names::{DRAIN_TAINT, FINALIZER, UNDO_ANNOTATION};
use nm_shared::{Group, NodeMaintenance, NodeMaintenanceSpec, Phase};
use nm_tests::cluster::Cluster;
use nm_tests::nodes::configuration;
use nm_tests::older_groups;
use nm_tests::older_groups::{start_in_group, until_phase_in_group};
use nm_tests::programs::{Outcome, plugin, plugin_of};
use nm_tests::rbac::service_account;
use nm_tests::reconciler::Reconciler;
use nm_tests::webhook::serve_installed_webhook;
use nm_tests::workload::Workload;
use serde_json::{Value, json};

/// The result and the message of a check.
fn finding(outcome: &Outcome, check: &str) -> (String, String) {
    let report: Value = serde_json::from_str(&outcome.stdout).unwrap();
    let findings = report["findings"].as_array().unwrap();
    let about: Vec<&Value> = findings.iter().filter(|finding| finding["check"] == check).collect();
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    (text(&about[0]["result"]), text(&about[0]["message"]))
}

/// The doctor's output for a healthy installation, with placeholders for what differs between runs.
const HEALTHY: &str = "\
ok    cluster       Kubernetes SERVER
ok    definition    the CRD of NodeMaintenance matches this version
ok    reconciler    2 replicas run in namespace node-maintenance
ok    leader        REPLICA is the leader and renewed its lease AGE ago
ok    webhook       it works; its certificate is valid until DATE
ok    policy        nm-reconciler can change only the fields that it writes
ok    grants        nm-reconciler has the permissions for the features in use
ok    versions      plugin OWN, reconciler OWN
ok    nodes         none is cordoned by a deleted maintenance
ok    maintenances  0 in total, none of which is blocked while stopping
";

#[tokio::test(flavor = "multi_thread")]
async fn a_healthy_installation_is_reported_as_healthy_and_each_failure_is_named() {
    let cluster = Cluster::bare_sandbox(2, 0, |sandbox| sandbox).await;
    let nothing = plugin(&cluster, &["doctor"]).await;
    assert_eq!(nothing.code, Some(1), "{nothing:?}");
    for line in [
        "fail  definition    the CRD of NodeMaintenance does not exist\n                    \
         run `kubectl nm install` to fix it\n",
        "fail  reconciler    nm-reconciler is not installed\n",
        "?     leader        cannot be checked: there is no lease",
    ] {
        assert!(nothing.stdout.contains(line), "{line} in {}", nothing.stdout);
    }

    let _ = plugin(&cluster, &["install", "--wait=false"]).await.ok();
    let reconciler = serve_installed_webhook(&cluster, &["--leader-elect"]).await;
    let _ = plugin(&cluster, &["install", "--timeout", "60s"]).await.ok();
    // A drained node proves that it leads.
    let node = cluster.nodes().await[0].clone();
    let _ = plugin(&cluster, &["start", &node, "--wait"]).await.ok();
    let _ = plugin(&cluster, &["stop", &node, "--wait"]).await.ok();
    let whole = plugin(&cluster, &["doctor"]).await;
    // Checks that take over a second report progress.
    let silent = whole.stderr.lines().all(|line| line.ends_with(" ..."));
    assert!(whole.code == Some(0) && silent, "{whole:?}");
    let until = "its certificate is valid until ";
    let leads = " is the leader and renewed its lease ";
    let timeless = |line: &str| match (line.split_once(until), line.split_once(leads)) {
        (Some((finding, _)), _) => format!("{finding}{until}DATE\n"),
        (_, Some(_)) => format!("ok    leader        REPLICA{leads}AGE ago\n"),
        _ => format!("{line}\n"),
    };
    let server = cluster.client.apiserver_version().await.unwrap().git_version;
    let expected = HEALTHY.replace("SERVER", &server).replace("OWN", env!("CARGO_PKG_VERSION"));
    assert_eq!(whole.stdout.lines().map(timeless).collect::<String>(), expected);
    let json = plugin(&cluster, &["doctor", "-o", "json"]).await.ok();
    assert_eq!(serde_json::from_str::<Value>(&json.stdout).unwrap()["healthy"], true);
    // The commands above have probed the webhook, which is not a refusal of anybody's maintenance.
    let nowhere = NodeMaintenanceSpec { node_name: "no-such-node".into(), ..NodeMaintenanceSpec::default() };
    let nowhere = NodeMaintenance::new("e2e-refused", nowhere);
    assert!(cluster.maintenances().create(&PostParams::default(), &nowhere).await.is_err());
    let logged =
        reconciler.until_logged("a refusal", |line| line.contains("refused a NodeMaintenance")).await;
    assert!(logged.contains("no-such-node"), "{logged}");

    let nodes: Api<Node> = Api::all(cluster.client.clone());
    let mark = Patch::Merge(json!({"metadata": {"annotations": {UNDO_ANNOTATION: "{}"}},
        "spec": {"taints": [{"key": DRAIN_TAINT, "effect": "NoSchedule"}]}}));
    nodes.patch(&node, &PatchParams::default(), &mark).await.unwrap();
    reconciler.crash().await;
    let broken = plugin(&cluster, &["doctor", "-o", "json"]).await;
    assert_eq!(broken.code, Some(1), "{broken:?}");
    let (result, message) = finding(&broken, "webhook");
    assert!(result == "fail" && message.contains("\"validate.nodemaintenance.medik8s.io\""), "{message}");
    let orphan = format!("1 cordoned by a deleted maintenance: {node}");
    assert_eq!(finding(&broken, "nodes"), ("warn".into(), orphan));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_finalizer_without_a_reconciler_is_a_failure() {
    let cluster = Cluster::of_sandbox(1, 0, |sandbox| sandbox).await;
    let stuck: NodeMaintenance = serde_json::from_value(
        json!({"metadata": {"name": "held", "finalizers": [FINALIZER]}, "spec": {"nodeName": "n"}}),
    )
    .unwrap();
    cluster.maintenances().create(&PostParams::default(), &stuck).await.unwrap();
    cluster.maintenances().delete("held", &DeleteParams::default()).await.unwrap();
    let found = plugin(&cluster, &["doctor", "-o", "json"]).await;
    assert_eq!(found.code, Some(1));
    let message = "1 waits to be stopped, and there is no leader: held";
    assert_eq!(finding(&found, "maintenances"), ("fail".into(), message.into()));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_maintenance_of_an_older_group_is_no_orphan_and_the_advice_for_its_orphans_works() {
    let cluster = Cluster::of_sandbox(1, 0, |sandbox| sandbox).await;
    let (group, node) = (Group::Kubevirt, cluster.nodes().await[0].clone());
    let before = configuration(&cluster.node(&node).await);
    older_groups::install(&cluster.client, group).await;
    let reconciler = Reconciler::start(&cluster);
    start_in_group(&cluster.client, group, "older", &node).await;
    until_phase_in_group(&cluster.client, group, "older", Phase::Succeeded).await;
    let found = plugin(&cluster, &["doctor", "-o", "json"]).await;
    assert_eq!(finding(&found, "nodes"), ("ok".into(), "none is cordoned by a deleted maintenance".into()));
    let maintenances = finding(&found, "maintenances").1;
    assert!(
        maintenances.starts_with("1 in total, none of which is blocked while stopping"),
        "{maintenances}"
    );

    reconciler.crash().await;
    let api = older_groups::maintenances(&cluster.client, group);
    let free = Patch::Merge(json!({"metadata": {"finalizers": null}}));
    api.patch("older", &PatchParams::default(), &free).await.unwrap();
    api.delete("older", &DeleteParams::default()).await.unwrap();
    let found = plugin(&cluster, &["doctor", "-o", "json"]).await;
    let orphan = format!("1 cordoned by a deleted maintenance: {node}");
    assert_eq!(finding(&found, "nodes"), ("warn".into(), orphan));
    // The doctor's advice.
    let _reconciler = Reconciler::start(&cluster);
    let _ = plugin(&cluster, &["start", &node, "--wait"]).await.ok();
    let _ = plugin(&cluster, &["stop", &node, "--wait"]).await.ok();
    assert_eq!(configuration(&cluster.node(&node).await), before);
}

#[tokio::test(flavor = "multi_thread")]
async fn without_permissions_checks_are_unknown() {
    let cluster = Cluster::of_sandbox(1, 0, |sandbox| sandbox).await;
    let workload = Workload::new(&cluster, "nobody").await;
    let nobody = cluster.kubeconfig_of(&service_account("default", workload.namespace())).await;
    let found = plugin_of(&nobody, &["doctor", "-o", "json"]).await;
    assert_eq!(found.code, Some(1), "{found:?}");
    assert_eq!(serde_json::from_str::<Value>(&found.stdout).unwrap()["healthy"], false);
    for check in ["definition", "reconciler", "leader", "webhook", "nodes", "maintenances", "versions"] {
        let (result, message) = finding(&found, check);
        assert!(result == "unknown" && message.starts_with("cannot be checked: "), "{check}: {message}");
    }
}
