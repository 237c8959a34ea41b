//! The pods of the open node.

use jiff::Timestamp;
use nm_core::explain::owner::Owner;
use nm_shared::PodState;
use ratatui::layout::Rect;

use crate::config::action_table::Action;
use crate::config::columns::{Columns, ListName};
use crate::elapsed::elapsed;
use crate::layout::ScreenLayout;
use crate::model::lists::listing::Rows;
use crate::model::open_node::pod_row::{PodProgress, PodRow, detail};
use crate::model::{Model, OpenNode};
use crate::objects::watch_state::{WatchKind, WatchState};
use crate::view::canvas::{Canvas, line};
use crate::view::table::{self, Column, DrawnRow};
use crate::view::theme::Tone;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PodColumn {
    State,
    Pod,
    Owner,
    Time,
    Detail,
    Reason,
}

const COLUMNS: [(&str, Column<PodColumn>); 6] = [
    ("state", Column::new(PodColumn::State, "STATE", 13, 0, 8)),
    ("pod", Column::new(PodColumn::Pod, "NAMESPACE/POD", 18, 3, 9)),
    ("owner", Column::new(PodColumn::Owner, "OWNER", 14, 1, 1)),
    ("for", Column::new(PodColumn::Time, "FOR", 6, 0, 2)),
    ("detail", Column::new(PodColumn::Detail, "DETAIL", 14, 4, 5)),
    ("reason", Column::new(PodColumn::Reason, "REASON", 17, 0, 4)),
];

/// Below so many columns owners are left out: the end of a pod's name, which distinguishes it from its siblings, needs the
/// space.
const WITH_OWNERS_FROM: u16 = 120;

pub(super) fn draw(model: &Model, open: &OpenNode, canvas: &mut Canvas<'_>, screen: &ScreenLayout) {
    let rows = &open.pods.rows;
    if rows.len() == 0 {
        nothing(model, open, canvas, screen.body);
        return;
    }
    let chosen = model.options.config.columns.of(ListName::Pods);
    table::draw(rows, &columns(open.pods.longest, chosen, screen.heads.width), INDENT, model, canvas, screen);
}

/// The cursor comes before the first column.
pub(super) const INDENT: u16 = 1;

/// The columns with these names that fit the width. Names of pods get no more than the longest needs.
pub(super) fn columns(longest: usize, names: &[&str], width: u16) -> Vec<Column<PodColumn>> {
    // Why a pod is blocked matters more than who owns it.
    let is_wide = width >= WITH_OWNERS_FROM;
    let mut columns = table::chosen(&COLUMNS, names);
    // Somebody who chose the columns wants them.
    let is_default = names == Columns::default().of(ListName::Pods);
    columns.retain(|column| is_wide || !is_default || column.what != PodColumn::Owner);
    let mut columns = table::fit(&columns, width.saturating_sub(INDENT));
    table::give_rest(&mut columns, PodColumn::Pod, longest, PodColumn::Detail);
    columns
}

impl DrawnRow for PodRow {
    type Cell = PodColumn;

    fn cell(&self, column: &Column<PodColumn>, model: &Model, canvas: &Canvas<'_>) -> (String, Tone) {
        let tone = match self.progress.state {
            Some(PodState::Staying | PodState::Gone) => Tone::Quiet,
            _ => Tone::Plain,
        };
        let text = match column.what {
            PodColumn::State => {
                let (glyph, tone) = canvas.glyphs.pod(self.progress.state);
                return (format!("{glyph} {}", self.progress.word()), tone);
            }
            PodColumn::Pod => {
                canvas.cut_in_middle(&format!("{}/{}", self.id.namespace, self.id.name), column.width)
            }
            PodColumn::Owner => self.id.owner.as_ref().map_or("", Owner::text).to_owned(),
            PodColumn::Time => time(&self.progress, model.now),
            PodColumn::Detail => detail(self, model.now),
            PodColumn::Reason => {
                self.progress.reason.map_or_else(|| String::from("-"), |reason| reason.as_str().to_owned())
            }
        };
        (text, tone)
    }
}

pub(super) fn time(progress: &PodProgress, now: Timestamp) -> String {
    progress.since.map_or_else(|| String::from("-"), |since| elapsed(now.duration_since(since).as_secs()))
}

fn nothing(model: &Model, open: &OpenNode, canvas: &mut Canvas<'_>, area: Rect) {
    let clear = format!("{} clears the filter", model.hint(Action::Back));
    let (first, second) = match model.health.of(WatchKind::Pods) {
        _ if open.pods.rows.total() > 0 => {
            (format!("None of {} pods matches the filter.", open.pods.rows.total()), clear.as_str())
        }
        WatchState::Connecting => (format!("Loading the pods of {}", open.name), ""),
        WatchState::Forbidden(why) => {
            (String::from("The status lists no pod that still has to go."), why.as_str())
        }
        WatchState::Unrecorded => (String::from("The status lists no pod that still has to go."), ""),
        WatchState::Lost { error, .. } if !open.pods.complete => {
            (String::from("The pods could not be loaded:"), error.as_str())
        }
        _ => (String::from("No pod runs on this node."), ""),
    };
    canvas.write(line(area, 1), area.x + 3, &first, Tone::Plain);
    canvas.write(line(area, 2), area.x + 3, second, Tone::Quiet);
}
