//! All maintenances, whatever their group, and what is remembered of each.
//!
//! A maintenance is remembered from [`Maintenances::note_seen`] until it is gone.
//!
//! The definitions of the older groups and of the medik8s operator prune status fields that they do not know. The status that
//! was written is therefore remembered beside the part that was stored, and completes the maintenance for as long as the API
//! server has exactly that part. Otherwise the status would differ from the decided one forever, and be written forever.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use nm_shared::decide::cluster_state::Announcement;
use nm_shared::drain::cordon_backoff::RecordonBackoff;
use nm_shared::gate::ownership;
use nm_shared::{Group, GroupedMaintenance, NodeMaintenance, NodeMaintenanceStatus};
use tokio::time::Instant;

use crate::cache::index::Index;
use crate::cache::read_your_writes::LastWrite;
use crate::runtime::backoff::Backoff;

/// Maintenances of two groups may name the same node, so nothing is decided before every group has been listed. A group
/// that cannot be listed delays the others no longer than this.
const INITIAL_LIST_TIMEOUT: Duration = Duration::from_secs(5);

/// The maintenances as the watches delivered them, by node, and what is remembered of each.
pub(crate) struct Maintenances {
    received: Index<(Group, String), Arc<GroupedMaintenance>>,
    /// Those that were announced to start together, by the id that they have in common.
    announced: Index<(Group, String), Arc<GroupedMaintenance>>,
    unlisted: HashSet<Group>,
    started: Instant,
    /// By uid.
    memory: HashMap<String, MaintenanceState>,
    /// When the newest maintenance was first seen.
    newest: Option<Instant>,
}

/// What is remembered of one maintenance.
#[expect(clippy::struct_excessive_bools, reason = "independent facts")]
pub(crate) struct MaintenanceState {
    /// When this process first reconciled it, or it was last resumed.
    pub(crate) first_seen: Instant,
    is_suspended: bool,
    /// Whether the last decision lets it work on its node. Its status may not show this yet.
    pub(crate) at_work: bool,
    /// It is not reconciled before this time.
    pub(crate) not_before: Option<Instant>,
    pub(crate) status_written: Option<Timestamp>,
    /// Consecutive reconciles that failed.
    pub(crate) backoff: Backoff,
    /// Whether its node returned to service and its finalizer was removed. The watch may not show this yet.
    pub(crate) released: bool,
    /// The API server's answer to the last write.
    pub(crate) last_write: LastWrite<GroupedMaintenance>,
    /// Boxed, because most maintenances have none.
    pruned_status: Option<Box<PrunedStatus>>,
    /// Whether its node was returned to service. Its finalizer may still be there.
    pub(crate) has_returned: bool,
    recordons: u32,
    last_recordon: Option<Instant>,
}

/// A status of which the API server stored only a part.
struct PrunedStatus {
    written: NodeMaintenanceStatus,
    stored: NodeMaintenanceStatus,
}

impl MaintenanceState {
    fn new() -> Self {
        Self {
            first_seen: Instant::now(),
            is_suspended: false,
            at_work: false,
            not_before: None,
            status_written: None,
            backoff: Backoff::default(),
            released: false,
            last_write: LastWrite::default(),
            pruned_status: None,
            has_returned: false,
            recordons: 0,
            last_recordon: None,
        }
    }

    /// Records that the cordon was put back now, for the `count`th time.
    pub(crate) fn record_recordon(&mut self, count: u32) {
        (self.recordons, self.last_recordon) = (count, Some(Instant::now()));
    }

    /// How often the cordon was put back.
    pub(crate) fn recordons(&self) -> RecordonBackoff {
        let since_last = self.last_recordon.map(|at| at.elapsed());
        since_last.map_or_else(RecordonBackoff::default, |since_last| RecordonBackoff {
            count: self.recordons,
            since_last,
        })
    }

    /// Whether the API server prunes our own fields of the status. Every status that we write has conditions.
    pub(crate) fn prunes_details(&self) -> bool {
        self.pruned_status.as_ref().is_some_and(|pruned| pruned.stored.conditions.is_empty())
    }

    /// The status that was written, if the API server has exactly the part of it that it stored.
    fn whole_status(&self, latest: &NodeMaintenance) -> Option<&NodeMaintenanceStatus> {
        let pruned = self.pruned_status.as_ref()?;
        (latest.status.as_ref() == Some(&pruned.stored)).then_some(&pruned.written)
    }

