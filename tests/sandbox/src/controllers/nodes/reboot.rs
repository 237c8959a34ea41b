//! Nodes that reboot: the annotation [`node::REBOOT`] on a node stops its kubelet.
//!
//! The API shows what a real control plane shows:
//!
//! 1. The kubelet has stopped. For [`GRACE_PERIOD`] nothing changes: the node and its pods still look Ready.
//! 2. The node lifecycle controller misses the heartbeats: the conditions of the node are `Unknown`, and its pods are not
//!    Ready. A short downtime ends before this.
//! 3. After the downtime the kubelet starts: the boot ID is new, the node's Ready condition is `False`, the containers have
//!    ended, and the annotation is removed.
//! 4. The node is Ready, and the kubelet restarts the containers.
//!
//! A node that never returns stays `Unknown` until the annotation is removed.

use std::collections::{BTreeSet, HashMap};
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use serde_json::json;
use uuid::Uuid;

use crate::cluster::catalog::resource::{NODES, PODS};
use crate::cluster::store::{Change, Key, Object};
use crate::controllers::engine::context::ReconcileContext;
use crate::controllers::event::{Author, Event};
use crate::controllers::nodes::pod_status;
use crate::model::{duration, node, pod};

/// How long a kubelet may be silent before its node is `Unknown`. In a real cluster it is 50 s
/// (`--node-monitor-grace-period` of the controller manager).
const GRACE_PERIOD: SignedDuration = SignedDuration::from_secs(2);
/// How long a node is down if the annotation is not a duration.
const DEFAULT_DOWNTIME: Duration = Duration::from_secs(5);

/// The nodes that reboot.
#[derive(Debug, Default)]
pub(crate) struct Reboots {
    /// Nodes whose annotation may have changed.
    changed: BTreeSet<String>,
    under_way: HashMap<String, Reboot>,
}

/// The reboot of one node.
#[derive(Debug)]
struct Reboot {
    uid: String,
    stage: Stage,
    /// When the node lifecycle controller notices that the kubelet has stopped.
    noticed_at: Timestamp,
    /// When the kubelet starts, if it does.
    starts_at: Option<Timestamp>,
    began: Timestamp,
}

/// What the API shows of a reboot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// Nothing yet.
    Unnoticed,
    /// The node is `Unknown`.
    Unknown,
    /// The kubelet has started. The node is Ready at this time.
    Starting(Timestamp),
}

impl Reboot {
    fn new(node: &Object, now: Timestamp) -> Self {
        let uid = pod::uid(node).to_owned();
        let noticed_at = later(now, GRACE_PERIOD);
        Self { uid, stage: Stage::Unnoticed, noticed_at, starts_at: None, began: now }
    }

    /// When the next stage begins.
    fn next_at(&self) -> Option<Timestamp> {
        match self.stage {
            Stage::Unnoticed => Some(self.starts_at.map_or(self.noticed_at, |at| at.min(self.noticed_at))),
            Stage::Unknown => self.starts_at,
            Stage::Starting(ready_at) => Some(ready_at),
        }
    }
}

impl Reboots {
    /// Observes a change of a node.
    pub(crate) fn observe(&mut self, change: &Change) {
        let Some(node) = change.after.as_ref().or(change.before.as_ref()) else {
            return;
        };
        let name = pod::name(node);
        if pod::annotation(node, node::REBOOT).is_some() || self.under_way.contains_key(name) {
            self.changed.insert(name.to_owned());
        }
    }

    /// Whether the kubelet of the node has stopped, or has not finished its start.
    pub(crate) fn is_down(&self, node: &str) -> bool {
        self.under_way.contains_key(node)
    }

    /// Begins and continues reboots. A kubelet takes `start_delay` to start.
    pub(crate) fn sync(&mut self, ctx: &mut ReconcileContext<'_>, start_delay: Duration) {
        for name in std::mem::take(&mut self.changed) {
            self.plan(ctx, name);
        }
        let is_due = |reboot: &Reboot| reboot.next_at().is_some_and(|at| at <= ctx.now);
        let due = self.under_way.iter().filter(|(_, reboot)| is_due(reboot));
        let mut due: Vec<String> = due.map(|(name, _)| name.clone()).collect();
        due.sort_unstable();
        for name in due {
            self.advance(ctx, &name, start_delay);
        }
    }

