//! A row of the fleet: a node and its maintenance.

use std::cmp::{Ordering, Reverse};

use jiff::Timestamp;
use kube::ResourceExt;
use nm_core::explain::remedy;
use nm_core::maintenance::creator::creator;
use nm_core::maintenance::roll::{planned_begin, roll_progress};
use nm_core::maintenance::slow_surge::SlowSurge;
use nm_core::maintenance::{
    PICKUP_TIMEOUT, State, blocked_count, blocked_pods, came_later, condition, degraded, drain_began,
    drain_ended, drained_again_since, hold, is_ending, percent_gone, pods_gone, pods_in_all, reason,
    roll_name, status, stop_progress, uid,
};
use nm_shared::api::condition::ConditionType;
use nm_shared::{BlockReason, NodeMaintenance, NodeMaintenanceStatus, Phase, PodCounts, WaitReason};

use crate::model::lists::filter::{FilterField, Searchable};
use crate::model::lists::listing::{Row, Sort};

pub(crate) const IDLE: &str = "Idle";

/// The states of rows with their words, those that need attention first.
pub(crate) fn states() -> impl Iterator<Item = (Option<State>, &'static str)> {
    State::ALL.into_iter().map(|state| (Some(state), state.word())).chain([(None, IDLE)])
}

/// The order of attention: whether it has no maintenance, whether it has halted no roll, the state, whether a roll is at work with
/// the node, and the number of blocked pods.
pub(super) type Attention = (bool, bool, Option<State>, bool, Reverse<i32>);

#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct FleetRow {
    key: String,
    pub(crate) node: String,
    pub(crate) state: Option<State>,
    /// Percentage of the pods to move that are gone.
    pub(crate) percent: i32,
    pub(crate) gone: i32,
    pub(crate) pods: i32,
    pub(crate) blocked: i32,
    counts: PodCounts,
    /// When the drain began; before that, when the maintenance was created.
    pub(crate) started: Option<Timestamp>,
    pub(crate) ended: Option<Timestamp>,
    /// When pods began to leave that came after the node was drained; none if none do.
    again: Option<Timestamp>,
    /// Since when it is suspended or stops; none in other states.
    stands_since: Option<Timestamp>,
    pub(crate) blockers: Vec<(String, usize)>,
    /// The reason for the maintenance; empty if none was given.
    pub(crate) reason: String,
    /// The roll that created the maintenance, or else the program.
    pub(crate) creator: String,
    /// The name of the maintenance.
    pub(crate) name: String,
    /// The phase of the API; empty before the first status.
    pub(crate) phase: &'static str,
    /// What blocks pods, and which: reasons and names.
    block_reasons: Vec<&'static str>,
    blocking: Vec<String>,
    why: String,
    surge: Option<SlowSurge>,
    /// The roll that the maintenance is part of.
    pub(super) roll: Option<String>,
    /// Whether its roll is at work with the drained node.
    is_at_work: bool,
    /// Whether its roll has halted because of the node.
    has_halted_roll: bool,
    /// Since when nm-reconciler returns the node to service, unless it was deleted; none if it does not.
    pub(super) ending_since: Option<Timestamp>,
    namespaces: Vec<String>,
}

impl FleetRow {
    pub(crate) fn of(maintenance: &NodeMaintenance) -> Self {
        let status = status(maintenance);
        let state = State::of(maintenance);
        let mut blockers: Vec<(String, usize)> = Vec::new();
        let mut namespaces: Vec<String> = Vec::new();
        let (mut block_reasons, mut blocking) = (Vec::new(), Vec::new());
        for pod in blocked_pods(maintenance) {
            let blocker = remedy::common_blocker(&pod.namespace, pod.reason, &pod.facts);
            match blockers.iter_mut().find(|(known, _)| *known == blocker) {
                Some((_, count)) => *count += 1,
                None => blockers.push((blocker, 1)),
            }
            if !block_reasons.contains(&pod.reason.as_str()) {
                block_reasons.push(pod.reason.as_str());
            }
            blocking.push(pod.name.clone());
            blocking.extend(pod.facts.budget.iter().map(|budget| budget.name.clone()));
            if !namespaces.contains(&pod.namespace) {
                namespaces.push(pod.namespace.clone());
            }
        }
        let created = maintenance.metadata.creation_timestamp.as_ref().map(|time| time.0);
        // Statuses of other programs do not have the time, and some failures have none.
        let updated = || status.last_update.as_ref().map(|time| time.0);
        let ended = matches!(state, State::Drained | State::Failed)
            .then(|| drain_ended(maintenance).or_else(updated))
            .flatten();
        Self {
            key: uid(maintenance),
            node: maintenance.spec.node_name.clone(),
            state: Some(state),
            percent: percent_gone(status),
            gone: pods_gone(status),
            pods: pods_in_all(status),
            blocked: blocked_count(maintenance),
            counts: counts(maintenance, state),
            started: drain_began(maintenance).or(created),
            ended,
            again: drained_again_since(maintenance).filter(|_| ended.is_none()),
            stands_since: stands_since(maintenance, state),
            blockers,
            reason: maintenance.spec.reason.clone().unwrap_or_default(),
            creator: creator(maintenance).unwrap_or_default(),
            name: maintenance.name_any(),
            phase: status.phase.map_or("", Phase::as_str),
            block_reasons,
            blocking,
            why: why(maintenance, state),
            surge: SlowSurge::of(maintenance),
            ending_since: maintenance
                .metadata
                .deletion_timestamp
                .as_ref()
                .filter(|_| is_ending(maintenance) && hold(maintenance).is_none())
                .map(|deleted| deleted.0),
            roll: roll_name(maintenance).map(str::to_owned),
            is_at_work: state == State::Drained && roll_progress(maintenance).is_some(),
            has_halted_roll: false,
            namespaces,
        }
    }

