//! Where the pods of a node went, in `kubectl nm watch` in a terminal.

use kube_sandbox::faults::{Action, Failure, Moment, Rule, Target};
use nm_tests::cluster::Cluster;
use nm_tests::maintenance::start;
use nm_tests::programs::plugin;
use nm_tests::reconciler::Reconciler;
use nm_tests::terminal::Terminal;
use nm_tests::terminal::keys::ESCAPE;
use nm_tests::wait::TEST_TIMEOUT;
use nm_tests::workload::{Workload, node_of, pinned_to};
use serde_json::Value;

use crate::dashboard::setup::{dashboard, quit};

#[tokio::test(flavor = "multi_thread")]
async fn the_tree_shows_replacements_and_the_summary_of_a_drain_stays() {
    let cluster = Cluster::start(2).await;
    let workload = Workload::new(&cluster, "tree").await;
    workload.deployment("web", 1).await;
    let node = node_of(&workload.until_running("web", 1).await[0]).to_owned();
    // Its replacement finds no node.
    let mut here = pinned_to(&node);
    here["tolerations"] = Value::Null;
    workload.deployment_of("here", 1, &here).await;
    start(&cluster, &node, &node).await;

    let terminal = dashboard(&cluster, &[&node], (40, 140));
    terminal.until_live().await;
    terminal.press("w");
    let space = workload.namespace();
    for shown in [&format!("{space}: deploy/web"), &format!("{space}: deploy/here"), "1/1 ready"] {
        terminal.until_shown(shown).await;
    }
    let _reconciler = Reconciler::start(&cluster);
    terminal.until_shown("Unscheduled").await;
    let screen = terminal.until_shown("pods gone in").await;
    terminal.until_shown(&format!("on {}", node_of(&workload.until_running("web", 1).await[0]))).await;
    assert!(screen.contains("0/1 ready") && screen.contains("lowest 0/1"), "{screen}");
    for (rows, columns) in [(30, 45), (30, 80), (30, 120), (40, 200)] {
        terminal.resize(rows, columns);
        let what = format!("the tree on {columns} columns");
        let is_drawn = |screen: &vt100::Screen| {
            let shown = screen.contents();
            let header = shown.lines().next().unwrap_or_default();
            header.trim_end().chars().count() == usize::from(columns) - 1 && shown.contains("WORKLOAD")
        };
        terminal.until(&what, is_drawn).await;
    }
    terminal.press(ESCAPE);
    terminal.until_shown("NAMESPACE/POD").await;
    let left = quit(terminal).await.until_shown("readiness lost:").await;
    assert!(left.contains(&format!("node/{node}: ")) && left.contains("pods gone in"), "{left}");
    let status = plugin(&cluster, &["status", &node]).await;
    assert!(status.stderr.contains("pods gone in"), "{}", status.stderr);
    assert!(!status.stderr.contains("readiness"), "the object does not have it: {}", status.stderr);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_tree_watches_only_the_namespaces_concerned_and_says_what_is_forbidden() {
    let cluster = Cluster::of_sandbox(2, 0, |sandbox| sandbox).await;
    let sandbox = cluster.sandbox().unwrap();
    let (workload, elsewhere) =
        (Workload::new(&cluster, "here").await, Workload::new(&cluster, "elsewhere").await);
    let node = &cluster.nodes().await[0];
    workload.deployment_of("web", 1, &pinned_to(node)).await;
    elsewhere.deployment_of("web", 1, &pinned_to(&cluster.nodes().await[1])).await;
    start(&cluster, node, node).await;
    let files = tempfile::tempdir().unwrap();
    let kubeconfig = files.path().join("kubeconfig");
    std::fs::write(&kubeconfig, sandbox.add_user("viewer", &["system:masters"])).unwrap();
    let requested = || {
        let requests = sandbox.requests().all();
        let ours =
            requests.into_iter().filter(|request| request.user == "viewer" && request.namespace != "default");
        let namespaced = ours.filter(|request| !request.namespace.is_empty());
        let mut requested: Vec<String> = namespaced
            .map(|request| {
                format!(
                    "{} {} {} {}",
                    request.verb, request.resource, request.namespace, request.field_selector
                )
            })
            .collect();
        requested.sort();
        requested.dedup();
        requested
    };
    let terminal = Terminal::run_plugin(&kubeconfig, &["watch", node], &[]);
    terminal.until_live().await;
    terminal.until_shown("web-").await;
    assert_eq!(requested(), Vec::<String>::new(), "the tree costs nothing before it is opened");
    terminal.press("w");
    terminal.until_shown("1/1 ready").await;
    let (space, on_others) = (workload.namespace(), format!("spec.nodeName!={node}"));
    let mut expected = Vec::new();
    for verb in ["list", "watch"] {
        expected.push(format!("{verb} deployments {space} "));
        expected.push(format!("{verb} pods {space} {on_others}"));
    }
    expected.sort();
    let enough = sandbox.requests().until(|_| requested().len() >= expected.len());
    // After a timeout the comparison shows what is missing.
    let _ = tokio::time::timeout(TEST_TIMEOUT, enough).await;
    assert_eq!(requested(), expected);

    let lists = Target::any().verb("list").resource("deployments");
    sandbox.faults().add(Rule::new(lists, Action::Fail(Failure::Forbidden, Moment::BeforeEffect)));
    terminal.press("r");
    terminal.until_shown("no permission to list deployments.apps").await;
    quit(terminal).await;
}
