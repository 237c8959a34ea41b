//! The notices above the rows, each about the whole view.

use nm_core::args::duration::age;
use nm_core::explain::cause::capitalized;
use nm_core::leader::gap::LeaderGap;
use nm_core::maintenance::roll::Halt;
use nm_core::maintenance::{State, roll_name};
use nm_core::terminal::command_context::{nm_command, shell_quoted};
use nm_core::terminal::text::{counted, first_names};
use nm_roll::halted::HaltedRoll;

use crate::config::action_table::Action;
use crate::model::Model;
use crate::model::fleet::fleet_row::FleetRow;
use crate::model::lists::listing::Row;
use crate::objects::watch_state::{WatchKind, WatchState};

/// How many halted rolls have a notice of their own.
const MOST_HALTS: usize = 2;

/// A notice about the whole view, and whether it reports a problem.
type Banner = (String, bool);

/// That no reconciler leads, and what to do about it.
pub(crate) fn leader_words(gap: &LeaderGap, kubectl: &str) -> String {
    let doctor = nm_command(kubectl, "doctor");
    let effect = match gap {
        LeaderGap::NotInstalled => "Without one, no maintenance makes progress",
        _ => "No maintenance makes progress",
    };
    format!("{}. {effect}; see {doctor}", capitalized(&gap.words()))
}

impl Model {
    /// The notices above the rows. Where the data is old, there is only that one.
    pub(crate) fn banners(&self) -> Vec<Banner> {
        if let Some(freshness) = self.freshness_banner() {
            return vec![freshness];
        }
        let of_nodes = self.unready_banner();
        let banners = self.leader_banner().into_iter().chain(self.halt_banners());
        let outages = self.outage_banner().into_iter().chain(self.unknown_outages_banner());
        banners.chain(of_nodes).chain(outages).chain(self.view_banner()).collect()
    }

    fn freshness_banner(&self) -> Option<Banner> {
        match self.freshness() {
            WatchState::Lost { error, .. } if self.options.is_replay() => Some((error.clone(), true)),
            WatchState::Lost { error, .. } => Some((format!("Disconnected, retrying: {error}"), true)),
            WatchState::Forbidden(why) if self.is_stale() => {
                let again = self.hint(Action::Reconnect);
                let words = "You no longer have permission to list maintenances";
                Some((format!("{words}, {again} tries again: {why}"), true))
            }
            WatchState::Live | WatchState::Connecting | WatchState::Forbidden(_) | WatchState::Unrecorded => {
                None
            }
        }
    }

    /// That no reconciler leads. One that leads without a lease is not seen, but it begins every maintenance.
    fn leader_banner(&self) -> Option<Banner> {
        let gap = self.leader_gap.as_ref()?;
        if *gap == LeaderGap::NotInstalled && !self.fleet.has_requested() {
            return None;
        }
        Some((leader_words(gap, &self.options.kubectl), true))
    }

    /// The nodes that are not Ready while they are drained: the open node, or all.
    fn unready_banner(&self) -> Option<Banner> {
        if self.shows_nodes() {
            return None;
        }
        let open = self.opened();
        let rows = self.fleet.rows.all().filter(|row| open.is_none_or(|open| open == row.node));
        let names: Vec<String> =
            rows.filter(|row| self.fleet.delays_drain(row)).map(|row| row.node.clone()).collect();
        let first = names.first()?;
        let nodes = match names.len() {
            1 => format!("Node {first} is not Ready"),
            several => format!("{} are not Ready ({})", counted(several, "node"), first_names(&names)),
        };
        let explain = nm_command(&self.options.kubectl, &format!("explain {}", shell_quoted(first)));
        Some((format!("{nodes}, so pods may not terminate; see {explain}"), true))
    }

    /// The rolls that have halted: that of the open node, or all.
    fn halt_banners(&self) -> Vec<Banner> {
        let open = self.open.as_ref();
        let rolls = &self.fleet.rolls;
        let maintenance = open.and_then(|open| self.fleet.maintenance_of(&open.name));
        let own = maintenance.and_then(|maintenance| roll_name(maintenance));
        let is_shown = |(name, _): &(&str, &Halt)| open.is_none() || own == Some(*name);
        let halts: Vec<(&str, &Halt)> = rolls.halts().filter(is_shown).collect();
        let mut banners: Vec<Banner> =
            halts.iter().take(MOST_HALTS).map(|(name, halt)| (self.halted(name, halt), true)).collect();
        let more = halts.len().saturating_sub(MOST_HALTS);
        if more > 0 {
            let status = nm_command(&self.options.kubectl, "roll status");
            banners.push((format!("{} halted; see {status}", counted(more, "more roll")), true));
        }
        banners
    }

