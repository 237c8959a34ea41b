//! What became of the pods that left in a drain.

use nm_shared::NodeMaintenanceStatus;
use serde::{Deserialize, Serialize};

use crate::terminal::text::counted;

/// How many of the pods that are gone became what.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Departures {
    /// Pods that their controllers replace. Whether the replacements run is not known here.
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
        let restarted =
            status.returned_pods.as_ref().map_or(0, |pods| i64::try_from(pods.len()).unwrap_or(i64::MAX));
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
        self.all().iter().fold(0, |sum, (count, _)| sum.saturating_add(*count))
    }

    fn all(&self) -> [(i64, &'static str); 7] {
        [
            (self.moved, "evicted"),
            (self.migrated, "migrated"),
            (self.restarted, "restarted in place"),
            (self.completed, "completed"),
            (self.unmanaged, "deleted (no controller)"),
            (self.of_jobs, "terminated (of a Job)"),
            (self.finished, "deleted (finished before)"),
        ]
    }

    /// What there is at least one pod of, with its number.
    pub(crate) fn kinds(&self) -> Vec<(i64, &'static str)> {
        self.all().into_iter().filter(|(count, _)| *count > 0).collect()
    }
}

/// So many pods that are gone, in words: `20 pods evicted, 2 deleted (no controller)`. Unless it is known of all of them what they
/// became, they are just gone.
pub fn departure_words(gone: i64, departures: &Departures) -> String {
    let pods = |count: i64| counted(usize::try_from(count).unwrap_or_default(), "pod");
    if gone <= 0 || departures.total() != gone {
        return format!("{} gone", pods(gone));
    }
    let kinds = departures.kinds().into_iter().enumerate();
    let kinds =
        kinds.map(
            |(index, (count, what))| {
                if index == 0 { format!("{} {what}", pods(count)) } else { format!("{count} {what}") }
            },
        );
    kinds.collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn pods_are_only_called_evicted_if_it_is_known_of_all_of_them() {
        let of = |departed: Value| {
            Departures::of(&serde_json::from_value(json!({"departedPods": departed})).unwrap(), 12).unwrap()
        };
        let jobs = of(json!({"ofJobs": 1, "unmanaged": 2}));
        assert_eq!(
            departure_words(12, &jobs),
            "9 pods evicted, 2 deleted (no controller), 1 terminated (of a Job)"
        );
        let node = of(json!({"unmanaged": 2}));
        assert_eq!(departure_words(12, &node), "10 pods evicted, 2 deleted (no controller)");
        let both = node.plus(Departures { moved: 1, ..Departures::default() });
        assert_eq!(departure_words(13, &both), "11 pods evicted, 2 deleted (no controller)");
        assert_eq!(departure_words(22, &both), "22 pods gone");
        assert_eq!(departure_words(0, &Departures::default()), "0 pods gone");
        assert_eq!(Departures::of(&NodeMaintenanceStatus::default(), 3), None);
    }
}
