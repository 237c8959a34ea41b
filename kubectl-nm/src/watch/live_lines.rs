//! A wait on a terminal: what happened scrolls by as anywhere, and a few lines below it say how things stand now.
//!
//! The lines are at the bottom of what is printed and not on a screen of their own, so that the scrollback tells the
//! whole story afterwards. The terminal's modes stay as they are, and nothing is read from it: whatever ends the program,
//! there is nothing to restore; what is typed meanwhile is left to the shell; and a job in the background is not stopped.

use std::io::{self, Write};

use crossterm::cursor::{MoveToColumn, MoveUp};
use crossterm::queue;
use crossterm::terminal::{self, Clear, ClearType};
use jiff::Timestamp;
use nm_shared::NodeMaintenance;
use ratatui::text::Span;

use crate::args::duration;
use crate::maintenance::cache::Picture;
use crate::maintenance::{State, node, pods_to_go, status};
use crate::terminal::job_control::Job;
use crate::terminal::text::{Line, Style};
use crate::watch::exit_summary::tally;

/// How many lines there are at most. Where there are more nodes, the last line sums all of them up.
const LINES: usize = 6;

/// How wide a bar is.
const BAR: usize = 20;

/// Columns and rows of a terminal that does not say how large it is.
const USUAL: (u16, u16) = (80, 24);

/// The lines at the bottom of the terminal.
pub(crate) struct Live {
    job: Job,
    coloured: bool,
    /// How many lines there are at most.
    most: usize,
    /// How many lines are there, the cursor being at the beginning of the last of them.
    drawn: usize,
}

impl Live {
    /// Lines for so many nodes below what is printed. Needs the runtime.
    pub(crate) fn below(nodes: usize, coloured: bool) -> Self {
        Self { job: Job::watched(), coloured, most: nodes.clamp(1, LINES), drawn: 0 }
    }

    /// Prints what happened, and below it how things stand, or stood when the connection was lost. In the background it
    /// only prints.
    ///
    /// # Errors
    ///
    /// When the terminal is gone.
    pub(crate) fn show(
        &mut self,
        happened: &[Line],
        picture: &Picture,
        now: Timestamp,
        lost: Option<Timestamp>,
    ) -> io::Result<()> {
        let (columns, rows) = terminal::size().unwrap_or(USUAL);
        // In the last column a terminal may begin the next line.
        let width = usize::from(columns).saturating_sub(1);
        let height = self.most.min(usize::from(rows).saturating_sub(1));
        let is_ours = Job::is_in_foreground();
        let lines = if is_ours { current_or_old(picture, height, now, lost) } else { Vec::new() };
        let lines: Vec<Line> = lines.iter().map(|line| cut(line, width)).collect();
        self.replace(happened, &lines)
    }

    /// Prints what happened last, where the lines were.
    ///
    /// # Errors
    ///
    /// When the terminal is gone.
    pub(crate) fn remove(mut self, happened: &[Line]) -> io::Result<()> {
        self.replace(happened, &[])
    }

    fn replace(&mut self, happened: &[Line], lines: &[Line]) -> io::Result<()> {
        if self.job.was_stopped() {
            // The shell has printed below them.
            self.drawn = 0;
        }
        let text = |line: &Line| if self.coloured { line.painted() } else { line.to_string() };
        let happened: Vec<String> = happened.iter().map(text).collect();
        let lines: Vec<String> = lines.iter().map(text).collect();
        let written = replacement(self.drawn, &happened, &lines)?;
        self.drawn = lines.len();
        let mut out = io::stdout().lock();
        out.write_all(&written)?;
        out.flush()
    }
}

/// What a terminal is sent that has so many lines at its bottom, the cursor being in the last, to print what happened in
/// their place and other lines below it.
fn replacement(drawn: usize, happened: &[String], lines: &[String]) -> io::Result<Vec<u8>> {
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
    for line in happened {
        writeln!(bytes, "{}", line.trim_end())?;
    }
    if !lines.is_empty() {
        bytes.extend_from_slice(lines.join("\n").as_bytes());
        queue!(bytes, MoveToColumn(0))?;
    }
    Ok(bytes)
}

/// As much of a line as so many columns hold.
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
    objects.sort_by_key(|object| (State::of(object), node(object).to_owned()));
    let shown = if objects.len() > height { height.saturating_sub(1) } else { objects.len() };
    let width = objects.iter().take(shown).map(|object| node(object).chars().count()).max().unwrap_or(0);
    let mut lines: Vec<Line> = objects.iter().take(shown).map(|object| line(object, width, now)).collect();
    if shown < objects.len() {
        lines.push(Line::new("all: ").join(tally(picture)));
    }
    lines
}

/// `worker-07 [##########----------]  54% Blocked, 12 remaining, 2 blocked, 4m12s`.
fn line(object: &NodeMaintenance, width: usize, now: Timestamp) -> Line {
    let (status, state) = (status(object), State::of(object));
    let progress = if state == State::Drained { 100 } else { status.drain_progress.clamp(0, 100) };
    let full = usize::try_from(progress).unwrap_or(0) * BAR / 100;
    let line = Line::new(format!("{:width$} [", node(object)))
        .with(state.style(), "#".repeat(full))
        .and(format!("{}] {progress:3}% ", "-".repeat(BAR - full)))
        .with(state.style(), state.word());
    let line = match pods_to_go(status) {
        0 => line,
        more => line.and(format!(", {more} remaining")),
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

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::maintenance::cache::fixture::picture;
    use crate::maintenance::fixture::{requested, running, with_status};

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
                "n3       [########------------]  40% Blocked, 4 remaining, 1 blocked, 4m12s",
                "worker-2 [--------------------]   0% Requested, 4m12s",
                "n1       [####################] 100% Drained, 4m12s",
            ]
        );
        assert_eq!(told(objects, 2)[1], "all: 1 Blocked, 1 Requested, 1 Drained, 1 pod blocked");
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
                "STALE 12s n1 [--------------------]   0% Requested, 4m12s",
                "STALE 12s n2 [########------------]  40% Draining, 3 remaining, 4m12s",
            ],
            "and no age goes on"
        );
        let is_live = |style: Style| !matches!(style, Style::Bad | Style::Dim);
        assert!(!told.iter().flat_map(Line::spans).any(|(style, _)| is_live(style)));
    }

    #[test]
    fn lines_are_replaced_by_what_happened_and_the_next_lines() {
        let texts = |texts: &[&str]| texts.iter().map(ToString::to_string).collect::<Vec<_>>();
        for (drawn, happened, lines, sent) in [
            (0, &["a"][..], &[][..], "a\n"),
            (0, &["a"], &["1", "2"], "\x1b[1Ga\n1\n2\x1b[1G"),
            (1, &[], &["1"], "\x1b[1G\x1b[J1\x1b[1G"),
            (3, &["a ", "b"], &["1"], "\x1b[1G\x1b[2A\x1b[Ja\nb\n1\x1b[1G"),
            (2, &[], &[], "\x1b[1G\x1b[1A\x1b[J"),
        ] {
            let written = replacement(drawn, &texts(happened), &texts(lines)).unwrap();
            assert_eq!(String::from_utf8(written).unwrap(), sent);
        }
    }

    #[test]
    fn a_line_is_cut_where_the_terminal_ends() {
        let line = Line::new("ab").with(Style::Bad, "c日本");
        for (width, shown) in [(2, "ab"), (3, "abc"), (4, "abc"), (5, "abc日"), (80, "abc日本")] {
            assert_eq!(cut(&line, width).to_string(), shown);
        }
    }
}
