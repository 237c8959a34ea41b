//! What a drain would cost, made within a time limit for the question before it begins. It never fails: what could not be
//! read is said.

use std::cell::RefCell;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use nm_shared::DrainSpec;
use nm_shared::cluster::pod::{self, DrainPod};
use nm_shared::drain::eviction_outcome::EvictionOutcome;

use crate::client::cluster::Cluster;
use crate::client::unread::{Unread, UnreadReason};
use crate::leader::gap;
use crate::plan::eviction_dry_run::dry_run_evictions;
use crate::plan::harm::{self, Harm, harms};
use crate::plan::planning::{Planning, PodKind};
use crate::plan::report::PlanReport;
use crate::plan::slow_pods::SlowPods;
use crate::plan::time_limit::TimeLimit;
use crate::terminal::text::{Line, Style, counted};

/// How long a question waits for the plan.
pub const TIME_LIMIT: Duration = Duration::from_secs(2);

/// What a drain would harm, as far as that is known.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DrainCost {
    /// What would be harmed.
    pub harms: Vec<Harm>,
    /// The pods that may take long to terminate.
    pub slow: Vec<SlowPods>,
    /// What is not known.
    pub unknown: Vec<Unread>,
}

impl DrainCost {
    /// The lines about what would be harmed; none if nothing would be.
    pub fn harm_lines(&self) -> Vec<Line> {
        harm::lines(&self.harms)
    }

    /// The lines about what harms nothing and takes long.
    pub fn slow_lines(&self) -> Vec<Line> {
        self.slow.iter().map(SlowPods::line).collect()
    }

    /// Whether some of it has not arrived in time, which says nothing about what would be harmed.
    pub fn is_late(&self) -> bool {
        self.unknown.iter().any(|unread| matches!(unread.why, UnreadReason::TooLate(_)))
    }

    /// The line about what is not known; none if everything is.
    pub fn unknown_line(&self) -> Option<Line> {
        let what = Unread::sentence(&self.unknown)?;
        Some(Line::default().with(Style::Busy, "unknown: ").and(what))
    }

    /// Everything for a dialog that shows the cost in any case: what would be harmed or that nothing would be, and what is
    /// not known.
    pub fn summary(&self) -> Vec<Line> {
        let mut lines = self.harm_lines();
        if lines.is_empty() {
            let (style, words) = if self.unknown.is_empty() {
                (Style::Good, "The drain would harm nothing.")
            } else {
                (Style::Busy, "As far as is known, the drain would harm nothing.")
            };
            lines.push(Line::default().with(style, words));
        }
        lines.extend(self.slow_lines());
        lines.extend(self.unknown_line());
        lines
    }
}

/// What the drain of these nodes would cost, as far as it is known after `limit`.
pub async fn assess(
    nodes: Vec<String>,
    drain: Option<DrainSpec>,
    cluster: &Cluster,
    now: Timestamp,
    limit: Duration,
) -> DrainCost {
    let limit = TimeLimit::new(limit);
    let (leader, plan) =
        tokio::join!(limit.wait(gap::read(cluster, now)), plan(nodes, drain, cluster, now, limit));
    let (gap, mut unknown) = match leader {
        Ok(Ok(gap)) => (gap, Vec::new()),
        Ok(Err(unread)) => (None, vec![unread]),
        Err(too_late) => (None, vec![Unread::too_late("whether nm-reconciler leads", too_late)]),
    };
    let (harms, slow) = match plan {
        Ok(report) => {
            unknown.extend(report.unknown.iter().cloned());
            (harms(&report, gap.as_ref()), report.slow)
        }
        Err(unread) => {
            unknown.push(unread);
            (gap.map(Harm::NobodyLeads).into_iter().collect(), Vec::new())
        }
    };
    DrainCost { harms, slow, unknown }
}

/// The plan of what has been read in time, with the answers to evictions that have arrived.
async fn plan(
    nodes: Vec<String>,
    drain: Option<DrainSpec>,
    cluster: &Cluster,
    now: Timestamp,
    limit: TimeLimit,
) -> Result<PlanReport, Unread> {
    let read = Box::pin(Planning::read_within(Some(limit), nodes, drain, cluster, now)).await;
    let failed = |error| Unread::failed("what the drain would cost", &error);
    let mut planning = read.map_err(failed)?;
    let ((mut answers, missing), denied) = {
        let samples = planning.samples();
        let answers = Box::pin(answers_by(&samples, planning.grace(), cluster, limit));
        tokio::join!(answers, limit.wait(Box::pin(planning.denied(cluster))))
    };
    planning.deny(denied.unwrap_or_default()).map_err(failed)?;
    spread(&planning.to_evict(), planning.snapshot.budgets.is_empty(), &mut answers);
    let mut report = planning.report(&answers);
    report.unknown.extend(missing);
    Ok(report)
}

/// Takes the denial of one pod of a kind for the answer to the others. That of a budget counts only if no budget is known.
fn spread(pods: &[&Arc<DrainPod>], is_without_budgets: bool, answers: &mut HashMap<String, EvictionOutcome>) {
    let denied: HashMap<PodKind, EvictionOutcome> = pods
        .iter()
        .filter_map(|pod| {
            let answer = answers.get(pod::uid(pod))?;
            let is_alike = matches!(
                answer,
                EvictionOutcome::RefusedByWebhook { .. }
                    | EvictionOutcome::RefusedByPolicy { .. }
                    | EvictionOutcome::Unknown(_)
            ) || (is_without_budgets && matches!(answer, EvictionOutcome::RefusedByBudget(_)));
            Some((PodKind::of(pod)?, answer.clone())).filter(|_| is_alike)
        })
        .collect();
    for pod in pods {
        if let Some(answer) = PodKind::of(pod).and_then(|kind| denied.get(&kind)) {
            answers.entry(pod::uid(pod).to_owned()).or_insert_with(|| answer.clone());
        }
    }
}

/// The API server's answers to the evictions of a plan that arrive within the limit, by the pods' uids, and what is not
/// known without the others.
pub async fn answers_within(
    planning: &Planning,
    cluster: &Cluster,
    limit: Duration,
) -> (HashMap<String, EvictionOutcome>, Option<Unread>) {
    answers_by(&planning.to_evict(), planning.grace(), cluster, TimeLimit::new(limit)).await
}

async fn answers_by(
    asked: &[&Arc<DrainPod>],
    grace: Option<i64>,
    cluster: &Cluster,
    limit: TimeLimit,
) -> (HashMap<String, EvictionOutcome>, Option<Unread>) {
    let answers = RefCell::default();
    let ended = limit.wait(dry_run_evictions(cluster, asked, grace, &answers)).await;
    let answers = answers.into_inner();
    let missing = asked.len().saturating_sub(answers.len());
    let what = || format!("the answers of the API server to {}", counted(missing, "eviction"));
    let unknown = match ended {
        Ok(Ok(())) => None,
        Ok(Err(error)) => Some(Unread::failed(&what(), &error)),
        Err(too_late) => Some(Unread::too_late(what(), too_late)),
    };
    (answers, unknown)
}

#[cfg(test)]
#[path = "cost_tests.rs"]
mod tests;
