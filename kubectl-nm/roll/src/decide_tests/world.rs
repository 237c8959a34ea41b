//! A small simulated cluster with a roll, in which every decision is carried out at once.

use std::collections::BTreeMap;
use std::sync::Arc;

use nm_core::maintenance::status;
use nm_shared::api::names;
use nm_shared::{NodeMaintenance, Phase};
use serde_json::json;

use super::super::*;
use crate::observed::NodeView;
use crate::record::{FINALIZER, LABEL, NodeRecord, Pause, STATE, annotation, finalizers, hook};

const ME: &str = "me";

pub(super) fn at(seconds: i64) -> Timestamp {
    Timestamp::from_second(1_000_000 + seconds).unwrap()
}

pub(super) fn settings(waves: &[usize], max_unavailable: usize) -> RollSettings {
    serde_json::from_value(json!({
        "waves": waves, "maxUnavailable": max_unavailable, "action": {"run": "x"}, "minReadySeconds": 5,
        "soakSeconds": 3, "actionTimeoutSeconds": 60, "returnTimeoutSeconds": 60, "recoveryTimeoutSeconds": 60,
    }))
    .unwrap()
}

/// A maintenance as the API server stores it, in the world of a test.
fn object(node: &str, wave: usize, position: usize, settings: &RollSettings) -> NodeMaintenance {
    let record = NodeRecord::planned(wave, position, at(0));
    let mut annotations = json!({SETTINGS: annotation(settings), NODE: annotation(&record)});
    if settings.before.is_some() {
        annotations[hook()] = json!("roll/r");
    }
    serde_json::from_value(json!({
        "apiVersion": "nodemaintenance.medik8s.io/v1beta1", "kind": "NodeMaintenance",
        "metadata": {"name": node, "uid": format!("uid-{node}"), "labels": {LABEL: "r"},
            "finalizers": [names::FINALIZER], "ownerReferences": [{"apiVersion": "v1", "kind": "Node", "name": node,
            "uid": "first"}], "annotations": annotations},
        "spec": {"nodeName": node, "suspend": true},
        "status": {"phase": "Pending", "conditions": [{"type": "Suspended", "status": "True", "reason": "Planned",
            "message": "", "lastTransitionTime": "2026-01-02T03:04:05Z"}]},
    }))
    .unwrap()
}

/// A Ready node whose object has this uid.
fn view(uid: &str, boot_id: &str, seconds: i64) -> NodeView {
    NodeView {
        uid: uid.into(),
        seen_since: at(seconds),
        ready_since: Some(at(seconds)),
        boot_id: boot_id.into(),
        ..NodeView::default()
    }
}

/// A cluster with a roll, in which every change that is decided is carried out at once.
pub(super) struct World {
    pub(super) now: i64,
    pub(super) settings: RollSettings,
    pub(super) objects: BTreeMap<String, NodeMaintenance>,
    pub(super) observed: Observed,
    /// Whether both watches report that they are live.
    pub(super) is_live: bool,
    /// The record in the memory of the program.
    pub(super) record: RollRecord,
    /// How many nodes are cordoned or without pods that have not recovered, at most.
    pub(super) most_under_way: usize,
    pub(super) begun: Vec<String>,
    pub(super) acted: Vec<String>,
    /// All actions that have begun: of `--before` and of `--after`, too.
    pub(super) actions: Vec<(String, Step)>,
    pub(super) recreated: Vec<String>,
    pub(super) last: Option<Decisions>,
    /// How many writes the program has sent.
    pub(super) writes: usize,
    /// Before which of these writes somebody changes the object, so that it is refused.
    pub(super) conflicts: Box<dyn Fn(usize) -> bool>,
    /// What another program does before the writes of the next decision.
    pub(super) meanwhile: Option<fn(&mut Self)>,
}

/// A program that runs the roll, with a heartbeat at this second.
fn runner(id: &str, who: &str, second: i64) -> Runner {
    Runner { id: id.into(), who: who.into(), at: at(second), in_cluster: false, node: None }
}

impl World {
    pub(super) fn new(waves: &[usize], max_unavailable: usize) -> Self {
        Self::with(settings(waves, max_unavailable))
    }

