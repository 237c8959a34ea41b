//! One node of the fleet: what its maintenance and its metadata say, in the words of a row.

use std::cmp::Ordering;

use jiff::Timestamp;
use kube::ResourceExt;
use nm_shared::NodeMaintenance;

use crate::dashboard::model::filter::Fields;
use crate::dashboard::model::listing::{Row, Sort};
use crate::explain::remedy;
use crate::maintenance::{PICKUP_TIMEOUT, State, condition, pods_gone, status, stop_progress};

/// Where a node stands, the worst first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum NodeState {
    /// Pods are refused.
    Blocked,
    /// It was given up.
    Failed,
    /// Nobody has taken it up.
    Requested,
    /// Pods are being moved.
    Draining,
    /// The node is being given back.
    Stopping,
    /// It waits for its turn.
    Queued,
    /// Every pod that was to go is gone.
    Done,
    /// It is not in maintenance.
    Idle,
}

impl NodeState {
    /// All of them, the worst first.
    pub(crate) const ALL: [Self; 8] = [
        Self::Blocked,
        Self::Failed,
        Self::Requested,
        Self::Draining,
        Self::Stopping,
        Self::Queued,
        Self::Done,
        Self::Idle,
    ];

    /// The word for it.
    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Blocked => "BLOCKED",
            Self::Failed => "FAILED",
            Self::Requested => "REQUESTED",
            Self::Draining => "DRAINING",
            Self::Stopping => "STOPPING",
            Self::Queued => "QUEUED",
            Self::Done => "DONE",
            Self::Idle => "IDLE",
        }
    }

    fn of(maintenance: &NodeMaintenance) -> Self {
        match State::of(maintenance) {
            State::Requested => Self::Requested,
            State::Queued => Self::Queued,
            State::Blocked => Self::Blocked,
            State::Draining => Self::Draining,
            State::Drained => Self::Done,
            State::Failed => Self::Failed,
            State::Stopping => Self::Stopping,
        }
    }
}

/// A row of the fleet.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct FleetRow {
    key: String,
    /// The node.
    pub(crate) node: String,
    /// Where it stands.
    pub(crate) state: NodeState,
    /// Per cent of the pods to move that are gone.
    pub(crate) percent: i32,
    /// How many pods are gone.
    pub(crate) gone: i32,
    /// How many were to go.
    pub(crate) pods: i32,
    /// How many are refused.
    pub(crate) blocked: i32,
    /// When the maintenance was asked for.
    pub(crate) begun: Option<Timestamp>,
    /// When it came to an end, good or bad.
    pub(crate) ended: Option<Timestamp>,
    /// What stands in the way of its pods: the obstacle, and for how many.
    pub(crate) obstacles: Vec<(String, usize)>,
    why: String,
    namespaces: Vec<String>,
}

impl FleetRow {
    /// The row of a maintenance.
    pub(crate) fn of(maintenance: &NodeMaintenance) -> Self {
        let status = status(maintenance);
        let state = NodeState::of(maintenance);
        let mut obstacles: Vec<(String, usize)> = Vec::new();
        let mut namespaces: Vec<String> = Vec::new();
        for pod in &status.blocked_pods {
            let obstacle = remedy::obstacle(&pod.namespace, pod.reason, &pod.message);
            match obstacles.iter_mut().find(|(known, _)| *known == obstacle) {
                Some((_, count)) => *count += 1,
                None => obstacles.push((obstacle, 1)),
            }
            if !namespaces.contains(&pod.namespace) {
                namespaces.push(pod.namespace.clone());
            }
        }
        let drained = condition(maintenance, "Drained").map(|condition| condition.last_transition_time.0);
        let ended = match state {
            NodeState::Done => drained,
            NodeState::Failed => status.last_update.as_ref().map(|time| time.0),
            _ => None,
        };
        Self {
            key: maintenance.uid().unwrap_or_else(|| maintenance.name_any()),
            node: maintenance.spec.node_name.clone(),
            state,
            percent: status.drain_progress,
            gone: pods_gone(status),
            pods: status.eviction_pods,
            blocked: status.pod_counts.blocked,
            begun: maintenance.metadata.creation_timestamp.as_ref().map(|time| time.0),
            ended,
            obstacles,
            why: why(maintenance, state),
            namespaces,
        }
    }

