//! The API server of the small world: conflicts by resourceVersion, preconditions by uid, finalizers and disruption budgets.

use nm_shared::drain::node_patch;
use nm_shared::gate::ownership;
use nm_shared::{Group, NodeMaintenance};
use nm_tests::invariants::{
    NodeMarks, Removal, cordoned_first, counted_first, node_is_as_before, removal_is_wanted,
};
use serde_json::{Value, json};

use crate::objects::Object;
use crate::state::{
    Cached, Late, NodeChange, Pod, State, Write, is_deleted, is_recorded, parsed, pod_uid, uid,
};
use crate::waits::intended;

/// The server refused a write: somebody else was faster, or the object is gone.
pub(crate) struct Conflict;

impl State {
    /// Performs a write, and returns the object as it is then.
    pub(crate) fn write(&mut self, write: &Late) -> Result<Option<Object>, Conflict> {
        let Late { slot, is_current, .. } = *write;
        match &write.write {
            Write::Metadata(patch) | Write::RemoveFinalizer(patch) | Write::Status(patch) => {
                let stored = self.api.maintenances[slot].filter(|_| is_current).ok_or(Conflict)?;
                self.set_maintenance(slot, stored.merged(&patch.json()));
                Ok(Some(stored.merged(&patch.json())))
            }
            Write::PatchNode(patch) => {
                if !is_current {
                    return Err(Conflict);
                }
                let patched = self.api.node.merged(&patch.json());
                self.reconciler_wrote(slot, patched);
                Ok(Some(patched))
            }
            Write::CreateLease(lease) => {
                if self.api.lease.is_some() {
                    return Err(Conflict);
                }
                self.set_lease(Some(*lease));
                Ok(Some(*lease))
            }
            Write::PatchLease(patch) => {
                let stored = self.api.lease.filter(|_| is_current).ok_or(Conflict)?;
                let patched = stored.merged(&patch.json());
                self.set_lease(Some(patched));
                Ok(Some(patched))
            }
            Write::DeleteUnobservedLease => {
                self.set_lease(None);
                Ok(None)
            }
            Write::DeleteLease => match self.api.lease {
                None => Ok(None),
                Some(_) if !is_current => Err(Conflict),
                Some(_) => {
                    self.set_lease(None);
                    Ok(None)
                }
            },
        }
    }

    pub(crate) fn set_maintenance(&mut self, slot: usize, object: Object) {
        let finalizers = object.at("/metadata/finalizers");
        let is_gone = is_deleted(object) && finalizers.as_array().is_none_or(Vec::is_empty);
        let object = Some(object).filter(|_| !is_gone);
        if object == self.api.maintenances[slot] {
            return;
        }
        let before = std::mem::replace(&mut self.api.maintenances[slot], object);
        self.note_hooks(slot, before);
        self.term.maintenances[slot].is_current = false;
        if let Some(run) = &mut self.term.runs[slot] {
            run.maintenance_is_current = false;
        }
        if let Some(late) = self.late.as_mut().filter(|late| {
            late.slot == slot
                && matches!(late.write, Write::Metadata(_) | Write::RemoveFinalizer(_) | Write::Status(_))
        }) {
            late.is_current = false;
        }
    }

    fn set_lease(&mut self, lease: Option<Object>) {
        if lease == self.api.lease {
            return;
        }
        self.api.lease = lease;
        self.term.lease.is_current = false;
        for run in self.term.runs.iter_mut().flatten() {
            run.lease_is_current = false;
        }
        if let Some(late) =
            self.late.as_mut().filter(|late| matches!(late.write, Write::PatchLease(_) | Write::DeleteLease))
        {
            late.is_current = false;
        }
    }

    pub(crate) fn set_node(&mut self, node: Object) {
        if node == self.api.node {
            return;
        }
        self.api.node = node;
        self.term.node.is_current = false;
        for run in self.term.runs.iter_mut().flatten() {
            run.node.is_current = false;
        }
        if let Some(late) = self.late.as_mut().filter(|late| matches!(late.write, Write::PatchNode(_))) {
            late.is_current = false;
        }
    }

    fn reconciler_wrote(&mut self, slot: usize, node: Object) {
        let before = self.api.node;
        self.set_node(node);
        self.judge_node(slot, before, self.watcher.is_marked && !is_recorded(node));
        match (self.watcher.is_marked, is_recorded(node)) {
            (false, true) => self.watcher.is_marked = true,
            (true, false) => {
                self.watcher.is_marked = false;
                if std::mem::take(&mut self.watcher.is_unknown) {
                    self.watcher.before = node;
                }
                let before = NodeMarks::of(&parsed(self.watcher.before));
                self.blame(node_is_as_before(&parsed(node), &before));
            }
            _ => {}
        }
    }

    /// A person changes the node.
    pub(crate) fn person_wrote(&mut self, change: NodeChange) {
        let (node, before) = (change.applied(self.api.node), self.watcher.before);
        self.watcher.before = match change {
            _ if !self.watcher.is_marked => node,
            // Nothing knows any more what was there before.
            NodeChange::StripRecord if is_recorded(self.api.node) => {
                [NodeChange::Uncordon, NodeChange::StripTaint, NodeChange::StripLabel]
                    .into_iter()
                    .fold(before, |before, change| change.applied(before))
            }
            NodeChange::AddOwnMarks => change.applied(before),
            NodeChange::SetNeighbours | NodeChange::StripNeighbours => intended(before, self.api.node, node),
            _ => before,
        };
        self.set_node(node);
    }

