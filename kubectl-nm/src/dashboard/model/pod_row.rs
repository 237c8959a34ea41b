//! One pod of the open node: where it stands.
//!
//! Whether a pod is to go, and whether one that ends is stuck, is decided as the reconciler decides it. What only the
//! reconciler knows, such as why an eviction was refused, comes from the status.

use std::cmp::Ordering;
use std::sync::Arc;

use jiff::Timestamp;
use nm_shared::BlockReason;
use nm_shared::drain::plan::{SkipReason, Verdict};
use nm_shared::drain::pod_state::{Blocker, PodState};

use crate::dashboard::model::filter::Fields;
use crate::dashboard::model::listing::{Row, Sort};
use crate::dashboard::pod_facts::{Facts, PodId};

/// Where a pod stands, the worst first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Place {
    /// Something refuses to let it go.
    Blocked,
    /// It is ending.
    Ending,
    /// Its virtual machine is on the way to another node.
    Migrating,
    /// Its eviction is under way.
    Evicting,
    /// It has not been asked to go yet.
    Waiting,
    /// It is still there; nobody here may know more.
    ToGo,
    /// It runs, and nobody wants it to go.
    Running,
    /// It went.
    Gone,
    /// It stays, and nobody waits for it.
    Stays,
}

impl Place {
    /// The word for it.
    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Blocked => "BLOCKED",
            Self::Ending => "ENDING",
            Self::Migrating => "MIGRATING",
            Self::Evicting => "EVICTING",
            Self::Waiting => "WAITING",
            Self::ToGo => "TO GO",
            Self::Running => "RUNNING",
            Self::Gone => "GONE",
            Self::Stays => "STAYS",
        }
    }
}

/// Where a pod stands, with all that is to be said about it.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Stand {
    /// Where.
    pub(crate) place: Place,
    /// Since when, where that is known.
    pub(crate) since: Option<Timestamp>,
    /// Why it is blocked.
    pub(crate) reason: Option<BlockReason>,
    /// What else there is to say.
    pub(crate) message: String,
    /// How many evictions were refused.
    pub(crate) attempts: i32,
    /// When its grace ends.
    pub(crate) deadline: Option<Timestamp>,
}

impl Stand {
    /// Nothing but the place.
    pub(crate) fn at(place: Place) -> Self {
        Self { place, since: None, reason: None, message: String::new(), attempts: 0, deadline: None }
    }

    /// Where a pod with that verdict stands by what can be seen on itself, while its node is in maintenance.
    pub(crate) fn of(facts: &Facts, verdict: Verdict, now: Timestamp) -> Self {
        match verdict {
            Verdict::Skip(reason) => {
                return Self { message: stays(reason).to_owned(), ..Self::at(Place::Stays) };
            }
            Verdict::Evict | Verdict::Wait if !facts.is_ending() => return Self::at(Place::Waiting),
            Verdict::Evict | Verdict::Wait | Verdict::Block(_) => {}
        }
        match facts.state(verdict, now) {
            PodState::Blocked(obstacle) => Self::blocked(obstacle),
            PodState::Skipped => Self::at(Place::Stays),
            PodState::Terminating => {
                Self { since: facts.asked_at(), deadline: facts.deadline(), ..Self::at(Place::Ending) }
            }
            PodState::Waiting | PodState::Evicting | PodState::Migrating => Self::at(Place::Waiting),
        }
    }

    /// Blocked by an obstacle that can be seen on the pod itself.
    fn blocked(obstacle: Blocker) -> Self {
        Self {
            since: obstacle.since,
            reason: Some(obstacle.reason),
            message: obstacle.message,
            ..Self::at(Place::Blocked)
        }
    }
}

fn stays(reason: SkipReason) -> &'static str {
    match reason {
        SkipReason::TerminatingTooLong => "terminating for too long to be waited for",
        SkipReason::DaemonSet => "DaemonSet",
        SkipReason::Mirror => "static pod",
        SkipReason::NotSelected => "podSelector leaves it out",
    }
}

/// A row of the node's view.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct PodRow {
    /// Which pod it is.
    pub(crate) id: Arc<PodId>,
    /// Where it stands.
    pub(crate) stand: Stand,
}

impl Row for PodRow {
    fn key(&self) -> &str {
        &self.id.key
    }

    fn order(&self, other: &Self, by: Sort) -> Ordering {
        let since = |row: &Self| (row.stand.since.is_none(), row.stand.since);
        // Who went last is of interest, not who went first.
        let by_place = self.stand.place.cmp(&other.stand.place).then_with(|| match self.stand.place {
            Place::Gone => other.stand.since.cmp(&self.stand.since),
            _ => Ordering::Equal,
        });
        let first = match by {
            Sort::Risk | Sort::Progress => by_place,
            Sort::Name => Ordering::Equal,
            Sort::Age => since(self).cmp(&since(other)),
        };
        first
            .then_with(|| self.id.namespace.cmp(&other.id.namespace))
            .then_with(|| self.id.name.cmp(&other.id.name))
            .then_with(|| self.id.key.cmp(&other.id.key))
    }

    fn fields(&self) -> Fields<'_> {
        Fields {
            node: None,
            namespaces: vec![&self.id.namespace],
            state: self.stand.place.word(),
            texts: [&self.id.name, &self.id.owner, &self.stand.message, ""],
        }
    }

    fn is_blocked(&self) -> bool {
        self.stand.place == Place::Blocked
    }
}
