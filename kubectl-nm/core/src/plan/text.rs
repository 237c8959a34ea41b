//! A plan for people: one row per pod, those that need attention last, and then the summary.

use std::collections::HashMap;
use std::time::Duration;

use nm_shared::api::names::ROLL_RUNNER_LABEL;
use nm_shared::api::status::BlockReason;
use nm_shared::cluster::disruption_budget::BudgetKey;
use nm_shared::cluster::pod::{self, DrainPod};
use nm_shared::drain::blocker::Blocker;
use nm_shared::drain::budget_allowance::Stuck;
use nm_shared::drain::plan::Warning;
use nm_shared::forecast::budget_forecast::BudgetForecast;
use nm_shared::forecast::capacity::CapacityEstimate;
use nm_shared::forecast::{Forecast, PodForecast, PodOutcome, ReplacedBy};
use nm_shared::{Grant, ReturningPods};

use crate::args::duration;
use crate::maintenance::hooks_removed;
use crate::maintenance::roll::stay_words;
use crate::plan::endless_pods::Endless;
use crate::plan::harm::{self, Harm};
use crate::plan::max_unavailable::MaxUnavailableLimit;
use crate::plan::report::{NodeReport, PlanReport};
use crate::plan::slow_pods::SlowPods;
use crate::terminal::table;
use crate::terminal::text::{Line, Style, counted, first_names};

/// The whole plan: the table of pods, then the summary.
pub fn lines(report: &PlanReport) -> Vec<Line> {
    let mut lines = Vec::new();
    if let Some(forecast) = report.forecast.as_ref().filter(|forecast| !forecast.pods.is_empty()) {
        lines.extend(pods(forecast, report));
        lines.push(Line::default());
    }
    lines.extend(summary(report));
    lines
}

fn pods(forecast: &Forecast, report: &PlanReport) -> Vec<Line> {
    let mut pods: Vec<&PodForecast> = forecast.pods.iter().collect();
    pods.sort_by_key(|forecast| rank(forecast, report));
    let rows: Vec<Vec<(Style, String)>> = pods
        .into_iter()
        .map(|forecast| {
            let (word, style) =
                if is_finished(forecast) { ("deleted", Style::Good) } else { outcome(forecast, report) };
            vec![
                (Style::Plain, forecast.node.clone()),
                (Style::Plain, pod::reference(&forecast.pod).to_string()),
                (style, word.to_owned()),
                (Style::Plain, details(forecast, report)),
            ]
        })
        .collect();
    table::lines(&["NODE", "POD", "OUTCOME", "DETAILS"], &rows)
}

/// What needs more attention comes later, next to the summary.
fn rank(forecast: &PodForecast, report: &PlanReport) -> u8 {
    match &forecast.fate {
        PodOutcome::Evicted if report.is_unknown(forecast) => 7,
        PodOutcome::Stays(_) => 0,
        PodOutcome::Terminating | PodOutcome::DeletedWithNamespace => 1,
        PodOutcome::Evicted => 2,
        PodOutcome::Migrated => 3,
        PodOutcome::Completes(_) => 4,
        PodOutcome::Surges(_) => 5,
        PodOutcome::WaitsForBudget(_) => 6,
        PodOutcome::Deleted(_) => 8,
        PodOutcome::Blocked(_) => 9,
    }
}

/// Whether the pod has finished, so that its eviction only deletes the object.
fn is_finished(forecast: &PodForecast) -> bool {
    forecast.fate == PodOutcome::Evicted && pod::is_finished(&forecast.pod)
}

