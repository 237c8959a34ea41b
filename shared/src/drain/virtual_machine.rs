//! Virtual machines: which pod runs one, and the state of its evacuation.
//!
//! KubeVirt runs a virtual machine in a `virt-launcher` pod. Its webhook refuses to evict that pod. Instead it marks the
//! `VirtualMachineInstance` (`status.evacuationNodeName`), and KubeVirt live-migrates it to another node, and retries
//! until that succeeds. The pod that it leaves behind then ends by itself.
//!
//! The types have only the fields that are read here, as KubeVirt 1.0 to 1.9 write them
//! (`staging/src/kubevirt.io/api/core/v1/types.go` in kubevirt/kubevirt, v1.9.0).

use std::borrow::Cow;
use std::collections::HashMap;
use std::ops::Deref;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use kube::Resource;
use serde::Deserialize;

use crate::api::names::DOMAIN_ANNOTATION;
use crate::api::status::{BlockReason, NodeMaintenanceStatus};
use crate::cluster::pod::{self, DrainPod};
use crate::drain::eviction_attempts::Attempt;
use crate::drain::eviction_outcome::EvictionOutcome;

/// API group of virtual machines.
pub const GROUP: &str = "kubevirt.io";

/// Label of an instance: the node that it runs on, which is the target once a migration has succeeded
/// (`NodeNameLabel`, set by `pkg/virt-controller/watch/vmi/lifecycle.go` and `pkg/virt-handler/migration-target.go`).
pub const NODE_LABEL: &str = "kubevirt.io/nodeName";

/// Label of KubeVirt's pods (`AppLabel`); [`LAUNCHER`] is its value on those that run a virtual machine.
const APP_LABEL: &str = "kubevirt.io";
const LAUNCHER: &str = "virt-launcher";

/// A running virtual machine.
#[derive(Deserialize, Clone, Debug, Default, PartialEq)]
pub struct VirtualMachineInstance {
    /// Metadata.
    #[serde(default)]
    pub metadata: ObjectMeta,
    /// Its status.
    #[serde(default)]
    pub status: InstanceStatus,
}

/// The status of a virtual machine.
#[derive(Deserialize, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase", default)]
pub struct InstanceStatus {
    /// The node that it is to leave; absent once it has left, or when the evacuation is cancelled.
    pub evacuation_node_name: Option<String>,
    /// Its last migration, which may have ended.
    pub migration_state: Option<MigrationState>,
}

/// A migration of a virtual machine.
#[derive(Deserialize, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase", default)]
pub struct MigrationState {
    /// The source node.
    pub source_node: Option<String>,
    /// The target node.
    pub target_node: Option<String>,
    /// When copying its memory began.
    pub start_timestamp: Option<Time>,
    /// When that ended.
    pub end_timestamp: Option<Time>,
    /// Whether it has ended, successfully or not.
    pub completed: bool,
    /// Whether it failed.
    pub failed: bool,
    /// Why it failed.
    pub failure_reason: Option<String>,
}

impl Resource for VirtualMachineInstance {
    type DynamicType = ();
    type Scope = kube::core::NamespaceResourceScope;

    fn kind((): &()) -> Cow<'_, str> {
        "VirtualMachineInstance".into()
    }

    fn group((): &()) -> Cow<'_, str> {
        GROUP.into()
    }

    fn version((): &()) -> Cow<'_, str> {
        "v1".into()
    }

    fn plural((): &()) -> Cow<'_, str> {
        "virtualmachineinstances".into()
    }

    fn meta(&self) -> &ObjectMeta {
        &self.metadata
    }

    fn meta_mut(&mut self) -> &mut ObjectMeta {
        &mut self.metadata
    }
}

impl VirtualMachineInstance {
    /// Whether KubeVirt is to migrate it away from `node`.
    pub fn is_leaving(&self, node: &str) -> bool {
        self.status.evacuation_node_name.as_deref() == Some(node)
    }
}

/// The virtual machine that a pod runs, if it still runs one.
pub fn run_by(pod: &DrainPod) -> Option<&str> {
    let is_launcher = pod.metadata.labels.as_ref()?.get(APP_LABEL).is_some_and(|app| app == LAUNCHER);
    let name = pod.metadata.annotations.as_ref()?.get(DOMAIN_ANNOTATION)?;
    (is_launcher && !pod::is_finished(pod)).then_some(name)
}

