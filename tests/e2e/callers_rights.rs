//! Who has exactly the rights that `kubectl nm doctor` asks for may install and uninstall. Which these are it says itself, so
//! that none is written down twice; and only a sandbox tells what it refused.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding};
use kube::Api;
use kube::api::{Patch, PatchParams, PostParams};
use kube_sandbox::request_log::Entry;
use nm_shared::Group;
use nm_shared::api::names::WEBHOOK;
use nm_tests::cluster::Cluster;
use nm_tests::programs::{plugin, plugin_of};
use nm_tests::workload::Workload;
use nm_tests::{older_groups, webhook};
use serde_json::{Value, json};

use crate::start_stop::account;

const IMAGE: &str = "registry.example.com/you/nm-reconciler:0.1.0";

/// The name of the caller's role, and of what binds it.
const ROLE: &str = "e2e-caller";

/// Verb, API group and resource.
type Right = (String, String, String);

/// A service account that may do what one role says.
struct Caller {
    roles: Api<ClusterRole>,
    user: String,
    kubeconfig: PathBuf,
}

impl Caller {
    async fn new(cluster: &Cluster, namespace: &str) -> Self {
        let role: ClusterRole =
            serde_json::from_value(json!({"metadata": {"name": ROLE}, "rules": []})).unwrap();
        let binding: ClusterRoleBinding = serde_json::from_value(json!({
            "metadata": {"name": ROLE},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": ROLE},
            "subjects": [{"kind": "ServiceAccount", "name": "default", "namespace": namespace}],
        }))
        .unwrap();
        let (roles, params) = (Api::all(cluster.client.clone()), PostParams::default());
        roles.create(&params, &role).await.unwrap();
        Api::all(cluster.client.clone()).create(&params, &binding).await.unwrap();
        let kubeconfig = cluster.kubeconfig_of(&account("default", namespace)).await;
        Self { roles, user: format!("system:serviceaccount:{namespace}:default"), kubeconfig }
    }

    async fn may(&self, rights: &BTreeSet<Right>) {
        let rule = |(verb, group, resource): &Right| json!({"verbs": [verb], "apiGroups": [group], "resources": [resource]});
        let rules: Vec<Value> = rights.iter().map(rule).collect();
        let patch = Patch::Merge(json!({"rules": rules}));
        self.roles.patch(ROLE, &PatchParams::default(), &patch).await.unwrap();
    }

    /// From nothing on, grants each right that the doctor misses, until it misses none.
    async fn may_only_run(&self, command: &str) {
        let mut rights = BTreeSet::new();
        self.may(&rights).await;
        while let Some(right) = missing(&self.kubeconfig, command).await {
            assert!(rights.insert(right), "what was granted is missing still: {rights:?}");
            self.may(&rights).await;
        }
    }

    async fn run(&self, args: &[&str]) -> String {
        plugin_of(&self.kubeconfig, args).await.ok().stdout
    }

    /// What was refused for want of a right. That of a dry run may be the webhook's answer, and no command goes on without
    /// one.
    fn refused(&self, requests: &[Entry]) -> Vec<String> {
        let is_one = |entry: &&Entry| {
            entry.user == self.user
                && entry.code == 403
                && (entry.verb, entry.resource.as_str()) != ("create", "nodemaintenances")
        };
        let refused = requests.iter().filter(is_one);
        refused.map(|entry| format!("{} {}.{}", entry.verb, entry.resource, entry.group)).collect()
    }
}

/// The first right that the doctor misses for a command; none if it names none for that.
async fn missing(kubeconfig: &Path, command: &str) -> Option<Right> {
    let said = plugin_of(kubeconfig, &["doctor", "-o", "json"]).await;
    let report: Value = serde_json::from_str(&said.stdout).unwrap();
    let messages = report["findings"].as_array().unwrap().iter().filter_map(|one| one["message"].as_str());
    let messages: Vec<&str> = messages.collect();
    let about = |message: &&&str| {
        let words = message.strip_prefix("you may not run ").or(message.strip_prefix("you may run "));
        words.is_some_and(|words| words.split([' ', ';']).next() == Some(command))
    };
    let (_, lacking) = messages.iter().find(about)?.split_once("; missing permissions: ").unwrap();
    let (verbs, object) = lacking.split(", ").next().unwrap().split_once(' ').unwrap();
    let verb = verbs.split('/').next().unwrap();
    let (resource, group) = object.split_once('.').unwrap_or((object, ""));
    Some((verb.to_owned(), group.to_owned(), resource.to_owned()))
}

#[tokio::test(flavor = "multi_thread")]
async fn the_rights_that_the_doctor_asks_for_are_enough_to_install_and_uninstall() {
    let cluster = Cluster::bare_sandbox(2, 0, |sandbox| sandbox).await;
    let workload = Workload::new(&cluster, "caller").await;
    let caller = Caller::new(&cluster, workload.namespace()).await;
    let log = cluster.sandbox().unwrap().requests();

    caller.may_only_run("install").await;
    let before = log.all().len();
    caller.run(&["install", "--image", IMAGE, "--wait=false"]).await;
    cluster.admit_reconciler().await;
    let reconciler = webhook::start(&cluster, &[]);
    let address = webhook::address(&reconciler).await;
    cluster.sandbox().unwrap().cluster().admission.services.serve(&webhook::namespace(), WEBHOOK, address);
    webhook::believed(&cluster).await;
    let ready = caller.run(&["install", "--timeout", "60s"]).await;
    assert!(ready.ends_with("and the webhook answers\n"), "{ready}");
    assert_eq!(caller.refused(&log.all()[before..]), Vec::<String>::new());

    // A group whose maintenances would have to be ended first.
    older_groups::install(&cluster.client, Group::Kubevirt).await;
    caller.may_only_run("uninstall").await;
    let before = log.all().len();
    caller.run(&["uninstall", "-y", "--timeout", "60s"]).await;
    // A namespace that others have made stays, and what nm-reconciler makes there is removed one by one.
    let theirs = workload.namespace();
    let _ = plugin(&cluster, &["install", "-n", theirs, "--image", IMAGE, "--wait=false"]).await.ok();
    caller.run(&["uninstall", "-n", theirs, "-y", "--timeout", "60s"]).await;
    assert_eq!(caller.refused(&log.all()[before..]), Vec::<String>::new());
}
