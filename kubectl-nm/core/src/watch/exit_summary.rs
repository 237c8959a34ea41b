//! What to print when a watch ends: the states of the maintenances, and the commands with which to resume.

use std::collections::BTreeMap;

use jiff::{RoundMode, Timestamp, TimestampRound, Unit};
use nm_shared::NodeMaintenance;

use crate::maintenance::{State, blocked_count, headline, node, pods_gone, pods_in_all, status};
use crate::terminal::command_context::{explain_command, shell_quoted};
use crate::terminal::text::{Line, Style, counted};
use crate::watch::goal_tracker::{Goal, GoalTracker};

const MAX_NODES: usize = 10;

/// How many maintenances there are of each state, how many of their pods are gone, and how many are blocked:
/// `2 Draining, 1 Drained, 7 of 9 pods gone, 1 pod blocked`.
pub(crate) fn tally<'a>(objects: impl Iterator<Item = &'a NodeMaintenance>) -> Line {
    let mut by_state: BTreeMap<State, usize> = BTreeMap::new();
    let (mut gone, mut all, mut blocked) = (0, 0, 0);
    for object in objects {
        *by_state.entry(State::of(object)).or_default() += 1;
        let status = status(object);
        gone += i64::from(pods_gone(status));
        all += i64::from(pods_in_all(status));
        blocked += i64::from(blocked_count(object));
    }
    if by_state.is_empty() {
        return Line::new("no maintenances");
    }
    let counts: Vec<String> =
        by_state.iter().map(|(state, count)| format!("{count} {}", state.word())).collect();
    let line = Line::new(counts.join(", "));
    let line = if all > 0 { line.and(format!(", {gone} of {} gone", counted(all, "pod"))) } else { line };
    match blocked {
        0 => line,
        some => line.and(", ").with(Style::Bad, format!("{} blocked", counted(some, "pod"))),
    }
}

/// The maintenances that continue after a watch for a goal, which `has_timed_out` or not, and the commands that resume it. `flags` are the connection
/// flags for these commands, each with a space before it.
pub(crate) fn resume_hints(tracker: &GoalTracker, has_timed_out: bool, flags: &str) -> Vec<Line> {
    let open = tracker.open_nodes();
    match tracker.goal() {
        None => Vec::new(),
        Some(Goal::Drained) => {
            let (ended, open): (Vec<String>, Vec<String>) =
                open.into_iter().partition(|node| has_timed_out && tracker.times_out_too(node));
            let is_blocked = |node: &&String| {
                let mut of_node = tracker.cache().objects().filter(|object| self::node(object) == *node);
                of_node.any(|object| State::of(object) == State::Blocked)
            };
            let blocked: Vec<&str> = open.iter().filter(is_blocked).map(String::as_str).collect();
            let mut lines = resume_hint(&open, "maintenance continues", |nodes| {
                format!(
                    "`kubectl nm watch {nodes} --until drained{flags}` resumes waiting, \
                     `kubectl nm stop {nodes}{flags}` stops the maintenance"
                )
            });
            lines.extend(explain_hint(blocked, flags));
            lines.extend(resume_hint(&ended, "the drain has timed out too", |nodes| {
                format!(
                    "`kubectl nm explain {nodes}{flags}` shows what is left, `kubectl nm stop {nodes}{flags}` stops the \
                     maintenance"
                )
            }));
            lines
        }
        Some(Goal::Stopped) => {
            let nodes_where = |is_stopping: Option<bool>| -> Vec<String> {
                open.iter().filter(|node| tracker.is_stopping(node) == is_stopping).cloned().collect()
            };
            let watch =
                |nodes: &str| format!("`kubectl nm watch {nodes} --until stopped{flags}` resumes waiting");
            let stop = |nodes: &str| {
                format!("`kubectl nm stop {nodes}{flags}` stops the maintenance, {}", watch(nodes))
            };
            let mut lines = resume_hint(&nodes_where(Some(false)), "maintenance has not been stopped", stop);
            lines.extend(resume_hint(&nodes_where(Some(true)), "maintenance still stopping", watch));
            lines.extend(resume_hint(&nodes_where(None), "maintenance in unknown state", watch));
            lines
        }
    }
}

