//! How many nodes may be out of service at once, and who waits for whom.
//!
//! Every maintenance comes to the same result by itself: those that wait are admitted in the order of their creation,
//! for as long as the limit allows, so two that are decided at the same moment never both take the last place. Who cannot
//! begin for another reason, as its status tells, stands in no line: a place kept free for it would help nobody.

use std::collections::HashSet;
use std::fmt;
use std::str::FromStr;

use k8s_openapi::api::core::v1::Node;

use crate::api::condition::{self, ConditionReason, ConditionType};
use crate::api::maintenance::NodeMaintenance;
use crate::api::status::NodeMaintenanceStatus;
use crate::cluster::node;
use crate::gate::ownership;

/// How many nodes may be unavailable at once: in maintenance, or not Ready for whatever reason.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MaxUnavailable {
    /// So many nodes.
    Nodes(usize),
    /// So many per cent of all nodes, rounded down, but never less than one node.
    Percent(usize),
}

impl MaxUnavailable {
    /// The limit for a cluster of `nodes` nodes.
    pub fn of(self, nodes: usize) -> usize {
        match self {
            Self::Nodes(limit) => limit,
            Self::Percent(percent) => (nodes * percent / 100).max(1),
        }
    }
}

/// A limit that is none.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("must be a number of nodes of at least 1, or a share such as 10% of at least 1% and at most 100%")]
pub struct InvalidLimit;

impl FromStr for MaxUnavailable {
    type Err = InvalidLimit;

    fn from_str(text: &str) -> Result<Self, InvalidLimit> {
        let number = |text: &str, most: usize| {
            let number = text.parse().ok().filter(|number| (1..=most).contains(number));
            number.ok_or(InvalidLimit)
        };
        match text.strip_suffix('%') {
            Some(percent) => number(percent, 100).map(Self::Percent),
            None => number(text, usize::MAX).map(Self::Nodes),
        }
    }
}

impl fmt::Display for MaxUnavailable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Nodes(limit) => write!(f, "{limit}"),
            Self::Percent(percent) => write!(f, "{percent}%"),
        }
    }
}

/// Why `maintenance` waits, with its place in line; none if it may go to work.
///
/// `all` are the maintenances of the cluster, this one among them. `at_work` says which have begun although their status
/// may not tell yet: nobody who comes later takes their place, however early by name.
pub fn position<'a>(
    maintenance: &NodeMaintenance,
    all: impl IntoIterator<Item = &'a NodeMaintenance>,
    at_work: impl Fn(&NodeMaintenance) -> bool,
    nodes: &[impl AsRef<Node>],
    limit: MaxUnavailable,
) -> Option<String> {
    let has_begun = |maintenance: &NodeMaintenance| ownership::has_begun(maintenance) || at_work(maintenance);
    if has_begun(maintenance) {
        return None;
    }
    let all: Vec<&NodeMaintenance> = all.into_iter().collect();
    let node = |name: &str| nodes.iter().map(AsRef::as_ref).find(|node| node::name(node) == name);
    let is_control_plane = |name: &str| node(name).is_some_and(node::is_control_plane);
    let begun = || all.iter().filter(|other| has_begun(other)).map(|other| other.spec.node_name.as_str());
    let down = nodes.iter().map(AsRef::as_ref).filter(|node| !node::is_ready(node)).map(node::name);
    let mut unavailable: HashSet<&str> = down.chain(begun()).collect();
    let mut control_plane: HashSet<&str> = begun().filter(|name| is_control_plane(name)).collect();
    let allowed = limit.of(nodes.len());

    let mut line: Vec<&NodeMaintenance> =
        all.iter().copied().filter(|other| is_wanted(other) && !has_begun(other)).collect();
    line.sort_by_key(|other| ownership::age_rank(other));
    let is_this = |other: &NodeMaintenance| other.metadata.uid == maintenance.metadata.uid;
    let (mut ahead, mut taken) = (0, HashSet::new());
    for other in line.into_iter().filter(|other| node(&other.spec.node_name).is_some()) {
        let name = other.spec.node_name.as_str();
        // The others of a node are duplicates of the oldest, whatever that waits for.
        let is_oldest = taken.insert(name);
        let takes_part = is_this(other) || (is_oldest && may_be_queued(other));
        if !takes_part {
            continue;
        }
        let turn = if is_control_plane(name) && control_plane.iter().any(|other| *other != name) {
            Err("one control-plane node at a time goes into maintenance".to_owned())
        } else if unavailable.contains(name) || unavailable.len() < allowed {
            Ok(())
        } else {
            let count = unavailable.len();
            Err(format!("{count} of {} nodes are unavailable and {limit} may be", nodes.len()))
        };
        match turn {
            Ok(()) => {
                unavailable.insert(name);
                control_plane.extend(is_control_plane(name).then_some(name));
            }
            Err(_) if !is_this(other) => ahead += 1,
            Err(reason) => return Some(format!("{reason}: place {} in line", ahead + 1)),
        }
        if is_this(other) {
            return None;
        }
    }
    None
}

