//! Virtual machines: which pod runs one, and where its evacuation stands.
//!
//! KubeVirt runs a virtual machine in a `virt-launcher` pod. Its webhook refuses to evict that pod; it marks the
//! machine's `VirtualMachineInstance` instead (`status.evacuationNodeName`), whereupon KubeVirt migrates it to another
//! node, live, and again and again until that succeeds. The pod that is left behind then ends by itself.
//!
//! Only the fields that are read here are known of an instance, as KubeVirt 1.0 to 1.9 write them
//! (`staging/src/kubevirt.io/api/core/v1/types.go` in kubevirt/kubevirt, v1.9.0).

use std::borrow::Cow;
use std::collections::HashMap;
use std::ops::Deref;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use kube::Resource;
use serde::Deserialize;

use crate::api::status::{BlockReason, NodeMaintenanceStatus};
use crate::cluster::pod;
use crate::drain::attempt::Attempt;
use crate::drain::eviction_outcome::EvictionOutcome;

/// API group of virtual machines.
pub const GROUP: &str = "kubevirt.io";

/// Label of an instance: the node that it runs on; the target's once a migration has succeeded
/// (`NodeNameLabel`, set by `pkg/virt-controller/watch/vmi/lifecycle.go` and `pkg/virt-handler/migration-target.go`).
pub const NODE_LABEL: &str = "kubevirt.io/nodeName";

/// Label of KubeVirt's pods (`AppLabel`); [`LAUNCHER`] is its value on those that run a machine.
const APP_LABEL: &str = "kubevirt.io";
const LAUNCHER: &str = "virt-launcher";

/// Annotation of a launcher: its instance's name (`DomainAnnotation`), by which KubeVirt's webhook finds it too.
const DOMAIN_ANNOTATION: &str = "kubevirt.io/domain";

/// A running virtual machine.
#[derive(Deserialize, Clone, Debug, Default, PartialEq)]
pub struct VirtualMachineInstance {
    /// Metadata.
    #[serde(default)]
    pub metadata: ObjectMeta,
    /// What KubeVirt says of it.
    #[serde(default)]
    pub status: InstanceStatus,
}

/// What KubeVirt says of a virtual machine.
#[derive(Deserialize, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase", default)]
pub struct InstanceStatus {
    /// The node that it is to leave; absent again once it has, or when that is called off.
    pub evacuation_node_name: Option<String>,
    /// Its last migration, which may be over.
    pub migration_state: Option<MigrationState>,
}

/// A migration of a virtual machine.
#[derive(Deserialize, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase", default)]
pub struct MigrationState {
    /// Where it came from.
    pub source_node: Option<String>,
    /// Where it goes.
    pub target_node: Option<String>,
    /// When its memory began to be copied.
    pub start_timestamp: Option<Time>,
    /// When that was over.
    pub end_timestamp: Option<Time>,
    /// Whether it is over, one way or the other.
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
    /// Whether KubeVirt is to take it away from `node`.
    pub fn is_leaving(&self, node: &str) -> bool {
        self.status.evacuation_node_name.as_deref() == Some(node)
    }
}

/// The virtual machine that a pod runs, if it still runs one.
pub fn run_by(pod: &Pod) -> Option<&str> {
    let is_launcher = pod.metadata.labels.as_ref()?.get(APP_LABEL).is_some_and(|app| app == LAUNCHER);
    let name = pod.metadata.annotations.as_ref()?.get(DOMAIN_ANNOTATION)?;
    (is_launcher && !pod::is_finished(pod)).then_some(name)
}

/// How far a virtual machine that is to leave its node has come. What KubeVirt does not say is none.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Evacuation {
    /// The node that it leaves.
    pub source: Option<String>,
    /// The node that it goes to.
    pub target: Option<String>,
    /// Since when its memory is being copied.
    pub since: Option<Timestamp>,
    /// That the last attempt failed, if no other is under way.
    pub failure: Option<MigrationFailure>,
}

/// A migration that failed.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct MigrationFailure {
    /// Where it was to go, and why it did not.
    pub message: String,
    /// When it failed.
    pub at: Option<Timestamp>,
}

/// The virtual machines that are to leave a node, each by its namespace and name.
#[derive(Debug, Clone, Default)]
pub struct Evacuations {
    /// Whether the cluster has KubeVirt, and the node pods that run machines.
    known: bool,
    leaving: HashMap<(String, String), Evacuation>,
}

