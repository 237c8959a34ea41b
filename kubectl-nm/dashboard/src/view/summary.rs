//! The summary: totals of all maintenances, or the details of one node.

use jiff::{SignedDuration, Timestamp};
use nm_core::args::duration::age;
use nm_core::maintenance::slow_surge::SlowSurge;
use nm_core::maintenance::{State, condition, cordoned_since, drain_times_out, status};
use nm_shared::api::condition::{ConditionReason, ConditionType};
use nm_shared::{NodeMaintenance, PodCounts, PodState};
use ratatui::layout::Rect;

use crate::layout::{ScreenLayout, outcome_lines};
use crate::model::fleet::fleet_row::{FleetRow, states};
use crate::model::{Model, OpenNode};
use crate::objects::watch_state::WatchKind;
use crate::view::canvas::{Canvas, line};
use crate::view::header::age_word;
use crate::view::theme::Tone;

/// From so many columns on, the states have their signs in the summary.
const ROOMY: u16 = 100;

/// How long a drain has to run before the time left is estimated.
const MIN_ELAPSED: SignedDuration = SignedDuration::from_secs(5);

/// Draws how many nodes are in each state, and how many pods are gone.
pub(super) fn draw_fleet(model: &Model, canvas: &mut Canvas<'_>, area: Rect) {
    let count = |state| model.fleet.rows.all().filter(|row| row.state == state).count();
    let counts = fleet_counts(model);
    let mut segments: Vec<(String, Tone)> = Vec::new();
    for (state, word) in states() {
        let count = count(state);
        if count > 0 {
            let (glyph, tone) = canvas.glyphs.node(state);
            let glyph = if area.width >= ROOMY { glyph } else { "" };
            segments.push((format!("{glyph} {word} {count}").trim_start().to_owned(), tone));
        }
    }
    let mut x = area.x + 1;
    for (text, tone) in &segments {
        x = canvas.write_whole(area, x, text, *tone).map_or(x, |end| end + 2);
    }
    let pods = counts.gone.saturating_add(counts.pending());
    if pods == 0 {
        return;
    }
    let area = line(area, 1);
    let mut x = area.x + 1;
    if area.width >= 60 {
        x = canvas.pod_bar(area, x, bar_width(area), &counts) + 1;
    }
    x = canvas.write(area, x, &format!("{}/{pods} pods", counts.gone), Tone::Strong) + 2;
    legend(&counts, canvas, area, x);
}

/// The pods of all rows that have to leave, by state.
fn fleet_counts(model: &Model) -> PodCounts {
    let mut all = PodCounts::default();
    for row in model.fleet.rows.all().filter(|row| row.pods > 0) {
        for (state, count) in row.counts().by_state().filter(|(state, _)| *state != PodState::Staying) {
            let sum = all.of_mut(state);
            *sum = sum.saturating_add(count);
        }
    }
    all
}

fn bar_width(area: Rect) -> u16 {
    (area.width / 5).min(40)
}

/// Writes how many pods are in each state, in the colours of the bar before it and the most urgent first, as far as there is
/// space. Returns where the next text goes.
fn legend(counts: &PodCounts, canvas: &mut Canvas<'_>, area: Rect, mut x: u16) -> u16 {
    for (state, count) in counts.by_state() {
        x = canvas.pod_count(area, x, state, count).map_or(x, |end| end + 2);
    }
    x
}

/// Draws what there is to know of a node beside its pods.
pub(super) fn draw_node(model: &Model, open: &OpenNode, canvas: &mut Canvas<'_>, screen: &ScreenLayout) {
    let maintenance = model.fleet.maintenance_of(&open.name);
    facts(model, open, maintenance.map(AsRef::as_ref), canvas, line(screen.summary, 0));
    if let Some(maintenance) = maintenance {
        progress(model, open, maintenance, canvas, line(screen.summary, 1));
    }
}

/// Draws what the drain has done and cost.
pub(super) fn draw_outcome(model: &Model, canvas: &mut Canvas<'_>, area: Rect) {
    let tone = |at| if at == 0 { Tone::Good } else { Tone::Plain };
    // Of the whole screen, as the layout counts them.
    let (width, height) = model.size;
    let lines = outcome_lines(model, Rect { x: 0, y: 0, width, height })
        .into_iter()
        .enumerate()
        .map(|(at, line)| (line, tone(at)));
    canvas.write_lines(area, 1, &lines.collect::<Vec<_>>());
}

