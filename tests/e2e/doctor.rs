//! `kubectl nm doctor` and `gather`: what is found in a cluster, and what of it leaves.

use std::collections::BTreeMap;
use std::io::Read;
use std::path::Path;

use flate2::read::GzDecoder;
use k8s_openapi::api::core::v1::{Node, ServiceAccount};
use kube::Api;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use kube_sandbox::controllers::kubelet::annotations::LOG;
use nm_shared::api::names::{DRAIN_TAINT, FINALIZER, UNDO_ANNOTATION, WEBHOOK};
use nm_shared::{Group, NodeMaintenance, Phase};
use nm_tests::cluster::Cluster;
use nm_tests::older_groups;
use nm_tests::programs::{Outcome, plugin, plugin_of};
use nm_tests::reconciler::Reconciler;
use nm_tests::webhook;
use nm_tests::workload::Workload;
use serde_json::{Value, json};

use crate::configuration;
use crate::older_groups::{in_phase, start_of};

/// What the doctor says of a check: result and message.
fn said(outcome: &Outcome, check: &str) -> (String, String) {
    let report: Value = serde_json::from_str(&outcome.stdout).unwrap();
    let findings = report["findings"].as_array().unwrap();
    let about: Vec<&Value> = findings.iter().filter(|finding| finding["check"] == check).collect();
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    (text(&about[0]["result"]), text(&about[0]["message"]))
}

/// What the doctor says of an installation in which nothing is amiss, with placeholders for what differs between runs.
const WHOLE: &str = "\
ok    cluster       Kubernetes SERVER
ok    definition    NodeMaintenance is defined as by this version
ok    reconciler    2 replicas run in namespace node-maintenance
ok    leader        REPLICA leads and renewed its lease AGE ago
ok    webhook       it answers; its certificate is good until DATE
ok    policy        nm-reconciler may change only the certificate and the path of its webhook
ok    grants        nm-reconciler has the permissions of the features in use
ok    versions      plugin OWN, reconciler OWN
ok    permissions   you have every permission that the commands need
ok    nodes         none is cordoned by a maintenance that is gone
ok    maintenances  0 there, none of which is stuck ending
";

