//! All nodes of the cluster.

use std::collections::BTreeMap;

use nm_core::args::duration::age;
use nm_shared::drain::cordon_owner::CordonOwner;
use ratatui::layout::Rect;

use crate::config::action_table::Action;
use crate::config::columns::ListName;
use crate::layout::ScreenLayout;
use crate::model::Model;
use crate::model::fleet::node_row::{NodeRow, cordon_words};
use crate::model::lists::listing::Rows;
use crate::objects::node_metadata::NodeReadiness;
use crate::objects::watch_state::{WatchKind, WatchState};
use crate::view::canvas::Canvas;
use crate::view::table::{self, Column, DrawnRow};
use crate::view::theme::Tone;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum NodeColumn {
    Node,
    Ready,
    Cordon,
    Maintenance,
    Pods,
    Pool,
    Zone,
    Version,
    Age,
}

const COLUMNS: [(&str, Column<NodeColumn>); 9] = [
    ("node", Column::new(NodeColumn::Node, "NODE", 12, 0, 9)),
    ("ready", Column::new(NodeColumn::Ready, "READY", 10, 0, 8)),
    ("cordoned-by", Column::new(NodeColumn::Cordon, "CORDONED BY", 14, 2, 7)),
    ("maintenance", Column::new(NodeColumn::Maintenance, "MAINTENANCE", 12, 0, 6)),
    ("pods", Column::new(NodeColumn::Pods, "PODS", 4, 0, 4)),
    ("pool", Column::new(NodeColumn::Pool, "POOL", 10, 1, 5)),
    ("zone", Column::new(NodeColumn::Zone, "ZONE", 10, 1, 2)),
    ("version", Column::new(NodeColumn::Version, "VERSION", 9, 0, 3)),
    ("age", Column::new(NodeColumn::Age, "AGE", 6, 0, 1)),
];

pub(super) fn draw(model: &Model, canvas: &mut Canvas<'_>, screen: &ScreenLayout) {
    let rows = &model.nodes.rows;
    if rows.len() == 0 {
        nothing(model, canvas, screen.body);
        return;
    }
    table::draw(rows, &columns(model, screen), INDENT, model, canvas, screen);
}

/// The cursor and the mark come before the first column.
const INDENT: u16 = 2;

/// The columns that fit the screen.
fn columns(model: &Model, screen: &ScreenLayout) -> Vec<Column<NodeColumn>> {
    let width = screen.heads.width.saturating_sub(INDENT);
    let longest = model.nodes.rows.all().map(|row| row.name().len()).max().unwrap_or(0);
    let mut columns = table::chosen(&COLUMNS, model.options.config.columns.of(ListName::Nodes));
    for column in columns.iter_mut().filter(|column| column.what == NodeColumn::Node) {
        column.width = u16::try_from(longest).unwrap_or(u16::MAX).clamp(4, (width / 3).max(4));
    }
    table::fit(&columns, width)
}

impl DrawnRow for NodeRow {
    type Cell = NodeColumn;

    fn cell(&self, column: &Column<NodeColumn>, model: &Model, canvas: &Canvas<'_>) -> (String, Tone) {
        let text = match column.what {
            NodeColumn::Node => return (self.name().to_owned(), Tone::Strong),
            NodeColumn::Ready => return readiness(self.readiness()),
            NodeColumn::Maintenance if self.state.is_some() => {
                let (glyph, tone) = canvas.glyphs.node(self.state);
                return (format!("{glyph} {}", self.state_word()), tone);
            }
            NodeColumn::Cordon => match self.cordon() {
                Some(owner @ CordonOwner::Maintenance) => cordon_words(owner).to_owned(),
                Some(owner) => return (cordon_words(owner).to_owned(), Tone::Busy),
                None => String::new(),
            },
            NodeColumn::Maintenance => String::new(),
            NodeColumn::Pods => {
                let count = model.nodes.pods.of(self.name());
                let unknown = if model.nodes.pods.is_forbidden() { "?" } else { "-" };
                let count = count.map_or_else(|| unknown.to_owned(), |count| count.to_string());
                return (format!("{count:>4}"), Tone::Plain);
            }
            NodeColumn::Pool => self.pool().to_owned(),
            NodeColumn::Zone => self.zone().to_owned(),
            NodeColumn::Version => self.version().to_owned(),
            NodeColumn::Age => self
                .created()
                .map_or_else(String::new, |created| age(model.now.duration_since(created).as_secs())),
        };
        if text.is_empty() { (String::from("-"), Tone::Quiet) } else { (text, Tone::Plain) }
    }
}

