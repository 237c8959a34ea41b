//! `kubectl nm install` where it must fail: before anything is changed, or with a report of what was applied.

use k8s_openapi::api::core::v1::Namespace;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::Api;
use kube::api::ListParams;
use kube_sandbox::faults::{Action, Failure, Moment, Rule, Target};
use nm_tests::cluster::Cluster;
use nm_tests::manifests;
use nm_tests::programs::{Outcome, plugin, plugin_of};
use nm_tests::rbac::{bind_cluster_role, service_account};
use nm_tests::workload::Workload;
use serde_json::{Value, json};

const INSTALL: [&str; 4] =
    ["install", "--image", "registry.example.com/you/nm-reconciler:0.1.0", "--wait=false"];

async fn is_untouched(cluster: &Cluster) -> bool {
    let definitions: Api<CustomResourceDefinition> = Api::all(cluster.client.clone());
    let namespaces: Api<Namespace> = Api::all(cluster.client.clone());
    definitions.list(&ListParams::default()).await.unwrap().items.is_empty()
        && namespaces.get_opt("node-maintenance").await.unwrap().is_none()
}

/// Installs as a user who can read everything and change what these rules allow.
async fn install_as(cluster: &Cluster, changes: &[Value]) -> Outcome {
    let workload = Workload::new(cluster, "installer").await;
    let rules =
        [&[json!({"apiGroups": ["*"], "resources": ["*"], "verbs": ["get", "list", "watch"]})], changes]
            .concat();
    bind_cluster_role(cluster, "installer", workload.namespace(), &rules).await;
    let kubeconfig = cluster.kubeconfig_of(&service_account("default", workload.namespace())).await;
    plugin_of(&kubeconfig, &INSTALL).await.without_progress()
}

#[tokio::test(flavor = "multi_thread")]
async fn invalid_names_are_usage_errors() {
    let cluster = Cluster::bare_sandbox(1, 0, |sandbox| sandbox).await;
    let namespace = "error: invalid value 'Foo_x' for '--namespace <NAME>': a namespace name has at most 63 lowercase \
        letters, digits and '-', and does not start or end with '-'\n\nFor more information, try '--help'.\n";
    let image = "error: a value is required for '--image <IMAGE>' but none was supplied\n\n\
        For more information, try '--help'.\n";
    for (args, said) in [
        (&["install", "-n", "Foo_x"][..], namespace),
        (&["install", "--dry-run", "client", "-n", "Foo_x"], namespace),
        (&["install", "--image", ""], image),
        (&["install", "--dry-run", "client", "--image="], image),
    ] {
        plugin(&cluster, args).await.expect(2, "", said);
    }
    assert!(is_untouched(&cluster).await);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_missing_permission_for_any_object_is_reported_before_the_first_is_created() {
    let cluster = Cluster::bare_sandbox(1, 0, |sandbox| sandbox).await;
    let changes: Vec<Value> = [
        ("apiextensions.k8s.io", "*"),
        ("rbac.authorization.k8s.io", "*"),
        ("admissionregistration.k8s.io", "*"),
        ("policy", "*"),
        ("flowcontrol.apiserver.k8s.io", "*"),
        ("", "namespaces"),
        ("", "serviceaccounts"),
        ("", "resourcequotas"),
    ]
    .into_iter()
    .map(|(group, resource)| json!({"apiGroups": [group], "resources": [resource], "verbs": ["create", "patch"]}))
    .collect();
    install_as(&cluster, &changes).await.expect(
        1,
        "",
        "error: you lack permissions: create services, create deployments.apps, patch services, patch deployments.apps\n\
         hint: nothing was changed; the permissions of cluster-admin are sufficient\n",
    );
    assert!(is_untouched(&cluster).await);
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_changed_when_the_servers_dry_run_fails() {
    let cluster = Cluster::bare_sandbox(1, 0, |sandbox| sandbox).await;
    let definitions =
        json!({"apiGroups": ["apiextensions.k8s.io"], "resources": ["*"], "verbs": ["create", "patch"]});
    let refused = install_as(&cluster, &[definitions]).await;
    assert_eq!((refused.code, refused.stdout.as_str()), (Some(1), ""), "{refused:?}");
    assert!(refused.stderr.starts_with("Error from server (Forbidden): namespaces "), "{refused:?}");
    assert!(refused.stderr.contains("\nhint: you need permission to patch namespaces; "), "{refused:?}");
    assert!(is_untouched(&cluster).await);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_interrupted_installation_reports_its_progress_and_can_be_continued() {
    let cluster = Cluster::bare_sandbox(1, 0, |sandbox| sandbox).await;
    let deployments = Target::any().verb("create").verb("patch").resource("deployments");
    let faults = cluster.sandbox().unwrap().faults();
    let refused = faults.add(Rule::new(deployments, Action::Fail(Failure::Forbidden, Moment::BeforeEffect)));
    let midway = plugin(&cluster, &INSTALL).await;
    let all = manifests::all().len();
    let applied = midway.stdout.lines().count();
    assert!(midway.code == Some(1) && (1..all).contains(&applied), "{midway:?}");
    let reported: Vec<&str> = midway.stderr.lines().filter(|line| !line.ends_with(" ...")).collect();
    assert!(reported[0].starts_with("Error from server (Forbidden): deployments.apps "), "{midway:?}");
    assert_eq!(
        reported[reported.len() - 1],
        format!(
            "hint: {applied} of {all} objects are applied; run the same command again to continue, or \
             `kubectl nm uninstall` to remove them"
        )
    );

    faults.remove(refused);
    let whole = plugin(&cluster, &INSTALL).await.ok();
    let unchanged = whole.stdout.lines().filter(|line| line.ends_with(" unchanged")).count();
    assert_eq!((unchanged, whole.stdout.lines().count()), (applied, all), "{whole:?}");
}