    /// The row of a node that is not in maintenance.
    pub(crate) fn idle(node: &str) -> Self {
        Self {
            key: format!("node/{node}"),
            node: node.to_owned(),
            state: NodeState::Idle,
            percent: 0,
            gone: 0,
            pods: 0,
            blocked: 0,
            begun: None,
            ended: None,
            obstacles: Vec::new(),
            why: String::from("not in maintenance"),
            namespaces: Vec::new(),
        }
    }

    /// Whether its pods have been counted: before its turn, nobody knows how many there are to move.
    pub(crate) fn has_begun(&self) -> bool {
        !matches!(self.state, NodeState::Requested | NodeState::Queued)
    }

    /// How far it is, for a bar: so many of so many. Where there was no pod to move, what is said in per cent.
    pub(crate) fn progress(&self) -> (i32, i32) {
        if self.pods == 0 { (self.percent, 100) } else { (self.gone, self.pods) }
    }

    /// For how many seconds it has been going on, or went on.
    pub(crate) fn seconds(&self, now: Timestamp) -> Option<i64> {
        Some(self.ended.unwrap_or(now).duration_since(self.begun?).as_secs())
    }

    /// Why it stands where it stands; empty if there is nothing to say.
    pub(crate) fn why(&self, now: Timestamp) -> &str {
        let is_new = self.seconds(now).is_none_or(|seconds| seconds < PICKUP_TIMEOUT);
        match self.state {
            NodeState::Requested if !is_new => "nothing has taken it up: is nm-reconciler running?",
            _ => &self.why,
        }
    }
}

fn why(maintenance: &NodeMaintenance, state: NodeState) -> String {
    let status = status(maintenance);
    let first = status.blocked_pods.first();
    match (state, first) {
        (NodeState::Blocked, Some(pod)) => {
            let short = remedy::in_short(&pod.namespace, pod.reason, &pod.message);
            match status.pod_counts.blocked - 1 {
                0 => short,
                more => format!("{short} (+{more})"),
            }
        }
        (NodeState::Stopping, _) => stop_progress(maintenance),
        (NodeState::Done | NodeState::Idle, _) => String::new(),
        (NodeState::Queued, _) if !status.last_error.is_empty() => place_first(&status.last_error),
        _ if !status.last_error.is_empty() => status.last_error.clone(),
        (NodeState::Queued, _) => condition(maintenance, "Drained")
            .map(|condition| place_first(&condition.message))
            .unwrap_or_default(),
        _ => String::new(),
    }
}

/// Why a node waits, with its place in line before the reason that all in line have in common.
fn place_first(why: &str) -> String {
    match why.rsplit_once(": ") {
        Some((reason, place)) if place.ends_with(" in line") => format!("{place}: {reason}"),
        _ => why.to_owned(),
    }
}

impl Row for FleetRow {
    fn key(&self) -> &str {
        &self.key
    }

    fn order(&self, other: &Self, by: Sort) -> Ordering {
        // Without a beginning is younger than everything.
        let begun = |row: &Self| (row.begun.is_none(), row.begun);
        let first = match by {
            Sort::Risk => (self.state, -self.blocked).cmp(&(other.state, -other.blocked)),
            Sort::Name => Ordering::Equal,
            Sort::Progress => self.percent.cmp(&other.percent),
            Sort::Age => begun(self).cmp(&begun(other)),
        };
        first.then_with(|| self.node.cmp(&other.node)).then_with(|| self.key.cmp(&other.key))
    }

    fn fields(&self) -> Fields<'_> {
        Fields {
            node: Some(&self.node),
            namespaces: self.namespaces.iter().map(String::as_str).collect(),
            state: self.state.word(),
            texts: [&self.why, "", "", ""],
        }
    }

    fn is_blocked(&self) -> bool {
        self.blocked > 0 || self.state == NodeState::Failed
    }
}

#[cfg(test)]
mod tests {
    use super::place_first;

    #[test]
    fn who_waits_in_line_is_told_its_place_before_what_may_be_cut_off() {
        for (why, told) in [
            (
                "5 of 20 nodes are unavailable: place 2 in line",
                "place 2 in line: 5 of 20 nodes are unavailable",
            ),
            ("the lease is held by x: until noon", "the lease is held by x: until noon"),
            ("", ""),
        ] {
            assert_eq!(place_first(why), told);
        }
    }
}