fn default_account(workload: &Workload) -> ServiceAccount {
    let metadata = json!({"name": "default", "namespace": workload.namespace()});
    serde_json::from_value(json!({"metadata": metadata})).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_whole_installation_is_found_to_be_so_and_what_breaks_is_named() {
    let cluster = Cluster::bare_sandbox(2, 0, |sandbox| sandbox).await;
    let nothing = plugin(&cluster, &["doctor"]).await;
    assert_eq!(nothing.code, Some(1), "{nothing:?}");
    for line in [
        "fail  definition    NodeMaintenance is not defined\n                    `kubectl nm install` mends that\n",
        "fail  reconciler    nm-reconciler is not installed\n",
        "?     leader        nobody can tell: there is no lease",
        "ok    permissions   you have every permission that the commands need\n",
    ] {
        assert!(nothing.stdout.contains(line), "{line} in {}", nothing.stdout);
    }

    let _ = plugin(&cluster, &["install", "--wait=false"]).await.ok();
    cluster.admit_reconciler().await;
    let reconciler = webhook::start(&cluster, &["--leader-elect"]);
    let address = webhook::address(&reconciler).await;
    cluster.sandbox().unwrap().cluster().admission.services.serve(&webhook::namespace(), WEBHOOK, address);
    let _ = plugin(&cluster, &["install", "--timeout", "60s"]).await.ok();
    // It leads once it has said so; a maintenance that it drains is the proof.
    let node = cluster.nodes().await[0].clone();
    let _ = plugin(&cluster, &["start", &node, "--wait"]).await.ok();
    let _ = plugin(&cluster, &["stop", &node, "--wait"]).await.ok();
    let whole = plugin(&cluster, &["doctor"]).await;
    // But for the sign of life of what takes over a second.
    let silent = whole.stderr.lines().all(|line| line.ends_with(" ..."));
    assert!(whole.code == Some(0) && silent, "{whole:?}");
    let until = "its certificate is good until ";
    let leads = " leads and renewed its lease ";
    let timeless = |line: &str| match (line.split_once(until), line.split_once(leads)) {
        (Some((said, _)), _) => format!("{said}{until}DATE\n"),
        (_, Some(_)) => format!("ok    leader        REPLICA{leads}AGE ago\n"),
        _ => format!("{line}\n"),
    };
    let server = cluster.client.apiserver_version().await.unwrap().git_version;
    let expected = WHOLE.replace("SERVER", &server).replace("OWN", env!("CARGO_PKG_VERSION"));
    assert_eq!(whole.stdout.lines().map(timeless).collect::<String>(), expected);
    let json = plugin(&cluster, &["doctor", "-o", "json"]).await.ok();
    assert_eq!(serde_json::from_str::<Value>(&json.stdout).unwrap()["healthy"], true);

    let nodes: Api<Node> = Api::all(cluster.client.clone());
    let mark = Patch::Merge(json!({"metadata": {"annotations": {UNDO_ANNOTATION: "{}"}},
        "spec": {"taints": [{"key": DRAIN_TAINT, "effect": "NoSchedule"}]}}));
    nodes.patch(&node, &PatchParams::default(), &mark).await.unwrap();
    reconciler.crash().await;
    let broken = plugin(&cluster, &["doctor", "-o", "json"]).await;
    assert_eq!(broken.code, Some(1), "{broken:?}");
    let (result, message) = said(&broken, "webhook");
    assert!(result == "fail" && message.contains("\"validate.nodemaintenance.medik8s.io\""), "{message}");
    let leftover = format!("1 cordoned by a maintenance that is gone: {node}");
    assert_eq!(said(&broken, "nodes"), ("warn".into(), leftover));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_maintenance_whose_finalizer_nobody_serves_fails() {
    let cluster = Cluster::of_sandbox(1, 0, |sandbox| sandbox).await;
    let held: NodeMaintenance = serde_json::from_value(
        json!({"metadata": {"name": "held", "finalizers": [FINALIZER]}, "spec": {"nodeName": "n"}}),
    )
    .unwrap();
    cluster.maintenances().create(&PostParams::default(), &held).await.unwrap();
    cluster.maintenances().delete("held", &DeleteParams::default()).await.unwrap();
    let found = plugin(&cluster, &["doctor", "-o", "json"]).await;
    assert_eq!(found.code, Some(1));
    let message = "1 wait to be ended, and nobody leads: held";
    assert_eq!(said(&found, "maintenances"), ("fail".into(), message.into()));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_maintenance_of_an_older_group_is_no_leftover_and_what_it_leaves_has_a_way_back() {
    let cluster = Cluster::of_sandbox(1, 0, |sandbox| sandbox).await;
    let (group, node) = (Group::Kubevirt, cluster.nodes().await[0].clone());
    let before = configuration(&cluster.node(&node).await);
    older_groups::install(&cluster.client, group).await;
    let reconciler = Reconciler::start(&cluster);
    start_of(&cluster, group, "older", &node).await;
    in_phase(&cluster, group, "older", Phase::Succeeded).await;
    let found = plugin(&cluster, &["doctor", "-o", "json"]).await;
    assert_eq!(said(&found, "nodes"), ("ok".into(), "none is cordoned by a maintenance that is gone".into()));
    assert_eq!(said(&found, "maintenances").1, "1 there, none of which is stuck ending");

    reconciler.crash().await;
    let api = older_groups::maintenances(&cluster.client, group);
    let free = Patch::Merge(json!({"metadata": {"finalizers": null}}));
    api.patch("older", &PatchParams::default(), &free).await.unwrap();
    api.delete("older", &DeleteParams::default()).await.unwrap();
    let found = plugin(&cluster, &["doctor", "-o", "json"]).await;
    let leftover = format!("1 cordoned by a maintenance that is gone: {node}");
    assert_eq!(said(&found, "nodes"), ("warn".into(), leftover));
    // As it is advised.
    let _reconciler = Reconciler::start(&cluster);
    let _ = plugin(&cluster, &["start", &node, "--wait"]).await.ok();
    let _ = plugin(&cluster, &["stop", &node, "--wait"]).await.ok();
    assert_eq!(configuration(&cluster.node(&node).await), before);
}

#[tokio::test(flavor = "multi_thread")]
async fn without_permissions_what_cannot_be_checked_is_not_healthy_and_the_missing_ones_are_named() {
    let cluster = Cluster::of_sandbox(1, 0, |sandbox| sandbox).await;
    let workload = Workload::new(&cluster, "nobody").await;
    let nobody = cluster.kubeconfig_of(&default_account(&workload)).await;
    let found = plugin_of(&nobody, &["doctor", "-o", "json"]).await;
    assert_eq!(found.code, Some(1), "{found:?}");
    assert_eq!(serde_json::from_str::<Value>(&found.stdout).unwrap()["healthy"], false);
    for check in ["definition", "reconciler", "leader", "webhook", "nodes", "maintenances", "versions"] {
        let (result, message) = said(&found, check);
        assert!(result == "unknown" && message.starts_with("nobody can tell: "), "{check}: {message}");
    }
    let lacking =
        "you may not run start; missing permissions: create/list nodemaintenances.nodemaintenance.medik8s.io";
    assert_eq!(said(&found, "permissions"), ("warn".into(), lacking.into()));
}

/// The files of an archive by their names below its folder.
pub(crate) fn unpacked(path: &Path) -> BTreeMap<String, String> {
    let mut archive = tar::Archive::new(GzDecoder::new(std::fs::File::open(path).unwrap()));
    let file = |entry: std::io::Result<tar::Entry<_>>| {
        let mut entry = entry.unwrap();
        let name = entry.path().unwrap().to_str().unwrap().split_once('/').unwrap().1.to_owned();
        let mut text = String::new();
        entry.read_to_string(&mut text).unwrap();
        (name, text)
    };
    archive.entries().unwrap().map(file).collect()
}

/// All that a report has where everything may be read, one of the older groups is served and one reconciler runs that was
/// never started again.
const GATHERED: [&str; 15] = [
    "MANIFEST.txt",
    "customresourcedefinitions.json",
    "deployments.json",
    "events.json",
    "leases-medik8s-leases.json",
    "leases-node-maintenance.json",
    "logs/nm-reconciler-0/reconciler.log",
    "nodemaintenances.json",
    "nodemaintenances.kubevirt.io.json",
    "nodes.json",
    "poddisruptionbudgets.json",
    "pods.json",
    "reconciler-pods.json",
    "validatingwebhookconfigurations.json",
    "versions.json",
];

#[tokio::test(flavor = "multi_thread")]
async fn a_report_has_what_is_needed_and_no_secret() {
    let cluster = Cluster::of_sandbox(2, 0, |sandbox| sandbox).await;
    let workload = Workload::new(&cluster, "shop").await;
    let node = cluster.nodes().await[0].clone();
    let pods: Api<k8s_openapi::api::core::v1::Pod> =
        Api::namespaced(cluster.client.clone(), workload.namespace());
    let pod = serde_json::from_value(json!({
        "metadata": {"name": "cart", "annotations": {"vault.example.com/token": "hunter2"}},
        "spec": {"nodeName": node, "containers": [{"name": "main", "image": "cart:1", "args": ["--password=hunter2"],
            "env": [{"name": "PASSWORD", "value": "hunter2"}]}]}}))
    .unwrap();
    pods.create(&PostParams::default(), &pod).await.unwrap();
    let ours: Api<k8s_openapi::api::core::v1::Pod> =
        Api::namespaced(cluster.client.clone(), &webhook::namespace());
    let reconciler = serde_json::from_value(json!({
        "metadata": {"name": "nm-reconciler-0", "annotations": {LOG: "it leads\nit does not\n"}, "labels": {
            "app.kubernetes.io/name": "kubectl-nm", "app.kubernetes.io/component": "reconciler"}},
        "spec": {"containers": [{"name": "reconciler", "image": "nm:1"}, {"name": "proxy", "image": "proxy:1"}]}}))
    .unwrap();
    ours.create(&PostParams::default(), &reconciler).await.unwrap();
    let event = serde_json::from_value(json!({
        "metadata": {"name": "cart.1"}, "reason": "FailedPreStopHook", "message": "it does not end",
        "involvedObject": {"apiVersion": "v1", "kind": "Pod", "namespace": workload.namespace(), "name": "cart"}}))
    .unwrap();
    let events: Api<k8s_openapi::api::core::v1::Event> =
        Api::namespaced(cluster.client.clone(), workload.namespace());
    events.create(&PostParams::default(), &event).await.unwrap();
    let secrets: Api<k8s_openapi::api::core::v1::Secret> =
        Api::namespaced(cluster.client.clone(), workload.namespace());
    let secret =
        serde_json::from_value(json!({"metadata": {"name": "db"}, "stringData": {"password": "hunter2"}}));
    secrets.create(&PostParams::default(), &secret.unwrap()).await.unwrap();
    let _ = plugin(&cluster, &["start", &node, "--reason", "disk"]).await.ok();
    let (group, other) = (Group::Kubevirt, cluster.nodes().await[1].clone());
    older_groups::install(&cluster.client, group).await;
    start_of(&cluster, group, "older", &other).await;
    let on_other = json!({"metadata": {"name": "till"}, "spec": {"nodeName": other, "containers": [{"name": "main",
        "image": "till:1"}]}});
    pods.create(&PostParams::default(), &serde_json::from_value(on_other).unwrap()).await.unwrap();

    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("report.tar.gz");
    let gathered = plugin(&cluster, &["gather", "-o", path.to_str().unwrap()]).await.ok();
    assert_eq!(gathered.stdout, format!("{}\n", path.display()));
    let files = unpacked(&path);
    assert_eq!(files.keys().collect::<Vec<_>>(), GATHERED);
    for (name, text) in &files {
        assert!(!text.contains("hunter2") && !text.contains("aHVudGVyMg"), "{name}: {text}");
        assert!(!text.contains("managedFields"), "{name}");
    }
    let list = |name: &str| -> Vec<Value> {
        serde_json::from_str::<Value>(&files[name]).unwrap()["items"].as_array().unwrap().clone()
    };
    assert_eq!(list("nodemaintenances.json")[0]["spec"]["reason"], "disk");
    let older = &list("nodemaintenances.kubevirt.io.json")[0];
    assert_eq!(
        (&older["apiVersion"], &older["metadata"]["name"]),
        (&json!("kubevirt.io/v1alpha1"), &json!("older"))
    );
    assert_eq!(list("nodes.json").len(), 2);
    assert!(
        list("pods.json").iter().any(|pod| pod["metadata"]["name"] == "till"),
        "its node is in maintenance"
    );
    let pod = list("pods.json").into_iter().find(|pod| pod["metadata"]["name"] == "cart").unwrap();
    assert_eq!(
        pod["spec"]["containers"],
        json!([{"name": "main", "image": "cart:1", "imagePullPolicy": "IfNotPresent",
        "resources": {}}])
    );
    assert_eq!(files["logs/nm-reconciler-0/reconciler.log"], "it leads\nit does not\n");
    assert!(
        list("events.json").iter().any(|event| event["reason"] == "FailedPreStopHook"),
        "of a pod on the node"
    );
    let manifest = &files["MANIFEST.txt"];
    for name in files.keys().filter(|name| *name != "MANIFEST.txt") {
        assert!(manifest.contains(&format!("  {name} (")), "{name} in {manifest}");
    }
    assert!(manifest.contains("Could not be read:\n  nothing\n"), "{manifest}");
    let log = cluster.sandbox().unwrap().requests();
    assert_eq!(log.count(|entry| entry.resource == "secrets" && entry.verb != "create"), 0);

    let lists = || {
        log.count(|entry| {
            entry.user_agent.starts_with("kubectl-nm/")
                && (entry.verb, entry.resource.as_str()) == ("list", "poddisruptionbudgets")
        })
    };
    let asked = lists();
    assert_eq!(asked, 1, "the log tells who asked");
    let again = plugin(&cluster, &["gather", "-o", path.to_str().unwrap()]).await;
    let complaint = format!("error: cannot write {}: entity already exists\n", path.display());
    again.expect(1, "", &(complaint + "hint: nothing is overwritten; -o names another file\n"));
    assert_eq!(lists(), asked, "it is noticed before anything is asked for");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_report_says_what_could_not_be_read() {
    let cluster = Cluster::of_sandbox(1, 0, |sandbox| sandbox).await;
    let workload = Workload::new(&cluster, "nobody").await;
    let nobody = cluster.kubeconfig_of(&default_account(&workload)).await;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("report.tar.gz");
    let gathered = plugin_of(&nobody, &["gather", "-o", path.to_str().unwrap()]).await;
    assert_eq!(gathered.code, Some(1), "versions alone are no report: {gathered:?}");
    let files = unpacked(&path);
    assert_eq!(files.keys().collect::<Vec<_>>(), ["MANIFEST.txt", "versions.json"]);
    for missing in [
        "nodes.json: Error from server (Forbidden): nodes is forbidden",
        "nodemaintenances.json: ",
        "pods.json: nobody knows which nodes are in maintenance\n",
    ] {
        assert!(files["MANIFEST.txt"].contains(missing), "{}", files["MANIFEST.txt"]);
        assert!(gathered.stderr.contains(&format!("left out: {missing}")), "{gathered:?}");
    }
}
