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

use self::canvas::Canvas;
use self::theme::Tone;
use crate::layout::ScreenLayout;
use crate::model::Model;

pub(crate) fn draw(model: &Model, frame: &mut Frame) {
    let area = frame.area();
    let screen = ScreenLayout::of(model, area);
    let mut canvas = Canvas::new(frame.buffer_mut(), model.options.appearance);
    if let Some(page) = &model.output {
        return output::draw(model, page, &mut canvas, area);
    }
    header::draw(model, &mut canvas, screen.header);
    if let Some((notice, is_bad)) = model.banner() {
        let tone = if is_bad { Tone::Bad } else { Tone::Plain };
        canvas.write_wrapped(screen.banner, &notice, tone);
    }
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
    footer::draw(model, &mut canvas, screen);
    if let Some(dialog) = &model.dialog {
        dialogs::draw(model, dialog, &mut canvas, area);
    }
}
