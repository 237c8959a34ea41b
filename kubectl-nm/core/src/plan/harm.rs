//! What a drain would harm: the part of a plan that is said before it begins.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use nm_shared::api::status::BlockReason;
use nm_shared::cluster::metadata::foreign_finalizers;
use nm_shared::cluster::pod;
use nm_shared::drain::blocker::Blocker;
use nm_shared::drain::budget_allowance::Stuck;
use nm_shared::drain::plan::Warning;
use nm_shared::forecast::budget_forecast::BudgetForecast;
use nm_shared::forecast::capacity::{CapacityEstimate, UnplacedPods};
use nm_shared::forecast::outage::WorkloadOutage;
use nm_shared::forecast::preemption::Preemption;
use nm_shared::forecast::schedulable::NodeGroup;
use nm_shared::forecast::{Forecast, PodForecast, PodOutcome};
use nm_shared::{Grant, PodReference};

use crate::leader::gap::LeaderGap;
use crate::plan::deleted_claims::DeletedClaim;
use crate::plan::endless_pods::EndlessPods;
use crate::plan::failing_jobs::FailingJobs;
use crate::plan::report::PlanReport;
use crate::terminal::text::Line;

/// How many lines of one kind of harm are shown.
const MAX_LINES: usize = 5;

/// Something that a drain would harm.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Harm {
    /// No reconciler seems to lead, so nothing happens.
    NobodyLeads(LeaderGap),
    /// The kubelet of this node does not confirm that pods have terminated.
    NodeNotReady(String),
    /// The emptyDir data of these pods is deleted.
    EmptyDirData(Vec<PodReference>),
    /// This volume claim is removed once its pods have left.
    ClaimDeleted(DeletedClaim),
    /// No controller replaces these pods.
    Unmanaged(Vec<PodReference>),
    /// These Jobs count the evictions as failures, and have no further attempt left.
    FailingJobs(FailingJobs),
    /// The drain waits for these pods, which may never terminate on their own.
    NeverTerminates(EndlessPods),
    /// No pod of these workloads is Ready until a replacement is.
    NoReadyPod {
        /// The workloads.
        workloads: Vec<WorkloadOutage>,
        /// Whether disruption budgets were read: those that were not may prevent it.
        budgets_known: bool,
    },
    /// The replacements of these pods fit on no other node.
    NoCapacity {
        /// The pods, and why other nodes are unsuitable.
        unplaced: UnplacedPods,
        /// How many other nodes there are.
        nodes: usize,
    },
    /// The replacement of this pod fits only if the scheduler preempts others.
    Preemption(Preemption),
    /// These pods are deleted although their evictions are refused.
    DeletedAfterRefusal {
        /// The pods.
        pods: Vec<PodReference>,
        /// After how many seconds.
        seconds: i64,
        /// Whether they are not if their budgets allow their evictions before.
        perhaps: bool,
    },
    /// These pods run on, because the selector of the drain does not match them.
    Unselected(Vec<PodReference>),
    /// nm-reconciler does not have this permission, which the settings of the drain need.
    Denied(Grant),
    /// No schedulable node is left of this group.
    NoSchedulableNode(NodeGroup),
    /// A finalizer keeps the objects of these pods after they have terminated.
    Finalizer {
        /// The finalizer.
        name: String,
        /// The pods.
        pods: Vec<PodReference>,
    },
    /// These pods, or some of them, never leave as things are.
    NeverLeave {
        /// The pods.
        pods: Vec<PodReference>,
        /// How many of them never leave; which ones is not decided if others do.
        count: usize,
        /// Why.
        reason: BlockReason,
        /// The same as a message.
        message: String,
        /// How long that lasts.
        lasting: Lasting,
    },
    /// The drain of this node waits, because etcd would lose its quorum.
    Quorum {
        /// The node.
        node: String,
        /// Why.
        why: String,
    },
}

