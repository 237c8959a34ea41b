//! One pod of the open node: what is kept of it, and where it stands.
//!
//! Whether a pod is to go, and whether one that ends is stuck, is decided as the reconciler decides it. What only the
//! reconciler knows, such as why an eviction was refused, comes from the status.

use std::cmp::Ordering;
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use nm_shared::budget::Budgets;
use nm_shared::drain_plan::{DaemonSets, DrainPlan, Judged, SkipReason, Verdict};
use nm_shared::pod_state::{self, Known, Obstacle, PodState};
use nm_shared::{BlockReason, DrainSpec, pod};

use super::filter::Fields;
use super::listing::{Row, Sort};

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

    /// Blocked by an obstacle that can be seen on the pod itself.
    fn blocked(obstacle: Obstacle) -> Self {
        Self {
            since: obstacle.since,
            reason: Some(obstacle.reason),
            message: obstacle.message,
            ..Self::at(Place::Blocked)
        }
    }
}

/// What tells a pod from others.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PodId {
    /// Its uid; where only a status names it, its namespace and name.
    pub(crate) key: String,
    /// Namespace.
    pub(crate) namespace: String,
    /// Name.
    pub(crate) name: String,
    /// What controls it, as `sts/cart`; empty if nothing does or nobody knows.
    pub(crate) owner: String,
}

/// What is kept of a pod that was seen: a pod itself is a hundred times as large.
#[derive(Debug)]
pub(crate) struct Facts {
    /// Which pod it is.
    pub(crate) id: Arc<PodId>,
    /// What is to become of it.
    pub(crate) verdict: Verdict,
    ending: Option<Box<Ending>>,
}

#[derive(Debug)]
struct Ending {
    deadline: Timestamp,
    grace: Option<i64>,
    finalizers: Option<Vec<String>>,
}

impl Facts {
    /// Keeps what matters of a pod, judged by that drain spec.
    pub(crate) fn of(pod: &Arc<Pod>, spec: &DrainSpec, now: Timestamp) -> Self {
        // Only the reconciler knows all DaemonSets; that one is gone is rare, and then the status says more.
        let daemon_sets = DaemonSets { incomplete: true, ..DaemonSets::default() };
        let judged = DrainPlan::new([Arc::clone(pod)], spec, &daemon_sets, now);
        // With a selector that is none, nobody is moved, and the status says why.
        let verdict = judged.ok().and_then(|plan| plan.pods.first().map(|judged| judged.verdict));
        let names = pod::names(pod);
        Self {
            id: Arc::new(PodId {
                key: names.uid.to_owned(),
                namespace: names.namespace.to_owned(),
                name: names.name.to_owned(),
                owner: owner(pod),
            }),
            verdict: verdict.unwrap_or(Verdict::Evict),
            ending: pod::deadline(pod).map(|deadline| {
                Box::new(Ending {
                    deadline,
                    grace: pod.metadata.deletion_grace_period_seconds,
                    finalizers: pod.metadata.finalizers.clone(),
                })
            }),
        }
    }

    /// Whether time alone may change where it stands.
    pub(crate) fn is_ending(&self) -> bool {
        self.ending.is_some()
    }

    /// Where it stands by what can be seen on the pod itself, while its node is in maintenance.
    pub(crate) fn stand(&self, now: Timestamp) -> Stand {
        match (self.verdict, &self.ending) {
            (Verdict::Skip(reason), _) => {
                Stand { message: stays(reason).to_owned(), ..Stand::at(Place::Stays) }
            }
            (Verdict::Evict, None) => Stand::at(Place::Waiting),
            (_, ending) => self.judge(ending.as_deref(), now),
        }
    }

    fn judge(&self, ending: Option<&Ending>, now: Timestamp) -> Stand {
        let pod = Pod {
            metadata: ObjectMeta {
                deletion_timestamp: ending.map(|ending| Time(ending.deadline)),
                deletion_grace_period_seconds: ending.and_then(|ending| ending.grace),
                finalizers: ending.and_then(|ending| ending.finalizers.clone()),
                ..ObjectMeta::default()
            },
            ..Pod::default()
        };
        let judged = Judged { pod: Arc::new(pod), verdict: self.verdict, warnings: Vec::new() };
        let budgets = Budgets::default();
        let known =
            Known { attempt: None, held: None, budgets: &budgets, evacuation: None, node_ready: true };
        match pod_state::state(&judged, &known, now) {
            PodState::Blocked(obstacle) => Stand::blocked(obstacle),
            PodState::Skipped => Stand::at(Place::Stays),
            PodState::Terminating => Stand {
                since: ending.map(|ending| asked_at(ending.deadline, ending.grace)),
                deadline: ending.map(|ending| ending.deadline),
                ..Stand::at(Place::Ending)
            },
            PodState::Waiting | PodState::Evicting | PodState::Migrating => Stand::at(Place::Waiting),
        }
    }
}

/// When a pod was asked to end whose grace ends then.
fn asked_at(deadline: Timestamp, grace: Option<i64>) -> Timestamp {
    deadline.saturating_sub(SignedDuration::from_secs(grace.unwrap_or(0))).unwrap_or(deadline)
}

fn stays(reason: SkipReason) -> &'static str {
    match reason {
        SkipReason::TerminatingTooLong => "terminating for too long to be waited for",
        SkipReason::DaemonSet => "DaemonSet",
        SkipReason::Mirror => "static pod",
        SkipReason::NotSelected => "podSelector leaves it out",
    }
}

/// What controls a pod, with the short names that kubectl takes.
fn owner(pod: &Pod) -> String {
    pod::controller(pod).map_or_else(String::new, |owner| {
        let kind = match owner.kind.as_str() {
            "ReplicaSet" => "rs",
            "StatefulSet" => "sts",
            "DaemonSet" => "ds",
            "ReplicationController" => "rc",
            "VirtualMachineInstance" => "vmi",
            other => return format!("{}/{}", other.to_ascii_lowercase(), owner.name),
        };
        format!("{kind}/{}", owner.name)
    })
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
