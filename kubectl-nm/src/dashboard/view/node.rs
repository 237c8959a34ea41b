//! The pods of the open node, as a table or as cards.

use jiff::Timestamp;
use ratatui::layout::Rect;

use crate::args::duration::age;
use crate::dashboard::layout::{ScreenLayout, Shape};
use crate::dashboard::message::WatchKind;
use crate::dashboard::model::listing::Rows;
use crate::dashboard::model::pod_row::{PodProgress, PodRow};
use crate::dashboard::model::watch_health::Freshness;
use crate::dashboard::model::{Model, OpenNode};
use crate::dashboard::view::canvas::{Canvas, cell, line};
use crate::dashboard::view::columns::{Column, GAP, fit};
use crate::dashboard::view::theme::Tone;
use crate::explain::remedy::in_short;
use crate::maintenance::PodState;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum PodColumn {
    State,
    Pod,
    Owner,
    Time,
    Detail,
}

const COLUMNS: [Column<PodColumn>; 5] = [
    Column::new(PodColumn::State, "STATE", 12, 0, 8),
    Column::new(PodColumn::Pod, "NAMESPACE/POD", 18, 3, 9),
    Column::new(PodColumn::Owner, "OWNER", 14, 1, 1),
    Column::new(PodColumn::Time, "FOR", 6, 0, 2),
    Column::new(PodColumn::Detail, "DETAIL", 14, 4, 5),
];

/// Below so many columns owners are left out: the end of a pod's name, which tells it from its siblings, needs the
/// space.
const WITH_OWNERS_FROM: u16 = 120;

pub(super) fn draw(model: &Model, open: &OpenNode, canvas: &mut Canvas<'_>, screen: &ScreenLayout) {
    let rows = &open.pods.rows;
    if rows.len() == 0 {
        nothing(model, open, canvas, screen.body);
        return;
    }
    // Why a pod is blocked matters more than who owns it.
    let is_wide = screen.heads.width >= WITH_OWNERS_FROM;
    let columns: Vec<Column<PodColumn>> =
        COLUMNS.into_iter().filter(|column| is_wide || column.what != PodColumn::Owner).collect();
    let columns = fit(&columns, screen.heads.width.saturating_sub(1));
    let mut x = screen.heads.x + 1;
    for column in &columns {
        canvas.write(cell(screen.heads, x, column.width), x, column.head, Tone::Quiet);
        x += column.width + GAP;
    }
    for (row, index) in (0u16..).zip(rows.window(screen.rows())) {
        let Some(entry) = rows.nth(index) else { continue };
        let area = Rect { height: screen.row_height(), ..line(screen.body, row * screen.row_height()) };
        let selected = index == rows.at();
        if selected {
            canvas.write(area, area.x, canvas.glyphs.cursor, Tone::Strong);
        }
        match screen.shape {
            Shape::Cards => card(model, canvas, area, entry),
            _ => table_row(model, canvas, area, &columns, entry),
        }
        if selected {
            canvas.select(area);
        }
    }
}

fn table_row(
    model: &Model,
    canvas: &mut Canvas<'_>,
    area: Rect,
    columns: &[Column<PodColumn>],
    row: &PodRow,
) {
    let (glyph, tone) = canvas.glyphs.pod(row.progress.state);
    let rest = if matches!(row.progress.state, Some(PodState::Staying | PodState::Gone)) {
        Tone::Quiet
    } else {
        Tone::Plain
    };
    let mut x = area.x + 1;
    for column in columns {
        let (text, tone) = match column.what {
            PodColumn::State => (format!("{glyph}{}", row.progress.word()), tone),
            PodColumn::Pod => (format!("{}/{}", row.id.namespace, row.id.name), rest),
            PodColumn::Owner => (row.id.owner.clone(), rest),
            PodColumn::Time => (time(&row.progress, model.now), rest),
            PodColumn::Detail => (detail(row, model.now), rest),
        };
        canvas.write(cell(area, x, column.width), x, &text, tone);
        x += column.width + GAP;
    }
}

fn card(model: &Model, canvas: &mut Canvas<'_>, area: Rect, row: &PodRow) {
    let (glyph, tone) = canvas.glyphs.pod(row.progress.state);
    let first = line(area, 0);
    let right = canvas.write_right(first, &time(&row.progress, model.now), Tone::Plain);
    let first = Rect { width: right.saturating_sub(first.x + 1), ..first };
    let x = canvas.write(first, first.x + 1, &format!("{glyph}{}", row.progress.word()), tone);
    canvas.write(first, x + 1, &format!("{}/{}", row.id.namespace, row.id.name), Tone::Plain);
    let second = line(area, 1);
    let detail = detail(row, model.now);
    canvas.write(second, second.x + 4, if detail.is_empty() { &row.id.owner } else { &detail }, Tone::Plain);
}

/// For how long it has been in its state.
fn time(progress: &PodProgress, now: Timestamp) -> String {
    progress.since.map_or_else(|| String::from("-"), |since| age(now.duration_since(since).as_secs()))
}

/// Details beside the state.
fn detail(row: &PodRow, now: Timestamp) -> String {
    let PodProgress { state, reason, facts, message, attempts, deadline, .. } = &row.progress;
    match (state, reason, deadline) {
        (Some(PodState::Blocked), Some(reason), _) => {
            let short = in_short(&row.id.namespace, *reason, facts, message);
            if *attempts > 0 { format!("{short} (refused {attempts}x)") } else { short }
        }
        (Some(PodState::Terminating), _, Some(deadline)) => match deadline.duration_since(now).as_secs() {
            left if left >= 0 => format!("{} of the grace period left", age(left)),
            over => format!("{} after the grace period", age(-over)),
        },
        (Some(PodState::Waiting), ..) if message.is_empty() => String::from("not evicted yet"),
        (Some(PodState::Evicting), ..) => String::from("eviction requested"),
        _ => message.clone(),
    }
}

/// Draws why there is no pod.
fn nothing(model: &Model, open: &OpenNode, canvas: &mut Canvas<'_>, area: Rect) {
    let (first, second) = match model.health.of(WatchKind::Pods) {
        _ if open.pods.rows.total() > 0 => (
            format!("None of {} pods matches the filter.", open.pods.rows.total()),
            "[Esc] clears the filter",
        ),
        Freshness::Connecting => (format!("Loading the pods of {}", open.name), ""),
        Freshness::Forbidden(why) => (String::from("The status lists no pod that still has to go."), why),
        Freshness::Stale { error, .. } if !open.pods.complete => {
            (String::from("The pods could not be loaded:"), error)
        }
        _ => (String::from("No pod runs on this node."), ""),
    };
    canvas.write(line(area, 1), area.x + 3, &first, Tone::Plain);
    canvas.write(line(area, 2), area.x + 3, second, Tone::Quiet);
}
