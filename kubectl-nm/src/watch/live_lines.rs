//! The lines that show the current states below the output of a wait on a terminal.
//!
//! They are redrawn in place, on the normal screen, so that the scrollback keeps everything that was printed above them.
//! The terminal's modes are not changed and nothing is read from it: there is nothing to restore when the program ends,
//! typed keys are left to the shell, and a job in the background is not stopped.

use std::io::{self, Write};

use crossterm::cursor::{MoveToColumn, MoveUp};
use crossterm::queue;
use crossterm::terminal::{self, Clear, ClearType};
use jiff::Timestamp;
use nm_shared::NodeMaintenance;
use ratatui::text::Span;

use crate::args::duration::age;
use crate::maintenance::cache::MaintenanceCache;
use crate::maintenance::{State, node, pods_to_go, status};
use crate::terminal::signals::ShellJob;
use crate::terminal::text::{Line, Style};
use crate::watch::exit_summary::tally;

/// How many lines there are at most. With more nodes, the last line summarizes all of them.
const MAX_LINES: usize = 6;

/// The width of a progress bar in columns.
const BAR_WIDTH: usize = 20;

/// Columns and rows of a terminal that does not report its size.
const DEFAULT_SIZE: (u16, u16) = (80, 24);

pub(crate) struct LiveLines {
    job: ShellJob,
    coloured: bool,
    max_lines: usize,
    /// How many lines are drawn. The cursor is at the beginning of the last one.
    drawn: usize,
}

impl LiveLines {
    /// Lines for this number of nodes. Must be called within the async runtime.
    pub(crate) fn new(nodes: usize, coloured: bool) -> Self {
        Self { job: ShellJob::watch(), coloured, max_lines: nodes.clamp(1, MAX_LINES), drawn: 0 }
    }

    /// Prints lines above, and draws the current states, or those at which the connection was lost. A job in the
    /// background only prints.
    pub(crate) fn draw(
        &mut self,
        printed: &[Line],
        cache: &MaintenanceCache,
        now: Timestamp,
        lost: Option<Timestamp>,
    ) -> io::Result<()> {
        let (columns, rows) = terminal::size().unwrap_or(DEFAULT_SIZE);
        // Some terminals wrap after the last column.
        let width = usize::from(columns).saturating_sub(1);
        let height = self.max_lines.min(usize::from(rows).saturating_sub(1));
        let is_visible = ShellJob::is_in_foreground();
        let lines = if is_visible { current_or_stale(cache, height, now, lost) } else { Vec::new() };
        let lines: Vec<Line> = lines.iter().map(|line| cut(line, width)).collect();
        self.replace(printed, &lines)
    }

    /// Removes the lines, and prints others in their place.
    pub(crate) fn remove(mut self, printed: &[Line]) -> io::Result<()> {
        self.replace(printed, &[])
    }

    fn replace(&mut self, printed: &[Line], lines: &[Line]) -> io::Result<()> {
        if self.job.was_stopped() {
            // The shell has printed below the lines.
            self.drawn = 0;
        }
        let text = |line: &Line| if self.coloured { line.painted() } else { line.to_string() };
        let printed: Vec<String> = printed.iter().map(text).collect();
        let lines: Vec<String> = lines.iter().map(text).collect();
        let written = replacement(self.drawn, &printed, &lines)?;
        self.drawn = lines.len();
        let mut out = io::stdout().lock();
        out.write_all(&written)?;
        out.flush()
    }
}

/// The bytes that erase `drawn` lines, print others in their place, and draw new lines below.
fn replacement(drawn: usize, printed: &[String], lines: &[String]) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    if drawn > 0 || !lines.is_empty() {
        queue!(bytes, MoveToColumn(0))?;
    }
    if drawn > 1 {
        queue!(bytes, MoveUp(u16::try_from(drawn - 1).unwrap_or(u16::MAX)))?;
    }
    if drawn > 0 {
        queue!(bytes, Clear(ClearType::FromCursorDown))?;
    }
    for line in printed {
        writeln!(bytes, "{}", line.trim_end())?;
    }
    if !lines.is_empty() {
        bytes.extend_from_slice(lines.join("\n").as_bytes());
        queue!(bytes, MoveToColumn(0))?;
    }
    Ok(bytes)
}

/// The part of a line that fits into `width` columns.
fn cut(line: &Line, width: usize) -> Line {
    let (mut short, mut left) = (Line::default(), width);
    for (style, text) in line.spans() {
        let fits = |c: char| {
            let columns = Span::raw(c.encode_utf8(&mut [0; 4]) as &str).width();
            left = left.checked_sub(columns)?;
            Some(c)
        };
        let fitting: String = text.chars().map_while(fits).collect();
        let is_whole = fitting.len() == text.len();
        short = short.with(style, fitting);
        if !is_whole {
            break;
        }
    }
    short
}

/// The current states; or those at which the connection was lost, with every line marked as stale.
fn current_or_stale(
    cache: &MaintenanceCache,
    height: usize,
    now: Timestamp,
    lost: Option<Timestamp>,
) -> Vec<Line> {
    let Some(since) = lost else { return lines(cache, height, now) };
    let mark =
        Line::default().with(Style::Bad, format!("STALE {} ", age(now.duration_since(since).as_secs())));
    let stale = |line: &Line| mark.clone().with(Style::Dim, line.to_string());
    lines(cache, height, since).iter().map(stale).collect()
}

