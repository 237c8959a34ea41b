//! The lines of the side pane: events, the maintenance as YAML, or the selected row in full.

use nm_core::explain::cause::{capitalized, left_out_words};
use nm_core::explain::owner::Owner;
use nm_core::explain::remedy;
use nm_core::maintenance::{blocked_pods, status};
use nm_core::terminal::text::{counted, harmless};
use nm_shared::NodeMaintenance;

use crate::config::action_table::Action;
use crate::elapsed::elapsed;
use crate::model::fleet::fleet_row::FleetRow;
use crate::model::open_node::pod_row::{PodRow, detail};
use crate::model::panes::advice::Advice;
use crate::model::panes::events::NodeEvent;
use crate::model::tree::tree_row::{TreeItem, TreeRow};
use crate::model::{Model, OpenNode, SideContent};
use crate::objects::watch_state::{WatchKind, WatchState};
use crate::wrapping::wrap;

/// How a line is emphasised.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LineKind {
    Plain,
    Strong,
    Quiet,
    Bad,
}

pub(crate) type PaneLine = (String, LineKind);

/// In fewer lines, no advice is useful: a cause, what to do and a command, one of which is wrapped.
const LEAST_ADVICE: usize = 4;

/// How many blocked pods of a node are listed.
const LISTED_PODS: usize = 20;

impl Model {
    /// The lines of the side pane in so many columns; empty if there is none.
    pub(crate) fn pane_lines(&self, width: usize) -> Vec<PaneLine> {
        let Some(side) = self.side else { return Vec::new() };
        let lines = match side.shows {
            SideContent::Document => {
                self.document.lines.iter().map(|line| (line.clone(), LineKind::Plain)).collect()
            }
            SideContent::Events => self.open.as_ref().map_or_else(Vec::new, |open| self.event_lines(open)),
            SideContent::Details => self.detail_lines(),
        };
        wrapped(lines, width)
    }

    pub(crate) fn event_lines(&self, open: &OpenNode) -> Vec<PaneLine> {
        let line = |event: &NodeEvent| {
            let ago = event
                .at
                .map_or_else(|| String::from("-"), |at| elapsed(self.now.duration_since(at).as_secs()));
            let times = if event.count > 1 { format!(" (x{})", event.count) } else { String::new() };
            let (sign, kind) = if event.is_warning { ("!", LineKind::Bad) } else { (" ", LineKind::Plain) };
            (format!("{ago:>6} {sign}{}{times}: {}", event.reason, event.note), kind)
        };
        let lines: Vec<PaneLine> = open.events.latest().iter().map(line).collect();
        if !lines.is_empty() {
            return lines;
        }
        let words = match self.health.of(WatchKind::Events) {
            WatchState::Forbidden(why) => {
                return vec![
                    (String::from("You have no permission to list events:"), LineKind::Bad),
                    (why.clone(), LineKind::Plain),
                ];
            }
            WatchState::Connecting => "loading events",
            WatchState::Unrecorded => "the events were not recorded",
            WatchState::Lost { error, .. } => error,
            WatchState::Live => "no recent events",
        };
        vec![(words.to_owned(), LineKind::Quiet)]
    }

    /// The selected row with everything that its columns may cut.
    fn detail_lines(&self) -> Vec<PaneLine> {
        let mut lines = if let Some(open) = &self.open {
            match (open.selected_pod(), open.selected_in_tree()) {
                (Some(row), _) => self.pod_lines(row),
                (None, Some(row)) => tree_lines(row),
                (None, None) => Vec::new(),
            }
        } else {
            let node = self.nodes.rows.selected().filter(|_| self.shows_nodes());
            let node = node.map(|row| (row.line(), LineKind::Strong));
            let maintenance = self.maintenance().map(|object| self.maintenance_lines(object));
            node.into_iter().chain(maintenance.unwrap_or_else(|| vec![self.not_in_maintenance()])).collect()
        };
        if let Some(advice) = self.advice_of_selected() {
            // What to do comes before what may scroll.
            let mut first = advice_lines(advice, lines.first().map_or("", |(name, _)| name));
            first.push((String::new(), LineKind::Plain));
            let at = lines.len().min(1);
            lines.splice(at..at, first);
        }
        if lines.is_empty() {
            lines.push((String::from("no row is selected"), LineKind::Quiet));
        }
        lines
    }

    /// What blocks pods of the node of the panel, and how many, or else the whole of what its row may cut; then the first cause and what
    /// to do about it, in so many columns. Of more lines than fit, the last one shows where the others are; a single one is not wrapped.
    pub(crate) fn cause_lines(&self, row: &FleetRow, width: usize, most: usize) -> Vec<PaneLine> {
        let advice = self.advice_of_selected().map(|advice| advice_lines(advice, &row.node));
        let mut lines = advice.unwrap_or_default();
        let blockers: Vec<String> =
            row.blockers.iter().map(|(cause, pods)| format!("{cause} ({})", counted(*pods, "pod"))).collect();
        if blockers.is_empty() {
            let why = self.fleet.why(row, self.now);
            let is_told = lines.first().is_some_and(|(told, _)| told.starts_with(&capitalized(&why)));
            let is_shown = !why.is_empty() && !is_told;
            lines.splice(0..0, is_shown.then(|| (why.into_owned(), LineKind::Plain)));
        } else {
            lines.insert(0, (format!("blocked by {}", blockers.join(", ")), LineKind::Bad));
        }
        // The lines below the rows have the advice, too.
        if most < LEAST_ADVICE {
            lines.truncate(1);
        }
        if most <= 1 {
            return lines;
        }
        let mut lines = wrapped(lines, width);
        if lines.len() > most {
            lines.truncate(most - 1);
            lines.push((format!("{} shows all of it", self.hint(Action::Details)), LineKind::Quiet));
        }
        lines
    }

