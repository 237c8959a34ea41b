//! The pods of the open node: those that the watch reports, joined with what the status reports about them.
//!
//! A pod that disappears is kept as gone. Without permission to list pods, the pods that the status names are shown.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use jiff::Timestamp;
use nm_core::maintenance::changes::{surge_state, wait_in_short};
use nm_core::maintenance::{blocked_count, blocked_pods, status, uid, waiting_pods};
use nm_shared::cluster::pod;
use nm_shared::drain::plan::{StayReason, Verdict};
use nm_shared::{
    BlockReason, BlockedPod, DrainOrder, DrainSpec, MigratingPod, NodeMaintenance, Phase, PodCounts,
    PodReference, PodState, ReturnedPod, SurgingPod, WaitingPod,
};

use crate::model::lists::listing::{Listing, Row};
use crate::model::open_node::pod_row::{PodProgress, PodRow};
use crate::objects::node_pod::{NodePod, PodId, PodKey};

/// From so many changes on, a full sort is cheaper than moving rows one by one.
const FULL_SORT_FROM: usize = 256;

#[derive(Debug, Clone, Default)]
pub(crate) struct PodList {
    watched: HashMap<PodKey, WatchedPod>,
    /// What the last status reported about all pods, and the pods that it named.
    last_status: (StatusSummary, Vec<String>),
    spec: DrainSpec,
    /// The uid of the maintenance whose pods are kept as gone.
    maintenance: String,
    /// The pods that have come since its drain began. Its status counts those that were there then.
    later: HashSet<String>,
    /// Since when the node has been Ready, as far as that is known.
    pub(crate) ready_since: Option<Timestamp>,
    pub(crate) rows: Listing<PodRow>,
    /// How long the longest `NAMESPACE/NAME` is. Each frame asks that, of thousands of pods.
    pub(crate) longest: usize,
    pub(crate) complete: bool,
    pub(crate) hidden: bool,
}

#[derive(Debug, Clone)]
struct WatchedPod {
    pod: Arc<NodePod>,
    verdict: Verdict,
}

impl WatchedPod {
    fn new(pod: &Arc<NodePod>, spec: &DrainSpec, now: Timestamp) -> Self {
        Self { pod: Arc::clone(pod), verdict: pod.verdict(spec, now) }
    }

    fn row(&self, status: &StatusView<'_>, ready_since: Option<Timestamp>, now: Timestamp) -> PodRow {
        PodRow { id: Arc::clone(&self.pod.id), progress: self.progress(status, ready_since, now) }
    }

    fn progress(
        &self,
        status: &StatusView<'_>,
        ready_since: Option<Timestamp>,
        now: Timestamp,
    ) -> PodProgress {
        let summary = status.summary;
        if !summary.in_maintenance {
            return PodProgress::default();
        }
        let own = PodProgress::of(&self.pod, self.verdict, ready_since, now);
        if matches!(self.verdict, Verdict::Stay(_)) {
            return own;
        }
        let waiting = |message: &str| PodProgress { message: message.to_owned(), ..PodState::Waiting.into() };
        let id = &self.pod.id;
        match (own.state, status.progress(&id.namespace, &id.name)) {
            // The pod is newer than the status, which may be from before the eviction.
            (Some(PodState::Terminating), Some(reported))
                if reported.reason != Some(BlockReason::NodeNotReady) =>
            {
                own
            }
            (_, Some(reported)) => reported,
            // It is terminating, and blocks no drain.
            (Some(PodState::Blocked), None) if summary.is_ending => {
                PodProgress { message: own.message, ..PodState::Terminating.into() }
            }
            (Some(PodState::Waiting), None) if summary.is_ending => {
                PodProgress { message: String::from("the drain has ended"), ..PodState::Staying.into() }
            }
            (Some(PodState::Waiting), None) if summary.all_requested => PodState::Evicting.into(),
            (Some(PodState::Waiting), None) if summary.is_cut => {
                waiting("possibly blocked: the status does not list all blocked pods")
            }
            (Some(PodState::Waiting), None) if summary.order == DrainOrder::PriorityAscending => {
                waiting(if self.pod.pod.registers_plugin {
                    "waits for pods of lower priority or with volumes"
                } else {
                    "waits for pods of lower priority"
                })
            }
            (_, None) => own,
        }
    }
}

