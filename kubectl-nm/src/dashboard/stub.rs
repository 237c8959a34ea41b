//! Stands in for `view` until it is there.

use ratatui::Frame;

use super::model::Model;

/// Draws how the watches are.
pub(crate) fn draw(model: &Model, frame: &mut Frame<'_>) {
    frame.render_widget(format!("{:#?}", model.links), frame.area());
}
