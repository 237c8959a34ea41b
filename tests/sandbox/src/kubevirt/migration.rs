//! A migration, which goes from phase to phase: `Pending`, `Scheduling`, `Scheduled`, `PreparingTarget`, `TargetReady`,
//! `Running`, and in the end `Succeeded` or `Failed`.
//!
//! `status.migrationState` of the instance appears once the target pod is Ready, when it is handed over to virt-handler. A
//! migration that is deleted before fails and is gone; a later one is aborted.

use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use crate::cluster::catalog::resource::PODS;
use crate::cluster::registry::Propagation;
use crate::cluster::store::Object;
use crate::controllers::engine::context::ReconcileContext;
use crate::controllers::nodes::pod_status;
use crate::kubevirt::objects::{self, MIGRATION_FAILS, MIGRATIONS, NODE, VMIS};
use crate::kubevirt::settings::Settings;
use crate::model::clock::metav1_time;
use crate::model::{condition, pod};

/// The migration that a pod is the target of.
pub(crate) const JOB: &str = "kubevirt.io/migrationJobUID";
/// On a migration: the node to evacuate.
pub(crate) const EVACUATION: &str = "kubevirt.io/evacuationMigration";
/// Keeps a migration until it has ended.
pub(crate) const FINALIZER: &str = "kubevirt.io/migrationJobFinalize";

/// How long source and target take to agree, before memory is copied.
const HANDSHAKE: SignedDuration = SignedDuration::from_millis(400);

/// The phases in which a migration counts towards the limits.
pub(crate) const UNDER_WAY: [&str; 5] =
    ["Scheduling", "Scheduled", "PreparingTarget", "TargetReady", "Running"];

/// The phase of a migration; empty before the controller has seen it.
pub(crate) fn phase(job: &Value) -> &str {
    job["status"]["phase"].as_str().unwrap_or_default()
}

/// Whether a migration has ended.
pub(crate) fn is_final(job: &Value) -> bool {
    matches!(phase(job), "Succeeded" | "Failed")
}

/// A migration with what it depends on.
pub(crate) struct Migration<'a> {
    pub(crate) job: &'a Object,
    pub(crate) vmi: &'a Object,
    /// The pods of the instance.
    pub(crate) pods: &'a [Object],
    /// All other migrations that have not ended.
    pub(crate) others: &'a [Object],
    /// The migrations of the instance that have ended, oldest first.
    pub(crate) ended: &'a [Object],
    /// How long memory is copied.
    pub(crate) duration: SignedDuration,
    /// When it entered its phase.
    pub(crate) since: Timestamp,
    pub(crate) settings: &'a Settings,
}