    pub(super) fn with(settings: RollSettings) -> Self {
        let mut objects = BTreeMap::new();
        let mut observed = Observed { runner: ME.into(), started: at(0), ..Observed::default() };
        let places =
            settings.waves.iter().enumerate().flat_map(|(wave, nodes)| std::iter::repeat_n(wave, *nodes));
        for (position, wave) in places.enumerate() {
            let node = format!("n{position}");
            objects.insert(node.clone(), object(&node, wave, position, &settings));
            observed.nodes.insert(node, view("first", "boot-0", 0));
        }
        let runner = Some(runner(ME, "me@here", 0));
        let mut world = Self {
            now: 0,
            settings,
            objects,
            observed,
            is_live: true,
            record: RollRecord::default(),
            most_under_way: 0,
            begun: Vec::new(),
            acted: Vec::new(),
            actions: Vec::new(),
            recreated: Vec::new(),
            last: None,
            writes: 0,
            conflicts: Box::new(|_| false),
            meanwhile: None,
        };
        let roll = world.roll();
        let nodes = world.objects.keys().cloned().collect();
        let record = RollRecord { revision: 1, runner, nodes, ..RollRecord::default() };
        let anchor = roll.anchor(&record).map(|anchor| anchor.node().to_owned());
        if let Some(anchor) = anchor {
            world.store(&anchor, &record);
        }
        world.record = record;
        world
    }

    pub(super) fn roll(&self) -> Roll {
        let objects: Vec<_> = self.objects.values().cloned().map(Arc::new).collect();
        Roll::find("r", &objects).unwrap().unwrap_or_else(|| Roll {
            name: "r".into(),
            settings: self.settings.clone(),
            nodes: Vec::new(),
            record: None,
        })
    }

    pub(super) fn store(&mut self, node: &str, record: &RollRecord) {
        let annotations = self.objects.get_mut(node).unwrap().metadata.annotations.get_or_insert_default();
        annotations.insert(STATE.into(), annotation(record));
    }

    /// Somebody pauses or resumes the roll, and the drains that are under way.
    pub(super) fn pause(&mut self, paused: bool) {
        let roll = self.roll();
        let pause = paused.then(|| Pause { by: "bob@desk".into(), at: at(self.now) });
        let record = RollRecord { paused, pause, ..self.record.next() };
        if let Some(anchor) = roll.anchor(&record).map(|anchor| anchor.node().to_owned()) {
            self.store(&anchor, &record);
        }
        for node in roll.nodes.iter().filter(|node| node.is_in_drain()) {
            self.objects.get_mut(node.node()).unwrap().spec.suspend = paused;
        }
    }

    /// Somebody pauses the roll while the changes of a decision are being carried out.
    pub(super) fn pause_meanwhile(&mut self) {
        self.meanwhile = Some(|world| world.pause(true));
        self.decide(usize::MAX);
    }

    /// Somebody asks for a heartbeat.
    pub(super) fn ask(&mut self) {
        self.change_record(|record| RollRecord { asked: true, ..record });
    }

    /// Another program runs the roll from now on.
    pub(super) fn take_over(&mut self) {
        let runner = Some(runner("other", "other@there", self.now));
        self.change_record(|record| RollRecord { runner, ..record });
    }

    /// Another program writes the record that is stored.
    fn change_record(&mut self, change: impl FnOnce(RollRecord) -> RollRecord) {
        let roll = self.roll();
        let record = change(roll.record.clone().unwrap_or_default().next());
        if let Some(anchor) = roll.anchor(&record).map(|anchor| anchor.node().to_owned()) {
            self.store(&anchor, &record);
        }
    }

    /// Somebody changes an object in a way that does not concern the roll.
    fn touch(&mut self, node: &str) {
        let annotations = self.objects.get_mut(node).unwrap().metadata.annotations.get_or_insert_default();
        annotations.insert("touched".into(), self.writes.to_string());
    }

    /// Whether a drain is under way that is not paused.
    pub(super) fn drains(&self) -> bool {
        self.roll().nodes.iter().any(RollNode::drains)
    }