fn facts(
    model: &Model,
    open: &OpenNode,
    maintenance: Option<&NodeMaintenance>,
    canvas: &mut Canvas<'_>,
    area: Rect,
) {
    let metadata = model.fleet.node(&open.name);
    let has_begun = maintenance.and_then(cordoned_since).is_some();
    let was_schedulable = metadata.and_then(|metadata| metadata.was_schedulable);
    let details = metadata.and_then(|metadata| metadata.details.as_ref());
    // Beside the maintenance, only a whole node shows it, which is not always read.
    let is_cordoned = if has_begun || was_schedulable.is_some() {
        Some(true)
    } else {
        details.map(|details| details.cordon.is_some())
    };
    let before = match was_schedulable {
        Some(true) => " (was schedulable)",
        Some(false) => " (was cordoned before)",
        None => "",
    };
    let mut facts: Vec<(&str, String, Tone)> = Vec::new();
    if let Some(is_cordoned) = is_cordoned {
        let cordoned = if is_cordoned { "yes" } else { "no" };
        facts.push(("Cordoned", format!("{cordoned}{before}"), Tone::Plain));
    }
    if let Some(maintenance) = maintenance {
        let (lease, tone) = lease(maintenance, has_begun);
        facts.push(("Lease", lease.to_owned(), tone));
    }
    if metadata.is_some_and(|metadata| metadata.control_plane) {
        facts.push(("Role", String::from("control plane"), Tone::Strong));
    }
    if let Some((age, tone)) =
        age_word(model.health.of(WatchKind::Nodes), model.now).filter(|_| metadata.is_some())
    {
        facts.push(("Node", age, tone));
    }
    if let Some(at) = maintenance.and_then(drain_times_out) {
        let left = age(at.duration_since(model.now).as_secs().max(0));
        facts.push(("Times out", format!("in {left}"), Tone::Plain));
    }
    if let Some(maintenance) = maintenance {
        let reason = maintenance.spec.reason.clone().unwrap_or_else(|| String::from("-"));
        facts.push(("Reason", reason, Tone::Plain));
    }
    let mut x = area.x + 1;
    for (name, value, tone) in facts {
        x = canvas.write(area, x, &format!("{name}: "), Tone::Quiet);
        x = canvas.write(area, x, &value, tone) + 2;
    }
}

/// Who has the lease of the node.
fn lease(maintenance: &NodeMaintenance, has_begun: bool) -> (&'static str, Tone) {
    let is = |type_, reason| {
        condition(maintenance, type_).filter(|found| ConditionReason::of(found) == Some(reason))
    };
    let lost = is(ConditionType::Degraded, ConditionReason::LeaseLost);
    if is(ConditionType::Drained, ConditionReason::LeaseHeld).is_some() {
        ("another holder", Tone::Bad)
    } else if lost.is_some_and(|degraded| degraded.status == "True") {
        ("LOST", Tone::Bad)
    } else if has_begun {
        ("held", Tone::Plain)
    } else {
        ("-", Tone::Plain)
    }
}

fn progress(
    model: &Model,
    open: &OpenNode,
    maintenance: &NodeMaintenance,
    canvas: &mut Canvas<'_>,
    area: Rect,
) {
    let row = FleetRow::of(maintenance);
    let mut x = area.x + 1;
    if area.width >= 60 {
        x = canvas.pod_bar(area, x, bar_width(area), &row.counts()) + 1;
    }
    let far = match row.pods {
        0 if !row.has_started() => String::from("not started"),
        _ => format!("{}% {}/{}", row.percent, row.gone, row.pods),
    };
    x = canvas.write(area, x, &far, Tone::Strong) + 2;
    if matches!(row.state, Some(State::Draining | State::Blocked)) {
        x = canvas.write(area, x, &eta(model, open, maintenance, &row), Tone::Plain) + 2;
    }
    let x = legend(&status(maintenance).pod_counts, canvas, area, x);
    // The rows have these pods too, so they would not add up.
    let later = open.pods.later();
    if later > 0 {
        canvas.write_whole(area, x, &format!("+{later} came later"), Tone::Quiet);
    }
}

