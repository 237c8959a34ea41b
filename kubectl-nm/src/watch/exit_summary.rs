//! What to say when one stops looking: how things stand, that they go on, and how to look again.

use std::collections::BTreeMap;

use jiff::{Timestamp, Unit};
use nm_shared::NodeMaintenance;

use crate::maintenance::cache::Picture;
use crate::maintenance::{State, headline, node, status};
use crate::terminal::text::{Line, Style};
use crate::watch::wait::Goal;

/// How many nodes are told one by one.
const SHOWN: usize = 10;

/// All maintenances in a line: how many there are of each state, and how many pods are blocked.
pub(crate) fn tally(picture: &Picture) -> Line {
    count(picture.objects())
}

fn count<'a>(objects: impl Iterator<Item = &'a NodeMaintenance>) -> Line {
    let (mut states, mut blocked): (BTreeMap<State, usize>, i64) = (BTreeMap::new(), 0);
    for object in objects {
        *states.entry(State::of(object)).or_default() += 1;
        blocked += i64::from(status(object).pod_counts.blocked);
    }
    if states.is_empty() {
        return Line::new("no maintenances");
    }
    let counts: Vec<String> =
        states.iter().map(|(state, count)| format!("{count} {}", state.word())).collect();
    let line = Line::new(counts.join(", "));
    match blocked {
        0 => line,
        1 => line.and(", ").with(Style::Bad, "1 pod blocked"),
        more => line.and(", ").with(Style::Bad, format!("{more} pods blocked")),
    }
}

/// That what was waited for goes on without us, and how to wait again; nothing without a goal. `is_stopping` says whether
/// the maintenance of a node is being stopped, if that is known. `flags` lead to the same cluster, each with a blank
/// before it.
pub(crate) fn what_goes_on(
    goal: Option<Goal>,
    open: &[String],
    is_stopping: impl Fn(&str) -> Option<bool>,
    flags: &str,
) -> Vec<Line> {
    match goal {
        None => Vec::new(),
        Some(Goal::Drained) => going_on(open, "maintenance goes on: ", |nodes| {
            format!(
                "`kubectl nm watch {nodes} --until drained{flags}` waits again, `kubectl nm stop {nodes}{flags}` gives up"
            )
        }),
        Some(Goal::Stopped) => {
            let of = |wanted: Option<bool>| -> Vec<String> {
                open.iter().filter(|node| is_stopping(node) == wanted).cloned().collect()
            };
            let again =
                |nodes: &str| format!("`kubectl nm watch {nodes} --until stopped{flags}` waits again");
            let stop = |nodes: &str| format!("`kubectl nm stop {nodes}{flags}` does, {}", again(nodes));
            let mut lines = going_on(&of(Some(false)), "nobody has stopped the maintenance of: ", stop);
            lines.extend(going_on(&of(Some(true)), "nodes are given back all the same: ", again));
            lines.extend(going_on(&of(None), "nobody knows whether they are being stopped: ", again));
            lines
        }
    }
}

/// What is so of these nodes, and what to do about it; nothing if there are none.
fn going_on(nodes: &[String], what: &str, hint: impl Fn(&str) -> String) -> Vec<Line> {
    if nodes.is_empty() {
        return Vec::new();
    }
    let hint = hint(&nodes.join(" "));
    vec![Line::new(format!("{what}{}", nodes.join(", "))), Line::new(format!("hint: {hint}"))]
}

/// How things stand for somebody who closes the dashboard, and how to come back; `nodes` are those that were named, and
/// `flags` lead to the same cluster, each with a blank before it. `old_since` says since when nobody knows whether that
/// is still so.
pub(crate) fn farewell(
    picture: &Picture,
    nodes: &[String],
    flags: &str,
    old_since: Option<Timestamp>,
) -> Vec<Line> {
    let mut objects: Vec<&NodeMaintenance> = picture.objects().collect();
    if objects.is_empty() {
        return Vec::new();
    }
    objects.sort_by_key(|object| node(object));
    let mut lines: Vec<Line> = old_since.map(stood).into_iter().collect();
    lines.extend(
        objects
            .iter()
            .take(SHOWN)
            .map(|object| Line::new(format!("node/{}: ", node(object))).join(headline(object))),
    );
    if objects.len() > SHOWN {
        let rest = objects[SHOWN..].iter().copied();
        lines.push(Line::new(format!("and {} more: ", objects.len() - SHOWN)).join(count(rest)));
    }
    let named = nodes.iter().fold(String::new(), |named, name| named + " " + name);
    lines.push(Line::new(format!(
        "hint: maintenances go on; `kubectl nm watch{named}{flags}` shows them again, \
         `kubectl nm stop NODE{flags}` ends one"
    )));
    lines
}

/// That what follows was so once.
fn stood(since: Timestamp) -> Line {
    // The rounding cannot fail for a time of this age of the world.
    let since = since.round(Unit::Second).unwrap_or_default();
    Line::default().with(Style::Bad, format!("stale since {since}")).and(": this is how things stood then")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::maintenance::cache::fixture::picture;
    use crate::maintenance::fixture::{requested, running, with_status};

    fn text(lines: &[Line]) -> Vec<String> {
        lines.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn a_tally_counts_states_and_blocked_pods() {
        let running = with_status("n2", running(40, &[("a", "m"), ("b", "m")]));
        let drained = with_status("n1", json!({"phase": "Succeeded"}));
        for (objects, said) in [
            (vec![], "no maintenances"),
            (vec![drained.clone()], "1 Drained"),
            (vec![drained, running, requested("n3")], "1 Blocked, 1 Requested, 1 Drained, 2 pods blocked"),
        ] {
            assert_eq!(tally(&picture(objects)).to_string(), said);
        }
    }

    #[test]
    fn who_leaves_is_told_how_things_stand_and_how_to_come_back() {
        assert!(farewell(&picture(vec![]), &[], "", None).is_empty());
        let one = farewell(&picture(vec![requested("n1")]), &["n1".to_owned()], "", None);
        assert_eq!(
            text(&one),
            [
                "node/n1: Requested: no reconciler has picked it up yet",
                "hint: maintenances go on; `kubectl nm watch n1` shows them again, `kubectl nm stop NODE` ends one",
            ]
        );
        let many = (0..12).map(|at| requested(&format!("n{at:02}")));
        let many = text(&farewell(&picture(many), &[], "", None));
        assert_eq!((many.len(), many[10].as_str()), (12, "and 2 more: 2 Requested"));
    }

    #[test]
    fn commands_to_paste_lead_to_the_same_cluster() {
        let flags = " --context=staging";
        let left = text(&farewell(&picture(vec![requested("n1")]), &[], flags, None));
        assert_eq!(
            left[1],
            "hint: maintenances go on; `kubectl nm watch --context=staging` shows them again, \
             `kubectl nm stop NODE --context=staging` ends one"
        );
        assert_eq!(
            text(&what_goes_on(Some(Goal::Drained), &["n1".to_owned()], |_| None, flags))[1],
            "hint: `kubectl nm watch n1 --until drained --context=staging` waits again, \
             `kubectl nm stop n1 --context=staging` gives up"
        );
    }

    #[test]
    fn who_leaves_a_picture_that_is_old_is_told_so_first() {
        let since = "2026-01-02T03:04:05.6Z".parse().unwrap();
        let left = text(&farewell(&picture(vec![requested("n1")]), &[], "", Some(since)));
        assert_eq!(left[0], "stale since 2026-01-02T03:04:06Z: this is how things stood then");
        assert_eq!(left.len(), 3);
    }
}
