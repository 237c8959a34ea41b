//! The columns of the lists: which there are, and which are shown in which order.

/// A list whose columns can be chosen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum ListName {
    Maintenances,
    Nodes,
    Pods,
}

/// A column: its name in the configuration, what it shows, and whether it is shown unless that chooses.
#[derive(Debug)]
pub(crate) struct ColumnEntry {
    pub(crate) name: &'static str,
    #[cfg_attr(not(test), expect(dead_code, reason = "the reference is made from it"))]
    pub(crate) what: &'static str,
    pub(crate) is_default: bool,
}

const fn shown(name: &'static str, what: &'static str) -> ColumnEntry {
    ColumnEntry { name, what, is_default: true }
}

const fn hidden(name: &'static str, what: &'static str) -> ColumnEntry {
    ColumnEntry { name, what, is_default: false }
}

const MAINTENANCES: &[ColumnEntry] = &[
    shown("node", "the node"),
    shown("state", "the state of the maintenance"),
    shown("progress", "a bar of the pods that are gone"),
    shown("percent", "the percentage of the pods that are gone"),
    shown("pods", "the pods that are gone, of those that have to leave"),
    shown("blocked", "the blocked pods"),
    shown(
        "elapsed",
        "the time of the drain until the node was first drained; while pods leave that came later, the time since then; before it starts, the age of the maintenance",
    ),
    shown("why", "why it is in its state"),
    hidden("reason", "the reason for the maintenance (spec.reason)"),
    hidden("creator", "the roll that created it, or else the program"),
    hidden("phase", "the phase of the API (status.phase)"),
    hidden("name", "the name of the NodeMaintenance"),
];

const NODES: &[ColumnEntry] = &[
    shown("node", "the node"),
    shown("ready", "whether it is Ready"),
    shown("cordoned-by", "who cordoned it"),
    shown("maintenance", "the state of its maintenance"),
    shown("pods", "the pods on it"),
    shown("pool", "its pool"),
    shown("zone", "its zone"),
    shown("version", "the version of its kubelet"),
    shown("age", "its age"),
];

const PODS: &[ColumnEntry] = &[
    shown("state", "the state of the pod"),
    shown("pod", "its namespace and name"),
    shown("owner", "what controls it; on wide screens"),
    shown("for", "since when it is in its state"),
    shown("detail", "what it waits for"),
    hidden("reason", "why it is blocked, in one word"),
];

impl ListName {
    pub(crate) const ALL: [Self; 3] = [Self::Maintenances, Self::Nodes, Self::Pods];

    /// Its name in the configuration.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Maintenances => "maintenances",
            Self::Nodes => "nodes",
            Self::Pods => "pods",
        }
    }

    pub(crate) fn columns(self) -> &'static [ColumnEntry] {
        match self {
            Self::Maintenances => MAINTENANCES,
            Self::Nodes => NODES,
            Self::Pods => PODS,
        }
    }

    pub(crate) fn column(self, name: &str) -> Option<&'static str> {
        self.columns().iter().map(|column| column.name).find(|known| *known == name)
    }
}

/// The columns that are shown, in their order, by their names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Columns([Vec<&'static str>; 3]);

impl Default for Columns {
    fn default() -> Self {
        let defaults = |list: ListName| {
            let columns = list.columns().iter().filter(|column| column.is_default);
            columns.map(|column| column.name).collect()
        };
        Self(ListName::ALL.map(defaults))
    }
}

impl Columns {
    pub(crate) fn of(&self, list: ListName) -> &[&'static str] {
        &self.0[list as usize]
    }

    pub(crate) fn choose(&mut self, list: ListName, columns: Vec<&'static str>) {
        self.0[list as usize] = columns;
    }
}
