//! What became of the pods that left in a drain.

use nm_shared::NodeMaintenanceStatus;
use nm_shared::api::returned_pod::ReturnedPod;
use serde::{Deserialize, Serialize};

use crate::terminal::text::counted;

/// How many of the pods that are gone became what.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Departures {
    /// Pods that their controllers replace, whether the drain evicted them or somebody else deleted them. Whether the
    /// replacements run is not known here.
    pub moved: i64,
    /// Virtual machines that were migrated.
    pub migrated: i64,
    /// Pods that returned to the node.
    pub restarted: i64,
    /// Pods that terminated on their own.
    pub completed: i64,
    /// Pods that no controller replaces.
    pub unmanaged: i64,
    /// Pods that a Job controls, which decides whether it creates others.
    pub of_jobs: i64,
    /// Pods that had finished before.
    pub finished: i64,
}

impl Departures {
    /// What a status shows of so many pods that are gone; none where it does not tell them apart.
    pub fn of(status: &NodeMaintenanceStatus, gone: i32) -> Option<Self> {
        let departed = status.departed_pods?;
        // A pod that came later and returns is none of those that had to leave.
        let drained = status.first_drained_at();
        let is_of_drain =
            |pod: &&ReturnedPod| !pod.came_later && drained.is_none_or(|drained| pod.since.0 <= drained);
        let returned = status.returned_pods.iter().flatten().filter(is_of_drain);
        let restarted = i64::try_from(returned.count()).unwrap_or(i64::MAX);
        let others = Self {
            moved: 0,
            migrated: departed.migrated.into(),
            restarted,
            completed: departed.completed.into(),
            unmanaged: departed.unmanaged.into(),
            of_jobs: departed.of_jobs.into(),
            finished: departed.finished.into(),
        };
        Some(Self { moved: i64::from(gone).saturating_sub(others.total()).max(0), ..others })
    }

    /// Those of several drains together.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        Self {
            moved: self.moved.saturating_add(other.moved),
            migrated: self.migrated.saturating_add(other.migrated),
            restarted: self.restarted.saturating_add(other.restarted),
            completed: self.completed.saturating_add(other.completed),
            unmanaged: self.unmanaged.saturating_add(other.unmanaged),
            of_jobs: self.of_jobs.saturating_add(other.of_jobs),
            finished: self.finished.saturating_add(other.finished),
        }
    }

    /// Number of pods.
    pub fn total(&self) -> i64 {
        self.known().iter().fold(self.moved, |sum, (count, _)| sum.saturating_add(*count))
    }

    /// The kinds of departures for which something is known, with their words. How the others left is not: they were evicted, or
    /// somebody or their controllers deleted them.
    fn known(&self) -> [(i64, &'static str); 6] {
        [
            (self.migrated, "migrated"),
            (self.restarted, "restarted in place"),
            (self.completed, "completed"),
            (self.unmanaged, "deleted (no controller)"),
            (self.of_jobs, "terminated (of a Job)"),
            (self.finished, "deleted (finished before)"),
        ]
    }
}

/// So many pods that are gone `in` a time, in words: `20 pods gone in 2m, including 2 deleted (no controller)`. If it is not known
/// what became of each of them, they are just gone.
pub fn departure_words(gone: i64, departures: &Departures, time: &str) -> String {
    let pods = |count: i64| counted(count, "pod");
    let all = departures.total();
    if all < gone {
        return format!("{} gone{time}", pods(gone));
    }
    let kinds: Vec<(i64, &str)> = departures.known().into_iter().filter(|(count, _)| *count > 0).collect();
    match kinds.as_slice() {
        [] => format!("{} gone{time}", pods(all)),
        [(count, what)] if *count == all => format!("{} {what}{time}", pods(all)),
        kinds => {
            let kinds: Vec<String> = kinds.iter().map(|(count, what)| format!("{count} {what}")).collect();
            format!("{} gone{time}, including {}", pods(all), kinds.join(", "))
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn how_pods_left_is_only_reported_where_it_is_known() {
        let of = |departed: Value| {
            Departures::of(&serde_json::from_value(json!({"departedPods": departed})).unwrap(), 12).unwrap()
        };
        let words = |gone, departures: &Departures| departure_words(gone, departures, " in 5s");
        // They may have been evicted, deleted by somebody else or after a time, or replaced by a rollout.
        assert_eq!(words(12, &of(json!({}))), "12 pods gone in 5s");
        let jobs = of(json!({"ofJobs": 1, "unmanaged": 2}));
        assert_eq!(
            words(12, &jobs),
            "12 pods gone in 5s, including 2 deleted (no controller), 1 terminated (of a Job)"
        );
        assert_eq!(words(12, &of(json!({"unmanaged": 12}))), "12 pods deleted (no controller) in 5s");
        let both = of(json!({"unmanaged": 2})).plus(Departures { moved: 1, ..Departures::default() });
        assert_eq!(words(13, &both), "13 pods gone in 5s, including 2 deleted (no controller)");
        assert_eq!(words(22, &both), "22 pods gone in 5s", "of some nothing is known");
        let late = Departures { migrated: 1, ..Departures::default() };
        assert_eq!(words(0, &late), "1 pod migrated in 5s");
        assert_eq!(departure_words(0, &Departures::default(), ""), "0 pods gone");
        assert_eq!(Departures::of(&NodeMaintenanceStatus::default(), 3), None);
    }

    #[test]
    fn a_pod_that_returns_after_the_drain_is_none_of_those_that_had_to_leave() {
        let returned = |name: &str, since: &str| json!({"namespace": "a", "name": name, "since": since, "cameLater": name == "from-elsewhere"});
        let condition = |type_: &str, at: &str| json!({"type": type_, "status": "True", "reason": type_, "message": "", "lastTransitionTime": at});
        let status = json!({"departedPods": {}, "conditions": [condition("Drained", "2026-01-02T03:05:00Z")],
            "returnedPods": [returned("of-the-drain", "2026-01-02T03:05:00Z"), returned("late", "2026-01-02T03:07:00Z"),
                returned("from-elsewhere", "2026-01-02T03:04:50Z")]});
        let departures = Departures::of(&serde_json::from_value(status).unwrap(), 5).unwrap();
        assert_eq!((departures.moved, departures.restarted), (4, 1));
    }
}
