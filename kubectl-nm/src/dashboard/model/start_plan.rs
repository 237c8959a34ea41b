//! Which nodes a person means to put into maintenance, and which of them can be.

use nm_shared::{NodeMaintenance, NodeMaintenanceSpec};

use crate::args::node_name;
use crate::dashboard::model::dialog::is_confirmed;
use crate::dashboard::model::field::Field;
use crate::dashboard::model::filter::{fits, is_pattern};
use crate::dashboard::model::fleet::Fleet;
use crate::maintenance::start;

/// How many names a hint lists.
const HINTED: usize = 4;

/// What starting the nodes of a text comes to.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct StartPlan {
    /// The nodes to be put into maintenance.
    pub(crate) nodes: Vec<String>,
    /// Why some cannot be, so that nothing is started.
    pub(crate) problems: Vec<String>,
    /// Which are left out, because there is nothing to do for them.
    pub(crate) left_out: Vec<String>,
    /// Which of the nodes are of the control plane.
    pub(crate) control_plane: Vec<String>,
    /// Whether nobody knows if the nodes exist.
    pub(crate) unchecked: bool,
}

impl StartPlan {
    /// Reads names and patterns, separated by blanks of any kind or commas.
    pub(crate) fn of(text: &str, fleet: &Fleet, nodes_are_known: bool) -> Self {
        let mut plan = Self { unchecked: !nodes_are_known, ..Self::default() };
        for word in text.split(|c: char| c.is_whitespace() || c == ',').filter(|word| !word.is_empty()) {
            if is_pattern(word) {
                plan.add_all(word, fleet);
            } else {
                plan.add_one(word, fleet);
            }
        }
        let is_control_plane = |node: &&String| fleet.marks(node).is_some_and(|marks| marks.control_plane);
        plan.control_plane = plan.nodes.iter().filter(is_control_plane).cloned().collect();
        plan
    }

    /// The same with a reason as it was typed.
    pub(crate) fn because(mut self, reason: &str) -> Self {
        self.problems.extend(start::reason_problem(reason.trim()));
        self
    }

    /// Whether nothing is meant yet.
    pub(crate) fn is_empty(&self) -> bool {
        self.nodes.is_empty() && self.problems.is_empty() && self.left_out.is_empty()
    }

    /// Whether what was typed lets it through, which nothing does while there is a problem.
    pub(crate) fn is_confirmed(&self, typed: &Field) -> bool {
        self.problems.is_empty() && is_confirmed(typed, self.nodes.len())
    }

    /// The objects to create.
    pub(crate) fn objects(&self, reason: &str) -> Vec<NodeMaintenance> {
        let reason = Some(reason.trim()).filter(|reason| !reason.is_empty());
        let object = |node: &String| {
            let spec = NodeMaintenanceSpec {
                node_name: node.clone(),
                reason: reason.map(str::to_owned),
                ..NodeMaintenanceSpec::default()
            };
            NodeMaintenance::new(node, spec)
        };
        self.nodes.iter().map(object).collect()
    }

    fn add_all(&mut self, pattern: &str, fleet: &Fleet) {
        if self.unchecked {
            self.problems.push(format!(
                "{pattern}: the nodes are not known here, so that names must be typed in full"
            ));
            return;
        }
        let fitting: Vec<&str> = fleet.node_names().filter(|name| fits(pattern, name)).collect();
        if fitting.is_empty() {
            self.problems.push(format!("no node is called {pattern}"));
        }
        let (free, busy): (Vec<&str>, Vec<&str>) =
            fitting.into_iter().partition(|name| refusal(name, fleet).is_none());
        if !busy.is_empty() {
            self.left_out.push(format!("{pattern}: {} in maintenance already, left out", busy.len()));
        }
        for name in free {
            self.add(name);
        }
    }

    fn add_one(&mut self, word: &str, fleet: &Fleet) {
        let name = match node_name::parse(word) {
            Ok(name) => name,
            Err(problem) => return self.problems.push(format!("{word}: {problem}")),
        };
        if !self.unchecked && fleet.marks(&name).is_none() {
            let known: Vec<&str> =
                fleet.node_names().filter(|known| known.starts_with(&name)).take(HINTED + 1).collect();
            let hint = match known.len() {
                0 => String::new(),
                count if count > HINTED => format!("; there are {}, ...", known[..HINTED].join(", ")),
                _ => format!("; there is {}", known.join(", ")),
            };
            return self.problems.push(format!("there is no node {name}{hint}"));
        }
        match (refusal(&name, fleet), is_on_its_way(&name, fleet)) {
            (None, _) => self.add(&name),
            (Some(reason), true) => self.left_out.push(format!("{name} {reason}, left out")),
            (Some(reason), false) => self.problems.push(format!("{name} {reason}")),
        }
    }

    fn add(&mut self, name: &str) {
        if !self.nodes.iter().any(|known| known == name) {
            self.nodes.push(name.to_owned());
        }
    }
}