    /// Another program continues, which knows only what is stored.
    pub(super) fn restart(&mut self) {
        let roll = self.roll();
        if !roll.nodes.is_empty() {
            // Before the first node begins, a record that was deleted is not recognised.
            self.record = roll.complete_record().unwrap_or_default();
        }
        self.observed = Observed {
            runner: ME.into(),
            started: at(self.now),
            nodes: std::mem::take(&mut self.observed.nodes),
            retried: self.record.halt.take(),
            ..Observed::default()
        };
        self.record.runner = Some(runner(ME, "me@here", self.now));
    }

    pub(super) fn step_of(&self, node: &str) -> Option<Step> {
        let is_released = self.record.released.iter().any(|released| released == node);
        self.roll().node(node).filter(|_| !is_released).map(|node| node.record.step)
    }

    /// Decides once, and carries out all changes or, if it is interrupted, the first few.
    pub(super) fn decide(&mut self, carried_out: usize) -> RollState {
        let roll = self.roll();
        self.observed.adopt_newer(&mut self.record, &roll);
        // The runner begins its watches again after a sleep. They are live before the next decision.
        let has_slept = self.observed.advance(at(self.now));
        self.observed.note_live(self.is_live && !has_slept);
        self.observed.note(&roll, &self.record);
        let decisions = decide(&roll, &self.record, &self.observed);
        let state = decisions.state.clone();
        // The program ends, and carries nothing out any more.
        let is_over = !matches!(state, RollState::Working | RollState::Waiting(_));
        if let Some(meanwhile) = self.meanwhile.take() {
            meanwhile(self);
        }
        let mut roll = roll;
        for change in decisions.changes.iter().take(if is_over { 0 } else { carried_out }) {
            let is_written = self.write_unless_changed(&mut roll, change);
            // As `apply` does it.
            if !is_written && matches!(change, RollChange::Record(_)) && self.record.halt.is_none() {
                break;
            }
        }
        for object in self.objects.values().cloned().map(Arc::new) {
            self.observed.note_maintenance(&object);
        }
        self.forget_health();
        let under_way = decisions.progress.iter().filter(|progress| progress.step != Step::Planned).count();
        self.most_under_way = self.most_under_way.max(under_way);
        self.last = Some(decisions);
        state
    }

    /// Carries out a change, unless its object has changed since the decision has read it. Returns whether it was carried out.
    fn write_unless_changed(&mut self, roll: &mut Roll, change: &RollChange) -> bool {
        let target = match change {
            RollChange::Record(record) => roll.anchor(record).map(RollNode::node),
            other => other.node(),
        };
        let Some(target) = target.map(str::to_owned) else {
            self.carry_out(roll, change.clone());
            return true;
        };
        self.writes += 1;
        if self.objects.contains_key(&target) && (self.conflicts)(self.writes) {
            self.touch(&target);
        }
        let read = roll.node(&target).map(|node| Arc::clone(&node.object));
        if self.objects.get(&target) != read.as_deref() {
            return false;
        }
        self.carry_out(roll, change.clone());
        // The changes that follow are made to the object as it was written.
        if let Some(written) = self.objects.get(&target).cloned() {
            for node in roll.nodes.iter_mut().filter(|node| node.object.spec.node_name == target) {
                node.object = Arc::new(written.clone());
            }
        }
        true
    }