/// What the drain of a plan would harm. `leader` is why no reconciler leads, if none seems to.
pub fn harms(report: &PlanReport, leader: Option<&LeaderGap>) -> Vec<Harm> {
    let mut harms: Vec<Harm> = leader.cloned().map(Harm::NobodyLeads).into_iter().collect();
    harms.extend(report.unready.iter().cloned().map(Harm::NodeNotReady));
    if let Some(forecast) = &report.forecast {
        harms.extend(lost_data(forecast));
    }
    harms.extend(report.deleted_claims.iter().cloned().map(Harm::ClaimDeleted));
    harms.extend(report.forecast.iter().filter_map(unselected));
    harms.extend(report.denied.iter().copied().map(Harm::Denied));
    harms.extend(report.forecast.iter().flat_map(deleted_after_refusal));
    harms.extend(report.endless.iter().cloned().map(Harm::NeverTerminates));
    harms.extend(report.failing_jobs.iter().cloned().map(Harm::FailingJobs));
    if !report.outages.is_empty() {
        let budgets_known = report.are_budgets_known;
        harms.push(Harm::NoReadyPod { workloads: report.outages.clone(), budgets_known });
    }
    harms.extend(report.capacity.iter().flat_map(no_capacity));
    harms.extend(report.emptied.iter().cloned().map(Harm::NoSchedulableNode));
    harms.extend(report.forecast.iter().flat_map(kept_by_finalizers));
    harms.extend(report.forecast.iter().flat_map(|forecast| never_leave(forecast, report)));
    let quorum = |node: &crate::plan::report::NodeReport| {
        Some(Harm::Quorum { node: node.node.clone(), why: node.quorum.clone()? })
    };
    harms.extend(report.nodes.iter().filter_map(quorum));
    harms
}

/// The pods whose data, or which themselves, are gone for good.
pub(crate) fn lost_data(forecast: &Forecast) -> Vec<Harm> {
    let with = |has_loss: fn(&Warning) -> bool| -> Vec<PodReference> {
        let pods = forecast.pods.iter().filter(|pod| pod.leaves && pod.warnings.iter().any(has_loss));
        pods.map(|expected| pod::reference(&expected.pod)).collect()
    };
    let empty_dir = with(|warning| *warning == Warning::LocalStorage);
    let unmanaged = with(|warning| matches!(warning, Warning::Unmanaged | Warning::OrphanedFromDaemonSet));
    let mut harms = Vec::new();
    if !empty_dir.is_empty() {
        harms.push(Harm::EmptyDirData(empty_dir));
    }
    if !unmanaged.is_empty() {
        harms.push(Harm::Unmanaged(unmanaged));
    }
    harms
}

/// The running pods that stay only because of `podSelector`; none if there are none.
fn unselected(forecast: &Forecast) -> Option<Harm> {
    let is_left_out = |expected: &&PodForecast| matches!(expected.fate, PodOutcome::Stays(reason) if reason.leaves_out(&expected.pod));
    let pods: Vec<PodReference> =
        forecast.pods.iter().filter(is_left_out).map(|expected| pod::reference(&expected.pod)).collect();
    (!pods.is_empty()).then_some(Harm::Unselected(pods))
}

/// The pods that are deleted because their evictions are refused, by how long that is waited for, and those that are deleted unless
/// their budgets allow their evictions before.
fn deleted_after_refusal(forecast: &Forecast) -> Vec<Harm> {
    let mut deleted: BTreeMap<(bool, i64), Vec<PodReference>> = BTreeMap::new();
    for expected in &forecast.pods {
        let perhaps = forecast.is_deleted_unless_allowed(expected);
        if let Some(seconds) = expected.deleted_after
            && (perhaps || matches!(expected.fate, PodOutcome::Deleted(_)))
        {
            deleted.entry((perhaps, seconds)).or_default().push(pod::reference(&expected.pod));
        }
    }
    let harm = |((perhaps, seconds), pods)| Harm::DeletedAfterRefusal { pods, seconds, perhaps };
    deleted.into_iter().map(harm).collect()
}

/// The pods for which other nodes lack the capacity, or have it only by preemption.
pub(crate) fn no_capacity(estimate: &CapacityEstimate) -> Vec<Harm> {
    let of = |unplaced: &UnplacedPods| Harm::NoCapacity { unplaced: unplaced.clone(), nodes: estimate.nodes };
    let preempting = estimate.preempting.iter().cloned().map(Harm::Preemption);
    estimate.unplaced.iter().map(of).chain(preempting).collect()
}

/// The pods that leave and whose objects the finalizers of others keep, by finalizer.
pub(crate) fn kept_by_finalizers(forecast: &Forecast) -> Vec<Harm> {
    let mut kept: BTreeMap<&str, Vec<PodReference>> = BTreeMap::new();
    for expected in forecast.pods.iter().filter(|pod| pod.leaves) {
        for name in foreign_finalizers(&expected.pod.finalizers) {
            kept.entry(name).or_default().push(pod::reference(&expected.pod));
        }
    }
    kept.into_iter().map(|(name, pods)| Harm::Finalizer { name: name.to_owned(), pods }).collect()
}

