//! What the planned nodes of a roll that somebody runs wait for.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};
use nm_core::explain::cause::sentence;
use nm_core::maintenance::State;
use nm_core::terminal::text::counted;

use crate::decide::{NodeProgress, decide};
use crate::observed::Observed;
use crate::record::{Roll, RollNode, Step};
use crate::unfinished::{UnfinishedNode, by_step, unfinished};

/// What these planned nodes of a roll wait for, each in sentences: the window, the nodes that are under way, and those of earlier
/// waves; and what the roll runs for them then. Within a wave, nodes may start together, or in another order. A node that is not planned, or starts next, waits for nothing.
pub fn waits(roll: &Roll, nodes: &[&str], now: Timestamp) -> BTreeMap<String, Vec<String>> {
    let mut waits: BTreeMap<String, Vec<String>> =
        nodes.iter().map(|node| ((*node).to_owned(), Vec::new())).collect();
    let Ok(record) = roll.complete_record() else { return waits };
    // Nodes are not read for that.
    let progress = decide(roll, &record, &Observed::shown_at(now, roll, None)).progress;
    let planned: Vec<&NodeProgress> = progress.iter().filter(|one| one.step == Step::Planned).collect();
    let slowest = SignedDuration::from_secs(record.done.slowest_seconds);
    let window = roll.settings.windows.closed(now, slowest).map(|closed| sentence(&closed));
    let mut under_way = unfinished(Some(roll), &record);
    under_way.retain(|one| one.step.is_some_and(|step| step != Step::Planned));
    let is_blocked = |one: &UnfinishedNode| {
        roll.node(&one.node).is_some_and(|node| State::of(&node.object) == State::Blocked)
    };
    let blocked: Vec<&str> =
        under_way.iter().filter(|one| is_blocked(one)).map(|one| one.node.as_str()).collect();
    let blocked = match blocked.as_slice() {
        [] => String::new(),
        [only] => format!(" {only} is blocked."),
        several => format!(" {} are blocked.", several.join(", ")),
    };
    let runs = roll.settings.outline_actions().map(|runs| format!("Then the roll runs {runs}."));
    let under_way = (!under_way.is_empty()).then(|| format!("Under way: {}.{blocked}", by_step(&under_way)));
    for own in &planned {
        let Some(waits) = waits.get_mut(&own.node) else { continue };
        let before = match planned.iter().filter(|one| one.wave < own.wave).count() {
            0 => None,
            1 => Some(String::from("1 node of an earlier wave starts before it.")),
            more => Some(format!("{} of earlier waves start before it.", counted(more, "node"))),
        };
        // Those who ask know of a drain that was started before its turn.
        let is_early = roll.node(&own.node).is_some_and(RollNode::is_started_early);
        let detail = Some(sentence(&own.detail)).filter(|_| !own.detail.is_empty() && !is_early);
        let runs = runs.clone().filter(|_| !is_early);
        waits.extend(window.iter().chain(&under_way).cloned().chain(before).chain(detail).chain(runs));
    }
    waits
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use nm_core::testing::objects::{running, with_status};
    use serde_json::{Value, json};

    use super::*;
    use crate::record::{LABEL, NODE, SETTINGS, STATE};
    use crate::settings::RollSettings;

    /// What the third node of a roll waits for on a Friday, with nodes at these steps in earlier waves.
    fn waits_of(steps: [&str; 3], windows: &Value) -> Vec<String> {
        waits_with(steps, &json!({"windows": windows}))
    }

    /// The same with these settings.
    fn waits_with(steps: [&str; 3], settings: &Value) -> Vec<String> {
        let now: Timestamp = "2026-03-06T12:00:00Z".parse().unwrap();
        let mut all = json!({"waves": [2, 1], "maxUnavailable": 1, "minReadySeconds": 30, "actionTimeoutSeconds": 1,
            "returnTimeoutSeconds": 1, "recoveryTimeoutSeconds": 1});
        all.as_object_mut().unwrap().extend(settings.as_object().unwrap().clone());
        let state = json!({"revision": 2, "runner": {"id": "x", "who": "ada@vm", "at": now}});
        let object = |(position, step): (usize, &str)| {
            let (step, status) = match step {
                "Blocked" => ("Draining", running(40, &[("a", "m")])),
                "Early" => ("Planned", running(40, &[])),
                step => (step, json!({})),
            };
            let node = json!({"wave": position / 2, "position": position, "step": step, "since": now});
            let mut object = with_status(&format!("n{position}"), status);
            object.spec.suspend =
                step == "Planned" && object.status.as_ref().is_some_and(|status| !status.has_begun());
            object.metadata.labels = Some([(LABEL.to_owned(), "r".to_owned())].into());
            let annotations = [(SETTINGS, &all), (NODE, &node), (STATE, &state)];
            let annotations = annotations.map(|(name, value)| (name.to_owned(), value.to_string()));
            object.metadata.annotations = Some(annotations.into());
            Arc::new(object)
        };
        let objects: Vec<_> = steps.into_iter().enumerate().map(object).collect();
        waits(&Roll::find("r", &objects).unwrap().unwrap(), &["n2"], now).remove("n2").unwrap()
    }

    #[test]
    fn a_planned_node_names_what_its_roll_will_run_for_it() {
        let of = |actions: &Value| {
            let mut settings = json!({"waves": [1], "maxUnavailable": 1, "minReadySeconds": 30, "actionTimeoutSeconds": 1,
                "returnTimeoutSeconds": 1, "recoveryTimeoutSeconds": 1});
            settings.as_object_mut().unwrap().extend(actions.as_object().unwrap().clone());
            let settings: RollSettings = serde_json::from_value(settings).unwrap();
            settings.outline_actions()
        };
        let (command, job) = (|| json!({"run": "x"}), || json!({"job": {}}));
        for (actions, expected) in [
            (json!({}), None),
            (json!({"action": job()}), Some("a Job once the node is drained")),
            (
                json!({"before": command(), "after": job()}),
                Some("a command before the first eviction and a Job before the return to service"),
            ),
            (
                json!({"before": job(), "action": command(), "after": command()}),
                Some(
                    "a Job before the first eviction, a command once the node is drained and a command before the return to \
                     service",
                ),
            ),
        ] {
            assert_eq!(of(&actions).as_deref(), expected);
        }
        assert_eq!(
            waits_with(["Planned"; 3], &json!({"windows": [], "action": command()})),
            [
                "2 nodes of earlier waves start before it.",
                "Then the roll runs a command once the node is drained."
            ]
        );
    }

    #[test]
    fn a_planned_node_names_the_window_and_the_nodes_before_it() {
        let night = json!(["Sat 22:00-04:00 Europe/Berlin"]);
        let opens = "The window opens at Sat 07 Mar 22:00 CET.";
        let planned = "Planned";
        assert_eq!(waits_of([planned; 3], &night), [opens, "2 nodes of earlier waves start before it."]);
        let expected = [opens, "Under way: n0 (Draining).", "1 node of an earlier wave starts before it."];
        assert_eq!(waits_of(["Draining", planned, planned], &night), expected);
        assert_eq!(
            waits_of(["Draining", "Draining", planned], &json!([])),
            ["Under way: n0, n1 (Draining)."]
        );
        assert_eq!(
            waits_of(["Blocked", "Draining", planned], &json!([])),
            ["Under way: n0, n1 (Draining). n0 is blocked."]
        );
        assert_eq!(waits_of(["Draining", planned, "Draining"], &night), [""; 0], "it is under way itself");
        let early = [opens, "2 nodes of earlier waves start before it."];
        assert_eq!(
            waits_of([planned, planned, "Early"], &night),
            early,
            "somebody drains it before its turn"
        );
    }
}
