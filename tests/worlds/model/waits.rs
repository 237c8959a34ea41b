//! What maintenances of the small world wait for, and what they ask of load balancers and autoscalers.
//!
//! Hooks appear at any moment, and whoever has set one removes it sooner or later. A hook that is set while the leader has
//! already decided comes too late, so one counts from the moment at which the leader has to know it: a hook before the first
//! eviction that was there at the creation, a hook before the return that was there at the deletion, and every hook that is
//! there when a status is written that shows it. Time passes only while load balancers are given some, and nothing is being written.

use jiff::Timestamp;
use nm_shared::NodeMaintenance;
use nm_shared::api::names::{
    AUTOSCALER_ANNOTATIONS, LOAD_BALANCER_LABEL, PRE_DRAIN_HOOK, PRE_RETURN_HOOK, UNDO_ANNOTATION,
};
use nm_shared::drain::node_patch;
use nm_shared::gate::ownership;
use nm_tests::invariants::Violation;
use serde_json::{Value, json};

use crate::objects::Object;
use crate::state::{SLOTS, State, is_deleted, parsed, uid};

/// The delay of load balancers in seconds, which is less than time passes at once.
const DELAY: i64 = 30;

/// What the maintenances of a slot are created with.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub(crate) struct Asks {
    /// Load balancers leave the node out, and autoscalers keep it.
    pub(crate) neighbours: bool,
    /// The first eviction waits for load balancers.
    pub(crate) delay: bool,
    /// Somebody does something before the first eviction.
    pub(crate) hook: bool,
}

/// What people do beside creating and deleting maintenances.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Interest {
    /// They change the node, and pods return.
    Node,
    /// They set hooks. In each world they remove those that are set.
    Hooks,
    /// They change what maintenances ask of neighbours, and what the neighbours read.
    Neighbours,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum HookKind {
    PreDrain,
    PreReturn,
}

impl HookKind {
    pub(crate) const ALL: [Self; 2] = [Self::PreDrain, Self::PreReturn];

    /// The annotation of a hook of this slot.
    fn annotation(self, slot: usize) -> String {
        let domain = match self {
            Self::PreDrain => PRE_DRAIN_HOOK,
            Self::PreReturn => PRE_RETURN_HOOK,
        };
        format!("{domain}/m{slot}")
    }

    pub(crate) fn is_set(self, slot: usize, maintenance: Object) -> bool {
        maintenance.at("/metadata/annotations").get(self.annotation(slot)).is_some()
    }

    /// Whether the status shows that this hook is waited for.
    fn is_shown(self, slot: usize, maintenance: Object) -> bool {
        let hooks = maintenance.at("/status/hold/hooks");
        let mut names = hooks.as_array().into_iter().flatten();
        is_deleted(maintenance) == (self == Self::PreReturn)
            && names.any(|hook| hook["name"] == format!("m{slot}"))
    }
}

/// What the watcher remembers of waits.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub(crate) struct Waits {
    /// The hooks of each slot that the leader has to know.
    binding: [[bool; 2]; 2],
    /// When load balancers were asked to leave the node out, if no eviction may have been sent before.
    labelled: Option<u8>,
}

/// The time after it has passed so often.
pub(crate) fn time(clock: u8) -> Timestamp {
    Timestamp::from_second(1_767_229_200 + i64::from(clock) * 2 * DELAY).expect("a time")
}

impl Asks {
    /// The metadata and the spec with what is asked for.
    pub(crate) fn applied(self, slot: usize, mut object: Value) -> Value {
        if self.hook {
            object["metadata"]["annotations"] = json!({HookKind::PreDrain.annotation(slot): "somebody"});
        }
        if self.neighbours {
            object["spec"]["drain"] = self.drain();
        }
        object
    }

    fn drain(self) -> Value {
        let delay = if self.delay { DELAY } else { 0 };
        json!({"loadBalancers": {"exclude": true, "delaySeconds": delay}, "autoscalers": "Protect"})
    }
}

impl State {
    pub(crate) fn set_hook(&mut self, slot: usize, kind: HookKind, is_set: bool) {
        let Some(stored) = self.api.maintenances[slot] else { return };
        let owner = is_set.then_some("somebody");
        let annotations = json!({kind.annotation(slot): owner});
        self.set_maintenance(slot, stored.merged(&json!({"metadata": {"annotations": annotations}})));
    }

    /// A person asks for something of the neighbours, or no longer.
    pub(crate) fn toggle_drain(&mut self, slot: usize) {
        let Some(stored) = self.api.maintenances[slot] else { return };
        let drain =
            if stored.at("/spec/drain").is_null() { self.drain_when_asked(slot) } else { Value::Null };
        let generation = stored.at("/metadata/generation").as_i64().unwrap_or_default() + 1;
        let change = json!({"metadata": {"generation": generation}, "spec": {"drain": drain}});
        self.set_maintenance(slot, stored.merged(&change));
    }

    fn drain_when_asked(&self, slot: usize) -> Value {
        Asks { neighbours: true, ..self.asks[slot] }.drain()
    }