    fn pod_lines(&self, row: &PodRow) -> Vec<PaneLine> {
        let path = format!("{}/{}", row.id.namespace, row.id.name);
        let progress = &row.progress;
        let none = if row.id.is_named_only() { "unknown" } else { "none" };
        let owner = row.id.owner.as_ref().map_or(none, Owner::text);
        let mut lines =
            vec![(path, LineKind::Strong), named("State", progress.word()), named("Owner", owner)];
        if let Some(since) = progress.since {
            lines.push(named("For", &elapsed(self.now.duration_since(since).as_secs())));
        }
        if let Some(reason) = progress.reason {
            lines.push(named("Reason", reason.as_str()));
        }
        let short = detail(row, self.now);
        lines.extend(Some(named("Detail", &short)).filter(|_| !short.is_empty()));
        let is_new = !progress.message.is_empty() && progress.message != short;
        lines.extend(is_new.then(|| named("Message", &progress.message)));
        lines
    }

    fn maintenance_lines(&self, object: &NodeMaintenance) -> Vec<PaneLine> {
        let row = FleetRow::of(object);
        let why = self.fleet.why(&row, self.now);
        let state = format!("{} {}% {}/{}", row.state_word(), row.percent, row.gone, row.pods);
        let mut lines = vec![(row.node.clone(), LineKind::Strong), named("State", &state)];
        for (name, text) in [
            ("Why", why.as_ref()),
            ("Reason", row.reason.as_str()),
            ("Creator", row.creator.as_str()),
            ("Name", row.name.as_str()),
            ("Last error", status(object).last_error.as_str()),
        ] {
            // The last error is often why it is in its state.
            let is_new = !lines.iter().any(|(known, _)| known.ends_with(&format!(": {text}")));
            let is_shown = !text.is_empty() && (name != "Last error" || is_new);
            lines.extend(is_shown.then(|| named(name, text)));
        }
        let blocked = blocked_pods(object);
        for pod in blocked.iter().take(LISTED_PODS) {
            let short = remedy::in_short(&pod.namespace, pod.reason, &pod.facts, &pod.message);
            lines.push((format!("blocked {}/{}: {short}", pod.namespace, pod.name), LineKind::Bad));
        }
        let shown = blocked.len().min(LISTED_PODS);
        let more = usize::try_from(row.blocked).unwrap_or_default().saturating_sub(shown);
        lines.extend((more > 0).then(|| {
            let unlisted = if blocked.len() < shown + more {
                format!("; the status lists {} of {}", blocked.len(), row.blocked)
            } else {
                String::new()
            };
            (format!("and {more} more blocked pods{unlisted}"), LineKind::Quiet)
        }));
        lines
    }

    fn not_in_maintenance(&self) -> PaneLine {
        let is_any = self.open.is_some() || self.selected_node().is_some();
        let words = if is_any { "not in maintenance" } else { "no row is selected" };
        (words.to_owned(), LineKind::Quiet)
    }
}

/// What blocks a row, what to do, and the commands for it, below a line with the name of what it is about.
fn advice_lines(advice: Advice, name: &str) -> Vec<PaneLine> {
    let Advice { why, remedy, then, left_out } = advice;
    let has_command = !remedy.command.is_empty();
    let end = if has_command { ':' } else { '.' };
    let named = why.strip_prefix(name).and_then(|rest| rest.strip_prefix(": "));
    let mut lines = vec![(format!("{}.", named.map_or_else(|| why.clone(), capitalized)), LineKind::Bad)];
    // What passes may need nothing.
    let needs_something = !remedy.advice.is_empty();
    lines.extend(needs_something.then(|| (format!("{}{end}", remedy.advice), LineKind::Plain)));
    let commands = has_command.then_some(remedy.command).into_iter().chain(then);
    lines.extend(commands.map(|command| (format!("  {command}"), LineKind::Strong)));
    let more = (left_out > 0).then(|| format!("{}.", left_out_words(left_out, "command")));
    lines.extend(more.map(|more| (more, LineKind::Quiet)));
    lines
}

fn tree_lines(row: &TreeRow) -> Vec<PaneLine> {
    let text = match &row.item {
        TreeItem::NoReplacement(why) => Some(why.clone()),
        _ => row.line(),
    };
    text.into_iter().map(|text| (text, LineKind::Strong)).collect()
}

/// The lines broken between words.
fn wrapped(lines: Vec<PaneLine>, width: usize) -> Vec<PaneLine> {
    let broken = |(text, kind): PaneLine| {
        wrap(&harmless(&text), width).into_iter().map(move |part| (part, kind)).collect::<Vec<_>>()
    };
    lines.into_iter().flat_map(broken).collect()
}

fn named(name: &str, value: &str) -> PaneLine {
    (format!("{name}: {value}"), LineKind::Plain)
}