    pub(super) fn carry_out(&mut self, roll: &Roll, change: RollChange) {
        match change {
            RollChange::Record(record) => {
                if let Some(anchor) = roll.anchor(&record).map(|anchor| anchor.node().to_owned()) {
                    self.store(&anchor, &record);
                }
                self.record = *record;
            }
            RollChange::Begin(node, record) => {
                self.begun.push(node.clone());
                self.write(&node, |written| *written = record.clone());
                let object = self.objects.get_mut(&node).unwrap();
                object.spec.suspend = false;
                object.status =
                    serde_json::from_value(json!({"phase": "Running", "evictionPods": 3})).unwrap();
            }
            RollChange::Write(node, record) => {
                self.write(&node, |written| *written = record.clone());
                if record.step == Step::Returning {
                    self.finalize(&node, true);
                }
                if record.step == Step::Draining {
                    self.remove_hook(&node);
                }
            }
            RollChange::Pause(node) => {
                self.objects.get_mut(&node).unwrap().spec.suspend = true;
                self.observed.to_pause.remove(&node);
            }
            RollChange::Act(node, record) => {
                self.write(&node, |written| *written = record.clone());
                if record.step == Step::Acting {
                    self.acted.push(node.clone());
                }
                self.actions.push((node.clone(), record.step));
                self.observed.actions.insert((node, record.step), ActionState::Running);
            }
            RollChange::Delete(node) => {
                let object = self.objects.get_mut(&node).unwrap();
                object.metadata.deletion_timestamp =
                    Some(serde_json::from_value(json!("2026-01-02T03:04:05Z")).unwrap());
            }
            RollChange::Release(node) => self.finalize(&node, false),
            RollChange::Recreate(object) => {
                let mut object = *object;
                let node = object.spec.node_name.clone();
                object.metadata.uid = Some(format!("uid-{node}-{}", self.writes));
                object.metadata.finalizers = Some(vec![names::FINALIZER.into()]);
                let uid = self.observed.nodes[&node].uid.clone();
                object.metadata.owner_references = serde_json::from_value(
                    json!([{"apiVersion": "v1", "kind": "Node", "name": node, "uid": uid}]),
                )
                .unwrap();
                if !object.spec.suspend {
                    object.status =
                        serde_json::from_value(json!({"phase": "Running", "evictionPods": 0})).unwrap();
                }
                self.recreated.push(node.clone());
                self.objects.insert(node, object);
            }
        }
        self.collect();
    }

    /// Adds the finalizer of the roll to an object, or removes it.
    fn finalize(&mut self, node: &str, is_kept: bool) {
        let finalizers = finalizers(&self.roll().node(node).unwrap().object, is_kept);
        self.objects.get_mut(node).unwrap().metadata.finalizers = Some(finalizers);
    }

    /// Deleted objects without finalizers are gone.
    fn collect(&mut self) {
        self.objects.retain(|_, object| {
            let metadata = &object.metadata;
            metadata.deletion_timestamp.is_none() || metadata.finalizers.iter().flatten().next().is_some()
        });
    }

    /// Somebody deletes the object of a node, and the garbage collector deletes its maintenance.
    pub(super) fn delete_node(&mut self, node: &str) {
        self.observed.nodes.remove(node);
        let Some(object) = self.objects.get_mut(node) else { return };
        let has_owner = object.metadata.owner_references.iter().flatten().next().is_some();
        if has_owner {
            let metadata = &mut object.metadata;
            metadata.deletion_timestamp =
                Some(serde_json::from_value(json!("2026-01-02T03:04:05Z")).unwrap());
            metadata.finalizers.get_or_insert_default().retain(|finalizer| finalizer == FINALIZER);
            self.collect();
        } else {
            object.status = serde_json::from_value(json!({"phase": "Failed", "lastError": "not found",
                "conditions": [{"type": "Cordoned", "status": "False", "reason": "NodeNotFound", "message": "",
                "lastTransitionTime": "2026-01-02T03:04:05Z"}]}))
            .unwrap();
        }
    }

    /// Its kubelet registers a node again.
    pub(super) fn return_node(&mut self, node: &str) {
        let uid = format!("again-{}", self.now);
        self.observed.nodes.insert(node.to_owned(), view(&uid, &format!("boot-{}", self.now), self.now));
    }

    /// Somebody deletes the maintenance of a node, which is returned to service.
    pub(super) fn stop(&mut self, node: &str) {
        self.objects.remove(node);
    }

    /// nm-reconciler returns the nodes to service whose maintenances are deleted.
    fn return_nodes(&mut self) {
        for object in self.objects.values_mut().filter(|object| object.metadata.deletion_timestamp.is_some())
        {
            object.metadata.finalizers.get_or_insert_default().retain(|finalizer| finalizer == FINALIZER);
        }
        self.collect();
    }

