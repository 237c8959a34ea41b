//! The state of the dashboard: what is known of the cluster, and what the user is looking at.
//!
//! A [`Model`] changes only in `update` and is only read by `view`. Nothing here does I/O or reads a clock.

pub(crate) mod banners;
pub(crate) mod dialogs;
pub(crate) mod first_causes;
pub(crate) mod fleet;
pub(crate) mod lists;
pub(crate) mod open_node;
mod page;
pub(crate) mod panes;
pub(crate) mod replay;
pub(crate) mod state_words;
pub(crate) mod text_field;
pub(crate) mod tree;
pub(crate) mod watch_health;

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use nm_core::leader::gap::LeaderGap;
use nm_core::maintenance::attached_volumes;
use nm_core::terminal::text::counted;
use nm_core::watch::goal_tracker::{GoalTracker, TargetOutcome, WaitTarget};
use nm_shared::{AttachedVolume, NodeMaintenance};

use self::dialogs::start_plan::StartPlan;
use self::dialogs::{Dialog, StartDialog};
use self::first_causes::FirstCauses;
use self::fleet::Fleet;
use self::fleet::drain_record::DrainRecords;
use self::fleet::fleet_row::FleetRow;
use self::fleet::node_list::NodeList;
use self::lists::filter::Filter;
use self::lists::listing::{Arrangement, Row, Rows};
pub(crate) use self::open_node::OpenNode;
use self::panes::maintenance_yaml::Document;
use self::panes::output::OutputPage;
use self::replay::{BackgroundNodes, ReplayStatus};
use self::text_field::Field;
use self::tree::Tree;
use self::watch_health::WatchHealth;
use crate::config::action_table::{Action, ActionEntry};
use crate::config::appearance::Appearance;
use crate::config::config_file::Config;
use crate::objects::watch_state::{WatchKind, WatchState};

/// What recordings have to do with what is received.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RecordingMode {
    /// It is neither recorded nor replayed.
    Off,
    /// It is recorded.
    Recording,
    /// It comes from a recording.
    Replay,
}

impl Options {
    pub(crate) fn is_recording(&self) -> bool {
        self.recording == RecordingMode::Recording
    }

    pub(crate) fn is_replay(&self) -> bool {
        self.recording == RecordingMode::Replay
    }

    /// Whether an action is not disabled as a whole.
    pub(crate) fn offers(&self, entry: &ActionEntry) -> bool {
        !(self.readonly && entry.changes || self.is_replay() && entry.action.needs_cluster())
    }
}

/// What the dashboard starts with.
#[derive(Debug, Clone)]
pub struct Options {
    /// The nodes on the command line. One opens its node view, several limit the fleet to them, none means all.
    pub nodes: Vec<String>,
    /// Whether to begin with all nodes of the cluster.
    pub all_nodes: bool,
    /// The name of the kubeconfig's context, for the header.
    pub context: String,
    /// The kubectl command line for this cluster, for commands to paste: `kubectl` with the connection flags of this
    /// invocation (`kubectl --context prod`), quoted for a shell.
    pub kubectl: String,
    /// Whether actions that change the cluster are disabled.
    pub readonly: bool,
    /// Whether the dashboard records, or shows a recording.
    pub recording: RecordingMode,
    /// Columns and keys.
    pub config: Config,
    /// What the last line shows at first.
    pub notice: Option<String>,
    /// Theme and character set.
    pub appearance: Appearance,
    /// What turns colours off, if something does. Then the theme cannot be changed.
    pub without_colours: Option<&'static str>,
    /// Columns and rows of the terminal at the start; later sizes arrive as messages.
    pub size: (u16, u16),
    /// The time at the start; later times arrive as messages.
    pub now: Timestamp,
}

/// What is shown while no node is open.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Page {
    /// The maintenances, and the named nodes.
    Fleet,
    /// All nodes of the cluster.
    Nodes,
}

/// The pane beside the rows, or below them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct SidePane {
    pub(crate) shows: SideContent,
    /// Whether keys scroll it, and not the rows.
    pub(crate) has_focus: bool,
    /// The first visible line.
    pub(crate) top: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SideContent {
    /// Events about the open node and its maintenance.
    Events,
    /// The maintenance as YAML.
    Document,
    /// The selected row in full.
    Details,
}

/// How long a notice stays. An error stays until the next key.
pub(crate) const NOTICE_STAYS: SignedDuration = SignedDuration::from_secs(8);

/// How long a message may be in place of the keys, on screens without a line for both.
const INSTEAD_OF_KEYS: SignedDuration = SignedDuration::from_secs(5);

/// A short message above the keys.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Notice {
    pub(crate) text: String,
    pub(crate) is_bad: bool,
    pub(crate) at: Timestamp,
}

