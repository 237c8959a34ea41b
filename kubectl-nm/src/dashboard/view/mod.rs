//! What the model looks like. Nothing here changes it, and nothing that cannot be seen is looked at.

mod columns;
mod dialogs;
mod excerpt;
mod fleet;
mod footer;
mod header;
mod help;
mod node;
mod pen;
mod side;
mod summary;
mod theme;

use ratatui::Frame;

use self::pen::Pen;
use crate::dashboard::geometry::{Screen, Shape};
use crate::dashboard::model::Model;

/// Draws the whole screen.
pub(crate) fn draw(model: &Model, frame: &mut Frame) {
    let area = frame.area();
    let screen = Screen::of(model, area);
    let mut pen = Pen::new(frame.buffer_mut(), &model.options);
    if screen.shape == Shape::Line {
        match &model.dialog {
            Some(dialog) => dialogs::draw_line(dialog, &mut pen, area),
            None => header::draw_line(model, &mut pen, screen.header),
        }
        return;
    }
    header::draw(model, &mut pen, screen.header);
    summary::draw_banner(model, &mut pen, screen.banner);
    // Old data never looks live.
    pen.fade(model.is_old());
    if let Some(open) = &model.open {
        summary::draw_node(model, open, &mut pen, &screen);
        node::draw(model, open, &mut pen, &screen);
    } else {
        summary::draw_fleet(model, &mut pen, screen.summary);
        fleet::draw(model, &mut pen, &screen);
    }
    side::draw(model, &mut pen, screen.side);
    footer::draw_blockers(model, &mut pen, screen.blockers);
    footer::draw_why(model, &mut pen, screen.why);
    pen.fade(false);
    footer::draw(model, &mut pen, screen.footer);
    if let Some(dialog) = &model.dialog {
        dialogs::draw(model, dialog, &mut pen, area);
    }
}