/// The evacuation of a virtual machine. What KubeVirt does not report is none.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Evacuation {
    /// The node that it leaves.
    pub source: Option<String>,
    /// The node that it goes to.
    pub target: Option<String>,
    /// Since when its memory is being copied.
    pub since: Option<Timestamp>,
    /// The failure of the last attempt, if no other is running.
    pub failure: Option<MigrationFailure>,
}

/// A migration that failed.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct MigrationFailure {
    /// Why it failed, as a sentence.
    pub message: String,
    /// The target node, if KubeVirt reports it.
    pub target: Option<String>,
    /// When it failed.
    pub at: Option<Timestamp>,
}

/// The virtual machines that KubeVirt is to migrate away from a node, by namespace and name.
#[derive(Debug, Clone, Default)]
pub struct Evacuations {
    /// Whether the cluster has KubeVirt and the node has pods that run virtual machines.
    known: bool,
    leaving: HashMap<(String, String), Evacuation>,
}

impl Evacuations {
    /// Reads the instances on `node`. Migrations that failed before `began` do not concern the maintenance.
    pub fn leaving<I>(instances: impl IntoIterator<Item = I>, node: &str, began: Timestamp) -> Self
    where
        I: Deref<Target = VirtualMachineInstance>,
    {
        let leaving = instances.into_iter().filter(|instance| instance.is_leaving(node)).map(|instance| {
            let key = (
                instance.metadata.namespace.clone().unwrap_or_default(),
                instance.metadata.name.clone().unwrap_or_default(),
            );
            let last = instance.status.migration_state.as_ref();
            // A migration from another node is how the virtual machine came here.
            let last = last.filter(|last| last.source_node.as_deref().is_none_or(|source| source == node));
            (key, last.map(|last| evacuation(last, began)).unwrap_or_default())
        });
        Self { known: true, leaving: leaving.collect() }
    }

    /// Whether our evictions may have started evacuations: by their answers or, after a restart, by the status. An eviction
    /// that is not answered yet may start one at any moment.
    pub fn may_be_evacuating(
        &self,
        attempts: &HashMap<String, Attempt>,
        status: Option<&NodeMaintenanceStatus>,
    ) -> bool {
        let in_status = status.is_some_and(|status| {
            let failed = |blocked: &BlockReason| *blocked == BlockReason::MigrationFailed;
            status.pod_counts.migrating > 0 || status.blocked_pods.iter().any(|pod| failed(&pod.reason))
        });
        in_status
            || attempts.values().any(|attempt| {
                let migrating = matches!(attempt.last, Some((_, EvictionOutcome::Migrating(_))));
                migrating || (self.known && attempt.in_flight)
            })
    }

    /// The evacuation of the virtual machine in a pod, if there is one.
    pub fn evacuation(&self, pod: &DrainPod) -> Option<&Evacuation> {
        // Most clusters have no virtual machines.
        if self.leaving.is_empty() {
            return None;
        }
        let namespace = pod.metadata.namespace.clone().unwrap_or_default();
        self.leaving.get(&(namespace, run_by(pod)?.to_owned()))
    }
}