#[derive(Debug, Clone)]
pub struct Model {
    pub(crate) options: Options,
    pub(crate) now: Timestamp,
    /// When the last key was pressed; at first, when the dashboard began.
    pub(crate) last_key: Timestamp,
    pub(crate) size: (u16, u16),
    pub(crate) fleet: Fleet,
    /// What was seen of each drain.
    pub(crate) records: DrainRecords,
    pub(crate) nodes: NodeList,
    pub(crate) page: Page,
    /// The targets of the goal that reached it, or never will.
    pub(crate) settled: Vec<(WaitTarget, TargetOutcome)>,
    /// What is behind the blocked pods of the open node, or of the selected row.
    pub(crate) first_causes: FirstCauses,
    pub(crate) open: Option<OpenNode>,
    pub(crate) background: BackgroundNodes,
    /// The nodes that are watched although they are not open.
    pub(crate) followed: BTreeSet<String>,
    /// The node of the panel a second ago.
    pub(crate) rested: Option<String>,
    pub(crate) health: WatchHealth,
    /// Why no reconciler leads, if that is known.
    pub(crate) leader_gap: Option<LeaderGap>,
    pub(crate) dialog: Option<Dialog>,
    /// What a command of kubectl prints, below the rows or on the whole screen.
    pub(crate) output: Option<OutputPage>,
    /// Whether such a page has the whole screen although there is space for it below the rows.
    pub(crate) has_whole_page: bool,
    /// How often kubectl was run.
    pub(crate) runs: u64,
    /// The filter that is being typed, and the one before it.
    pub(crate) typing: Option<(Field, Filter)>,
    pub(crate) side: Option<SidePane>,
    /// The YAML in the side pane.
    pub(crate) document: Document,
    pub(crate) notice: Option<Notice>,
    /// The requests that the API server has not answered, by their numbers.
    pub(crate) pending_requests: BTreeMap<u64, Notice>,
    /// How many requests were sent.
    requests: u64,
    /// Where a replay is.
    pub(crate) replay: Option<ReplayStatus>,
}

impl Model {
    pub(crate) fn new(options: Options, tracker: GoalTracker) -> Self {
        let scope = if options.nodes.len() > 1 { options.nodes.clone() } else { Vec::new() };
        let open = match options.nodes.as_slice() {
            [name] => Some(OpenNode::new(name)),
            _ => None,
        };
        let open = open.map(|mut open| {
            if options.is_recording() {
                open.tree.watch();
            }
            open
        });
        let page = if options.all_nodes { Page::Nodes } else { Page::Fleet };
        // A recording has whole nodes, so that a replay can show them.
        let is_watched = options.all_nodes || options.is_recording() || options.is_replay();
        let notice = options.notice.clone().map(|text| Notice { text, is_bad: true, at: options.now });
        Self {
            now: options.now,
            last_key: options.now,
            size: options.size,
            fleet: Fleet::new(scope, tracker),
            records: DrainRecords::default(),
            nodes: NodeList { is_watched, ..NodeList::default() },
            page,
            options,
            settled: Vec::new(),
            first_causes: FirstCauses::about(open.as_ref().map_or("", |open| &open.name)),
            open,
            background: BackgroundNodes::default(),
            followed: BTreeSet::new(),
            rested: None,
            health: WatchHealth::default(),
            leader_gap: None,
            dialog: None,
            output: None,
            has_whole_page: false,
            runs: 0,
            typing: None,
            side: None,
            document: Document::default(),
            notice,
            pending_requests: BTreeMap::new(),
            requests: 0,
            replay: None,
        }
    }

    pub(crate) fn opened(&self) -> Option<&str> {
        self.open.as_ref().map(|open| open.name.as_str())
    }

    /// The maintenance of the open node, or of the selected row.
    pub(crate) fn maintenance(&self) -> Option<&Arc<NodeMaintenance>> {
        match &self.open {
            Some(open) => self.fleet.maintenance_of(&open.name),
            None if self.shows_nodes() => self.fleet.maintenance_of(self.selected_node()?),
            None => self.fleet.maintenance(self.fleet.rows.selected()?.key()),
        }
    }

    /// The volumes that are still attached to the open node.
    pub(crate) fn attached_volumes(&self) -> &[AttachedVolume] {
        let maintenance = self.opened().and_then(|node| self.fleet.maintenance_of(node));
        maintenance.map_or(&[], |maintenance| attached_volumes(maintenance))
    }

    pub(crate) fn open_row(&self) -> Option<FleetRow> {
        self.fleet.maintenance_of(self.opened()?).map(|object| FleetRow::of(object))
    }

    pub(crate) fn freshness(&self) -> &WatchState {
        let beside = match &self.open {
            Some(open) => Some((WatchKind::Pods, open.pods.complete)),
            None if self.shows_nodes() => Some((WatchKind::Nodes, self.nodes.is_listed)),
            None => None,
        };
        self.health.overall(beside)
    }

    pub(crate) fn is_stale(&self) -> bool {
        let is_live = *self.health.of(WatchKind::Maintenances) == WatchState::Live;
        let shows_maintenance =
            self.opened().is_some_and(|node| !is_live && self.fleet.maintenance_of(node).is_some());
        match self.freshness() {
            WatchState::Live => false,
            WatchState::Lost { .. } => true,
            WatchState::Connecting | WatchState::Forbidden(_) | WatchState::Unrecorded => {
                self.rows().total() > 0 || shows_maintenance
            }
        }
    }

