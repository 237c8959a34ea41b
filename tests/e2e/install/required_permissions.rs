//! The permissions that `kubectl nm doctor` reports as required are enough to install and uninstall.
//!
//! The test grants what the doctor reports as missing, so that no permission is listed twice. Only a sandbox logs what it
//! refused.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use k8s_openapi::api::rbac::v1::ClusterRole;
use kube::Api;
use kube::api::{Patch, PatchParams};
use kube_sandbox::request_log::Entry;
use nm_shared::Group;
use nm_tests::cluster::Cluster;
use nm_tests::older_groups;
use nm_tests::programs::{plugin, plugin_of};
use nm_tests::rbac::{bind_cluster_role, service_account};
use nm_tests::webhook::serve_installed_webhook;
use nm_tests::workload::Workload;
use serde_json::{Value, json};

const IMAGE: &str = "registry.example.com/you/nm-reconciler:0.1.0";

/// The name of the user's role and of its binding.
const ROLE: &str = "e2e-user";

/// Verb, API group and resource.
type Permission = (String, String, String);

/// A service account with the permissions of one role.
struct User {
    roles: Api<ClusterRole>,
    name: String,
    kubeconfig: PathBuf,
}

impl User {
    async fn new(cluster: &Cluster, namespace: &str) -> Self {
        bind_cluster_role(cluster, ROLE, namespace, &[]).await;
        let kubeconfig = cluster.kubeconfig_of(&service_account("default", namespace)).await;
        let roles = Api::all(cluster.client.clone());
        Self { roles, name: format!("system:serviceaccount:{namespace}:default"), kubeconfig }
    }

    async fn grant_only(&self, permissions: &BTreeSet<Permission>) {
        let rule = |(verb, group, resource): &Permission| json!({"verbs": [verb], "apiGroups": [group], "resources": [resource]});
        let rules: Vec<Value> = permissions.iter().map(rule).collect();
        let patch = Patch::Merge(json!({"rules": rules}));
        self.roles.patch(ROLE, &PatchParams::default(), &patch).await.unwrap();
    }

    /// Starts with no permissions, and grants each one that the doctor reports as missing, until none is missing.
    async fn grant_what_is_missing_for(&self, command: &str) {
        let mut permissions = BTreeSet::new();
        self.grant_only(&permissions).await;
        while let Some(permission) = missing(&self.kubeconfig, command).await {
            assert!(
                permissions.insert(permission),
                "a granted permission is reported as missing: {permissions:?}"
            );
            self.grant_only(&permissions).await;
        }
    }

    async fn run(&self, args: &[&str]) -> String {
        plugin_of(&self.kubeconfig, args).await.ok().stdout
    }

    /// Requests that were refused for a missing permission. A dry run of a maintenance is left out: the webhook may have
    /// refused it, and no command continues after that.
    fn refused(&self, requests: &[Entry]) -> Vec<String> {
        let is_one = |entry: &&Entry| {
            entry.user == self.name
                && entry.code == 403
                && (entry.verb, entry.resource.as_str()) != ("create", "nodemaintenances")
        };
        let refused = requests.iter().filter(is_one);
        refused.map(|entry| format!("{} {}.{}", entry.verb, entry.resource, entry.group)).collect()
    }
}

/// The first permission that the doctor reports as missing for a command.
async fn missing(kubeconfig: &Path, command: &str) -> Option<Permission> {
    let outcome = plugin_of(kubeconfig, &["doctor", "-o", "json"]).await;
    let report: Value = serde_json::from_str(&outcome.stdout).unwrap();
    let messages = report["findings"].as_array().unwrap().iter().filter_map(|one| one["message"].as_str());
    let messages: Vec<&str> = messages.collect();
    let about = |message: &&&str| {
        let words = message.strip_prefix("you cannot run ").or(message.strip_prefix("you can run "));
        words.is_some_and(|words| words.split([' ', ';']).next() == Some(command))
    };
    let (_, permissions) = messages.iter().find(about)?.split_once("; missing permissions: ").unwrap();
    let (verbs, object) = permissions.split(", ").next().unwrap().split_once(' ').unwrap();
    let verb = verbs.split('/').next().unwrap();
    let (resource, group) = object.split_once('.').unwrap_or((object, ""));
    Some((verb.to_owned(), group.to_owned(), resource.to_owned()))
}

#[tokio::test(flavor = "multi_thread")]
async fn the_permissions_that_the_doctor_requires_are_enough_to_install_and_uninstall() {
    let cluster = Cluster::bare_sandbox(2, 0, |sandbox| sandbox).await;
    let workload = Workload::new(&cluster, "user").await;
    let user = User::new(&cluster, workload.namespace()).await;
    let log = cluster.sandbox().unwrap().requests();

    user.grant_what_is_missing_for("install").await;
    let before = log.all().len();
    user.run(&["install", "--image", IMAGE, "--wait=false"]).await;
    let _reconciler = serve_installed_webhook(&cluster, &[]).await;
    let ready = user.run(&["install", "--timeout", "60s"]).await;
    assert!(ready.ends_with("and its webhook works\n"), "{ready}");
    assert_eq!(user.refused(&log.all()[before..]), Vec::<String>::new());

    // The maintenances of this group would have to be stopped first.
    older_groups::install(&cluster.client, Group::Kubevirt).await;
    user.grant_what_is_missing_for("uninstall").await;
    let before = log.all().len();
    user.run(&["uninstall", "-y", "--timeout", "60s"]).await;
    // In a namespace that others created, the reconciler's objects are deleted one by one.
    let theirs = workload.namespace();
    let _ = plugin(&cluster, &["install", "-n", theirs, "--image", IMAGE, "--wait=false"]).await.ok();
    user.run(&["uninstall", "-n", theirs, "-y", "--timeout", "60s"]).await;
    assert_eq!(user.refused(&log.all()[before..]), Vec::<String>::new());
}