    /// The command comes first, because a long message is cut.
    fn halted(&self, roll: &str, halt: &Halt) -> String {
        let ago = age(self.now.duration_since(halt.at).as_secs().max(0));
        let resume = nm_command(&self.options.kubectl, &format!("roll resume {}", shell_quoted(roll)));
        let by_now = self.fleet.halted_rolls.get(roll).and_then(HaltedRoll::by_now);
        let by_now = by_now.map(|by_now| format!("; {by_now}")).unwrap_or_default();
        format!("Roll {roll} halted {ago} ago ({resume} continues it): {}{by_now}", halt.message)
    }

    /// The workloads that the drain of the open node has left without a ready pod, or those of all.
    fn outage_banner(&self) -> Option<Banner> {
        if self.shows_nodes() {
            return None;
        }
        let open = self.opened();
        let own = self.open_row();
        let rows = self.shown_rows(own.as_ref());
        let rows: Vec<&FleetRow> = rows.filter(|row| !self.fleet.outages.of(row.key()).is_empty()).collect();
        let down = self.fleet.outages.of_all(rows.iter().map(|row| row.key()));
        let nodes: Vec<String> = rows.iter().map(|row| row.node.clone()).collect();
        // Since when, and whether the drain is why, only explain finds out.
        let (workloads, are) = match down.len() {
            0 => return None,
            1 => ("workload", "is"),
            _ => ("workloads", "are"),
        };
        // Without names, the command explains all nodes.
        let named = if nodes.len() == 1 { format!(" {}", shell_quoted(&nodes[0])) } else { String::new() };
        let explain = nm_command(&self.options.kubectl, &format!("explain{named}"));
        let down: Vec<String> = down.into_iter().map(str::to_owned).collect();
        // The rows name the workloads of their nodes.
        let what = match (open, down.len()) {
            (None, 2..) => String::new(),
            _ => format!(": {}", first_names(&down)),
        };
        let left = if open.is_some() { String::from("this node") } else { first_names(&nodes) };
        Some((
            format!("{} {workloads} whose pods left {left} {are} down; see {explain}{what}", down.len()),
            true,
        ))
    }

    /// That the user may not read which workloads are down.
    fn unknown_outages_banner(&self) -> Option<Banner> {
        if self.shows_nodes() {
            return None;
        }
        let own = self.open_row();
        let denied = self.fleet.outages.denied(self.shown_rows(own.as_ref()).map(Row::key));
        let denied: Vec<&str> = denied.into_iter().collect();
        let words =
            || format!("No permission to {}: it is not known whether workloads are down", denied.join(", "));
        (!denied.is_empty()).then(|| (words(), true))
    }

    /// The row of the open node, which is its `own`, or those of all.
    fn shown_rows<'a>(&'a self, own: Option<&'a FleetRow>) -> impl Iterator<Item = &'a FleetRow> {
        let is_open = self.opened().is_some();
        self.fleet.rows.all().filter(move |_| !is_open).chain(own)
    }

    /// A notice about the open node, or about what is not known of all nodes.
    fn view_banner(&self) -> Option<Banner> {
        if self.shows_nodes() && self.nodes.pods.is_forbidden() {
            let words = "No permission to list pods: their number is not known.";
            return Some((format!("{words} {} tries again", self.hint(Action::Reconnect)), true));
        }
        let open = self.open.as_ref()?;
        if *self.health.of(WatchKind::Pods) == WatchState::Unrecorded {
            let words = "The recording has no pods of this node so far: showing the pods of the status";
            return Some((words.to_owned(), true));
        }
        if open.pods.hidden {
            let words = "No permission to list pods: showing the pods of the status.";
            return Some((format!("{words} {} tries again", self.hint(Action::Reconnect)), true));
        }
        let Some(row) = self.open_row() else {
            let is_unknown = self.nodes_are_known() && self.fleet.node(&open.name).is_none();
            return Some(match (is_unknown, self.options.readonly) {
                (true, _) => (format!("Node {} does not exist.", open.name), true),
                (false, true) => (String::from("Not in maintenance."), false),
                (false, false) => {
                    let start = self.hint(Action::Start);
                    (format!("Not in maintenance. {start} starts a maintenance"), false)
                }
            });
        };
        let gone_before = open.tree.gone_before(row.gone);
        if open.tree.is_shown && gone_before > 0 {
            let are = if gone_before == 1 { "is" } else { "are" };
            let pods = counted(gone_before, "pod");
            return Some((format!("{pods} left before you opened this node and {are} not shown"), false));
        }
        // The notice about outages names the workloads that are down.
        let why = self.fleet.why_in_state(&row, self.now);
        match row.state {
            Some(State::Blocked | State::Draining) => None,
            // The notice about its roll says so.
            Some(State::Planned) if !self.halt_banners().is_empty() => None,
            _ if why.is_empty() => None,
            state => Some((why.into_owned(), state == Some(State::Failed))),
        }
    }
}
