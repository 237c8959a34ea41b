//! The words of replacements for which no node is left: why, and what to do.

use std::collections::BTreeSet;

use nm_shared::cluster::node_fit::Unfit;
use nm_shared::cluster::temporary_taint::is_of_condition;

use crate::explain::cause::capitalized;
use crate::explain::cause_wording::{Told, Words};
use crate::explain::no_node_left::{NoNodeLeft, Selection};
use crate::terminal::command_context::shell_quoted;
use crate::terminal::text::first_names;

/// Of this many reasons, it is said which nodes they keep from a pod.
const MAX_REASONS: usize = 3;

impl Words<'_> {
    pub(super) fn no_node_left(&self, left: &NoNodeLeft) -> Told {
        let (advice, commands) = self.for_want_of_a_node(left);
        let replacements = if self.subjects.len() == 1 { "replacement" } else { "replacements" };
        let why = self.why_no_node_is_left(left);
        Told {
            what: Some(format!("No node is left for the {replacements} {}: {why}.", self.subjects())),
            advice,
            commands,
            passes: false,
        }
    }

    /// `n1 is in maintenance`, `its nodeSelector pool=blue selects only n1, which is in maintenance`.
    pub(super) fn why_no_node_is_left(&self, left: &NoNodeLeft) -> String {
        let which = if left.selection.is_some() { ", which" } else { "" };
        let list = |nodes: &BTreeSet<String>, what: &str| {
            let names: Vec<String> = nodes.iter().cloned().collect();
            let be = if nodes.len() == 1 { "is" } else { "are" };
            format!("{}{which} {be} {what}", first_names(&names))
        };
        let selected = if left.selection.is_some() { left.excluded.clone() } else { BTreeSet::new() };
        let ours = if left.are_all_off() {
            list(&left.away, "in maintenance and not Ready")
        } else {
            list(&(&left.in_maintenance | &selected), "in maintenance")
        };
        let nodes = if left.cordoned.is_empty() {
            ours
        } else {
            format!("{ours}, and {}", list(&left.cordoned, "cordoned"))
        };
        let it = if self.subjects.len() == 1 { "it" } else { "them" };
        let nodes = nodes + &unfit_others(left);
        let nodes = match selected.into_iter().collect::<Vec<_>>().as_slice() {
            [] => nodes,
            kept_from => format!("{nodes}, and other pods keep {it} from {}", first_names(kept_from)),
        };
        let their = if self.subjects.len() == 1 { "its" } else { "their" };
        match &left.selection {
            None => nodes,
            Some(Selection::NodeAffinity { .. }) => format!("{their} node affinity selects only {nodes}"),
            Some(Selection::Volumes(local)) => {
                let (volume, is) = match local.as_slice() {
                    [] => (String::from("volumes"), "are"),
                    [one] => (format!("local volume {one}"), "is"),
                    several => (format!("local volumes {}", first_names(several)), "are"),
                };
                format!("{their} {volume} {is} accessible only from {nodes}")
            }
            Some(Selection::NodeSelector(labels)) => {
                let labels: Vec<String> =
                    labels.iter().map(|(label, value)| format!("{label}={value}")).collect();
                format!("{their} nodeSelector {} selects only {nodes}", labels.join(","))
            }
        }
    }

    /// What to do about pods for which no node is left.
    fn for_want_of_a_node(&self, left: &NoNodeLeft) -> (String, Vec<String>) {
        let ways = self.ways_back(left.returnable());
        let once = if left.are_all_off() { " once it is Ready again" } else { "" };
        let Some(selection) = &left.selection else {
            let (single, several) = ("return one to service", "return one of these nodes to service");
            let advice =
                ways.after(&more_nodes(left), &format!("{single}{once}"), &format!("{several}{once}"));
            return (advice, ways.commands_after(self.uncordon(left), self));
        };
        let commands = ways.commands(self);
        let once = if left.are_all_off() { " once the node is Ready again" } else { "" };
        let (single, several) = ("stop the maintenance", "stop one of the maintenances");
        let or = ways.words(&format!("{single}{once}"), &format!("{several}{once}"));
        let selector = match selection {
            Selection::NodeSelector(_) => "nodeSelector",
            Selection::NodeAffinity { .. } => "node affinity",
            Selection::Volumes(local) if local.is_empty() => {
                return (format!("Add a node that can access the volumes, or {or}"), commands);
            }
            Selection::Volumes(_) => return (format!("To make the pod available again, {or}"), commands),
        };
        let edit = self.edited_owners();
        if self.are_all_of_jobs() {
            return (capitalized(&or), commands);
        }
        let whose = if edit.len() == 1 { "its workload" } else { "their workloads" };
        let add = (!selection.names_nodes()).then(|| format!("add a node that the {selector} selects"));
        let change = format!("change the {selector} of {whose}");
        let ways: Vec<String> = repairs(left).into_iter().chain(add).chain([change]).collect();
        let advice = capitalized(&format!("{}, or {or}", ways.join(", ")));
        (advice, self.uncordon(left).into_iter().chain(edit).chain(commands).collect())
    }

    /// The commands of [`repairs`], whose words have the condition.
    pub(super) fn uncordon(&self, left: &NoNodeLeft) -> Vec<String> {
        let uncordon = |node: &String| format!("{} uncordon {}", self.kubectl, shell_quoted(node));
        self.few(left.cordoned.iter().map(uncordon))
    }
}

