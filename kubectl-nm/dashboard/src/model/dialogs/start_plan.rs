//! The nodes that the text of the start dialog selects, and which of them can be put into maintenance.

use nm_core::args::names;
use nm_core::maintenance::start;
use nm_core::terminal::command_context::shell_quoted;
use nm_shared::{DrainSpec, NodeMaintenance, NodeMaintenanceSpec};

use crate::model::dialogs::start_options::{self, StartOptions};
use crate::model::dialogs::start_preview::PlanRequest;
use crate::model::dialogs::{StartField, is_confirmed};
use crate::model::fleet::Fleet;
use crate::model::lists::filter::{is_pattern, name_expression};
use crate::model::text_field::Field;

const MAX_HINTED_NODES: usize = 4;

#[derive(Debug, Default, PartialEq)]
pub(crate) struct StartPlan {
    pub(crate) nodes: Vec<String>,
    /// Errors; nothing starts while there are any.
    pub(crate) problems: Vec<String>,
    /// Notices about nodes that are skipped, because they are in maintenance.
    pub(crate) skipped: Vec<String>,
    pub(crate) control_plane: Vec<String>,
    /// Whether the nodes of the cluster are not known, so that nothing verifies that these exist.
    pub(crate) unchecked: bool,
    /// The field of the first error.
    pub(crate) wrong: Option<StartField>,
    /// The drain that is requested; none is the default.
    pub(crate) drain: Option<DrainSpec>,
    /// Whether the maintenances are only planned.
    pub(crate) is_suspended: bool,
}

impl StartPlan {
    /// Parses names and patterns, separated by whitespace or commas.
    pub(crate) fn of(text: &str, fleet: &Fleet, nodes_are_known: bool) -> Self {
        let mut plan = Self { unchecked: !nodes_are_known, ..Self::default() };
        for word in text.split(|c: char| c.is_whitespace() || c == ',').filter(|word| !word.is_empty()) {
            if is_pattern(word) {
                plan.add_all(word, fleet);
            } else {
                plan.add_one(word, fleet);
            }
        }
        let is_control_plane =
            |node: &&String| fleet.node(node).is_some_and(|metadata| metadata.control_plane);
        plan.control_plane = plan.nodes.iter().filter(is_control_plane).cloned().collect();
        plan.wrong = (!plan.problems.is_empty()).then_some(StartField::Nodes);
        plan
    }

    pub(crate) fn with_reason(mut self, reason: &str) -> Self {
        if let Some(problem) = start::reason_problem(reason.trim()) {
            self.add_problem(StartField::Reason, problem);
        }
        self
    }

    pub(crate) fn with_options(mut self, text: &str) -> Self {
        match StartOptions::parse(text) {
            Ok(options) => {
                self.drain = options.spec();
                self.is_suspended = options.suspend;
            }
            Err(error) => self.add_problem(StartField::Options, error.to_string()),
        }
        self
    }

    fn add_problem(&mut self, field: StartField, problem: String) {
        self.problems.push(problem);
        self.wrong.get_or_insert(field);
    }

    /// What a preview is about; none while there are errors.
    pub(crate) fn request(&self) -> Option<PlanRequest> {
        let is_valid = self.problems.is_empty() && !self.nodes.is_empty();
        is_valid.then(|| PlanRequest { nodes: self.nodes.clone(), drain: self.drain.clone() })
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.nodes.is_empty() && self.problems.is_empty() && self.skipped.is_empty()
    }

    /// Whether the dialog may start: there are no errors, and several nodes are confirmed by their number.
    pub(crate) fn is_confirmed(&self, typed: &Field) -> bool {
        self.problems.is_empty() && is_confirmed(typed, self.nodes.len())
    }

    pub(crate) fn objects(&self, reason: &str) -> Vec<NodeMaintenance> {
        let reason = Some(reason.trim().to_owned()).filter(|reason| !reason.is_empty());
        let object = |node: &String| {
            let spec = NodeMaintenanceSpec {
                node_name: node.clone(),
                reason: reason.clone(),
                suspend: self.is_suspended,
                drain: self.drain.clone(),
            };
            NodeMaintenance::new(node, spec)
        };
        self.nodes.iter().map(object).collect()
    }

