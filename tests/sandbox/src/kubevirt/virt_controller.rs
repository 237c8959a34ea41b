//! What gives instances their pods, and moves those that are to leave their node.
//!
//! Where a migration stands is read off the objects each time: a migration that is neither `Succeeded` nor `Failed`
//! wants a target pod; once that is Ready the instance's `migrationState` begins, and some time later it is over: the
//! instance is where the target is, and the source pod has succeeded. Only the time when that is due is remembered.

use std::collections::BTreeSet;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use super::objects::{self, MIGRATIONS, NODE, NOT_MIGRATABLE, VMIS, domain, is_launcher};
use crate::clock::metav1_time;
use crate::condition;
use crate::controllers::controller::{Controller, Next, Watches};
use crate::controllers::desk::Desk;
use crate::controllers::pod_status;
use crate::controllers::timeline::Timeline;
use crate::pod;
use crate::registry::Propagation;
use crate::resource::{BUDGETS, PODS};
use crate::store::{Change, Collection, Key, Object};

/// Of what migration a pod is the target.
const JOB: &str = "kubevirt.io/migrationJobUID";
/// On a migration: the node that is to be left.
const EVACUATION: &str = "kubevirt.io/evacuationMigration";

/// The controller.
#[derive(Debug)]
pub(super) struct VirtController {
    migration: SignedDuration,
    changed: BTreeSet<Key>,
    due: Timeline<()>,
}

impl VirtController {
    /// A controller whose migrations take so long.
    pub(super) fn new(migration: Duration) -> Self {
        let migration = SignedDuration::try_from(migration).unwrap_or(SignedDuration::MAX);
        Self { migration, changed: BTreeSet::new(), due: Timeline::default() }
    }

    fn attend(&mut self, desk: &mut Desk<'_>, key: &Key) {
        let Some(vmi) = desk.get(&VMIS, key).filter(|vmi| !pod::is_terminating(vmi)) else {
            return;
        };
        let pods = launchers(desk, &vmi);
        if !vmi["status"]["nodeName"].is_string() {
            return start(desk, &vmi, &pods);
        }
        let marked = vmi["status"]["evacuationNodeName"].is_string();
        let Some(job) = active_migration(desk, &vmi) else {
            if marked && vmi["spec"]["evictionStrategy"] != "External" {
                begin(desk, &vmi);
            }
            return;
        };
        let target = pods.iter().find(|pod| pod["metadata"]["labels"][JOB] == pod::uid(&job));
        let begun = vmi["status"]["migrationState"]["migrationUid"] == pod::uid(&job);
        match target {
            None if begun => give_up(desk, &vmi, &job, None),
            None => bring_target(desk, &vmi, &job),
            Some(target) if !pod::is_active(target) => give_up(desk, &vmi, &job, Some(target)),
            Some(target) if !begun && pod::is_ready(target) => {
                transfer(desk, &vmi, &job, source(&pods, &job), target);
                let at = desk.now.saturating_add(self.migration).unwrap_or(Timestamp::MAX);
                self.due.plan(key.clone(), pod::uid(&job), (), at);
            }
            Some(_) => {}
        }
    }
}

/// Gives an instance its first pod, and notes where it runs.
fn start(desk: &mut Desk<'_>, vmi: &Object, pods: &[Object]) {
    let Some(pod) = pods.first() else {
        let protected = match vmi["spec"]["evictionStrategy"].as_str() {
            Some("LiveMigrate" | "External") => true,
            Some("LiveMigrateIfPossible") => pod::annotation(vmi, NOT_MIGRATABLE).is_none(),
            _ => false,
        };
        if protected {
            desk.create(&BUDGETS, objects::budget(vmi));
        }
        desk.create(&PODS, objects::launcher(vmi));
        return;
    };
    let (true, Some(node)) = (pod::is_ready(pod), pod::node(pod)) else {
        return;
    };
    let now = desk.now;
    let Some(vmi) = desk.edit(&VMIS, vmi, |vmi| vmi["metadata"]["labels"][NODE] = json!(node)) else {
        return;
    };
    desk.edit_status(&VMIS, &vmi, |vmi| {
        let migratable = pod::annotation(vmi, NOT_MIGRATABLE).is_none();
        vmi["status"]["phase"] = json!("Running");
        vmi["status"]["nodeName"] = json!(node);
        vmi["status"]["activePods"] = json!({pod::uid(pod): node});
        condition::set(&mut vmi["status"], json!({"type": "Ready", "status": "True"}), now);
        let status = if migratable { "True" } else { "False" };
        condition::set(&mut vmi["status"], json!({"type": "LiveMigratable", "status": status}), now);
    });
}

/// Asks for a migration away from where the instance is.
fn begin(desk: &mut Desk<'_>, vmi: &Value) {
    let name = pod::name(vmi);
    let migration = json!({
        "metadata": {"namespace": pod::namespace(vmi), "generateName": "kubevirt-evacuation-",
            "labels": {"kubevirt.io/vmi-name": name},
            "annotations": {EVACUATION: vmi["status"]["evacuationNodeName"]}},
        "spec": {"vmiName": name},
    });
    desk.create(&MIGRATIONS, migration);
}

