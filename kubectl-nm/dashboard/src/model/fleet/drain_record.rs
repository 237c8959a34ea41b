//! What this program has seen of each drain, for the summary at its end: the pods that took longest, what blocked pods,
//! and how many ready pods workloads lost. An object has only its present state, and nothing is shown that was not seen.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};
use nm_core::args::duration::age;
use nm_core::explain::owner::Owner;
use nm_core::explain::remedy;
use nm_core::maintenance::changes::MaintenanceChange;
use nm_core::maintenance::{blocked_pods, cordoned_since, drain_result, headline, node, status, uid};
use nm_core::terminal::text::counted;
use nm_shared::{BlockFacts, BlockReason, BlockedPod, NodeMaintenance, PodReference};

use crate::objects::workload::ReadyPods;

/// How many of the slowest pods, of the blockers and of the workloads a summary names.
const NAMED: usize = 3;

/// A namespace, and what controls pods in it; none for pods without a controller.
pub(crate) type WorkloadName = (String, Option<Owner>);

#[derive(Debug, Clone, Default)]
pub(crate) struct DrainRecords {
    /// By the uid of the maintenance.
    records: BTreeMap<String, DrainRecord>,
    /// The summaries of drains that were seen to end, by node and in the order in which they ended.
    ended: Vec<(String, String, Vec<String>)>,
}

#[derive(Debug, Clone, Default)]
pub(crate) struct DrainRecord {
    /// The pods that were the last to go, and how long after the cordon, the slowest first.
    slowest: Vec<(PodReference, SignedDuration)>,
    /// What blocked pods, such as `PDB shop/cart`: which pods, for which reason, and how many evictions of each were refused.
    blockers: BTreeMap<String, BTreeMap<PodReference, (BlockReason, i32)>>,
    readiness: BTreeMap<WorkloadName, SeenReadiness>,
}

/// The lowest readiness of a workload that was seen, and since when it has been watched.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct SeenReadiness {
    pub(crate) lowest: ReadyPods,
    pub(crate) since: Timestamp,
    /// Whether none of its pods was ready before the first of them left.
    pub(crate) was_down: bool,
}

impl DrainRecords {
    pub(crate) fn observe(&mut self, changes: &[MaintenanceChange], now: Timestamp) {
        for change in changes {
            match change {
                MaintenanceChange::Updated { before, now: object } => {
                    let record = self.records.entry(uid(object)).or_default();
                    record.observe(before.as_deref(), object, now);
                    let has_ended = |object: &NodeMaintenance| drain_result(object).is_some();
                    if has_ended(object) && before.as_deref().is_some_and(|before| !has_ended(before)) {
                        self.ended.retain(|(known, ..)| *known != uid(object));
                        self.ended.push((uid(object), node(object).to_owned(), Vec::new()));
                    }
                }
                MaintenanceChange::Deleted(last) => {
                    let summary = self.summary(last);
                    self.records.remove(&uid(last));
                    if let Some(ended) = self.ended.iter_mut().find(|(known, ..)| *known == uid(last)) {
                        ended.2 = summary;
                    }
                }
            }
        }
    }

    pub(crate) fn of(&self, maintenance: &NodeMaintenance) -> Option<&DrainRecord> {
        self.records.get(&uid(maintenance))
    }

    pub(crate) fn observe_readiness(
        &mut self,
        maintenance: &NodeMaintenance,
        workload: WorkloadName,
        readiness: ReadyPods,
        has_begun: bool,
        now: Timestamp,
    ) {
        // What workloads lose after that is not lost by this drain.
        if drain_result(maintenance).is_some() {
            return;
        }
        let record = self.records.entry(uid(maintenance)).or_default();
        record.observe_readiness(workload, readiness, has_begun, now);
    }

    /// The summary of a drain that has ended; empty before.
    pub(crate) fn summary(&self, maintenance: &NodeMaintenance) -> Vec<String> {
        let Some(result) = drain_result(maintenance) else { return Vec::new() };
        let seen = self.of(maintenance).map(|record| record.lines(cordoned_since(maintenance)));
        let seen = seen.unwrap_or_default();
        [vec![result], seen].concat()
    }

    /// The nodes whose drains were seen to end, with their summaries. `find` finds a maintenance by its uid. `with_states`:
    /// whether the states of the maintenances are shown, too. Their results are not shown twice then.
    pub(crate) fn ended<'a>(
        &self,
        find: impl Fn(&str) -> Option<&'a NodeMaintenance>,
        with_states: bool,
    ) -> Vec<(String, Vec<String>)> {
        let summary = |(uid, node, last): &(String, String, Vec<String>)| {
            let Some(object) = find(uid) else { return (node.clone(), last.clone()) };
            let mut lines = self.summary(object);
            if with_states {
                let state = headline(object).to_string();
                lines.retain(|line| !state.contains(line));
            }
            (node.clone(), lines)
        };
        self.ended.iter().map(summary).collect()
    }
}

