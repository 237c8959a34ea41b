//! Everything that the dashboard knows: what the cluster said, and what its user is looking at.
//!
//! A [`Model`] changes only in `update` and is only read by `view`. Nothing here does I/O or reads a clock.

pub(crate) mod dialog;
pub(crate) mod document;
pub(crate) mod events;
pub(crate) mod field;
pub(crate) mod filter;
pub(crate) mod fleet;
pub(crate) mod fleet_row;
pub(crate) mod listing;
pub(crate) mod pace;
pub(crate) mod pod_row;
pub(crate) mod pods;
pub(crate) mod start_plan;
pub(crate) mod watch_health;

use std::sync::Arc;

use jiff::Timestamp;
use nm_shared::NodeMaintenance;

use self::dialog::Dialog;
use self::document::Document;
use self::events::Happenings;
use self::field::Field;
use self::filter::Filter;
use self::fleet::Fleet;
use self::fleet_row::FleetRow;
use self::listing::{Row, Sort};
use self::pod_row::PodRow;
use self::pods::Pods;
use self::watch_health::{Arrival, Freshness, Links};
use crate::dashboard::message::Feed;
use crate::dashboard::options::Options;
use crate::explain::explanation;
use crate::explain::remedy::{self, Case, Remedy};
use crate::maintenance::{State, status};
use crate::terminal::text::harmless;

/// A node that is looked at.
#[derive(Debug)]
pub(crate) struct OpenNode {
    /// Its name.
    pub(crate) name: String,
    /// Its pods.
    pub(crate) pods: Pods,
    /// What happened to it.
    pub(crate) happenings: Happenings,
}

/// What the side pane shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Side {
    /// Events about the open node.
    Events,
    /// The maintenance as YAML.
    Document,
}

/// A word in passing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Notice {
    /// The word.
    pub(crate) text: String,
    /// Whether something went wrong.
    pub(crate) is_bad: bool,
    /// When it was said.
    pub(crate) at: Timestamp,
}

/// Everything that the dashboard knows.
#[derive(Debug)]
pub(crate) struct Model {
    /// What it was told at first.
    pub(crate) options: Options,
    /// The time.
    pub(crate) now: Timestamp,
    /// Columns and rows of the terminal.
    pub(crate) size: (u16, u16),
    /// All maintenances.
    pub(crate) fleet: Fleet,
    /// The node that is looked at.
    pub(crate) open: Option<OpenNode>,
    /// How fresh it all is.
    pub(crate) links: Links,
    /// What stands before everything else.
    pub(crate) dialog: Option<Dialog>,
    /// The filter while it is being typed, and what it was before.
    pub(crate) typing: Option<(Field, Filter)>,
    /// The side pane.
    pub(crate) side: Option<Side>,
    /// Whether keys move the side pane.
    pub(crate) side_has_focus: bool,
    /// The first line of the side pane on the screen.
    pub(crate) side_top: usize,
    /// The YAML of the side pane.
    pub(crate) document: Document,
    /// Since when the picture stands still, if it does.
    pub(crate) paused: Option<Timestamp>,
    /// A word in passing.
    pub(crate) notice: Option<Notice>,
    /// What was asked of the API server and is not answered yet, in words, the oldest first.
    pub(crate) under_way: Vec<String>,
}

impl Model {
    /// A dashboard that has heard nothing yet.
    pub(crate) fn new(options: Options) -> Self {
        let scope = if options.nodes.len() > 1 { options.nodes.clone() } else { Vec::new() };
        let open = match options.nodes.as_slice() {
            [name] => Some(OpenNode::new(name)),
            _ => None,
        };
        Self {
            now: options.now,
            size: options.size,
            options,
            fleet: Fleet::of(scope),
            open,
            links: Links::default(),
            dialog: None,
            typing: None,
            side: None,
            side_has_focus: false,
            side_top: 0,
            document: Document::default(),
            paused: None,
            notice: None,
            under_way: Vec::new(),
        }
    }

    /// The node whose pods are to be watched.
    pub(crate) fn opened(&self) -> Option<&str> {
        self.open.as_ref().map(|open| open.name.as_str())
    }

