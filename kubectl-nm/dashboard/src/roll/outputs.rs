//! The output of the commands of a roll, below its nodes.

use ratatui::layout::{Constraint, Layout, Rect};

use crate::roll::model::RollModel;
use crate::view::canvas::{Canvas, line};
use crate::view::theme::Tone;

/// How many lines the output gets: what the table does not need, and at least half of both.
pub(super) fn output_height(model: &RollModel, space: u16) -> u16 {
    let outputs = model.outputs();
    if outputs.is_empty() {
        return 0;
    }
    let rows = u16::try_from(model.rows.len()).unwrap_or(u16::MAX);
    space.saturating_sub(rows).max(space / 2)
}

/// Draws the last lines of output of each node below its name.
pub(super) fn draw_outputs(model: &RollModel, canvas: &mut Canvas<'_>, area: Rect) {
    let mut outputs = model.outputs();
    // Each has a title and a line at least.
    outputs.truncate(usize::from(area.height / 2));
    let lengths: Vec<usize> = outputs.iter().map(|(_, lines)| lines.len() + 1).collect();
    let heights = shares(&lengths, usize::from(area.height));
    let lengths = heights.iter().map(|height| Constraint::Length(u16::try_from(*height).unwrap_or(u16::MAX)));
    let areas = Layout::vertical(lengths.chain([Constraint::Fill(1)])).split(area);
    for ((row, lines), area) in outputs.iter().zip(areas.iter()) {
        let head = line(*area, 0);
        let across = canvas.glyphs.frame[0].repeat(usize::from(head.width));
        canvas.write(head, head.x, &across, Tone::Quiet);
        let x = canvas.write(head, head.x + 1, &format!(" {} ", row.progress.node), Tone::Strong);
        let step = format!(" {} ", row.step_word());
        let log = model.log_folder.as_ref().map(|folder| folder.join(format!("{}.log", row.progress.node)));
        let log = log.map(|log| format!(" log {} ", log.display())).unwrap_or_default();
        // The table has the step, too.
        let space = usize::from((head.x + head.width).saturating_sub(x + 1));
        let (step_width, log_width) = (step.chars().count() + 1, log.chars().count());
        let shown = match log_width {
            0 => vec![step],
            _ if step_width + log_width <= space => vec![step, log],
            _ if log_width <= space => vec![log],
            _ => vec![step],
        };
        let _ = shown.iter().fold(x, |x, text| canvas.write(head, x + 1, text, Tone::Quiet));
        let height = usize::from(area.height.saturating_sub(1));
        let last = &lines[lines.len().saturating_sub(height)..];
        for (at, text) in (1u16..).zip(last) {
            let line = line(*area, at);
            canvas.write(line, line.x + 1, text, Tone::Plain);
        }
    }
}

/// Divides a height evenly among parts, none of which gets more than its length.
fn shares(lengths: &[usize], height: usize) -> Vec<usize> {
    let mut shares = vec![0; lengths.len()];
    let mut by_length: Vec<usize> = (0..lengths.len()).collect();
    by_length.sort_by_key(|at| lengths[*at]);
    let mut left = height;
    for (divided, at) in by_length.into_iter().enumerate() {
        shares[at] = lengths[at].min(left / (lengths.len() - divided));
        left -= shares[at];
    }
    shares
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn output_shares_the_height_and_short_ones_leave_space_to_long_ones() {
        for (lengths, height, expected) in [
            (&[20, 3][..], 14, &[11, 3][..]),
            (&[20, 20], 13, &[6, 7]),
            (&[2, 20, 4], 12, &[2, 6, 4]),
            (&[1, 1], 8, &[1, 1]),
            (&[], 8, &[]),
        ] {
            assert_eq!(shares(lengths, height), expected);
        }
    }
}
