//! The pods of the open node, in columns or as cards.

use jiff::Timestamp;
use ratatui::layout::Rect;

use crate::args::duration::age;
use crate::dashboard::geometry::{Screen, Shape};
use crate::dashboard::message::Feed;
use crate::dashboard::model::pod_row::{Place, PodRow, Stand};
use crate::dashboard::model::watch_health::Freshness;
use crate::dashboard::model::{Model, OpenNode};
use crate::dashboard::view::columns::{Column, GAP, fit};
use crate::dashboard::view::pen::{Pen, cell, line};
use crate::dashboard::view::theme::Tone;
use crate::explain::remedy::in_short;

/// What a column shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum What {
    State,
    Pod,
    Owner,
    Time,
    Detail,
}

const COLUMNS: [Column<What>; 5] = [
    Column::new(What::State, "STATE", 10, 0, 8),
    Column::new(What::Pod, "NAMESPACE/POD", 18, 3, 9),
    Column::new(What::Owner, "OWNER", 14, 1, 1),
    Column::new(What::Time, "FOR", 6, 0, 2),
    Column::new(What::Detail, "DETAIL", 14, 4, 5),
];

/// With fewer columns owners are not shown: the end of a pod's name, which tells it from its brothers, needs the room.
const WITH_OWNERS_FROM: u16 = 120;

/// The pods.
pub(super) fn draw(model: &Model, open: &OpenNode, pen: &mut Pen<'_>, screen: &Screen) {
    let rows = &open.pods.rows;
    if rows.len() == 0 {
        nothing(model, open, pen, screen.body);
        return;
    }
    // Why a pod is blocked is worth more than whose it is.
    let is_wide = screen.heads.width >= WITH_OWNERS_FROM;
    let columns: Vec<Column<What>> =
        COLUMNS.into_iter().filter(|column| is_wide || column.what != What::Owner).collect();
    let columns = fit(&columns, screen.heads.width.saturating_sub(1));
    let mut x = screen.heads.x + 1;
    for column in &columns {
        pen.write(cell(screen.heads, x, column.width), x, column.head, Tone::Quiet);
        x += column.width + GAP;
    }
    for (row, index) in (0u16..).zip(rows.window(screen.rows())) {
        let Some(entry) = rows.nth(index) else { continue };
        let area = Rect { height: screen.row_height(), ..line(screen.body, row * screen.row_height()) };
        let selected = index == rows.at();
        if selected {
            pen.write(area, area.x, pen.glyphs.cursor, Tone::Strong);
        }
        match screen.shape {
            Shape::Cards => card(model, pen, area, entry),
            _ => table_row(model, pen, area, &columns, entry),
        }
        if selected {
            pen.select(area);
        }
    }
}

fn table_row(model: &Model, pen: &mut Pen<'_>, area: Rect, columns: &[Column<What>], row: &PodRow) {
    let (glyph, tone) = pen.glyphs.pod(row.stand.place);
    let rest = if matches!(row.stand.place, Place::Stays | Place::Gone) { Tone::Quiet } else { Tone::Plain };
    let mut x = area.x + 1;
    for column in columns {
        let (text, tone) = match column.what {
            What::State => (format!("{glyph}{}", row.stand.place.word()), tone),
            What::Pod => (format!("{}/{}", row.id.namespace, row.id.name), rest),
            What::Owner => (row.id.owner.clone(), rest),
            What::Time => (time(&row.stand, model.now), rest),
            What::Detail => (detail(row, model.now), rest),
        };
        pen.write(cell(area, x, column.width), x, &text, tone);
        x += column.width + GAP;
    }
}

fn card(model: &Model, pen: &mut Pen<'_>, area: Rect, row: &PodRow) {
    let (glyph, tone) = pen.glyphs.pod(row.stand.place);
    let first = line(area, 0);
    let right = pen.write_right(first, &time(&row.stand, model.now), Tone::Plain);
    let first = Rect { width: right.saturating_sub(first.x + 1), ..first };
    let x = pen.write(first, first.x + 1, &format!("{glyph}{}", row.stand.place.word()), tone);
    pen.write(first, x + 1, &format!("{}/{}", row.id.namespace, row.id.name), Tone::Plain);
    let second = line(area, 1);
    let detail = detail(row, model.now);
    pen.write(second, second.x + 4, if detail.is_empty() { &row.id.owner } else { &detail }, Tone::Plain);
}

/// For how long it has been where it is.
fn time(stand: &Stand, now: Timestamp) -> String {
    stand.since.map_or_else(|| String::from("-"), |since| age(now.duration_since(since).as_secs()))
}

/// What there is to say about a pod beside its state.
fn detail(row: &PodRow, now: Timestamp) -> String {
    let Stand { place, reason, message, attempts, deadline, .. } = &row.stand;
    match (place, reason, deadline) {
        (Place::Blocked, Some(reason), _) => {
            let short = in_short(&row.id.namespace, *reason, message);
            if *attempts > 0 { format!("{short} (refused {attempts}x)") } else { short }
        }
        (Place::Ending, _, Some(deadline)) => match deadline.duration_since(now).as_secs() {
            left if left >= 0 => format!("grace {} left", age(left)),
            over => format!("grace over for {}", age(-over)),
        },
        (Place::Waiting, ..) if message.is_empty() => String::from("not asked to go yet"),
        (Place::Evicting, ..) => String::from("asked to go"),
        (Place::ToGo, ..) => String::from("still there"),
        _ => message.clone(),
    }
}

/// Why there is no pod.
fn nothing(model: &Model, open: &OpenNode, pen: &mut Pen<'_>, area: Rect) {
    let (first, second) = match model.links.of(Feed::Pods) {
        _ if open.pods.rows.total() > 0 => {
            (format!("None of {} pods passes the filter.", open.pods.rows.total()), "[Esc] takes it away")
        }
        Freshness::Connecting => (format!("Asking for the pods of {}", open.name), ""),
        Freshness::Forbidden(why) => (String::from("The status names no pod that is still to go."), why),
        Freshness::Stale { error, .. } if !open.pods.complete => {
            (String::from("The pods are not known:"), error)
        }
        _ => (String::from("There is no pod on this node."), ""),
    };
    pen.write(line(area, 1), area.x + 3, &first, Tone::Plain);
    pen.write(line(area, 2), area.x + 3, second, Tone::Quiet);
}