fn eta(model: &Model, open: &OpenNode, maintenance: &NodeMaintenance, row: &FleetRow) -> String {
    // A pod that terminates may use all of its grace period, which the status does not show.
    let is_known = open.pods.are_known() || status(maintenance).pod_counts.terminating == 0;
    let since = cordoned_since(maintenance).or(row.started).filter(|_| is_known);
    let unblocked = row.pods.saturating_sub(row.gone).saturating_sub(row.blocked);
    let for_jobs = i32::try_from(open.pods.waiting_for_jobs()).unwrap_or(i32::MAX);
    if is_idle(&status(maintenance).pod_counts, for_jobs) {
        let why = if row.blocked > 0 { "blocked" } else { "waiting" };
        return format!("no ETA while {why}");
    }
    if SlowSurge::of(maintenance).is_some_and(|surge| surge.words(model.now).is_some()) {
        return String::from("no ETA while surging");
    }
    // Nothing shows how long a Job takes.
    let since = since.filter(|_| for_jobs == 0);
    let left = since.and_then(|since| estimate(row.gone, unblocked, since, model.now));
    match (left, row.blocked) {
        (None, 1..) if unblocked <= 0 => String::from("no ETA while blocked"),
        (None, _) => String::from("ETA -"),
        (Some(left), blocked) => {
            // A pod that terminates may use all of its grace period.
            let grace = open.pods.last_deadline().map(|at| at.duration_since(model.now));
            let at_most = match grace.filter(|grace| *grace > left) {
                Some(grace) => format!(" to {}", age(grace.as_secs())),
                None => String::new(),
            };
            let unblocked = if blocked > 0 { " (unblocked)" } else { "" };
            format!("ETA ~{}{at_most}{unblocked}", age(left.as_secs()))
        }
    }
}

/// Whether every remaining pod is blocked or waits, so many of them to be counted by their Jobs, so that the rate so far says nothing.
fn is_idle(counts: &PodCounts, for_jobs: i32) -> bool {
    let pending = counts.pending();
    let waiting = counts.waiting.saturating_add(for_jobs.min(counts.terminating));
    pending > 0 && pending == counts.blocked.saturating_add(waiting)
}

/// The time until the pods that nothing blocks are gone, at the average rate so far; none if there is no basis for it.
fn estimate(gone: i32, unblocked: i32, since: Timestamp, now: Timestamp) -> Option<SignedDuration> {
    let so_far = now.duration_since(since);
    if gone <= 0 || unblocked <= 0 || so_far < MIN_ELAPSED {
        return None;
    }
    let seconds = so_far.as_secs().checked_mul(i64::from(unblocked))? / i64::from(gone);
    Some(SignedDuration::from_secs(seconds.max(1)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_is_no_estimate_while_every_remaining_pod_waits_or_is_blocked() {
        let counts = |waiting, blocked, evicting, terminating| PodCounts {
            gone: 30,
            waiting,
            blocked,
            evicting,
            terminating,
            ..PodCounts::default()
        };
        assert!(is_idle(&counts(0, 1, 0, 1), 1) && !is_idle(&counts(0, 1, 1, 1), 1));
        for (counts, expected) in [
            (counts(2, 0, 0, 0), true),
            (counts(2, 1, 0, 0), true),
            (counts(0, 1, 0, 0), true),
            (counts(2, 0, 1, 0), false),
            (counts(2, 0, 0, 1), false),
            (counts(0, 0, 0, 0), false),
        ] {
            assert_eq!(is_idle(&counts, 0), expected, "{counts:?}");
        }
    }

    #[test]
    fn the_estimate_uses_the_average_rate_and_needs_progress() {
        let started = Timestamp::UNIX_EPOCH;
        for (gone, unblocked, seconds, expected) in [
            (10, 5, 60, Some(30)),
            (1, 1000, 60, Some(60_000)),
            (100, 1, 10, Some(1)),
            (0, 5, 60, None),
            (5, 0, 60, None),
            (5, 5, 4, None),
        ] {
            let now = started + SignedDuration::from_secs(seconds);
            let estimated = estimate(gone, unblocked, started, now).map(|left| left.as_secs());
            assert_eq!(estimated, expected, "{gone} {unblocked} {seconds}");
        }
    }
}
