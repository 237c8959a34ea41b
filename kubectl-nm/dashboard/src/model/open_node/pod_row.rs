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
use nm_shared::drain::plan::Verdict;
use nm_shared::drain::pod_state::{self, PodStanding};
use nm_shared::{BlockFacts, BlockReason, PodState};

use crate::model::lists::filter::Fields;
use crate::model::lists::listing::{Row, Sort};
use crate::objects::node_pod::{NodePod, PodId};

#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct PodProgress {
    /// The state; none on a node without a maintenance.
    pub(crate) state: Option<PodState>,
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
    /// The progress of a pod with that verdict, from the pod alone.
    pub(crate) fn of(pod: &NodePod, verdict: Verdict, now: Timestamp) -> Self {
        if let Verdict::Stay(reason) = verdict {
            return Self { message: reason.word().to_owned(), ..PodState::Staying.into() };
        }
        let Some(PodStanding { state, blocker, .. }) = pod_state::visible_state(&pod.pod, verdict, None, now)
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
            None if state == PodState::Terminating => {
                Self { since: pod.terminating_since(), deadline: pod.deadline(), ..state.into() }
            }
            None => state.into(),
        }
    }

    pub(crate) fn word(&self) -> &'static str {
        self.state.map_or("-", PodState::word)
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
            if *attempts > 0 { format!("{short} (refused {attempts}x)") } else { short }
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

impl Row for PodRow {
    // Pods have no progress of their own.
    const SORTS: &'static [Sort] = &[Sort::Risk, Sort::Name, Sort::Age];

    fn key(&self) -> &str {
        &self.id.key
    }

    fn order(&self, other: &Self, by: Sort) -> Ordering {
        let (own, others) = (&self.progress, &other.progress);
        let since = |progress: &PodProgress| (progress.since.is_none(), progress.since);
        let by_state = own.state.cmp(&others.state).then_with(|| match own.state {
            // Of the pods that are gone, the latest comes first.
            Some(PodState::Gone) => others.since.cmp(&own.since),
            _ => Ordering::Equal,
        });
        let first = match by {
            Sort::Risk | Sort::Progress => by_state,
            Sort::Name | Sort::Pool => Ordering::Equal,
            Sort::Age => since(own).cmp(&since(others)),
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
            state: self.progress.word(),
            reasons: self.progress.reason.iter().map(|reason| reason.as_str()).collect(),
            objects: self.objects().collect(),
            workload: self.id.owner.as_ref(),
            texts: [
                &self.id.name,
                self.id.owner.as_ref().map_or("", Owner::text),
                &self.progress.message,
                "",
            ],
            ..Fields::default()
        }
    }

    fn is_blocked(&self) -> bool {
        self.progress.state == Some(PodState::Blocked)
    }
}