    /// The command that does the same, if there are nodes: `kubectl` is kubectl with the connection flags.
    pub(crate) fn command(&self, reason: &str, options: &str, kubectl: &str) -> Option<String> {
        let (program, flags) = kubectl.split_at_checked("kubectl".len()).unwrap_or((kubectl, ""));
        let mut more = start_options::quoted(options);
        if !reason.trim().is_empty() {
            more = format!("{more} --reason {}", shell_quoted(reason.trim()));
        }
        (!self.nodes.is_empty()).then(|| format!("{program} nm start {}{more}{flags}", self.nodes.join(" ")))
    }

    fn add_all(&mut self, pattern: &str, fleet: &Fleet) {
        if self.unchecked {
            self.problems.push(format!(
                "{pattern}: node names must be complete, because the nodes of the cluster are not known here"
            ));
            return;
        }
        let names = match name_expression(pattern) {
            Ok(names) => names,
            Err(error) => return self.problems.push(error.to_string()),
        };
        let fitting: Vec<&str> = fleet.node_names().filter(|name| names.is_match(name)).collect();
        if fitting.is_empty() {
            self.problems.push(format!("no node matches {pattern}"));
        }
        let (free, busy): (Vec<&str>, Vec<&str>) =
            fitting.into_iter().partition(|name| refusal(name, fleet).is_none());
        if !busy.is_empty() {
            self.skipped.push(format!("{pattern}: skips {} already in maintenance", busy.len()));
        }
        for name in free {
            self.add(name);
        }
    }

    fn add_one(&mut self, word: &str, fleet: &Fleet) {
        let name = match names::parse_node(word) {
            Ok(name) => name,
            Err(problem) => return self.problems.push(format!("{word}: {problem}")),
        };
        if !self.unchecked && fleet.node(&name).is_none() {
            let known: Vec<&str> = fleet
                .node_names()
                .filter(|known| known.starts_with(&name))
                .take(MAX_HINTED_NODES + 1)
                .collect();
            let hint = match known.len() {
                0 => String::new(),
                count if count > MAX_HINTED_NODES => {
                    format!("; did you mean {}, ...?", known[..MAX_HINTED_NODES].join(", "))
                }
                _ => format!("; did you mean {}?", known.join(", ")),
            };
            return self.problems.push(format!("node {name} does not exist{hint}"));
        }
        match (refusal(&name, fleet), is_active(&name, fleet)) {
            (None, _) => self.add(&name),
            (Some(reason), true) => self.skipped.push(format!("{name} {reason}: skipped")),
            (Some(reason), false) => self.problems.push(format!("{name} {reason}")),
        }
    }

    fn add(&mut self, name: &str) {
        if !self.nodes.iter().any(|known| known == name) {
            self.nodes.push(name.to_owned());
        }
    }
}

/// Whether the node is in maintenance, and its maintenance is not being stopped.
fn is_active(node: &str, fleet: &Fleet) -> bool {
    fleet.maintenance_of(node).is_some_and(|object| object.metadata.deletion_timestamp.is_none())
}

