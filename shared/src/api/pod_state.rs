//! The states of the pods on a node in maintenance.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The state of a pod on a node in maintenance. The order is most urgent first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum PodState {
    /// Something refuses to let it go.
    Blocked,
    /// It is being deleted, within its grace period.
    Terminating,
    /// `KubeVirt` migrates its virtual machine.
    Migrating,
    /// Its Deployment creates its replacement first, and then ends it.
    Surging,
    /// An eviction is in flight, or was accepted and the pod does not show it yet.
    Evicting,
    /// It has to go, and its eviction has not been requested.
    Waiting,
    /// It is gone.
    Gone,
    /// It stays, and the drain does not wait for it.
    Staying,
}

impl PodState {
    /// All states, most urgent first.
    pub const ALL: [Self; 8] = [
        Self::Blocked,
        Self::Terminating,
        Self::Migrating,
        Self::Surging,
        Self::Evicting,
        Self::Waiting,
        Self::Gone,
        Self::Staying,
    ];

    /// The word that people see. In lower case, it is the field in [`PodCounts`].
    pub const fn word(self) -> &'static str {
        match self {
            Self::Blocked => "Blocked",
            Self::Terminating => "Terminating",
            Self::Migrating => "Migrating",
            Self::Surging => "Surging",
            Self::Evicting => "Evicting",
            Self::Waiting => "Waiting",
            Self::Gone => "Gone",
            Self::Staying => "Staying",
        }
    }

    /// Whether the pod has left or is leaving, so that its owner creates another one.
    pub const fn is_replaced(self) -> bool {
        match self {
            Self::Gone | Self::Terminating | Self::Migrating | Self::Surging => true,
            Self::Blocked | Self::Evicting | Self::Waiting | Self::Staying => false,
        }
    }

    /// Whether the drain waits for a pod in this state.
    pub const fn is_pending(self) -> bool {
        !matches!(self, Self::Gone | Self::Staying)
    }
}

/// Number of the node's pods in each state. Each pod is in one state.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Copy, Debug, Default, PartialEq, Eq)]
#[serde(default)]
pub struct PodCounts {
    /// An eviction is under way.
    pub evicting: i32,
    /// Terminating, within its grace period.
    pub terminating: i32,
    /// Blocked.
    pub blocked: i32,
    /// A virtual machine that is migrating to another node.
    pub migrating: i32,
    /// Its Deployment creates its replacement first.
    pub surging: i32,
    /// Waiting to be evicted.
    pub waiting: i32,
    /// Staying: `DaemonSet` pods, mirror pods, pods that the selector excludes, returned pods, and pods that have been
    /// terminating for longer than `skipWaitForDeleteTimeoutSeconds`.
    pub staying: i32,
    /// Gone.
    pub gone: i32,
}

impl PodCounts {
    /// How many pods are in a state.
    pub fn of(&self, state: PodState) -> i32 {
        *self.clone().of_mut(state)
    }

    /// How many pods are in a state, to be changed.
    pub const fn of_mut(&mut self, state: PodState) -> &mut i32 {
        match state {
            PodState::Blocked => &mut self.blocked,
            PodState::Terminating => &mut self.terminating,
            PodState::Migrating => &mut self.migrating,
            PodState::Surging => &mut self.surging,
            PodState::Evicting => &mut self.evicting,
            PodState::Waiting => &mut self.waiting,
            PodState::Gone => &mut self.gone,
            PodState::Staying => &mut self.staying,
        }
    }

    /// The states that at least one pod is in, with how many are; most urgent first.
    pub fn by_state(&self) -> impl Iterator<Item = (PodState, i32)> {
        PodState::ALL.into_iter().map(|state| (state, self.of(state))).filter(|(_, count)| *count > 0)
    }

    /// How many pods the drain waits for.
    pub fn pending(&self) -> i32 {
        self.by_state()
            .filter(|(state, _)| state.is_pending())
            .fold(0, |sum, (_, count)| sum.saturating_add(count))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    #[test]
    fn every_state_has_a_count_of_its_word_and_every_count_a_state() {
        for state in PodState::ALL {
            let mut counts = PodCounts::default();
            *counts.of_mut(state) = 1;
            assert_eq!(counts.by_state().collect::<Vec<_>>(), [(state, 1)]);
            assert_eq!(json!(counts)[state.word().to_lowercase()], 1);
            assert_eq!(counts.pending(), i32::from(state.is_pending()));
        }
        assert!(PodState::ALL.is_sorted());
        let Value::Object(fields) = json!(PodCounts::default()) else { panic!("an object") };
        assert_eq!(fields.len(), PodState::ALL.len());
    }
}
