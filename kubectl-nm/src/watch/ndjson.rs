//! `kubectl nm watch --output json`: one JSON object a line for every change, for programs.
//!
//! The fields are documented in the command's help. Within a version they keep their meaning; new ones may come.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;

use jiff::{Timestamp, Unit};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::runtime::watcher::Event;
use nm_shared::{BlockedPod, MigratingPod, NodeMaintenance, Phase, PodCounts, PodReference};
use serde::Serialize;

use crate::client::watch_stream::News;
use crate::error::Error;
use crate::error::exit::Exit;
use crate::maintenance::changes::Change;
use crate::maintenance::{State, node, status, uid};
use crate::terminal::output::Output;
use crate::watch::follow::Moment;
use crate::watch::goal_tracker::Outlook;
use crate::watch::wait::Verdict;

/// The version of what is written.
const VERSION: u8 = 1;

/// One line.
#[derive(Serialize)]
struct Entry<'a> {
    version: u8,
    #[serde(flatten)]
    what: What<'a>,
    time: Timestamp,
}

#[derive(Serialize)]
#[serde(tag = "type", rename_all = "camelCase", rename_all_fields = "camelCase")]
enum What<'a> {
    Snapshot {
        live: bool,
        maintenances: Vec<Maintenance<'a>>,
    },
    Node(Maintenance<'a>),
    Pod {
        node: &'a str,
        #[serde(flatten)]
        pod: PodReference,
        #[serde(flatten)]
        state: Pod<'a>,
    },
    Condition {
        node: &'a str,
        condition: &'a str,
        status: &'a str,
        reason: &'a str,
        message: &'a str,
        since: Timestamp,
    },
    Done {
        exit_code: u8,
        result: &'static str,
        nodes: Vec<Settled>,
    },
}

/// A maintenance, in short.
#[derive(Serialize, PartialEq)]
#[serde(rename_all = "camelCase")]
struct Maintenance<'a> {
    node: &'a str,
    #[serde(rename = "maintenance")]
    name: &'a str,
    uid: String,
    state: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    phase: Option<Phase>,
    progress: i32,
    pods: PodCounts,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<&'a str>,
    #[serde(skip_serializing_if = "str::is_empty")]
    error: &'a str,
}

/// What became of a pod.
#[derive(Serialize)]
#[serde(tag = "state", rename_all = "camelCase")]
enum Pod<'a> {
    Blocked { reason: &'static str, message: &'a str, since: Timestamp, attempts: i32 },
    Unblocked,
    Migrating(Move<'a>),
    Gone,
}

/// Where a virtual machine goes.
#[derive(Serialize)]
struct Move<'a> {
    machine: &'a str,
    source: Option<&'a str>,
    target: Option<&'a str>,
    since: Option<Timestamp>,
}

/// How a node stands at the end.
#[derive(Serialize)]
struct Settled {
    node: String,
    result: &'static str,
}

/// A watch told to a program.
pub(crate) struct Report<'a> {
    out: &'a mut Output,
    now: fn() -> Timestamp,
    outlook: Outlook,
    live: bool,
    settled: Vec<Settled>,
}

impl<'a> Report<'a> {
    /// Tells what the outlook is on, until its end.
    pub(crate) fn of(out: &'a mut Output, now: fn() -> Timestamp, outlook: Outlook) -> Self {
        Self { out, now, outlook, live: true, settled: Vec::new() }
    }

    /// Takes in a moment, tells it, and breaks off when it is over.
    ///
    /// # Errors
    ///
    /// When stdout is closed, or there is nothing to wait for where there should be.
    pub(crate) fn react(&mut self, moment: Moment) -> Result<ControlFlow<Exit>, Error> {
        match moment {
            Moment::News(News::Event(event)) => return self.see(*event),
            Moment::News(News::Lost(_)) => {
                self.live = false;
                self.snapshot()?;
            }
            Moment::News(News::Restored) => {
                self.live = true;
                self.snapshot()?;
            }
            Moment::Reminder => self.snapshot()?,
            Moment::Second => {}
            Moment::TimedOut(_) => return self.done(Exit::TimedOut),
            Moment::Interrupted => return self.done(Exit::Interrupted),
        }
        Ok(ControlFlow::Continue(()))
    }