fn refusal(node: &str, fleet: &Fleet) -> Option<String> {
    if let Some(object) = fleet.maintenance_of(node) {
        return Some(match object.metadata.deletion_timestamp {
            Some(_) => String::from("is still returning to service"),
            None => String::from("is already in maintenance"),
        });
    }
    let namesake = fleet.named(node)?;
    Some(format!("is the name of a maintenance of node {}", namesake.spec.node_name))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use nm_core::client::watch_stream::WatchChange;
    use nm_core::testing::objects::{named, requested, stopping};
    use nm_core::watch::goal_tracker::{ExitCondition, GoalTracker};

    use super::*;
    use crate::objects::node_metadata::NodeMetadata;

    fn fleet() -> Fleet {
        let mut fleet = Fleet::new(vec![], GoalTracker::new(vec![], ExitCondition::Never));
        let metadata = |name: &str| NodeMetadata {
            name: name.to_owned(),
            control_plane: name.starts_with("cp"),
            ..NodeMetadata::default()
        };
        let nodes = ["cp-1", "w-1", "w-2", "w-3", "w-4", "w-5", "w-6", "x-1"];
        fleet.apply_nodes(&WatchChange::Listed(nodes.map(|name| Arc::new(metadata(name))).to_vec()));
        let objects = [requested("w-1"), stopping(requested("w-2")), named("w-3", "x-1", "u")];
        fleet.apply(&WatchChange::Listed(objects.into_iter().map(Arc::new).collect())).unwrap();
        fleet
    }

    #[test]
    fn names_and_patterns_select_nodes_and_report_those_that_cannot_start() {
        for (text, nodes, skipped) in [
            ("", &[][..], &[][..]),
            ("w-4,w-5 node/w-4", &["w-4", "w-5"], &[]),
            ("w-?", &["w-4", "w-5", "w-6"], &["w-?: skips 3 already in maintenance"]),
            ("w-1 w-4", &["w-4"], &["w-1 is already in maintenance: skipped"]),
        ] {
            let plan = StartPlan::of(text, &fleet(), true);
            let known: Vec<String> = nodes.iter().map(ToString::to_string).collect();
            assert_eq!((plan.is_empty(), plan.problems), (text.is_empty(), vec![]), "{text}");
            assert_eq!(
                (plan.nodes, plan.skipped),
                (known, skipped.iter().map(ToString::to_string).collect())
            );
        }
        for (text, nodes, problems) in [
            ("w-4 nobody", &["w-4"][..], &["node nobody does not exist"][..]),
            ("z*", &[], &["no node matches z*"]),
            ("w-2", &[], &["w-2 is still returning to service"]),
            ("w-3", &[], &["w-3 is the name of a maintenance of node x-1"]),
            ("cp", &[], &["node cp does not exist; did you mean cp-1?"]),
            ("w-", &[], &["w-: a node name consists of lowercase letters, digits, '-' and '.'"]),
            ("w", &[], &["node w does not exist; did you mean w-1, w-2, w-3, w-4, ...?"]),
            ("nobody", &[], &["node nobody does not exist"]),
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
    fn without_permission_to_list_nodes_names_must_be_complete() {
        let plan = StartPlan::of("nobody w*", &fleet(), false);
        assert_eq!(plan.nodes, ["nobody"]);
        assert_eq!(plan.problems.len(), 1);
        assert!(plan.unchecked);
    }

    #[test]
    fn a_reason_that_is_too_long_is_reported_before_anything_is_sent() {
        let plan = |reason: &str| StartPlan::of("cp-1", &fleet(), true).with_reason(reason);
        assert_eq!(plan(&"\u{e9}".repeat(1024)).problems, Vec::<String>::new());
        assert_eq!(
            plan(&"x".repeat(1025)).problems,
            ["a reason has at most 1024 characters, and this one has 1025"]
        );
    }

    #[test]
    fn objects_have_the_reason_and_control_plane_nodes_are_marked() {
        let plan = StartPlan::of("cp-1", &fleet(), true);
        assert_eq!(plan.control_plane, ["cp-1"]);
        let reasons = |reason| plan.objects(reason)[0].spec.reason.clone();
        assert_eq!((reasons(" new kernel "), reasons("  ")), (Some("new kernel".into()), None));
        assert_eq!(plan.objects("")[0].metadata.name.as_deref(), Some("cp-1"));
    }
    #[test]
    fn options_say_whether_nodes_begin_and_with_which_drain() {
        let plan = |options: &str| StartPlan::of("w-4 w-5 w-6", &fleet(), true).with_options(options);
        for (options, expected) in [("", false), ("--suspend", true)] {
            let plan = plan(options);
            let suspended: Vec<bool> = plan.objects("").iter().map(|object| object.spec.suspend).collect();
            assert_eq!(suspended, [expected; 3], "{options}");
            assert_eq!(plan.request().unwrap().nodes.len(), 3);
            assert_eq!(plan.problems, Vec::<String>::new());
        }
        let limited = plan("--timeout 10m");
        assert_eq!(limited.objects("")[2].spec.drain.as_ref().unwrap().timeout_seconds, 600);
        let wrong = plan("--timeout soon");
        let expected = (Some(StartField::Options), 1, None);
        assert_eq!((wrong.wrong, wrong.problems.len(), wrong.request()), expected, "{wrong:?}");
    }

    #[test]
    fn the_command_that_does_the_same_is_shown() {
        let command = |nodes: &str, options: &str| {
            let plan = StartPlan::of(nodes, &fleet(), true).with_options(options);
            plan.command(" new kernel ", options, "kubectl --context=prod")
        };
        for (nodes, options, expected) in [
            (
                "w-4",
                "--pod-selector 'a in (b)'",
                Some("w-4 --pod-selector 'a in (b)' --reason 'new kernel' --context=prod"),
            ),
            ("w-4 w-5", "--suspend", Some("w-4 w-5 --suspend --reason 'new kernel' --context=prod")),
            ("", "", None),
        ] {
            let expected = expected.map(|words| format!("kubectl nm start {words}"));
            assert_eq!(command(nodes, options), expected);
        }
    }
}
