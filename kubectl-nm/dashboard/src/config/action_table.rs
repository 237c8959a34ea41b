//! The actions of the dashboard in one table, from which keys, footer, help and reference are made.

use self::HelpGroup::{Actions, Navigation, Reading};

/// What a key does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    Down,
    Up,
    PageDown,
    PageUp,
    Top,
    Bottom,
    Open,
    Back,
    Switch,
    Filter,
    Sort,
    Reverse,
    Attention,
    Replacements,
    Details,
    Events,
    Yaml,
    Theme,
    Logs,
    PreviousLogs,
    Describe,
    Zoom,
    Copy,
    Reconnect,
    Start,
    Mark,
    Stop,
    Pause,
    Evict,
    Delete,
    Help,
    Quit,
    Suspend,
}

/// A heading of the help.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum HelpGroup {
    Navigation,
    Reading,
    Actions,
}

impl HelpGroup {
    pub(crate) const ALL: [Self; 3] = [Navigation, Reading, Actions];

    pub(crate) fn heading(self) -> &'static str {
        match self {
            Navigation => "Navigation",
            Reading => "View",
            Actions => "Actions",
        }
    }
}

/// What the rows are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum View {
    /// The maintenances.
    Fleet,
    /// All nodes of the cluster.
    Nodes,
    /// The pods of the open node.
    Pods,
    /// The replacements of the pods of the open node.
    Tree,
}

const EVERYWHERE: &[View] = &[View::Fleet, View::Nodes, View::Pods, View::Tree];
const LISTS: &[View] = &[View::Fleet, View::Nodes];
const OPEN_NODE: &[View] = &[View::Pods, View::Tree];

/// One line of the table.
#[derive(Debug)]
pub(crate) struct ActionEntry {
    pub(crate) action: Action,
    pub(crate) name: &'static str,
    pub(crate) group: HelpGroup,
    pub(crate) keys: &'static [&'static str],
    /// What it does, in the help.
    pub(crate) help: &'static str,
    /// Its word in the footer, and its place there: the lowest comes first. None keeps it out.
    pub(crate) footer: Option<(u8, &'static str)>,
    /// Whether it changes the cluster or prepares a change.
    pub(crate) changes: bool,
    /// The views in which it is offered.
    pub(crate) views: &'static [View],
}

const fn entry(
    action: Action,
    group: HelpGroup,
    name: &'static str,
    keys: &'static [&'static str],
    help: &'static str,
) -> ActionEntry {
    ActionEntry { action, name, group, keys, help, footer: None, changes: false, views: EVERYWHERE }
}

impl ActionEntry {
    const fn in_footer(self, place: u8, word: &'static str) -> Self {
        Self { footer: Some((place, word)), ..self }
    }

    const fn changing(self) -> Self {
        Self { changes: true, ..self }
    }

    const fn on(self, views: &'static [View]) -> Self {
        Self { views, ..self }
    }
}