    /// Tells that it is over because something went wrong, which is for others to say.
    ///
    /// # Errors
    ///
    /// When stdout is closed.
    pub(crate) fn fail(&mut self) -> Result<(), Error> {
        self.done(Exit::Error).map(drop)
    }

    fn see(&mut self, event: Event<NodeMaintenance>) -> Result<ControlFlow<Exit>, Error> {
        let seen = self.outlook.see(event)?;
        if seen.begun {
            self.snapshot()?;
        }
        for change in &seen.changes {
            // What is there at first is in the snapshot; what holds its pods is told one by one all the same.
            self.change(change, seen.begun)?;
        }
        for (target, verdict) in seen.settled {
            let result = match verdict {
                Verdict::Open => continue,
                Verdict::Reached => "reached",
                Verdict::Failed(_) => "failed",
                Verdict::Deleted | Verdict::Replaced => "lost",
            };
            self.settled.push(Settled { node: target.node, result });
        }
        seen.exit.map_or(Ok(ControlFlow::Continue(())), |exit| self.done(exit))
    }

    fn snapshot(&mut self) -> Result<(), Error> {
        if !self.outlook.picture().is_complete() {
            return Ok(());
        }
        let mut maintenances: Vec<Maintenance<'_>> = self.outlook.picture().objects().map(short).collect();
        maintenances.sort_by_key(|short| short.node);
        let line = line((self.now)(), What::Snapshot { live: self.live, maintenances })?;
        Ok(self.out.document(&line)?)
    }

    fn change(&mut self, change: &Change, first: bool) -> Result<(), Error> {
        let what = match change {
            Change::Seen { before, now } => seen(before.as_deref(), now, first),
            Change::Gone(last) => {
                vec![What::Node(Maintenance { state: String::from("gone"), ..short(last) })]
            }
        };
        what.into_iter().try_for_each(|what| self.say(what))
    }

    fn done(&mut self, exit: Exit) -> Result<ControlFlow<Exit>, Error> {
        let result = match exit {
            Exit::Done => "reached",
            Exit::Failed => "failed",
            Exit::Lost => "lost",
            Exit::TimedOut => "timedOut",
            Exit::Interrupted => "interrupted",
            Exit::Error | Exit::Usage => "error",
        };
        let mut nodes = std::mem::take(&mut self.settled);
        nodes.extend(self.outlook.open().map(|target| Settled { node: target.node.clone(), result: "open" }));
        self.say(What::Done { exit_code: exit.number(), result, nodes })?;
        Ok(ControlFlow::Break(exit))
    }

    fn say(&mut self, what: What<'_>) -> Result<(), Error> {
        let line = line((self.now)(), what)?;
        Ok(self.out.document(&line)?)
    }
}

fn line(now: Timestamp, what: What<'_>) -> Result<String, Error> {
    // The rounding cannot fail for a time of this age of the world.
    let entry = Entry { version: VERSION, what, time: now.round(Unit::Millisecond).unwrap_or_default() };
    let json = serde_json::to_string(&entry).map_err(|error| Error::Unshowable(error.to_string()))?;
    Ok(json + "\n")
}

fn short(object: &NodeMaintenance) -> Maintenance<'_> {
    let status = status(object);
    Maintenance {
        node: node(object),
        name: object.metadata.name.as_deref().unwrap_or_default(),
        uid: uid(object),
        state: State::of(object).word().to_lowercase(),
        phase: status.phase,
        progress: status.drain_progress,
        pods: status.pod_counts,
        reason: object.spec.reason.as_deref(),
        error: &status.last_error,
    }
}

