//! What `kubectl nm start` says before it begins: what the drain would harm, and that nobody leads.

use std::path::Path;

use kube_sandbox::faults::{Action, Moment, Rule, Target};
use nm_tests::cluster::Cluster;
use nm_tests::leader_election::{LONG_LEASE, until_leads};
use nm_tests::programs::{plugin, plugin_of};
use nm_tests::rbac::{MaintenanceAccess, service_account};
use nm_tests::reconciler::Reconciler;
use nm_tests::terminal::Terminal;
use nm_tests::workload::Workload;
use serde_json::json;

const WHY: &str = "a real cluster's nodes have other pods";

/// A cluster with two nodes in each zone, and a reconciler that leads.
async fn led() -> Option<(Cluster, Reconciler, Vec<String>)> {
    let cluster = Cluster::sandbox_or_skip(6, WHY).await?;
    let reconciler = Reconciler::start_with(&cluster, LONG_LEASE);
    until_leads(&cluster, &reconciler).await;
    let nodes = cluster.nodes().await;
    Some((cluster, reconciler, nodes))
}

fn terminal(kubeconfig: &Path, args: &[&str]) -> Terminal {
    Terminal::run_plugin(kubeconfig, args, &[])
}

#[tokio::test(flavor = "multi_thread")]
async fn a_start_that_harms_nothing_asks_and_says_nothing() {
    let Some((cluster, _reconciler, nodes)) = led().await else { return };
    let workload = Workload::new(&cluster, "harmless").await;
    workload.deployment("web", 6).await;
    workload.until_running("web", 6).await;
    let node = nodes[0].as_str();
    let started = plugin(&cluster, &["start", node]).await;
    started.expect(0, &format!("node/{node} maintenance started\n"), "");
    let node = nodes[1].as_str();
    let mut terminal = terminal(cluster.kubeconfig(), &["start", node]);
    assert_eq!(terminal.exit_code().await, 0, "{}", terminal.screen());
    let screen = terminal.until_shown("maintenance started").await;
    assert_eq!(screen.trim(), format!("node/{node} maintenance started"));
}