/// Whether the node is where it is to be put: in maintenance.
fn is_on_its_way(node: &str, fleet: &Fleet) -> bool {
    fleet.maintenance_of(node).is_some_and(|object| object.metadata.deletion_timestamp.is_none())
}

/// Why a node cannot be put into maintenance, if it cannot.
fn refusal(node: &str, fleet: &Fleet) -> Option<String> {
    if let Some(object) = fleet.maintenance_of(node) {
        return Some(match object.metadata.deletion_timestamp {
            Some(_) => String::from("is still being given back"),
            None => String::from("is in maintenance already"),
        });
    }
    let namesake = fleet.named(node)?;
    Some(format!("cannot have a maintenance of its name: that is for node {}", namesake.spec.node_name))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::dashboard::message::{Change, NodeMarks};
    use crate::maintenance::fixture::{named, requested, stopping};

    fn fleet() -> Fleet {
        let mut fleet = Fleet::of(vec![]);
        let marks = |name: &str| NodeMarks {
            name: name.to_owned(),
            control_plane: name.starts_with("cp"),
            ..NodeMarks::default()
        };
        let nodes = ["cp-1", "w-1", "w-2", "w-3", "w-4", "w-5", "w-6", "x-1"];
        fleet.see_nodes(&Change::All(nodes.map(|name| Arc::new(marks(name))).to_vec()));
        let objects = [requested("w-1"), stopping(requested("w-2")), named("w-3", "x-1", "u")];
        fleet.see(&Change::All(objects.into_iter().map(Arc::new).collect()));
        fleet
    }

    #[test]
    fn names_and_patterns_become_nodes_and_whatever_cannot_is_told() {
        for (text, nodes, left_out) in [
            ("", &[][..], &[][..]),
            ("w-4,w-5 node/w-4", &["w-4", "w-5"], &[]),
            ("w-?", &["w-4", "w-5", "w-6"], &["w-?: 3 in maintenance already, left out"]),
            ("w-1 w-4", &["w-4"], &["w-1 is in maintenance already, left out"]),
        ] {
            let plan = StartPlan::of(text, &fleet(), true);
            let known: Vec<String> = nodes.iter().map(ToString::to_string).collect();
            assert_eq!((plan.is_empty(), plan.problems), (text.is_empty(), vec![]), "{text}");
            assert_eq!(
                (plan.nodes, plan.left_out),
                (known, left_out.iter().map(ToString::to_string).collect())
            );
        }
        for (text, nodes, problems) in [
            ("w-4 nobody", &["w-4"][..], &["there is no node nobody"][..]),
            ("z*", &[], &["no node is called z*"]),
            ("w-2", &[], &["w-2 is still being given back"]),
            ("w-3", &[], &["w-3 cannot have a maintenance of its name: that is for node x-1"]),
            ("cp", &[], &["there is no node cp; there is cp-1"]),
            ("w-", &[], &["w-: a node's name consists of lower case letters, digits, '-' and '.'"]),
            ("w", &[], &["there is no node w; there are w-1, w-2, w-3, w-4, ..."]),
            ("nobody", &[], &["there is no node nobody"]),
        ] {
            let plan = StartPlan::of(text, &fleet(), true);
            assert!(!plan.is_confirmed(&Field::new(nodes.len().to_string())), "{text}");
            assert_eq!(
                (plan.nodes, plan.problems),
                (
                    nodes.iter().map(ToString::to_string).collect(),
                    problems.iter().map(ToString::to_string).collect()
                ),
                "{text}"
            );
        }
    }

    #[test]
    fn who_may_not_list_nodes_types_names_in_full() {
        let plan = StartPlan::of("nobody w*", &fleet(), false);
        assert_eq!(plan.nodes, ["nobody"]);
        assert_eq!(plan.problems, ["w*: the nodes are not known here, so that names must be typed in full"]);
        assert!(plan.unchecked);
    }

    #[test]
    fn a_reason_that_is_too_long_is_a_problem_before_anything_is_sent() {
        let plan = |reason: &str| StartPlan::of("cp-1", &fleet(), true).because(reason);
        assert_eq!(plan(&"\u{e9}".repeat(1024)).problems, Vec::<String>::new());
        assert_eq!(
            plan(&"x".repeat(1025)).problems,
            ["a reason has at most 1024 characters, and this one has 1025"]
        );
    }

    #[test]
    fn objects_carry_the_reason_and_the_control_plane_is_pointed_out() {
        let plan = StartPlan::of("cp-1", &fleet(), true);
        assert_eq!(plan.control_plane, ["cp-1"]);
        let reasons = |reason| plan.objects(reason)[0].spec.reason.clone();
        assert_eq!((reasons(" new kernel "), reasons("  ")), (Some("new kernel".into()), None));
        assert_eq!(plan.objects("")[0].metadata.name.as_deref(), Some("cp-1"));
    }
}
