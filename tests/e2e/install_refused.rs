//! `kubectl nm install` where it cannot be done: it is known before anything has changed, or told how far it came.

use k8s_openapi::api::core::v1::Namespace;
use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::Api;
use kube::api::{ListParams, PostParams};
use kube_sandbox::faults::{Action, Failure, Moment, Rule, Target};
use nm_tests::cluster::Cluster;
use nm_tests::manifests;
use nm_tests::programs::{Outcome, plugin, plugin_of};
use nm_tests::workload::Workload;
use serde_json::{Value, json};

use crate::start_stop::account;

const INSTALL: [&str; 4] =
    ["install", "--image", "registry.example.com/you/nm-reconciler:0.1.0", "--wait=false"];

async fn is_untouched(cluster: &Cluster) -> bool {
    let definitions: Api<CustomResourceDefinition> = Api::all(cluster.client.clone());
    let namespaces: Api<Namespace> = Api::all(cluster.client.clone());
    definitions.list(&ListParams::default()).await.unwrap().items.is_empty()
        && namespaces.get_opt("node-maintenance").await.unwrap().is_none()
}

/// Installs as somebody who may see everything and change what these rules say.
async fn install_as(cluster: &Cluster, changes: &[Value]) -> Outcome {
    let workload = Workload::new(cluster, "installer").await;
    let rules =
        [&[json!({"apiGroups": ["*"], "resources": ["*"], "verbs": ["get", "list", "watch"]})], changes]
            .concat();
    let role: ClusterRole =
        serde_json::from_value(json!({"metadata": {"name": "installer"}, "rules": rules})).unwrap();
    let binding: ClusterRoleBinding = serde_json::from_value(json!({"metadata": {"name": "installer"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "installer"},
        "subjects": [{"kind": "ServiceAccount", "name": "default", "namespace": workload.namespace()}]}))
    .unwrap();
    let params = PostParams::default();
    Api::all(cluster.client.clone()).create(&params, &role).await.unwrap();
    Api::all(cluster.client.clone()).create(&params, &binding).await.unwrap();
    let kubeconfig = cluster.kubeconfig_of(&account("default", workload.namespace())).await;
    plugin_of(&kubeconfig, &INSTALL).await
}

#[tokio::test(flavor = "multi_thread")]
async fn names_that_cannot_be_are_refused_at_once() {
    let cluster = Cluster::bare_sandbox(1, 0, |sandbox| sandbox).await;
    let namespace = "error: invalid value 'Foo_x' for '--namespace <NAME>': a namespace's name consists of at most 63 \
        lower case letters, digits and '-', and neither begins nor ends with '-'\n\nFor more information, try '--help'.\n";
    let image = "error: invalid value 'a b' for '--image <IMAGE>': it is no image's name, such as \
        registry.example.com/you/nm-reconciler:0.1.0\n\nFor more information, try '--help'.\n";
    for (args, said) in [
        (&["install", "-n", "Foo_x"][..], namespace),
        (&["install", "--dry-run", "client", "-n", "Foo_x"], namespace),
        (&["install", "--image", "a b"], image),
        (&["install", "--dry-run", "client", "--image", "a b"], image),
    ] {
        plugin(&cluster, args).await.expect(2, "", said);
    }
    assert!(is_untouched(&cluster).await);
}

#[tokio::test(flavor = "multi_thread")]
async fn rights_that_are_missing_for_the_last_object_are_missed_before_the_first() {
    let cluster = Cluster::bare_sandbox(1, 0, |sandbox| sandbox).await;
    let changes: Vec<Value> = [
        ("apiextensions.k8s.io", "*"),
        ("rbac.authorization.k8s.io", "*"),
        ("admissionregistration.k8s.io", "*"),
        ("policy", "*"),
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
        "error: you may not create services, create deployments.apps, patch services, patch deployments.apps\n\
         hint: nothing was changed; `kubectl nm doctor` tells which rights each command needs\n",
    );
    assert!(is_untouched(&cluster).await);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_the_server_refuses_to_rehearse_is_not_begun() {
    let cluster = Cluster::bare_sandbox(1, 0, |sandbox| sandbox).await;
    let definitions =
        json!({"apiGroups": ["apiextensions.k8s.io"], "resources": ["*"], "verbs": ["create", "patch"]});
    let refused = install_as(&cluster, &[definitions]).await;
    assert_eq!((refused.code, refused.stdout.as_str()), (Some(1), ""), "{refused:?}");
    assert!(refused.stderr.starts_with("Error from server (Forbidden): namespaces "), "{refused:?}");
    assert!(refused.stderr.contains("\nhint: you need the right to patch namespaces; "), "{refused:?}");
    assert!(is_untouched(&cluster).await);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_installation_that_ends_midway_says_how_far_it_came_and_goes_on() {
    let cluster = Cluster::bare_sandbox(1, 0, |sandbox| sandbox).await;
    let deployments = Target::any().verb("create").verb("patch").resource("deployments");
    let faults = cluster.sandbox().unwrap().faults();
    let refused = faults.add(Rule::new(deployments, Action::Fail(Failure::Forbidden, Moment::BeforeEffect)));
    let midway = plugin(&cluster, &INSTALL).await;
    let all = manifests::all().len();
    let applied = midway.stdout.lines().count();
    assert!(midway.code == Some(1) && (1..all).contains(&applied), "{midway:?}");
    let told: Vec<&str> = midway.stderr.lines().filter(|line| !line.ends_with(" ...")).collect();
    assert!(told[0].starts_with("Error from server (Forbidden): deployments.apps "), "{midway:?}");
    assert_eq!(
        told[told.len() - 1],
        format!(
            "hint: {applied} of {all} objects are applied and stay; the same command goes on from there, \
             `kubectl nm uninstall` removes them"
        )
    );

    faults.remove(refused);
    let whole = plugin(&cluster, &INSTALL).await.ok();
    let unchanged = whole.stdout.lines().filter(|line| line.ends_with(" unchanged")).count();
    assert_eq!((unchanged, whole.stdout.lines().count()), (applied, all), "{whole:?}");
}