fn bring_target(desk: &mut Desk<'_>, vmi: &Value, job: &Object) {
    let mut pod = objects::launcher(vmi);
    pod["metadata"]["labels"][JOB] = json!(pod::uid(job));
    pod["metadata"]["annotations"]["kubevirt.io/migrationJobName"] = json!(pod::name(job));
    let elsewhere = json!({"key": "kubernetes.io/hostname", "operator": "NotIn",
        "values": [vmi["status"]["nodeName"]]});
    pod["spec"]["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"] =
        json!({"nodeSelectorTerms": [{"matchExpressions": [elsewhere]}]});
    if desk.create(&PODS, pod).is_some() {
        set_phase(desk, job, "Scheduling", &Value::Null);
    }
}

/// The memory of the machine begins to be copied.
fn transfer(desk: &mut Desk<'_>, vmi: &Object, job: &Object, source: Option<&Object>, target: &Value) {
    let state = json!({
        "migrationUid": pod::uid(job), "startTimestamp": metav1_time(desk.now), "completed": false,
        "sourceNode": vmi["status"]["nodeName"], "sourcePod": source.map(|pod| pod::name(pod)),
        "targetNode": pod::node(target), "targetPod": pod::name(target),
    });
    desk.edit_status(&VMIS, vmi, |vmi| vmi["status"]["migrationState"] = state.clone());
    set_phase(desk, job, "Running", &state);
}

/// The machine runs where the target is.
fn complete(desk: &mut Desk<'_>, key: &Key, uid: &str) {
    let Some(vmi) = desk.get(&VMIS, key) else {
        return;
    };
    let Some(job) = active_migration(desk, &vmi).filter(|job| pod::uid(job) == uid) else {
        return;
    };
    let pods = launchers(desk, &vmi);
    let target = pods.iter().find(|pod| pod["metadata"]["labels"][JOB] == uid && pod::is_active(pod));
    let Some(target) = target else {
        return;
    };
    let now = desk.now;
    let mut state = vmi["status"]["migrationState"].clone();
    state["completed"] = json!(true);
    state["endTimestamp"] = json!(metav1_time(now));
    let moved = desk.edit_status(&VMIS, &vmi, |vmi| {
        let node = state["targetNode"].clone();
        vmi["status"]["activePods"] = json!({pod::uid(target): node});
        vmi["status"]["nodeName"] = node;
        vmi["status"]["migrationState"] = state.clone();
        if let Some(status) = vmi["status"].as_object_mut() {
            status.remove("evacuationNodeName");
        }
    });
    if let Some(vmi) = moved {
        desk.edit(&VMIS, &vmi, |vmi| vmi["metadata"]["labels"][NODE] = state["targetNode"].clone());
    }
    set_phase(desk, &job, "Succeeded", &state);
    for source in pods.iter().filter(|pod| pod::uid(pod) != pod::uid(target) && !pod::is_finished(pod)) {
        desk.edit_status(&PODS, source, |pod| pod_status::succeed(pod, now));
    }
}

/// The machine stays where it is.
fn give_up(desk: &mut Desk<'_>, vmi: &Object, job: &Object, target: Option<&Object>) {
    let mut state = vmi["status"]["migrationState"].clone();
    if state["migrationUid"] == pod::uid(job) {
        state["completed"] = json!(true);
        state["failed"] = json!(true);
        state["failureReason"] = json!("Target pod is down");
        state["endTimestamp"] = json!(metav1_time(desk.now));
        desk.edit_status(&VMIS, vmi, |vmi| vmi["status"]["migrationState"] = state.clone());
    }
    set_phase(desk, job, "Failed", &Value::Null);
    if let Some(target) = target {
        desk.delete(&PODS, target, None, Propagation::Background);
    }
}

fn set_phase(desk: &mut Desk<'_>, job: &Object, phase: &str, state: &Value) {
    desk.edit_status(&MIGRATIONS, job, |job| {
        job["status"]["phase"] = json!(phase);
        if !state.is_null() {
            job["status"]["migrationState"] = state.clone();
        }
    });
}

fn launchers(desk: &Desk<'_>, vmi: &Value) -> Vec<Object> {
    let of = |pod: &Object| {
        is_launcher(pod) && pod::controller(pod).is_some_and(|owner| owner["uid"] == pod::uid(vmi))
    };
    desk.state.list(&PODS, Some(pod::namespace(vmi))).filter(of).collect()
}

fn source<'a>(pods: &'a [Object], job: &Value) -> Option<&'a Object> {
    pods.iter().find(|pod| pod::is_active(pod) && pod["metadata"]["labels"][JOB] != pod::uid(job))
}

fn active_migration(desk: &Desk<'_>, vmi: &Value) -> Option<Object> {
    let mut jobs = desk.state.list(&MIGRATIONS, Some(pod::namespace(vmi)));
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
        // Where a migration stands is read off the objects.
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

    fn act(&mut self, desk: &mut Desk<'_>) -> Next {
        for key in std::mem::take(&mut self.changed) {
            self.attend(desk, &key);
        }
        while let Some((key, uid, ())) = self.due.pop(desk.now) {
            complete(desk, &key, &uid);
        }
        Next::at(self.due.next_at())
    }
}
