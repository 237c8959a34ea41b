//! `kubectl nm` in scripts: its output and exit codes.

use kube::ResourceExt;
use kube::api::{Patch, PatchParams};
use nm_shared::NodeMaintenance;
use nm_tests::cluster::Cluster;
use nm_tests::files::kubeconfig_for;
use nm_tests::maintenance::{start, until_drained, until_phase, until_status};
use nm_tests::nodes::configuration;
use nm_tests::ports::unused_port;
use nm_tests::programs::{Outcome, kubectl, plugin, program};
use nm_tests::reconciler::Reconciler;
use nm_tests::skip::has_kubectl;
use nm_tests::wait::wait_until;
use nm_tests::workload::{Workload, node_of};
use serde_json::{Value, json};

fn check(outcome: &Outcome, code: i32, stdout: &str) {
    assert_eq!((outcome.code, outcome.stdout.as_str()), (Some(code), stdout), "{}", outcome.stderr);
}

#[tokio::test(flavor = "multi_thread")]
async fn nodes_are_started_waited_for_shown_and_stopped() {
    let cluster = Cluster::start(3).await;
    let nodes = cluster.nodes().await;
    let (a, b) = (nodes[0].as_str(), nodes[1].as_str());
    Workload::new(&cluster, "plugin").await.deployment("web", 6).await;
    let before = [cluster.node(a).await, cluster.node(b).await];
    let _reconciler = Reconciler::start(&cluster);

    let started =
        plugin(&cluster, &["start", a, b, "-y", "--reason", "kernel", "--wait", "--timeout", "80s"]).await;
    assert_eq!(started.code, Some(0), "{started:?}");
    for node in [a, b] {
        assert!(started.stdout.contains(&format!("node/{node}")), "{started:?}");
        let maintenance = cluster.maintenances().get(node).await.unwrap();
        assert_eq!(
            (&*maintenance.spec.node_name, maintenance.spec.reason.as_deref()),
            (node, Some("kernel"))
        );
    }
    let again = plugin(&cluster, &["start", a]).await;
    assert_eq!(again.code, Some(0));
    assert!((again.stdout + &again.stderr).contains("already in maintenance"));

    let table = plugin(&cluster, &["status"]).await.ok().stdout;
    assert_eq!(table.lines().count(), 3, "{table}");
    assert!(table.lines().next().unwrap().starts_with("NODE"), "{table}");
    let one: Value =
        serde_json::from_str(&plugin(&cluster, &["status", a, "-o", "json"]).await.ok().stdout).unwrap();
    assert_eq!((&one["kind"], &one["status"]["phase"]), (&json!("NodeMaintenance"), &json!("Succeeded")));
    let all = plugin(&cluster, &["status", "-o", "yaml"]).await.ok().stdout;
    let all: Value = serde_saphyr::from_str(&all).unwrap();
    assert_eq!((&all["kind"], all["items"].as_array().map(Vec::len)), (&json!("List"), Some(2)));
    let name = plugin(&cluster, &["status", a, "-o", "name"]).await;
    check(&name, 0, &format!("nodemaintenance.nodemaintenance.medik8s.io/{a}\n"));

    let stopped = plugin(&cluster, &["stop", a, b, "-y", "--wait"]).await;
    assert_eq!(stopped.code, Some(0), "{stopped:?}");
    for node in &before {
        assert_eq!(configuration(&cluster.node(&node.name_any()).await), configuration(node));
    }
    let nothing = plugin(&cluster, &["stop", a]).await;
    assert_eq!(nothing.code, Some(0), "{nothing:?}");
    let none = plugin(&cluster, &["status"]).await;
    check(&none, 0, "");
    assert_eq!(none.stderr, "No maintenances found.\n");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_unknown_node_is_an_error_before_anything_is_created() {
    let cluster = Cluster::start(2).await;
    let node = &cluster.nodes().await[0];
    let refused = plugin(&cluster, &["start", node, "no-such-node", "nor-this"]).await;
    check(&refused, 1, "");
    assert!(
        refused.stderr.contains("no-such-node") && refused.stderr.contains("nor-this"),
        "{}",
        refused.stderr
    );
    assert_eq!(cluster.maintenances().get_opt(node).await.unwrap(), None);
    let shown = plugin(&cluster, &["status", "no-such-node"]).await;
    assert_eq!(shown.code, Some(1), "{shown:?}");
    let stopped = plugin(&cluster, &["stop", "no-such-node"]).await;
    assert_eq!(stopped.code, Some(1), "{stopped:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn watching_a_misspelt_node_is_an_error() {
    let cluster = Cluster::start(1).await;
    let node = &cluster.nodes().await[0];
    for goal in [&["--exit-on-complete"][..], &["--until", "drained"], &["--until", "stopped"]] {
        let misspelt = plugin(&cluster, &[&["watch", "no-such-node"], goal].concat()).await;
        check(&misspelt, 1, "");
        assert!(misspelt.stderr.contains("nodes \"no-such-node\" not found"), "{misspelt:?}");
        let idle = plugin(&cluster, &[&["watch", node.as_str()], goal].concat()).await;
        let is_stopped = goal.contains(&"stopped");
        assert_eq!(idle.code, Some(i32::from(!is_stopped)), "{goal:?}: {idle:?}");
        let output = format!("node \"{node}\" is not in maintenance\n");
        assert!(is_stopped || idle.stderr.contains(&output), "{goal:?}: {idle:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn waiting_again_for_a_timed_out_drain_reports_that_it_failed() {
    let cluster = Cluster::start(2).await;
    let workload = Workload::new(&cluster, "late").await;
    let node = node_of(&workload.pod_behind_budget("cart").await).to_owned();
    let _reconciler = Reconciler::start(&cluster);
    let both = plugin(&cluster, &["start", &node, "--watch", "--wait", "--timeout", "1s"]).await;
    assert_eq!(both.code, Some(124), "{both:?}");
    until_phase(&cluster, &node, nm_shared::Phase::Failed).await;
    for limit in [&[][..], &["--timeout", "80s"]] {
        let again = plugin(&cluster, &[&["start", &node, "--wait"], limit].concat()).await;
        assert_eq!(again.code, Some(3), "{limit:?}: {again:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_maintenance_under_another_name_is_found_and_stopped_by_its_node() {
    let cluster = Cluster::start(2).await;
    let node = &cluster.nodes().await[0];
    let _reconciler = Reconciler::start(&cluster);
    start(&cluster, "e2e-another-name", node).await;
    until_drained(&cluster, "e2e-another-name").await;
    let again = plugin(&cluster, &["start", node]).await;
    assert_eq!(again.code, Some(0), "{again:?}");
    assert!((again.stdout + &again.stderr).contains("e2e-another-name"));
    assert_eq!(cluster.maintenances().get_opt(node).await.unwrap(), None);
    let _ = plugin(&cluster, &["stop", node, "--wait"]).await.ok();
    assert_eq!(cluster.maintenances().get_opt("e2e-another-name").await.unwrap(), None);
}

#[tokio::test(flavor = "multi_thread")]
async fn waits_exit_with_a_code_for_each_result() {
    let cluster = Cluster::start(2).await;
    let workload = Workload::new(&cluster, "codes").await;
    let guarded = node_of(&workload.pod_behind_budget("cart").await).to_owned();
    let _reconciler = Reconciler::start(&cluster);

    let timed_out = plugin(&cluster, &["start", &guarded, "--wait", "--timeout", "2s"]).await;
    assert_eq!(timed_out.code, Some(124), "{timed_out:?}");
    assert!(
        timed_out.stderr.contains("The disruption budget cart needs 1 healthy pods"),
        "{}",
        timed_out.stderr
    );

    let spec = json!({"spec": {"drain": {"timeoutSeconds": 1}}});
    cluster.maintenances().patch(&guarded, &PatchParams::default(), &Patch::Merge(spec)).await.unwrap();
    let failed = plugin(&cluster, &["watch", &guarded, "--until", "drained"]).await;
    assert_eq!(failed.code, Some(3), "{failed:?}");

    let until_stopped = ["watch", &guarded, "--until", "stopped", "--timeout", "80s"];
    let watching = plugin(&cluster, &until_stopped);
    let stopping = async {
        let watched = |found: Option<&NodeMaintenance>| found.is_some();
        wait_until(&cluster.maintenances(), &guarded, "it exists", watched).await;
        plugin(&cluster, &["stop", &guarded, "--wait"]).await
    };
    let (watched, stopped) = futures::join!(watching, stopping);
    assert_eq!((watched.code, stopped.code), (Some(0), Some(0)), "{watched:?} {stopped:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wait_ends_when_the_maintenance_is_deleted() {
    let cluster = Cluster::start(2).await;
    let workload = Workload::new(&cluster, "deleted").await;
    let node = node_of(&workload.pod_behind_budget("cart").await).to_owned();
    let _reconciler = Reconciler::start(&cluster);
    let _ = plugin(&cluster, &["start", &node]).await.ok();
    let until_drained = ["watch", &node, "--until", "drained"];
    let waiting = plugin(&cluster, &until_drained);
    let deleting = async {
        until_status(&cluster, &node, "blocked", |status| status.pod_counts.blocked > 0).await;
        plugin(&cluster, &["stop", &node]).await
    };
    let (waited, deleted) = futures::join!(waiting, deleting);
    assert_eq!((waited.code, deleted.code), (Some(4), Some(0)), "{waited:?} {deleted:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn kubectl_finds_the_plugin_on_its_path() {
    if !has_kubectl() {
        return;
    }
    let cluster = Cluster::start(1).await;
    let folder = program("kubectl-nm").parent().unwrap().to_owned();
    let path = std::env::join_paths(
        std::iter::once(folder).chain(std::env::split_paths(&std::env::var_os("PATH").unwrap_or_default())),
    );
    let output = tokio::process::Command::new("kubectl")
        .args(["nm", "status"])
        .env("PATH", path.unwrap())
        .env("KUBECONFIG", cluster.kubeconfig())
        .output()
        .await
        .unwrap();
    assert!(output.status.success());
    assert_eq!(String::from_utf8_lossy(&output.stderr), "No maintenances found.\n");
    let known = kubectl(&cluster, &["get", "nm"]).await.unwrap();
    assert_eq!(known.code, Some(0), "{known:?}");
}

#[test]
fn without_a_cluster_every_command_names_the_server_and_a_remedy() {
    let unused = unused_port();
    let port = unused.local_addr().unwrap().port();
    let kubeconfig = kubeconfig_for(&format!("https://127.0.0.1:{port}"));
    for args in [
        &["status"][..],
        &["start", "n1"],
        &["start", "-l", "a=b"],
        &["stop", "n1"],
        &["stop", "--all"],
        &["explain", "n1"],
        &["plan", "n1"],
        &["watch", "n1"],
    ] {
        let output = std::process::Command::new(program("kubectl-nm"))
            .args(args)
            .env("KUBECONFIG", kubeconfig.path())
            .output()
            .unwrap();
        let stderr = String::from_utf8(output.stderr).unwrap();
        assert_eq!((output.status.code(), output.stdout.as_slice()), (Some(1), &b""[..]), "{stderr}");
        assert_eq!(
            stderr,
            format!(
                "The connection to the server https://127.0.0.1:{port} was refused - did you specify the right host \
                 or port?\nhint: is the cluster running, and is it the right one? `kubectl config get-contexts` lists the \
                 clusters; --context chooses one\n"
            )
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn suggested_commands_apply_to_the_same_cluster() {
    let (bare, installed) = tokio::join!(
        Cluster::bare_sandbox(1, 0, |sandbox| sandbox),
        Cluster::of_sandbox(1, 0, |sandbox| sandbox)
    );
    let node = installed.nodes().await[0].clone();
    let nobody = "--as=nobody";
    for (cluster, args, flags, command) in [
        (&bare, &["status"][..], "", "`kubectl nm install --image IMAGE --context=sandbox`"),
        (&bare, &["version"], "", "`kubectl nm install --image IMAGE --context=sandbox`"),
        (&bare, &["doctor"], "", "run `kubectl nm install --context=sandbox` to fix it"),
        (&installed, &["start", "lost"], "", "`kubectl --context=sandbox get nodes`"),
        (&installed, &["status", &node], "", "`kubectl nm start {node} --context=sandbox`"),
        (&installed, &["status"], nobody, "`kubectl --context=sandbox --as=nobody auth can-i list"),
        (&installed, &["doctor"], "", "run `kubectl nm install --context=sandbox` to fix it"),
    ] {
        let mut line = vec!["--context=sandbox"];
        line.extend(Some(flags).filter(|flags| !flags.is_empty()));
        line.extend(args);
        let outcome = plugin(cluster, &line).await;
        let output = [outcome.stdout, outcome.stderr].concat();
        assert!(output.contains(&command.replace("{node}", &node)), "{line:?}: {output}");
        for command in output.split('`').skip(1).step_by(2).filter(|command| command.starts_with("kubectl")) {
            assert!(command.contains(" --context=sandbox"), "{line:?}: {command}");
        }
    }
}

#[test]
fn watch_reports_connection_errors_as_json_too() {
    let watch = ["watch", "-o", "json", "--kubeconfig", "/nowhere/kubeconfig"];
    let output = std::process::Command::new(program("kubectl-nm")).args(watch).output().unwrap();
    let line: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(
        (&line["type"], &line["exitCode"], &line["result"]),
        (&json!("done"), &json!(1), &json!("error"))
    );
    assert_eq!(output.status.code(), Some(1));
}

#[test]
fn usage_errors_exit_with_two_and_help_with_zero() {
    let run = |args: &[&str]| std::process::Command::new(program("kubectl-nm")).args(args).output().unwrap();
    assert_eq!(run(&["start"]).status.code(), Some(2));
    assert_eq!(run(&["begin", "n"]).status.code(), Some(2));
    let help = run(&["start", "--help"]);
    assert_eq!(help.status.code(), Some(0));
    assert!(String::from_utf8_lossy(&help.stdout).contains("kubectl nm start"));
}
