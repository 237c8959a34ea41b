//! Which workloads a drain leaves without a Ready pod until a replacement is Ready.

use std::collections::{BTreeMap, BTreeSet};

use jiff::SignedDuration;

use crate::api::pod_reference::PodReference;
use crate::api::returned_pod::WorkloadReference;
use crate::api::status::BlockReason;
use crate::cluster::pod;
use crate::forecast::preemption::Preemption;
use crate::forecast::{Forecast, PodForecast, PodOutcome};

/// How long a replacement usually takes to become Ready, at most: a workload that is down for less may only be waiting for it.
pub const USUAL_REPLACEMENT: SignedDuration = SignedDuration::from_secs(30);

/// A workload and its namespace.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct NamespacedWorkload {
    /// Its namespace.
    pub namespace: String,
    /// The workload.
    pub workload: WorkloadReference,
}

/// Names of the Ready pods of workloads.
#[derive(Debug, Clone, Default)]
pub struct ReadyPods(BTreeMap<NamespacedWorkload, BTreeSet<String>>);

impl ReadyPods {
    /// How many workloads have Ready pods.
    pub fn workloads(&self) -> usize {
        self.0.len()
    }

    /// Whether this workload has a Ready pod.
    pub fn contains(&self, workload: &NamespacedWorkload) -> bool {
        self.0.contains_key(workload)
    }

    /// Adds those of others.
    pub fn add(&mut self, others: Self) {
        for (workload, pods) in others.0 {
            self.0.entry(workload).or_default().extend(pods);
        }
    }
}

impl Extend<(NamespacedWorkload, String)> for ReadyPods {
    fn extend<I: IntoIterator<Item = (NamespacedWorkload, String)>>(&mut self, pods: I) {
        for (workload, pod) in pods {
            self.0.entry(workload).or_default().insert(pod);
        }
    }
}

/// A workload without a Ready pod for a while.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WorkloadOutage {
    /// The workload.
    pub workload: NamespacedWorkload,
    /// The pods that preempt Ready pods of it.
    pub preempted_by: BTreeSet<PodReference>,
}

/// The workloads all of whose Ready pods leave at the same time, or are preempted by replacements.
///
/// `drains_now`: whether a node is drained now, and not after others. `ready_elsewhere`: the Ready pods on other nodes. A budget
/// that lets one pod leave after another keeps the workload Ready; the scheduler preempts pods all the same. A workload all of
/// whose Ready pods are already terminating loses them without the drain. If it is being deleted, or its namespace, nothing
/// replaces them.
pub fn without_ready_pod(
    forecast: &Forecast,
    drains_now: impl Fn(&str) -> bool,
    ready_elsewhere: &ReadyPods,
    preemptions: &[Preemption],
) -> Vec<WorkloadOutage> {
    let of_victim = |found: &'_ Preemption| -> Vec<(PodReference, PodReference)> {
        found.preempted.iter().map(|victim| (victim.clone(), found.pod.clone())).collect()
    };
    let preemptors: BTreeMap<PodReference, PodReference> = preemptions.iter().flat_map(of_victim).collect();
    let mut losses: BTreeMap<NamespacedWorkload, Loss> = BTreeMap::new();
    for expected in forecast.pods.iter().filter(|expected| pod::is_ready(&expected.pod)) {
        let namespace = pod::names(&expected.pod).namespace.to_owned();
        let Some(workload) = pod::workload(&expected.pod).filter(serves) else { continue };
        let preemptor = preemptors.get(&pod::reference(&expected.pod));
        let is_deleted = forecast.is_deleted_unless_allowed(expected);
        let leaves = drains_now(&expected.node) && (is_deleted || leaves_unreplaced(expected, forecast));
        let loss = losses.entry(NamespacedWorkload { namespace, workload }).or_default();
        loss.stays |= !leaves && preemptor.is_none();
        loss.is_caused |= expected.fate != PodOutcome::Terminating;
        loss.preempted_by.extend(preemptor.cloned());
    }
    for (workload, pods) in &ready_elsewhere.0 {
        let reference =
            |name: &String| PodReference { namespace: workload.namespace.clone(), name: name.clone() };
        let preempted_by: Vec<Option<&PodReference>> =
            pods.iter().map(|name| preemptors.get(&reference(name))).collect();
        let is_preempted = preempted_by.iter().any(Option::is_some) && serves(&workload.workload);
        if is_preempted || losses.contains_key(workload) {
            let loss = losses.entry(workload.clone()).or_default();
            loss.stays |= preempted_by.iter().any(Option::is_none);
            loss.is_caused |= is_preempted;
            loss.preempted_by.extend(preempted_by.into_iter().flatten().cloned());
        }
    }
    let out = losses.into_iter().filter(|(_, loss)| loss.is_caused && !loss.stays);
    out.map(|(workload, loss)| WorkloadOutage { workload, preempted_by: loss.preempted_by }).collect()
}