impl PodList {
    pub(crate) fn list(
        &mut self,
        pods: &[Arc<NodePod>],
        maintenance: Option<&NodeMaintenance>,
        now: Timestamp,
    ) {
        let were_known = self.are_known();
        self.complete = true;
        if were_known && maintenance.is_some_and(has_begun) {
            let new = pods.iter().filter(|pod| self.rows.get(&pod.id.key).is_none());
            self.later.extend(new.map(|pod| pod.id.key.clone()));
        }
        if std::mem::take(&mut self.hidden) {
            // The rows that a status named have other keys than those of pods.
            self.retain_rows(is_gone);
        }
        self.spec = spec(maintenance);
        let watched =
            pods.iter().map(|pod| (PodKey(Arc::clone(&pod.id)), WatchedPod::new(pod, &self.spec, now)));
        self.watched = watched.collect();
        self.replace(maintenance, now);
    }

    pub(crate) fn apply(
        &mut self,
        pod: &Arc<NodePod>,
        maintenance: Option<&NodeMaintenance>,
        now: Timestamp,
    ) {
        let watched = WatchedPod::new(pod, &self.spec, now);
        if self.complete && maintenance.is_some_and(has_begun) && self.rows.get(&pod.id.key).is_none() {
            self.later.insert(pod.id.key.clone());
        }
        self.rows.upsert(watched.row(&StatusView::of(maintenance), self.ready_since, now));
        self.longest = self.longest.max(length(&pod.id));
        self.watched.insert(PodKey(Arc::clone(&pod.id)), watched);
    }

    pub(crate) fn remove(&mut self, id: &PodId, maintenance: Option<&NodeMaintenance>, now: Timestamp) {
        let uid = id.key.as_str();
        self.watched.remove(uid);
        match self.rows.get(uid).filter(|row| maintenance.is_some_and(has_begun) && had_to_go(row)) {
            Some(row) => self.rows.upsert(gone(row, self.later.contains(uid), now)),
            None => self.rows.remove(uid),
        }
    }

    /// Whether the pods were listed. Otherwise, only what the status shows of them is known.
    pub(crate) fn are_known(&self) -> bool {
        self.complete && !self.hidden
    }

    /// Shows the pods that the status names, because the user has no permission to list pods.
    pub(crate) fn hide(&mut self, maintenance: Option<&NodeMaintenance>, now: Timestamp) {
        self.hidden = true;
        self.watched.clear();
        self.replace(maintenance, now);
    }

    pub(crate) fn apply_status(&mut self, maintenance: Option<&NodeMaintenance>, now: Timestamp) {
        self.forget_before(maintenance);
        if self.hidden {
            self.replace(maintenance, now);
            return;
        }
        let judged_again = self.judge_again(maintenance, now);
        let status = StatusView::of(maintenance);
        let named = status.named_pods();
        let changed = if status.summary == self.last_status.0 && !judged_again {
            // Only pods that the status names now, or named before, can have changed: few of ten thousand.
            let paths = self.last_status.1.iter().chain(&named);
            let concerned = paths.flat_map(|path| self.rows.named(|row| row.id.compare_path(path)));
            let concerned = concerned.filter_map(|row| self.watched.get(row.key()));
            self.changed(concerned, &status, now)
        } else {
            self.changed(self.watched.values(), &status, now)
        };
        self.upsert(changed);
        self.last_status = (status.summary, named);
    }

    /// Forgets the pods that left in an earlier maintenance of the node.
    fn forget_before(&mut self, maintenance: Option<&NodeMaintenance>) {
        let Some(uid) = maintenance.map(uid) else { return };
        let before = std::mem::replace(&mut self.maintenance, uid);
        if before != self.maintenance && !before.is_empty() {
            self.later.clear();
            self.retain_rows(|row| !is_gone(row));
        }
    }