pub(crate) fn outcome(forecast: &PodForecast, report: &PlanReport) -> (&'static str, Style) {
    match &forecast.fate {
        PodOutcome::Evicted if report.is_unknown(forecast) => ("unknown", Style::Busy),
        PodOutcome::Stays(_) => ("staying", Style::Dim),
        PodOutcome::Terminating | PodOutcome::DeletedWithNamespace => ("terminating", Style::Plain),
        PodOutcome::Evicted => ("evicted", Style::Good),
        PodOutcome::Migrated => ("migrated", Style::Good),
        PodOutcome::Completes(_) => ("completing", Style::Busy),
        PodOutcome::Surges(_) => ("surging", Style::Good),
        PodOutcome::WaitsForBudget(_) => ("waiting", Style::Busy),
        PodOutcome::Deleted(_) => ("deleted", Style::Busy),
        PodOutcome::Blocked(_) => ("blocked", Style::Bad),
    }
}

pub(crate) fn details(forecast: &PodForecast, report: &PlanReport) -> String {
    let mut parts: Vec<String> = match &forecast.fate {
        PodOutcome::Stays(reason) => vec![stay_words(&forecast.pod, *reason)],
        PodOutcome::Evicted if is_finished(forecast) => vec![String::from("finished before")],
        PodOutcome::Terminating | PodOutcome::Evicted => Vec::new(),
        PodOutcome::DeletedWithNamespace => {
            vec![String::from("its namespace is being deleted, together with the pod")]
        }
        PodOutcome::Migrated if forecast.is_left_to_others => vec![String::from(
            "its virtual machine has the eviction strategy External: KubeVirt leaves it to another controller",
        )],
        PodOutcome::Migrated => vec![String::from("KubeVirt migrates its virtual machine")],
        PodOutcome::Completes(limit) => {
            let endless =
                report.endless.iter().find(|endless| endless.pods.contains(&pod::reference(&forecast.pod)));
            vec![completion(*limit, endless.map(|endless| &endless.why))]
        }
        PodOutcome::Surges(ReplacedBy::Restart) => {
            vec![String::from("its Deployment is restarted, and replaces all of its pods before they leave")]
        }
        PodOutcome::Surges(ReplacedBy::Rollout) => {
            vec![String::from("a rollout of its Deployment is under way, and replaces it before it leaves")]
        }
        PodOutcome::WaitsForBudget(budget) => vec![turn(budget, report)],
        PodOutcome::Deleted(blocker) | PodOutcome::Blocked(blocker) => {
            vec![blocker.message.trim_end_matches('.').to_owned()]
        }
    };
    if is_replaced_nowhere(forecast, report) {
        parts.push(String::from(
            "but its replacement fits on no other node, and the rollout waits until it does",
        ));
    }
    parts.extend(deletion(forecast));
    let returns = forecast.returning.filter(|_| !keeps_returning(forecast));
    parts.extend(returns.map(returning).map(str::to_owned));
    if forecast.leaves {
        parts.extend(run_by(&forecast.pod).filter(|_| !pod::is_finished(&forecast.pod)));
        parts.extend(forecast.warnings.iter().filter_map(|warning| loss(*warning)).map(str::to_owned));
        let volumes = report.local_volumes.get(pod::uid(&forecast.pod)).into_iter().flatten();
        parts.extend(volumes.map(|volume| format!("its local volume {volume} stays on the node")));
    }
    parts.join("; ")
}

/// What becomes of the roll that a pod runs; none if it runs none.
fn run_by(pod: &DrainPod) -> Option<String> {
    let roll = pod.labels.get(ROLL_RUNNER_LABEL)?;
    Some(format!("runs roll {roll}; its Job starts another pod elsewhere, which continues the roll"))
}

/// Whether a pod is to be replaced first, and its replacement fits on no other node, as far as that is estimated.
fn is_replaced_nowhere(forecast: &PodForecast, report: &PlanReport) -> bool {
    if !matches!(forecast.fate, PodOutcome::Surges(_)) {
        return false;
    }
    let reference = pod::reference(&forecast.pod);
    let unplaced = report.capacity.iter().flat_map(|capacity| &capacity.unplaced);
    unplaced.flat_map(|group| &group.pods).any(|pod| *pod == reference)
}