impl Evacuations {
    /// Reads the instances on `node`. What failed before `began` is not what the maintenance waits for.
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
            // One that began elsewhere is how the machine came here.
            let last = last.filter(|last| last.source_node.as_deref().is_none_or(|source| source == node));
            (key, last.map(|last| evacuation(last, began)).unwrap_or_default())
        });
        Self { known: true, leaving: leaving.collect() }
    }

    /// Whether evictions that we asked for may have made KubeVirt take machines away: by the answers, or, after a
    /// restart, by the status that tells of them. An eviction that is not answered yet may do so any moment.
    pub fn may_be_evacuating(
        &self,
        attempts: &HashMap<String, Attempt>,
        status: Option<&NodeMaintenanceStatus>,
    ) -> bool {
        let told = status.is_some_and(|status| {
            let failed = |blocked: &BlockReason| *blocked == BlockReason::MigrationFailed;
            status.pod_counts.migrating > 0 || status.blocked_pods.iter().any(|pod| failed(&pod.reason))
        });
        told || attempts.values().any(|attempt| {
            let migrating = matches!(attempt.last, Some((_, EvictionOutcome::Migrating(_))));
            migrating || (self.known && attempt.in_flight)
        })
    }

    /// How far the machine in a pod has come, if it is to leave.
    pub fn evacuation(&self, pod: &Pod) -> Option<&Evacuation> {
        // Nearly every cluster has no virtual machines.
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
        let message = format!("its live migration{target} failed{reason}; KubeVirt tries again");
        MigrationFailure { message, at: time(&last.end_timestamp) }
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

    fn launcher(extra: &Value) -> Pod {
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

    fn machines(status: &Value) -> Evacuations {
        let instance = json!({
            "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstance",
            "metadata": {"namespace": "ns", "name": "vm", "labels": {NODE_LABEL: "a"}}, "status": status,
        });
        let instance: VirtualMachineInstance = serde_json::from_value(instance).unwrap();
        Evacuations::leaving([&instance], "a", began())
    }

    #[test]
    fn a_pod_runs_a_machine_if_kubevirt_says_so_and_it_has_not_ended() {
        assert_eq!(run_by(&launcher(&json!({}))), Some("vm"));
        assert_eq!(run_by(&launcher(&json!({"status": {"phase": "Succeeded"}}))), None);
        assert_eq!(run_by(&launcher(&json!({"metadata": {"name": "p"}}))), None);
        let disk = json!({"metadata": {"labels": {"kubevirt.io": "hotplug-disk"}}});
        assert_eq!(run_by(&launcher(&disk)), None);
    }

    #[test]
    fn an_evacuation_is_told_by_the_migration_that_is_under_way() {
        let check = |status: Value, expected: Option<Evacuation>| {
            assert_eq!(machines(&status).evacuation(&launcher(&json!({}))), expected.as_ref(), "{status}");
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
    fn machines_were_asked_to_leave_if_an_answer_or_the_status_says_so_or_one_may_be_on_its_way() {
        let status = |status: Value| serde_json::from_value::<NodeMaintenanceStatus>(status).unwrap();
        let check = |machines: Evacuations, attempt: Attempt, told: Value, expected: bool| {
            let attempts = HashMap::from([("uid".to_owned(), attempt)]);
            assert_eq!(
                machines.may_be_evacuating(&attempts, Some(&status(told.clone()))),
                expected,
                "{told}"
            );
        };
        let known = || machines(&json!({"evacuationNodeName": "a"}));
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
    fn a_failed_migration_is_told_with_its_reason_unless_it_failed_before_the_maintenance() {
        let failed = |at: &str| {
            let state = json!({
                "sourceNode": "a", "targetNode": "b", "completed": true, "failed": true,
                "failureReason": "Target pod is down", "endTimestamp": at,
            });
            let machines = machines(&json!({"evacuationNodeName": "a", "migrationState": state}));
            let evacuation = machines.evacuation(&launcher(&json!({}))).cloned().unwrap();
            evacuation.failure.map(|failure| failure.message)
        };
        assert_eq!(
            failed("2026-01-01T01:00:00Z").as_deref(),
            Some("its live migration to node b failed: Target pod is down; KubeVirt tries again")
        );
        assert_eq!(failed("2026-01-01T00:59:59Z"), None);
    }
}