impl DrainRecord {
    fn observe(&mut self, before: Option<&NodeMaintenance>, object: &NodeMaintenance, now: Timestamp) {
        for pod in blocked_pods(object) {
            self.observe_blocked(pod);
        }
        let left = &status(object).pending_pods_refs;
        // Pods that go while as many are left are not among the slowest.
        let (Some(before), Some(cordoned), true) = (before, cordoned_since(object), left.len() < NAMED)
        else {
            return;
        };
        let at = status(object).last_update.as_ref().map_or(now, |time| time.0);
        let after = at.duration_since(cordoned);
        let gone = status(before).pending_pods_refs.iter().filter(|pod| !left.contains(pod));
        self.slowest.extend(gone.map(|pod| (pod.clone(), after)));
        self.slowest.sort_by_key(|(_, after)| Reverse(*after));
        self.slowest.truncate(NAMED);
    }

    /// The status does not name what blocks a pod at all times: without a name, it is the same as the one that had one.
    fn observe_blocked(&mut self, pod: &BlockedPod) {
        let named = remedy::common_blocker(&pod.namespace, pod.reason, &pod.facts);
        let unnamed = remedy::common_blocker(&pod.namespace, pod.reason, &BlockFacts::default());
        let reference = pod.reference();
        let is_of_pod = |pods: &BTreeMap<PodReference, (BlockReason, i32)>| {
            pods.get(&reference).is_some_and(|(reason, _)| *reason == pod.reason)
        };
        let known = self.blockers.iter().find(|(_, pods)| is_of_pod(pods)).map(|(known, _)| known.clone());
        let mut refused = pod.attempts;
        let blocker = match known {
            Some(known) if named == unnamed => known,
            Some(known) if known == unnamed => {
                if let Some(pods) = self.blockers.get_mut(&known) {
                    refused = pods.remove(&reference).map_or(refused, |(_, before)| refused.max(before));
                }
                self.blockers.retain(|_, pods| !pods.is_empty());
                named
            }
            _ => named,
        };
        let new = (pod.reason, refused);
        let (_, most) = self.blockers.entry(blocker).or_default().entry(reference).or_insert(new);
        *most = refused.max(*most);
    }

    /// `has_begun`: whether a pod of the workload leaves or has left.
    fn observe_readiness(
        &mut self,
        workload: WorkloadName,
        readiness: ReadyPods,
        has_begun: bool,
        now: Timestamp,
    ) {
        let is_down = readiness.ready == 0;
        let new = SeenReadiness { lowest: readiness, since: now, was_down: is_down && !has_begun };
        let seen = self.readiness.entry(workload).or_insert(new);
        seen.was_down &= is_down;
        if readiness.missing() > seen.lowest.missing() {
            seen.lowest = readiness;
        }
    }

    pub(crate) fn readiness(&self, workload: &WorkloadName) -> Option<SeenReadiness> {
        self.readiness.get(workload).copied()
    }

    /// What was seen, a line for each kind of fact.
    fn lines(&self, cordoned: Option<Timestamp>) -> Vec<String> {
        let mut lines = Vec::new();
        if !self.slowest.is_empty() {
            let pods = self.slowest.iter().map(|(pod, after)| format!("{pod} {}", age(after.as_secs())));
            lines.push(format!("slowest, since the cordon: {}", pods.collect::<Vec<_>>().join(", ")));
        }
        if !self.blockers.is_empty() {
            let mut blockers: Vec<_> = self.blockers.iter().collect();
            blockers.sort_by_key(|(_, pods)| Reverse(pods.len()));
            let words = blockers.iter().map(|(blocker, pods)| {
                let refused: i32 = pods.values().map(|(_, refused)| refused).sum();
                let refused = match usize::try_from(refused) {
                    Ok(0) | Err(_) => String::new(),
                    Ok(count) => format!(", {} refused", counted(count, "eviction")),
                };
                format!("{blocker} ({}{refused})", counted(pods.len(), "pod"))
            });
            lines.push(format!("was blocked by: {}", first(words.collect())));
        }
        if !self.readiness.is_empty() {
            let mut lost: Vec<_> =
                self.readiness.iter().filter(|(_, seen)| seen.lowest.missing() > 0).collect();
            lost.sort_by_key(|(_, seen)| Reverse(seen.lowest.missing()));
            let words = lost.iter().map(|((namespace, workload), seen)| {
                let workload = workload.as_ref().map_or("", Owner::text);
                let ReadyPods { ready, wanted } = seen.lowest;
                format!("{namespace} {workload} {ready}/{wanted}")
            });
            // Pods that left before are not among what was seen.
            let began = self.readiness.values().map(|seen| seen.since).min();
            let after = began.zip(cordoned).filter(|(began, cordoned)| began > cordoned);
            let watched = after.map_or_else(String::new, |(began, cordoned)| {
                format!("; watched from {} after the cordon", age(began.duration_since(cordoned).as_secs()))
            });
            lines.push(if lost.is_empty() {
                let workloads = counted(self.readiness.len(), "workload");
                format!("readiness lost: none, of {workloads}{watched}")
            } else {
                format!("readiness lost: {}{watched}", first(words.collect()))
            });
        }
        lines
    }
}