    /// When the next stage of a reboot begins.
    pub(crate) fn next_at(&self) -> Option<Timestamp> {
        self.under_way.values().filter_map(Reboot::next_at).min()
    }

    /// Reads the annotation of a node.
    fn plan(&mut self, ctx: &ReconcileContext<'_>, name: String) {
        let node = ctx.get(&NODES, &Key::cluster(&*name));
        let is_same = |reboot: &Reboot| node.as_ref().is_some_and(|node| pod::uid(node) == reboot.uid);
        if self.under_way.get(&name).is_some_and(|reboot| !is_same(reboot)) {
            self.under_way.remove(&name);
        }
        let Some(node) = node else { return };
        let Some(value) = pod::annotation(&node, node::REBOOT) else {
            if let Some(reboot) = self.under_way.get_mut(&name) {
                reboot.starts_at = Some(ctx.now);
            }
            return;
        };
        let reboot = self.under_way.entry(name).or_insert_with(|| Reboot::new(&node, ctx.now));
        let downtime = duration::parse(value).unwrap_or(DEFAULT_DOWNTIME);
        let downtime = SignedDuration::try_from(downtime).unwrap_or(SignedDuration::MAX);
        reboot.starts_at = (value != node::NEVER).then(|| later(reboot.began, downtime));
    }

    fn advance(&mut self, ctx: &mut ReconcileContext<'_>, name: &str, start_delay: Duration) {
        let Some(reboot) = self.under_way.get_mut(name) else { return };
        let Some(node) = ctx.get(&NODES, &Key::cluster(name)) else { return };
        let now = ctx.now;
        match reboot.stage {
            Stage::Starting(_) => {
                self.under_way.remove(name);
                ctx.edit_status(&NODES, &node, |node| node::report_ready(node, now));
            }
            Stage::Unnoticed | Stage::Unknown if reboot.starts_at.is_some_and(|at| at <= now) => {
                let delay = SignedDuration::try_from(start_delay).unwrap_or(SignedDuration::MAX);
                reboot.stage = Stage::Starting(later(now, delay));
                start(ctx, &node);
            }
            Stage::Unnoticed | Stage::Unknown => {
                reboot.stage = Stage::Unknown;
                miss(ctx, &node);
            }
        }
    }
}

/// The node lifecycle controller misses the heartbeats of a node.
fn miss(ctx: &mut ReconcileContext<'_>, node: &Object) {
    let now = ctx.now;
    ctx.edit_status(&NODES, node, |node| node::miss_heartbeats(node, now));
    for pod in pods_on(ctx, node) {
        ctx.edit_status(&PODS, &pod, |pod| pod_status::lose_node(pod, now));
    }
}

/// The kubelet of a node starts.
fn start(ctx: &mut ReconcileContext<'_>, node: &Object) {
    let now = ctx.now;
    let boot_id = Uuid::new_v4().to_string();
    let started = ctx.edit_status(&NODES, node, |node| {
        node["status"]["nodeInfo"]["bootID"] = json!(boot_id);
        node::report_starting(node, now);
    });
    let Some(node) = started else { return };
    ctx.edit(&NODES, &node, |node| {
        if let Some(annotations) = node["metadata"]["annotations"].as_object_mut() {
            annotations.remove(node::REBOOT);
        }
    });
    let name = pod::name(&node);
    let message = format!("Node {name} has been rebooted, boot id: {boot_id}");
    ctx.record(&Event { author: Author::NodeKubelet(name), about: &node, reason: "Rebooted", message });
    for pod in pods_on(ctx, &node) {
        ctx.edit_status(&PODS, &pod, |pod| pod_status::interrupt(pod, now));
    }
}

fn pods_on(ctx: &ReconcileContext<'_>, node: &Object) -> Vec<Object> {
    ctx.state.on_node(&PODS, pod::name(node)).collect()
}

fn later(time: Timestamp, by: SignedDuration) -> Timestamp {
    time.saturating_add(by).unwrap_or(Timestamp::MAX)
}
