//! All maintenances, of whatever group: what compares them with each other sees them here as one.
//!
//! An older definition prunes what it does not know of a status, conditions among it. So what was written is remembered
//! beside what of it was kept: for as long as the API server has just that, the maintenance is seen with all of it.
//! Otherwise a status that loses a part would differ from the one that is deserved, and be written, for ever.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use kube::ResourceExt;
use kube::runtime::reflector::Store;
use nm_shared::{Group, Grouped, NodeMaintenanceStatus};

/// A maintenance of one group may be about the node of one of another, so all groups are listed before anything is
/// done; but one that cannot be listed holds up the others for no longer than this.
const PATIENCE: Duration = Duration::from_secs(5);

/// Every maintenance that is known.
pub(crate) struct Maintenances {
    groups: Vec<OfGroup>,
    since: Instant,
    pruned: Mutex<HashMap<String, Pruned>>,
}

/// The maintenances of one group.
struct OfGroup {
    group: Group,
    store: Store<Grouped>,
    listed: AtomicBool,
}

/// A status that lost a part on its way, by the maintenance's uid.
struct Pruned {
    written: NodeMaintenanceStatus,
    kept: NodeMaintenanceStatus,
}

impl Maintenances {
    /// Those in these stores, one for each group.
    pub(crate) fn new(stores: impl IntoIterator<Item = (Group, Store<Grouped>)>) -> Self {
        let known = |(group, store)| OfGroup { group, store, listed: AtomicBool::new(false) };
        let groups = stores.into_iter().map(known).collect();
        Self { groups, since: Instant::now(), pruned: Mutex::default() }
    }

    /// All of them.
    pub(crate) fn all(&self) -> Vec<Arc<Grouped>> {
        self.seen().into_iter().map(|maintenance| self.complete(maintenance)).collect()
    }

    /// All of them as they were sent, for who asks only which there are.
    pub(crate) fn seen(&self) -> Vec<Arc<Grouped>> {
        self.groups.iter().flat_map(|known| known.store.state()).collect()
    }

    /// Those that `wanted` says yes to as they were sent, status and all.
    pub(crate) fn filter(&self, wanted: impl Fn(&Grouped) -> bool) -> Vec<Arc<Grouped>> {
        let found = self.groups.iter().flat_map(|known| known.store.state_filter(&wanted));
        found.map(|maintenance| self.complete(maintenance)).collect()
    }

    /// Notes that the store has all maintenances of a group.
    pub(crate) fn listed(&self, group: Group) {
        for known in self.groups.iter().filter(|known| known.group == group) {
            known.listed.store(true, Ordering::Release);
        }
    }

    /// For how long nothing is to be begun still, unless the groups that are not listed yet are before that.
    pub(crate) fn unsettled_for(&self) -> Option<Duration> {
        if self.groups.iter().all(|known| known.listed.load(Ordering::Acquire)) {
            return None;
        }
        PATIENCE.checked_sub(self.since.elapsed()).filter(|left| !left.is_zero())
    }

    /// Remembers a status that was written, if `answered` has not all of it.
    pub(crate) fn remember(&self, written: &NodeMaintenanceStatus, answered: &Grouped) {
        let Some(uid) = answered.uid() else { return };
        let kept = answered.status.clone().unwrap_or_default();
        if kept == *written {
            self.pruned().remove(&uid);
        } else {
            self.pruned().insert(uid, Pruned { written: written.clone(), kept });
        }
    }

    /// The maintenance with the status that it was given, unless someone else has written it since.
    pub(crate) fn complete(&self, maintenance: Arc<Grouped>) -> Arc<Grouped> {
        let pruned = self.pruned();
        let known = maintenance.maintenance.metadata.uid.as_ref().and_then(|uid| pruned.get(uid));
        match known {
            Some(known) if maintenance.status.as_ref() == Some(&known.kept) => {
                let mut complete = Grouped::clone(&maintenance);
                complete.maintenance.status = Some(known.written.clone());
                Arc::new(complete)
            }
            _ => maintenance,
        }
    }

    /// Forgets the statuses of all maintenances but those that `exists` names.
    pub(crate) fn retain(&self, exists: impl Fn(&str) -> bool) {
        self.pruned().retain(|uid, _| exists(uid));
    }

    fn pruned(&self) -> MutexGuard<'_, HashMap<String, Pruned>> {
        self.pruned.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kube::runtime::reflector::store::Writer;
    use kube::runtime::watcher;
    use serde_json::{Value, json};

    fn maintenance(name: &str, group: Group, status: &Value) -> Grouped {
        let api_version = format!("{}/{}", group.name(), group.version());
        serde_json::from_value(json!({
            "apiVersion": api_version, "metadata": {"name": name, "uid": format!("{name} {group:?}")},
            "spec": {"nodeName": name}, "status": status,
        }))
        .unwrap()
    }

    #[test]
    fn maintenances_of_one_name_in_two_groups_are_two() {
        let mut writers = Group::ALL.map(|group| (group, Writer::new(group)));
        let all =
            Maintenances::new(writers.iter().map(|(group, writer)| (*group, Writer::as_reader(writer))));
        for (group, writer) in &mut writers[..2] {
            let there = maintenance("a", *group, &json!({"phase": "Running"}));
            writer.apply_watcher_event(&watcher::Event::Apply(there));
        }
        let groups: Vec<Group> = all.all().iter().map(|maintenance| maintenance.group).collect();
        assert_eq!(groups, Group::ALL[..2]);
        assert_eq!(all.filter(|maintenance| maintenance.group == Group::Medik8s).len(), 1);
    }

    #[test]
    fn nothing_is_begun_before_all_groups_are_listed() {
        let writers = Group::ALL.map(|group| (group, Writer::new(group)));
        let all =
            Maintenances::new(writers.iter().map(|(group, writer)| (*group, Writer::as_reader(writer))));
        for group in Group::ALL {
            assert!(all.unsettled_for().is_some_and(|left| left <= PATIENCE));
            all.listed(group);
        }
        assert_eq!(all.unsettled_for(), None);
    }

    #[test]
    fn what_was_pruned_is_seen_until_someone_else_writes() {
        let all = Maintenances::new([]);
        let of = |status: &Value| maintenance("a", Group::Kubevirt, status);
        let kept = of(&json!({"phase": "Running"}));
        let written = of(&json!({"phase": "Running", "drainProgress": 50})).maintenance.status.unwrap();
        let seen = |all: &Maintenances, maintenance: &Grouped| {
            all.complete(Arc::new(maintenance.clone())).status.as_ref().map(|status| status.drain_progress)
        };
        assert_eq!(seen(&all, &kept), Some(0));
        all.remember(&written, &kept);
        assert_eq!(seen(&all, &kept), Some(50));
        assert_eq!(seen(&all, &of(&json!({"phase": "Succeeded"}))), Some(0), "by another");
        assert_eq!(seen(&all, &of(&Value::Null)), None, "by another");
        all.retain(|_| false);
        assert_eq!(seen(&all, &kept), Some(0));
    }
}
