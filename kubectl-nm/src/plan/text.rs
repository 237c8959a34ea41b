//! A plan for a person: the pods line by line, those that need attention last, and then what it all comes to.

use std::time::Duration;

use nm_shared::api::status::BlockReason;
use nm_shared::cluster::pod;
use nm_shared::drain::plan::{SkipReason, Warning};
use nm_shared::drain::pod_state::Blocker;
use nm_shared::forecast::capacity::{CapacityEstimate, UnplacedPods};
use nm_shared::forecast::{BudgetForecast, Forecast, PodForecast, PodOutcome};

use crate::args::duration;
use crate::plan::max_unavailable::Limit;
use crate::plan::outlook::{Outlook, Prospect, counted};
use crate::terminal::table;
use crate::terminal::text::{Line, Style};

/// How many pods a sentence names before it says "and N more".
const NAMED: usize = 3;

/// All lines of it.
pub(crate) fn lines(outlook: &Outlook) -> Vec<Line> {
    let mut lines = Vec::new();
    if let Some(forecast) = outlook.forecast.as_ref().filter(|forecast| !forecast.pods.is_empty()) {
        lines.extend(pods(forecast, outlook));
        lines.push(Line::default());
    }
    lines.extend(summary(outlook));
    lines
}

fn pods(forecast: &Forecast, outlook: &Outlook) -> Vec<Line> {
    let mut pods: Vec<&PodForecast> = forecast.pods.iter().collect();
    pods.sort_by_key(|expected| rank(&expected.fate));
    let rows: Vec<Vec<(Style, String)>> = pods
        .into_iter()
        .map(|expected| {
            let (word, style) = word(&expected.fate);
            vec![
                (Style::Plain, expected.node.clone()),
                (Style::Plain, pod::reference(&expected.pod).to_string()),
                (style, word.to_owned()),
                (Style::Plain, detail(expected, outlook)),
            ]
        })
        .collect();
    table::lines(&["NODE", "POD", "WOULD", "BECAUSE"], &rows)
}

/// What needs more attention comes later, next to the summary.
fn rank(fate: &PodOutcome) -> u8 {
    match fate {
        PodOutcome::Stays(_) => 0,
        PodOutcome::Terminating => 1,
        PodOutcome::Evicted => 2,
        PodOutcome::Migrated => 3,
        PodOutcome::WaitsForBudget(_) => 4,
        PodOutcome::Deleted(_) => 5,
        PodOutcome::Blocked(_) => 6,
    }
}

/// What the pod would do, in a word.
pub(crate) fn word(fate: &PodOutcome) -> (&'static str, Style) {
    match fate {
        PodOutcome::Stays(_) => ("stay", Style::Dim),
        PodOutcome::Terminating => ("end", Style::Plain),
        PodOutcome::Evicted => ("go", Style::Good),
        PodOutcome::Migrated => ("migrate", Style::Good),
        PodOutcome::WaitsForBudget(_) => ("go later", Style::Busy),
        PodOutcome::Deleted(_) => ("be deleted", Style::Busy),
        PodOutcome::Blocked(_) => ("block", Style::Bad),
    }
}

/// Why, and what goes with it.
pub(crate) fn detail(expected: &PodForecast, outlook: &Outlook) -> String {
    let mut parts: Vec<String> = match &expected.fate {
        PodOutcome::Stays(reason) => vec![stays(*reason).to_owned()],
        PodOutcome::Terminating => vec![String::from("it is ending already")],
        PodOutcome::Evicted => Vec::new(),
        PodOutcome::Migrated => vec![String::from("KubeVirt moves its virtual machine")],
        PodOutcome::WaitsForBudget(budget) => vec![format!("budget {budget} lets others go first")],
        PodOutcome::Deleted(obstacle) | PodOutcome::Blocked(obstacle) => {
            vec![obstacle.message.trim_end_matches('.').to_owned()]
        }
    };
    parts.extend(deleted(expected));
    if expected.leaves {
        parts.extend(expected.warnings.iter().filter_map(|warning| cost(*warning)).map(str::to_owned));
        let volumes = outlook.local_volumes.get(pod::uid(&expected.pod)).into_iter().flatten();
        parts.extend(volumes.map(|volume| format!("its local volume {volume} stays behind")));
    }
    parts.join("; ")
}

