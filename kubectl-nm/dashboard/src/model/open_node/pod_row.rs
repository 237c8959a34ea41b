//! A row of the node view: a pod and its state.
//!
//! Whether a pod has to go, and whether a terminating pod is blocked, is decided as in the reconciler. What only the
//! reconciler knows, such as why an eviction was refused, comes from the status.

use std::cmp::Ordering;
use std::sync::Arc;

use jiff::Timestamp;
use nm_core::args::duration::age;
use nm_core::explain::owner::Owner;
use nm_core::explain::remedy::in_short;
use nm_core::maintenance::roll::stay_words;
use nm_shared::cluster::node::Readiness;
use nm_shared::cluster::pod;
use nm_shared::drain::plan::Verdict;
use nm_shared::drain::pod_state::{self, PodStanding};
use nm_shared::{BlockFacts, BlockReason, PodState};

use crate::model::lists::filter::{FilterField, Searchable, any_of_workload};
use crate::model::lists::listing::{Row, Sort};
use crate::objects::node_pod::{NodePod, PodId};

/// The state of a pod that has to go, if nothing else is known of it.
pub(crate) const REMAINING: &str = "Remaining";

#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct PodProgress {
    /// The state; none on a node without a maintenance, and if it is not known.
    pub(crate) state: Option<PodState>,
    /// Whether the pod has to go, and its state is not known: only the status of the maintenance names it.
    pub(crate) is_unknown: bool,
    pub(crate) since: Option<Timestamp>,
    pub(crate) reason: Option<BlockReason>,
    /// Only of blocked pods, because facts are large.
    pub(crate) facts: Option<Box<BlockFacts>>,
    pub(crate) message: String,
    pub(crate) attempts: i32,
    pub(crate) deadline: Option<Timestamp>,
}

impl From<PodState> for PodProgress {
    fn from(state: PodState) -> Self {
        Self { state: Some(state), ..Self::default() }
    }
}

impl PodProgress {
    /// The progress of a pod with that verdict, from the pod alone, on a node that has been Ready for so long.
    pub(crate) fn of(
        pod: &NodePod,
        verdict: Verdict,
        ready_since: Option<Timestamp>,
        now: Timestamp,
    ) -> Self {
        let node = Readiness::Ready(ready_since);
        if let Verdict::Stay(reason) = verdict {
            return Self { message: stay_words(&pod.pod, reason), ..PodState::Staying.into() };
        }
        let Some(PodStanding { state, blocker, .. }) = pod_state::visible_state(&pod.pod, verdict, node, now)
        else {
            return PodState::Waiting.into();
        };
        match blocker {
            Some(blocker) => Self {
                since: blocker.since,
                reason: Some(blocker.reason),
                facts: Some(Box::new(blocker.facts)),
                message: blocker.message,
                ..state.into()
            },
            None if pod::waits_for_its_job(&pod.pod) => {
                let message = String::from("has ended, and its Job has not counted it yet");
                Self { since: pod.terminating_since(), message, ..state.into() }
            }
            None if state == PodState::Terminating => {
                let deadline = pod_state::deadline(&pod.pod, node);
                Self { since: pod.terminating_since(), deadline, ..state.into() }
            }
            None => state.into(),
        }
    }

    pub(crate) fn word(&self) -> &'static str {
        if self.is_unknown { REMAINING } else { self.state.map_or("-", PodState::word) }
    }

    /// The state in the order of attention. One that is not known comes last of those of pods that have to go.
    fn rank(&self) -> Option<PodState> {
        if self.is_unknown { Some(PodState::Waiting) } else { self.state }
    }
}

#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct PodRow {
    pub(crate) id: Arc<PodId>,
    pub(crate) progress: PodProgress,
}

impl PodRow {
    /// The names of the pod, and of the budgets that block it.
    pub(crate) fn objects(&self) -> impl Iterator<Item = &str> {
        let facts = self.progress.facts.as_deref();
        let budgets = facts.into_iter().flat_map(|facts| facts.budget.iter().chain(&facts.budgets));
        let budgets = budgets.map(|budget| budget.name.as_str());
        std::iter::once(self.id.name.as_str()).chain(budgets)
    }
}

/// What a pod waits for, or what is reported about it.
pub(crate) fn detail(row: &PodRow, now: Timestamp) -> String {
    let PodProgress { state, reason, facts, message, attempts, deadline, .. } = &row.progress;
    match (state, reason.zip(facts.as_deref()), deadline) {
        (Some(PodState::Blocked), Some((reason, facts)), _) => {
            let short = in_short(&row.id.namespace, reason, facts, message);
            // The status has the latest count once a minute.
            match attempts {
                ..=0 => short,
                1 => format!("{short} (refused at least once)"),
                several => format!("{short} (refused at least {several} times)"),
            }
        }
        (Some(PodState::Terminating), _, Some(deadline)) => match deadline.duration_since(now).as_secs() {
            left if left >= 0 => format!("{} of the grace period left", age(left)),
            over => format!("{} after the grace period", age(-over)),
        },
        (Some(PodState::Waiting), ..) if message.is_empty() => String::from("not evicted yet"),
        (Some(PodState::Evicting), ..) => String::from("eviction requested"),
        _ => message.clone(),
    }
}

impl Searchable for PodRow {
    fn any(&self, field: FilterField, is_match: &dyn Fn(&str) -> bool) -> bool {
        match field {
            FilterField::Namespace => is_match(&self.id.namespace),
            FilterField::State => is_match(self.progress.word()),
            FilterField::Reason => self.progress.reason.is_some_and(|reason| is_match(reason.as_str())),
            FilterField::Object => self.objects().any(is_match),
            FilterField::Workload => any_of_workload(self.id.owner.as_ref(), is_match),
            FilterField::Text => {
                let owner = self.id.owner.as_ref().map_or("", Owner::text);
                is_match(&self.id.name) || is_match(owner) || is_match(&self.progress.message)
            }
            FilterField::Path => is_match(&format!("{}/{}", self.id.namespace, self.id.name)),
            FilterField::Node | FilterField::Phase => false,
        }
    }

    fn has(&self, field: FilterField) -> bool {
        !matches!(field, FilterField::Node | FilterField::Phase)
    }
}

impl Row for PodRow {
    // Pods have no progress of their own.
    const SORTS: &'static [Sort] = &[Sort::Risk, Sort::Name, Sort::Age];

    fn key(&self) -> &str {
        &self.id.key
    }

    fn lead(&self, other: &Self, by: Sort) -> Ordering {
        let (own, others) = (&self.progress, &other.progress);
        let since = |progress: &PodProgress| (progress.since.is_none(), progress.since);
        match by {
            Sort::Risk | Sort::Progress => own.rank().cmp(&others.rank()).then_with(|| match own.state {
                // Of the pods that are gone, the latest comes first.
                Some(PodState::Gone) => others.since.cmp(&own.since),
                _ => Ordering::Equal,
            }),
            Sort::Name | Sort::Pool => Ordering::Equal,
            Sort::Age => since(own).cmp(&since(others)),
        }
    }

    fn by_name(&self, other: &Self) -> Ordering {
        let (own, others) = (&self.id, &other.id);
        let path = own.namespace.cmp(&others.namespace).then_with(|| own.name.cmp(&others.name));
        path.then_with(|| own.key.cmp(&others.key))
    }

    fn is_blocked(&self) -> bool {
        self.progress.state == Some(PodState::Blocked)
    }
}