    /// Remembers a status that was written, and what the API server answered.
    pub(crate) fn remember_status(&mut self, written: &NodeMaintenanceStatus, answer: GroupedMaintenance) {
        let stored = answer.status.clone().unwrap_or_default();
        let is_pruned = stored != *written;
        self.pruned_status = is_pruned.then(|| Box::new(PrunedStatus { written: written.clone(), stored }));
        _ = self.last_write.remember(answer);
    }
}

impl Maintenances {
    /// None is known yet, and these groups are watched.
    pub(crate) fn new(groups: impl IntoIterator<Item = Group>) -> Self {
        Self {
            received: Index::default(),
            announced: Index::default(),
            unlisted: groups.into_iter().collect(),
            started: Instant::now(),
            memory: HashMap::new(),
            newest: None,
        }
    }

    /// A maintenance was created or changed.
    pub(crate) fn applied(&mut self, received: Arc<GroupedMaintenance>) {
        let (key, node) = (key(&received), received.spec.node_name.clone());
        match Announcement::of(&received) {
            Some(announcement) => self.announced.insert(key.clone(), announcement.id, received.clone()),
            None => _ = self.announced.remove(&key),
        }
        self.received.insert(key, &node, received);
    }

    /// A maintenance is gone, and is forgotten.
    pub(crate) fn deleted(&mut self, maintenance: &GroupedMaintenance) {
        self.received.remove(&key(maintenance));
        self.announced.remove(&key(maintenance));
        self.memory.remove(ownership::uid(maintenance));
    }

    /// All maintenances of a group are known. Forgets those that are gone, what was last written to the others and that they were
    /// released: if etcd was restored from a backup, those writes never happened.
    pub(crate) fn listed(&mut self, group: Group, all: impl IntoIterator<Item = Arc<GroupedMaintenance>>) {
        self.received.retain(|(of, _)| *of != group);
        self.announced.retain(|(of, _)| *of != group);
        for maintenance in all {
            if let Some(state) = self.memory.get_mut(ownership::uid(&maintenance)) {
                (state.last_write, state.released) = (LastWrite::default(), false);
            }
            self.applied(maintenance);
        }
        self.unlisted.remove(&group);
        let present: HashSet<&str> = self.received.values().map(|present| ownership::uid(present)).collect();
        self.memory.retain(|uid, _| present.contains(uid.as_str()));
    }

    /// All maintenances as the watches delivered them.
    pub(crate) fn received(&self) -> impl Iterator<Item = &Arc<GroupedMaintenance>> {
        self.received.values()
    }

    /// Those that were announced to start together under this id.
    pub(crate) fn announced(&self, id: &str) -> impl Iterator<Item = &Arc<GroupedMaintenance>> {
        self.announced.of(id)
    }

    /// Those of a node.
    pub(crate) fn on_node(&self, node: &str) -> impl Iterator<Item = &Arc<GroupedMaintenance>> {
        self.received.of(node)
    }

    /// The maintenance as the watch delivered it, unless it is gone.
    pub(crate) fn get(&self, maintenance: &GroupedMaintenance) -> Option<&Arc<GroupedMaintenance>> {
        self.received.get(&key(maintenance)).filter(|found| found.metadata.uid == maintenance.metadata.uid)
    }

    /// The nodes in maintenance.
    pub(crate) fn nodes(&self) -> HashSet<String> {
        self.received.subjects().map(str::to_owned).collect()
    }

    /// Whether a maintenance names this node; none while not all of them are known.
    pub(crate) fn is_in_maintenance(&self, node: &str) -> Option<bool> {
        let found = self.received.has(node);
        (found || self.unlisted.is_empty()).then_some(found)
    }

    /// How long to wait for groups that have not been listed; none if nothing has to be waited for.
    pub(crate) fn initial_list_wait(&self) -> Option<Duration> {
        if self.unlisted.is_empty() {
            return None;
        }
        INITIAL_LIST_TIMEOUT.checked_sub(self.started.elapsed()).filter(|left| !left.is_zero())
    }

    /// The maintenance as it was last written, with its whole status, unless someone else has written it since.
    pub(crate) fn latest(&mut self, received: Arc<GroupedMaintenance>) -> Arc<GroupedMaintenance> {
        let Some(state) = self.memory.get_mut(ownership::uid(&received)) else { return received };
        let latest = state.last_write.latest(received);
        let Some(whole) = state.whole_status(&latest) else { return latest };
        let mut complete = GroupedMaintenance::clone(&latest);
        complete.maintenance.status = Some(whole.clone());
        Arc::new(complete)
    }