/// `add a node, make n4 Ready`: what provides a node without the end of a maintenance.
pub(super) fn more_nodes(left: &NoNodeLeft) -> String {
    let ways: Vec<String> = std::iter::once(String::from("add a node")).chain(repairs(left)).collect();
    ways.join(", ")
}

/// `make n4 Ready`, `uncordon n1 if the cordon is not needed any more`: what lets pods use the nodes that there are.
pub(super) fn repairs(left: &NoNodeLeft) -> Vec<String> {
    let unready: Vec<String> = left.unready.iter().cloned().collect();
    let repair = (!unready.is_empty()).then(|| format!("make {} Ready", first_names(&unready)));
    // Somebody may still need it.
    let cordoned: Vec<String> = left.cordoned.iter().cloned().collect();
    let uncordon = match cordoned.as_slice() {
        [] => None,
        [only] => Some(format!("uncordon {only} if the cordon is not needed any more")),
        _ => Some(format!("uncordon {} if the cordons are not needed any more", first_names(&cordoned))),
    };
    let is_of_somebody = |unfit: &Unfit| matches!(unfit, Unfit::Taint(taint) if !is_of_condition(taint));
    let tainted = left.others.iter().filter(|(unfit, _)| is_of_somebody(unfit));
    let tainted: BTreeSet<&String> = tainted.flat_map(|(_, nodes)| nodes).collect();
    let tainted: Vec<String> = tainted.into_iter().cloned().collect();
    let untaint = match tainted.as_slice() {
        [] => None,
        [only] => Some(format!("remove the taint from {only} if it is not needed any more")),
        _ => {
            Some(format!("remove the taints from {} if they are not needed any more", first_names(&tainted)))
        }
    };
    [repair, uncordon, untaint].into_iter().flatten().collect()
}

/// `; n2, n3 have the taint role:NoSchedule; n4 is not Ready`: why no other node is left, where somebody may change that. Or, after
/// what selects the nodes: `, and n4, which is not Ready`.
fn unfit_others(left: &NoNodeLeft) -> String {
    let (and, which) = if left.selection.is_some() { (", and", ", which") } else { (";", "") };
    let words = |(unfit, nodes): (&Unfit, &BTreeSet<String>)| {
        let (be, have) = if nodes.len() == 1 { ("is", "has") } else { ("are", "have") };
        let names = first_names(&nodes.iter().cloned().collect::<Vec<_>>());
        match unfit {
            Unfit::Taint(taint) => format!("{and} {names}{which} {have} the taint {taint}"),
            other => format!("{and} {names}{which} {be} {other}"),
        }
    };
    let be = if left.away.len() == 1 { "is" } else { "are" };
    let away: Vec<String> = left.away.iter().cloned().collect();
    let away = match away.as_slice() {
        _ if left.are_all_off() => String::new(),
        [] => String::new(),
        names => format!("{and} {}{which} {be} in maintenance and not Ready", first_names(names)),
    };
    let rest: BTreeSet<&String> = left.others.values().skip(MAX_REASONS).flatten().collect();
    let more = match rest.len() {
        0 => String::new(),
        1 => format!("{and} 1 other node{which} does not fit either"),
        count => format!("{and} {count} other nodes{which} do not fit either"),
    };
    [away].into_iter().chain(left.others.iter().take(MAX_REASONS).map(words)).chain([more]).collect()
}