    /// What the drain of the open node has done and cost, once it has ended.
    pub(crate) fn outcome(&self) -> Vec<String> {
        let maintenance = self.opened().and_then(|node| self.fleet.maintenance_of(node));
        maintenance.map(|maintenance| self.records.summary(maintenance)).unwrap_or_default()
    }

    pub(crate) fn nodes_are_known(&self) -> bool {
        let is_listed =
            matches!(self.health.of(WatchKind::Nodes), WatchState::Live | WatchState::Lost { .. });
        // A watch may be live before its first list has arrived.
        is_listed && self.fleet.node_names().next().is_some()
    }

    /// How many nodes the cluster has, if they are known.
    pub(crate) fn node_count(&self) -> Option<usize> {
        self.nodes_are_known().then(|| self.fleet.node_names().count())
    }

    pub(crate) fn start_plan(&self, dialog: &StartDialog) -> StartPlan {
        StartPlan::of(dialog.nodes.text(), &self.fleet, self.nodes_are_known())
            .with_reason(dialog.reason.text())
            .with_options(dialog.options.text())
    }

    pub(crate) fn blockers(&self) -> Vec<String> {
        if self.shows_nodes() {
            return Vec::new();
        }
        if self.open.is_none() {
            let is_any_blocked = self.fleet.rows.all().any(Row::is_blocked);
            let blockers = self.fleet.blockers.iter().filter(|_| is_any_blocked);
            return blockers.map(|of| format!("{} {}", of.cause, counted(of.nodes, "node"))).collect();
        }
        let mut blockers = self.open_row().map(|row| row.blockers).unwrap_or_default();
        blockers.sort_by_key(|(_, pods)| Reverse(*pods));
        // The blocker of a single pod is shown as the reason already.
        let are_several = blockers.iter().map(|(_, pods)| pods).sum::<usize>() > 1;
        let blockers = blockers.iter().filter(|_| are_several);
        blockers.map(|(cause, pods)| format!("{cause} {}", counted(*pods, "pod"))).collect()
    }

    /// How many blocked pods the status of the open node lists, and how many there are, if those are more.
    pub(crate) fn listed_blocked(&self) -> Option<(usize, usize)> {
        let row = self.open_row()?;
        let listed = row.blockers.iter().map(|(_, pods)| pods).sum();
        let blocked = usize::try_from(row.blocked).unwrap_or_default();
        (blocked > listed).then_some((listed, blocked))
    }

    pub(crate) fn rows(&self) -> &dyn Rows {
        match &self.open {
            Some(open) if open.tree.is_shown => &open.tree.rows,
            Some(open) => &open.pods.rows,
            None if self.page == Page::Nodes => &self.nodes.rows,
            None => &self.fleet.rows,
        }
    }

    pub(crate) fn rows_mut(&mut self) -> &mut dyn Rows {
        match &mut self.open {
            Some(OpenNode { tree: tree @ Tree { is_shown: true, .. }, .. }) => &mut tree.rows,
            Some(OpenNode { pods, .. }) => &mut pods.rows,
            None if self.page == Page::Nodes => &mut self.nodes.rows,
            None => &mut self.fleet.rows,
        }
    }

    pub(crate) fn arrangement(&self) -> &Arrangement {
        self.rows().arrangement()
    }

    pub(crate) fn rearrange(&mut self, change: impl FnOnce(&mut Arrangement)) {
        let mut arrangement = self.arrangement().clone();
        change(&mut arrangement);
        self.rows_mut().arrange_by(arrangement);
    }

    /// The key of an action in brackets, for sentences.
    pub(crate) fn hint(&self, action: Action) -> String {
        self.options.config.keys.hint(action)
    }

    /// Notes a request to the API server, which is shown until the answer with the returned number.
    pub(crate) fn note_request(&mut self, words: String) -> u64 {
        self.notice = None;
        self.requests += 1;
        let notice = Notice { text: words, is_bad: false, at: self.now };
        self.pending_requests.insert(self.requests, notice);
        self.requests
    }

    /// The message to show, and whether it is about a request that is under way.
    pub(crate) fn message(&self) -> Option<(&Notice, bool)> {
        let pending = || self.pending_requests.values().next_back();
        self.notice.as_ref().map(|notice| (notice, false)).or_else(|| Some((pending()?, true)))
    }

    /// The same where it would be in place of the keys, which it is not for long.
    pub(crate) fn message_instead_of_keys(&self) -> Option<(&Notice, bool)> {
        self.message().filter(|(notice, _)| self.now.duration_since(notice.at) < INSTEAD_OF_KEYS)
    }

    pub(crate) fn notify(&mut self, text: String) {
        self.notice = Some(Notice { text, is_bad: false, at: self.now });
    }

    pub(crate) fn show_error(&mut self, text: String) {
        self.notice = Some(Notice { text, is_bad: true, at: self.now });
    }
}