    /// The latest of those that `wanted` accepts as the watches delivered them.
    pub(crate) fn filter(
        &mut self,
        wanted: impl Fn(&GroupedMaintenance) -> bool,
    ) -> Vec<Arc<GroupedMaintenance>> {
        let received: Vec<_> = self.received().filter(|found| wanted(found)).cloned().collect();
        received.into_iter().map(|found| self.latest(found)).collect()
    }

    /// Passes on each maintenance as it was last written, with its whole status.
    pub(crate) fn for_each(&self, mut show: impl FnMut(&NodeMaintenance, Option<&NodeMaintenanceStatus>)) {
        for received in self.received() {
            let state = self.memory.get(ownership::uid(received));
            let newest = state.map(|state| state.last_write.newest(received.clone()));
            let latest = newest.as_ref().unwrap_or(received);
            let whole = state.and_then(|state| state.whole_status(latest));
            show(latest, whole.or(latest.status.as_ref()));
        }
    }

    /// Remembers a maintenance from now on, until it is gone. Nothing else does: an answer may arrive after the deletion of its
    /// object.
    pub(crate) fn note_seen(&mut self, uid: &str) {
        let Self { memory, newest, .. } = self;
        memory.entry(uid.to_owned()).or_insert_with(|| {
            let new = MaintenanceState::new();
            *newest = Some(new.first_seen);
            new
        });
    }

    /// Reads or changes what is remembered of a maintenance. Of one that is not remembered nothing is known, and nothing is kept.
    pub(crate) fn memory<T>(&mut self, uid: &str, change: impl FnOnce(&mut MaintenanceState) -> T) -> T {
        match self.memory.get_mut(uid) {
            Some(known) => change(known),
            None => change(&mut MaintenanceState::new()),
        }
    }

    /// Records whether a maintenance is suspended. Maintenances that are resumed together begin together, like new ones.
    pub(crate) fn note_suspension(&mut self, uid: &str, is_suspended: bool) {
        let Some(state) = self.memory.get_mut(uid) else { return };
        let was = std::mem::replace(&mut state.is_suspended, is_suspended);
        if was && !is_suspended {
            state.first_seen = Instant::now();
            self.newest = Some(state.first_seen);
        }
    }

    /// When this process last wrote the status of a maintenance.
    pub(crate) fn status_written(&self, uid: &str) -> Option<Timestamp> {
        self.memory.get(uid)?.status_written
    }

    /// How long ago the newest maintenance was first seen.
    pub(crate) fn quiet_for(&self) -> Duration {
        self.newest.map_or(Duration::MAX, |newest| newest.elapsed())
    }

    /// Whether nothing is remembered of any maintenance.
    #[cfg(test)]
    pub(crate) fn remembers_none(&self) -> bool {
        self.memory.is_empty()
    }
}

fn key(maintenance: &GroupedMaintenance) -> (Group, String) {
    (maintenance.group, maintenance.metadata.name.clone().unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use nm_shared::NodeMaintenanceSpec;
    use nm_shared::api::names::START_TOGETHER_ANNOTATION;

    use super::*;

    #[test]
    fn what_starts_together_is_found_by_its_id_until_it_is_gone_or_announces_something_else() {
        let of = |name: &str, announcement: Option<&str>| {
            let spec = NodeMaintenanceSpec { node_name: name.to_owned(), ..NodeMaintenanceSpec::default() };
            let mut maintenance = NodeMaintenance::new(name, spec);
            maintenance.metadata.annotations =
                announcement.map(|value| [(START_TOGETHER_ANNOTATION.to_owned(), value.to_owned())].into());
            Arc::new(GroupedMaintenance { group: Group::Medik8s, maintenance })
        };
        let mut all = Maintenances::new([Group::Medik8s]);
        all.listed(
            Group::Medik8s,
            [of("a", Some("x/2")), of("b", Some("x/2")), of("c", None), of("d", Some("y/1"))],
        );
        let count = |all: &Maintenances| (all.announced("x").count(), all.announced("y").count());
        assert_eq!(count(&all), (2, 1));
        all.deleted(&of("a", None));
        all.applied(of("d", None));
        assert_eq!(count(&all), (1, 0));
        all.listed(Group::Medik8s, [of("c", Some("y/1"))]);
        assert_eq!(count(&all), (0, 1));
    }
}
