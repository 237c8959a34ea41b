//! `view`: draws the model. Nothing here changes it, and only visible rows are visited.

mod action_dialogs;
mod bar;
pub(super) mod canvas;
mod dialog_lines;
pub(super) mod dialogs;
mod fleet;
pub(super) mod footer;
pub(super) mod header;
mod node;
mod nodes;
mod output;
mod panel;
mod replay_line;
mod side;
mod start_dialog;
mod summary;
pub(super) mod table;
pub(crate) mod theme;
mod tree;
mod volumes;

use ratatui::Frame;
use ratatui::layout::Rect;

use self::canvas::Canvas;
use self::theme::Tone;
use crate::layout::{ScreenLayout, notice_lines, split_page};
use crate::model::Model;

/// Draws the notices above the rows, one below the other, as far as there is space.
fn draw_banners(model: &Model, canvas: &mut Canvas<'_>, mut free: Rect, screen: Rect) {
    for (notice, is_bad) in model.banners() {
        let tone = if is_bad { Tone::Bad } else { Tone::Plain };
        let height = notice_lines(&notice, screen).min(free.height);
        canvas.write_wrapped(Rect { height, ..free }, &notice, tone);
        free = Rect { y: free.y + height, height: free.height - height, ..free };
    }
}

pub(crate) fn draw(model: &Model, frame: &mut Frame) {
    let area = frame.area();
    let [rows, page_area] = split_page(model, area);
    let screen = ScreenLayout::of(model, rows);
    let mut canvas = Canvas::new(frame.buffer_mut(), model.options.appearance);
    if let Some(page) = &model.output {
        output::draw(model, page, &mut canvas, page_area);
        if rows == page_area {
            return;
        }
    }
    header::draw(model, &mut canvas, screen.header);
    draw_banners(model, &mut canvas, screen.banner, area);
    // Stale data never looks live.
    canvas.fade(model.is_stale());
    if let Some(open) = &model.open {
        summary::draw_node(model, open, &mut canvas, &screen);
        summary::draw_outcome(model, &mut canvas, screen.outcome);
        if open.tree.is_shown {
            tree::draw(model, open, &mut canvas, &screen);
        } else {
            node::draw(model, open, &mut canvas, &screen);
        }
        volumes::draw(model, &mut canvas, screen.volumes);
    } else if model.shows_nodes() {
        nodes::draw_summary(model, &mut canvas, screen.summary);
        nodes::draw(model, &mut canvas, &screen);
    } else {
        summary::draw_fleet(model, &mut canvas, screen.summary);
        fleet::draw(model, &mut canvas, &screen);
    }
    panel::draw(model, &mut canvas, &screen);
    side::draw(model, &mut canvas, &screen);
    footer::draw_blockers(model, &mut canvas, screen.blockers);
    footer::draw_why(model, &mut canvas, screen.why);
    canvas.fade(false);
    replay_line::draw(model, &mut canvas, screen.replay);
    if model.output.is_some() {
        output::draw_edge(&mut canvas, screen.footer);
    } else {
        footer::draw(model, &mut canvas, screen);
    }
    if let Some(dialog) = &model.dialog {
        dialogs::draw(model, dialog, &mut canvas, area);
    }
}
