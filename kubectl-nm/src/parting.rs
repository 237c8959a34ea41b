//! What to say when one stops looking: how things stand, that they go on, and how to look again.

use std::collections::BTreeMap;

use nm_shared::NodeMaintenance;

use crate::maintenance::{Standing, headline, node, status};
use crate::picture::Picture;
use crate::text::{Line, Style};
use crate::wait::Goal;

/// How many nodes are told one by one.
const SHOWN: usize = 10;

/// All maintenances in a line: how many there are of each standing, and how many pods are blocked.
pub(crate) fn tally(picture: &Picture) -> Line {
    count(picture.objects())
}

fn count<'a>(objects: impl Iterator<Item = &'a NodeMaintenance>) -> Line {
    let (mut standings, mut blocked): (BTreeMap<&str, usize>, i64) = (BTreeMap::new(), 0);
    for object in objects {
        *standings.entry(Standing::of(object).word()).or_default() += 1;
        blocked += i64::from(status(object).pod_counts.blocked);
    }
    if standings.is_empty() {
        return Line::new("no maintenances");
    }
    let counts: Vec<String> = standings.iter().map(|(word, count)| format!("{count} {word}")).collect();
    let line = Line::new(counts.join(", "));
    match blocked {
        0 => line,
        1 => line.and(", ").with(Style::Bad, "1 pod blocked"),
        more => line.and(", ").with(Style::Bad, format!("{more} pods blocked")),
    }
}

/// That what was waited for goes on without us, and how to wait again; nothing without a goal.
pub(crate) fn what_goes_on(goal: Option<Goal>, open: &[String]) -> Vec<Line> {
    let nodes = open.join(" ");
    let (what, until) = match goal {
        Some(Goal::Drained) => ("maintenance goes on", "drained"),
        Some(Goal::Stopped) => ("nodes are given back all the same", "stopped"),
        None => return Vec::new(),
    };
    if nodes.is_empty() {
        return Vec::new();
    }
    let hint = Line::new(format!("hint: `kubectl nm watch {nodes} --until {until}` waits again"));
    let hint = match goal {
        Some(Goal::Drained) => hint.and(format!(", `kubectl nm stop {nodes}` gives up")),
        _ => hint,
    };
    vec![Line::new(format!("{what}: {}", open.join(", "))), hint]
}

/// How things stand for somebody who closes the dashboard, and how to come back; `nodes` are those that were named.
pub(crate) fn farewell(picture: &Picture, nodes: &[String]) -> Vec<Line> {
    let mut objects: Vec<&NodeMaintenance> = picture.objects().collect();
    if objects.is_empty() {
        return Vec::new();
    }
    objects.sort_by_key(|object| node(object));
    let mut lines: Vec<Line> = objects
        .iter()
        .take(SHOWN)
        .map(|object| Line::new(format!("node/{}: ", node(object))).join(headline(object)))
        .collect();
    if objects.len() > SHOWN {
        let rest = objects[SHOWN..].iter().copied();
        lines.push(Line::new(format!("and {} more: ", objects.len() - SHOWN)).join(count(rest)));
    }
    let named = nodes.iter().fold(String::new(), |named, name| named + " " + name);
    lines.push(Line::new(format!(
        "hint: maintenances go on; `kubectl nm watch{named}` shows them again, `kubectl nm stop NODE` ends one"
    )));
    lines
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::maintenance::fixture::{requested, running, with_status};
    use crate::picture::fixture::picture;

    fn text(lines: &[Line]) -> Vec<String> {
        lines.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn a_tally_counts_standings_and_blocked_pods() {
        let running = with_status("n2", running(40, &[("a", "m"), ("b", "m")]));
        let drained = with_status("n1", json!({"phase": "Succeeded"}));
        for (objects, said) in [
            (vec![], "no maintenances"),
            (vec![drained.clone()], "1 Succeeded"),
            (vec![drained, running, requested("n3")], "1 Requested, 1 Running, 1 Succeeded, 2 pods blocked"),
        ] {
            assert_eq!(tally(&picture(objects)).to_string(), said);
        }
    }

    #[test]
    fn who_leaves_is_told_how_things_stand_and_how_to_come_back() {
        assert!(farewell(&picture(vec![]), &[]).is_empty());
        let one = farewell(&picture(vec![requested("n1")]), &["n1".to_owned()]);
        assert_eq!(
            text(&one),
            [
                "node/n1: Requested: nothing has taken it up yet",
                "hint: maintenances go on; `kubectl nm watch n1` shows them again, `kubectl nm stop NODE` ends one",
            ]
        );
        let many = (0..12).map(|at| requested(&format!("n{at:02}")));
        let many = text(&farewell(&picture(many), &[]));
        assert_eq!((many.len(), many[10].as_str()), (12, "and 2 more: 2 Requested"));
    }
}