/// When it is deleted that is not let go before, and past what.
fn deleted(expected: &PodForecast) -> Option<String> {
    let after = Duration::from_secs(expected.deleted_after?.try_into().ok()?);
    let past = match &expected.fate {
        PodOutcome::Deleted(Blocker {
            reason: BlockReason::DisruptionBudget | BlockReason::MultipleDisruptionBudgets,
            ..
        })
        | PodOutcome::WaitsForBudget(_) => "its budget",
        _ => "what refuses it",
    };
    let at_most = if matches!(expected.fate, PodOutcome::WaitsForBudget(_)) {
        "at the latest deleted"
    } else {
        "deleted"
    };
    Some(format!("{at_most} after {}, past {past}", duration::show(after)))
}

fn stays(reason: SkipReason) -> &'static str {
    match reason {
        SkipReason::TerminatingTooLong => "it has been ending for too long to be waited for",
        SkipReason::DaemonSet => "its DaemonSet would bring it back",
        SkipReason::Mirror => "its kubelet runs it from a file",
        SkipReason::NotSelected => "the pod selector leaves it out",
    }
}

fn cost(warning: Warning) -> Option<&'static str> {
    match warning {
        Warning::IgnoringDaemonSetPods => None,
        Warning::OrphanedFromDaemonSet => Some("its DaemonSet is gone, and nothing replaces it"),
        Warning::LocalStorage => Some("its emptyDir data is lost"),
        Warning::Unmanaged => Some("nothing replaces it"),
    }
}

/// What it all comes to, the verdict last: a long plan ends on the screen with it.
fn summary(outlook: &Outlook) -> Vec<Line> {
    let mut lines = Vec::new();
    if let Some(forecast) = &outlook.forecast {
        lines.extend(guards(forecast));
        lines.extend(losses(forecast, outlook));
    }
    let warnings = outlook.warnings.iter();
    lines.extend(warnings.map(|warning| Line::default().with(Style::Busy, "warning: ").and(*warning)));
    lines.extend(outlook.room.iter().flat_map(room));
    lines.extend(limit(outlook));
    lines.extend(
        outlook.missing.iter().map(|missing| Line::default().with(Style::Busy, "not known: ").and(missing)),
    );
    lines.extend(outlook.nodes.iter().filter_map(prospect));
    lines.push(totals(outlook));
    let lack = if outlook.lacks_room() { ", but not everything has room elsewhere." } else { "." };
    let good = if outlook.lacks_room() { Style::Bad } else { Style::Good };
    let ending = if outlook.is_blocked() {
        Line::default().with(Style::Bad, "Something blocks this plan.")
    } else if outlook.forecast.is_none() {
        Line::default().with(Style::Busy, "Nobody knows whether something blocks this plan.")
    } else if outlook.missing.is_empty() {
        Line::default().with(good, format!("Nothing blocks this plan{lack}"))
    } else {
        Line::default().with(Style::Busy, format!("As far as it is known, nothing blocks this plan{lack}"))
    };
    lines.push(ending.and(" Nothing was changed."));
    lines
}