/// The pods that never leave, by reason and message.
fn never_leave(forecast: &Forecast, report: &PlanReport) -> Vec<Harm> {
    let mut found: Vec<Harm> = Vec::new();
    for expected in &forecast.pods {
        let PodOutcome::Blocked(Blocker { reason, message, facts, .. }) = &expected.fate else { continue };
        let lasting = Lasting::of(*reason);
        let is_over_soon = match lasting {
            Lasting::Briefly => true,
            // Its node has a line of its own.
            _ if *reason == BlockReason::NodeNotReady && report.unready.contains(&expected.node) => true,
            // Of the errors of the server, only a webhook that does not respond lasts.
            Lasting::UntilAllowed => *reason == BlockReason::ServerError && facts.webhook.is_none(),
            Lasting::Forever if *reason == BlockReason::DisruptionBudget => {
                match budget_of(expected, forecast) {
                    // A budget that allows an eviction once all its pods are healthy needs nobody, if they become so.
                    Some(budget) => {
                        budget.short_of == 0
                            && (budget.at_most > 0 || report.is_growing(budget))
                            && (budget.lacks.is_none() || report.unready.contains(&expected.node))
                    }
                    // No budget guarded a pod that was not running when it was read.
                    None => !pod::is_ready(&expected.pod),
                }
            }
            Lasting::Forever | Lasting::Perhaps => false,
        };
        if is_over_soon {
            continue;
        }
        // What blocks a pod behind a budget may also be something else.
        let budget = budget_of(expected, forecast).filter(|_| *reason == BlockReason::DisruptionBudget);
        let own = pod::reference(&expected.pod);
        let unplaced = budget.filter(|budget| budget.short_of > 0).map(|budget| {
            let pods = unplaced_of(budget, forecast, report);
            let count = budget.short_of.min(pods.len());
            (pods, count)
        });
        let (pods, count) =
            unplaced.filter(|(pods, _)| pods.contains(&own)).unwrap_or_else(|| (vec![own], 1));
        let mut message = message.trim_end_matches('.').to_owned();
        let allows_none = budget.is_some_and(|budget| budget.at_most == 0 && !report.is_growing(budget));
        // The numbers of its pods are not known before it counts again.
        let is_outdated = budget.is_some_and(|budget| report.outdated.contains(&budget.budget));
        if is_outdated {
            message.push_str("; more of its pods are Ready than the disruption controller has counted");
        } else if allows_none {
            message.push_str("; it allows no eviction even with all of its pods Ready");
        }
        let lasting = match budget.and_then(|budget| budget.lacks) {
            _ if is_outdated => Lasting::UntilAllowed,
            Some(Stuck::Crashing) if !allows_none => Lasting::Perhaps,
            // Somebody may make room or mend the pods.
            Some(_) if !allows_none => Lasting::UntilAllowed,
            _ => lasting,
        };
        add(&mut found, Harm::NeverLeave { pods, count, reason: *reason, message, lasting });
    }
    found
}

/// The pods of a budget whose replacements fit on no other node.
fn unplaced_of(budget: &BudgetForecast, forecast: &Forecast, report: &PlanReport) -> Vec<PodReference> {
    let guarded = forecast.pods.iter().filter(|pod| pod.guarded_by.as_ref() == Some(&budget.budget));
    let unplaced: BTreeSet<&PodReference> = report
        .capacity
        .iter()
        .flat_map(|capacity| &capacity.unplaced)
        .flat_map(|group| &group.pods)
        .collect();
    guarded.map(|pod| pod::reference(&pod.pod)).filter(|pod| unplaced.contains(pod)).collect()
}

fn budget_of<'a>(expected: &PodForecast, forecast: &'a Forecast) -> Option<&'a BudgetForecast> {
    forecast.budgets.iter().find(|budget| Some(&budget.budget) == expected.guarded_by.as_ref())
}

/// How long what blocks a pod lasts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lasting {
    /// Until somebody changes it.
    Forever,
    /// Whoever refuses may allow it at another time, and a node or pods may become Ready.
    UntilAllowed,
    /// At times it may not block: pods that crash again and again are Ready for a moment when they run.
    Perhaps,
    /// It ends by itself.
    Briefly,
}