/// What a pod waits for whose budget allows its eviction later.
fn turn(budget: &BudgetKey, report: &PlanReport) -> String {
    let mut guards = report.forecast.iter().flat_map(|forecast| &forecast.budgets);
    if guards.any(|guard| guard.budget == *budget && guard.now > 0) {
        return format!("budget {budget} allows its eviction after those of other pods");
    }
    // Of several pods that wait for it, only one is next.
    format!("budget {budget} allows the next eviction {}", once_ready(budget, report))
}

/// `once 1 more of its pods is Ready`: when it allows the first, of a budget that allows no eviction now.
fn once_ready(budget: &BudgetKey, report: &PlanReport) -> String {
    if report.outdated.contains(budget) {
        return String::from("once the disruption controller has counted its Ready pods");
    }
    match report.lacking.get(budget) {
        Some(1) => String::from("once 1 more of its pods is Ready"),
        Some(lacking) => format!("once {lacking} more of its pods are Ready"),
        None => String::from("once pods that have left are replaced"),
    }
}

/// How long the drain waits for a pod, and why that may never end.
fn completion(limit: Option<i64>, endless: Option<&Endless>) -> String {
    let limit = limit.and_then(|seconds| Some(Duration::from_secs(seconds.try_into().ok()?)));
    match limit {
        None => {
            let endless = endless.map(|endless| format!(", {}", endless.details())).unwrap_or_default();
            format!("not evicted: the drain waits until it terminates on its own{endless}")
        }
        Some(limit) => {
            format!(
                "evicted {} after the cordon, unless it terminates on its own before",
                duration::show(limit)
            )
        }
    }
}

/// After which time a pod is deleted, and what the deletion bypasses.
fn deletion(forecast: &PodForecast) -> Option<String> {
    let after = Duration::from_secs(forecast.deleted_after?.try_into().ok()?);
    let after = duration::show(after);
    Some(match &forecast.fate {
        PodOutcome::WaitsForBudget(_) => format!("deleted after {after} at the latest, bypassing its budget"),
        PodOutcome::Deleted(Blocker {
            reason: BlockReason::DisruptionBudget | BlockReason::MultipleDisruptionBudgets,
            ..
        }) => format!("deleted after {after}, bypassing its budget"),
        _ => format!("deleted after {after}, bypassing the refusal"),
    })
}

/// Whether it is blocked because it returns.
fn keeps_returning(forecast: &PodForecast) -> bool {
    matches!(&forecast.fate, PodOutcome::Blocked(blocker) if blocker.reason == BlockReason::KeepsReturning)
}

fn returning(policy: ReturningPods) -> &'static str {
    match policy {
        ReturningPods::Stay => "may return to the node and stay there, because it tolerates the cordon",
        ReturningPods::Wait => {
            "may return to the node, and block the drain after the third return, because it tolerates the cordon"
        }
    }
}

fn loss(warning: Warning) -> Option<&'static str> {
    match warning {
        Warning::IgnoringDaemonSetPods => None,
        Warning::OrphanedFromDaemonSet => Some("its DaemonSet is gone and does not replace it"),
        Warning::LocalStorage => Some("its emptyDir data is lost"),
        Warning::Unmanaged => Some("no controller replaces it"),
    }
}

/// The summary. The verdict is last, so that a long plan ends on the screen with it.
fn summary(report: &PlanReport) -> Vec<Line> {
    let mut lines = findings(report);
    lines.push(totals(report));
    lines.push(verdict(report).and(" Nothing was changed."));
    lines
}

