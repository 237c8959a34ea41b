//! A wait on a terminal: what happened scrolls by as anywhere, and a few lines below it say how things stand now.
//!
//! The lines are at the bottom of what is printed and not on a screen of their own, so that the scrollback tells the
//! whole story afterwards. The terminal's modes stay as they are: whatever ends the program, there is nothing to restore.

use std::io::{self, Stdout};

use crossterm::style as colours;
use jiff::Timestamp;
use nm_shared::NodeMaintenance;
use ratatui::backend::{Backend, ClearType, CrosstermBackend};
use ratatui::buffer::Buffer;
use ratatui::layout::Position;
use ratatui::style::{Color, Modifier, Style as Look};
use ratatui::text::{Line as Text, Span};
use ratatui::{Terminal, TerminalOptions, Viewport};

use crate::duration;
use crate::maintenance::{Standing, node, pods_to_go, status};
use crate::parting::tally;
use crate::picture::Picture;
use crate::text::{Line, Style};

/// How many lines there are at most. Where there are more nodes, the last line sums all of them up.
const LINES: usize = 6;

/// How wide a bar is.
const BAR: usize = 20;

/// The lines at the bottom of the terminal.
pub(crate) struct Live {
    terminal: Terminal<CrosstermBackend<Stdout>>,
}

impl Live {
    /// Takes lines for so many nodes below what is printed.
    ///
    /// # Errors
    ///
    /// When the terminal does not say where its cursor is.
    pub(crate) fn below(nodes: usize, coloured: bool) -> io::Result<Self> {
        colours::force_color_output(coloured);
        let viewport = Viewport::Inline(u16::try_from(nodes.clamp(1, LINES)).unwrap_or(1));
        let backend = CrosstermBackend::new(io::stdout());
        Ok(Self { terminal: Terminal::with_options(backend, TerminalOptions { viewport })? })
    }

    /// Prints what happened above the lines.
    ///
    /// # Errors
    ///
    /// When the terminal is gone.
    pub(crate) fn print(&mut self, lines: &[Line]) -> io::Result<()> {
        if lines.is_empty() {
            return Ok(());
        }
        let width = usize::from(self.terminal.size()?.width).max(1);
        let texts: Vec<Text<'_>> = lines.iter().map(drawn).collect();
        // All at once: each time the terminal is asked where its cursor is.
        let height: usize = texts.iter().map(|text| text.width().div_ceil(width).max(1)).sum();
        let height = u16::try_from(height).unwrap_or(u16::MAX);
        self.terminal.insert_before(height, |buffer| {
            let mut y = buffer.area.y;
            for text in &texts {
                y = wrap(text, buffer, y);
            }
        })
    }

    /// Draws how things stand, or stood when the connection was lost.
    ///
    /// # Errors
    ///
    /// When the terminal is gone.
    pub(crate) fn draw(
        &mut self,
        picture: &Picture,
        now: Timestamp,
        lost: Option<Timestamp>,
    ) -> io::Result<()> {
        self.terminal.draw(|frame| {
            let area = frame.area();
            let lines: Vec<Text<'_>> =
                current_or_old(picture, usize::from(area.height), now, lost).iter().map(drawn).collect();
            frame.render_widget(ratatui::text::Text::from(lines), area);
            // A cursor that is on the screen need not be brought back.
            frame.set_cursor_position(Position { x: area.x, y: area.bottom().saturating_sub(1) });
        })?;
        Ok(())
    }

    /// Removes the lines; whatever is printed next begins where they were.
    ///
    /// # Errors
    ///
    /// When the terminal is gone.
    pub(crate) fn remove(mut self) -> io::Result<()> {
        let top = self.terminal.get_frame().area().as_position();
        self.terminal.set_cursor_position(top)?;
        self.terminal.backend_mut().clear_region(ClearType::AfterCursor)?;
        self.terminal.show_cursor()
    }
}

/// How things stand; or how they stood when the connection was lost, which no line leaves in doubt.
fn current_or_old(picture: &Picture, height: usize, now: Timestamp, lost: Option<Timestamp>) -> Vec<Line> {
    let Some(since) = lost else { return lines(picture, height, now) };
    let mark = format!("STALE {} ", duration::age(now.duration_since(since).as_secs()));
    let old = lines(picture, height, since);
    old.iter()
        .map(|line| Line::default().with(Style::Bad, mark.clone()).with(Style::Dim, line.to_string()))
        .collect()
}

/// How things stand, in so many lines at most: those that need somebody first.
fn lines(picture: &Picture, height: usize, now: Timestamp) -> Vec<Line> {
    let mut objects: Vec<&NodeMaintenance> = picture.objects().collect();
    objects.sort_by_key(|object| (urgency(object), node(object).to_owned()));
    let shown = if objects.len() > height { height.saturating_sub(1) } else { objects.len() };
    let width = objects.iter().take(shown).map(|object| node(object).chars().count()).max().unwrap_or(0);
    let mut lines: Vec<Line> = objects.iter().take(shown).map(|object| line(object, width, now)).collect();
    if shown < objects.len() {
        lines.push(Line::new("all: ").join(tally(picture)));
    }
    lines
}