/// What a workload loses.
#[derive(Default)]
struct Loss {
    /// Whether one of its Ready pods stays.
    stays: bool,
    /// Whether some of them leave because of the drain.
    is_caused: bool,
    /// What preempts some of them.
    preempted_by: BTreeSet<PodReference>,
}

/// Whether a workload is a service that an absence of its pods interrupts. The pods of a Job are repeated, and those of
/// `DaemonSet`s serve their node.
fn serves(workload: &WorkloadReference) -> bool {
    let is_job = workload.kind == "Job" && workload.api_version.starts_with("batch/");
    workload.kind != "DaemonSet" && !is_job
}

/// Whether the pod leaves without waiting for another one to be Ready.
fn leaves_unreplaced(expected: &PodForecast, forecast: &Forecast) -> bool {
    // A budget may let all its pods leave at once.
    let is_unguarded = || {
        let mut budgets = forecast.budgets.iter();
        let guard = expected.guarded_by.as_ref();
        guard.is_none_or(|guard| budgets.any(|known| known.budget == *guard && known.at_most >= known.pods))
    };
    match &expected.fate {
        PodOutcome::Evicted | PodOutcome::Deleted(_) | PodOutcome::Terminating => true,
        // It was evicted, and starts again on the node.
        PodOutcome::Blocked(blocker) => blocker.reason == BlockReason::KeepsReturning && is_unguarded(),
        // The drain does not cause the deletion of a namespace.
        PodOutcome::DeletedWithNamespace
        | PodOutcome::Stays(_)
        | PodOutcome::Migrated
        | PodOutcome::Completes(_)
        | PodOutcome::Surges(_)
        | PodOutcome::WaitsForBudget(_) => false,
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use serde_json::{Value, json};

    use super::*;
    use crate::cluster::disruption_budget::BudgetKey;
    use crate::drain::blocker::Blocker;
    use crate::forecast::budget_forecast::BudgetForecast;

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

    fn out(pods: Vec<PodForecast>, elsewhere: &ReadyPods) -> Vec<String> {
        out_by(pods, elsewhere, &[])
    }

    /// If `shop/high` preempts these pods.
    fn out_by(pods: Vec<PodForecast>, elsewhere: &ReadyPods, preempted: &[&str]) -> Vec<String> {
        let of = |name: &str| PodReference { namespace: "shop".into(), name: name.into() };
        let preempted = preempted.iter().map(|name| of(name)).collect();
        let preemption = Preemption { pod: of("high"), node: "n2".into(), preempted, displaced: Vec::new() };
        let forecast = Forecast { pods, ..Forecast::default() };
        let out = without_ready_pod(&forecast, |node| node != "queued", elsewhere, &[preemption]);
        let shown = |found: WorkloadOutage| {
            let WorkloadReference { kind, name, .. } = found.workload.workload;
            let by = if found.preempted_by.is_empty() { "" } else { ", preempted" };
            format!("{kind}/{name}{by}")
        };
        out.into_iter().map(shown).collect()
    }

    #[test]
    fn a_pod_that_is_deleted_before_its_budget_may_allow_its_eviction_is_lost() {
        let key = || BudgetKey { namespace: "shop".into(), name: "b".into() };
        for (now, after, is_out) in [(0, Some(20), true), (1, Some(20), false), (0, None, false)] {
            let mut waits = expected("n1", ("StatefulSet", "quo"), true, PodOutcome::WaitsForBudget(key()));
            waits.deleted_after = after;
            let guard = BudgetForecast {
                budget: key(),
                pods: 1,
                now,
                at_most: 1,
                rounds: Some(1),
                short_of: 0,
                lacks: None,
            };
            let forecast = Forecast { pods: vec![waits], budgets: vec![guard], ..Forecast::default() };
            let out = without_ready_pod(&forecast, |_| true, &ReadyPods::default(), &[]);
            assert_eq!(!out.is_empty(), is_out, "{now} {after:?}");
        }
    }

    #[test]
    fn a_workload_is_out_if_nothing_of_it_is_ready_meanwhile() {
        let web = ("ReplicaSet", "web-6f");
        let later = || PodOutcome::WaitsForBudget(BudgetKey { namespace: "shop".into(), name: "b".into() });
        let goes = |node: &str| expected(node, web, true, PodOutcome::Evicted);
        let leaving = || expected("n1", web, true, PodOutcome::Terminating);
        let none = ReadyPods::default();
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
        let returns = PodOutcome::Blocked(Blocker::new(
            BlockReason::KeepsReturning,
            "it returns to the node".to_owned(),
        ));
        let returning = || expected("n1", web, true, returns.clone());
        assert_eq!(out(vec![returning()], &none), ["Deployment/web"]);
        let budget = BudgetKey { namespace: "shop".into(), name: "web".into() };
        let guarded = |at_most: usize| {
            let guard = BudgetForecast {
                budget: budget.clone(),
                pods: 2,
                now: at_most,
                at_most,
                rounds: None,
                short_of: 0,
                lacks: None,
            };
            let pods = (0..2).map(|_| PodForecast { guarded_by: Some(budget.clone()), ..returning() });
            let forecast = Forecast { pods: pods.collect(), budgets: vec![guard], ..Forecast::default() };
            without_ready_pod(&forecast, |_| true, &none, &[]).len()
        };
        assert_eq!([guarded(1), guarded(2)], [0, 1], "one after another, or both at once");
        let workload = pod::workload(&goes("n1").pod).unwrap();
        let elsewhere = |names: &[&str]| {
            let workload = NamespacedWorkload { namespace: "shop".into(), workload: workload.clone() };
            let mut ready = ReadyPods::default();
            ready.extend(names.iter().map(|name| (workload.clone(), (*name).to_owned())));
            ready
        };
        assert!(out(vec![goes("n1")], &elsewhere(&["a"])).is_empty());
        let preempted = ["Deployment/web, preempted"];
        assert_eq!(out_by(vec![], &elsewhere(&["a", "b"]), &["a", "b"]), preempted);
        assert_eq!(out_by(vec![goes("n1")], &elsewhere(&["a"]), &["a"]), preempted);
        assert!(out_by(vec![goes("n1")], &elsewhere(&["a", "b"]), &["a"]).is_empty(), "b stays");
        assert_eq!(out_by(vec![goes("queued")], &none, &["p"]), preempted, "its own node is drained later");
        for kind in ["Job", "DaemonSet"] {
            assert!(out(vec![expected("n1", (kind, "x"), true, PodOutcome::Evicted)], &none).is_empty());
        }
        let set = expected("n1", ("StatefulSet", "db"), true, PodOutcome::Evicted);
        assert_eq!(out(vec![set], &none), ["StatefulSet/db"]);
    }
}