/// What there is to tell of a maintenance that is new or has changed.
fn seen<'a>(before: Option<&'a NodeMaintenance>, now: &'a NodeMaintenance, first: bool) -> Vec<What<'a>> {
    let mut told = Vec::new();
    if !first && before.map(short).as_ref() != Some(&short(now)) {
        told.push(What::Node(short(now)));
    }
    let was = |condition: &&Condition| {
        let known = before.map(|before| status(before).conditions.as_slice()).unwrap_or_default();
        !known.contains(condition)
    };
    told.extend(status(now).conditions.iter().filter(was).map(|condition| What::Condition {
        node: node(now),
        condition: &condition.type_,
        status: &condition.status,
        reason: &condition.reason,
        message: &condition.message,
        since: condition.last_transition_time.0,
    }));
    told.extend(pods(before, now).into_iter().map(|(pod, state)| What::Pod { node: node(now), pod, state }));
    told
}

/// What became of which pods.
fn pods<'a>(before: Option<&'a NodeMaintenance>, now: &'a NodeMaintenance) -> Vec<(PodReference, Pod<'a>)> {
    let mut told: BTreeMap<PodReference, Pod<'a>> = BTreeMap::new();
    let (were_blocked, are_blocked) = (before.map(blocked).unwrap_or_default(), blocked(now));
    for (pod, how) in &are_blocked {
        let was = were_blocked.get(pod);
        if was.is_none_or(|was| (was.reason, &was.message) != (how.reason, &how.message)) {
            told.insert(pod.clone(), blocked_as(how));
        }
    }
    let (were_moving, are_moving) = (before.map(moving).unwrap_or_default(), moving(now));
    for (pod, how) in &are_moving {
        if were_moving.get(pod) != Some(how) {
            told.insert(pod.clone(), Pod::Migrating(moved(how)));
        }
    }
    let Some(before) = before else { return told.into_iter().collect() };
    let (were, are) = (pending(before), pending(now));
    for pod in were.iter().filter(|pod| !are.contains(*pod)) {
        told.insert((*pod).clone(), Pod::Gone);
    }
    // The list is cut at fifty; a pod that is merely not listed any more may still be blocked.
    let all_listed =
        usize::try_from(status(now).pod_counts.blocked).is_ok_and(|count| count <= are_blocked.len());
    for pod in were_blocked.into_keys().filter(|pod| all_listed && !are_blocked.contains_key(pod)) {
        told.entry(pod).or_insert(Pod::Unblocked);
    }
    told.into_iter().collect()
}

fn blocked(of: &NodeMaintenance) -> BTreeMap<PodReference, &BlockedPod> {
    let reference =
        |pod: &BlockedPod| PodReference { namespace: pod.namespace.clone(), name: pod.name.clone() };
    status(of).blocked_pods.iter().map(|pod| (reference(pod), pod)).collect()
}

fn moving(of: &NodeMaintenance) -> BTreeMap<PodReference, &MigratingPod> {
    let reference =
        |pod: &MigratingPod| PodReference { namespace: pod.namespace.clone(), name: pod.name.clone() };
    status(of).migrating_pods.iter().flatten().map(|pod| (reference(pod), pod)).collect()
}

fn pending(of: &NodeMaintenance) -> BTreeSet<&PodReference> {
    status(of).pending_pods_refs.iter().collect()
}

fn blocked_as(pod: &BlockedPod) -> Pod<'_> {
    Pod::Blocked {
        reason: pod.reason.as_str(),
        message: &pod.message,
        since: pod.since.0,
        attempts: pod.attempts,
    }
}

fn moved(pod: &MigratingPod) -> Move<'_> {
    Move {
        machine: &pod.machine,
        source: pod.source.as_deref(),
        target: pod.target.as_deref(),
        since: pod.since.as_ref().map(|since| since.0),
    }
}

#[cfg(test)]
#[path = "ndjson_tests.rs"]
mod tests;
