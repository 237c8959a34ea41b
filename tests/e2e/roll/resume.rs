//! Rolls that are interrupted: whoever continues them finds everything in the objects.

use kube::ResourceExt;
use kube::api::{ListParams, Patch, PatchParams};
use nm_tests::cluster::Cluster;
use nm_tests::programs::plugin;
use nm_tests::rbac::{bind_cluster_role, service_account};
use nm_tests::workload::Workload;
use serde_json::{Value, json};

use super::running_roll::{RunningRoll, abort, blocked, change_annotation, guard, make_pipe, other, pool};

const COMMAND: &str = "echo {}; sleep 0.2";

/// Kills the program of a roll of two nodes once the first is in a step, and continues it with another.
async fn is_continued_after(step: &str) {
    let (cluster, nodes, _reconciler) = pool(3).await;
    let mut roll = RunningRoll::begin(&cluster, "killed", &nodes[..2], &["--run", COMMAND, "--soak", "1s"]);
    let line = roll.until(step, |line| line["step"] == *step).await;
    let first = line["node"].as_str().unwrap().to_owned();
    roll.crash().await;
    let mut resumed = RunningRoll::resume(&cluster, "killed", &["--run", COMMAND, "--take-over"]);
    assert_eq!(resumed.end().await, Some(0), "{:#?}", resumed.lines);
    let runs = resumed.output(&first).len();
    // A step that is shown is recorded: the command runs again only if its end was not.
    let again = usize::from(["Draining", "Acting"].contains(&step));
    assert!(runs <= 1 && (step == "Acting" || runs == again), "the command of {first} ran {runs} times");
    let other = other(&nodes[..2], &first);
    assert_eq!(resumed.output(other), [other], "{:#?}", resumed.lines);
    for node in &nodes[..2] {
        assert_eq!(cluster.node(node).await.spec.unwrap().unschedulable, None, "{node}");
    }
}

// A test for each step, because each waits for its rolls most of the time.

