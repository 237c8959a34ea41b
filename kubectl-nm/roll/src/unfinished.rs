//! What a roll leaves when it halts or ends before all of its nodes are done.

use std::sync::Arc;

use jiff::Timestamp;
use nm_core::explain::cause::sentence;
use nm_core::explain::completion::evicts_once_continued;

use crate::record::{ActionState, Roll, RollNode, RollRecord, Step};

/// A node of a roll that is not done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnfinishedNode {
    /// Name of the node.
    pub node: String,
    /// Its step; none if its maintenance is gone.
    pub step: Option<Step>,
    /// Whether its command or its Job has failed, and runs again when the roll is resumed.
    pub runs_again: bool,
    /// Whether its command or its Job runs again unless the node has rebooted by then: the roll halted because it had not, or because
    /// the Job failed that was to reboot it.
    pub awaits_reboot: bool,
    /// When its drain, which has failed, evicts pods that it has waited for once it continues.
    pub evicts_awaited: Option<Timestamp>,
}

impl UnfinishedNode {
    fn of(node: &RollNode, record: &RollRecord, expects_reboot: bool) -> Self {
        let step = node.record.step;
        let has_halted = record.halt.as_ref().is_some_and(|halt| halt.node == node.node());
        let failed = node.record.failed_action().map(|action| &action.state);
        let awaits_reboot = expects_reboot
            && match step {
                Step::Rejoining => has_halted && node.record.action.is_some(),
                // The reboot that it was to cause may have ended the pod of its Job.
                Step::Acting => matches!(failed, Some(ActionState::JobFailed(_))),
                _ => false,
            };
        Self {
            node: node.node().to_owned(),
            step: Some(step),
            // Whoever removes the hook has done the work of `--before` by hand.
            runs_again: failed.is_some() && !awaits_reboot && (step != Step::Preparing || node.is_hooked()),
            awaits_reboot,
            evicts_awaited: evicts_once_continued(&node.object),
        }
    }
}

/// The nodes that are not done, in the order of the roll: those with a maintenance, those whose `Node` objects were deleted, and
/// those that the roll began with. Nodes that were skipped or have left the roll are in its record.
pub fn unfinished(roll: Option<&Roll>, record: &RollRecord) -> Vec<UnfinishedNode> {
    let expects_reboot = roll.is_some_and(|roll| roll.settings.expect_reboot);
    let of = |node: &RollNode| UnfinishedNode::of(node, record, expects_reboot);
    let mut nodes: Vec<UnfinishedNode> = roll
        .iter()
        .flat_map(|roll| &roll.nodes)
        .filter(|node| !record.released.iter().any(|released| released == node.node()))
        .map(of)
        .collect();
    let absent =
        record.absent.iter().filter_map(|absent| RollNode::of(&Arc::new(absent.maintenance.clone())).ok());
    let has_left = |name: &str| {
        record.skipped.iter().chain(&record.released).any(|left| left == name)
            || record.left.iter().any(|left| left.node == name)
    };
    let gone = record.nodes.iter().filter(|name| !has_left(name));
    let gone = gone.map(|name| UnfinishedNode {
        node: name.clone(),
        step: None,
        runs_again: false,
        awaits_reboot: false,
        evicts_awaited: None,
    });
    for other in absent.map(|node| of(&node)).chain(gone) {
        if !nodes.iter().any(|known| known.node == other.node) {
            nodes.push(other);
        }
    }
    nodes
}

/// All of the nodes: `n3 (Acting); n4, n5 (Planned)`. Empty if there are none.
pub fn by_step(nodes: &[UnfinishedNode]) -> String {
    let mut groups: Vec<(Option<Step>, Vec<&str>)> = Vec::new();
    for node in nodes {
        match groups.iter_mut().find(|(step, _)| *step == node.step) {
            Some((_, names)) => names.push(&node.node),
            None => groups.push((node.step, vec![&node.node])),
        }
    }
    let words = groups.into_iter().map(|(step, names)| {
        let step = step.map(|step| format!(" ({})", step.word())).unwrap_or_default();
        names.join(", ") + &step
    });
    words.collect::<Vec<_>>().join("; ")
}

/// The nodes whose command or Job runs again when the roll is resumed: `n1`, `n2 (--after)`.
pub fn run_again(nodes: &[UnfinishedNode]) -> Vec<String> {
    let again = nodes.iter().filter(|node| node.runs_again);
    let which = again.map(|UnfinishedNode { node, step, .. }| match step {
        Some(Step::Preparing) => format!("{node} (--before)"),
        Some(Step::Finishing) => format!("{node} (--after)"),
        _ => node.clone(),
    });
    which.collect()
}

/// That the command or the Job of the node whose reboot was waited for runs again when the roll is resumed; none if there is no such
/// node.
pub fn runs_unless_rebooted(nodes: &[UnfinishedNode]) -> Option<String> {
    let node = &nodes.iter().find(|node| node.awaits_reboot)?.node;
    Some(format!(
        "the action of {node} runs again when the roll is resumed and the node is Ready, unless it has rebooted by then"
    ))
}

