//! `kubectl nm install`, `uninstall` and `version`: their output and the objects in the cluster.

use std::path::Path;
use std::process::Stdio;

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{Namespace, Node};
use k8s_openapi::api::flowcontrol::v1::{FlowSchema, PriorityLevelConfiguration};
use k8s_openapi::api::rbac::v1::ClusterRoleBinding;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::{Api, ResourceExt};
use nm_shared::{Group, Phase};
use nm_tests::cluster::Cluster;
use nm_tests::files::kubeconfig_for;
use nm_tests::maintenance::until_drained;
use nm_tests::manifests;
use nm_tests::older_groups;
use nm_tests::older_groups::{start_in_group, until_phase_in_group};
use nm_tests::ports::unused_port;
use nm_tests::programs::{Outcome, plugin, plugin_of, program};
use nm_tests::rbac::service_account;
use nm_tests::reconciler::Reconciler;
use nm_tests::wait::wait_until;
use nm_tests::webhook;
use nm_tests::webhook::serve_installed_webhook;
use nm_tests::workload::Workload;
use serde_json::{Value, json};

const IMAGE: &str = "registry.example.com/you/nm-reconciler:0.1.0";

/// The output of `uninstall`: first what changes nodes, the definition last.
const REMOVED: &str = "\
validatingwebhookconfiguration.admissionregistration.k8s.io/nm-reconciler deleted
service/nm-reconciler-webhook (namespace node-maintenance) deleted
deployment.apps/nm-reconciler (namespace node-maintenance) deleted
poddisruptionbudget.policy/nm-reconciler (namespace node-maintenance) deleted
resourcequota/nm-reconciler (namespace node-maintenance) deleted
clusterrole.rbac.authorization.k8s.io/nodemaintenance-editor deleted
clusterrole.rbac.authorization.k8s.io/nodemaintenance-viewer deleted
rolebinding.rbac.authorization.k8s.io/nm-reconciler (namespace node-maintenance) deleted
role.rbac.authorization.k8s.io/nm-reconciler (namespace node-maintenance) deleted
rolebinding.rbac.authorization.k8s.io/nm-reconciler (namespace default) deleted
role.rbac.authorization.k8s.io/nm-reconciler (namespace default) deleted
rolebinding.rbac.authorization.k8s.io/nm-reconciler (namespace medik8s-leases) deleted
role.rbac.authorization.k8s.io/nm-reconciler (namespace medik8s-leases) deleted
validatingadmissionpolicybinding.admissionregistration.k8s.io/nm-reconciler-maintenances deleted
validatingadmissionpolicy.admissionregistration.k8s.io/nm-reconciler-maintenances deleted
validatingadmissionpolicybinding.admissionregistration.k8s.io/nm-reconciler-nodes deleted
validatingadmissionpolicy.admissionregistration.k8s.io/nm-reconciler-nodes deleted
validatingadmissionpolicybinding.admissionregistration.k8s.io/nm-reconciler deleted
validatingadmissionpolicy.admissionregistration.k8s.io/nm-reconciler deleted
clusterrolebinding.rbac.authorization.k8s.io/nm-reconciler deleted
clusterrole.rbac.authorization.k8s.io/nm-reconciler deleted
flowschema.flowcontrol.apiserver.k8s.io/nm-reconciler-lease deleted
flowschema.flowcontrol.apiserver.k8s.io/nm-reconciler deleted
prioritylevelconfiguration.flowcontrol.apiserver.k8s.io/nm-reconciler deleted
serviceaccount/nm-reconciler (namespace node-maintenance) deleted
lease.coordination.k8s.io/nm-reconciler (namespace node-maintenance) deleted
secret/nm-reconciler-webhook (namespace node-maintenance) deleted
customresourcedefinition.apiextensions.k8s.io/nodemaintenances.nodemaintenance.medik8s.io deleted
";

/// A cluster in which the plugin has installed everything, and a reconciler that runs as a local process, because a
/// sandbox does not run images.
async fn installed() -> (Cluster, Reconciler) {
    let cluster = Cluster::bare_sandbox(2, 0, |sandbox| sandbox).await;
    let _ = plugin(&cluster, &["install", "--image", IMAGE, "--wait=false"]).await.ok();
    let reconciler = serve_installed_webhook(&cluster, &[]).await;
    (cluster, reconciler)
}

