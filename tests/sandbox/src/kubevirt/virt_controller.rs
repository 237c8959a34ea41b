//! The controller that creates the pods of instances and migrates those to be evacuated.
//!
//! The state of a migration is in the objects: one that is neither `Succeeded` nor `Failed` needs a target pod. When
//! that is Ready, the instance's `migrationState` starts. After a delay the instance runs in the target pod, and the
//! source pod has succeeded. Only the end of the delay is kept in memory.

use std::collections::BTreeSet;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use crate::cluster::catalog::resource::{BUDGETS, PODS};
use crate::cluster::registry::Propagation;
use crate::cluster::store::{Change, Collection, Key, Object};
use crate::controllers::engine::context::ReconcileContext;
use crate::controllers::engine::controller::{Controller, Requeue, Watches};
use crate::controllers::engine::delay_queue::DelayQueue;
use crate::controllers::nodes::pod_status;
use crate::kubevirt::objects;
use crate::kubevirt::objects::{MIGRATIONS, NODE, NOT_MIGRATABLE, VMIS, domain, is_launcher};
use crate::model::clock::metav1_time;
use crate::model::condition;
use crate::model::pod;

/// The migration that a pod is the target of.
const JOB: &str = "kubevirt.io/migrationJobUID";
/// On a migration: the node to evacuate.
const EVACUATION: &str = "kubevirt.io/evacuationMigration";

/// The controller.
#[derive(Debug)]
pub(crate) struct VirtController {
    migration: SignedDuration,
    changed: BTreeSet<Key>,
    due: DelayQueue<()>,
}

impl VirtController {
    /// A controller whose migrations take the given time.
    pub(crate) fn new(migration: Duration) -> Self {
        let migration = SignedDuration::try_from(migration).unwrap_or(SignedDuration::MAX);
        Self { migration, changed: BTreeSet::new(), due: DelayQueue::default() }
    }

    fn attend(&mut self, ctx: &mut ReconcileContext<'_>, key: &Key) {
        let Some(vmi) = ctx.get(&VMIS, key).filter(|vmi| !pod::is_terminating(vmi)) else {
            return;
        };
        let pods = launchers(ctx, &vmi);
        if !vmi["status"]["nodeName"].is_string() {
            return start(ctx, &vmi, &pods);
        }
        let marked = vmi["status"]["evacuationNodeName"].is_string();
        let Some(job) = active_migration(ctx, &vmi) else {
            if marked && vmi["spec"]["evictionStrategy"] != "External" {
                begin(ctx, &vmi);
            }
            return;
        };
        let target = pods.iter().find(|pod| pod["metadata"]["labels"][JOB] == pod::uid(&job));
        let begun = vmi["status"]["migrationState"]["migrationUid"] == pod::uid(&job);
        match target {
            None if begun => give_up(ctx, &vmi, &job, None),
            None => bring_target(ctx, &vmi, &job),
            Some(target) if !pod::is_active(target) => give_up(ctx, &vmi, &job, Some(target)),
            Some(target) if !begun && pod::is_ready(target) => {
                transfer(ctx, &vmi, &job, source(&pods, &job), target);
                let at = ctx.now.saturating_add(self.migration).unwrap_or(Timestamp::MAX);
                self.due.plan(key.clone(), pod::uid(&job), (), at);
            }
            Some(_) => {}
        }
    }
}

/// Creates the first pod of an instance, and records its node.
fn start(ctx: &mut ReconcileContext<'_>, vmi: &Object, pods: &[Object]) {
    let Some(pod) = pods.first() else {
        let protected = match vmi["spec"]["evictionStrategy"].as_str() {
            Some("LiveMigrate" | "External") => true,
            Some("LiveMigrateIfPossible") => pod::annotation(vmi, NOT_MIGRATABLE).is_none(),
            _ => false,
        };
        if protected {
            ctx.create(&BUDGETS, objects::budget(vmi));
        }
        ctx.create(&PODS, objects::launcher(vmi));
        return;
    };
    let (true, Some(node)) = (pod::is_ready(pod), pod::node(pod)) else {
        return;
    };
    let now = ctx.now;
    let Some(vmi) = ctx.edit(&VMIS, vmi, |vmi| vmi["metadata"]["labels"][NODE] = json!(node)) else {
        return;
    };
    ctx.edit_status(&VMIS, &vmi, |vmi| {
        let migratable = pod::annotation(vmi, NOT_MIGRATABLE).is_none();
        vmi["status"]["phase"] = json!("Running");
        vmi["status"]["nodeName"] = json!(node);
        vmi["status"]["activePods"] = json!({pod::uid(pod): node});
        condition::set(&mut vmi["status"], json!({"type": "Ready", "status": "True"}), now);
        let status = if migratable { "True" } else { "False" };
        condition::set(&mut vmi["status"], json!({"type": "LiveMigratable", "status": status}), now);
    });
}

/// Creates a migration away from the instance's node.
fn begin(ctx: &mut ReconcileContext<'_>, vmi: &Value) {
    let name = pod::name(vmi);
    let migration = json!({
        "metadata": {"namespace": pod::namespace(vmi), "generateName": "kubevirt-evacuation-",
            "labels": {"kubevirt.io/vmi-name": name},
            "annotations": {EVACUATION: vmi["status"]["evacuationNodeName"]}},
        "spec": {"vmiName": name},
    });
    ctx.create(&MIGRATIONS, migration);
}

