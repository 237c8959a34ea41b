//! The workloads that drains left without a ready pod, at the end of a wait, and those that lack pods after a roll. While nodes drain,
//! `explain` finds them: it takes several requests, and a pod that is being replaced is nothing to report with each change.

use std::collections::BTreeSet;
use std::time::Duration;

use jiff::Timestamp;
use nm_core::client::cluster::Cluster;
use nm_core::error::exit::Exit;
use nm_core::explain::cluster_facts::ClusterFacts;
use nm_core::explain::outage_causes::{self, OutageLine};
use nm_core::explain::read_outages;
use nm_core::maintenance::{node, pods_gone, status};
use nm_core::terminal::command_context::explain_command;
use nm_core::terminal::output::Output;
use nm_core::terminal::text::{Line, Style, counted};
use nm_core::watch::goal_tracker::{ExitCondition, Goal, GoalTracker};
use nm_roll::record::{Roll, RollNode, RollRecord};
use nm_shared::NodeMaintenance;
use tokio::time::timeout;

/// How long it may take to find them.
const MAX_WAIT: Duration = Duration::from_secs(5);

/// How many are named.
const MAX_OUTAGES: usize = 5;

/// The same for a dashboard whose goal has been settled with this exit code.
pub(super) async fn report_settled(
    settled: Option<(GoalTracker, Exit)>,
    cluster: &Cluster,
    out: &mut Output,
) {
    if let Some((tracker, exit)) = settled {
        report(&tracker, exit, cluster, out).await;
    }
}

/// Names the workloads that lack ready pods at the end of a roll because replacements have preempted some: the roll itself checks only
/// those of which pods were on its nodes. The exit code does not depend on it.
pub(super) async fn report_preempted(roll: &Roll, record: &RollRecord, cluster: &Cluster, out: &mut Output) {
    let Some(began) = record.began else { return };
    let read = read_outages::preempted_since(roll.nodes.iter().map(RollNode::node), began, cluster);
    let Ok(lost) = timeout(MAX_WAIT, Box::pin(read)).await else { return };
    for (workload, preempted) in lost.iter().take(MAX_OUTAGES) {
        out.message(
            &Line::default().with(Style::Bad, outage_causes::lost_by_preemption(workload, preempted)),
        );
    }
    let more = lost.len().saturating_sub(MAX_OUTAGES);
    if more > 0 {
        let workloads = counted(more, "more workload");
        out.message(&Line::new(format!("and {workloads} that lack ready pods because some were preempted")));
    }
}

/// Names the workloads that the drains left without a ready pod, at the end of a wait for drains, as far as that can be found out
/// at once. The exit code does not depend on it.
pub(super) async fn report(tracker: &GoalTracker, exit: Exit, cluster: &Cluster, out: &mut Output) {
    let waits_for_drains = match tracker.exit_condition() {
        ExitCondition::Goal(goal) => goal == Goal::Drained,
        ExitCondition::AllComplete => true,
        ExitCondition::Never => false,
    };
    if !waits_for_drains || !matches!(exit, Exit::Done | Exit::Failed | Exit::TimedOut) {
        return;
    }
    let mut facts = ClusterFacts::default();
    let is_watched = |object: &&NodeMaintenance| {
        tracker.nodes().is_empty() || tracker.nodes().iter().any(|name| name == node(object))
    };
    let all = tracker.cache().all().map(AsRef::as_ref).filter(is_watched);
    let explained = all.filter(|object| pods_gone(status(object)) > 0);
    let read = read_outages::add_seen(&mut facts, explained, cluster);
    if timeout(MAX_WAIT, Box::pin(read)).await.is_err() {
        return;
    }
    let outages = outage_causes::summary(&facts, Timestamp::now());
    for OutageLine { node, words, may_only_start } in outages.iter().take(MAX_OUTAGES) {
        let style = if *may_only_start { Style::Busy } else { Style::Bad };
        out.message(&Line::new(format!("node/{node}: ")).with(style, words));
    }
    let more = outages.len().saturating_sub(MAX_OUTAGES);
    if more > 0 {
        out.message(&Line::new(format!("and {} without a ready pod", counted(more, "more workload"))));
    }
    let nodes: BTreeSet<&str> = outages.iter().map(|line| line.node).collect();
    if !outages.is_empty() {
        let explain = explain_command(nodes, cluster.flags());
        out.message(&Line::new(format!("hint: `{explain}` shows why")));
    }
}
