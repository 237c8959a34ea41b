//! `kubectl nm start` and `stop`: their output and exit codes.

use std::io::Write;

use k8s_openapi::api::core::v1::Node;
use kube::Api;
use kube::api::{Patch, PatchParams};
use nm_tests::cluster::Cluster;
use nm_tests::files::temp_file;
use nm_tests::programs::{plugin, plugin_of, program};
use nm_tests::rbac::{MaintenanceAccess, service_account};
use nm_tests::reconciler::Reconciler;
use nm_tests::terminal::Terminal;
use nm_tests::workload::{Workload, node_of};
use serde_json::{Value, json};

#[tokio::test(flavor = "multi_thread")]
async fn start_and_stop_print_a_line_for_each_node() {
    let cluster = Cluster::start(2).await;
    let nodes = cluster.nodes().await;
    let (a, b) = (nodes[0].as_str(), nodes[1].as_str());
    let run = async |args: &[&str]| plugin(&cluster, args).await;

    let dry = run(&["start", a, b, "--dry-run", "client", "--force=false", "--no-plan"]).await;
    let lines = |suffix: &str| {
        format!("node/{a} maintenance started{suffix}\nnode/{b} maintenance started{suffix}\n")
    };
    dry.expect(0, &lines(" (dry run)"), "");
    let dry = run(&["start", a, b, "--dry-run", "server", "--no-plan"]).await;
    dry.expect(0, &lines(" (server dry run)"), "");
    assert_eq!(cluster.maintenances().get_opt(a).await.unwrap(), None);

    let started = run(&[
        "start",
        a,
        "--reason",
        "kernel",
        "--timeout",
        "10m",
        "--order",
        "PriorityAscending",
        "--no-plan",
    ])
    .await;
    started.expect(0, &format!("node/{a} maintenance started\n"), "");
    let spec = cluster.maintenances().get(a).await.unwrap().spec;
    assert_eq!(spec.reason.as_deref(), Some("kernel"));
    assert_eq!(
        serde_json::to_value(spec.drain).unwrap(),
        json!({"gracePeriodSeconds": -1, "force": true, "deleteEmptyDirData": true, "timeoutSeconds": 600,
            "skipWaitForDeleteTimeoutSeconds": 0, "deleteAfterSeconds": 0, "order": "PriorityAscending",
            "returningPods": "Stay", "surge": "Never", "autoscalers": "Ignore"})
    );
    let again = run(&["start", a, "--timeout", "10m"]).await;
    assert_eq!(again.code, Some(0), "{again:?}");
    // It may be drained by then.
    assert!(again.stdout.starts_with(&format!("node/{a} is already in maintenance")), "{again:?}");
    let other = run(&["start", b, a, "-y", "--reason", "disk", "--no-plan"]).await;
    other.expect(
        1,
        &format!("node/{b} maintenance started\n"),
        &format!(
            "error: node \"{a}\" is already in maintenance, but reason is \"kernel\" and not \"disk\"\n\
             hint: somebody else may have started it and work on the node: agree with them, or \
             `kubectl patch nm {a} --type=merge -p '{{\"spec\":{{\"reason\":\"disk\"}}}}'` replaces the reason\n"
        ),
    );
    let name = run(&["start", a, "-o", "name"]).await;
    name.expect(0, &format!("nodemaintenance.nodemaintenance.medik8s.io/{a}\n"), "");
    let started = run(&["start", a, b, "-y", "-o", "json"]).await.ok();
    let started: Value = serde_json::from_str(&started.stdout).unwrap();
    let specs = started["items"].as_array().unwrap().iter().map(|item| &item["spec"]);
    let specs: Vec<(&Value, &Value)> = specs.map(|spec| (&spec["nodeName"], &spec["reason"])).collect();
    assert_eq!(specs, [(&json!(a), &json!("kernel")), (&json!(b), &json!("disk"))]);

    let unconfirmed = run(&["stop", "--all"]).await;
    let refusal = "error: this needs confirmation: run it on a terminal, or pass --yes\n";
    unconfirmed.expect(2, "", refusal);
    let stopped = run(&["stop", "--all", "-y"]).await;
    let (first, second) = (
        format!("node/{a} maintenance stopped (reason: kernel)\n"),
        format!("node/{b} maintenance stopped (reason: disk)\n"),
    );
    stopped.expect(0, &(first + &second), "");
    run(&["stop", a]).await.expect(0, &format!("node/{a} is not in maintenance\n"), "");
    run(&["stop", "--all"]).await.expect(0, "", "No maintenances found.\n");
}