    /// Forgets all pods but those that have left, because nothing watches the node any more.
    pub(crate) fn keep_gone(&mut self, maintenance: Option<&NodeMaintenance>) {
        self.forget_before(maintenance);
        if !self.complete && !self.hidden && self.watched.is_empty() {
            return;
        }
        self.watched.clear();
        self.last_status = Default::default();
        (self.complete, self.hidden) = (false, false);
        self.retain_rows(is_gone);
    }

    fn retain_rows(&mut self, keep: impl Fn(&PodRow) -> bool) {
        let kept: Vec<PodRow> = self.rows.all().filter(|row| keep(row)).cloned().collect();
        self.rows.replace(kept);
    }

    /// Whether a pod has come since the drain started.
    pub(crate) fn is_later(&self, row: &PodRow) -> bool {
        self.later.contains(row.key())
    }

    /// How many of the pods that have come since the drain started have to go, or had to.
    pub(crate) fn later(&self) -> usize {
        let rows = self.later.iter().filter_map(|key| self.rows.get(key));
        rows.filter(|row| had_to_go(row)).count()
    }

    /// When the last grace period of the pods that terminate ends.
    pub(crate) fn last_deadline(&self) -> Option<Timestamp> {
        let terminates = |row: &&PodRow| row.progress.state == Some(PodState::Terminating);
        self.rows.all().filter(terminates).filter_map(|row| row.progress.deadline).max()
    }

    /// How many pods have ended, and are kept until their Jobs have counted them.
    pub(crate) fn waiting_for_jobs(&self) -> usize {
        self.watched.values().filter(|watched| pod::waits_for_its_job(&watched.pod.pod)).count()
    }

    /// Judges every pod again if the drain spec changed. Returns whether it did. After a maintenance is gone, the
    /// verdicts do not matter.
    fn judge_again(&mut self, maintenance: Option<&NodeMaintenance>, now: Timestamp) -> bool {
        let spec = spec(maintenance);
        if maintenance.is_none() || spec == self.spec {
            return false;
        }
        self.spec = spec;
        for watched in self.watched.values_mut() {
            watched.verdict = watched.pod.verdict(&self.spec, now);
        }
        true
    }

    /// Returns whether a row has changed.
    pub(crate) fn tick(&mut self, maintenance: Option<&NodeMaintenance>, now: Timestamp) -> bool {
        let terminating = self.watched.values().filter(|watched| watched.pod.deadline().is_some());
        let changed = self.changed(terminating, &StatusView::of(maintenance), now);
        let has_changed = !changed.is_empty();
        self.upsert(changed);
        has_changed
    }

    /// New rows for those of the pods whose state changed.
    fn changed<'a>(
        &self,
        concerned: impl IntoIterator<Item = &'a WatchedPod>,
        status: &StatusView<'_>,
        now: Timestamp,
    ) -> Vec<PodRow> {
        let rows = concerned.into_iter().map(|watched| watched.row(status, self.ready_since, now));
        rows.filter(|row| self.rows.get(row.key()).is_none_or(|known| known.progress != row.progress))
            .collect()
    }

    fn upsert(&mut self, changed: Vec<PodRow>) {
        if changed.len() < FULL_SORT_FROM {
            for row in changed {
                self.rows.upsert(row);
            }
            return;
        }
        let keys: HashSet<String> = changed.iter().map(|row| row.key().to_owned()).collect();
        let same = self.rows.all().filter(|row| !keys.contains(row.key())).cloned();
        let rows: Vec<PodRow> = same.chain(changed).collect();
        self.rows.replace(rows);
    }

    /// Rebuilds all rows. Pods that were there before and are missing now become gone.
    fn replace(&mut self, maintenance: Option<&NodeMaintenance>, now: Timestamp) {
        let status = StatusView::of(maintenance);
        self.last_status = (status.summary, status.named_pods());
        let mut rows: Vec<PodRow> = if self.hidden {
            status.rows()
        } else {
            self.watched.values().map(|watched| watched.row(&status, self.ready_since, now)).collect()
        };
        if maintenance.is_some_and(has_begun) {
            let present: HashSet<&str> = rows.iter().map(Row::key).collect();
            let missing = self.rows.all().filter(|row| had_to_go(row) && !present.contains(row.key()));
            let missing: Vec<PodRow> =
                missing.map(|row| gone(row, self.later.contains(row.key()), now)).collect();
            rows.extend(missing);
        }
        self.longest = rows.iter().map(|row| length(&row.id)).max().unwrap_or(0);
        self.rows.replace(rows);
    }
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "independent facts")]
struct StatusSummary {
    in_maintenance: bool,
    /// Whether the maintenance is being deleted, so that no more pods are evicted.
    is_ending: bool,
    /// Whether the eviction of every pod that is not blocked, terminating or completing has been requested.
    all_requested: bool,
    /// Whether it counts more blocked pods than it lists.
    is_cut: bool,
    order: DrainOrder,
}