    /// Whether the pods of that node have been told of, if it is open.
    pub(crate) fn has_pods(&self, node: &str) -> bool {
        self.open.as_ref().is_some_and(|open| open.name == node && open.pods.complete)
    }

    /// Whether the events about that node have been told of, if it is open.
    pub(crate) fn has_events(&self, node: &str) -> bool {
        self.open.as_ref().is_some_and(|open| open.name == node && open.happenings.complete)
    }

    /// The maintenance that is looked at: that of the open node, or of the selected row.
    pub(crate) fn maintenance(&self) -> Option<&Arc<NodeMaintenance>> {
        match &self.open {
            Some(open) => self.fleet.maintenance_of(&open.name),
            None => self.fleet.maintenance(self.fleet.rows.selected()?.key()),
        }
    }

    /// How fresh what is on the screen is.
    pub(crate) fn freshness(&self) -> Freshness<'_> {
        let arrival = |open: &OpenNode| if open.pods.complete { Arrival::Complete } else { Arrival::Awaited };
        self.links.overall(self.open.as_ref().map(arrival))
    }

    /// Whether what is on the screen may be so no more.
    pub(crate) fn is_old(&self) -> bool {
        let shows_something = match &self.open {
            None => self.fleet.rows.total() > 0,
            Some(open) => {
                let is_live = self.links.of(Feed::Maintenances) == Freshness::Live;
                open.pods.rows.total() > 0 || (!is_live && self.fleet.maintenance_of(&open.name).is_some())
            }
        };
        match self.freshness() {
            _ if self.paused.is_some() => true,
            Freshness::Live => false,
            Freshness::Stale { .. } => true,
            Freshness::Connecting | Freshness::Forbidden(_) => shows_something,
        }
    }

    /// Whether the names of all nodes are known.
    pub(crate) fn nodes_are_known(&self) -> bool {
        let told = matches!(self.links.of(Feed::Nodes), Freshness::Live | Freshness::Stale { .. });
        // A connection may be up before its first list is here.
        told && self.fleet.node_names().next().is_some()
    }

    /// What the rows on the screen are sorted by, and whether the other way round.
    pub(crate) fn sorting(&self) -> (Sort, bool) {
        match &self.open {
            Some(open) => open.pods.rows.sorting(),
            None => self.fleet.rows.sorting(),
        }
    }

    /// The filter of the rows on the screen.
    pub(crate) fn filter(&self) -> &Filter {
        match &self.open {
            Some(open) => open.pods.rows.filter(),
            None => self.fleet.rows.filter(),
        }
    }

    /// Whether only blocked rows are on the screen.
    pub(crate) fn blocked_only(&self) -> bool {
        match &self.open {
            Some(open) => open.pods.rows.blocked_only(),
            None => self.fleet.rows.blocked_only(),
        }
    }

    /// What is in the way of the selected row, or of the first if nothing is in the way of that, and what to do about it.
    pub(crate) fn remedy(&self) -> Option<(String, Remedy)> {
        self.remedy_of_selected().or_else(|| match &self.open {
            Some(open) => {
                let first = open.pods.rows.nth(0).and_then(|row| self.remedy_of_pod(open, row));
                first.or_else(|| self.remedy_of_node(self.maintenance()?))
            }
            None => self.remedy_of_node(self.fleet.maintenance(self.fleet.rows.nth(0)?.key())?),
        })
    }

    fn remedy_of_selected(&self) -> Option<(String, Remedy)> {
        match &self.open {
            Some(open) => self.remedy_of_pod(open, open.pods.rows.selected()?),
            None => self.remedy_of_node(self.maintenance()?),
        }
    }

    fn remedy_of_pod(&self, open: &OpenNode, row: &PodRow) -> Option<(String, Remedy)> {
        let case = Case {
            kubectl: &self.options.kubectl,
            node: &open.name,
            namespace: &row.id.namespace,
            name: &row.id.name,
            owner: Some(row.id.owner.as_str()).filter(|owner| !owner.is_empty()),
            reason: row.stand.reason?,
            message: &row.stand.message,
        };
        Some((why(&case), remedy::remedy(&case)))
    }

    fn remedy_of_node(&self, maintenance: &NodeMaintenance) -> Option<(String, Remedy)> {
        let is_stopping = State::of(maintenance) == State::Stopping;
        let Some(pod) = status(maintenance).blocked_pods.first().filter(|_| !is_stopping) else {
            return self.remedy_of_cause(maintenance);
        };
        let case = Case {
            kubectl: &self.options.kubectl,
            node: &maintenance.spec.node_name,
            namespace: &pod.namespace,
            name: &pod.name,
            owner: None,
            reason: pod.reason,
            message: &pod.message,
        };
        Some((format!("{}: {}", case.node, why(&case)), remedy::remedy(&case)))
    }

    /// What keeps all of a node from getting on, as `explain` tells it, but for what goes away by itself at once.
    fn remedy_of_cause(&self, maintenance: &NodeMaintenance) -> Option<(String, Remedy)> {
        let waits = State::of(maintenance) == State::Queued;
        let causes = explanation::causes(maintenance, &self.options.kubectl, self.now);
        let cause = causes.into_iter().find(|cause| waits || !cause.passes)?;
        let what = cause.what.into_iter().next()?;
        let why = format!("{}: {}", maintenance.spec.node_name, what.trim_end_matches('.'));
        Some((why, Remedy { advice: cause.advice, command: cause.commands.into_iter().next()? }))
    }

    /// What a person would want to paste elsewhere: the command that helps the selected row, or what is known of it.
    pub(crate) fn worth_copying(&self) -> Option<String> {
        let command = self.remedy_of_selected().map(|(_, remedy)| remedy.command);
        let text = command.or_else(|| self.selected_line())?;
        // It will be pasted where line breaks and controls are obeyed.
        Some(harmless(&text))
    }

    /// What is known of the selected row, in a line.
    fn selected_line(&self) -> Option<String> {
        if let Some(open) = &self.open {
            let row = open.pods.rows.selected()?;
            let (id, stand) = (&row.id, &row.stand);
            let line = format!("{} {}/{} {}", stand.place.word(), id.namespace, id.name, stand.message);
            return Some(line.trim_end().to_owned());
        }
        let row = self.fleet.rows.selected()?;
        let FleetRow { node, state, percent, gone, pods, .. } = row;
        let line = format!("{node} {} {percent}% {gone}/{pods} {}", state.word(), row.why(self.now));
        Some(line.trim_end().to_owned())
    }

    /// Filters the rows on the screen.
    pub(crate) fn filter_by(&mut self, filter: Filter) {
        match &mut self.open {
            Some(open) => open.pods.rows.filter_by(filter),
            None => self.fleet.rows.filter_by(filter),
        }
    }

    /// Notes what is asked of the API server, which is shown until that has answered.
    pub(crate) fn begin(&mut self, words: String) {
        self.notice = None;
        self.under_way.push(words);
    }

    /// Notes that the API server has answered. Which answer it is does not matter: mostly one is awaited.
    pub(crate) fn answered(&mut self) {
        if !self.under_way.is_empty() {
            self.under_way.remove(0);
        }
    }

    /// Says a word in passing.
    pub(crate) fn say(&mut self, text: String) {
        self.notice = Some(Notice { text, is_bad: false, at: self.now });
    }

    /// Says what went wrong.
    pub(crate) fn complain(&mut self, text: String) {
        self.notice = Some(Notice { text, is_bad: true, at: self.now });
    }
}

/// What is in the way of a pod: `shop/cart-0: PDB shop/cart needs 3, has 3`.
fn why(case: &Case<'_>) -> String {
    format!(
        "{}/{}: {}",
        case.namespace,
        case.name,
        remedy::in_short(case.namespace, case.reason, case.message)
    )
}

impl OpenNode {
    /// A node of which nothing has been heard yet.
    pub(crate) fn new(name: &str) -> Self {
        Self { name: name.to_owned(), pods: Pods::default(), happenings: Happenings::default() }
    }
}