#[tokio::test(flavor = "multi_thread")]
async fn nodes_are_selected_by_labels_and_by_files() {
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
    let refusal = "error: this needs confirmation: run it on a terminal, or pass --yes\n";
    refused.expect(2, "", refusal);
    let started = plugin(&cluster, &["start", "-l", blue, "-y", "--no-plan"]).await;
    started.expect(0, &format!("node/{a} maintenance started\nnode/{b} maintenance started\n"), "");
    let stopped = plugin(&cluster, &["stop", "-l", blue, "-y"]).await;
    stopped.expect(0, &format!("node/{a} maintenance stopped\nnode/{b} maintenance stopped\n"), "");
    label(Value::Null).await;
    let none = plugin(&cluster, &["start", "-l", blue, "-y"]).await;
    assert_eq!((none.code, none.stdout.as_str()), (Some(1), ""));
    let complaint = format!("error: no node has labels that match \"{blue}\"\nhint: ");
    assert!(none.stderr.starts_with(&complaint), "{none:?}");

    let file = temp_file(format!("# the first pool\n{a}\nnode/{b} # twice\n{b}\n"));
    let path = file.path().to_str().unwrap();
    let started = plugin(&cluster, &["start", "-f", path, "-y", "--no-plan"]).await;
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
    assert!(broken.stderr.starts_with("error: cannot read nodes from /nowhere/nodes: "), "{broken:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_misspelt_node_is_reported_with_a_suggestion() {
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
async fn a_missing_permission_is_named() {
    let cluster = Cluster::start(1).await;
    let node = &cluster.nodes().await[0];
    let workload = Workload::new(&cluster, "nobody").await;
    let account = service_account("default", workload.namespace());
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
                 hint: you need permission to list {resource}; check it with `kubectl auth can-i list {resource}`\n"
            ),
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn permissions_on_maintenances_alone_are_enough() {
    let cluster = Cluster::start(1).await;
    let node = &cluster.nodes().await[0];
    let workload = Workload::new(&cluster, "maintainer").await;
    let account = service_account("default", workload.namespace());
    let access = MaintenanceAccess::grant(&cluster, &account).await;
    let maintainer = cluster.kubeconfig_of(&account).await;
    let started = plugin_of(&maintainer, &["start", node, "--no-plan"]).await;
    let unchecked =
        format!("node/{node}: cannot check that it exists, because you have no permission to read nodes\n");
    started.expect(0, &format!("node/{node} maintenance started\n"), &unchecked);
    let stopped = plugin_of(&maintainer, &["stop", node]).await;
    stopped.expect(0, &format!("node/{node} maintenance stopped\n"), "");
    access.revoke(&cluster).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn several_nodes_need_a_confirmation_on_a_terminal() {
    let cluster = Cluster::start(2).await;
    let nodes = cluster.nodes().await;
    let (a, b) = (nodes[0].as_str(), nodes[1].as_str());
    let kubeconfig = cluster.kubeconfig().to_str().unwrap().to_owned();
    let env = [("KUBECONFIG", kubeconfig.as_str())];
    let start = || Terminal::run(&program("kubectl-nm"), &["start", a, b], &env, 24, 100);
    for (answer, code, there) in [("\r", 2, false), ("n\r", 2, false), ("y\r", 0, true)] {
        let mut terminal = start();
        let question = "Put these 2 nodes into maintenance and evict their pods? [y/N]";
        let screen = terminal.until_shown(question).await;
        assert!(screen.contains(&format!("nodes:   {a}, {b}\n")), "{screen}");
        terminal.press(answer);
        assert_eq!(terminal.exit_code().await, code, "{}", terminal.screen());
        assert_eq!(cluster.maintenances().get_opt(b).await.unwrap().is_some(), there, "{answer:?}");
    }
}

// Defect eksctl-io/eksctl#2628: The timeout of the command is not respected while evictions are refused.
#[tokio::test(flavor = "multi_thread")]
async fn a_wait_for_a_blocked_drain_times_out() {
    let cluster = Cluster::start(2).await;
    let workload = Workload::new(&cluster, "timeout").await;
    let node = node_of(&workload.pod_behind_budget("cart").await).to_owned();
    let _reconciler = Reconciler::start(&cluster);
    let timed_out = plugin(&cluster, &["start", &node, "--wait", "--timeout", "1s", "-o", "name"]).await;
    assert_eq!(timed_out.code, Some(124), "{timed_out:?}");
    assert_eq!(timed_out.stdout, format!("nodemaintenance.nodemaintenance.medik8s.io/{node}\n"));
}
