//! `kubectl nm gather`: what a report contains, and which secrets it leaves out.

use std::collections::BTreeMap;
use std::io::Read;
use std::path::Path;

use flate2::read::GzDecoder;
use k8s_openapi::api::apps::v1::Deployment;
use kube::Api;
use kube::api::{Patch, PatchParams, PostParams};
use kube_sandbox::controllers::kubelet::annotations::LOG;
use nm_shared::Group;
use nm_tests::cluster::Cluster;
use nm_tests::older_groups;
use nm_tests::older_groups::start_in_group;
use nm_tests::programs::{plugin, plugin_of, program};
use nm_tests::rbac::service_account;
use nm_tests::wait::wait_until;
use nm_tests::webhook;
use nm_tests::workload::Workload;
use serde_json::{Value, json};

/// The files of a report: name below its folder, and content.
fn unpack(path: &Path) -> BTreeMap<String, String> {
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

/// The files of a complete report: everything can be read, an older group is served, and one reconciler runs that was
/// never restarted.
const REPORT_FILES: [&str; 15] = [
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
async fn a_report_is_complete_and_has_no_secrets() {
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
    let _ = plugin(&cluster, &["start", &node, "--reason", "disk", "--no-plan"]).await.ok();
    let (group, other) = (Group::Kubevirt, cluster.nodes().await[1].clone());
    older_groups::install(&cluster.client, group).await;
    start_in_group(&cluster.client, group, "older", &other).await;
    let on_other = json!({"metadata": {"name": "till"}, "spec": {"nodeName": other, "containers": [{"name": "main",
        "image": "till:1"}]}});
    pods.create(&PostParams::default(), &serde_json::from_value(on_other).unwrap()).await.unwrap();

    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("report.tar.gz");
    let gathered = plugin(&cluster, &["gather", "-o", path.to_str().unwrap()]).await.ok();
    assert_eq!(gathered.stdout, format!("{}\n", path.display()));
    let files = unpack(&path);
    assert_eq!(files.keys().collect::<Vec<_>>(), REPORT_FILES);
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
        "a pod of the older group's maintenance"
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
        "an event of a pod on the node"
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
    let before = lists();
    assert_eq!(before, 1, "requests have the plugin's user agent");
    let again = plugin(&cluster, &["gather", "-o", path.to_str().unwrap()]).await;
    let complaint = format!("error: cannot write {}: entity already exists\n", path.display());
    again.expect(
        1,
        "",
        &(complaint + "hint: existing files are not overwritten; choose another file with -o\n"),
    );
    assert_eq!(lists(), before, "an existing file is an error before any request");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_report_lists_what_could_not_be_read() {
    let cluster = Cluster::of_sandbox(1, 0, |sandbox| sandbox).await;
    let workload = Workload::new(&cluster, "nobody").await;
    let nobody = cluster.kubeconfig_of(&service_account("default", workload.namespace())).await;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("report.tar.gz");
    let gathered = plugin_of(&nobody, &["gather", "-o", path.to_str().unwrap()]).await;
    assert_eq!(gathered.code, Some(1), "versions alone are no report: {gathered:?}");
    let files = unpack(&path);
    assert_eq!(files.keys().collect::<Vec<_>>(), ["MANIFEST.txt", "versions.json"]);
    for missing in [
        "nodes.json: Error from server (Forbidden): nodes is forbidden",
        "nodemaintenances.json: ",
        "pods.json: the nodes in maintenance are not known\n",
    ] {
        assert!(files["MANIFEST.txt"].contains(missing), "{}", files["MANIFEST.txt"]);
        assert!(gathered.stderr.contains(&format!("left out: {missing}")), "{gathered:?}");
    }
}

/// The flags of the built reconciler, from its help.
fn flags() -> Vec<String> {
    let help = std::process::Command::new(program("nm-reconciler")).arg("--help").output().unwrap();
    let help = String::from_utf8(help.stdout).unwrap();
    let flags = help.lines().filter_map(|line| line.strip_prefix("      --"));
    flags.map(|line| format!("--{}", line.split([' ', '[', '=']).next().unwrap())).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_report_has_the_reconcilers_settings_and_nothing_of_its_sidecars() {
    let cluster = Cluster::bare_sandbox(1, 0, |sandbox| sandbox).await;
    let _ = plugin(&cluster, &["install", "--image", "r.example.com/nm:1", "--wait=false"]).await.ok();
    let deployments: Api<Deployment> = Api::namespaced(cluster.client.clone(), &webhook::namespace());
    let flags = flags();
    assert!(flags.len() > 10, "{flags:?}");
    let settings: Vec<String> = flags.iter().map(|flag| format!("{flag}=7")).collect();
    let hidden = json!([{"name": "PASSWORD", "value": "hunter2"}]);
    let secrets = json!({"spec": {"template": {"spec": {
        "initContainers": [{"name": "login", "image": "login:1", "env": hidden}],
        "containers": [
            {"name": "reconciler", "args": settings, "env": hidden,
                "lifecycle": {"preStop": {"exec": {"command": ["bye", "hunter2"]}}}},
            {"name": "proxy", "image": "proxy:1", "args": ["--password=hunter2"]},
        ],
    }}}});
    let params = PatchParams::default();
    deployments.patch("nm-reconciler", &params, &Patch::Strategic(secrets)).await.unwrap();
    let replaced = |found: Option<&Deployment>| {
        found.and_then(|found| found.status.as_ref()).is_some_and(|status| status.updated_replicas == Some(2))
    };
    wait_until(&deployments, "nm-reconciler", "its pods replaced", replaced).await;

    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("report.tar.gz");
    let _ = plugin(&cluster, &["gather", "-o", path.to_str().unwrap()]).await.ok();
    let files = unpack(&path);
    let logs: Vec<&str> = files.keys().filter_map(|name| name.strip_prefix("logs/")).collect();
    assert!(logs.iter().any(|name| name.ends_with("/reconciler.log")), "{logs:?}");
    assert!(!logs.iter().any(|name| name.contains("proxy")), "{logs:?}");
    for name in ["deployments.json", "reconciler-pods.json"] {
        let text = &files[name];
        assert!(
            !text.contains("hunter2") && !text.contains("podIP") && !text.contains("hostIP"),
            "{name}: {text}"
        );
        let items = serde_json::from_str::<Value>(text).unwrap()["items"].clone();
        assert!(
            items[0]["metadata"]["name"].as_str().unwrap().starts_with("nm-reconciler"),
            "{name}: {text}"
        );
        for setting in &settings {
            assert!(text.contains(setting), "{name} has {setting}: {text}");
        }
    }
}