/// An object's name as kubectl prints it.
fn name(object: &kube::api::DynamicObject) -> String {
    let types = object.types.clone().unwrap();
    let group = types.api_version.split_once('/').map(|(group, _)| format!(".{group}"));
    format!("{}{}/{}", types.kind.to_lowercase(), group.unwrap_or_default(), object.name_any())
}

/// A line for each object of the manifests.
fn lines(suffix: &str) -> String {
    let line = |object: &kube::api::DynamicObject| match object.namespace() {
        Some(namespace) => format!("{} (namespace {namespace}) {suffix}\n", name(object)),
        None => format!("{} {suffix}\n", name(object)),
    };
    manifests::all().iter().map(line).collect()
}

/// Standard error without progress lines, which depend on the time.
fn without_progress(stderr: &str) -> String {
    stderr.lines().filter(|line| !line.ends_with(" ...")).fold(String::new(), |all, line| all + line + "\n")
}

#[tokio::test(flavor = "multi_thread")]
async fn one_command_installs_everything_and_waits_until_it_is_ready() {
    let cluster = Cluster::bare_sandbox(2, 0, |sandbox| sandbox).await;
    plugin(&cluster, &["install", "--grant", "surge"]).await.expect(
        1,
        "",
        "error: nm-reconciler is not installed in this cluster, so --grant surge has nothing to change\n\
         hint: nothing was changed; check that this is the right cluster, or install it with `kubectl nm install --image IMAGE \
         --grant surge`\n",
    );
    let first = plugin(&cluster, &["install", "--wait=false"]).await;
    let warning = "The image localhost/nm-reconciler:0.1.0 is not published. It must exist on your nodes, or choose another \
                   with --image; see https://github.com/kubectl-nm/kubectl-nm/blob/main/docs/how-to/build-the-image.md\n";
    assert_eq!((first.code, without_progress(&first.stderr)), (Some(0), warning.into()));
    assert_eq!(first.stdout, lines("created"));

    // The pods are ready, but no reconciler serves the webhook.
    let late = plugin(&cluster, &["install", "--timeout", "2s"]).await;
    assert_eq!(late.code, Some(124), "{late:?}");
    assert_eq!(late.stdout, lines("unchanged"));
    let said = without_progress(&late.stderr);
    assert!(said.starts_with("error: not ready after 2s: the webhook does not respond: "), "{said}");
    assert!(said.contains("\"validate.nodemaintenance.medik8s.io\""), "{said}");
    assert!(said.contains("\nhint: all objects are applied"), "{said}");

    let _reconciler = serve_installed_webhook(&cluster, &[]).await;
    let ready = plugin(&cluster, &["install", "--timeout", "60s"]).await;
    let said = "nm-reconciler is ready in namespace node-maintenance: 2 replicas, and its webhook works\n";
    assert_eq!((ready.code, ready.stdout), (Some(0), lines("unchanged") + said), "{}", ready.stderr);
    assert_eq!(without_progress(&ready.stderr), "");
    assert_eq!(cluster.maintenances().list(&ListParams::default()).await.unwrap().items, []);
}