#[tokio::test(flavor = "multi_thread")]
async fn a_roll_that_is_killed_while_a_node_drains_is_continued_by_another_program() {
    is_continued_after("Draining").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_roll_that_is_killed_during_its_command_is_continued_by_another_program() {
    is_continued_after("Acting").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_roll_that_is_killed_while_a_node_rejoins_is_continued_by_another_program() {
    is_continued_after("Rejoining").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_roll_that_is_killed_while_a_node_is_checked_is_continued_by_another_program() {
    is_continued_after("Checking").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_roll_that_is_killed_while_a_node_returns_is_continued_by_another_program() {
    is_continued_after("Returning").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_roll_that_is_killed_while_workloads_recover_is_continued_by_another_program() {
    is_continued_after("Recovering").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_roll_that_is_killed_while_it_soaks_is_continued_by_another_program() {
    is_continued_after("Soaking").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_roll_that_is_killed_between_nodes_is_continued_by_another_program() {
    is_continued_after("Done").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_heartbeat_for_a_minute_a_roll_has_no_runner_whatever_the_clock_of_its_computer_says() {
    let (cluster, nodes, _reconciler) = pool(2).await;
    let command = "sleep 30";
    let mut roll = RunningRoll::begin(&cluster, "crashed", &nodes[..1], &["--run", command]);
    roll.until_step(&nodes[0], "Acting").await;
    // A program that runs is found although its last heartbeat is from the future.
    change_runner(&cluster, &nodes[0], 600).await;
    let refused = plugin(&cluster, &["roll", "resume", "crashed", "--run", command]).await;
    assert!(refused.code == Some(1) && refused.stderr.contains("runs roll \"crashed\""), "{refused:?}");
    roll.crash().await;
    change_runner(&cluster, &nodes[0], 600).await;
    let mut resumed = RunningRoll::resume(&cluster, "crashed", &["--run", command]);
    let again = resumed.until("an action", |line| line["step"] == "Acting").await;
    assert_eq!(again["node"], nodes[0]);
    resumed.interrupt().await;
    abort(&cluster, "crashed").await;
}

/// Sets the time of the last heartbeat, as a computer writes it whose clock is wrong by so many seconds.
async fn change_runner(cluster: &Cluster, node: &str, seconds: i64) {
    let wrong = jiff::Timestamp::now().checked_add(jiff::SignedDuration::from_secs(seconds)).unwrap();
    change_annotation(cluster, node, "kubectl-nm.dev/roll-state", |record| {
        record["runner"]["at"] = json!(wrong);
        let revision = record["revision"].as_u64().unwrap();
        record["revision"] = json!(revision + 1);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_deleted_record_knew_is_named_and_no_action_is_repeated() {
    let (cluster, nodes, _reconciler) = pool(3).await;
    let folder = tempfile::TempDir::new().unwrap();
    let command = format!("echo run >> {}/{{}}", folder.path().display());
    // No node reboots.
    let flags = ["--run", &command, "--expect-reboot", "--return-timeout", "2s"];
    let mut roll = RunningRoll::begin(&cluster, "forgetful", &nodes[..2], &flags);
    assert_eq!(roll.end().await, Some(3), "{:#?}", roll.lines);
    let status = plugin(&cluster, &["roll", "status", "forgetful", "-o", "json"]).await.ok();
    let status: Value = serde_json::from_str(&status.stdout).unwrap();
    let [first, anchor] =
        [0, 1].map(|position| status["nodes"][position]["node"].as_str().unwrap().to_owned());
    nm_tests::maintenance::stop(&cluster, &anchor).await;

    let status = plugin(&cluster, &["roll", "status", "forgetful"]).await.ok();
    assert!(status.stdout.contains("its state was deleted with the maintenance of a node"), "{status:?}");
    let resumed = plugin(&cluster, &["roll", "resume", "forgetful", "--run", &command]).await;
    assert_eq!(resumed.code, Some(3), "{resumed:?}");
    assert!(resumed.stderr.contains("Unknown: how many of the other nodes (1) are done"), "{resumed:?}");
    assert!(resumed.stderr.contains(&format!("node {first} is not back after 2s")), "{resumed:?}");
    assert_eq!(std::fs::read_to_string(folder.path().join(&first)).unwrap(), "run\n", "it had succeeded");
    abort(&cluster, "forgetful").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_interrupted_roll_is_free_at_once_and_its_command_is_ended() {
    let (cluster, nodes, _reconciler) = pool(3).await;
    let marker = tempfile::TempDir::new().unwrap();
    let command = format!("echo begun; sleep 600; touch {}/survived", marker.path().display());
    for signal in ["INT", "TERM", "HUP"].into_iter().filter(|signal| *signal != "HUP" || !ignores_hup()) {
        let name = format!("interrupted-{}", signal.to_lowercase());
        let mut roll = RunningRoll::begin(&cluster, &name, &nodes[..1], &["--run", &command]);
        roll.until("output", |line| line["text"] == "begun").await;
        roll.signal(signal);
        assert_eq!(roll.end().await, Some(130), "{signal}");
        let listed = plugin(&cluster, &["roll", "status"]).await.ok();
        assert!(listed.stdout.contains(&name) && listed.stdout.contains("not running"), "{listed:?}");
        let aborted = plugin(&cluster, &["roll", "abort", &name, "--return", "--yes"]).await.ok();
        assert!(
            aborted.stdout.contains(&format!("node/{} maintenance is stopping", nodes[0])),
            "{aborted:?}"
        );
        nm_tests::maintenance::until_gone(&cluster, &nodes[0]).await;
    }
    assert!(!marker.path().join("survived").exists());
}

/// Whether the tests were started with nohup: the programs that they start then ignore SIGHUP too.
fn ignores_hup() -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let ignored = ignored.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or_default();
    if ignored & 1 != 0 {
        eprintln!("SKIPPED the part with SIGHUP: the tests were started with nohup");
    }
    ignored & 1 != 0
}

#[tokio::test(flavor = "multi_thread")]
async fn the_command_of_a_program_that_is_killed_ends_before_another_program_runs_it_again() {
    let (cluster, nodes, _reconciler) = pool(2).await;
    let folder = tempfile::TempDir::new().unwrap();
    // The command and what it starts hold the pipe open: reading it ends when they have ended.
    let pipe = folder.path().join("pipe");
    make_pipe(&pipe);
    let command = format!("exec 3>{}; echo begun; sleep 600 & wait", pipe.display());
    let mut roll = RunningRoll::begin(&cluster, "killed", &nodes[..1], &["--run", &command]);
    let reader = pipe.clone();
    let read = tokio::task::spawn_blocking(move || std::fs::read(reader));
    roll.until("output", |line| line["text"] == "begun").await;
    roll.crash().await;
    assert!(read.await.unwrap().unwrap().is_empty());
    let args = ["roll", "resume", "killed", "--take-over"];
    let refused = plugin(&cluster, &args).await;
    let warning = format!(
        "has started the command for {}. The command may still be running on that computer or on the node, and",
        nodes[0]
    );
    assert!(refused.code == Some(2) && refused.stderr.contains(&warning), "{refused:?}");
    abort(&cluster, "killed").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_roll_that_was_started_with_nohup_continues_when_its_terminal_is_closed() {
    let (cluster, nodes, _reconciler) = pool(2).await;
    let folder = tempfile::TempDir::new().unwrap();
    let pipe = folder.path().join("pipe");
    make_pipe(&pipe);
    let command = format!("echo waits; cat {}", pipe.display());
    let mut roll = RunningRoll::begin_with_nohup(&cluster, "detached", &nodes[0], &command);
    roll.until("output", |line| line["text"] == "waits").await;
    roll.signal("HUP");
    std::fs::write(&pipe, "continues\n").unwrap();
    assert_eq!(roll.end().await, Some(0), "{:#?}", roll.lines);
    assert_eq!(roll.output(&nodes[0]), ["waits", "continues"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_command_of_a_node_ends_if_somebody_stops_its_maintenance() {
    let (cluster, nodes, _reconciler) = pool(3).await;
    // The first command waits forever, all others end.
    let marker = tempfile::TempDir::new().unwrap();
    let command = format!(
        "mkdir {0}/first && wait=600; echo begun; sleep ${{wait:-0}}; touch {0}/ended-{{}}",
        marker.path().display()
    );
    let mut roll = RunningRoll::begin(&cluster, "stopped", &nodes[..2], &["--run", &command]);
    let first =
        roll.until("output", |line| line["text"] == "begun").await["node"].as_str().unwrap().to_owned();
    let _ = plugin(&cluster, &["stop", &first]).await.ok();
    roll.until("ended", |line| line["text"] == "ended: the maintenance of the node was deleted").await;
    assert_eq!(roll.end().await, Some(3), "{:#?}", roll.lines);
    assert_eq!((roll.summary()["done"].as_u64(), roll.steps(&first).last()), (Some(1), Some(&"Removed")));
    assert!(!marker.path().join(format!("ended-{first}")).exists());
}

#[tokio::test(flavor = "multi_thread")]
async fn the_second_of_two_people_is_told_who_runs_it_and_may_take_over() {
    let (cluster, nodes, _reconciler) = pool(3).await;
    let (workload, mut first, _) = blocked(&cluster, "shared", &nodes[..2], &[]).await;
    let refused = plugin(&cluster, &["roll", "resume", "shared", "--run", "true"]).await;
    assert_eq!(refused.code, Some(1), "{refused:?}");
    assert!(refused.stderr.contains("runs roll \"shared\"\n"), "{refused:?}");
    assert!(refused.stderr.contains("--take-over"), "{refused:?}");
    let mut second = RunningRoll::resume(&cluster, "shared", &["--run", "true", "--take-over"]);
    assert_eq!(first.end().await, Some(4), "{:#?}", first.lines);
    for node in &nodes[..2] {
        workload.delete_budget(&guard(node)).await;
    }
    second.is_done(2).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_permission_the_roll_ends_with_its_name_and_keeps_its_state() {
    let (cluster, nodes, _reconciler) = pool(3).await;
    let workload = Workload::new(&cluster, "unprivileged").await;
    let account = service_account("default", workload.namespace());
    let read = json!({"apiGroups": ["", "apps", "policy"], "verbs": ["get", "list", "watch"],
        "resources": ["nodes", "pods", "daemonsets", "deployments", "replicasets", "statefulsets", "poddisruptionbudgets"]});
    let maintenances = |verbs: Value| json!({"apiGroups": ["nodemaintenance.medik8s.io"], "resources": ["nodemaintenances"], "verbs": verbs});
    let args = ["roll", &nodes[0], &nodes[1], "--name", "poor", "--run", "true", "--min-ready", "1s", "-y"];
    let role = format!("{}-reads", workload.namespace());
    bind_cluster_role(
        &cluster,
        &role,
        workload.namespace(),
        &[read, maintenances(json!(["get", "list", "watch"]))],
    )
    .await;
    let kubeconfig = cluster.kubeconfig_of(&account).await;
    let run = async |args: &[&str]| nm_tests::programs::plugin_of(&kubeconfig, args).await;
    let refused = run(&args).await;
    assert_eq!(refused.code, Some(1), "{refused:?}");
    assert!(refused.stderr.contains("you need permission to create nodemaintenances"), "{refused:?}");
    assert!(cluster.maintenances().get_opt(&nodes[0]).await.unwrap().is_none(), "nothing was created");

    // It may create maintenances, and not change them: the record of the roll cannot be written.
    let role = format!("{}-creates", workload.namespace());
    bind_cluster_role(&cluster, &role, workload.namespace(), &[maintenances(json!(["create"]))]).await;
    let refused = run(&args).await;
    assert_eq!(refused.code, Some(1), "{refused:?}");
    assert!(refused.stderr.contains("you need permission to patch nodemaintenances"), "{refused:?}");
    // Somebody with the permission continues it.
    let mut resumed = RunningRoll::resume(&cluster, "poor", &["--run", "true"]);
    resumed.is_done(2).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_the_health_gates_cannot_read_is_named_before_the_roll_begins() {
    let (cluster, nodes, _reconciler) = pool(2).await;
    let workload = Workload::new(&cluster, "blind").await;
    let account = service_account("default", workload.namespace());
    let rules = [
        json!({"apiGroups": [""], "resources": ["nodes"], "verbs": ["get", "list", "watch"]}),
        json!({"apiGroups": ["nodemaintenance.medik8s.io"], "resources": ["nodemaintenances"], "verbs": ["*"]}),
    ];
    bind_cluster_role(&cluster, &format!("{}-blind", workload.namespace()), workload.namespace(), &rules)
        .await;
    let kubeconfig = cluster.kubeconfig_of(&account).await;
    let args = ["roll", &nodes[0], "--run", "true", "--min-ready", "1s", "-y"];
    let rolled = nm_tests::programs::plugin_of(&kubeconfig, &args).await.ok();
    let warning =
        "warning: the roll cannot check that nodes and workloads are healthy again: you may not list pods, ";
    assert!(rolled.stderr.contains(warning) && rolled.stderr.contains("get deployments.apps"), "{rolled:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_command_that_somebody_writes_into_the_objects_of_a_running_roll_is_not_run() {
    let (cluster, nodes, _reconciler) = pool(3).await;
    let command = "echo confirmed; sleep 2";
    let mut roll = RunningRoll::begin(&cluster, "swapped", &nodes[..2], &["--run", command]);
    roll.until("output", |line| line["type"] == "output").await;
    let all = cluster.maintenances().list(&ListParams::default()).await.unwrap();
    for object in all.items.iter().filter(|object| nodes[..2].contains(&object.spec.node_name)) {
        let settings = &object.annotations()["kubectl-nm.dev/roll-settings"];
        let settings = settings.replace(command, "echo swapped");
        let patch = json!({"metadata": {"annotations": {"kubectl-nm.dev/roll-settings": settings}}});
        cluster
            .maintenances()
            .patch(&object.name_any(), &PatchParams::default(), &Patch::Merge(&patch))
            .await
            .unwrap();
    }
    assert_eq!(roll.end().await, Some(0), "{:#?}", roll.lines);
    for node in &nodes[..2] {
        assert_eq!(roll.output(node), ["confirmed"], "{:#?}", roll.lines);
    }
}