    /// Notes when nobody can know any more what was on the node before: people have removed the record and the taint before
    /// the leader has seen a status that says that the node is cordoned. What is left may be theirs.
    pub(crate) fn note_unknown(&mut self) {
        let node = parsed(self.api.node);
        let has_begun = |cached: &Cached| {
            cached.object.is_some_and(|object| ownership::has_begun(&object.parse::<NodeMaintenance>()))
        };
        let is_known = node_patch::has_record(&node)
            || node_patch::has_drain_taint(&node, Group::Medik8s)
            || self.term.maintenances.iter().any(has_begun);
        self.watcher.is_unknown |= self.watcher.is_marked && !is_known;
    }

    /// A person creates a maintenance, in the same second as the other one or later.
    pub(crate) fn create(&mut self, slot: usize, same_second: bool) {
        let second = |object: Object| {
            object
                .at("/metadata/creationTimestamp")
                .as_str()
                .and_then(|at| at.get(17..19)?.parse::<u8>().ok())
        };
        let youngest = self.api.maintenances.iter().flatten().filter_map(|object| second(*object)).max();
        let second = youngest.map_or(1, |second| second + u8::from(!same_second));
        self.api.created[slot] += 1;
        let object = self.asks[slot].applied(slot, json!({
            "apiVersion": "nodemaintenance.medik8s.io/v1beta1", "kind": "NodeMaintenance",
            "metadata": {
                "name": format!("m{slot}"), "uid": format!("m{slot}-{}", self.api.created[slot]), "generation": 1,
                "creationTimestamp": format!("2026-01-01T00:00:{second:02}Z"),
            },
            "spec": {"nodeName": "n"},
        }));
        self.set_maintenance(slot, Object::new(object));
    }

    /// A person deletes a maintenance.
    pub(crate) fn delete(&mut self, slot: usize) {
        if let Some(object) = self.api.maintenances[slot] {
            let generation = object.at("/metadata/generation").as_i64().unwrap_or_default() + 1;
            let deleted =
                json!({"metadata": {"deletionTimestamp": "2026-01-01T00:30:00Z", "generation": generation}});
            self.set_maintenance(slot, object.merged(&deleted));
        }
    }

    /// Evicts the pod of this name for a maintenance, if it has this uid and its budget allows that.
    pub(crate) fn evict(&mut self, index: usize, precondition: &str, decided_by: &str) {
        let Pod::Running(number) = self.api.pods.pods[index] else { return };
        let pod = pod_uid(index, number);
        if pod != precondition || !self.api.pods.allows_disruption {
            return;
        }
        self.api.pods.pods[index] = Pod::Terminating(number);
        self.api.pods.allows_disruption = false;
        self.judge_eviction(decided_by);
        let in_maintenance = self.api.maintenances.iter().any(Option::is_some);
        self.blame(removal_is_wanted(&Removal {
            precondition: Some(precondition.to_owned()),
            pod,
            in_maintenance,
        }));
        let mut maintenances = self.api.maintenances.into_iter().flatten();
        let has_status = maintenances.any(|object| object.at("/status/phase").is_string());
        self.blame(counted_first(has_status, precondition));
        if !self.watcher.is_marked {
            self.blame(cordoned_first(&parsed(self.api.node)));
        }
    }

    /// A terminating pod ends, and runs elsewhere.
    pub(crate) fn end_pod(&mut self, index: usize) {
        let number = self.api.pods.pods[index].number();
        self.api.pods.pods[index] = Pod::Gone(number);
        self.api.pods.allows_disruption = true;
    }

    /// The watch delivers.
    pub(crate) fn deliver(&mut self, what: Watched) {
        let term = &mut self.term;
        match what {
            Watched::Node => term.node = Cached::current(Some(self.api.node)),
            Watched::Maintenance(slot) => {
                term.maintenances[slot] = Cached::current(self.api.maintenances[slot]);
                let uids: Vec<String> =
                    term.maintenances.iter().filter_map(|cached| cached.object).map(uid).collect();
                term.released.retain(|released| uids.contains(released));
                if uids.is_empty() {
                    term.evictions.clear();
                }
            }
            Watched::Lease => term.lease = Cached::current(self.api.lease),
            Watched::Pods => term.pods = self.api.pods.clone(),
        }
    }

    pub(crate) fn is_behind(&self, what: Watched) -> bool {
        let term = &self.term;
        match what {
            Watched::Node => !term.node.is_current,
            Watched::Maintenance(slot) => !term.maintenances[slot].is_current,
            Watched::Lease => !term.lease.is_current,
            Watched::Pods => term.pods != self.api.pods,
        }
    }
}

/// What a watch is on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Watched {
    Node,
    Maintenance(usize),
    Lease,
    Pods,
}

/// A patch without its resourceVersion, and whether it had one.
pub(crate) fn patch(mut patch: Value) -> Object {
    if let Some(metadata) = patch.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.remove("resourceVersion");
    }
    Object::new(patch)
}
