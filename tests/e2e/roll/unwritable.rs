//! Rolls whose objects cannot be read or written any more: nothing begins, and the actions that run are waited for.

use kube::api::{Patch, PatchParams};
use kube_sandbox::faults::{Action, Failure, Moment, Rule, Target};
use nm_tests::cluster::Cluster;
use nm_tests::programs::{plugin, plugin_of};
use nm_tests::rbac::{bind_cluster_role, service_account};
use nm_tests::reconciler::Reconciler;
use nm_tests::workload::Workload;
use serde_json::{Value, json};

use super::running_roll::{RunningRoll, make_pipe};

const NODE: &str = "kubectl-nm.dev/roll-node";

/// A roll of three nodes. The commands of the first two run, and wait until something is written to the pipe of their node;
/// the third has the record of the roll.
async fn acting(
    cluster: &Cluster,
    name: &str,
    nodes: &[String],
    folder: &tempfile::TempDir,
) -> (RunningRoll, Vec<String>, String) {
    for node in nodes {
        // One zone, so that they are one wave.
        let zone = json!({"metadata": {"labels": {"topology.kubernetes.io/zone": "a"}}});
        cluster.patch_node(node, zone).await;
        make_pipe(&folder.path().join(node));
    }
    let command = command(folder);
    let flags = ["--run", command.as_str(), "--max-unavailable", "2"];
    let mut roll = RunningRoll::begin(cluster, name, nodes, &flags);
    for _ in 0..2 {
        roll.until("output", |line| line["text"] == "run").await;
    }
    let status = plugin(cluster, &["roll", "status", name, "-o", "json"]).await.ok();
    let status: Value = serde_json::from_str(&status.stdout).unwrap();
    let names = status["nodes"].as_array().unwrap().iter().map(|node| node["node"].as_str().unwrap());
    let mut names: Vec<String> = names.map(str::to_owned).collect();
    let anchor = names.pop().unwrap();
    (roll, names, anchor)
}

fn command(folder: &tempfile::TempDir) -> String {
    format!("echo run; cat {}/{{}}", folder.path().display())
}

/// Waits until the roll waits for the command of `lasts` only, and ends that.
async fn ends_after(
    mut roll: RunningRoll,
    lasts: &str,
    folder: &tempfile::TempDir,
    message: &str,
) -> RunningRoll {
    let expected = format!("the roll halts once the action of {lasts} has finished");
    let waits = |line: &Value| line["message"].as_str().is_some_and(|text| text.ends_with(&expected));
    roll.until("a wait", waits).await;
    std::fs::write(folder.path().join(lasts), "").unwrap();
    assert_eq!(roll.end().await, Some(3), "{:#?}", roll.lines);
    let halted = roll.summary()["message"].as_str().unwrap();
    assert!(halted.contains(message), "{halted}");
    roll
}

/// Resumes the roll, which runs the command of the last node only, as the results of the others are known.
async fn is_resumed(cluster: &Cluster, name: &str, acted: &[String], last: &str, folder: &tempfile::TempDir) {
    let command = command(folder);
    let mut resumed = RunningRoll::resume(cluster, name, &["--run", &command, "--take-over"]);
    resumed.until("output", |line| line["text"] == "run" && line["node"] == last).await;
    std::fs::write(folder.path().join(last), "").unwrap();
    assert_eq!(resumed.end().await, Some(0), "{:#?}", resumed.lines);
    for node in acted {
        assert!(resumed.output(node).is_empty(), "{:#?}", resumed.lines);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_roll_whose_record_cannot_be_written_waits_for_its_commands_and_halts() {
    let why = "only a sandbox refuses requests on demand";
    let Some(cluster) = Cluster::sandbox_or_skip(4, why).await else { return };
    let nodes = cluster.nodes().await;
    let _reconciler = Reconciler::start(&cluster);
    let folder = tempfile::TempDir::new().unwrap();
    let (roll, acting, anchor) = acting(&cluster, "unwritable", &nodes[..3], &folder).await;
    let faults = cluster.sandbox().unwrap().faults();
    let writes = Target::any().verb("patch").resource("nodemaintenances").name(&anchor);
    let denied = Action::Fail(Failure::DeniedByPolicy, Moment::BeforeEffect);
    faults.add(Rule::new(writes.user_agent("kubectl-nm/*"), denied));
    // The first node is done, which has to be recorded.
    std::fs::write(folder.path().join(&acting[0]), "").unwrap();
    let message = format!("the record of the roll cannot be written to the maintenance of node {anchor}: ");
    let roll = ends_after(roll, &acting[1], &folder, &message).await;
    assert_eq!(roll.steps(&anchor), ["Planned"; 0], "it has not begun: {:#?}", roll.lines);
    faults.clear();
    is_resumed(&cluster, "unwritable", &acting, &anchor, &folder).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_roll_of_which_somebody_breaks_an_object_waits_for_its_commands_and_halts() {
    let cluster = Cluster::start(4).await;
    let nodes = cluster.nodes().await;
    let _reconciler = Reconciler::start(&cluster);
    let folder = tempfile::TempDir::new().unwrap();
    let (roll, acting, anchor) = acting(&cluster, "invalid", &nodes[..3], &folder).await;
    let before = cluster.maintenances().get(&anchor).await.unwrap().metadata.annotations.unwrap();
    let set = async |text: &str| {
        let patch = Patch::Merge(json!({"metadata": {"annotations": {NODE: text}}}));
        cluster.maintenances().patch(&anchor, &PatchParams::default(), &patch).await.unwrap();
    };
    set("{").await;
    std::fs::write(folder.path().join(&acting[0]), "").unwrap();
    let message = format!("annotation {NODE} of the NodeMaintenance \"{anchor}\" is not valid");
    ends_after(roll, &acting[1], &folder, &message).await;
    set(&before[NODE]).await;
    is_resumed(&cluster, "invalid", &acting, &anchor, &folder).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_program_that_cannot_resume_a_roll_gives_it_up_at_once() {
    let cluster = Cluster::start(2).await;
    let nodes = cluster.nodes().await;
    let _reconciler = Reconciler::start(&cluster);
    let mut roll = RunningRoll::begin(&cluster, "given-up", &nodes[..1], &["--run", "false"]);
    assert_eq!(roll.end().await, Some(3), "{:#?}", roll.lines);
    // An account that may change maintenances, and delete none.
    let workload = Workload::new(&cluster, "undeletable").await;
    let account = service_account("default", workload.namespace());
    let rules = [
        json!({"apiGroups": [""], "resources": ["nodes", "pods"], "verbs": ["get", "list", "watch"]}),
        json!({"apiGroups": ["nodemaintenance.medik8s.io"], "resources": ["nodemaintenances"],
            "verbs": ["get", "list", "watch", "patch"]}),
    ];
    bind_cluster_role(&cluster, &format!("{}-patches", workload.namespace()), workload.namespace(), &rules)
        .await;
    let kubeconfig = cluster.kubeconfig_of(&account).await;
    let args = ["roll", "resume", "given-up", "--run", "false", "--skip", &nodes[0]];
    let refused = plugin_of(&kubeconfig, &args).await;
    assert_eq!(refused.code, Some(1), "{refused:?}");
    assert!(refused.stderr.contains("you need permission to delete nodemaintenances"), "{refused:?}");
    let status = plugin(&cluster, &["roll", "status", "given-up"]).await.ok();
    assert!(status.stdout.starts_with("roll given-up: 0 done, 1 left, not running\n"), "{status:?}");
    let _ = plugin(&cluster, &["roll", "abort", "given-up", "--return", "--yes"]).await.ok();
}