/// Budgets, losses, warnings, capacity, what is unknown, and nodes that would not drain at once.
fn findings(report: &PlanReport) -> Vec<Line> {
    let unknown = |what: &str| Line::default().with(Style::Busy, "unknown: ").and(what);
    let mut lines = Vec::new();
    if let Some(forecast) = &report.forecast {
        lines.extend(budgets(forecast, report));
        lines.extend(losses(forecast, &report.local_volumes));
    }
    let warning = || Line::default().with(Style::Busy, "warning: ");
    lines.extend(report.warnings.iter().map(|text| warning().and(*text)));
    let kept = report.forecast.iter().flat_map(harm::kept_by_finalizers);
    lines.extend(kept.map(|harm| warning().and(harm.line().to_string())));
    lines.extend(report.capacity.iter().flat_map(capacity));
    let shown_here = |harm: &&Harm| {
        matches!(
            harm,
            Harm::NodeNotReady(_)
                | Harm::ClaimDeleted(_)
                | Harm::Denied(_)
                | Harm::NeverTerminates(_)
                | Harm::FailingJobs(_)
                | Harm::NoReadyPod { .. }
                | Harm::NoSchedulableNode(_)
        )
    };
    lines.extend(harm::harms(report, None).iter().filter(shown_here).map(Harm::line));
    match &report.limit {
        MaxUnavailableLimit::Set(limit, from) => {
            lines.push(Line::new(format!("--max-unavailable is {limit}, set by {from}")));
        }
        MaxUnavailableLimit::None(_) => {}
        MaxUnavailableLimit::Unknown(why) => lines.push(unknown(&format!("--max-unavailable: {why}"))),
    }
    lines.extend(report.unknown.iter().map(|what| unknown(&what.to_string())));
    lines.extend(hooks(&report.nodes));
    lines.extend(load_balancers(&report.nodes));
    lines.extend(report.slow.iter().map(SlowPods::line));
    lines.extend(report.nodes.iter().filter_map(|node| node.detach.as_ref()?.line(&node.node)));
    lines.extend(report.nodes.iter().filter_map(node));
    lines
}

fn verdict(report: &PlanReport) -> Line {
    let line = Line::default();
    match report.blocks() {
        Some(true) => return line.with(Style::Bad, "The drain would be blocked."),
        None => return line.with(Style::Busy, "It is unknown whether the drain would be blocked."),
        Some(false) => {}
    }
    let (style, verdict) = match report.unknown.is_empty() {
        true if !report.unready.is_empty() => (Style::Bad, "Nothing would block the evictions"),
        true if report.lacks_capacity()
            || !report.endless.is_empty()
            || report.denied.contains(&Grant::VolumeDetach) =>
        {
            (Style::Bad, "Nothing would block the drain")
        }
        true => (Style::Good, "Nothing would block the drain"),
        false => (Style::Busy, "As far as is known, nothing would block the drain"),
    };
    let mut pods = report.forecast.iter().flat_map(|forecast| &forecast.pods);
    let lack = match &report.capacity {
        _ if pods.any(|pod| is_replaced_nowhere(pod, report)) => {
            ", but pods that are to be replaced first stay until their replacements fit on other nodes"
        }
        Some(capacity) if !capacity.unplaced.is_empty() => {
            ", but other nodes do not have the capacity for all pods"
        }
        Some(capacity) if !capacity.preempting.is_empty() => ", but some pods fit only by preemption",
        _ => "",
    };
    let stay = if report.unready.is_empty() {
        ""
    } else {
        ", but the drain would wait for the nodes that are not Ready"
    };
    let incomplete = if report.denied.contains(&Grant::VolumeDetach) {
        ", but it would not complete without the missing permission"
    } else {
        ""
    };
    let never =
        if report.endless.is_empty() { "" } else { ", but it would wait for pods that may never terminate" };
    let may_return = |pod: &PodForecast| pod.returning == Some(ReturningPods::Wait);
    let return_ = if report.forecast.iter().flat_map(|forecast| &forecast.pods).any(may_return) {
        ", unless pods that tolerate the cordon return again and again"
    } else {
        ""
    };
    line.with(style, format!("{verdict}{lack}{stay}{incomplete}{never}{return_}."))
}