fn urgency(object: &NodeMaintenance) -> u8 {
    match Standing::of(object) {
        Standing::Failed => 0,
        _ if status(object).pod_counts.blocked > 0 => 1,
        Standing::Running => 2,
        Standing::Requested | Standing::Pending | Standing::Stopping => 3,
        Standing::Drained => 4,
    }
}

/// `worker-07 [##########----------]  54% Running, 12 to go, 2 blocked, 4m12s`.
fn line(object: &NodeMaintenance, width: usize, now: Timestamp) -> Line {
    let (status, standing) = (status(object), Standing::of(object));
    let progress = if standing == Standing::Drained { 100 } else { status.drain_progress.clamp(0, 100) };
    let full = usize::try_from(progress).unwrap_or(0) * BAR / 100;
    let line = Line::new(format!("{:width$} [", node(object)))
        .with(standing.style(), "#".repeat(full))
        .and(format!("{}] {progress:3}% ", "-".repeat(BAR - full)))
        .with(standing.style(), standing.word());
    let line = match pods_to_go(status) {
        0 => line,
        more => line.and(format!(", {more} to go")),
    };
    let line = match status.pod_counts.blocked {
        0 => line,
        more => line.and(", ").with(Style::Bad, format!("{more} blocked")),
    };
    let begun = object.metadata.creation_timestamp.as_ref().map(|time| time.0);
    match begun {
        Some(begun) => line.and(format!(", {}", duration::age(now.duration_since(begun).as_secs()))),
        None => line,
    }
}

fn drawn(line: &Line) -> Text<'static> {
    let look = |style: Style| match style {
        Style::Plain => Look::new(),
        Style::Good => Look::new().fg(Color::Green),
        Style::Busy => Look::new().fg(Color::Yellow),
        Style::Bad => Look::new().fg(Color::Red),
        Style::Dim => Look::new().add_modifier(Modifier::DIM),
    };
    line.spans().map(|(style, text)| Span::styled(text.to_owned(), look(style))).collect()
}

/// Writes a text as a terminal does, on the next line where one is full, and returns the line below it.
fn wrap(text: &Text<'_>, buffer: &mut Buffer, mut y: u16) -> u16 {
    let area = buffer.area;
    let mut x = area.x;
    for grapheme in text.styled_graphemes(Look::new()) {
        let width = u16::try_from(Span::raw(grapheme.symbol).width()).unwrap_or(1);
        if x + width > area.right() {
            (x, y) = (area.x, y + 1);
        }
        if y >= area.bottom() {
            break;
        }
        buffer.set_string(x, y, grapheme.symbol, grapheme.style);
        x += width;
    }
    y + 1
}

#[cfg(test)]
mod tests {
    use ratatui::layout::Rect;
    use serde_json::json;

    use super::*;
    use crate::maintenance::fixture::{requested, running, with_status};
    use crate::picture::fixture::picture;

    #[test]
    fn what_needs_somebody_comes_first_and_what_has_no_line_is_counted() {
        let now = "2026-01-02T03:08:17Z".parse().unwrap();
        let objects = vec![
            with_status("n1", json!({"phase": "Succeeded"})),
            requested("worker-2"),
            with_status("n3", running(40, &[("cart-0", "m")])),
        ];
        let told = |objects: Vec<NodeMaintenance>, height| -> Vec<String> {
            lines(&picture(objects), height, now).iter().map(ToString::to_string).collect()
        };
        assert_eq!(
            told(objects.clone(), 3),
            [
                "n3       [########------------]  40% Running, 4 to go, 1 blocked, 4m12s",
                "worker-2 [--------------------]   0% Requested, 4m12s",
                "n1       [####################] 100% Succeeded, 4m12s",
            ]
        );
        assert_eq!(told(objects, 2)[1], "all: 1 Requested, 1 Running, 1 Succeeded, 1 pod blocked");
    }

    #[test]
    fn without_a_connection_no_line_looks_live() {
        let since = "2026-01-02T03:08:17Z".parse().unwrap();
        let now = "2026-01-02T03:08:29Z".parse().unwrap();
        let objects = [requested("n1"), with_status("n2", running(40, &[]))];
        let told = current_or_old(&picture(objects), 2, now, Some(since));
        assert_eq!(
            told.iter().map(ToString::to_string).collect::<Vec<_>>(),
            [
                "STALE 12s n2 [########------------]  40% Running, 3 to go, 4m12s",
                "STALE 12s n1 [--------------------]   0% Requested, 4m12s",
            ],
            "and no age goes on"
        );
        let is_live = |style: Style| !matches!(style, Style::Bad | Style::Dim);
        assert!(!told.iter().flat_map(Line::spans).any(|(style, _)| is_live(style)));
    }

    #[test]
    fn long_lines_go_on_in_the_next_one() {
        let mut buffer = Buffer::empty(Rect::new(0, 0, 4, 3));
        assert_eq!(wrap(&drawn(&Line::new("ab").with(Style::Bad, "cdef日本")), &mut buffer, 0), 3);
        assert_eq!(buffer, {
            let mut expected = Buffer::with_lines(["abcd", "ef日", "本  "]);
            for (x, y) in [(2, 0), (3, 0), (0, 1), (1, 1), (2, 1), (3, 1), (0, 2), (1, 2)] {
                let style = buffer[(x, y)].style();
                expected[(x, y)].set_style(style);
            }
            expected
        });
        assert_eq!(buffer[(3, 0)].fg, Color::Red);
    }
}