/// How to see why these nodes are blocked; nothing if there are none.
pub(crate) fn explain_hint(blocked: Vec<&str>, flags: &str) -> Option<Line> {
    (!blocked.is_empty()).then(|| {
        let named = if blocked.len() > MAX_NODES { Vec::new() } else { blocked };
        let explain = explain_command(named, flags);
        Line::new(format!("hint: `{explain}` shows what blocks pods, and what to do"))
    })
}

/// The state of these nodes, of many the first, and what to do about it; nothing if there are none.
fn resume_hint(nodes: &[String], state: &str, hint: impl Fn(&str) -> String) -> Vec<Line> {
    if nodes.is_empty() {
        return Vec::new();
    }
    let (named, more) = nodes.split_at(nodes.len().min(MAX_NODES));
    let quoted: Vec<_> = named.iter().map(|node| shell_quoted(node)).collect();
    let (arguments, more) = match more.len() {
        0 => (quoted.join(" "), String::new()),
        count => (String::from("NODE..."), format!(" and {count} more")),
    };
    let state = Line::new(format!("{state}: {}{more}", named.join(", ")));
    vec![state, Line::new(format!("hint: {}", hint(&arguments)))]
}

/// The states of the maintenances when the dashboard is closed, and how to reopen it. `flags` are the connection flags for
/// the commands in hints, each with a space before it. `stale_since` is the time at which the data became stale, if it
/// did.
pub fn dashboard_summary(tracker: &GoalTracker, flags: &str, stale_since: Option<Timestamp>) -> Vec<Line> {
    let mut objects: Vec<&NodeMaintenance> = tracker.cache().objects().collect();
    if objects.is_empty() {
        return Vec::new();
    }
    objects.sort_by_key(|object| node(object));
    let mut lines = Vec::new();
    if let Some(since) = stale_since {
        let since = whole_seconds(since);
        let stale = Line::default().with(Style::Bad, format!("stale since {since}"));
        lines.push(stale.and(": these are the last known states"));
    }
    lines.extend(states(&objects));
    let nodes = tracker.nodes().iter().fold(String::new(), |nodes, name| nodes + " " + name);
    lines.push(Line::new(format!(
        "hint: maintenances continue; `kubectl nm watch{nodes}{flags}` shows them again, \
         `kubectl nm stop NODE{flags}` stops one"
    )));
    lines
}

/// A line for each maintenance, or one that counts the others if there are many.
pub(crate) fn states(objects: &[&NodeMaintenance]) -> Vec<Line> {
    let (named, others) = objects.split_at(objects.len().min(MAX_NODES));
    let state =
        |object: &&NodeMaintenance| Line::new(format!("node/{}: ", node(object))).join(headline(object));
    let mut lines: Vec<Line> = named.iter().map(state).collect();
    if !others.is_empty() {
        lines.push(Line::new(format!("and {} more: ", others.len())).join(tally(others.iter().copied())));
    }
    lines
}

