//! The controller that creates the pods of instances and migrates those to be evacuated.
//!
//! The state of a migration is in the objects, and [`Migration`] has its rules. Only the time at which it entered its phase
//! is kept in memory, because timestamps in objects are whole seconds.

use std::collections::{BTreeSet, HashMap};
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use crate::cluster::catalog::resource::{NODES, PODS};
use crate::cluster::registry::Propagation;
use crate::cluster::store::{Change, Collection, Key, Object};
use crate::controllers::engine::context::ReconcileContext;
use crate::controllers::engine::controller::{Controller, Requeue, Watches};
use crate::controllers::engine::delay_queue::DelayQueue;
use crate::kubevirt::migration::{self, EVACUATION, FINALIZER, Migration, is_final};
use crate::kubevirt::objects::{
    self, KUBEVIRTS, MIGRATIONS, NODE, NOT_MIGRATABLE, VMIS, domain, is_launcher,
};
use crate::kubevirt::settings::Settings;
use crate::model::{condition, pod};

/// How many migrations of an instance that have ended are kept.
const KEPT_MIGRATIONS: usize = 5;

/// The controller.
#[derive(Debug)]
pub(crate) struct VirtController {
    migration: SignedDuration,
    changed: BTreeSet<Key>,
    /// Whether every instance may be concerned.
    all_changed: bool,
    due: DelayQueue<()>,
    /// The phase of each migration by uid, and when it entered it.
    phases: HashMap<String, (String, Timestamp)>,
}

impl VirtController {
    /// A controller whose migrations take the given time.
    pub(crate) fn new(migration: Duration) -> Self {
        let migration = SignedDuration::try_from(migration).unwrap_or(SignedDuration::MAX);
        Self {
            migration,
            changed: BTreeSet::new(),
            all_changed: true,
            due: DelayQueue::default(),
            phases: HashMap::new(),
        }
    }

    fn attend(&mut self, ctx: &mut ReconcileContext<'_>, key: &Key, settings: &Settings) {
        let jobs: Vec<Object> = migrations(ctx, key);
        let found = ctx.get(&VMIS, key);
        for job in jobs.iter().filter(|job| is_final(job) || found.is_none()) {
            release(ctx, job);
        }
        let Some(vmi) = found.filter(|vmi| !pod::is_terminating(vmi)) else { return };
        let pods = launchers(ctx, &vmi);
        if !vmi["status"]["nodeName"].is_string() {
            return start(ctx, &vmi, &pods);
        }
        let (ended, active): (Vec<Object>, Vec<Object>) = jobs.into_iter().partition(|job| is_final(job));
        for oldest in ended.iter().take(ended.len().saturating_sub(KEPT_MIGRATIONS)) {
            ctx.delete(&MIGRATIONS, oldest, None, Propagation::Background);
        }
        if active.is_empty() {
            let is_alone = pods.iter().filter(|pod| pod::is_active(pod)).count() == 1;
            if is_alone && is_to_leave(ctx, &vmi, settings) {
                begin(ctx, &vmi);
            }
            return;
        }
        for job in &active {
            let Some(job) = adopt(ctx, job) else { continue };
            let is_another = |other: &Object| {
                pod::uid(other) != pod::uid(&job) && !is_final(other) && !migration::phase(other).is_empty()
            };
            let others: Vec<Object> = ctx.state.list(&MIGRATIONS, None).filter(is_another).collect();
            let since = self.entered(&job, ctx.now);
            let attended = Migration {
                job: &job,
                vmi: &vmi,
                pods: &pods,
                others: &others,
                ended: &ended,
                duration: self.migration,
                since,
                settings,
            };
            if let Some(at) = attended.advance(ctx) {
                self.due.plan(key.clone(), pod::uid(&job), (), at);
            }
        }
    }

    /// When a migration entered its phase.
    fn entered(&mut self, job: &Value, now: Timestamp) -> Timestamp {
        let phase = migration::phase(job);
        let entry = self.phases.entry(pod::uid(job).to_owned()).or_insert_with(|| (phase.to_owned(), now));
        if entry.0 != phase {
            *entry = (phase.to_owned(), now);
        }
        entry.1
    }
}

/// Creates the first pod of an instance, and records its node.
fn start(ctx: &mut ReconcileContext<'_>, vmi: &Object, pods: &[Object]) {
    let Some(pod) = pods.first() else {
        ctx.create(&PODS, objects::launcher(vmi));
        return;
    };
    let (true, Some(node)) = (pod::is_ready(pod), pod::node(pod)) else {
        return;
    };
    let now = ctx.now;
    ctx.edit(&VMIS, vmi, |vmi| {
        let migratable = pod::annotation(vmi, NOT_MIGRATABLE).is_none();
        vmi["metadata"]["labels"][NODE] = json!(node);
        vmi["status"]["phase"] = json!("Running");
        vmi["status"]["nodeName"] = json!(node);
        vmi["status"]["activePods"] = json!({pod::uid(pod): node});
        condition::set(&mut vmi["status"], json!({"type": "Ready", "status": "True"}), now);
        let status = if migratable { "True" } else { "False" };
        condition::set(&mut vmi["status"], json!({"type": "LiveMigratable", "status": status}), now);
    });
}