    /// What needs attention first: nodes that halted a roll, then by state. A drained node with which a roll is at work comes
    /// after those that are drained now.
    pub(super) fn attention(&self) -> Attention {
        let state = self.state.map(|state| if self.is_at_work { State::Draining } else { state });
        // Nodes without a maintenance come last.
        (self.state.is_none(), !self.has_halted_roll, state, self.is_at_work, Reverse(self.blocked))
    }

    /// The same row, of a node that has halted its roll if `has_halted`.
    pub(super) fn of_halted_roll(self, has_halted: bool) -> Self {
        Self { has_halted_roll: has_halted, ..self }
    }

    pub(crate) fn idle(node: &str) -> Self {
        Self {
            key: format!("node/{node}"),
            node: node.to_owned(),
            why: String::from("not in maintenance"),
            ..Self::default()
        }
    }

    pub(crate) fn state_word(&self) -> &'static str {
        self.state.map_or(IDLE, State::word)
    }

    /// Whether the first reason why it is blocked is that its node is not Ready.
    pub(super) fn is_blocked_by_node(&self) -> bool {
        self.block_reasons.first() == Some(&BlockReason::NodeNotReady.as_str())
    }

    /// Whether its pods have been counted, which is when the drain starts.
    pub(crate) fn has_started(&self) -> bool {
        !matches!(self.state, None | Some(State::Requested | State::Planned | State::Queued))
    }

    /// The pods that had to leave, by state, for a bar. Without pods to move, the percentage decides. What a status does not
    /// count waits, as with those of other programs.
    pub(crate) fn counts(&self) -> PodCounts {
        let percent = self.percent.clamp(0, 100);
        if self.pods == 0 {
            return PodCounts { gone: percent, waiting: 100 - percent, ..PodCounts::default() };
        }
        let counts = PodCounts { gone: self.gone, ..self.counts };
        // Nothing waits any more.
        if self.state == Some(State::Stopping) {
            return counts;
        }
        let uncounted = self.pods.saturating_sub(self.gone).saturating_sub(counts.pending());
        PodCounts { waiting: counts.waiting.saturating_add(uncounted.max(0)), ..counts }
    }

    /// For how many seconds the drain has been under way, or was until the node was drained first; while pods leave that came
    /// later, for how many seconds these do. Before it begins, the age of the maintenance.
    pub(crate) fn seconds(&self, now: Timestamp) -> Option<i64> {
        Some(self.ended.unwrap_or(now).duration_since(self.again.or(self.started)?).as_secs())
    }

    /// The time beside the state of an open node: for how many seconds it is suspended or stops, and else those of
    /// [`Self::seconds`].
    pub(crate) fn seconds_in_state(&self, now: Timestamp) -> Option<i64> {
        match self.stands_since {
            Some(since) => Some(now.duration_since(since).as_secs()),
            None => self.seconds(now),
        }
    }

    /// Why it is in its state; empty if there is nothing to add.
    pub(crate) fn why(&self, now: Timestamp) -> &str {
        let is_new = self.seconds(now).is_none_or(|seconds| seconds < PICKUP_TIMEOUT);
        match self.state {
            Some(State::Requested) if !is_new => "waits for nm-reconciler",
            Some(State::Draining) if self.why.is_empty() => {
                self.surge.as_ref().and_then(|surge| surge.words(now)).unwrap_or_default()
            }
            _ => &self.why,
        }
    }
}

fn stands_since(maintenance: &NodeMaintenance, state: State) -> Option<Timestamp> {
    match state {
        State::Planned | State::Paused => {
            condition(maintenance, ConditionType::Suspended).map(|suspended| suspended.last_transition_time.0)
        }
        State::Stopping => maintenance.metadata.deletion_timestamp.as_ref().map(|deleted| deleted.0),
        _ => None,
    }
}