fn readiness(readiness: Option<NodeReadiness>) -> (String, Tone) {
    let (sign, tone) = match readiness {
        Some(NodeReadiness::Ready) => (" ", Tone::Plain),
        Some(NodeReadiness::NotReady) => ("!", Tone::Bad),
        Some(NodeReadiness::Unknown) => ("?", Tone::Bad),
        None => return (String::from("  -"), Tone::Quiet),
    };
    (format!("{sign} {}", readiness.map_or("", NodeReadiness::word)), tone)
}

/// Draws how many nodes are Ready, and how many are cordoned, by whom.
pub(super) fn draw_summary(model: &Model, canvas: &mut Canvas<'_>, area: Rect) {
    let mut ready: BTreeMap<NodeReadiness, usize> = BTreeMap::new();
    let mut cordons: BTreeMap<&CordonOwner, usize> = BTreeMap::new();
    for row in model.nodes.rows.all() {
        if let Some(readiness) = row.readiness() {
            *ready.entry(readiness).or_default() += 1;
        }
        if let Some(owner) = row.cordon() {
            *cordons.entry(owner).or_default() += 1;
        }
    }
    let mut x = area.x + 1;
    for (state, count) in ready.iter().rev() {
        let tone = if *state == NodeReadiness::Ready { Tone::Plain } else { Tone::Bad };
        let text = format!("{} {count}", state.word());
        x = canvas.write_whole(area, x, &text, tone).map_or(x, |end| end + 2);
    }
    let cordoned: usize = cordons.values().sum();
    if cordoned > 0 {
        let owners: Vec<String> =
            cordons.iter().map(|(owner, count)| format!("{} {count}", cordon_words(owner))).collect();
        x = canvas.write_whole(area, x, &format!("Cordoned {cordoned}"), Tone::Busy).unwrap_or(x);
        canvas.write(area, x, &format!(": {}", owners.join(", ")), Tone::Plain);
    }
}

fn nothing(model: &Model, canvas: &mut Canvas<'_>, area: Rect) {
    let plain = |text: String| (text, Tone::Plain);
    let mut lines = vec![plain(String::new())];
    let total = model.nodes.rows.total();
    match model.health.of(WatchKind::Nodes) {
        _ if total > 0 => {
            lines.push(plain(format!("None of {total} nodes matches the filter.")));
            lines.push((format!("{} clears the filter", model.hint(Action::Back)), Tone::Quiet));
        }
        WatchState::Forbidden(why) => {
            lines.push((String::from("You have no permission to list nodes:"), Tone::Bad));
            lines.push(plain(why.clone()));
            let (switch, again) = (model.hint(Action::Switch), model.hint(Action::Reconnect));
            lines.push((format!("{switch} shows the maintenances, {again} tries again"), Tone::Quiet));
        }
        WatchState::Lost { error, .. } if !model.nodes.is_listed => {
            lines.push((String::from("The nodes could not be loaded:"), Tone::Bad));
            lines.push(plain(error.clone()));
        }
        _ if !model.nodes.is_listed => {
            lines.push(plain(format!("Loading the nodes of {}", model.options.context)));
        }
        _ => lines.push(plain(String::from("The cluster has no nodes."))),
    }
    canvas.write_paragraphs(area, 3, &lines);
}