    /// Whether load balancers are given time now.
    pub(crate) fn time_passes(&self) -> bool {
        // Otherwise, what is decided would take effect late.
        if self.late.is_some() || self.term.runs.iter().any(Option::is_some) {
            return false;
        }
        let now = time(self.clock);
        let mut until = self.api.maintenances.iter().flatten().filter_map(|object| {
            object.at("/status/hold/loadBalancersUntil").as_str()?.parse::<Timestamp>().ok()
        });
        self.watcher.waits.labelled == Some(self.clock) || until.any(|until| until > now)
    }

    /// Notes which hooks bind from now on, after a maintenance has become what it is.
    pub(crate) fn note_hooks(&mut self, slot: usize, before: Option<Object>) {
        let object = self.api.maintenances[slot];
        let status = |object: Option<Object>| object.map(|object| object.at("/status"));
        // The other maintenance, or a former leader, may have decided before.
        let may_be_late = self.term.runs[1 - slot].is_some() || self.late.is_some();
        let is_written = !may_be_late && status(before) != status(object);
        let begins_to_end = object.is_some_and(is_deleted) && !before.is_some_and(is_deleted);
        for (kind, binding) in HookKind::ALL.into_iter().zip(&mut self.watcher.waits.binding[slot]) {
            let is_known = match kind {
                HookKind::PreDrain => before.is_none(),
                HookKind::PreReturn => begins_to_end,
            };
            *binding = object.is_some_and(|object| {
                kind.is_set(slot, object)
                    && (*binding || is_known || (is_written && kind.is_shown(slot, object)))
            });
        }
    }

    /// Notes when load balancers are asked, and judges a return: the maintenance of this slot has written the node.
    pub(crate) fn judge_node(&mut self, slot: usize, before: Object, returned: bool) {
        let excluded = |node: Object| node_patch::excluded_since(&parsed(node)).is_some();
        match (excluded(before), excluded(self.api.node)) {
            (false, true) => {
                let waits = self.api.maintenances[slot].is_some_and(|object| {
                    !object.at("/status/hold").is_null() || !object.at("/status/phase").is_string()
                });
                self.watcher.waits.labelled = waits.then_some(self.clock);
            }
            (true, false) => self.watcher.waits.labelled = None,
            _ => {}
        }
        let node = parsed(before);
        let holds = |slot: &usize| {
            let Some(object) = self.api.maintenances[*slot] else { return false };
            let has_node = node_patch::record_names(&node, &uid(object))
                || ownership::has_begun(&object.parse::<NodeMaintenance>());
            has_node && is_deleted(object) && self.watcher.waits.binding[*slot][1]
        };
        if returned && let Some(slot) = SLOTS.into_iter().find(holds) {
            let facts = format!("the hook of m{slot}");
            self.blame(Err(Violation {
                invariant: "no node is returned before the hooks are removed",
                facts,
            }));
        }
    }

    /// Judges an eviction that this maintenance has decided.
    pub(crate) fn judge_eviction(&mut self, decided_by: &str) {
        let is_its = |slot: &usize| {
            self.api.maintenances[*slot]
                .is_some_and(|object| !is_deleted(object) && uid(object) == decided_by)
        };
        let Some(slot) = SLOTS.into_iter().find(is_its) else { return };
        let facts = decided_by.to_owned();
        if self.watcher.waits.binding[slot][0] {
            let invariant = "no pod is evicted before the hooks are removed";
            return self.blame(Err(Violation { invariant, facts }));
        }
        let delay =
            self.api.maintenances[slot].map(|object| object.at("/spec/drain/loadBalancers/delaySeconds"));
        let has_delay = delay.and_then(|delay| delay.as_i64()).is_some_and(|delay| delay > 0);
        if has_delay && self.watcher.waits.labelled == Some(self.clock) {
            let invariant = "no pod is evicted before load balancers have had their time";
            self.blame(Err(Violation { invariant, facts }));
        }
    }
}

/// What neighbours read on a node: the label, and the annotations.
type Values<'a> = (Option<&'a str>, [Option<&'a str>; 2]);

/// A node with these values.
pub(crate) fn with_neighbours(node: Object, (label, annotations): Values<'_>) -> Object {
    let annotations: serde_json::Map<String, Value> = AUTOSCALER_ANNOTATIONS
        .iter()
        .zip(annotations)
        .map(|(key, value)| ((*key).to_owned(), json!(value)))
        .collect();
    node.merged(&json!({"metadata": {"labels": {LOAD_BALANCER_LABEL: label}, "annotations": annotations}}))
}

/// The node as people want it after they have set or removed these values on a node with this record: what the record has is undone in the
/// end.
pub(crate) fn intended(before: Object, node: Object, changed: Object) -> Object {
    let record: Value = node
        .at("/metadata/annotations")
        .get(UNDO_ANNOTATION)
        .and_then(Value::as_str)
        .and_then(|text| serde_json::from_str(text).ok())
        .unwrap_or_default();
    let (mut labels, mut annotations) = (json!({}), json!({}));
    if record["labelsBefore"].get(LOAD_BALANCER_LABEL).is_none() {
        labels[LOAD_BALANCER_LABEL] = changed.at("/metadata/labels")[LOAD_BALANCER_LABEL].clone();
    }
    for key in AUTOSCALER_ANNOTATIONS {
        if record["annotationsBefore"].get(key).is_none() {
            annotations[key] = changed.at("/metadata/annotations")[key].clone();
        }
    }
    before.merged(&json!({"metadata": {"labels": labels, "annotations": annotations}}))
}