impl Migration<'_> {
    /// Does what is due. Returns when to look again, if time alone changes it.
    pub(crate) fn advance(&self, ctx: &mut ReconcileContext<'_>) -> Option<Timestamp> {
        if pod::is_terminating(self.job) && !self.is_handed_over() {
            self.end(ctx, "Failed", self.target());
            return None;
        }
        match phase(self.job) {
            "Pending" => return self.pend(ctx),
            "Scheduling" => return self.schedule(ctx),
            "" => {
                let is_alone = self.others_of_instance().next().is_none();
                self.enter(ctx, if is_alone { "Pending" } else { "Failed" });
                return None;
            }
            _ => {}
        }
        let Some(target) = self.target().filter(|target| pod::is_active(target)) else {
            self.fail(ctx, "Target pod is down");
            return None;
        };
        match phase(self.job) {
            "Scheduled" if self.is_handed_over() => self.enter(ctx, "PreparingTarget"),
            "Scheduled" => self.hand_over(ctx, target),
            "PreparingTarget" => self.enter(ctx, "TargetReady"),
            "TargetReady" if self.vmi["status"]["migrationState"]["startTimestamp"].is_string() => {
                self.enter(ctx, "Running");
            }
            "TargetReady" => return self.after(ctx, HANDSHAKE, Self::begin_copy),
            _ if pod::is_terminating(self.job) => self.fail(ctx, "Live migration has been aborted"),
            _ => return self.after(ctx, self.duration, Self::finish),
        }
        None
    }

    fn after(
        &self,
        ctx: &mut ReconcileContext<'_>,
        wait: SignedDuration,
        act: fn(&Self, &mut ReconcileContext<'_>),
    ) -> Option<Timestamp> {
        let at = self.since.saturating_add(wait).unwrap_or(Timestamp::MAX);
        if at > ctx.now {
            return Some(at);
        }
        act(self, ctx);
        None
    }

    /// Waits for its turn and for the end of its backoff, and then creates the target pod.
    fn pend(&self, ctx: &mut ReconcileContext<'_>) -> Option<Timestamp> {
        if self.target().is_some() {
            self.enter(ctx, "Scheduling");
            return None;
        }
        if let Some(at) = self.backoff_ends().filter(|at| *at > ctx.now) {
            return Some(at);
        }
        let has_target = |other: &Object| {
            let mut pods = ctx.state.list(&PODS, Some(pod::namespace(other)));
            pods.any(|pod| pod["metadata"]["labels"][JOB] == pod::uid(other))
        };
        let is_under_way = |other: &&Object| UNDER_WAY.contains(&phase(other)) || has_target(other);
        let under_way: Vec<&Object> = self.others.iter().filter(is_under_way).collect();
        let leaves_here =
            |job: &&&Object| job["metadata"]["annotations"][EVACUATION] == self.vmi["status"]["nodeName"];
        let (all, here) = (under_way.len(), under_way.iter().filter(leaves_here).count());
        let active = self.pods.iter().filter(|pod| pod::is_active(pod)).count();
        if all < self.settings.parallel_per_cluster && here < self.settings.parallel_per_node && active == 1 {
            self.create_target(ctx);
        }
        None
    }

    fn schedule(&self, ctx: &mut ReconcileContext<'_>) -> Option<Timestamp> {
        let Some(target) = self.target().filter(|target| pod::is_active(target)) else {
            self.end(ctx, "Failed", None);
            return None;
        };
        if pod::is_ready(target) {
            self.enter(ctx, "Scheduled");
            return None;
        }
        let unschedulable = condition::find(&target["status"], "PodScheduled")
            .is_some_and(|condition| condition["status"] == "False");
        let at = self.since.saturating_add(self.settings.unschedulable_timeout).ok()?;
        if unschedulable && at <= ctx.now {
            self.end(ctx, "Failed", Some(target));
            return None;
        }
        Some(at).filter(|at| *at > ctx.now)
    }

    /// When the pause after failed attempts ends. Only evacuations are retried.
    fn backoff_ends(&self) -> Option<Timestamp> {
        pod::annotation(self.job, EVACUATION)?;
        let failed = self.ended.iter().rev().take_while(|ended| phase(ended) == "Failed");
        let failed: Vec<&Object> = failed.filter(|ended| !pod::is_terminating(ended)).collect();
        let last = failed.first()?["status"]["phaseTransitionTimestamps"].as_array()?;
        let last = last.iter().find(|entry| entry["phase"] == "Failed")?;
        let at: Timestamp = last["phaseTransitionTimestamp"].as_str()?.parse().ok()?;
        let doublings = u32::try_from(failed.len() - 1).unwrap_or(u32::MAX).min(10);
        at.checked_add(self.settings.backoff * 2_i32.pow(doublings)).ok()
    }

    fn create_target(&self, ctx: &mut ReconcileContext<'_>) {
        let mut pod = objects::launcher(self.vmi);
        pod["metadata"]["labels"][JOB] = json!(pod::uid(self.job));
        pod["metadata"]["annotations"]["kubevirt.io/migrationJobName"] = json!(pod::name(self.job));
        let elsewhere = json!({"key": "kubernetes.io/hostname", "operator": "NotIn",
            "values": [self.vmi["status"]["nodeName"]]});
        pod["spec"]["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"] =
            json!({"nodeSelectorTerms": [{"matchExpressions": [elsewhere]}]});
        ctx.create(&PODS, pod);
    }

    /// The target pod is Ready: virt-handler takes over.
    fn hand_over(&self, ctx: &mut ReconcileContext<'_>, target: &Value) {
        let source = self.pods.iter().find(|pod| pod::is_active(pod) && pod::uid(pod) != pod::uid(target));
        let state = json!({
            "migrationUid": pod::uid(self.job), "completed": false,
            "sourceNode": self.vmi["status"]["nodeName"], "sourcePod": source.map(|pod| pod::name(pod)),
            "targetNode": pod::node(target), "targetPod": pod::name(target),
        });
        ctx.edit(&VMIS, self.vmi, |vmi| vmi["status"]["migrationState"] = state);
    }

    fn begin_copy(&self, ctx: &mut ReconcileContext<'_>) {
        let now = metav1_time(ctx.now);
        ctx.edit(&VMIS, self.vmi, |vmi| vmi["status"]["migrationState"]["startTimestamp"] = json!(now));
    }

    /// The instance runs on the target node, unless the migration is to fail.
    fn finish(&self, ctx: &mut ReconcileContext<'_>) {
        if let Some(reason) = pod::annotation(self.vmi, MIGRATION_FAILS) {
            return self.fail(ctx, reason);
        }
        let Some(target) = self.target() else { return };
        let now = ctx.now;
        ctx.edit(&VMIS, self.vmi, |vmi| {
            let node = vmi["status"]["migrationState"]["targetNode"].clone();
            vmi["metadata"]["labels"][NODE] = node.clone();
            vmi["status"]["activePods"] = json!({pod::uid(target): node});
            vmi["status"]["nodeName"] = node;
            vmi["status"]["migrationState"]["completed"] = json!(true);
            vmi["status"]["migrationState"]["endTimestamp"] = json!(metav1_time(now));
            if let Some(status) = vmi["status"].as_object_mut() {
                status.remove("evacuationNodeName");
            }
        });
        for source in self.pods.iter().filter(|pod| pod::uid(pod) != pod::uid(target)) {
            if !pod::is_finished(source) {
                ctx.edit_status(&PODS, source, |pod| pod_status::succeed(pod, now));
            }
        }
        self.enter(ctx, "Succeeded");
    }

    /// The instance stays on its node.
    fn fail(&self, ctx: &mut ReconcileContext<'_>, reason: &str) {
        if self.is_handed_over() {
            let now = metav1_time(ctx.now);
            ctx.edit(&VMIS, self.vmi, |vmi| {
                let state = &mut vmi["status"]["migrationState"];
                if !state["startTimestamp"].is_string() {
                    state["startTimestamp"] = json!(now);
                }
                state["completed"] = json!(true);
                state["failed"] = json!(true);
                state["failureReason"] = json!(reason);
                state["endTimestamp"] = json!(now);
            });
        }
        let now = ctx.now;
        if let Some(target) = self.target().filter(|target| pod::is_active(target)) {
            ctx.edit_status(&PODS, target, |pod| pod_status::succeed(pod, now));
        }
        self.enter(ctx, "Failed");
    }

    fn end(&self, ctx: &mut ReconcileContext<'_>, phase: &str, target: Option<&Object>) {
        self.enter(ctx, phase);
        if let Some(target) = target {
            ctx.delete(&PODS, target, None, Propagation::Background);
        }
    }

    fn enter(&self, ctx: &mut ReconcileContext<'_>, phase: &str) {
        let entry = json!({"phase": phase, "phaseTransitionTimestamp": metav1_time(ctx.now)});
        ctx.edit_status(&MIGRATIONS, self.job, |job| {
            job["status"]["phase"] = json!(phase);
            if !job["status"]["phaseTransitionTimestamps"].is_array() {
                job["status"]["phaseTransitionTimestamps"] = json!([]);
            }
            if let Some(all) = job["status"]["phaseTransitionTimestamps"].as_array_mut() {
                all.push(entry);
            }
        });
    }

    fn is_handed_over(&self) -> bool {
        self.vmi["status"]["migrationState"]["migrationUid"] == pod::uid(self.job)
    }

    fn target(&self) -> Option<&Object> {
        self.pods.iter().find(|pod| pod["metadata"]["labels"][JOB] == pod::uid(self.job))
    }

    fn others_of_instance(&self) -> impl Iterator<Item = &Object> {
        let same = |other: &&Object| {
            other["spec"]["vmiName"] == self.job["spec"]["vmiName"]
                && pod::namespace(other) == pod::namespace(self.job)
        };
        self.others.iter().filter(same)
    }
}
