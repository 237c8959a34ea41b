//! Decisions about pods of virtual machines.

use super::*;
use crate::drain::evacuation::{Evacuations, KubevirtView, MIGRATION_START_TIMEOUT};
use crate::drain::eviction_attempts::Attempt;
use crate::drain::eviction_outcome::EvictionOutcome;
use crate::drain::migration::VirtualMachineInstanceMigration;
use crate::drain::virtual_machine::VirtualMachineInstance;
use std::collections::HashMap;

fn at(second: i64) -> Timestamp {
    now().checked_add(SignedDuration::from_secs(second)).unwrap()
}

fn launcher() -> DrainPod {
    let pod = pod_named(
        "virt-launcher-vm-x",
        &json!({"labels": {"kubevirt.io": "virt-launcher"}, "annotations": {"kubevirt.io/domain": "vm"}}),
    );
    DrainPod::clone(&pod)
}

/// A node with the pod of a virtual machine, and the answer to its eviction.
fn seen(pod: DrainPod, evacuations: Evacuations) -> ClusterState {
    let mut migrates = Attempt::default();
    migrates.end(EvictionOutcome::Migrating(String::new()), SteadyTime::MIN);
    let attempts = HashMap::from([(pod::uid(&pod).to_owned(), migrates)]);
    ClusterState { pods: Some(vec![Arc::new(pod)]), attempts, evacuations, ..cordoned() }
}

fn marked() -> Evacuations {
    let instance: VirtualMachineInstance = serde_json::from_value(json!({
        "metadata": {"namespace": "ns", "name": "vm"}, "status": {"evacuationNodeName": "n"},
    }))
    .unwrap();
    let kubevirt = KubevirtView {
        migrations: None::<&[Arc<VirtualMachineInstanceMigration>]>,
        cancels: true,
        start_timeout: MIGRATION_START_TIMEOUT,
        seen_at: now(),
    };
    Evacuations::leaving([&instance], &kubevirt, "n", now())
}

#[test]
fn a_migrating_pod_names_its_machine_also_after_it_has_ended() {
    let mut ended = launcher();
    ended.phase = pod::PodPhase::Finished;
    for pod in [launcher(), ended] {
        let new = maintenance(&json!({}));
        let status = decide(&new, &seen(pod, Evacuations::default()), now()).status.unwrap();
        let machines: Vec<String> =
            status.migrating_pods.unwrap().into_iter().map(|migrating| migrating.machine).collect();
        assert_eq!(machines, ["vm"]);
    }
}

#[test]
fn a_machine_that_nothing_moves_is_blocked_without_an_event_also_after_a_restart() {
    let new = maintenance(&json!({}));
    let first = decide(&new, &seen(launcher(), marked()), now());
    let status = first.status.clone().unwrap();
    let waiting = status.migrating_pods.as_ref().unwrap()[0].waiting_since.as_ref().map(|since| since.0);
    assert_eq!((waiting, status.blocked_pods.len()), (Some(now()), 0));
    assert!(first.requeue_after.unwrap() <= MIGRATION_START_TIMEOUT);
    let begun = after(&new, &first);
    // Another process, which knows no answers.
    let restarted = ClusterState { attempts: HashMap::new(), ..seen(launcher(), marked()) };
    let status = decide(&begun, &restarted, at(120)).status.unwrap();
    assert_eq!(status.migrating_pods, None);
    let blocked = &status.blocked_pods[0];
    assert_eq!((blocked.reason.as_str(), blocked.since.0), ("MigrationNotStarted", now()));
}