fn totals(report: &PlanReport) -> Line {
    let nodes = counted(report.nodes.len(), "node");
    let Some(forecast) = &report.forecast else { return Line::new(nodes) };
    let mut counts: Vec<(u8, &str, usize)> = Vec::new();
    for forecast in &forecast.pods {
        let finished = is_finished(forecast).then_some("deleted (finished before)");
        let (rank, word) = (rank(forecast, report), finished.unwrap_or(outcome(forecast, report).0));
        match counts.iter_mut().find(|(known, of, _)| (*known, *of) == (rank, word)) {
            Some((_, _, count)) => *count += 1,
            None => counts.push((rank, word, 1)),
        }
    }
    counts.sort_by_key(|(rank, ..)| std::cmp::Reverse(*rank));
    let counts: Vec<String> = counts.iter().map(|(_, word, count)| format!("{count} {word}")).collect();
    let pods = counted(forecast.pods.len(), "pod");
    Line::new(if counts.is_empty() {
        format!("{nodes}, {pods}")
    } else {
        format!("{nodes}, {pods}: {}", counts.join(", "))
    })
}

/// The hooks that the first evictions wait for: of all nodes, or of each.
fn hooks(nodes: &[NodeReport]) -> Vec<Line> {
    let are_alike = nodes.windows(2).all(|pair| pair[0].hooks == pair[1].hooks);
    let line = |node: &NodeReport| {
        let removed = hooks_removed(&node.hooks)?;
        Some(Line::new(if are_alike {
            format!("No pod is evicted until {removed}")
        } else {
            format!("node/{}: no pod is evicted until {removed}", node.node)
        }))
    };
    nodes.iter().take(if are_alike { 1 } else { nodes.len() }).filter_map(line).collect()
}

/// How long the first evictions wait for load balancers.
fn load_balancers(nodes: &[NodeReport]) -> Option<Line> {
    let delay = nodes.iter().filter_map(|node| node.load_balancer_delay).max()?;
    Some(Line::new(format!(
        "Evictions start {} after the cordon, so that load balancers stop using the node first",
        duration::show(delay)
    )))
}

fn node(report: &NodeReport) -> Option<Line> {
    let line = Line::new(format!("node/{}: ", report.node));
    if let Some(refusal) = &report.refusal {
        return Some(line.with(Style::Bad, refusal));
    }
    if let Some(queue) = &report.queue {
        return Some(line.with(Style::Busy, "queued").and(": ").and(queue));
    }
    let state = report.state?;
    Some(line.and("already in maintenance: ").with(state.style(), state.word()))
}

/// The budgets that do not allow all evictions now, those that take longest last.
fn budgets(forecast: &Forecast, report: &PlanReport) -> Vec<Line> {
    // A surge needs no eviction that the budget would have to allow.
    let evicts = |budget: &BudgetForecast| {
        let mut guarded = forecast.pods.iter().filter(|pod| pod.guarded_by.as_ref() == Some(&budget.budget));
        guarded.any(|pod| !matches!(pod.fate, PodOutcome::Surges(_)))
    };
    let limits = |budget: &&BudgetForecast| budget.now < budget.pods && evicts(budget);
    let mut budgets: Vec<&BudgetForecast> = forecast.budgets.iter().filter(limits).collect();
    budgets.sort_by_key(|budget| budget.rounds.unwrap_or(usize::MAX));
    let deletes = forecast.pods.iter().any(|pod| matches!(pod.fate, PodOutcome::Deleted(_)));
    budgets.into_iter().map(|forecast| budget(forecast, deletes, report)).collect()
}