impl Lasting {
    fn of(reason: BlockReason) -> Self {
        match reason {
            BlockReason::DisruptionBudget
            | BlockReason::MultipleDisruptionBudgets
            | BlockReason::NotMigratable
            | BlockReason::Forbidden
            | BlockReason::Unmanaged
            | BlockReason::LocalStorage
            | BlockReason::KeepsReturning
            | BlockReason::Finalizers => Self::Forever,
            BlockReason::AdmissionWebhook
            | BlockReason::AdmissionPolicy
            | BlockReason::ServerError
            | BlockReason::NodeNotReady => Self::UntilAllowed,
            BlockReason::MigrationFailed
            | BlockReason::MigrationNotStarted
            | BlockReason::NamespaceTerminating
            | BlockReason::NotEnding
            | BlockReason::Unknown => Self::Briefly,
        }
    }
}

/// Harms of drains that follow each other, each of them once.
pub fn merged(harms: impl IntoIterator<Item = Harm>) -> Vec<Harm> {
    let mut merged = Vec::new();
    for harm in harms {
        add(&mut merged, harm);
    }
    merged
}

/// Adds a harm, to one of the same kind if there is one.
fn add(all: &mut Vec<Harm>, harm: Harm) {
    for known in all.iter_mut() {
        match (known, &harm) {
            (Harm::EmptyDirData(pods), Harm::EmptyDirData(more))
            | (Harm::Unmanaged(pods), Harm::Unmanaged(more))
            | (Harm::Unselected(pods), Harm::Unselected(more)) => return extend(pods, more),
            (Harm::FailingJobs(known), Harm::FailingJobs(more))
                if (known.after, known.remedy) == (more.after, more.remedy) =>
            {
                return extend(&mut known.jobs, &more.jobs);
            }
            (Harm::NeverTerminates(known), Harm::NeverTerminates(more)) if known.why == more.why => {
                return extend(&mut known.pods, &more.pods);
            }
            (Harm::NoReadyPod { workloads, .. }, Harm::NoReadyPod { workloads: more, .. }) => {
                return extend(workloads, more);
            }
            (Harm::NoCapacity { unplaced, nodes }, Harm::NoCapacity { unplaced: more, nodes: of })
                if unplaced.reasons == more.reasons && nodes == of =>
            {
                return extend(&mut unplaced.pods, &more.pods);
            }
            (
                Harm::DeletedAfterRefusal { pods, seconds, perhaps },
                Harm::DeletedAfterRefusal { pods: more, seconds: same, perhaps: too },
            ) if (&*seconds, &*perhaps) == (same, too) => return extend(pods, more),
            (Harm::Finalizer { name, pods }, Harm::Finalizer { name: same, pods: more }) if name == same => {
                return extend(pods, more);
            }
            (
                Harm::NeverLeave { pods, count, reason, message, lasting },
                Harm::NeverLeave {
                    pods: more,
                    count: of_more,
                    reason: same,
                    message: text,
                    lasting: as_long,
                },
            ) if (&*reason, &*message, &*lasting) == (same, text, as_long) => {
                let before = pods.len();
                extend(pods, more);
                *count += (*of_more).min(pods.len() - before);
                return;
            }
            (known, harm) if known == harm => return,
            _ => {}
        }
    }
    all.push(harm);
}

fn extend<T: Clone + PartialEq>(all: &mut Vec<T>, more: &[T]) {
    for one in more {
        if !all.contains(one) {
            all.push(one.clone());
        }
    }
}

/// The lines about these harms, at most five of each kind.
pub fn lines(harms: &[Harm]) -> Vec<Line> {
    let mut shown: HashMap<_, usize> = HashMap::new();
    let mut lines = Vec::new();
    for harm in harms {
        let count = shown.entry(std::mem::discriminant(harm)).or_default();
        *count += 1;
        if *count <= MAX_LINES {
            lines.push(harm.line());
        }
    }
    let left: usize = shown.values().map(|count| count.saturating_sub(MAX_LINES)).sum();
    if left > 0 {
        lines.push(Line::new(format!("and {left} more of these")));
    }
    lines
}

#[cfg(test)]
#[path = "preemption_tests.rs"]
mod preemption_tests;
#[cfg(test)]
#[path = "harm_tests.rs"]
mod tests;

#[cfg(test)]
#[path = "chosen_harm_tests.rs"]
mod chosen_harm_tests;