/// The first of the words, and how many more there are.
fn first(words: Vec<String>) -> String {
    let more = words.len().saturating_sub(NAMED);
    let named = words.into_iter().take(NAMED).collect::<Vec<_>>().join(", ");
    if more > 0 { format!("{named} and {more} more") } else { named }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use nm_core::testing::objects::with_status;
    use serde_json::{Value, json};

    use super::*;

    /// A status so many seconds after the cordon, with these pods left to go.
    fn draining(seconds: i64, left: &[&str], blocked: &Value) -> NodeMaintenance {
        let cordoned: Timestamp = "2026-01-02T03:00:00Z".parse().unwrap();
        let at = (cordoned + SignedDuration::from_secs(seconds)).to_string();
        let left: Vec<Value> = left.iter().map(|name| json!({"namespace": "shop", "name": name})).collect();
        let drained = if left.is_empty() { "True" } else { "False" };
        let condition = |type_: &str, status: &str, since: &str| json!({"type": type_, "status": status, "reason": "R", "message": "", "lastTransitionTime": since});
        with_status(
            "n1",
            json!({
                "phase": if left.is_empty() { "Succeeded" } else { "Running" }, "evictionPods": 5, "lastUpdate": at,
                "pendingPodsRefs": left, "departedPods": {}, "podCounts": {"gone": 5 - left.len(), "waiting": left.len()},
                "blockedPods": blocked, "conditions": [
                    condition("Cordoned", "True", &cordoned.to_string()), condition("Drained", drained, &at)],
            }),
        )
    }

    fn follow(objects: Vec<NodeMaintenance>) -> (DrainRecords, NodeMaintenance) {
        let mut records = DrainRecords::default();
        let mut before = None;
        for object in objects {
            let object = Arc::new(object);
            let change = MaintenanceChange::Updated { before: before.replace(object.clone()), now: object };
            records.observe(&[change], Timestamp::UNIX_EPOCH);
        }
        (records, before.unwrap().as_ref().clone())
    }

    #[test]
    fn a_summary_names_the_slowest_pods_and_what_blocked_them() {
        let budget = |name: &str, attempts: i32| {
            json!({"namespace": "shop", "name": name, "reason": "DisruptionBudget", "message": "m",
                "since": "2026-01-02T03:00:01Z", "attempts": attempts, "budget": {"name": "cart"}})
        };
        let held = json!({"namespace": "shop", "name": "c", "reason": "Finalizers", "message": "m",
            "since": "2026-01-02T03:00:01Z", "attempts": 0});
        let none = || json!([]);
        let (records, last) = follow(vec![
            draining(0, &["a", "b", "c", "d", "e"], &none()),
            draining(5, &["a", "b", "c"], &json!([budget("a", 3), held])),
            draining(30, &["a", "b"], &json!([budget("a", 7), budget("b", 1)])),
            draining(70, &["a"], &json!([budget("a", 9)])),
            draining(130, &[], &none()),
        ]);
        assert_eq!(
            records.summary(&last),
            [
                "5 pods gone in 2m10s",
                "slowest, since the cordon: shop/a 2m10s, shop/b 1m10s, shop/c 30s",
                "was blocked by: PDB shop/cart (2 pods, 10 evictions refused), finalizers in shop (1 pod)",
            ]
        );
        assert_eq!(records.ended(|_| Some(&last), false).len(), 1);
        let unknown = &records.ended(|_| None, false)[0].1;
        assert_eq!(*unknown, Vec::<String>::new(), "it is not known what became of it");
    }

    #[test]
    fn errors_of_the_api_server_block_the_pods_of_all_namespaces_alike() {
        let in_namespace = |namespace: &&str| {
            json!({"namespace": namespace, "name": "a", "reason": "ServerError", "message": "timeout",
                "since": "2026-01-02T03:00:01Z", "attempts": 1})
        };
        let blocked: Vec<Value> = ["blog", "shop"].iter().map(in_namespace).collect();
        let (records, last) =
            follow(vec![draining(5, &["a"], &json!(blocked)), draining(130, &[], &json!([]))]);
        assert_eq!(
            records.summary(&last).last().unwrap(),
            "was blocked by: errors of the API server (2 pods, 2 evictions refused)"
        );
    }

    #[test]
    fn a_pod_is_counted_once_whether_or_not_its_budgets_are_named() {
        let both = |budgets: Value, attempts: i32| {
            json!([{"namespace": "shop", "name": "a", "reason": "MultipleDisruptionBudgets", "message": "m",
                "since": "2026-01-02T03:00:01Z", "attempts": attempts, "budgets": budgets}])
        };
        let named = || json!([{"name": "both"}, {"name": "both2"}]);
        for statuses in [[both(named(), 7), both(json!([]), 11)], [both(json!([]), 7), both(named(), 11)]] {
            let [first, then] = statuses.map(|blocked| draining(5, &["a"], &blocked));
            let (records, last) = follow(vec![first, then, draining(130, &[], &json!([]))]);
            let blocked = "was blocked by: PDBs shop/both, shop/both2 (1 pod, 11 evictions refused)";
            assert_eq!(records.summary(&last).last().unwrap(), blocked);
        }
    }

    #[test]
    fn what_workloads_lose_after_a_drain_has_ended_is_not_ascribed_to_it() {
        let (mut records, last) = follow(vec![draining(5, &["a"], &json!([])), draining(9, &[], &json!([]))]);
        let before = records.summary(&last);
        let workload = ("shop".to_owned(), Owner::recorded("sts/cart"));
        let none = ReadyPods { ready: 0, wanted: 1 };
        records.observe_readiness(&last, workload, none, true, Timestamp::UNIX_EPOCH);
        assert_eq!(records.summary(&last), before);
    }

    #[test]
    fn a_drain_that_was_over_before_has_only_what_its_object_says() {
        let (records, last) = follow(vec![draining(130, &[], &json!([]))]);
        assert_eq!(records.summary(&last), ["5 pods gone in 2m10s"]);
        assert!(records.ended(|_| Some(&last), false).is_empty());
        let (records, last) = follow(vec![draining(5, &["a"], &json!([]))]);
        assert_eq!(records.summary(&last), Vec::<String>::new());
    }

    #[test]
    fn the_summary_of_a_maintenance_that_was_stopped_stays() {
        let (mut records, last) = follow(vec![draining(5, &["a"], &json!([])), draining(9, &[], &json!([]))]);
        let summary = records.summary(&last);
        records.observe(&[MaintenanceChange::Deleted(Arc::new(last))], Timestamp::UNIX_EPOCH);
        assert_eq!(records.ended(|_| None, true), [("n1".to_owned(), summary)]);
    }

    #[test]
    fn a_result_that_the_state_of_the_maintenance_shows_is_not_shown_again() {
        let (records, mut last) = follow(vec![draining(5, &["a"], &json!([])), draining(9, &[], &json!([]))]);
        last.status.get_or_insert_default().departed_pods.get_or_insert_default();
        let result = drain_result(&last).unwrap();
        assert!(headline(&last).to_string().contains(&result), "{result}");
        let lines = |with_states| records.ended(|_| Some(&last), with_states)[0].1.clone();
        assert_eq!(lines(false)[0], result);
        assert_eq!(lines(true), lines(false)[1..]);
    }

    #[test]
    fn the_lowest_readiness_is_the_one_that_lacked_most() {
        let mut record = DrainRecord::default();
        let workload = || ("shop".to_owned(), Owner::recorded("sts/cart"));
        assert_eq!(record.readiness(&workload()), None);
        for (second, ready, wanted) in [(1, 3, 3), (2, 1, 3), (3, 2, 3), (4, 1, 1)] {
            let now = Timestamp::from_second(second).unwrap();
            record.observe_readiness(workload(), ReadyPods { ready, wanted }, false, now);
        }
        let seen = record.readiness(&workload()).unwrap();
        assert_eq!(seen.lowest, ReadyPods { ready: 1, wanted: 3 });
        assert_eq!(seen.since, Timestamp::from_second(1).unwrap());
        assert_eq!(record.lines(None), ["readiness lost: shop sts/cart 1/3"]);
        let cordoned = |second: i64| Timestamp::from_second(second).ok();
        assert_eq!(record.lines(cordoned(1)), ["readiness lost: shop sts/cart 1/3"]);
        let watched = "readiness lost: shop sts/cart 1/3; watched from 31s after the cordon";
        assert_eq!(record.lines(cordoned(-30)), [watched]);
        let mut record = DrainRecord::default();
        record.observe_readiness(workload(), ReadyPods { ready: 4, wanted: 3 }, false, Timestamp::UNIX_EPOCH);
        assert_eq!(record.lines(None), ["readiness lost: none, of 1 workload"]);
    }
}