/// The current states in at most `height` lines: what needs attention comes first.
fn lines(cache: &MaintenanceCache, height: usize, now: Timestamp) -> Vec<Line> {
    let mut objects: Vec<&NodeMaintenance> = cache.objects().collect();
    objects.sort_by_key(|object| (State::of(object), node(object).to_owned()));
    let shown = if objects.len() > height { height.saturating_sub(1) } else { objects.len() };
    let width = objects.iter().take(shown).map(|object| node(object).chars().count()).max().unwrap_or(0);
    let mut lines: Vec<Line> = objects.iter().take(shown).map(|object| line(object, width, now)).collect();
    if shown < objects.len() {
        lines.push(Line::new("all: ").join(tally(cache.objects())));
    }
    lines
}

/// `worker-07 [##########----------]  54% Blocked, 12 remaining, 2 blocked, 4m12s`.
fn line(object: &NodeMaintenance, width: usize, now: Timestamp) -> Line {
    let (status, state) = (status(object), State::of(object));
    let progress = if state == State::Drained { 100 } else { status.drain_progress.clamp(0, 100) };
    let full = usize::try_from(progress).unwrap_or(0) * BAR_WIDTH / 100;
    let mut line = Line::new(format!("{:width$} [", node(object)))
        .with(state.style(), "#".repeat(full))
        .and(format!("{}] {progress:3}% ", "-".repeat(BAR_WIDTH - full)))
        .with(state.style(), state.word());
    let (to_go, blocked) = (pods_to_go(status), status.pod_counts.blocked);
    if to_go > 0 {
        line = line.and(format!(", {to_go} remaining"));
    }
    if blocked > 0 {
        line = line.and(", ").with(Style::Bad, format!("{blocked} blocked"));
    }
    if let Some(created) = &object.metadata.creation_timestamp {
        line = line.and(format!(", {}", age(now.duration_since(created.0).as_secs())));
    }
    line
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::maintenance::cache::fixture::cache;
    use crate::maintenance::fixture::{requested, running, with_status};

    #[test]
    fn what_needs_attention_comes_first_and_all_are_counted_below() {
        let now = "2026-01-02T03:08:17Z".parse().unwrap();
        let objects = vec![
            with_status("n1", json!({"phase": "Succeeded"})),
            requested("worker-2"),
            with_status("n3", running(40, &[("cart-0", "m")])),
        ];
        let shown = |objects: Vec<NodeMaintenance>, height| -> Vec<String> {
            lines(&cache(objects), height, now).iter().map(ToString::to_string).collect()
        };
        assert_eq!(
            shown(objects.clone(), 3),
            [
                "n3       [########------------]  40% Blocked, 4 remaining, 1 blocked, 4m12s",
                "worker-2 [--------------------]   0% Requested, 4m12s",
                "n1       [####################] 100% Drained, 4m12s",
            ]
        );
        assert_eq!(shown(objects, 2)[1], "all: 1 Blocked, 1 Requested, 1 Drained, 1 pod blocked");
    }

    #[test]
    fn without_a_connection_every_line_is_marked_stale() {
        let since = "2026-01-02T03:08:17Z".parse().unwrap();
        let now = "2026-01-02T03:08:29Z".parse().unwrap();
        let objects = [requested("n1"), with_status("n2", running(40, &[]))];
        let shown = current_or_stale(&cache(objects), 2, now, Some(since));
        assert_eq!(
            shown.iter().map(ToString::to_string).collect::<Vec<_>>(),
            [
                "STALE 12s n1 [--------------------]   0% Requested, 4m12s",
                "STALE 12s n2 [########------------]  40% Draining, 3 remaining, 4m12s",
            ],
            "ages do not advance"
        );
        let is_live = |style: Style| !matches!(style, Style::Bad | Style::Dim);
        assert!(!shown.iter().flat_map(Line::spans).any(|(style, _)| is_live(style)));
    }

    #[test]
    fn lines_are_replaced_by_what_is_printed_and_the_next_lines() {
        let texts = |texts: &[&str]| texts.iter().map(ToString::to_string).collect::<Vec<_>>();
        for (drawn, printed, lines, sent) in [
            (0, &["a"][..], &[][..], "a\n"),
            (0, &["a"], &["1", "2"], "\x1b[1Ga\n1\n2\x1b[1G"),
            (1, &[], &["1"], "\x1b[1G\x1b[J1\x1b[1G"),
            (3, &["a ", "b"], &["1"], "\x1b[1G\x1b[2A\x1b[Ja\nb\n1\x1b[1G"),
            (2, &[], &[], "\x1b[1G\x1b[1A\x1b[J"),
        ] {
            let written = replacement(drawn, &texts(printed), &texts(lines)).unwrap();
            assert_eq!(String::from_utf8(written).unwrap(), sent);
        }
    }

    #[test]
    fn a_line_is_cut_at_the_width_of_the_terminal() {
        let line = Line::new("ab").with(Style::Bad, "c日本");
        for (width, shown) in [(2, "ab"), (3, "abc"), (4, "abc"), (5, "abc日"), (80, "abc日本")] {
            assert_eq!(cut(&line, width).to_string(), shown);
        }
    }
}