fn why(maintenance: &NodeMaintenance, state: State) -> String {
    let status = status(maintenance);
    let first = blocked_pods(maintenance).first();
    match (state, first) {
        (State::Draining | State::Blocked | State::Drained, _)
            if let Some(degraded) = degraded(maintenance) =>
        {
            degraded.message.clone()
        }
        (State::Draining | State::Blocked, _) if let Some(hold) = hold(maintenance) => {
            format!("waiting for {hold}")
        }
        (State::Blocked, Some(pod)) => {
            let short = remedy::in_short(&pod.namespace, pod.reason, &pod.facts, &pod.message);
            match status.pod_counts.blocked - 1 {
                0 => short,
                more => format!("{short} (+{more})"),
            }
        }
        (State::Stopping, _) => stop_progress(maintenance),
        (State::Planned, _) => planned_begin(maintenance),
        (State::Drained, _) => roll_progress(maintenance).unwrap_or_default(),
        (State::Draining, _) if status.last_error.is_empty() => Some(waits(status))
            .filter(|waits| !waits.is_empty())
            .or_else(|| came_later(maintenance))
            .unwrap_or_default(),
        (State::Queued | State::Failed, _) => reason(maintenance).to_owned(),
        _ => status.last_error.clone(),
    }
}

/// The pods by state. A pod that a drain waited for stays when that has ended.
fn counts(maintenance: &NodeMaintenance, state: State) -> PodCounts {
    let counts = status(maintenance).pod_counts;
    if state != State::Stopping {
        return counts;
    }
    let staying = counts.staying.saturating_add(counts.blocked).saturating_add(counts.waiting);
    PodCounts { blocked: 0, waiting: 0, staying, ..counts }
}

/// What all remaining pods wait for: `2 wait for budget hard2/pinned`. Empty if any of them is under way.
fn waits(status: &NodeMaintenanceStatus) -> String {
    let counts = status.pod_counts;
    let listed = status.waiting_pods.as_deref().unwrap_or_default();
    if counts.waiting == 0 || counts.pending() > counts.waiting || listed.is_empty() {
        return String::new();
    }
    let mut causes: Vec<(String, usize)> = Vec::new();
    for pod in listed {
        let cause = match (pod.reason, &pod.budget) {
            (WaitReason::BudgetTurn, Some(budget)) => format!("for budget {}/{}", pod.namespace, budget.name),
            (WaitReason::BudgetTurn, None) => format!("for a budget in {}", pod.namespace),
            (WaitReason::Completing, _) => String::from("to complete"),
            // It ends when the others have left.
            (WaitReason::Order | WaitReason::EvictedLast | WaitReason::Unknown, _) => continue,
        };
        match causes.iter_mut().find(|(known, _)| *known == cause) {
            Some((_, count)) => *count += 1,
            None => causes.push((cause, 1)),
        }
    }
    causes.sort_by_key(|(_, count)| Reverse(*count));
    let words = causes.iter().map(|(cause, count)| {
        let verb = if *count == 1 { "waits" } else { "wait" };
        format!("{count} {verb} {cause}")
    });
    words.collect::<Vec<_>>().join(", ")
}

impl Searchable for FleetRow {
    fn any(&self, field: FilterField, is_match: &dyn Fn(&str) -> bool) -> bool {
        let any = |texts: &[String]| texts.iter().any(|text| is_match(text));
        match field {
            FilterField::Node => is_match(&self.node),
            FilterField::Namespace => any(&self.namespaces),
            FilterField::State => is_match(self.state_word()),
            FilterField::Phase => is_match(self.phase),
            FilterField::Reason => {
                is_match(&self.reason) || self.block_reasons.iter().any(|reason| is_match(reason))
            }
            FilterField::Object => is_match(&self.node) || is_match(&self.name) || any(&self.blocking),
            FilterField::Workload | FilterField::Path => false,
            FilterField::Text => is_match(&self.why) || is_match(&self.creator),
        }
    }
}

impl Row for FleetRow {
    const SORTS: &'static [Sort] = &[Sort::Risk, Sort::Name, Sort::Progress, Sort::Age];

    fn key(&self) -> &str {
        &self.key
    }

    fn lead(&self, other: &Self, by: Sort) -> Ordering {
        // A row without a start time sorts last.
        let started = |row: &Self| (row.started.is_none(), row.started);
        match by {
            Sort::Risk => self.attention().cmp(&other.attention()),
            Sort::Name | Sort::Pool => Ordering::Equal,
            Sort::Progress => self.percent.cmp(&other.percent),
            Sort::Age => started(self).cmp(&started(other)),
        }
    }

    fn by_name(&self, other: &Self) -> Ordering {
        self.node.cmp(&other.node).then_with(|| self.key.cmp(&other.key))
    }

    fn is_blocked(&self) -> bool {
        self.blocked > 0 || self.state == Some(State::Failed)
    }
}