#[derive(Default)]
struct StatusView<'a> {
    summary: StatusSummary,
    blocked: HashMap<(&'a str, &'a str), &'a BlockedPod>,
    migrating: HashMap<(&'a str, &'a str), &'a MigratingPod>,
    waiting: HashMap<(&'a str, &'a str), &'a WaitingPod>,
    surging: HashMap<(&'a str, &'a str), &'a SurgingPod>,
    returned: HashMap<(&'a str, &'a str), &'a ReturnedPod>,
    pending: &'a [PodReference],
    counts: PodCounts,
}

impl<'a> StatusView<'a> {
    fn of(maintenance: Option<&'a NodeMaintenance>) -> Self {
        let Some(maintenance) = maintenance else { return Self::default() };
        let status = status(maintenance);
        let blocked =
            blocked_pods(maintenance).iter().map(|pod| ((pod.namespace.as_str(), pod.name.as_str()), pod));
        let migrating = status.migrating_pods.iter().flatten();
        let migrating = migrating.map(|pod| ((pod.namespace.as_str(), pod.name.as_str()), pod));
        let waiting = waiting_pods(maintenance).iter();
        let waiting: HashMap<_, _> =
            waiting.map(|pod| ((pod.namespace.as_str(), pod.name.as_str()), pod)).collect();
        let surging = status.surging_pods.iter().flatten();
        let surging = surging.map(|pod| ((pod.namespace.as_str(), pod.name.as_str()), pod));
        let returned = status.returned_pods.iter().flatten();
        let returned = returned.map(|pod| ((pod.namespace.as_str(), pod.name.as_str()), pod));
        let counts = &status.pod_counts;
        let others_waiting = usize::try_from(counts.waiting).unwrap_or(0).saturating_sub(waiting.len());
        let listed = i32::try_from(blocked_pods(maintenance).len()).unwrap_or(i32::MAX);
        Self {
            summary: StatusSummary {
                in_maintenance: true,
                is_ending: maintenance.metadata.deletion_timestamp.is_some(),
                all_requested: others_waiting == 0 && counts.evicting > 0,
                is_cut: blocked_count(maintenance) > listed,
                order: spec(Some(maintenance)).order,
            },
            blocked: blocked.collect(),
            migrating: migrating.collect(),
            waiting,
            surging: surging.collect(),
            returned: returned.collect(),
            pending: &status.pending_pods_refs,
            counts: *counts,
        }
    }

    fn named_pods(&self) -> Vec<String> {
        let named = self.blocked.keys().chain(self.migrating.keys());
        let named = named.chain(self.waiting.keys()).chain(self.surging.keys()).chain(self.returned.keys());
        named.map(|(namespace, name)| path(namespace, name)).collect()
    }