fn bring_target(ctx: &mut ReconcileContext<'_>, vmi: &Value, job: &Object) {
    let mut pod = objects::launcher(vmi);
    pod["metadata"]["labels"][JOB] = json!(pod::uid(job));
    pod["metadata"]["annotations"]["kubevirt.io/migrationJobName"] = json!(pod::name(job));
    let elsewhere = json!({"key": "kubernetes.io/hostname", "operator": "NotIn",
        "values": [vmi["status"]["nodeName"]]});
    pod["spec"]["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"] =
        json!({"nodeSelectorTerms": [{"matchExpressions": [elsewhere]}]});
    if ctx.create(&PODS, pod).is_some() {
        set_phase(ctx, job, "Scheduling", &Value::Null);
    }
}

/// Starts to copy the memory of the VM.
fn transfer(
    ctx: &mut ReconcileContext<'_>,
    vmi: &Object,
    job: &Object,
    source: Option<&Object>,
    target: &Value,
) {
    let state = json!({
        "migrationUid": pod::uid(job), "startTimestamp": metav1_time(ctx.now), "completed": false,
        "sourceNode": vmi["status"]["nodeName"], "sourcePod": source.map(|pod| pod::name(pod)),
        "targetNode": pod::node(target), "targetPod": pod::name(target),
    });
    ctx.edit_status(&VMIS, vmi, |vmi| vmi["status"]["migrationState"] = state.clone());
    set_phase(ctx, job, "Running", &state);
}

/// The VM runs on the target node.
fn complete(ctx: &mut ReconcileContext<'_>, key: &Key, uid: &str) {
    let Some(vmi) = ctx.get(&VMIS, key) else {
        return;
    };
    let Some(job) = active_migration(ctx, &vmi).filter(|job| pod::uid(job) == uid) else {
        return;
    };
    let pods = launchers(ctx, &vmi);
    let target = pods.iter().find(|pod| pod["metadata"]["labels"][JOB] == uid && pod::is_active(pod));
    let Some(target) = target else {
        return;
    };
    let now = ctx.now;
    let mut state = vmi["status"]["migrationState"].clone();
    state["completed"] = json!(true);
    state["endTimestamp"] = json!(metav1_time(now));
    let moved = ctx.edit_status(&VMIS, &vmi, |vmi| {
        let node = state["targetNode"].clone();
        vmi["status"]["activePods"] = json!({pod::uid(target): node});
        vmi["status"]["nodeName"] = node;
        vmi["status"]["migrationState"] = state.clone();
        if let Some(status) = vmi["status"].as_object_mut() {
            status.remove("evacuationNodeName");
        }
    });
    if let Some(vmi) = moved {
        ctx.edit(&VMIS, &vmi, |vmi| vmi["metadata"]["labels"][NODE] = state["targetNode"].clone());
    }
    set_phase(ctx, &job, "Succeeded", &state);
    for source in pods.iter().filter(|pod| pod::uid(pod) != pod::uid(target) && !pod::is_finished(pod)) {
        ctx.edit_status(&PODS, source, |pod| pod_status::succeed(pod, now));
    }
}

/// The VM stays on its node.
fn give_up(ctx: &mut ReconcileContext<'_>, vmi: &Object, job: &Object, target: Option<&Object>) {
    let mut state = vmi["status"]["migrationState"].clone();
    if state["migrationUid"] == pod::uid(job) {
        state["completed"] = json!(true);
        state["failed"] = json!(true);
        state["failureReason"] = json!("Target pod is down");
        state["endTimestamp"] = json!(metav1_time(ctx.now));
        ctx.edit_status(&VMIS, vmi, |vmi| vmi["status"]["migrationState"] = state.clone());
    }
    set_phase(ctx, job, "Failed", &Value::Null);
    if let Some(target) = target {
        ctx.delete(&PODS, target, None, Propagation::Background);
    }
}

fn set_phase(ctx: &mut ReconcileContext<'_>, job: &Object, phase: &str, state: &Value) {
    ctx.edit_status(&MIGRATIONS, job, |job| {
        job["status"]["phase"] = json!(phase);
        if !state.is_null() {
            job["status"]["migrationState"] = state.clone();
        }
    });
}

fn launchers(ctx: &ReconcileContext<'_>, vmi: &Value) -> Vec<Object> {
    let of = |pod: &Object| {
        is_launcher(pod) && pod::controller(pod).is_some_and(|owner| owner["uid"] == pod::uid(vmi))
    };
    ctx.state.list(&PODS, Some(pod::namespace(vmi))).filter(of).collect()
}

fn source<'a>(pods: &'a [Object], job: &Value) -> Option<&'a Object> {
    pods.iter().find(|pod| pod::is_active(pod) && pod["metadata"]["labels"][JOB] != pod::uid(job))
}

fn active_migration(ctx: &ReconcileContext<'_>, vmi: &Value) -> Option<Object> {
    let mut jobs = ctx.state.list(&MIGRATIONS, Some(pod::namespace(vmi)));
    jobs.find(|job| {
        job["spec"]["vmiName"] == pod::name(vmi) && !matches!(pod::phase(job), "Succeeded" | "Failed")
    })
}

impl Controller for VirtController {
    fn watches(&self) -> Watches {
        const WATCHED: &[Collection] = &[VMIS, MIGRATIONS, PODS];
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
            _ if *collection == VMIS => Some(pod::name(object)),
            _ if *collection == MIGRATIONS => object["spec"]["vmiName"].as_str(),
            _ if is_launcher(object) => domain(object),
            _ => None,
        };
        self.changed.extend(instance.map(|name| Key::new(pod::namespace(object), name)));
    }

    fn sync(&mut self, ctx: &mut ReconcileContext<'_>) -> Requeue {
        for key in std::mem::take(&mut self.changed) {
            self.attend(ctx, &key);
        }
        while let Some((key, uid, ())) = self.due.pop(ctx.now) {
            complete(ctx, &key, &uid);
        }
        Requeue::at(self.due.next_at())
    }
}
