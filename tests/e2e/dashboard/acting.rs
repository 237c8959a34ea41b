//! Actions on the selected row of the dashboard, in a terminal.

use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding};
use kube::Api;
use kube::api::{Patch, PatchParams, PostParams};
use nm_shared::BlockReason;
use nm_tests::cluster::Cluster;
use nm_tests::maintenance::{start, until_blocked};
use nm_tests::reconciler::Reconciler;
use nm_tests::skip::{has_kubectl, skipped};
use nm_tests::terminal::Terminal;
use nm_tests::terminal::keys::{ENTER, ESCAPE};
use nm_tests::wait::wait_until;
use nm_tests::workload::{Workload, node_of, parse};
use serde_json::json;

use crate::dashboard::setup::{Blocked, confirm_plan, program_in_path, quit};

/// Whether logs of a node's pods can be read. The node of a cluster for tests may have no kubelet.
async fn has_kubelet(cluster: &Cluster, node: &str) -> bool {
    let status = cluster.node(node).await.status.unwrap_or_default();
    cluster.is_sandbox() || status.addresses.is_some()
}

#[tokio::test(flavor = "multi_thread")]
async fn logs_and_descriptions_are_pages_with_the_command_and_come_back_to_the_row() {
    if !has_kubectl() {
        return;
    }
    let blocked = Blocked::start("reading").await;
    if !has_kubelet(&blocked.cluster, &blocked.node).await {
        return skipped("the node has no kubelet to ask for logs");
    }
    let patch = json!({"metadata": {"annotations": {"kube-sandbox.dev/log": "first line\nsecond line\n"}}});
    let pods = blocked.workload.pods();
    pods.patch(&blocked.pod, &PatchParams::default(), &Patch::Merge(patch)).await.unwrap();
    let terminal = blocked.dashboard(&[], &[]).await;
    terminal.press("l");
    let page = terminal.until_shown("ended").await;
    let space = blocked.workload.namespace();
    assert!(page.contains(&format!("kubectl -n {space} logs {} ", blocked.pod)), "{page}");
    if blocked.cluster.sandbox().is_some() {
        assert!(page.contains("first line") && page.contains("second line"), "{page}");
    }
    terminal.press(ESCAPE);
    terminal.until_shown("NAMESPACE/POD").await;
    terminal.press("d");
    let page = terminal.until_shown("ended").await;
    assert!(page.contains(&format!("kubectl -n {space} describe pod {}", blocked.pod)), "{page}");
    assert!(page.contains("Namespace:") && page.contains(space), "{page}");
    terminal.press(ESCAPE);
    terminal.until_shown("NAMESPACE/POD").await;
    quit(terminal).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn without_kubectl_the_key_says_so_and_with_a_failure_why() {
    let blocked = Blocked::start("missing").await;
    let files = tempfile::tempdir().unwrap();
    let empty = files.path().to_str().unwrap();
    let terminal = blocked.dashboard(&[], &[("PATH", empty)]).await;
    terminal.press("l");
    terminal.until_shown("there is no kubectl in PATH").await;
    terminal.press(ESCAPE);
    terminal.until_shown("NAMESPACE/POD").await;
    let denied = "#!/bin/sh\necho \"Error from server (Forbidden): pods \\\"a\\\" is forbidden: User \\\"ann\\\" cannot get \
                  resource \\\"pods/log\\\" in API group \\\"\\\"\" >&2\nexit 1\n";
    let _ = program_in_path(files.path(), "kubectl", denied);
    terminal.press("l");
    terminal.until_shown("ann may not get pods/log").await;
    terminal.press(ESCAPE);
    terminal.until_shown("NAMESPACE/POD").await;
    quit(terminal).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_eviction_is_refused_with_words_and_accepted_once_the_budget_allows_it() {
    let blocked = Blocked::start("evict").await;
    let terminal = blocked.dashboard(&[], &[]).await;
    terminal.press("R");
    let question = terminal.until_shown("[Enter] evict").await;
    assert!(question.contains(&format!("evict {}", blocked.path())), "{question}");
    assert!(question.contains("allows 0 disruptions now (needs 1, has 1)"), "{question}");
    assert!(question.contains("kubectl create --raw"), "{question}");
    terminal.press(ENTER);
    terminal.until_shown("eviction refused: PDB").await;
    terminal.press("R");
    terminal.until_shown("[Enter] evict").await;
    blocked.workload.delete_budget("cart").await;
    let pods = blocked.workload.pods();
    terminal.press(ENTER);
    let answered = |screen: &vt100::Screen| {
        let shown = screen.contents();
        shown.contains("eviction accepted") || shown.contains("is gone already")
    };
    terminal.until("the answer", answered).await;
    wait_until(&pods, &blocked.pod, "gone", |found| found.is_none()).await;
    quit(terminal).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pod_is_deleted_past_its_budget_only_after_the_word_was_typed() {
    let blocked = Blocked::start("delete").await;
    let terminal = blocked.dashboard(&[], &[]).await;
    terminal.press("D");
    let question = terminal.until_shown("Type delete to delete it:").await;
    for said in ["allows 0 disruptions now (needs 1, has 1)", "deletion bypasses it", "recreates it"] {
        assert!(question.contains(said), "{said}: {question}");
    }
    assert!(
        question.contains(&format!("kubectl -n {} delete pod", blocked.workload.namespace())),
        "{question}"
    );
    terminal.press(ENTER);
    terminal.press("dele");
    terminal.until("the letters", |screen| screen.contents().contains("it: dele")).await;
    assert!(!terminal.screen().contains("[Enter] delete"));
    assert!(blocked.workload.pods().get_opt(&blocked.pod).await.unwrap().is_some(), "nothing is deleted yet");
    terminal.press("te");
    terminal.until_shown("[Enter] delete").await;
    terminal.press(ENTER);
    wait_until(&blocked.workload.pods(), &blocked.pod, "gone", |found| found.is_none()).await;
    quit(terminal).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_question_says_what_is_lost_for_ever() {
    let cluster = Cluster::start(2).await;
    let workload = Workload::new(&cluster, "lost").await;
    let node = &cluster.nodes().await[0];
    let spec = json!({"spec": {"volumes": [{"name": "cache", "emptyDir": {}}]}});
    workload.pod_on(node, "bare", spec).await;
    start(&cluster, node, node).await;
    let terminal = Terminal::run_plugin(cluster.kubeconfig(), &["watch", node], &[]);
    terminal.until_live().await;
    terminal.press("/bare");
    terminal.press(ENTER);
    terminal.until("the pod", |screen| screen.contents().contains("1 of ")).await;
    terminal.press("D");
    let question = terminal.until_shown("Type delete to delete it:").await;
    for said in ["emptyDir volumes is lost", "never comes back", "No disruption budget guards it"] {
        assert!(question.contains(said), "{said}: {question}");
    }
    terminal.press(ESCAPE);
    terminal.until("no dialog", |screen| !screen.contents().contains("Type delete")).await;
    quit(terminal).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn read_only_leaves_out_every_key_that_changes_something() {
    let blocked = Blocked::start("readonly").await;
    let terminal = blocked.dashboard(&["--readonly"], &[]).await;
    let footer = terminal.screen();
    for key in ["[R]", "[D]", "[E]", "[n]", "[x]", "[p]", "[t]"] {
        assert!(!footer.contains(key), "{key}: {footer}");
    }
    assert!(footer.contains("[l]") && footer.contains("[d]"), "{footer}");
    for (key, name) in [("R", "evict"), ("D", "delete"), ("n", "start")] {
        terminal.press(key);
        terminal.until_shown(&format!("read-only: {name} is disabled")).await;
    }
    quit(terminal).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_missing_permission_is_named_before_and_after_the_request() {
    let Some(cluster) = Cluster::sandbox_or_skip(2, "it adds a user").await else { return };
    let sandbox = cluster.sandbox().unwrap();
    let workload = Workload::new(&cluster, "denied").await;
    let pod = workload.pod_behind_budget("cart").await;
    let node = node_of(&pod).to_owned();
    start(&cluster, &node, &node).await;
    let _reconciler = Reconciler::start(&cluster);
    until_blocked(&cluster, &node, BlockReason::DisruptionBudget).await;
    let files = tempfile::tempdir().unwrap();
    let kubeconfig = files.path().join("kubeconfig");
    std::fs::write(&kubeconfig, sandbox.add_user("ann", &["readers"])).unwrap();
    let permitted = json!([{"apiGroups": ["*"], "resources": ["*"], "verbs": ["get", "list", "watch"]}]);
    let role: ClusterRole = parse(json!({"metadata": {"name": "reader"}, "rules": permitted}));
    let roles: Api<ClusterRole> = Api::all(cluster.client.clone());
    roles.create(&PostParams::default(), &role).await.unwrap();
    let binding: ClusterRoleBinding = parse(json!({"metadata": {"name": "readers"},
        "subjects": [{"kind": "Group", "name": "readers", "apiGroup": "rbac.authorization.k8s.io"}],
        "roleRef": {"kind": "ClusterRole", "name": "reader", "apiGroup": "rbac.authorization.k8s.io"}}));
    let bindings: Api<ClusterRoleBinding> = Api::all(cluster.client.clone());
    bindings.create(&PostParams::default(), &binding).await.unwrap();

    let terminal = Terminal::run_plugin(&kubeconfig, &["watch", &node], &[]);
    terminal.resize(30, 140);
    terminal.until_live().await;
    terminal.press("/cart");
    terminal.press(ENTER);
    terminal.until("the pod", |screen| screen.contents().contains("1 of ")).await;
    for (key, denied) in [("D", "ann may not delete pods"), ("R", "ann may not create pods/eviction")] {
        terminal.press(key);
        let question = terminal.until_shown(&format!("Not permitted: {denied}")).await;
        assert!(!question.contains("[Enter]"), "{question}");
        terminal.press(ESCAPE);
        terminal.until("no dialog", |screen| !screen.contents().contains("Not permitted")).await;
    }
    terminal.press("x");
    terminal.until_shown("[Enter] stop").await;
    terminal.press(ENTER);
    terminal.until_shown("ann may not delete nodemaintenances").await;
    quit(terminal).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn marked_maintenances_are_paused_and_resumed_together() {
    let cluster = Cluster::start(2).await;
    let nodes = cluster.nodes().await;
    for node in &nodes[..2] {
        start(&cluster, node, node).await;
    }
    let terminal = Terminal::run_plugin(cluster.kubeconfig(), &["watch"], &[]);
    terminal.until_live().await;
    terminal.until_shown(&nodes[1]).await;
    for (title, suspended) in [("pause 2 maintenances", true), ("resume 2 maintenances", false)] {
        terminal.press("g  p");
        terminal.until_shown(title).await;
        terminal.press("2");
        if suspended {
            terminal.press(ENTER);
        } else {
            confirm_plan(&terminal).await;
        }
        for node in &nodes[..2] {
            let is_as_asked = |found: Option<&nm_shared::NodeMaintenance>| {
                found.is_some_and(|it| it.spec.suspend == suspended)
            };
            wait_until(&cluster.maintenances(), node, title, is_as_asked).await;
        }
        let word = if suspended { "paused: " } else { "resumed: " };
        terminal.until_shown(word).await;
    }
    quit(terminal).await;
}
