//! `kubectl nm start` and `stop` to the letter: what they print, where, and with which exit code.

use std::io::Write;

use k8s_openapi::api::core::v1::{Node, ServiceAccount};
use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding};
use kube::api::{DeleteParams, Patch, PatchParams};
use kube::{Api, ResourceExt};
use nm_tests::cluster::Cluster;
use nm_tests::programs::{plugin, plugin_of, program};
use nm_tests::reconciler::Reconciler;
use nm_tests::terminal::Terminal;
use nm_tests::workload::{Workload, node_of};
use serde_json::{Value, json};

#[tokio::test(flavor = "multi_thread")]
async fn each_step_is_said_in_a_line() {
    let cluster = Cluster::start(2).await;
    let nodes = cluster.nodes().await;
    let (a, b) = (nodes[0].as_str(), nodes[1].as_str());
    let say = async |args: &[&str]| plugin(&cluster, args).await;

    let dry = say(&["start", a, b, "--dry-run", "client", "--force=false"]).await;
    let lines = |suffix: &str| {
        format!("node/{a} maintenance started{suffix}\nnode/{b} maintenance started{suffix}\n")
    };
    dry.expect(0, &lines(" (dry run)"), "");
    let dry = say(&["start", a, b, "--dry-run", "server"]).await;
    dry.expect(0, &lines(" (server dry run)"), "");
    assert_eq!(cluster.maintenances().get_opt(a).await.unwrap(), None);

    let started =
        say(&["start", a, "--reason", "kernel", "--timeout", "10m", "--order", "PriorityAscending"]).await;
    started.expect(0, &format!("node/{a} maintenance started\n"), "");
    let spec = cluster.maintenances().get(a).await.unwrap().spec;
    assert_eq!(spec.reason.as_deref(), Some("kernel"));
    assert_eq!(
        serde_json::to_value(spec.drain).unwrap(),
        json!({"gracePeriodSeconds": -1, "force": true, "deleteEmptyDirData": true, "timeoutSeconds": 600,
            "skipWaitForDeleteTimeoutSeconds": 0, "deleteAfterSeconds": 0, "order": "PriorityAscending"})
    );
    let again = say(&["start", a, "--timeout", "10m"]).await;
    again.expect(0, &format!("node/{a} is already in maintenance\n"), "");
    let other = say(&["start", b, a, "-y", "--reason", "disk"]).await;
    other.expect(
        1,
        &format!("node/{b} maintenance started\n"),
        &format!(
            "error: node \"{a}\" is in maintenance already, but reason is \"kernel\" and not \"disk\"\n\
             hint: `kubectl patch nm {a} --type=merge -p '{{\"spec\":{{\"reason\":\"disk\"}}}}'` changes it\n"
        ),
    );
    let name = say(&["start", a, "-o", "name"]).await;
    name.expect(0, &format!("nodemaintenance.nodemaintenance.medik8s.io/{a}\n"), "");
    let columns =
        say(&["start", a, b, "-y", "-o", "custom-columns=NODE:.spec.nodeName,WHY:.spec.reason"]).await;
    let width = a.len().max(b.len()) + 3;
    columns.expect(0, &format!("{:width$}WHY\n{a:width$}kernel\n{b:width$}disk\n", "NODE"), "");

    let unconfirmed = say(&["stop", "--all"]).await;
    let refusal = "error: 2 nodes are concerned, and there is no terminal to ask on: -y confirms\n";
    unconfirmed.expect(2, "", refusal);
    let stopped = say(&["stop", "--all", "-y"]).await;
    stopped.expect(0, &format!("node/{a} maintenance stopped\nnode/{b} maintenance stopped\n"), "");
    say(&["stop", a]).await.expect(0, &format!("node/{a} is not in maintenance\n"), "");
    say(&["stop", "--all"]).await.expect(0, "", "No maintenances found.\n");
}