#[tokio::test(flavor = "multi_thread")]
async fn flow_schemas_can_be_left_out_and_an_update_keeps_that() {
    let cluster = Cluster::bare_sandbox(2, 0, |sandbox| sandbox).await;
    let install = async |flag: &str| {
        let words = ["install", "--image", IMAGE, "--wait=false", flag];
        let words = if flag.is_empty() { &words[..4] } else { &words[..] };
        plugin(&cluster, words).await.ok()
    };
    let schemas: Api<FlowSchema> = Api::all(cluster.client.clone());
    let levels: Api<PriorityLevelConfiguration> = Api::all(cluster.client.clone());
    let there = async || {
        let (schema, level) = (schemas.get_opt("nm-reconciler").await, levels.get_opt("nm-reconciler").await);
        let lease = schemas.get_opt("nm-reconciler-lease").await;
        [schema.unwrap().is_some(), lease.unwrap().is_some(), level.unwrap().is_some()]
    };
    let _ = install("--flow-schemas=false").await;
    assert_eq!(there().await, [false; 3]);
    let _ = install("").await;
    assert_eq!(there().await, [false; 3]);
    let added = install("--flow-schemas").await.stdout;
    assert_eq!(there().await, [true; 3]);
    assert_eq!(added.lines().filter(|line| line.ends_with(" created")).count(), 3, "{added}");
    let _ = install("").await;
    assert_eq!(there().await, [true; 3]);
    let removed = install("--flow-schemas=false").await.stderr;
    assert_eq!(there().await, [false; 3]);
    assert_eq!(
        without_progress(&removed),
        "flowschema.flowcontrol.apiserver.k8s.io/nm-reconciler-lease deleted\n\
         flowschema.flowcontrol.apiserver.k8s.io/nm-reconciler deleted\n\
         prioritylevelconfiguration.flowcontrol.apiserver.k8s.io/nm-reconciler deleted\n"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn installing_again_changes_what_the_flags_name_and_reports_it() {
    let (cluster, _reconciler) = installed().await;
    let upgraded =
        plugin(&cluster, &["install", "--max-unavailable", "10%", "--replicas", "1", "--wait=false"]).await;
    assert_eq!(upgraded.code, Some(0), "{upgraded:?}");
    let configured: Vec<&str> =
        upgraded.stdout.lines().filter(|line| !line.ends_with(" unchanged")).collect();
    assert_eq!(configured, ["deployment.apps/nm-reconciler (namespace node-maintenance) configured"]);
    let kept = format!("Keeping the image {IMAGE}; choose another with --image.\n");
    assert_eq!(without_progress(&upgraded.stderr), kept);
    let again = plugin(&cluster, &["install", "--image", "r.example.com/nm:0.1.1", "--wait=false"]).await;
    assert_eq!((again.code, without_progress(&again.stderr)), (Some(0), String::new()));
    let deployment = deployment(&cluster).get("nm-reconciler").await.unwrap().spec.unwrap();
    assert_eq!(deployment.replicas, Some(1));
    let env = deployment.template.spec.unwrap().containers[0].env.clone().unwrap();
    let limit = env.iter().find(|variable| variable.name == "NM_MAX_UNAVAILABLE").unwrap();
    assert_eq!(limit.value.as_deref(), Some("10%"));

    let version = plugin(&cluster, &["version"]).await.ok();
    let server = cluster.client.apiserver_version().await.unwrap().git_version;
    let own = env!("CARGO_PKG_VERSION");
    let expected =
        format!("Plugin: {own}\nReconciler: 0.1.1 (r.example.com/nm:0.1.1)\nAPI server: {server}\n");
    version.expect(0, &expected, "");
    let _ = plugin(&cluster, &["install", "--image", "r.example.com/nm:9.0.0", "--wait=false"]).await.ok();
    assert_eq!(reconciler_version(&cluster).await, "9.0.0");
    let skewed = plugin(&cluster, &["version"]).await.ok().stderr;
    assert!(
        skewed.starts_with(&format!("warning: plugin {own} and reconciler 9.0.0 may be incompatible")),
        "{skewed}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn fields_of_other_managers_are_reported_and_changed_only_with_force() {
    let (cluster, _reconciler) = installed().await;
    let scaled = json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "nm-reconciler"},
        "spec": {"replicas": 5}});
    let by_helm = PatchParams::apply("helm").force();
    deployment(&cluster).patch("nm-reconciler", &by_helm, &Patch::Apply(&scaled)).await.unwrap();
    let refused =
        plugin(&cluster, &["install", "--replicas", "3", "--image", "r.example.com/nm:2", "--wait=false"])
            .await;
    refused.expect(
        1,
        "",
        "error: other field managers have set these fields to other values: deployment.apps/nm-reconciler: .spec.replicas \
         conflict with \"helm\"\nhint: nothing was changed; change the values at their source, or overwrite them with \
         --force-conflicts\n",
    );
    let untouched = deployment(&cluster).get("nm-reconciler").await.unwrap().spec.unwrap();
    let image = untouched.template.spec.unwrap().containers[0].image.clone();
    assert_eq!((untouched.replicas, image.as_deref()), (Some(5), Some(IMAGE)));
    let kept = plugin(&cluster, &["install", "--wait=false"]).await.ok();
    assert_eq!(kept.stdout, lines("unchanged"));
    let _ = plugin(&cluster, &["install", "--replicas", "3", "--force-conflicts", "--wait=false"]).await.ok();
    assert_eq!(deployment(&cluster).get("nm-reconciler").await.unwrap().spec.unwrap().replicas, Some(3));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_limit_set_as_a_flag_stays_in_effect_and_is_not_changed() {
    let (cluster, _reconciler) = installed().await;
    let node = cluster.nodes().await[0].clone();
    let limit = async || {
        let planned: Value =
            serde_json::from_str(&plugin(&cluster, &["plan", &node, "-o", "json"]).await.stdout).unwrap();
        planned["maxUnavailable"]["limit"].as_str().unwrap().to_owned()
    };
    let containers = json!([
        {"name": "proxy", "image": "r.example.com/proxy:9.9.9", "args": ["--max-unavailable=7"]},
        {"name": "reconciler", "args": ["--max-unavailable=2", "--node-conditions"]}]);
    let edited = Patch::Strategic(json!({"spec": {"template": {"spec": {"containers": containers}}}}));
    deployment(&cluster).patch("nm-reconciler", &PatchParams::default(), &edited).await.unwrap();
    assert_eq!(limit().await, "2");

    let refused = plugin(&cluster, &["install", "--max-unavailable", "5", "--wait=false"]).await;
    refused.expect(
        1,
        "",
        "error: the Deployment nm-reconciler in namespace node-maintenance sets --max-unavailable in its command line, which \
         takes precedence\n\
         hint: nothing was changed; set it where the flag comes from, or with `kubectl -n node-maintenance edit deployment \
         nm-reconciler`\n",
    );
    // An installation with other flags keeps the limit.
    let _ = plugin(&cluster, &["install", "--replicas", "1", "--wait=false"]).await.ok();
    assert_eq!(limit().await, "2");
    let pods = deployment(&cluster).get("nm-reconciler").await.unwrap().spec.unwrap().template.spec.unwrap();
    let ours = pods.containers.iter().find(|container| container.name == "reconciler").unwrap();
    assert_eq!(ours.args.as_deref(), Some(&["--max-unavailable=2".into(), "--node-conditions".into()][..]));
    assert_eq!(ours.image.as_deref(), Some(IMAGE), "not that of the sidecar");
    assert_eq!(reconciler_version(&cluster).await, env!("CARGO_PKG_VERSION"));
}

async fn reconciler_version(cluster: &Cluster) -> String {
    let versions = plugin(cluster, &["version", "-o", "json"]).await;
    let versions: Value = serde_json::from_str(&versions.stdout).unwrap();
    versions["reconciler"].as_str().unwrap().to_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn an_existing_namespace_is_neither_labelled_nor_deleted() {
    let cluster = Cluster::bare_sandbox(1, 0, |sandbox| sandbox).await;
    let namespaces: Api<Namespace> = Api::all(cluster.client.clone());
    let theirs: Namespace = serde_json::from_value(json!({"metadata": {"name": "operators"}})).unwrap();
    namespaces.create(&PostParams::default(), &theirs).await.unwrap();
    let there =
        plugin(&cluster, &["install", "-n", "operators", "--image", IMAGE, "--wait=false"]).await.ok();
    assert!(!there.stdout.contains("namespace/operators") && !there.stdout.contains("quota"), "{there:?}");
    assert!(there.stderr.contains("namespace/operators was created by others"), "{there:?}");
    let elsewhere = plugin(&cluster, &["install", "-n", "other", "--image", IMAGE]).await;
    let complaint =
        "error: nm-reconciler is installed in namespace \"operators\" and cannot be moved to \"other\"\n";
    assert!(elsewhere.code == Some(1) && elsewhere.stderr.starts_with(complaint), "{elsewhere:?}");
    let elsewhere = plugin(&cluster, &["uninstall", "-n", "other", "-y"]).await;
    elsewhere.expect(
        1,
        "",
        "error: nm-reconciler is not installed in namespace \"other\", but in \"operators\"\n\
         hint: `kubectl nm uninstall -n operators` removes it\n",
    );
    let removed = plugin(&cluster, &["uninstall", "-n", "operators", "-y"]).await.ok();
    assert!(
        removed.stdout.contains("deployment.apps/nm-reconciler (namespace operators) deleted\n"),
        "{removed:?}"
    );
    let labels = namespaces.get("operators").await.unwrap().metadata.labels.unwrap_or_default();
    assert!(!labels.keys().any(|label| label.contains("pod-security")), "{labels:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn uninstalling_returns_nodes_to_service_first_and_leaves_only_the_namespaces() {
    let (cluster, _reconciler) = installed().await;
    let node = cluster.nodes().await[0].clone();
    let _ = plugin(&cluster, &["start", &node, "--wait"]).await.ok();
    let refused = plugin(&cluster, &["uninstall", "-y"]).await;
    let hint = "hint: nothing was changed; --stop-all stops the maintenances first, which returns the nodes to service\n";
    refused.expect(1, "", &format!("error: 1 node is in maintenance: {node}\n{hint}"));
    let unasked = plugin(&cluster, &["uninstall", "--stop-all"]).await;
    assert_eq!((unasked.code, unasked.stdout.as_str()), (Some(2), ""), "{unasked:?}");
    assert!(
        unasked.stderr.contains("  deployment.apps/nm-reconciler (namespace node-maintenance)\n"),
        "{unasked:?}"
    );
    assert_eq!(cluster.maintenances().list(&ListParams::default()).await.unwrap().items.len(), 1);

    let removed = plugin(&cluster, &["uninstall", "--stop-all", "-y", "--timeout", "60s"]).await.ok();
    assert_eq!(removed.stdout, REMOVED);
    let kept = "namespace/node-maintenance is kept: others may have objects in it; `kubectl delete namespace node-maintenance` \
                deletes it\n";
    let shared = "namespace/medik8s-leases is kept: other operators use it\n";
    assert!(removed.stderr.contains(kept) && removed.stderr.contains(shared), "{removed:?}");
    let nodes: Api<Node> = Api::all(cluster.client.clone());
    assert_eq!(nodes.get(&node).await.unwrap().spec.unwrap().unschedulable, None);
    let definitions: Api<CustomResourceDefinition> = Api::all(cluster.client.clone());
    assert_eq!(definitions.list(&ListParams::default()).await.unwrap().items.len(), 0);
    plugin(&cluster, &["uninstall"]).await.expect(0, "", "nm-reconciler is not installed.\n");
}

/// A roll that ended before its last node was done keeps the maintenance of that node, and nobody removes its finalizer.
#[tokio::test(flavor = "multi_thread")]
async fn what_a_roll_has_left_is_no_problem_for_doctor_and_is_gone_when_all_is_uninstalled() {
    let (cluster, _reconciler) = installed().await;
    let node = cluster.nodes().await[0].clone();
    let left: nm_shared::NodeMaintenance = serde_json::from_value(json!({
        "metadata": {"name": node, "labels": {"kubectl-nm.dev/roll": "left"}, "finalizers": ["kubectl-nm.dev/roll"]},
        "spec": {"nodeName": node}}))
    .unwrap();
    cluster.maintenances().create(&PostParams::default(), &left).await.unwrap();
    until_drained(&cluster, &node).await;
    cluster.maintenances().delete(&node, &DeleteParams::default()).await.unwrap();
    let is_kept = |object: Option<&nm_shared::NodeMaintenance>| {
        object.is_some_and(|object| object.finalizers() == ["kubectl-nm.dev/roll"])
    };
    wait_until(&cluster.maintenances(), &node, "kept by its roll only", is_kept).await;

    let checked = plugin(&cluster, &["doctor", "-o", "json"]).await;
    let checks: Value = serde_json::from_str(&checked.stdout).unwrap();
    let found = checks["findings"].as_array().unwrap().iter().find(|check| check["check"] == "maintenances");
    let found = found.unwrap_or_else(|| panic!("{checks:#}"));
    let kept =
        format!("1 kept by a roll after the node returned to service: {node}; `kubectl nm roll status left`");
    assert!(found["message"].as_str().unwrap().contains(&kept) && found["result"] == "ok", "{found:#}");
    let removed = plugin(&cluster, &["uninstall", "--stop-all", "-y", "--timeout", "60s"]).await.ok();
    assert_eq!(removed.stdout, REMOVED);
    assert_eq!(cluster.node(&node).await.spec.unwrap().unschedulable, None);
}

#[tokio::test(flavor = "multi_thread")]
async fn uninstalling_also_stops_maintenances_of_an_older_group() {
    let (cluster, _reconciler) = installed().await;
    let (group, node) = (Group::Kubevirt, cluster.nodes().await[0].clone());
    older_groups::install(&cluster.client, group).await;
    start_in_group(&cluster.client, group, "older", &node).await;
    until_phase_in_group(&cluster.client, group, "older", Phase::Succeeded).await;
    let refused = plugin(&cluster, &["uninstall", "-y"]).await;
    let hint = "hint: nothing was changed; --stop-all stops the maintenances first, which returns the nodes to service\n";
    refused.expect(1, "", &format!("error: 1 node is in maintenance: {node}\n{hint}"));
    let _ = plugin(&cluster, &["uninstall", "--stop-all", "-y", "--timeout", "60s"]).await.ok();
    let left = older_groups::maintenances(&cluster.client, group).list(&ListParams::default()).await.unwrap();
    assert!(left.items.is_empty(), "{left:?}");
    assert_eq!(cluster.node(&node).await.spec.unwrap().unschedulable, None);
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_uninstalled_while_a_maintenance_does_not_end() {
    let cluster = Cluster::bare_sandbox(1, 0, |sandbox| sandbox).await;
    let _ = plugin(&cluster, &["install", "--image", IMAGE, "--wait=false"]).await.ok();
    // No reconciler serves the webhook here.
    let configurations: Api<k8s_openapi::api::admissionregistration::v1::ValidatingWebhookConfiguration> =
        Api::all(cluster.client.clone());
    configurations.delete("nm-reconciler", &DeleteParams::default()).await.unwrap();
    let node = cluster.nodes().await[0].clone();
    let held: nm_shared::NodeMaintenance = serde_json::from_value(json!({
        "metadata": {"name": node, "finalizers": [nm_shared::api::names::FINALIZER]}, "spec": {"nodeName": node}}))
    .unwrap();
    cluster.maintenances().create(&PostParams::default(), &held).await.unwrap();
    let stuck = plugin(&cluster, &["uninstall", "--stop-all", "-y", "--timeout", "1s"]).await;
    assert_eq!((stuck.code, stuck.stdout.as_str()), (Some(124), ""), "{stuck:?}");
    assert!(
        stuck.stderr.contains(&format!("error: these objects still exist after 1s: node/{node}\nhint: ")),
        "{stuck:?}"
    );
    assert!(deployment(&cluster).get("nm-reconciler").await.is_ok());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_missing_permission_is_named() {
    let cluster = Cluster::start(1).await;
    let workload = Workload::new(&cluster, "nobody").await;
    let nobody = cluster.kubeconfig_of(&service_account("default", workload.namespace())).await;
    let user = format!("system:serviceaccount:{}:default", workload.namespace());
    for args in [&["install"][..], &["uninstall", "-y"]] {
        plugin_of(&nobody, args).await.expect(
            1,
            "",
            &format!(
                "Error from server (Forbidden): deployments.apps is forbidden: User \"{user}\" cannot list resource \
                 \"deployments\" in API group \"apps\" at the cluster scope\n\
                 hint: you need permission to list deployments.apps; check it with \
                 `kubectl auth can-i list deployments.apps`\n"
            ),
        );
    }
    let version = plugin_of(&nobody, &["version", "-o", "json"]).await.ok();
    let reported: Value = serde_json::from_str(&version.stdout).unwrap();
    assert!(reported["server"].is_string() && reported.get("reconciler").is_none(), "{reported}");
    assert!(version.stderr.contains("cannot list resource \"deployments\""), "{version:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_cluster_commands_report_the_connection_error() {
    let own = format!("Plugin: {}\n", env!("CARGO_PKG_VERSION"));
    let unused = unused_port();
    let address = unused.local_addr().unwrap();
    let kubeconfig = kubeconfig_for(&format!("https://{address}"));
    for args in [&["install"][..], &["uninstall"], &["doctor"], &["gather"], &["version"]] {
        let failed = plugin_of(kubeconfig.path(), args).await;
        let known = if args == ["version"] { own.as_str() } else { "" };
        assert_eq!((failed.code, failed.stdout.as_str()), (Some(1), known), "{args:?}");
        let complaint = format!("The connection to the server https://{address} was refused - ");
        assert!(failed.stderr.starts_with(&complaint), "{failed:?}");
    }
    let nowhere = Path::new("/nowhere/kubeconfig");
    plugin_of(nowhere, &["version", "--client"]).await.expect(0, &own, "");
    let dry_run = plugin_of(nowhere, &["install", "--dry-run", "client", "-o", "name"]).await;
    let names = manifests::all().iter().map(|object| name(object) + "\n").collect::<String>();
    dry_run.expect(0, &names, "");
}

fn deployment(cluster: &Cluster) -> Api<Deployment> {
    Api::namespaced(cluster.client.clone(), &webhook::namespace())
}

/// Runs the plugin with a closed pipe as its standard output.
async fn with_closed_stdout(cluster: &Cluster, args: &[&str]) -> Outcome {
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let mut command = tokio::process::Command::new(program("kubectl-nm"));
    command.args(args).env("KUBECONFIG", cluster.kubeconfig()).stdin(Stdio::null()).stdout(writer);
    let output = command.stderr(Stdio::piped()).spawn().unwrap().wait_with_output().await.unwrap();
    let stderr = String::from_utf8(output.stderr).unwrap();
    Outcome { code: output.status.code(), stdout: String::new(), stderr }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_closed_stdout_interrupts_neither_install_nor_uninstall() {
    let cluster = Cluster::bare_sandbox(1, 0, |sandbox| sandbox).await;
    let installed = with_closed_stdout(&cluster, &["install", "--image", IMAGE, "--wait=false"]).await;
    assert_eq!(installed.code, Some(0), "{installed:?}");
    assert!(
        installed.stderr.contains("deployment.apps/nm-reconciler (namespace node-maintenance) created\n"),
        "{installed:?}"
    );
    let again = plugin(&cluster, &["install", "--wait=false"]).await.ok();
    assert!(again.stdout.lines().all(|line| line.ends_with(" unchanged")), "{again:?}");
    let roles: Vec<&str> = again.stdout.lines().filter(|line| line.starts_with("role.rbac")).collect();
    assert!(roles.len() > 1 && roles[0] != roles[1], "{roles:?}");
    let removed = with_closed_stdout(&cluster, &["uninstall", "-y"]).await;
    assert_eq!(removed.code, Some(0), "{removed:?}");
    plugin(&cluster, &["uninstall", "-y"]).await.expect(0, "", "nm-reconciler is not installed.\n");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_optional_permission_is_granted_on_request_and_removed_by_uninstall() {
    let (cluster, _reconciler) = installed().await;
    let bindings: Api<ClusterRoleBinding> = Api::all(cluster.client.clone());
    let granted = async || {
        let all = bindings.list(&ListParams::default()).await.unwrap();
        let names = all.iter().map(ResourceExt::name_any);
        names.filter(|name| name.starts_with("nm-reconciler-")).collect::<Vec<_>>()
    };
    assert_eq!(granted().await, [""; 0]);
    let unknown = plugin(&cluster, &["install", "--grant", "everything"]).await;
    assert_eq!(unknown.code, Some(2), "{unknown:?}");
    let grants = "node-conditions, pod-deletion, volume-detach, surge, virtual-machines, roll";
    assert!(unknown.stderr.contains(grants), "{}", unknown.stderr);
    let spec = json!({"apiVersion": "nodemaintenance.medik8s.io/v1beta1", "kind": "NodeMaintenance",
        "metadata": {"name": "e2e-impatient"},
        "spec": {"nodeName": cluster.nodes().await[0], "drain": {"deleteAfterSeconds": 60}}});
    let impatient = serde_json::from_value(spec).unwrap();
    cluster.maintenances().create(&PostParams::default(), &impatient).await.unwrap();
    let missing = "grants        nm-reconciler cannot delete pods, which spec.drain.deleteAfterSeconds needs";
    let doctor = plugin(&cluster, &["doctor"]).await;
    assert!(doctor.stdout.contains(missing), "{doctor:?}");

    let made = plugin(&cluster, &["install", "--grant", "pod-deletion", "--wait=false"]).await.ok();
    let line = "clusterrolebinding.rbac.authorization.k8s.io/nm-reconciler-pod-deletion created\n";
    assert!(made.stdout.contains(line), "{}", made.stdout);
    let doctor = plugin(&cluster, &["doctor"]).await;
    assert!(doctor.stdout.contains("features in use, and pod-deletion"), "{doctor:?}");
    let kept = plugin(&cluster, &["install", "--grant", "node-conditions", "--wait=false"]).await.ok();
    let line = "clusterrolebinding.rbac.authorization.k8s.io/nm-reconciler-pod-deletion unchanged\n";
    assert!(kept.stdout.contains(line), "{}", kept.stdout);
    assert_eq!(granted().await, ["nm-reconciler-node-conditions", "nm-reconciler-pod-deletion"]);
    let _ = plugin(&cluster, &["uninstall", "-y", "--stop-all"]).await.ok();
    assert_eq!(granted().await, [""; 0]);
}