/// Whether a maintenance that has not begun may do so as soon as there is a place, for all that its status tells: one
/// that says nothing yet may begin with the next look.
pub fn may_be_queued(maintenance: &NodeMaintenance) -> bool {
    maintenance.status.as_ref().is_none_or(status_allows_queueing)
}

/// Whether others may have waited for what is told to be free now: a maintenance that was at work or in line is neither
/// any more.
pub fn frees_a_place(before: Option<&NodeMaintenanceStatus>, after: &NodeMaintenanceStatus) -> bool {
    let counts = |status: &NodeMaintenanceStatus| {
        status_allows_queueing(status) || condition::is_true(&status.conditions, ConditionType::Cordoned)
    };
    before.is_none_or(counts) && !counts(after)
}

/// A status without our conditions tells nothing. What a maintenance waits for is the reason why its node is not drained.
fn status_allows_queueing(status: &NodeMaintenanceStatus) -> bool {
    let drained = condition::find(&status.conditions, ConditionType::Drained);
    drained.is_none_or(|drained| drained.reason == ConditionReason::MaxUnavailable.as_str())
}

fn is_wanted(maintenance: &NodeMaintenance) -> bool {
    maintenance.metadata.deletion_timestamp.is_none()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use std::sync::Arc;

    fn node(name: &str, ready: &str) -> Arc<Node> {
        let labels = if name.starts_with("cp") {
            json!({"node-role.kubernetes.io/control-plane": ""})
        } else {
            json!({})
        };
        let conditions = json!([{"type": "Ready", "status": ready}]);
        let node =
            json!({"metadata": {"name": name, "labels": labels}, "status": {"conditions": conditions}});
        Arc::new(serde_json::from_value(node).unwrap())
    }

    /// A maintenance of the node of the same name, created at that second; with a `+` it has begun, and after a `:`
    /// stands what it waits for.
    fn maintenance(text: &str, second: usize) -> NodeMaintenance {
        let (text, reason) = text.split_once(':').unwrap_or((text, ""));
        let name = text.trim_end_matches('+');
        let at = format!("2026-01-01T00:00:{second:02}Z");
        let condition = |type_: &str, status: &str, reason: &str| json!({"type": type_, "status": status, "reason": reason, "message": "", "lastTransitionTime": at});
        let conditions = match (text.ends_with('+'), reason) {
            (true, _) => vec![condition("Cordoned", "True", ""), condition("Drained", "False", "Evicting")],
            (false, "") => vec![],
            (false, reason) => {
                vec![condition("Cordoned", "False", reason), condition("Drained", "False", reason)]
            }
        };
        serde_json::from_value(json!({
            "apiVersion": "nodemaintenance.medik8s.io/v1beta1", "kind": "NodeMaintenance",
            "metadata": {"name": name, "uid": format!("{name} {second}"), "creationTimestamp": at},
            "spec": {"nodeName": name}, "status": {"conditions": conditions},
        }))
        .unwrap()
    }

    /// What each of these maintenances, oldest first, waits for.
    fn check(maintenances: &[&str], limit: &str, expected: &[Option<&str>]) {
        let names = ["a", "b", "c", "d", "e", "f", "cp1", "cp2"];
        let mut nodes: Vec<Arc<Node>> = names.map(|name| node(name, "True")).to_vec();
        nodes.extend([node("down1", "False"), node("cp3", "Unknown")]);
        let all: Vec<NodeMaintenance> =
            maintenances.iter().enumerate().map(|(second, text)| maintenance(text, second)).collect();
        let limit = limit.parse().unwrap();
        for (maintenance, expected) in all.iter().zip(expected) {
            let found = position(maintenance, all.iter().rev(), |_| false, &nodes, limit);
            assert_eq!(found.as_deref(), *expected, "{maintenances:?}: {:?}", maintenance.metadata.name);
        }
    }

    #[test]
    fn nodes_that_are_down_count_and_the_others_wait_in_the_order_of_their_creation() {
        let first = Some("4 of 10 nodes are unavailable and 4 may be: place 1 in line");
        let second = Some("4 of 10 nodes are unavailable and 4 may be: place 2 in line");
        check(&["a", "b", "c", "d"], "4", &[None, None, first, second]);
        check(
            &["a+", "b+", "c", "d"],
            "40%",
            &[None, None, Some("4 of 10 nodes are unavailable and 40% may be: place 1 in line")],
        );
        check(&["a+", "b+", "down1", "c"], "4", &[None, None, None, first]);
        check(&["a", "no-such-node", "b", "c"], "5", &[None, None, None, None]);
    }

    #[test]
    fn control_plane_nodes_go_one_at_a_time_and_hold_up_nobody_else() {
        let one = Some("one control-plane node at a time goes into maintenance: place 1 in line");
        check(&["cp1+", "cp2", "a"], "9", &[None, one, None]);
        check(&["cp1", "cp2", "a"], "9", &[None, one, None]);
        check(&["cp1+", "cp3", "a"], "9", &[None, one, None]);
        check(&["cp3", "cp1", "a"], "9", &[None, one, None]);
    }

    #[test]
    fn who_cannot_begin_for_another_reason_keeps_no_place_from_the_others() {
        let first = Some("3 of 10 nodes are unavailable and 3 may be: place 1 in line");
        let second = Some("3 of 10 nodes are unavailable and 3 may be: place 2 in line");
        for held in ["LeaseHeld", "QuorumAtRisk", "LeaseLost", "DuplicateMaintenance", "MissingRights"] {
            check(&[&format!("a:{held}"), "b", "c"], "3", &[None, None, first]);
        }
        check(&["a:MaxUnavailable", "b", "c"], "3", &[None, first, second]);
    }

    #[test]
    fn a_duplicate_of_one_that_waits_makes_nobodys_place_worse() {
        let first = Some("3 of 10 nodes are unavailable and 3 may be: place 1 in line");
        let second = Some("3 of 10 nodes are unavailable and 3 may be: place 2 in line");
        check(&["a+", "b", "b", "c"], "3", &[None, first, second, second]);
        check(&["a:LeaseHeld", "a", "b"], "3", &[None, None, None]);
    }

    #[test]
    fn the_others_are_told_when_one_is_in_line_or_at_work_no_more() {
        let status = |text: &str| maintenance(text, 0).status.unwrap();
        for (before, after, expected) in [
            ("a", "a:LeaseHeld", true),
            ("a", "a:MaxUnavailable", false),
            ("a", "a+", false),
            ("a:MaxUnavailable", "a:QuorumAtRisk", true),
            ("a:QuorumAtRisk", "a:LeaseHeld", false),
            ("a:LeaseHeld", "a:MaxUnavailable", false),
            ("a+", "a:LeaseLost", true),
        ] {
            assert_eq!(frees_a_place(Some(&status(before)), &status(after)), expected, "{before} {after}");
        }
        assert!(frees_a_place(None, &status("a:DuplicateMaintenance")));
    }

    #[test]
    fn a_maintenance_that_ends_keeps_its_place_until_it_is_gone_and_one_that_never_began_has_none() {
        let mut ending = maintenance("a+", 0);
        ending.metadata.deletion_timestamp = ending.metadata.creation_timestamp.clone();
        let waiting = maintenance("b", 1);
        let nodes = [node("a", "True"), node("b", "True")];
        let one = MaxUnavailable::Nodes(1);
        assert!(position(&waiting, [&ending, &waiting], |_| false, &nodes, one).is_some());
        let mut withdrawn = maintenance("a", 0);
        withdrawn.metadata.deletion_timestamp = withdrawn.metadata.creation_timestamp.clone();
        assert_eq!(position(&waiting, [&withdrawn, &waiting], |_| false, &nodes, one), None);
    }

    #[test]
    fn who_is_at_work_keeps_the_place_though_one_of_an_earlier_name_comes_in_the_same_second() {
        let (late, early) = (maintenance("b", 0), maintenance("a", 0));
        let nodes = [node("a", "True"), node("b", "True")];
        let wait_of = |of: &NodeMaintenance, at_work: &str| {
            let is_at_work = |other: &NodeMaintenance| other.metadata.name.as_deref() == Some(at_work);
            position(of, [&late, &early], is_at_work, &nodes, MaxUnavailable::Nodes(1))
        };
        assert_eq!((wait_of(&late, "b"), wait_of(&early, "b").is_some()), (None, true));
        assert_eq!((wait_of(&late, "").is_some(), wait_of(&early, "")), (true, None));
    }

    #[test]
    fn a_limit_is_a_number_of_nodes_or_a_share_of_them() {
        for (text, expected) in [("3", Some(3)), ("25%", Some(2)), ("1%", Some(1)), ("100%", Some(10))] {
            assert_eq!(text.parse::<MaxUnavailable>().ok().map(|limit| limit.of(10)), expected, "{text}");
            assert_eq!(text.parse::<MaxUnavailable>().unwrap().to_string(), text);
        }
        for bad in ["", "0", "-1", "0%", "101%", "a", "1.5", "%"] {
            assert_eq!(bad.parse::<MaxUnavailable>(), Err(InvalidLimit), "{bad}");
        }
    }
}