#[tokio::test(flavor = "multi_thread")]
async fn nodes_are_chosen_by_labels_and_by_files() {
    let cluster = Cluster::start(3).await;
    let nodes = cluster.nodes().await;
    let (a, b) = (nodes[0].as_str(), nodes[1].as_str());
    let api: Api<Node> = Api::all(cluster.client.clone());
    let label = async |value: Value| {
        for node in [a, b] {
            let patch = Patch::Merge(json!({"metadata": {"labels": {"kubectl-nm.dev/e2e-pool": value}}}));
            api.patch(node, &PatchParams::default(), &patch).await.unwrap();
        }
    };
    label(json!("blue")).await;
    let blue = "kubectl-nm.dev/e2e-pool=blue";
    let refused = plugin(&cluster, &["start", "-l", blue]).await;
    let refusal = "error: 2 nodes are concerned, and there is no terminal to ask on: -y confirms\n";
    refused.expect(2, "", refusal);
    let started = plugin(&cluster, &["start", "-l", blue, "-y"]).await;
    started.expect(0, &format!("node/{a} maintenance started\nnode/{b} maintenance started\n"), "");
    let stopped = plugin(&cluster, &["stop", "-l", blue, "-y"]).await;
    stopped.expect(0, &format!("node/{a} maintenance stopped\nnode/{b} maintenance stopped\n"), "");
    label(Value::Null).await;
    let none = plugin(&cluster, &["start", "-l", blue, "-y"]).await;
    assert_eq!((none.code, none.stdout.as_str()), (Some(1), ""));
    let complaint = format!("error: no node has labels that match \"{blue}\"\nhint: ");
    assert!(none.stderr.starts_with(&complaint), "{none:?}");

    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), format!("# the first pool\n{a}\nnode/{b} # twice\n{b}\n")).unwrap();
    let path = file.path().to_str().unwrap();
    let started = plugin(&cluster, &["start", "-f", path, "-y"]).await;
    started.expect(0, &format!("node/{a} maintenance started\nnode/{b} maintenance started\n"), "");
    let _ = plugin(&cluster, &["stop", "--all", "-y"]).await.ok();
    let mut piped = std::process::Command::new(program("kubectl-nm"))
        .args(["start", "-f", "-", "-y"])
        .env("KUBECONFIG", cluster.kubeconfig())
        .stdin(std::process::Stdio::piped())
        .stdout(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    piped.stdin.take().unwrap().write_all(format!("{b}\nnode/{a}\n").as_bytes()).unwrap();
    let piped = piped.wait_with_output().unwrap();
    assert_eq!(
        (piped.status.code(), String::from_utf8(piped.stdout).unwrap()),
        (Some(0), format!("node/{b} maintenance started\nnode/{a} maintenance started\n"))
    );
    let broken = plugin(&cluster, &["start", "-f", "/nowhere/nodes"]).await;
    assert_eq!((broken.code, broken.stdout.as_str()), (Some(1), ""));
    assert!(broken.stderr.starts_with("error: cannot take nodes from /nowhere/nodes: "), "{broken:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_does_not_exist_is_told_with_what_was_meant() {
    let cluster = Cluster::start(1).await;
    let node = &cluster.nodes().await[0];
    let wrong = format!("{node}x");
    let refused = plugin(&cluster, &["start", &wrong]).await;
    assert_eq!((refused.code, refused.stdout.as_str()), (Some(1), ""));
    let complaint =
        format!("Error from server (NotFound): nodes \"{wrong}\" not found; did you mean {node}?\nhint: ");
    assert!(refused.stderr.starts_with(&complaint), "{refused:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn without_rights_the_one_that_is_missing_is_named() {
    let cluster = Cluster::start(1).await;
    let node = &cluster.nodes().await[0];
    let workload = Workload::new(&cluster, "nobody").await;
    let account = account("default", workload.namespace());
    let nobody = cluster.kubeconfig_of(&account).await;
    let user = format!("system:serviceaccount:{}:default", workload.namespace());
    let resource = "nodemaintenances.nodemaintenance.medik8s.io";
    for args in [["start", node], ["stop", node], ["status", node], ["watch", node]] {
        let refused = plugin_of(&nobody, &args).await;
        refused.expect(
            1,
            "",
            &format!(
                "Error from server (Forbidden): {resource} is forbidden: User \"{user}\" cannot list resource \
                 \"nodemaintenances\" in API group \"nodemaintenance.medik8s.io\" at the cluster scope\n\
                 hint: you need the right to list {resource}; `kubectl auth can-i list {resource}` tells whether you \
                 have it\n"
            ),
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn rights_on_maintenances_alone_are_enough() {
    let cluster = Cluster::start(1).await;
    let node = &cluster.nodes().await[0];
    let workload = Workload::new(&cluster, "maintainer").await;
    let account = account("default", workload.namespace());
    let rights = Rights::grant(&cluster, &account).await;
    let maintainer = cluster.kubeconfig_of(&account).await;
    let started = plugin_of(&maintainer, &["start", node]).await;
    let unchecked = format!("node/{node}: you may not read nodes, so nobody checked that it exists\n");
    started.expect(0, &format!("node/{node} maintenance started\n"), &unchecked);
    let stopped = plugin_of(&maintainer, &["stop", node]).await;
    stopped.expect(0, &format!("node/{node} maintenance stopped\n"), "");
    rights.revoke(&cluster).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn on_a_terminal_more_than_one_node_is_asked_about() {
    let cluster = Cluster::start(2).await;
    let nodes = cluster.nodes().await;
    let (a, b) = (nodes[0].as_str(), nodes[1].as_str());
    let kubeconfig = cluster.kubeconfig().to_str().unwrap().to_owned();
    let env = [("KUBECONFIG", kubeconfig.as_str())];
    let start = || Terminal::run(&program("kubectl-nm"), &["start", a, b], &env, 24, 100);
    for (answer, code, there) in [("\r", 2, false), ("n\r", 2, false), ("y\r", 0, true)] {
        let mut terminal = start();
        let question = "Put these 2 nodes into maintenance and move their pods away? [y/N]";
        let screen = terminal.until_shown(question).await;
        assert!(screen.contains(&format!("node/{a}\nnode/{b}\n")), "{screen}");
        terminal.press(answer);
        assert_eq!(terminal.exit_code().await, code, "{}", terminal.screen());
        assert_eq!(cluster.maintenances().get_opt(b).await.unwrap().is_some(), there, "{answer:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_drain_that_is_given_up_has_timed_out() {
    let cluster = Cluster::start(2).await;
    let workload = Workload::new(&cluster, "patience").await;
    let node = node_of(&workload.pod_behind_budget("cart").await).to_owned();
    let _reconciler = Reconciler::start(&cluster);
    let timed_out = plugin(&cluster, &["start", &node, "--wait", "--timeout", "1s", "-o", "name"]).await;
    assert_eq!(timed_out.code, Some(124), "{timed_out:?}");
    assert_eq!(timed_out.stdout, format!("nodemaintenance.nodemaintenance.medik8s.io/{node}\n"));
}

/// A service account by its names.
pub(crate) fn account(name: &str, namespace: &str) -> ServiceAccount {
    serde_json::from_value(json!({"metadata": {"name": name, "namespace": namespace}})).unwrap()
}

/// The right to do everything with maintenances, and nothing else.
pub(crate) struct Rights(String);

impl Rights {
    pub(crate) async fn grant(cluster: &Cluster, account: &ServiceAccount) -> Self {
        Self::grant_with(cluster, account, &[]).await
    }

    /// The same with the right to list these resources, as `RESOURCE.GROUP`, of all namespaces.
    pub(crate) async fn grant_with(cluster: &Cluster, account: &ServiceAccount, lists: &[&str]) -> Self {
        let (name, namespace) = (account.name_any(), account.namespace().unwrap());
        let role_name = format!("{namespace}-maintainer");
        let own = json!({"apiGroups": ["nodemaintenance.medik8s.io"], "resources": ["nodemaintenances"], "verbs": ["*"]});
        let list = |name: &&str| {
            let (resource, group) = name.split_once('.').unwrap_or((name, ""));
            json!({"apiGroups": [group], "resources": [resource], "verbs": ["get", "list"]})
        };
        let rules: Vec<Value> = std::iter::once(own).chain(lists.iter().map(list)).collect();
        let role: ClusterRole =
            serde_json::from_value(json!({"metadata": {"name": role_name}, "rules": rules})).unwrap();
        let binding: ClusterRoleBinding = serde_json::from_value(json!({
            "metadata": {"name": role_name},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role_name},
            "subjects": [{"kind": "ServiceAccount", "name": name, "namespace": namespace}],
        }))
        .unwrap();
        let client = || cluster.client.clone();
        Api::all(client()).create(&kube::api::PostParams::default(), &role).await.unwrap();
        Api::all(client()).create(&kube::api::PostParams::default(), &binding).await.unwrap();
        Self(role_name)
    }

    pub(crate) async fn revoke(self, cluster: &Cluster) {
        let params = DeleteParams::default();
        Api::<ClusterRoleBinding>::all(cluster.client.clone()).delete(&self.0, &params).await.unwrap();
        Api::<ClusterRole>::all(cluster.client.clone()).delete(&self.0, &params).await.unwrap();
    }
}