fn totals(outlook: &Outlook) -> Line {
    let nodes = counted(outlook.nodes.len(), "node");
    let Some(forecast) = &outlook.forecast else { return Line::new(nodes) };
    let mut counts: Vec<(u8, &str, usize)> = Vec::new();
    for expected in &forecast.pods {
        let (rank, (word, _)) = (rank(&expected.fate), word(&expected.fate));
        match counts.iter_mut().find(|(known, ..)| *known == rank) {
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

fn prospect(prospect: &Prospect) -> Option<Line> {
    let line = Line::new(format!("node/{}: ", prospect.node));
    let begun = if prospect.begun { "is in maintenance already" } else { "" };
    match (&prospect.refusal, &prospect.line) {
        (Some(refusal), _) => Some(line.with(Style::Bad, refusal.strip_prefix("error: ").unwrap_or(refusal))),
        (None, Some(place)) => Some(line.with(Style::Busy, "waits in line: ").and(place)),
        (None, None) => prospect.begun.then(|| line.and(begun)),
    }
}

/// The budgets that let not all of their pods go now, those that take longest last.
fn guards(forecast: &Forecast) -> Vec<Line> {
    let mut guards: Vec<&BudgetForecast> =
        forecast.budgets.iter().filter(|guard| guard.now < guard.pods).collect();
    guards.sort_by_key(|guard| guard.rounds.unwrap_or(usize::MAX));
    let deletes = forecast.pods.iter().any(|pod| matches!(pod.fate, PodOutcome::Deleted(_)));
    guards.into_iter().map(|guard| budget(guard, deletes)).collect()
}

/// What a budget lets go; what it never does is no obstacle where pods are deleted past it.
fn budget(guard: &BudgetForecast, deletes: bool) -> Line {
    let never = if deletes { Style::Busy } else { Style::Bad };
    let BudgetForecast { budget, pods, now, at_most, rounds, short_of } = guard;
    let line = Line::new(format!("budget {budget}: guards {}, lets ", counted(*pods, "pod")));
    match rounds {
        None if *short_of > 0 => line
            .and(format!("{now} go now and {at_most} at once when all its pods are healthy, but "))
            .with(never, format!("{short_of} never: replacements of the others fit on no other node")),
        None if *now == 0 => line.with(never, "none go, now or later, while it is as it is"),
        None => line.and(format!("{now} go now and ")).with(never, "none later, while it is as it is"),
        Some(rounds) => line
            .and(format!("{now} go now and {at_most} at once when all its pods are healthy: "))
            .with(Style::Busy, format!("needs at least {}", counted(*rounds, "round"))),
    }
}

fn losses(forecast: &Forecast, outlook: &Outlook) -> Vec<Line> {
    let told = |warned: &dyn Fn(&PodForecast) -> bool, what: &str| {
        let pods: Vec<&PodForecast> = forecast.pods.iter().filter(|pod| pod.leaves && warned(pod)).collect();
        let names: Vec<String> = pods.iter().map(|pod| pod::reference(&pod.pod).to_string()).collect();
        (!pods.is_empty())
            .then(|| Line::new(format!("{what} of {}: {}", counted(pods.len(), "pod"), few(&names))))
    };
    let warns = |wanted: Warning| move |expected: &PodForecast| expected.warnings.contains(&wanted);
    let is_unmanaged = |expected: &PodForecast| {
        warns(Warning::Unmanaged)(expected) || warns(Warning::OrphanedFromDaemonSet)(expected)
    };
    let has_local = |expected: &PodForecast| outlook.local_volumes.contains_key(pod::uid(&expected.pod));
    [
        told(&warns(Warning::LocalStorage), "data lost: emptyDir volumes"),
        told(&has_local, "data left behind: local volumes"),
        told(&is_unmanaged, "not replaced: the work"),
    ]
    .into_iter()
    .flatten()
    .collect()
}

fn room(estimate: &CapacityEstimate) -> Vec<Line> {
    let CapacityEstimate { fit, nodes, misfits, left_out } = estimate;
    let lost: usize = misfits.iter().map(|misfits| misfits.pods.len()).sum();
    if fit + lost == 0 {
        return Vec::new();
    }
    let mut lines = vec![Line::new(format!(
        "room for {fit} of {} on {}: an estimate by requests, taints, selectors and volumes",
        counted(fit + lost, "pod"),
        counted(*nodes, "other node")
    ))];
    for UnplacedPods { pods, reasons } in misfits {
        let names: Vec<String> = pods.iter().map(ToString::to_string).collect();
        let reasons: Vec<String> = reasons.iter().map(|(why, nodes)| format!("{nodes} {why}")).collect();
        let reasons = if reasons.is_empty() { String::from("there is none") } else { reasons.join(", ") };
        let line = Line::default().with(Style::Bad, "no room: ").and(few(&names));
        lines.push(line.and(format!(" (of {}: {reasons})", counted(*nodes, "other node"))));
    }
    if !left_out.is_empty() {
        let aspects: Vec<String> =
            left_out.iter().map(|(aspect, pods)| format!("{aspect} ({})", counted(*pods, "pod"))).collect();
        lines.push(Line::new(format!("not in that estimate: {}", aspects.join(", "))));
    }
    lines
}

fn limit(outlook: &Outlook) -> Option<Line> {
    match &outlook.limit {
        Limit::Set(limit, from) => Some(Line::new(format!("--max-unavailable is {limit}, by {from}"))),
        Limit::None(_) => None,
        Limit::Unknown(why) => {
            Some(Line::default().with(Style::Busy, "not known: ").and(format!("--max-unavailable: {why}")))
        }
    }
}

fn few(names: &[String]) -> String {
    let first = names.iter().take(NAMED).cloned().collect::<Vec<_>>().join(", ");
    match names.len().saturating_sub(NAMED) {
        0 => first,
        more => format!("{first} and {more} more"),
    }
}