#[tokio::test(flavor = "multi_thread")]
async fn harm_is_asked_about_on_a_terminal_with_what_the_answer_needs() {
    let Some((cluster, _reconciler, nodes)) = led().await else { return };
    let workload = Workload::new(&cluster, "harm").await;
    let node = nodes[0].as_str();
    workload.pod_on(node, "bare", json!({})).await;
    let bare = format!("no controller replaces 1 pod: {}/bare", workload.namespace());
    for (answer, code, there) in [("\r", 2, false), ("n\r", 2, false), ("y\r", 0, true)] {
        let mut terminal = terminal(cluster.kubeconfig(), &["start", node, "--reason", "new kernel"]);
        let question = format!("Put node {node} into maintenance and evict its pods? [y/N]");
        let screen = terminal.until_shown(&question).await;
        let command = format!("kubectl nm start {node} --reason 'new kernel'");
        for line in [
            "cluster: sandbox".to_owned(),
            format!("node:    {node}"),
            "reason:  new kernel".to_owned(),
            format!("command: {command}"),
            bare.clone(),
        ] {
            assert!(screen.lines().any(|shown| shown.trim_end() == line), "{line} in {screen}");
        }
        terminal.press(answer);
        assert_eq!(terminal.exit_code().await, code, "{}", terminal.screen());
        assert_eq!(cluster.maintenances().get_opt(node).await.unwrap().is_some(), there, "{answer:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_terminal_or_with_the_flag_harm_is_printed_and_the_start_goes_on() {
    let Some((cluster, _reconciler, nodes)) = led().await else { return };
    let workload = Workload::new(&cluster, "printed").await;
    let volume = json!({"spec": {"volumes": [{"name": "scratch", "emptyDir": {}}]}});
    for node in &nodes[..3] {
        workload.pod_on(node, &format!("bare-{node}"), volume.clone()).await;
    }
    let pod = |node: &str| format!("{}/bare-{node}", workload.namespace());
    let lost = |node: &str| {
        let pod = pod(node);
        format!("1 pod loses its emptyDir data: {pod}\nno controller replaces 1 pod: {pod}\n")
    };
    let [a, b, c] = &nodes[..3] else { panic!("three nodes") };
    let started = |node: &str| format!("node/{node} maintenance started\n");
    plugin(&cluster, &["start", a]).await.expect(0, &started(a), &lost(a));
    plugin(&cluster, &["start", b, "--yes"]).await.expect(0, &started(b), &lost(b));
    plugin(&cluster, &["start", c, "--no-plan"]).await.expect(0, &started(c), "");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_last_nodes_of_a_zone_and_workloads_without_a_ready_pod_are_named() {
    let Some((cluster, _reconciler, nodes)) = led().await else { return };
    let workload = Workload::new(&cluster, "outage").await;
    let node = nodes[0].as_str();
    let zone = cluster.node(node).await.metadata.labels.unwrap()["topology.kubernetes.io/zone"].clone();
    let mut of_zone = Vec::new();
    for name in &nodes {
        let labels = cluster.node(name).await.metadata.labels.unwrap();
        of_zone.extend((labels["topology.kubernetes.io/zone"] == zone).then(|| name.clone()));
    }
    let mut spec = nm_tests::workload::pod_spec();
    spec["nodeSelector"] = json!({"topology.kubernetes.io/zone": zone});
    workload.deployment_of("web", 2, &spec).await;
    workload.until_running("web", 2).await;
    let mut args = vec!["start", "--yes"];
    args.extend(of_zone.iter().map(String::as_str));
    let started = plugin(&cluster, &args).await.ok();
    let space = workload.namespace();
    for line in [
        format!("no Ready pod until a replacement is Ready: 1 workload (Deployment {space}/web)\n"),
        format!("no capacity for {space}/web-"),
        format!("no schedulable node is left in zone {zone}\n"),
    ] {
        assert!(started.stderr.contains(&line), "{line} in {started:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_plan_that_is_slow_does_not_keep_a_start_waiting() {
    let Some((cluster, _reconciler, nodes)) = led().await else { return };
    let pods = Target::any().verb("list").resource("pods");
    cluster.sandbox().unwrap().faults().add(Rule::new(pods, Action::NeverAnswer(Moment::BeforeEffect)));
    let node = nodes[0].as_str();
    let late = "unknown: the pods: the plan took longer than 2s\n";
    let started = plugin(&cluster, &["start", node]).await;
    started.expect(0, &format!("node/{node} maintenance started\n"), late);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_may_not_be_read_is_named_and_no_reason_to_ask() {
    let Some((cluster, _reconciler, nodes)) = led().await else { return };
    let workload = Workload::new(&cluster, "reader").await;
    let account = service_account("default", workload.namespace());
    let access = MaintenanceAccess::grant_with(&cluster, &account, &["nodes"]).await;
    let kubeconfig = cluster.kubeconfig_of(&account).await;
    let node = nodes[0].as_str();
    let mut terminal = terminal(&kubeconfig, &["start", node]);
    assert_eq!(terminal.exit_code().await, 0, "{}", terminal.screen());
    let node = nodes[1].as_str();
    let started = plugin_of(&kubeconfig, &["start", node]).await.ok();
    let unknown = "unknown: whether nm-reconciler leads, the pods, which DaemonSets exist, the disruption budgets: you may \
                   not list leases.coordination.k8s.io, list pods, ";
    assert!(started.stderr.contains(unknown), "{started:?}");
    access.revoke(&cluster).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn where_nobody_leads_a_start_says_so_at_once() {
    let Some(cluster) = Cluster::sandbox_or_skip(6, WHY).await else { return };
    let node = &cluster.nodes().await[0];
    let nobody = "no nm-reconciler was found: the cluster contains neither its lease nor its Deployment. Ignore \
        this if it runs outside the cluster without leader election";
    let mut terminal = terminal(cluster.kubeconfig(), &["start", node]);
    terminal.until_shown("no nm-reconciler was found").await;
    terminal.until_shown("[y/N]").await;
    terminal.press("n\r");
    assert_eq!(terminal.exit_code().await, 2);
    let started = plugin(&cluster, &["start", node]).await;
    started.expect(0, &format!("node/{node} maintenance started\n"), &format!("{nobody}\n"));
}