/// Whether an instance is to be migrated: it is marked, or its node has the taint of a drain. Others act for `External`.
fn is_to_leave(ctx: &ReconcileContext<'_>, vmi: &Value, settings: &Settings) -> bool {
    let status = &vmi["status"];
    let is_marked =
        status["evacuationNodeName"].is_string() && status["evacuationNodeName"] == status["nodeName"];
    let drains = || {
        let node = ctx.get(&NODES, &Key::cluster(status["nodeName"].as_str().unwrap_or_default()));
        node.is_some_and(|node| settings.drains(&node))
    };
    let strategy = vmi["spec"]["evictionStrategy"].as_str();
    matches!(strategy, Some("LiveMigrate" | "LiveMigrateIfPossible"))
        && condition::is_true(status, "LiveMigratable")
        && (is_marked || drains())
}

/// Creates a migration away from the instance's node.
fn begin(ctx: &mut ReconcileContext<'_>, vmi: &Value) {
    let migration = json!({
        "metadata": {"namespace": pod::namespace(vmi), "generateName": "kubevirt-evacuation-",
            "finalizers": [FINALIZER], "annotations": {EVACUATION: vmi["status"]["nodeName"]}},
        "spec": {"vmiName": pod::name(vmi), "priority": "system-critical"},
    });
    ctx.create(&MIGRATIONS, migration);
}

/// Adds the label and the finalizer that a migration which a person has created may lack.
fn adopt(ctx: &mut ReconcileContext<'_>, job: &Object) -> Option<Object> {
    let name = job["spec"]["vmiName"].clone();
    ctx.edit(&MIGRATIONS, job, |job| {
        job["metadata"]["labels"]["kubevirt.io/vmi-name"] = name;
        if !pod::is_terminating(job) {
            job["metadata"]["finalizers"] = json!([FINALIZER]);
        }
    })
}

/// Lets a migration go that has ended.
fn release(ctx: &mut ReconcileContext<'_>, job: &Object) {
    ctx.edit(&MIGRATIONS, job, |job| {
        if let Some(metadata) = job["metadata"].as_object_mut() {
            metadata.remove("finalizers");
        }
    });
}

fn launchers(ctx: &ReconcileContext<'_>, vmi: &Value) -> Vec<Object> {
    let of = |pod: &Object| {
        is_launcher(pod) && pod::controller(pod).is_some_and(|owner| owner["uid"] == pod::uid(vmi))
    };
    ctx.state.list(&PODS, Some(pod::namespace(vmi))).filter(of).collect()
}

/// The migrations of an instance, oldest first.
fn migrations(ctx: &ReconcileContext<'_>, key: &Key) -> Vec<Object> {
    let of = |job: &Object| job["spec"]["vmiName"] == *key.name;
    let mut all: Vec<Object> = ctx.state.list(&MIGRATIONS, Some(&key.namespace)).filter(of).collect();
    all.sort_by_cached_key(|job| {
        (job["metadata"]["creationTimestamp"].as_str().unwrap_or_default().to_owned(), !is_final(job))
    });
    all
}

impl Controller for VirtController {
    fn watches(&self) -> Watches {
        const WATCHED: &[Collection] = &[VMIS, MIGRATIONS, PODS, NODES, KUBEVIRTS];
        Watches::These(WATCHED)
    }

    fn forget(&mut self, _: &Collection) {
        // Not needed: the state of a migration is in the objects.
    }

    fn observe(&mut self, collection: &Collection, change: &Change) {
        let Some(object) = change.after.as_ref().or(change.before.as_ref()) else {
            return;
        };
        let instance = match collection {
            _ if *collection == KUBEVIRTS => {
                self.all_changed = true;
                None
            }
            _ if *collection == NODES => {
                let taints = |node: &Option<Object>| node.as_ref().map(|node| node["spec"]["taints"].clone());
                self.all_changed |= taints(&change.before) != taints(&change.after);
                None
            }
            _ if *collection == VMIS => Some(pod::name(object)),
            _ if *collection == MIGRATIONS => object["spec"]["vmiName"].as_str(),
            _ if is_launcher(object) => domain(object),
            _ => None,
        };
        self.changed.extend(instance.map(|name| Key::new(pod::namespace(object), name)));
    }

    fn sync(&mut self, ctx: &mut ReconcileContext<'_>) -> Requeue {
        let settings = Settings::read(ctx.state);
        if settings.controller_is_down {
            self.all_changed = true;
            return Requeue::Change;
        }
        while let Some((key, ..)) = self.due.pop(ctx.now) {
            self.changed.insert(key);
        }
        if std::mem::take(&mut self.all_changed) {
            self.changed.extend(ctx.state.list(&VMIS, None).map(|vmi| Key::of(&vmi)));
        }
        if !self.changed.is_empty() {
            // The end of one migration lets the next one begin.
            let pending = ctx.state.list(&MIGRATIONS, None).filter(|job| migration::phase(job) == "Pending");
            let pending = pending
                .filter_map(|job| Some(Key::new(pod::namespace(&job), job["spec"]["vmiName"].as_str()?)));
            self.changed.extend(pending);
        }
        for key in std::mem::take(&mut self.changed) {
            self.attend(ctx, &key, &settings);
        }
        Requeue::at(self.due.next_at())
    }
}