    /// What it reports about that pod, if anything.
    fn progress(&self, namespace: &str, name: &str) -> Option<PodProgress> {
        if let Some(pod) = self.blocked.get(&(namespace, name)) {
            return Some(PodProgress {
                since: Some(pod.since.0),
                reason: Some(pod.reason),
                message: pod.message.clone(),
                attempts: pod.attempts,
                facts: Some(Box::new(pod.facts.clone())),
                ..PodState::Blocked.into()
            });
        }
        if let Some(pod) = self.waiting.get(&(namespace, name)) {
            let (since, message) = (Some(pod.since.0), wait_in_short(pod));
            return Some(PodProgress { since, message, ..PodState::Waiting.into() });
        }
        if let Some(pod) = self.surging.get(&(namespace, name)) {
            let (since, message) = (Some(pod.since.0), surge_state(pod));
            return Some(PodProgress { since, message, ..PodState::Surging.into() });
        }
        if let Some(pod) = self.returned.get(&(namespace, name)) {
            let (since, message) = (Some(pod.since.0), StayReason::Returned.word().to_owned());
            return Some(PodProgress { since, message, ..PodState::Staying.into() });
        }
        let pod = self.migrating.get(&(namespace, name))?;
        let message = match &pod.target {
            Some(target) => format!("{} to {target}", pod.machine),
            None => format!("{} to a node not chosen yet", pod.machine),
        };
        let since = pod.since.as_ref().map(|since| since.0);
        Some(PodProgress { since, message, ..PodState::Migrating.into() })
    }

    /// The state of the pods that the status names without details, if only one is possible by its numbers.
    fn unlisted_state(&self) -> Option<PodState> {
        let listed = |state: PodState| match state {
            PodState::Blocked => self.blocked.len(),
            PodState::Waiting => self.waiting.len(),
            PodState::Surging => self.surging.len(),
            PodState::Migrating => self.migrating.len(),
            _ => 0,
        };
        let counts = self.counts.by_state().filter(|(state, _)| state.is_pending());
        let mut possible =
            counts.filter(|(state, count)| usize::try_from(*count).unwrap_or(0) > listed(*state));
        possible.next().map(|(state, _)| state).filter(|_| possible.next().is_none())
    }

    /// A row for every pod that still has to go.
    fn rows(&self) -> Vec<PodRow> {
        let state = self.unlisted_state();
        let row = |PodReference { namespace, name }: &PodReference| {
            let id = PodId {
                key: path(namespace, name),
                namespace: namespace.clone(),
                name: name.clone(),
                ..PodId::default()
            };
            let on_node = || PodProgress {
                state,
                is_unknown: state.is_none(),
                message: String::from("still on the node"),
                ..PodProgress::default()
            };
            PodRow { id: Arc::new(id), progress: self.progress(namespace, name).unwrap_or_else(on_node) }
        };
        self.pending.iter().map(row).collect()
    }
}

fn length(id: &PodId) -> usize {
    id.namespace.len() + 1 + id.name.len()
}

fn path(namespace: &str, name: &str) -> String {
    format!("{namespace}/{name}")
}

/// Whether a pod has to go, or had to; then it is kept as gone after it disappeared.
pub(crate) fn had_to_go(row: &PodRow) -> bool {
    row.progress.is_unknown || !matches!(row.progress.state, None | Some(PodState::Staying))
}

fn is_gone(row: &PodRow) -> bool {
    row.progress.state == Some(PodState::Gone)
}

/// Whether the drain has begun. A pod that leaves before is not one that the drain moved. The medik8s operator writes no conditions.
fn has_begun(maintenance: &NodeMaintenance) -> bool {
    let status = status(maintenance);
    status.has_begun() || matches!(status.phase, Some(Phase::Running | Phase::Succeeded | Phase::Failed))
}

fn gone(row: &PodRow, is_later: bool, now: Timestamp) -> PodRow {
    let message = String::from(if is_later { "came after the drain started: not counted" } else { "" });
    match row.progress.state {
        Some(PodState::Gone) => row.clone(),
        _ => PodRow {
            id: Arc::clone(&row.id),
            progress: PodProgress { since: Some(now), message, ..PodState::Gone.into() },
        },
    }
}

fn spec(maintenance: Option<&NodeMaintenance>) -> DrainSpec {
    maintenance.and_then(|maintenance| maintenance.spec.drain.clone()).unwrap_or_default()
}

#[cfg(test)]
#[path = "pods_tests.rs"]
mod tests;
