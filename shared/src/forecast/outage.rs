//! Which workloads a drain leaves without a Ready pod until a replacement is Ready.

use std::collections::{BTreeMap, BTreeSet};

use crate::api::returned_pod::WorkloadReference;
use crate::cluster::pod;
use crate::forecast::{Forecast, PodForecast, PodOutcome};

/// A workload and its namespace.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct NamespacedWorkload {
    /// Its namespace.
    pub namespace: String,
    /// The workload.
    pub workload: WorkloadReference,
}

/// The workloads all of whose Ready pods leave at the same time.
///
/// `drains_now`: whether a node is drained now, and not after others. `ready_elsewhere`: the workloads that have Ready pods
/// on other nodes. A budget that lets one pod leave after another keeps the workload Ready. A workload all of whose Ready pods are
/// already terminating loses them without the drain. If it is being deleted, or its namespace, nothing replaces them.
pub fn without_ready_pod(
    forecast: &Forecast,
    drains_now: impl Fn(&str) -> bool,
    ready_elsewhere: &BTreeSet<NamespacedWorkload>,
) -> Vec<NamespacedWorkload> {
    let mut losses: BTreeMap<NamespacedWorkload, Loss> = BTreeMap::new();
    let ready = forecast.pods.iter().filter(|expected| pod::is_ready(&expected.pod) && serves(expected));
    for expected in ready {
        let namespace = pod::names(&expected.pod).namespace.to_owned();
        let Some(workload) = pod::workload(&expected.pod) else { continue };
        let leaves = drains_now(&expected.node) && leaves_unreplaced(&expected.fate);
        let loss = losses.entry(NamespacedWorkload { namespace, workload });
        let loss = loss.or_insert(Loss { is_complete: true, is_caused: false });
        loss.is_complete &= leaves;
        loss.is_caused |= expected.fate != PodOutcome::Terminating;
    }
    let is_out = |(workload, loss): &(NamespacedWorkload, Loss)| {
        loss.is_complete && loss.is_caused && !ready_elsewhere.contains(workload)
    };
    losses.into_iter().filter(is_out).map(|(workload, _)| workload).collect()
}

/// What a workload loses.
struct Loss {
    /// Whether all of its Ready pods leave.
    is_complete: bool,
    /// Whether some of them leave because of the drain.
    is_caused: bool,
}

/// Whether the pod is part of a service that an absence interrupts. The pods of a Job are repeated, and those of
/// `DaemonSet`s serve their node.
fn serves(expected: &PodForecast) -> bool {
    let is_daemon = pod::controller(&expected.pod).is_some_and(|owner| owner.kind == "DaemonSet");
    !is_daemon && pod::job(&expected.pod).is_none()
}

/// Whether the pod leaves without waiting for another one to be Ready.
fn leaves_unreplaced(outcome: &PodOutcome) -> bool {
    match outcome {
        PodOutcome::Evicted | PodOutcome::Deleted(_) | PodOutcome::Terminating => true,
        // The drain does not cause the deletion of a namespace.
        PodOutcome::DeletedWithNamespace
        | PodOutcome::Stays(_)
        | PodOutcome::Migrated
        | PodOutcome::Completes(_)
        | PodOutcome::Surges(_)
        | PodOutcome::WaitsForBudget(_)
        | PodOutcome::Blocked(_) => false,
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use serde_json::{Value, json};

    use super::*;
    use crate::cluster::disruption_budget::BudgetKey;

    fn expected(node: &str, owner: (&str, &str), ready: bool, fate: PodOutcome) -> PodForecast {
        let status = if ready { "True" } else { "False" };
        let group = if owner.0 == "Job" { "batch/v1" } else { "apps/v1" };
        let owner =
            json!({"apiVersion": group, "kind": owner.0, "name": owner.1, "uid": "u", "controller": true});
        let labels = json!({"pod-template-hash": "6f"});
        let pod: Value = json!({
            "metadata": {"namespace": "shop", "name": "p", "ownerReferences": [owner], "labels": labels},
            "spec": {"containers": []}, "status": {"conditions": [{"type": "Ready", "status": status}]},
        });
        PodForecast {
            node: node.to_owned(),
            pod: Arc::new(serde_json::from_value(pod).unwrap()),
            fate,
            warnings: Vec::new(),
            leaves: true,
            is_unanswered: false,
            deleted_after: None,
            guarded_by: None,
            returning: None,
            is_left_to_others: false,
        }
    }

    fn out(pods: Vec<PodForecast>, elsewhere: &BTreeSet<NamespacedWorkload>) -> Vec<String> {
        let forecast = Forecast { pods, ..Forecast::default() };
        let out = without_ready_pod(&forecast, |node| node != "queued", elsewhere);
        out.into_iter().map(|found| format!("{}/{}", found.workload.kind, found.workload.name)).collect()
    }

    #[test]
    fn a_workload_is_out_if_nothing_of_it_is_ready_meanwhile() {
        let web = ("ReplicaSet", "web-6f");
        let later = || PodOutcome::WaitsForBudget(BudgetKey { namespace: "shop".into(), name: "b".into() });
        let goes = |node: &str| expected(node, web, true, PodOutcome::Evicted);
        let leaving = || expected("n1", web, true, PodOutcome::Terminating);
        let none = BTreeSet::new();
        for (what, pods, is_out) in [
            ("all leave", vec![goes("n1"), goes("n2")], true),
            (
                "one stays until the other is replaced",
                vec![goes("n1"), expected("n1", web, true, later())],
                false,
            ),
            ("one is not Ready", vec![goes("n1"), expected("n1", web, false, later())], true),
            ("one is drained later", vec![goes("n1"), goes("queued")], false),
            ("none is Ready", vec![expected("n1", web, false, PodOutcome::Evicted)], false),
            ("all are terminating", vec![leaving(), leaving()], false),
            ("one is terminating, and the other leaves", vec![leaving(), goes("n1")], true),
            ("a virtual machine moves", vec![expected("n1", web, true, PodOutcome::Migrated)], false),
        ] {
            let expected: &[&str] = if is_out { &["Deployment/web"] } else { &[] };
            assert_eq!(out(pods, &none), expected, "{what}");
        }
        let workload = pod::workload(&goes("n1").pod).unwrap();
        let elsewhere = BTreeSet::from([NamespacedWorkload { namespace: "shop".into(), workload }]);
        assert!(out(vec![goes("n1")], &elsewhere).is_empty());
        for kind in ["Job", "DaemonSet"] {
            assert!(out(vec![expected("n1", (kind, "x"), true, PodOutcome::Evicted)], &none).is_empty());
        }
        let set = expected("n1", ("StatefulSet", "db"), true, PodOutcome::Evicted);
        assert_eq!(out(vec![set], &none), ["StatefulSet/db"]);
    }
}