    /// What was healthy is checked again in a later step.
    fn forget_health(&mut self) {
        let roll = self.roll();
        let step_of = |name: &str| roll.node(name).map(|node| node.record.step);
        self.observed.health.retain(|(node, step), _| step_of(node) == Some(*step));
    }

    pub(super) fn write(&mut self, node: &str, change: impl Fn(&mut NodeRecord)) {
        let mut record = self.roll().node(node).unwrap().record.clone();
        change(&mut record);
        let annotations = self.objects.get_mut(node).unwrap().metadata.annotations.get_or_insert_default();
        annotations.insert(NODE.into(), annotation(&record));
    }

    pub(super) fn drained(&mut self, node: &str) {
        let status = json!({"phase": "Succeeded", "evictionPods": 3, "podCounts": {"gone": 3}});
        self.objects.get_mut(node).unwrap().status = serde_json::from_value(status).unwrap();
    }

    /// What is known of the action of a drained node.
    pub(super) fn set_action(&mut self, node: &str, state: ActionState) {
        self.set_action_of(node, Step::Acting, state);
    }

    pub(super) fn set_action_of(&mut self, node: &str, step: Step, state: ActionState) {
        self.observed.actions.insert((node.to_owned(), step), state);
    }

    /// nm-reconciler holds the first eviction of a node.
    pub(super) fn hold(&mut self, node: &str) {
        let status = json!({"phase": "Running", "evictionPods": 3, "hold": {"since": "2026-01-02T03:04:05Z",
            "hooks": [{"name": "roll", "owner": "roll/r"}]}});
        self.objects.get_mut(node).unwrap().status = serde_json::from_value(status).unwrap();
    }

    pub(super) fn remove_hook(&mut self, node: &str) {
        self.objects.get_mut(node).unwrap().metadata.annotations.get_or_insert_default().remove(&hook());
    }

    fn is_drained(&self, node: &str) -> bool {
        status(&self.objects[node]).phase == Some(Phase::Succeeded)
    }

    /// The world goes on by itself for a second: drains end, actions succeed, everything gets healthy.
    pub(super) fn pass_second(&mut self) {
        self.now += 1;
        let nodes = self.objects.keys().filter(|node| self.observed.nodes.contains_key(*node));
        for node in nodes.cloned().collect::<Vec<_>>() {
            match self.step_of(&node) {
                Some(Step::Draining) if !self.objects[&node].spec.suspend => {
                    assert!(
                        !self.roll().node(&node).unwrap().is_hooked(),
                        "no pod is evicted before its hook is removed"
                    );
                    self.drained(&node);
                }
                // A node that has returned is drained again.
                Some(Step::Acting | Step::Finishing) if !self.is_drained(&node) => self.drained(&node),
                Some(step)
                    if self.observed.actions.get(&(node.clone(), step)) == Some(&ActionState::Running) =>
                {
                    self.set_action_of(&node, step, ActionState::Succeeded);
                }
                Some(Step::Preparing) if !self.objects[&node].spec.suspend => self.hold(&node),
                Some(step @ (Step::Checking | Step::Recovering)) => self.healthy(&node, step),
                _ => {}
            }
        }
        self.return_nodes();
    }

    /// Decides and lets time pass until the roll ends.
    pub(super) fn run(&mut self) -> RollState {
        for _ in 0..2_000 {
            match self.decide(usize::MAX) {
                RollState::Working | RollState::Waiting(_) => self.pass_second(),
                ended => return ended,
            }
        }
        panic!("the roll does not end: {:?}", self.last);
    }

    pub(super) fn detail(&self, node: &str) -> &str {
        let progress = &self.last.as_ref().unwrap().progress;
        &progress.iter().find(|progress| progress.node == node).unwrap().detail
    }

    /// Decides and lets time pass until a node is in this step.
    pub(super) fn run_to(&mut self, node: &str, step: Step) {
        for _ in 0..200 {
            self.decide(usize::MAX);
            if self.step_of(node) == Some(step) {
                return;
            }
            self.pass_second();
        }
        panic!("{node} does not come to {step:?}: {:?}", self.last);
    }
}