fn evacuation(last: &MigrationState, began: Timestamp) -> Evacuation {
    let time = |time: &Option<Time>| time.as_ref().map(|time| time.0);
    let failure = || {
        let target = last.target_node.as_deref().map(|target| format!(" to node {target}"));
        let reason = last.failure_reason.as_deref().map(|reason| format!(": {reason}"));
        let (target, reason) = (target.unwrap_or_default(), reason.unwrap_or_default());
        let message = format!("its live migration{target} failed{reason}; KubeVirt retries it");
        MigrationFailure { message, target: last.target_node.clone(), at: time(&last.end_timestamp) }
    };
    match (last.completed || last.failed, last.failed) {
        (false, _) => Evacuation {
            source: last.source_node.clone(),
            target: last.target_node.clone(),
            since: time(&last.start_timestamp),
            failure: None,
        },
        (true, true) if time(&last.end_timestamp).is_none_or(|at| at >= began) => {
            Evacuation { failure: Some(failure()), ..Evacuation::default() }
        }
        (true, _) => Evacuation::default(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn began() -> Timestamp {
        "2026-01-01T01:00:00Z".parse().unwrap()
    }

    fn launcher(extra: &Value) -> DrainPod {
        let mut pod = json!({
            "metadata": {"namespace": "ns", "name": "virt-launcher-vm-x", "labels": {"kubevirt.io": "virt-launcher"},
                "annotations": {"kubevirt.io/domain": "vm"}},
            "status": {"phase": "Running"},
        });
        for (key, value) in extra.as_object().unwrap() {
            pod[key] = value.clone();
        }
        serde_json::from_value(pod).unwrap()
    }

    fn evacuations(status: &Value) -> Evacuations {
        let instance = json!({
            "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstance",
            "metadata": {"namespace": "ns", "name": "vm", "labels": {NODE_LABEL: "a"}}, "status": status,
        });
        let instance: VirtualMachineInstance = serde_json::from_value(instance).unwrap();
        Evacuations::leaving([&instance], "a", began())
    }

    #[test]
    fn a_running_launcher_pod_runs_a_virtual_machine() {
        assert_eq!(run_by(&launcher(&json!({}))), Some("vm"));
        assert_eq!(run_by(&launcher(&json!({"status": {"phase": "Succeeded"}}))), None);
        assert_eq!(run_by(&launcher(&json!({"metadata": {"name": "p"}}))), None);
        let disk = json!({"metadata": {"labels": {"kubevirt.io": "hotplug-disk"}}});
        assert_eq!(run_by(&launcher(&disk)), None);
    }

    #[test]
    fn an_evacuation_shows_the_running_migration() {
        let check = |status: Value, expected: Option<Evacuation>| {
            assert_eq!(evacuations(&status).evacuation(&launcher(&json!({}))), expected.as_ref(), "{status}");
        };
        check(json!({}), None);
        check(json!({"evacuationNodeName": "b"}), None);
        check(json!({"evacuationNodeName": "a"}), Some(Evacuation::default()));
        let state = json!({"sourceNode": "a", "targetNode": "b", "startTimestamp": "2026-01-01T01:00:05Z"});
        let under_way = Evacuation {
            source: Some("a".to_owned()),
            target: Some("b".to_owned()),
            since: Some("2026-01-01T01:00:05Z".parse().unwrap()),
            failure: None,
        };
        check(json!({"evacuationNodeName": "a", "migrationState": state}), Some(under_way));
        // How it came here.
        let arrival = json!({"sourceNode": "c", "targetNode": "a", "completed": true});
        check(json!({"evacuationNodeName": "a", "migrationState": arrival}), Some(Evacuation::default()));
    }

    #[test]
    fn virtual_machines_may_be_evacuating_by_an_answer_the_status_or_an_eviction_in_flight() {
        let status = |status: Value| serde_json::from_value::<NodeMaintenanceStatus>(status).unwrap();
        let check = |evacuations: Evacuations, attempt: Attempt, reported: Value, expected: bool| {
            let attempts = HashMap::from([("uid".to_owned(), attempt)]);
            assert_eq!(
                evacuations.may_be_evacuating(&attempts, Some(&status(reported.clone()))),
                expected,
                "{reported}"
            );
        };
        let known = || evacuations(&json!({"evacuationNodeName": "a"}));
        let on_its_way = || Attempt { in_flight: true, ..Attempt::default() };
        let mut migrating = Attempt::default();
        migrating.end(EvictionOutcome::Migrating(String::new()), crate::drain::steady_time::SteadyTime::MIN);
        check(known(), Attempt::default(), json!({}), false);
        check(Evacuations::default(), on_its_way(), json!({}), false);
        check(known(), on_its_way(), json!({}), true);
        check(Evacuations::default(), migrating, json!({}), true);
        check(Evacuations::default(), Attempt::default(), json!({"podCounts": {"migrating": 1}}), true);
        let failed = json!({"namespace": "ns", "name": "p", "reason": "MigrationFailed", "message": "",
            "since": "2026-01-01T01:00:00Z", "attempts": 0});
        check(Evacuations::default(), Attempt::default(), json!({"blockedPods": [failed]}), true);
    }

    #[test]
    fn a_failed_migration_has_its_reason_unless_it_failed_before_the_maintenance() {
        let failed = |at: &str| {
            let state = json!({
                "sourceNode": "a", "targetNode": "b", "completed": true, "failed": true,
                "failureReason": "Target pod is down", "endTimestamp": at,
            });
            let evacuations = evacuations(&json!({"evacuationNodeName": "a", "migrationState": state}));
            let evacuation = evacuations.evacuation(&launcher(&json!({}))).cloned().unwrap();
            evacuation.failure.map(|failure| failure.message)
        };
        assert_eq!(
            failed("2026-01-01T01:00:00Z").as_deref(),
            Some("its live migration to node b failed: Target pod is down; KubeVirt retries it")
        );
        assert_eq!(failed("2026-01-01T00:59:59Z"), None);
    }
}
