//! `watch` without the dashboard: lines of text for logs, or of JSON for programs.

use std::cell::Cell;
use std::ops::ControlFlow;
use std::rc::Rc;
use std::time::Duration;

use futures::future::pending;
use futures::{StreamExt, stream};
use jiff::Timestamp;
use nm_core::client::cluster::Cluster;
use nm_core::client::merged_watch::watch_maintenances;
use nm_core::client::watch_stream::{WatchChange, WatchPolicy, WatchUpdate};
use nm_core::error::Error;
use nm_core::error::exit::Exit;
use nm_core::explain::outage_watch::{Watched, outage_changes};
use nm_core::leader::changes::{LeaderNeed, leader_changes};
use nm_core::terminal::output::Output;
use nm_core::terminal::signals::interrupted;
use nm_core::watch::deleted_nodes::DeletedNodes;
use nm_core::watch::event_loop::{self, LoopEvent};
use nm_core::watch::goal_tracker::{ExitCondition, GoalTracker};
use nm_core::watch::ndjson::NdjsonReporter;
use nm_core::watch::wait_reporter::{ReportMode, WaitReporter};
use nm_dashboard::HeadlessRecording;
use nm_shared::NodeMaintenance;

use crate::commands::outages;

/// A watch that prints lines.
pub(super) struct LineWatch<'a> {
    pub(super) timeout: Option<Duration>,
    pub(super) cluster: &'a Cluster,
    pub(super) recording: Option<&'a mut HeadlessRecording>,
    /// The change that has ended the watch, if one has.
    pub(super) last: &'a mut Option<WatchChange<NodeMaintenance>>,
}

/// What is reported beside the changes of maintenances, and depends on them.
struct Beside {
    need: Rc<Cell<LeaderNeed>>,
    /// The maintenances whose drains may leave workloads without a ready pod. A watch with a goal names these at its end.
    drains: Option<Watched>,
}

impl Beside {
    fn of(tracker: &GoalTracker) -> Self {
        let is_endless = tracker.exit_condition() == ExitCondition::Never;
        Self { need: Rc::default(), drains: is_endless.then(Watched::default) }
    }

    fn note(&self, need: LeaderNeed, tracker: &GoalTracker) {
        self.need.set(need);
        if let Some(drains) = &self.drains {
            *drains.borrow_mut() = tracker.cache().in_view().cloned().collect();
        }
    }
}

impl LineWatch<'_> {
    /// Prints text. At the end of a wait for drains, it names the workloads that these have left without a ready pod.
    pub(super) async fn print(self, tracker: GoalTracker, out: &mut Output) -> Result<Exit, Error> {
        let cluster = self.cluster;
        let (nodes, deleted_nodes) = (tracker.nodes().to_vec(), DeletedNodes::default());
        let beside = Beside::of(&tracker);
        let reporter = WaitReporter::new(out, ReportMode::Log(&Timestamp::now), tracker, cluster.flags());
        let mut reporter = reporter.with_deleted_nodes(&deleted_nodes);
        let react = |event| {
            let flow = reporter.react(event);
            beside.note(reporter.leader_need(), reporter.tracker());
            flow
        };
        let followed = self.follow(&nodes, &deleted_nodes, &beside, react).await;
        let tracker = reporter.into_tracker();
        if let Ok(exit) = followed {
            outages::report(&tracker, exit, cluster, out).await;
        }
        followed
    }

    /// Prints JSON, unless the first list has failed. The last line is printed in any case.
    pub(super) async fn print_json(
        self,
        existing: Result<(), Error>,
        tracker: GoalTracker,
        out: &mut Output,
    ) -> Result<Exit, Error> {
        let (nodes, deleted_nodes) = (tracker.nodes().to_vec(), DeletedNodes::default());
        let beside = Beside::of(&tracker);
        let mut reporter =
            NdjsonReporter::new(out, &Timestamp::now, tracker).with_deleted_nodes(&deleted_nodes);
        let followed = match existing {
            Ok(()) => {
                let react = |event| {
                    let flow = reporter.react(event);
                    beside.note(reporter.leader_need(), reporter.tracker());
                    flow
                };
                self.follow(&nodes, &deleted_nodes, &beside, react).await
            }
            Err(error) => Err(error),
        };
        if followed.is_err() {
            // If stdout is closed, nobody expects the line.
            let _ = reporter.fail();
        }
        followed
    }

    /// Follows the maintenances until `react` breaks.
    async fn follow(
        self,
        nodes: &[String],
        deleted_nodes: &DeletedNodes,
        beside: &Beside,
        mut react: impl FnMut(LoopEvent) -> Result<ControlFlow<Exit>, Error>,
    ) -> Result<Exit, Error> {
        let Self { timeout, cluster, recording, last } = self;
        let warning = async {
            match recording {
                Some(recording) => recording.until_failed().await,
                None => pending().await,
            }
        };
        let warning = stream::once(warning).map(LoopEvent::Warning).boxed_local();
        let leader = leader_changes(cluster.clone(), Rc::clone(&beside.need)).map(LoopEvent::Leader);
        let outages = match &beside.drains {
            Some(drains) => {
                outage_changes(cluster.clone(), Rc::clone(drains)).map(LoopEvent::Outage).boxed_local()
            }
            None => stream::empty().boxed_local(),
        };
        let others = stream::select(warning, stream::select(leader.boxed_local(), outages));
        let maintenances = watch_maintenances(cluster, WatchPolicy::COMMAND, |object| object);
        let maintenances = deleted_nodes.follow(nodes, cluster, maintenances);
        let react = |event: LoopEvent| {
            let change = match &event {
                LoopEvent::Watch(WatchUpdate::Change(change)) => Some(change.clone()),
                _ => None,
            };
            let flow = react(event)?;
            if flow.is_break() {
                *last = change;
            }
            Ok(flow)
        };
        event_loop::run(maintenances, timeout, interrupted(), others, react).await
    }
}
