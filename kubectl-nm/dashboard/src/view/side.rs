//! The side pane: events about the open node, or what there is to know of the selected row.

use ratatui::layout::Rect;

use crate::config::action_table::Action;
use crate::layout::ScreenLayout;
use crate::model::panes::pane_lines::LineKind;
use crate::model::{Model, SideContent};
use crate::objects::watch_state::WatchKind;
use crate::view::canvas::{Canvas, line};
use crate::view::header::age_word;
use crate::view::theme::Tone;

pub(super) fn draw(model: &Model, canvas: &mut Canvas<'_>, screen: &ScreenLayout) {
    let Some(side) = model.side else { return };
    let area = screen.side;
    if area.height == 0 {
        return;
    }
    let (title, kind) = match side.shows {
        SideContent::Document => ("YAML", WatchKind::Maintenances),
        SideContent::Details => ("DETAILS", WatchKind::Maintenances),
        SideContent::Events => ("EVENTS", WatchKind::Events),
    };
    let visible = Rect { y: area.y + 1, height: area.height.saturating_sub(1), ..area };
    let lines = model.pane_lines(screen.side_columns());
    let (count, rows) = (lines.len(), screen.side_rows());
    let shown = lines.into_iter().skip(side.top).take(rows).map(|(text, kind)| (text, tone(kind)));
    let head = line(area, 0);
    let across = canvas.glyphs.frame[0].repeat(usize::from(head.width));
    canvas.write(head, head.x, &across, Tone::Accent);
    let (keys, switch) = (&model.options.config.keys, model.hint(Action::Switch));
    let hint = if side.has_focus {
        format!("[{}] scroll  {switch} back", keys.up_and_down())
    } else {
        format!("{switch} scroll")
    };
    let tone = if side.has_focus { Tone::Badge } else { Tone::Strong };
    let mut x = canvas.write(head, head.x + 1, &format!(" {title} "), tone);
    if count > rows {
        let last = (side.top + rows).min(count);
        x = canvas.write(head, x, &format!("{}-{last} of {count} ", side.top + 1), tone);
    }
    let x = canvas.write(head, x + 1, &format!(" {hint} "), Tone::Quiet);
    if let Some((age, tone)) = age_word(model.health.of(kind), model.now) {
        canvas.write(head, x + 1, &format!(" {age} "), tone);
    }
    canvas.write_lines(visible, 1, &shown.collect::<Vec<_>>());
}

pub(super) fn tone(kind: LineKind) -> Tone {
    match kind {
        LineKind::Plain => Tone::Plain,
        LineKind::Strong => Tone::Strong,
        LineKind::Quiet => Tone::Quiet,
        LineKind::Bad => Tone::Bad,
    }
}
