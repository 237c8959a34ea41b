//! The tree of replacements of the open node: where its pods went.

use nm_core::args::duration::age;

use crate::config::action_table::Action;
use crate::elapsed::elapsed;
use crate::layout::ScreenLayout;
use crate::model::fleet::drain_record::SeenReadiness;
use crate::model::lists::listing::Rows;
use crate::model::open_node::pod_row::detail;
use crate::model::tree::tree_row::{Attention, TreeItem, TreeRow, Unknown};
use crate::model::{Model, OpenNode};
use crate::objects::replacement_pod::ReplicaState;
use crate::objects::workload::ReadyPods;
use crate::view::canvas::{Canvas, line};
use crate::view::header::data_age;
use crate::view::node;
use crate::view::table::{self, Column, DrawnRow};
use crate::view::theme::Tone;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum TreeColumn {
    Name,
    State,
    Time,
    Detail,
}

const COLUMNS: [Column<TreeColumn>; 4] = [
    Column::new(TreeColumn::Name, "WORKLOAD, POD, REPLACEMENT", 14, 3, 9),
    Column::new(TreeColumn::State, "STATE", 13, 0, 8),
    Column::new(TreeColumn::Time, "FOR", 6, 0, 2),
    Column::new(TreeColumn::Detail, "DETAIL", 14, 4, 5),
];

pub(super) fn draw(model: &Model, open: &OpenNode, canvas: &mut Canvas<'_>, screen: &ScreenLayout) {
    let rows = &open.tree.rows;
    if rows.len() > 0 {
        let columns = table::fit(&COLUMNS, screen.heads.width.saturating_sub(1));
        return table::draw(rows, &columns, 1, model, canvas, screen);
    }
    let area = screen.body;
    let clear = format!("{} clears the filter", model.hint(Action::Back));
    let (first, second) = if rows.total() > 0 {
        (format!("None of {} rows matches the filter.", rows.total()), clear.as_str())
    } else if open.pods.complete || open.pods.hidden {
        (String::from("No pod leaves this node."), "")
    } else {
        (format!("Loading the pods of {}", open.name), "")
    };
    canvas.write(line(area, 1), area.x + 3, &first, Tone::Plain);
    canvas.write(line(area, 2), area.x + 3, second, Tone::Quiet);
}

impl DrawnRow for TreeRow {
    type Cell = TreeColumn;

    fn cell(&self, column: &Column<TreeColumn>, model: &Model, canvas: &Canvas<'_>) -> (String, Tone) {
        match column.what {
            TreeColumn::Name => {
                let (name, tone) = self.name(canvas);
                (canvas.cut_in_middle(&name, column.width), tone)
            }
            TreeColumn::State => self.state(canvas),
            TreeColumn::Time => (self.time(model), Tone::Plain),
            TreeColumn::Detail => self.detail(model),
        }
    }
}

impl TreeRow {
    fn name(&self, canvas: &Canvas<'_>) -> (String, Tone) {
        let [across, .., corner] = canvas.glyphs.frame;
        let none = if self.group.is_unknown { "owner unknown" } else { "no controller" };
        match &self.item {
            TreeItem::Workload { .. } => match &self.group.name {
                (namespace, Some(owner)) => (format!("{namespace}: {owner}"), Tone::Strong),
                (namespace, None) => (format!("{namespace}: {none}"), Tone::Strong),
            },
            TreeItem::Pod(row) => (format!("  {}", row.id.name), Tone::Plain),
            TreeItem::Replacement { replica, .. } => {
                (format!("   {corner}{across} {}", replica.id.name), Tone::Plain)
            }
            TreeItem::NoReplacement(_) => (format!("   {corner}{across} -"), Tone::Quiet),
        }
    }

    fn state(&self, canvas: &Canvas<'_>) -> (String, Tone) {
        match &self.item {
            TreeItem::Workload { readiness: Some(ReadyPods { ready, wanted }), .. } => {
                let tone = if ready < wanted { Tone::Bad } else { Tone::Good };
                let sign = if self.group.attention == Attention::Down { "! " } else { "" };
                (format!("{sign}{ready}/{wanted} ready"), tone)
            }
            TreeItem::Workload { .. } | TreeItem::NoReplacement(_) => (String::from("-"), Tone::Quiet),
            TreeItem::Pod(row) => {
                let (glyph, tone) = canvas.glyphs.pod(row.progress.state);
                (format!("{glyph} {}", self.word()), tone)
            }
            TreeItem::Replacement { replica, .. } => {
                let (glyph, tone) = match &replica.state {
                    ReplicaState::Ready => (canvas.glyphs.done, Tone::Good),
                    state if state.is_stuck() => (canvas.glyphs.blocked, Tone::Bad),
                    _ => (canvas.glyphs.requested, Tone::Busy),
                };
                (format!("{glyph} {}", self.word()), tone)
            }
        }
    }

    fn time(&self, model: &Model) -> String {
        match &self.item {
            TreeItem::Workload { .. } | TreeItem::NoReplacement(_) => String::new(),
            TreeItem::Pod(row) => node::time(&row.progress, model.now),
            TreeItem::Replacement { replica, .. } => {
                elapsed(model.now.duration_since(replica.created).as_secs())
            }
        }
    }

    fn detail(&self, model: &Model) -> (String, Tone) {
        match &self.item {
            TreeItem::Workload { unknown: Unknown::Forbidden(resource), .. } => {
                (format!("no permission to list {resource}"), Tone::Busy)
            }
            TreeItem::Workload { unknown: Unknown::OldSince(since), .. } => {
                (data_age(*since, model.now), Tone::Alarm)
            }
            TreeItem::Workload { seen: Some(SeenReadiness { lowest, since, .. }), .. } => {
                let ReadyPods { ready, wanted } = lowest;
                let watched = age(model.now.duration_since(*since).as_secs());
                (format!("lowest {ready}/{wanted}, watched for {watched}"), Tone::Quiet)
            }
            TreeItem::Workload { .. } => (String::new(), Tone::Plain),
            TreeItem::Pod(row) => (detail(row, model.now), Tone::Plain),
            TreeItem::Replacement { replica, message } => {
                let place =
                    if replica.node.is_empty() { String::new() } else { format!("on {}", replica.node) };
                let parts = [place.as_str(), message.as_str()];
                let parts: Vec<&str> = parts.into_iter().filter(|part| !part.is_empty()).collect();
                (parts.join(", "), Tone::Plain)
            }
            TreeItem::NoReplacement(why) => (why.clone(), Tone::Quiet),
        }
    }
}
