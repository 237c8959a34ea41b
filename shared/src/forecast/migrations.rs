//! What a drain does to virtual machines: whether KubeVirt moves them, and whether there is a place for them.

use std::collections::{BTreeSet, HashSet};

use crate::api::pod_reference::PodReference;
use crate::api::status::BlockReason;
use crate::cluster::pod;
use crate::drain::blocker::Blocker;
use crate::drain::plan::Warning;
use crate::drain::virtual_machine::{MachineKey, VirtualMachineInstance, launcher_of, run_by};
use crate::forecast::{Forecast, PodForecast, PodOutcome};

impl Forecast {
    /// Accounts for virtual machines that others than KubeVirt move, for those whose target pods fit on no node, and for disks
    /// that leave with their virtual machines. The emptyDir volumes of a pod that is migrated hold nothing that is lost.
    pub fn judge_migrations(
        &mut self,
        instances: &[VirtualMachineInstance],
        unplaced: &BTreeSet<PodReference>,
    ) {
        let external: HashSet<MachineKey> = instances
            .iter()
            .filter(|instance| instance.is_left_to_others())
            .map(|instance| pod::reference_in(&instance.metadata))
            .collect();
        let mut moved: HashSet<String> = HashSet::new();
        for expected in self.pods.iter_mut().filter(|expected| expected.fate == PodOutcome::Migrated) {
            let Some(machine) = run_by(&expected.pod) else { continue };
            let namespace = expected.pod.namespace.to_string();
            let machine = MachineKey { namespace, name: machine.to_owned() };
            expected.warnings.retain(|warning| *warning != Warning::LocalStorage);
            expected.is_left_to_others = external.contains(&machine);
            if !expected.is_left_to_others && unplaced.contains(&pod::reference(&expected.pod)) {
                let message = "no other node can take its target pod, so its migration cannot start";
                expected.fate = PodOutcome::Blocked(Blocker::new(BlockReason::MigrationNotStarted, message));
            } else {
                moved.insert(pod::uid(&expected.pod).to_owned());
            }
        }
        let pods: Vec<_> = self.pods.iter().map(|expected| expected.pod.clone()).collect();
        let leaves_with_machine = |expected: &PodForecast| {
            let launcher = launcher_of(&expected.pod, pods.iter().map(|pod| &**pod));
            launcher.is_some_and(|launcher| moved.contains(pod::uid(launcher)))
        };
        for expected in self.pods.iter_mut().filter(|expected| is_not_migratable(&expected.fate)) {
            if leaves_with_machine(expected) {
                (expected.fate, expected.deleted_after) = (PodOutcome::Migrated, None);
            }
        }
    }
}

fn is_not_migratable(fate: &PodOutcome) -> bool {
    let (PodOutcome::Blocked(blocker) | PodOutcome::Deleted(blocker)) = fate else { return false };
    blocker.reason == BlockReason::NotMigratable
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use serde_json::{Value, json};

    use super::*;
    use crate::cluster::pod::DrainPod;

    fn forecast(pod: Value, fate: PodOutcome) -> PodForecast {
        let pod: DrainPod = serde_json::from_value(pod).unwrap();
        PodForecast {
            node: "a".to_owned(),
            pod: Arc::new(pod),
            fate,
            warnings: vec![Warning::LocalStorage],
            leaves: true,
            is_unanswered: false,
            deleted_after: None,
            guarded_by: None,
            returning: None,
            is_left_to_others: false,
        }
    }

    fn launcher(name: &str) -> PodForecast {
        let pod = json!({"metadata": {"namespace": "ns", "name": format!("virt-launcher-{name}"), "uid": name,
            "labels": {"kubevirt.io": "virt-launcher"}, "annotations": {"kubevirt.io/domain": name}}});
        forecast(pod, PodOutcome::Migrated)
    }

    fn disk(of: &str) -> PodForecast {
        let owner = json!({"apiVersion": "v1", "kind": "Pod", "name": "l", "uid": of, "controller": true});
        let pod = json!({"metadata": {"namespace": "ns", "name": format!("hp-volume-{of}"), "uid": format!("d-{of}"),
            "labels": {"kubevirt.io": "hotplug-disk"}, "ownerReferences": [owner]}});
        forecast(pod, PodOutcome::Blocked(Blocker::new(BlockReason::NotMigratable, "")))
    }

    #[test]
    fn machines_without_a_place_are_blocked_and_those_that_others_move_are_named() {
        let pods =
            vec![launcher("moves"), launcher("stuck"), launcher("external"), disk("moves"), disk("stuck")];
        let mut forecast = Forecast { pods, ..Forecast::default() };
        let external: VirtualMachineInstance = serde_json::from_value(json!({
            "metadata": {"namespace": "ns", "name": "external"}, "spec": {"evictionStrategy": "External"},
        }))
        .unwrap();
        let unplaced = BTreeSet::from([pod::reference(&launcher("stuck").pod)]);
        forecast.judge_migrations(&[external], &unplaced);
        let words: Vec<&str> = forecast
            .pods
            .iter()
            .map(|expected| match &expected.fate {
                PodOutcome::Migrated if expected.is_left_to_others => "others",
                PodOutcome::Migrated => "migrated",
                PodOutcome::Blocked(blocker) => blocker.reason.as_str(),
                other => panic!("{other:?}"),
            })
            .collect();
        assert_eq!(words, ["migrated", "MigrationNotStarted", "others", "migrated", "NotMigratable"]);
        assert!(forecast.pods[..3].iter().all(|expected| expected.warnings.is_empty()), "nothing is lost");
    }
}