/// `deletes`: whether blocked pods are deleted after a time, so that the budget does not block the drain.
fn budget(forecast: &BudgetForecast, deletes: bool, report: &PlanReport) -> Line {
    let never = if deletes { Style::Busy } else { Style::Bad };
    let BudgetForecast { budget, pods, now, at_most, rounds, short_of, lacks } = forecast;
    let line = Line::new(format!("budget {budget} ({}) allows ", counted(*pods, "pod")));
    let evictions = counted(*now, "eviction");
    let is_growing = report.is_growing(forecast);
    let in_rounds = || format!("{evictions} now and {at_most} at once while all its pods are healthy: ");
    match rounds {
        None if *short_of > 0 => line.and(in_rounds()).with(
            never,
            format!("{short_of} never, because the replacements of the others fit on no other node"),
        ),
        None if *now == 0 && is_growing => {
            line.and("no eviction now: ").with(Style::Busy, "its pods are not all counted or Ready yet")
        }
        _ if *now == 0 && *short_of == 0 && report.outdated.contains(budget) => {
            let style = if lacks.is_some() || rounds.is_none() { never } else { Style::Busy };
            line.and("no eviction now: ").with(style, format!("the first {}", once_ready(budget, report)))
        }
        None if *now == 0 => line.with(never, "no evictions until it is changed"),
        None => line.and(format!("{evictions} now and ")).with(never, "no more until it is changed"),
        Some(_) if lacks.is_some() => line.and("no eviction now: ").with(
            never,
            match lacks {
                Some(Stuck::Unschedulable) => "the scheduler finds no node for pods that it counts on",
                Some(Stuck::Crashing) => {
                    "pods that it counts on crash again and again; it may allow one while they run"
                }
                _ => "too many of its pods that are not Ready stay so unless somebody acts",
            },
        ),
        // When that is depends on pods that the drain does not touch.
        Some(_) if *now == 0 => line
            .and("no eviction now: ")
            .with(Style::Busy, format!("the first {}", once_ready(budget, report))),
        Some(rounds) => line
            .and(in_rounds())
            .with(Style::Busy, format!("the drain takes at least {}", counted(*rounds, "round"))),
    }
}

fn losses(forecast: &Forecast, local_volumes: &HashMap<String, Vec<String>>) -> Vec<Line> {
    let line = |has_loss: &dyn Fn(&PodForecast) -> bool, [one, several]: [&str; 2]| {
        let pods: Vec<&PodForecast> =
            forecast.pods.iter().filter(|pod| pod.leaves && has_loss(pod)).collect();
        let names: Vec<String> = pods.iter().map(|pod| pod::reference(&pod.pod).to_string()).collect();
        (!pods.is_empty()).then(|| {
            let what = if pods.len() == 1 { one } else { several };
            Line::new(format!("{} {what}: {}", counted(pods.len(), "pod"), first_names(&names)))
        })
    };
    let has_local = |pod: &PodForecast| local_volumes.contains_key(pod::uid(&pod.pod));
    let mut lines: Vec<Line> = harm::lost_data(forecast).iter().map(Harm::line).collect();
    let local = ["leaves its local volumes on the node", "leave their local volumes on the node"];
    lines.extend(line(&has_local, local));
    let returns = |pod: &PodForecast| pod.returning.is_some();
    let returning = [
        "may return to the node, because it tolerates the cordon",
        "may return to the node, because they tolerate the cordon",
    ];
    lines.extend(line(&returns, returning));
    lines
}

fn capacity(estimate: &CapacityEstimate) -> Vec<Line> {
    let CapacityEstimate { fit, nodes, schedulable, unplaced: groups, preempting, left_out } = estimate;
    let left = groups.iter().map(|group| group.pods.len()).sum::<usize>() + preempting.len();
    if fit + left == 0 {
        return Vec::new();
    }
    let unavailable = match nodes.saturating_sub(*schedulable) {
        0 => String::new(),
        1 => String::from(" (1 more is cordoned or not Ready)"),
        more => format!(" ({more} more are cordoned or not Ready)"),
    };
    let mut lines = vec![Line::new(format!(
        "capacity for {fit} of {} on {}{unavailable}, estimated from requests, taints, selectors and volumes",
        counted(fit + left, "pod"),
        counted(*schedulable, "other node"),
    ))];
    lines.extend(harm::lines(&harm::no_capacity(estimate)));
    if !left_out.is_empty() {
        let aspects: Vec<String> =
            left_out.iter().map(|(aspect, pods)| format!("{aspect} ({})", counted(*pods, "pod"))).collect();
        lines.push(Line::new(format!("not part of the estimate: {}", aspects.join(", "))));
    }
    lines
}

#[cfg(test)]
#[path = "text_tests.rs"]
mod tests;