/// The time without the fraction of its second: a rounded one may be in the future.
pub(crate) fn whole_seconds(time: Timestamp) -> Timestamp {
    let whole = TimestampRound::new().smallest(Unit::Second).mode(RoundMode::Floor);
    // This fails only at the limits of the calendar.
    time.round(whole).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::testing::objects::listed;
    use crate::testing::objects::{requested, running, with_status};
    use crate::watch::goal_tracker::ExitCondition;

    fn summary(
        nodes: &[&str],
        objects: impl IntoIterator<Item = NodeMaintenance>,
        flags: &str,
        stale_since: Option<Timestamp>,
    ) -> Vec<String> {
        let nodes = nodes.iter().map(ToString::to_string).collect();
        let mut tracker = GoalTracker::new(nodes, ExitCondition::Never);
        tracker.apply(&listed(objects)).unwrap();
        text(&dashboard_summary(&tracker, flags, stale_since))
    }

    fn text(lines: &[Line]) -> Vec<String> {
        lines.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn a_tally_counts_states_and_blocked_pods() {
        let running = with_status("n2", running(40, &[("a", "m"), ("b", "m")]));
        let drained = with_status("n1", json!({"phase": "Succeeded"}));
        for (objects, expected) in [
            (vec![], "no maintenances"),
            (vec![drained.clone()], "1 Drained"),
            (
                vec![drained, running, requested("n3")],
                "1 Blocked, 1 Requested, 1 Drained, 4 of 10 pods gone, 2 pods blocked",
            ),
        ] {
            assert_eq!(tally(objects.iter()).to_string(), expected);
        }
    }

    #[test]
    fn a_closed_dashboard_leaves_the_states_and_the_command_that_reopens_it() {
        assert!(summary(&[], [], "", None).is_empty());
        assert_eq!(
            summary(&["n1"], [requested("n1")], "", None),
            [
                "node/n1: Requested: nm-reconciler has not started the maintenance yet",
                "hint: maintenances continue; `kubectl nm watch n1` shows them again, `kubectl nm stop NODE` stops one",
            ]
        );
        let many = summary(&[], (0..12).map(|at| requested(&format!("n{at:02}"))), "", None);
        assert_eq!((many.len(), many[10].as_str()), (12, "and 2 more: 2 Requested"));
    }

    #[test]
    fn the_end_of_a_wait_for_many_nodes_names_the_first_and_counts_the_others() {
        let nodes: Vec<String> = (0..12).map(|at| format!("n{at:02}")).collect();
        let mut tracker = GoalTracker::new(nodes.clone(), ExitCondition::Goal(Goal::Drained));
        tracker.apply(&listed(nodes.iter().map(|node| requested(node)))).unwrap();
        let hints = text(&resume_hints(&tracker, false, ""));
        assert!(
            hints[0].ends_with(": n00, n01, n02, n03, n04, n05, n06, n07, n08, n09 and 2 more"),
            "{hints:?}"
        );
        assert!(hints[1].contains("`kubectl nm watch NODE... --until drained`"), "{hints:?}");
    }

    #[test]
    fn the_end_of_a_wait_points_at_what_blocks_pods() {
        let nodes = ["n1".to_owned(), "n2".to_owned()].to_vec();
        let mut tracker = GoalTracker::new(nodes, ExitCondition::Goal(Goal::Drained));
        let objects = [with_status("n1", running(40, &[("a", "m")])), with_status("n2", running(40, &[]))];
        tracker.apply(&listed(objects)).unwrap();
        let hints = text(&resume_hints(&tracker, true, " --context=staging"));
        let explain =
            "hint: `kubectl nm explain n1 --context=staging` shows what blocks pods, and what to do";
        assert_eq!(hints[2..], [explain], "{hints:?}");
    }

    #[test]
    fn commands_in_hints_use_the_same_cluster() {
        let flags = " --context=staging";
        assert_eq!(
            summary(&[], [requested("n1")], flags, None)[1],
            "hint: maintenances continue; `kubectl nm watch --context=staging` shows them again, \
             `kubectl nm stop NODE --context=staging` stops one"
        );
        let tracker = GoalTracker::new(vec!["n1".to_owned()], ExitCondition::Goal(Goal::Drained));
        assert_eq!(
            text(&resume_hints(&tracker, false, flags))[1],
            "hint: `kubectl nm watch n1 --until drained --context=staging` resumes waiting, \
             `kubectl nm stop n1 --context=staging` stops the maintenance"
        );
    }

    #[test]
    fn a_hostile_node_name_is_quoted_in_the_commands_of_hints() {
        let tracker = GoalTracker::new(vec!["$(reboot)".to_owned()], ExitCondition::Goal(Goal::Drained));
        let hint = &text(&resume_hints(&tracker, false, ""))[1];
        assert!(hint.contains("watch '$(reboot)' --until") && !hint.contains(" $(reboot)"), "{hint}");
    }

    #[test]
    fn stale_states_are_marked_first() {
        let since = "2026-01-02T03:04:05.6Z".parse().unwrap();
        let lines = summary(&[], [requested("n1")], "", Some(since));
        assert_eq!(lines[0], "stale since 2026-01-02T03:04:05Z: these are the last known states");
        assert_eq!(lines.len(), 3);
    }
}