/// All actions, in the order of the help.
pub(crate) const ACTIONS: &[ActionEntry] = &[
    entry(Action::Down, Navigation, "down", &["Down", "j"], "the next row"),
    entry(Action::Up, Navigation, "up", &["Up", "k"], "the row before"),
    entry(Action::PageDown, Navigation, "page-down", &["PgDn"], "a page down"),
    entry(Action::PageUp, Navigation, "page-up", &["PgUp"], "a page up"),
    entry(
        Action::Top,
        Navigation,
        "first",
        &["Home", "g"],
        "the first row, whichever it is; also after a minute without a key",
    ),
    entry(Action::Bottom, Navigation, "last", &["End", "G"], "the last row"),
    entry(
        Action::Open,
        Navigation,
        "open",
        &["Enter"],
        "open the selected node; there, show the row in full",
    )
    .in_footer(2, "open"),
    entry(
        Action::Back,
        Navigation,
        "back",
        &["Esc"],
        "close the pane or the node, clear the filter, the marks",
    )
    .in_footer(2, "back"),
    entry(
        Action::Switch,
        Navigation,
        "switch",
        &["Tab"],
        "switch between all nodes and nodes in maintenance; with an open pane, move the focus",
    )
    .in_footer(12, "all nodes"),
    entry(Action::Filter, Reading, "filter", &["/"], "filter: ns:x state:blocked node:worker-1* text")
        .in_footer(11, "filter"),
    entry(Action::Sort, Reading, "sort", &["s"], "sort by risk, name, progress, pool or age")
        .in_footer(14, "sort"),
    entry(Action::Reverse, Reading, "reverse", &["S"], "reverse the order"),
    entry(
        Action::Attention,
        Reading,
        "attention",
        &["f"],
        "show only blocked rows; of all nodes, unavailable ones",
    )
    .in_footer(15, "blocked"),
    entry(Action::Replacements, Reading, "replacements", &["w"], "where the pods of the open node went")
        .in_footer(13, "where")
        .on(OPEN_NODE),
    entry(Action::Details, Reading, "details", &["v"], "the selected row in full").in_footer(22, "details"),
    entry(Action::Events, Reading, "events", &["e"], "events about the open node")
        .in_footer(16, "events")
        .on(OPEN_NODE),
    entry(Action::Yaml, Reading, "yaml", &["y"], "the maintenance as YAML").in_footer(18, "YAML"),
    entry(Action::Theme, Reading, "theme", &["T"], "the next theme"),
    entry(Action::Logs, Reading, "logs", &["l"], "logs of the pod").in_footer(4, "logs").on(OPEN_NODE),
    entry(
        Action::PreviousLogs,
        Reading,
        "previous-logs",
        &["L"],
        "logs of its containers before their last restart",
    )
    .on(OPEN_NODE),
    entry(
        Action::Describe,
        Reading,
        "describe",
        &["d"],
        "describe the pod, the workload, the node or the maintenance",
    )
    .in_footer(5, "describe"),
    entry(
        Action::Zoom,
        Reading,
        "zoom",
        &["z"],
        "logs and descriptions on the whole screen, or below the rows",
    ),
    entry(Action::Copy, Reading, "copy", &["c"], "copy the command that is shown, or the row")
        .in_footer(17, "copy"),
    entry(Action::Reconnect, Reading, "reconnect", &["r"], "reconnect and redraw"),
    entry(
        Action::Start,
        Actions,
        "start",
        &["n"],
        "put nodes into maintenance; in the dialog, Ctrl-P previews the drain",
    )
    .in_footer(3, "start")
    .changing(),
    entry(Action::Mark, Actions, "mark", &["Space"], "mark a node")
        .in_footer(19, "mark")
        .changing()
        .on(LISTS),
    entry(Action::Stop, Actions, "stop", &["x"], "stop the marked maintenances, or the selected one")
        .in_footer(9, "stop")
        .changing(),
    entry(
        Action::Pause,
        Actions,
        "pause",
        &["p"],
        "pause the marked maintenances, or the selected one; or resume",
    )
    .in_footer(10, "pause")
    .changing(),
    entry(Action::Evict, Actions, "evict", &["R"], "request the eviction of the pod once more, now")
        .in_footer(6, "evict")
        .changing()
        .on(OPEN_NODE),
    entry(
        Action::Delete,
        Actions,
        "delete",
        &["D"],
        "delete the pod past its disruption budget, after a question",
    )
    .in_footer(8, "delete")
    .changing()
    .on(OPEN_NODE),
    entry(Action::Help, Actions, "help", &["?"], "all keys").in_footer(1, "help"),
    entry(Action::Quit, Actions, "quit", &["q", "Ctrl-C"], "quit; maintenances continue")
        .in_footer(0, "quit"),
    entry(Action::Suspend, Actions, "suspend", &["Ctrl-Z"], "suspend"),
];

impl Action {
    pub(crate) fn entry(self) -> &'static ActionEntry {
        // Every action is in the table, which a test checks.
        ACTIONS.iter().find(|entry| entry.action == self).unwrap_or(&ACTIONS[0])
    }

    /// Whether it asks the cluster, which a replay does not have.
    pub(crate) fn needs_cluster(self) -> bool {
        matches!(self, Self::Logs | Self::PreviousLogs | Self::Describe | Self::Zoom | Self::Reconnect)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn no_two_actions_have_a_key_or_a_name_or_a_place_in_a_footer_in_common() {
        let (mut keys, mut names) = (BTreeSet::new(), BTreeSet::new());
        for entry in ACTIONS {
            assert_eq!(entry.action.entry().name, entry.name);
            assert!(names.insert(entry.name), "{}", entry.name);
            for key in entry.keys {
                assert!(keys.insert(*key), "{key}");
            }
        }
        for view in EVERYWHERE {
            let shown = ACTIONS.iter().filter(|entry| entry.views.contains(view));
            let mut places = BTreeSet::new();
            for (place, word) in shown.filter_map(|entry| entry.footer).filter(|(place, _)| *place != 2) {
                assert!(places.insert(place), "{view:?} {word}");
            }
        }
    }
}