/// The nodes whose command or Job runs again when the roll is resumed, in sentences.
pub fn again_sentences(nodes: &[UnfinishedNode]) -> Vec<String> {
    let failed = Some(run_again(nodes)).filter(|nodes| !nodes.is_empty());
    let failed =
        failed.map(|nodes| format!("The action of {} failed, and runs again on resume.", nodes.join(", ")));
    failed.into_iter().chain(runs_unless_rebooted(nodes).map(|again| sentence(&again))).collect()
}

/// How the nodes that an aborted roll leaves in maintenance return to service.
pub fn return_hint(roll: &str, nodes: &[&str]) -> String {
    let them = match nodes {
        [_] => "the node",
        _ => "them",
    };
    let stop = nodes.join(" ");
    format!(
        "once the work is done, `kubectl nm roll abort {roll} --return` or `kubectl nm stop {stop}` returns {them} to service"
    )
}

#[cfg(test)]
mod tests {
    use nm_core::testing::objects::requested;
    use nm_shared::NodeMaintenance;
    use serde_json::json;

    use super::*;
    use crate::absence::{Departure, LeftNode};
    use crate::record::{LABEL, NODE, SETTINGS};

    fn maintenance(name: &str, position: usize, step: &str, failed: bool) -> Arc<NodeMaintenance> {
        let settings = json!({"waves": [9], "maxUnavailable": 1, "expectReboot": true, "minReadySeconds": 30, "actionTimeoutSeconds": 1,
            "returnTimeoutSeconds": 1, "recoveryTimeoutSeconds": 1});
        let mut node =
            json!({"wave": 0, "position": position, "step": step, "since": "2026-01-02T03:04:05Z"});
        if failed {
            node["action"] = json!({"attempt": 1, "state": {"failed": "the command ended with exit code 1"}});
        }
        let mut object = requested(name);
        object.metadata.labels = Some([(LABEL.to_owned(), "r".to_owned())].into());
        let annotations = [(SETTINGS.to_owned(), settings.to_string()), (NODE.to_owned(), node.to_string())];
        object.metadata.annotations = Some(annotations.into());
        Arc::new(object)
    }

    #[test]
    fn the_action_of_a_node_that_has_not_rebooted_runs_again() {
        let roll = Roll::find("r", &[maintenance("n1", 0, "Rejoining", true)]).unwrap().unwrap();
        let halted = |node: &str| {
            let halt = json!({"node": node, "message": "it has not rebooted", "at": "2026-01-02T03:04:05Z"});
            let record: RollRecord = serde_json::from_value(json!({"revision": 2, "halt": halt})).unwrap();
            runs_unless_rebooted(&unfinished(Some(&roll), &record))
        };
        let words = "the action of n1 runs again when the roll is resumed and the node is Ready, unless it has rebooted by then";
        assert_eq!(halted("n1").as_deref(), Some(words));
        assert_eq!(halted("n2"), None, "it is still waited for");
        let mut object = (*maintenance("n1", 0, "Acting", false)).clone();
        let node = json!({"wave": 0, "position": 0, "step": "Acting", "since": "2026-01-02T03:04:05Z",
            "action": {"attempt": 1, "state": {"jobFailed": "BackoffLimitExceeded"}}});
        object.metadata.annotations.get_or_insert_default().insert(NODE.to_owned(), node.to_string());
        let roll = Roll::find("r", &[Arc::new(object)]).unwrap().unwrap();
        let left = unfinished(Some(&roll), &RollRecord::default());
        assert_eq!(again_sentences(&left), [sentence(words)], "the reboot may have ended its pod");
    }

    #[test]
    fn every_node_that_is_not_done_is_named_with_its_step() {
        let objects = [
            maintenance("n1", 0, "Soaking", false),
            maintenance("n2", 1, "Acting", true),
            maintenance("n3", 2, "Planned", false),
            maintenance("n4", 3, "Planned", false),
        ];
        let after = UnfinishedNode {
            node: String::from("n9"),
            step: Some(Step::Finishing),
            runs_again: true,
            awaits_reboot: false,
            evicts_awaited: None,
        };
        assert_eq!(run_again(&[after]), ["n9 (--after)"]);
        let roll = Roll::find("r", &objects).unwrap().unwrap();
        let names = |names: &[&str]| names.iter().map(ToString::to_string).collect::<Vec<_>>();
        let record = RollRecord {
            released: names(&["n1"]),
            nodes: names(&["n2", "n3", "n4", "n5", "n6", "n7"]),
            skipped: names(&["n6"]),
            left: vec![LeftNode { node: "n7".into(), why: Departure::MaintenanceDeleted }],
            ..RollRecord::default()
        };
        let left = unfinished(Some(&roll), &record);
        assert_eq!(by_step(&left), "n2 (Acting); n3, n4 (Planned); n5");
        assert_eq!(run_again(&left), ["n2"]);
        assert_eq!(runs_unless_rebooted(&left), None);
        assert_eq!(by_step(&unfinished(None, &record)), "n2, n3, n4, n5");
        assert_eq!(by_step(&[]), "");
        assert_eq!(
            return_hint("r", &["n1", "n2"]),
            "once the work is done, `kubectl nm roll abort r --return` or `kubectl nm stop n1 n2` returns them to service"
        );
    }
}
