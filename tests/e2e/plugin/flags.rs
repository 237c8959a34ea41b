//! Flags of `kubectl nm` and their effects.

use std::process::Stdio;

use kube::api::{Patch, PatchParams};
use kube_sandbox::request_log::Entry;
use nm_shared::api::names::FINALIZER;
use nm_tests::cluster::Cluster;
use nm_tests::files::temp_file;
use nm_tests::programs::{Outcome, RunningCommand, plugin, plugin_of, program};
use nm_tests::rbac::{MaintenanceAccess, service_account};
use nm_tests::requests::until_requests;
use nm_tests::workload::Workload;
use serde_json::{Value, json};

/// Starts a maintenance that cannot end: it has the finalizer, and no reconciler runs.
async fn start_unstoppable(cluster: &Cluster, node: &str) {
    let _ = plugin(cluster, &["start", node]).await.ok();
    let held = Patch::Merge(json!({"metadata": {"finalizers": [FINALIZER]}}));
    cluster.maintenances().patch(node, &PatchParams::default(), &held).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn every_drain_flag_sets_its_field() {
    let cluster = Cluster::start(1).await;
    let node = &cluster.nodes().await[0];
    let flags = "--dry-run none --grace-period 7 --delete-emptydir-data=false --force=false --delete-after 5m \
        --pod-selector app=web,!canary --timeout 0 --order none --wait-for-volume-detach=5m --on-detach-timeout fail \
        --surge -r kernel --no-plan";
    let args: Vec<&str> = ["start", node].into_iter().chain(flags.split_whitespace()).collect();
    plugin(&cluster, &args).await.expect(0, &format!("node/{node} maintenance started\n"), "");
    let spec = serde_json::to_value(cluster.maintenances().get(node).await.unwrap().spec).unwrap();
    let selector = json!({"matchLabels": {"app": "web"},
        "matchExpressions": [{"key": "canary", "operator": "DoesNotExist"}]});
    assert_eq!(
        spec,
        json!({"nodeName": node, "reason": "kernel", "drain": {"gracePeriodSeconds": 7, "force": false,
            "deleteEmptyDirData": false, "timeoutSeconds": 0, "skipWaitForDeleteTimeoutSeconds": 0,
            "deleteAfterSeconds": 300, "podSelector": selector, "order": "None", "returningPods": "Stay", "surge": "WhenBlocked", "autoscalers": "Ignore",
            "waitForVolumeDetach": {"timeoutSeconds": 300, "onTimeout": "Fail"}}})
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn no_drain_begins_where_the_definition_lacks_one_of_its_settings() {
    let Some(cluster) = Cluster::sandbox_or_skip(1, "it changes the definition").await else { return };
    let node = &cluster.nodes().await[0];
    cluster.remove_field(&["spec", "drain", "surge"]).await;
    let started = format!("node/{node} maintenance started\n");
    for how in ["none", "server"] {
        let command = ["start", node, "--surge", "--no-plan", "--dry-run", how];
        let refused = plugin(&cluster, &command).await;
        let error = "error: the CRD of NodeMaintenance in this cluster has no spec.drain.surge";
        assert!(refused.code == Some(1) && refused.stderr.starts_with(error), "{refused:?}");
        assert!(!refused.stdout.contains(&started), "{refused:?}");
        assert!(cluster.maintenances().get_opt(node).await.unwrap().is_none(), "no drain has begun");
    }
    plugin(&cluster, &["start", node, "--timeout", "1h", "--no-plan"]).await.expect(0, &started, "");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_zero_grace_period_is_warned_about_by_every_command() {
    let cluster = Cluster::start(1).await;
    let node = &cluster.nodes().await[0];
    let warning = "spec.drain.gracePeriodSeconds is 0: pods are force-deleted, and their containers may still run after the \
                   node is drained";
    let planned = plugin(&cluster, &["plan", node, "--grace-period", "0"]).await;
    let warned = format!("warning: {warning}");
    assert!(planned.stdout.lines().any(|line| line == warned), "{planned:?}");
    for (how, said) in [("client", " (dry run)"), ("none", "")] {
        let started =
            plugin(&cluster, &["start", node, "--grace-period", "0", "--no-plan", "--dry-run", how]).await;
        let said = format!("node/{node} maintenance started{said}\n");
        started.expect(0, &said, &format!("warning: {warning}\n"));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn stop_accepts_nodes_from_a_file() {
    let cluster = Cluster::start(2).await;
    let nodes = cluster.nodes().await;
    let (a, b) = (nodes[0].as_str(), nodes[1].as_str());
    let file = temp_file(format!("{a}\nnode/{b}\n"));
    let path = file.path().to_str().unwrap();
    let _ = plugin(&cluster, &["start", a]).await.ok();
    plugin(&cluster, &["stop", "-f", path, "-y"]).await.expect(
        0,
        &format!("node/{b} is not in maintenance\nnode/{a} maintenance stopped\n"),
        "",
    );
    assert_eq!(cluster.maintenances().get_opt(a).await.unwrap(), None);
}

#[tokio::test(flavor = "multi_thread")]
async fn stop_times_out_when_the_maintenance_does_not_end() {
    let Some(cluster) = Cluster::sandbox_or_skip(1, "on another cluster a reconciler may run").await else {
        return;
    };
    let node = &cluster.nodes().await[0];
    start_unstoppable(&cluster, node).await;
    let late = plugin(&cluster, &["stop", node, "--wait", "--timeout", "1s"]).await;
    assert_eq!((late.code, late.stdout), (Some(124), format!("node/{node} maintenance is stopping\n")));
    assert!(late.stderr.starts_with("timed out after 1s\n"), "{}", late.stderr);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_interrupted_wait_exits_with_130_and_the_maintenance_continues() {
    let Some(cluster) = Cluster::sandbox_or_skip(1, "only a sandbox logs requests").await else { return };
    let node = &cluster.nodes().await[0];
    let sandbox = cluster.sandbox().unwrap();
    let is_watch = |entry: &Entry| entry.verb == "watch" && entry.resource == "nodemaintenances";
    for (args, said) in [
        (["start", node, "--wait"], "maintenance started"),
        (["stop", node, "--wait"], "maintenance is stopping"),
    ] {
        if args[0] == "stop" {
            start_unstoppable(&cluster, node).await;
        }
        let before = sandbox.requests().count(is_watch);
        let mut waits = RunningCommand::start(program("kubectl-nm"), &cluster, &args);
        assert_eq!(waits.line().await, Some(format!("node/{node} {said}")));
        // The plugin handles signals before it starts the watch.
        until_requests(sandbox, before + 1, "the wait begins", is_watch).await;
        waits.signal("INT");
        assert_eq!(waits.exit_code().await, Some(130), "{args:?}");
        assert!(cluster.maintenances().get_opt(node).await.unwrap().is_some(), "{args:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn selecting_nodes_by_labels_needs_access_to_nodes() {
    let cluster = Cluster::start(1).await;
    let workload = Workload::new(&cluster, "labels").await;
    let account = service_account("default", workload.namespace());
    let access = MaintenanceAccess::grant(&cluster, &account).await;
    let kubeconfig = cluster.kubeconfig_of(&account).await;
    let user = format!("system:serviceaccount:{}:default", workload.namespace());
    for verb in ["start", "stop"] {
        plugin_of(&kubeconfig, &[verb, "-l", "a=b", "-y"]).await.expect(
            1,
            "",
            &format!(
                "Error from server (Forbidden): nodes is forbidden: User \"{user}\" cannot list resource \"nodes\" in API \
                 group \"\" at the cluster scope\nhint: you need permission to list nodes; check it with \
                 `kubectl auth can-i list nodes`\n"
            ),
        );
    }
    access.revoke(&cluster).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn nodes_of_several_files_are_combined() {
    let cluster = Cluster::start(2).await;
    let nodes = cluster.nodes().await;
    let (a, b) = (nodes[0].as_str(), nodes[1].as_str());
    let [of_a, of_b] = [a, b].map(|node| temp_file(format!("{node}\n")));
    let (of_a, of_b) = (of_a.path().to_str().unwrap(), of_b.path().to_str().unwrap());
    plugin(&cluster, &["start", "-f", of_a, "-f", of_b, "--dry-run", "client", "--no-plan"]).await.expect(
        0,
        &format!("node/{a} maintenance started (dry run)\nnode/{b} maintenance started (dry run)\n"),
        "",
    );
    let planned = plugin(&cluster, &["plan", "-f", of_a, "--filename", of_b, "-o", "json"]).await;
    let planned: Value = serde_json::from_str(&planned.stdout).unwrap();
    let planned: Vec<&Value> =
        planned["nodes"].as_array().unwrap().iter().map(|node| &node["node"]).collect();
    assert_eq!(planned, [a, b]);
    plugin(&cluster, &["stop", "-f", of_a, "-f", of_b]).await.expect(
        0,
        &format!("node/{a} is not in maintenance\nnode/{b} is not in maintenance\n"),
        "",
    );
}

/// Runs the plugin with these variables, and in this working directory.
async fn run(
    cluster: &Cluster,
    args: &[&str],
    variables: &[(&str, &str)],
    at: Option<&std::path::Path>,
) -> Outcome {
    let mut command = tokio::process::Command::new(program("kubectl-nm"));
    command.args(args).env("KUBECONFIG", cluster.kubeconfig()).env_remove("NO_COLOR");
    command.envs(variables.iter().copied()).stdin(Stdio::null());
    if let Some(folder) = at {
        command.current_dir(folder);
    }
    let output = command.output().await.unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    Outcome { code: output.status.code(), stdout: text(output.stdout), stderr: text(output.stderr) }
}

#[tokio::test(flavor = "multi_thread")]
async fn output_is_colored_only_on_terminals_or_by_flag() {
    let cluster = Cluster::start(1).await;
    let node = &cluster.nodes().await[0];
    let is_colored = |outcome: &Outcome| outcome.stdout.contains('\u{1b}');
    for (flags, variable, expected) in [
        (&[][..], ("NO_COLOR", ""), false),
        (&["--color", "always"], ("NO_COLOR", ""), true),
        (&["--color=always"], ("NO_COLOR", "1"), true),
        (&["--color", "never"], ("NO_COLOR", ""), false),
        (&["--color", "auto"], ("NO_COLOR", ""), false),
    ] {
        let args = [&["start", node.as_str(), "--dry-run", "client", "--no-plan"], flags].concat();
        let said = run(&cluster, &args, &[variable], None).await.ok();
        assert_eq!(is_colored(&said), expected, "{flags:?} {said:?}");
        let bare = said.stdout.replace("\u{1b}[32m", "").replace("\u{1b}[0m", "");
        assert_eq!(bare, format!("node/{node} maintenance started (dry run)\n"), "{flags:?}");
    }
    let wrong = run(&cluster, &["--color", "always", "strat"], &[], None).await;
    assert!(wrong.code == Some(2) && wrong.stderr.contains('\u{1b}'), "{wrong:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn gather_names_its_report_by_the_time() {
    let cluster = Cluster::start(1).await;
    let folder = tempfile::tempdir().unwrap();
    let gathered = run(&cluster, &["gather"], &[], Some(folder.path())).await.ok();
    let name = gathered.stdout.strip_suffix('\n').unwrap();
    let time = name.strip_prefix("kubectl-nm-").and_then(|rest| rest.strip_suffix("Z.tar.gz")).unwrap();
    assert!(time.len() == "20260102T030405".len() && time.contains('T'), "{name}");
    let files: Vec<_> =
        std::fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(files, [name]);
    for format in ["-", "json"] {
        let refused = run(&cluster, &["gather", "-o", format], &[], Some(folder.path())).await;
        refused.expect(
            2,
            "",
            &format!(
                "error: invalid value '{format}' for '--output <FILE.tar.gz>': the name of the file must end in .tar.gz \
                 or .tgz, such as report.tar.gz\n\nFor more information, try '--help'.\n"
            ),
        );
    }
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
}

#[tokio::test]
async fn the_plugins_own_version_needs_no_cluster() {
    let nowhere = std::path::Path::new("/nowhere/kubeconfig");
    let outcome = plugin_of(nowhere, &["version", "--client", "-o", "json"]).await;
    outcome.expect(0, &format!("{{\n  \"plugin\": \"{}\"\n}}\n", env!("CARGO_PKG_VERSION")), "");
    let outcome: Value = serde_json::from_str(&outcome.stdout).unwrap();
    assert_eq!(outcome, json!({"plugin": env!("CARGO_PKG_VERSION")}));
}

#[tokio::test]
async fn an_unknown_command_suggests_the_right_one() {
    let nowhere = std::path::Path::new("/nowhere/kubeconfig");
    for (wrong, hint) in [
        ("wacth", "hint: did you mean `kubectl nm watch`?\n"),
        ("list", "hint: `kubectl nm status` shows the nodes in maintenance\n"),
        ("cordon", "hint: `kubectl nm start` cordons nodes and evicts their pods\n"),
        ("uncordon", "hint: `kubectl nm stop` returns nodes to service\n"),
        ("frobnicate", ""),
    ] {
        let said = plugin_of(nowhere, &[wrong, "n1"]).await;
        said.expect(
            2,
            "",
            &format!(
                "error: unrecognized subcommand '{wrong}'\n\nUsage: kubectl nm COMMAND [FLAGS]\n\n\
                 For more information, try '--help'.\n{hint}"
            ),
        );
    }
}
