//! Two programs that begin, resume or take over one roll: only one of them runs it.

use std::time::Duration;

use kube_sandbox::faults::{Action, Rule, Target};
use nm_tests::cluster::Cluster;
use nm_tests::programs::plugin;
use nm_tests::reconciler::Reconciler;
use nm_tests::terminal::Terminal;

use super::running_roll::{RunningRoll, blocked, guard, make_pipe};

#[tokio::test(flavor = "multi_thread")]
async fn a_roll_of_this_name_that_somebody_begins_meanwhile_is_left_alone() {
    let cluster = Cluster::start(4).await;
    let nodes = cluster.nodes().await;
    let _reconciler = Reconciler::start(&cluster);
    let args = ["roll", &nodes[0], &nodes[1], "--name", "same", "--run", "echo mine", "-o", "lines"];
    let mut mine = Terminal::run_plugin(cluster.kubeconfig(), &args, &[]);
    mine.until_shown("Roll 2 nodes").await;
    let theirs = ["--run", "echo theirs; sleep 600"];
    let mut other = RunningRoll::begin(&cluster, "same", &nodes[1..3], &theirs);
    other.until("output", |line| line["text"] == "theirs").await;
    mine.press("y\n");
    mine.until_shown("error: a roll \"same\" exists already").await;
    assert_eq!(mine.exit_code().await, 1);
    assert!(cluster.maintenances().get_opt(&nodes[0]).await.unwrap().is_none(), "nothing was created");
    let status = plugin(&cluster, &["roll", "status", "same"]).await.ok();
    assert!(status.stdout.starts_with("roll same: 0 done, 2 left, ") && status.stdout.contains(" runs it\n"));
    other.signal("INT");
    assert_eq!(other.end().await, Some(130), "{:#?}", other.lines);
    let _ = plugin(&cluster, &["roll", "abort", "same", "--return", "--yes"]).await.ok();
}

#[tokio::test(flavor = "multi_thread")]
async fn of_two_programs_that_resume_a_roll_at_once_one_runs_it() {
    let cluster = Cluster::start(2).await;
    let nodes = cluster.nodes().await;
    let _reconciler = Reconciler::start(&cluster);
    let folder = tempfile::TempDir::new().unwrap();
    let path = folder.path().display();
    // The first command waits until it is killed, the next one until the test writes to its pipe. It is known which one it is
    // before it prints anything.
    make_pipe(&folder.path().join("next"));
    let command = format!(
        "mkdir {path}/first 2> /dev/null && wait=600; echo run >> {path}/runs; echo run; sleep ${{wait:-0}}; cat {path}/next"
    );
    let mut roll = RunningRoll::begin(&cluster, "raced", &nodes[..1], &["--run", &command]);
    roll.until("output", |line| line["text"] == "run").await;
    roll.signal("INT");
    assert_eq!(roll.end().await, Some(130));

    let flags = ["--run", &command];
    let mut one = RunningRoll::resume(&cluster, "raced", &flags);
    let mut other = RunningRoll::resume(&cluster, "raced", &flags);
    let (winner, loser) = tokio::select! {
        code = one.end() => (&mut other, code),
        code = other.end() => (&mut one, code),
    };
    assert_eq!(loser, Some(1));
    // Its command opens the pipe.
    std::fs::write(folder.path().join("next"), "").unwrap();
    assert_eq!(winner.end().await, Some(0), "{:#?}", winner.lines);
    assert_eq!(std::fs::read_to_string(folder.path().join("runs")).unwrap(), "run\nrun\n");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_command_of_a_program_whose_roll_is_taken_over_ends() {
    let cluster = Cluster::start(2).await;
    let nodes = cluster.nodes().await;
    let _reconciler = Reconciler::start(&cluster);
    let folder = tempfile::TempDir::new().unwrap();
    let path = folder.path().display();
    // The first command keeps a pipe open for as long as it or what it has started lives.
    let alive = folder.path().join("alive");
    make_pipe(&alive);
    let command = format!(
        "mkdir {path}/first 2> /dev/null && wait=600 && exec 3> {path}/alive; echo run; sleep ${{wait:-0}}"
    );
    let mut first = RunningRoll::begin(&cluster, "taken", &nodes[..1], &["--run", &command]);
    let ended = tokio::spawn(tokio::fs::read(alive));
    first.until("output", |line| line["text"] == "run").await;
    let mut second = RunningRoll::resume(&cluster, "taken", &["--run", &command, "--take-over"]);
    assert_eq!(first.end().await, Some(4), "{:#?}", first.lines);
    assert!(ended.await.unwrap().unwrap().is_empty());
    assert_eq!(second.end().await, Some(0), "{:#?}", second.lines);
    assert_eq!(second.output(&nodes[0]), ["run"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_roll_answers_who_runs_it_while_one_of_its_requests_hangs() {
    let why = "only a sandbox delays requests";
    let Some(cluster) = Cluster::sandbox_or_skip(3, why).await else { return };
    let nodes = cluster.nodes().await;
    let _reconciler = Reconciler::start(&cluster);
    let (workload, mut roll, first) =
        blocked(&cluster, "slow", &nodes[..2], &["--request-timeout", "0"]).await;
    // Before the second node begins, its budgets are read.
    let faults = cluster.sandbox().unwrap().faults();
    let reads = Target::any().verb("list").resource("poddisruptionbudgets").user_agent("kubectl-nm/*");
    let rule = faults.add(Rule::new(reads, Action::Delay(Duration::from_secs(600))));
    workload.delete_budget(&guard(&first)).await;
    faults.until_played(rule).await;
    let refused = plugin(&cluster, &["roll", "resume", "slow", "--run", "true"]).await;
    assert_eq!(refused.code, Some(1), "{refused:?}");
    assert!(refused.stderr.contains("runs roll \"slow\""), "{refused:?}");
    roll.signal("INT");
    assert_eq!(roll.end().await, Some(130), "{:#?}", roll.lines);
}
