//! What a command of kubectl prints, as a page that scrolls.

use std::collections::VecDeque;

use nm_core::terminal::text::harmless;
use nm_shared::drain::eviction_outcome::AccessDenied;

use crate::model::dialogs::pod_dialog::denial;
use crate::wrapping::wrap;

/// How many lines are kept at most; then the oldest are dropped.
const MAX_LINES: usize = 10_000;

/// How many bytes are kept at most, without those of the wrapped lines.
const MAX_BYTES: usize = 4 * 1024 * 1024;

/// How many are dropped at once, because the others have to be wrapped again.
const DROPPED: usize = 1_000;

/// How kubectl failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum KubectlError {
    #[error("there is no kubectl in PATH, which this key needs")]
    Missing,
    /// The system's message.
    #[error("kubectl cannot be run: {0}")]
    NotStarted(String),
    #[error("kubectl exited with {0}")]
    Exited(i32),
    #[error("kubectl was terminated by a signal")]
    Signalled,
}

/// A line that a program printed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct OutputLine {
    pub(crate) text: String,
    pub(crate) is_error: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum OutputChange {
    Lines(Vec<OutputLine>),
    /// It ended; an error reports how it failed.
    Ended(Result<(), KubectlError>),
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) struct OutputPage {
    /// Which run this is. Lines of an earlier one may still arrive.
    pub(crate) id: u64,
    /// The command to paste.
    pub(crate) command: String,
    /// The arguments of kubectl, to run it again.
    pub(crate) arguments: Vec<String>,
    lines: VecDeque<OutputLine>,
    /// How many lines were dropped, the oldest ones.
    pub(crate) dropped: usize,
    /// The lines as they are shown in so many columns.
    shown: Vec<OutputLine>,
    width: usize,
    pub(crate) top: usize,
    /// Whether it stays at the end while lines arrive.
    pub(crate) follows: bool,
    /// How it ended, if it has.
    pub(crate) ended: Option<Result<(), KubectlError>>,
}

impl OutputPage {
    /// An empty page. With `follows`, it begins at the end of what arrives.
    pub(crate) fn new(id: u64, command: String, arguments: Vec<String>, follows: bool) -> Self {
        Self {
            id,
            command,
            arguments,
            lines: VecDeque::new(),
            dropped: 0,
            shown: Vec::new(),
            width: usize::MAX,
            top: 0,
            follows,
            ended: None,
        }
    }

    pub(crate) fn apply(&mut self, change: OutputChange) {
        match change {
            OutputChange::Lines(lines) => {
                for line in lines {
                    let line = OutputLine { text: harmless(&line.text), ..line };
                    self.shown.extend(self.broken(&line));
                    self.lines.push_back(line);
                }
                self.limit();
            }
            OutputChange::Ended(result) => self.ended = Some(result),
        }
    }

    /// Drops the oldest lines if there are too many, or too long ones.
    fn limit(&mut self) {
        let mut bytes: usize = self.lines.iter().map(|line| line.text.len()).sum();
        if self.lines.len() <= MAX_LINES && bytes <= MAX_BYTES {
            return;
        }
        let least = (self.lines.len() + DROPPED).saturating_sub(MAX_LINES);
        let mut dropped = 0;
        while dropped < least || bytes > MAX_BYTES / 4 * 3 {
            let Some(line) = self.lines.pop_front() else { break };
            bytes -= line.text.len();
            dropped += 1;
        }
        self.dropped += dropped;
        let before = self.shown.len();
        self.rebuild();
        self.top = self.top.saturating_sub(before - self.shown.len());
    }

    /// The lines as they are shown.
    pub(crate) fn shown(&self) -> &[OutputLine] {
        &self.shown
    }

    /// Adapts the lines to the size of the area that shows them, and keeps the first one in range.
    pub(crate) fn fit(&mut self, (width, height): (usize, usize)) {
        if self.width != width {
            self.width = width;
            self.rebuild();
        }
        let last = self.shown.len().saturating_sub(height);
        self.top = if self.follows { last } else { self.top.min(last) };
    }

    /// Scrolls to a line. At the end, it follows.
    pub(crate) fn scroll(&mut self, to: usize, height: usize) {
        let last = self.shown.len().saturating_sub(height);
        self.top = to.min(last);
        self.follows = to >= last && self.ended.is_none();
    }

    /// Who lacks which permission, if it failed for that.
    pub(crate) fn denial(&self) -> Option<String> {
        let errors = self.lines.iter().filter(|line| line.is_error);
        let mut denied = errors.filter_map(|line| AccessDenied::from(line.text.as_str()).access);
        denied.next().map(|access| denial(&access)).filter(|_| matches!(self.ended, Some(Err(_))))
    }

    fn rebuild(&mut self) {
        self.shown = self.lines.iter().flat_map(|line| self.broken(line)).collect();
    }

    fn broken(&self, line: &OutputLine) -> Vec<OutputLine> {
        let parts = wrap(&line.text, self.width).into_iter();
        parts.map(|text| OutputLine { text, is_error: line.is_error }).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(text: &str) -> OutputLine {
        OutputLine { text: text.to_owned(), is_error: false }
    }

    fn page(lines: usize, follows: bool) -> OutputPage {
        let mut page = OutputPage::new(1, String::from("kubectl logs"), Vec::new(), follows);
        page.fit((10, 5));
        page.apply(OutputChange::Lines((0..lines).map(|at| line(&format!("line {at}"))).collect()));
        page.fit((10, 5));
        page
    }

    #[test]
    fn logs_follow_their_end_until_somebody_scrolls_away() {
        let mut page = page(20, true);
        assert_eq!((page.top, page.follows), (15, true));
        page.scroll(3, 5);
        page.apply(OutputChange::Lines(vec![line("more")]));
        page.fit((10, 5));
        assert_eq!((page.top, page.follows), (3, false));
        page.scroll(usize::MAX, 5);
        page.apply(OutputChange::Lines(vec![line("more")]));
        page.fit((10, 5));
        assert_eq!((page.top, page.follows), (17, true));
    }

    #[test]
    fn long_lines_are_wrapped_and_the_oldest_are_dropped() {
        let mut page = page(1, false);
        page.apply(OutputChange::Lines(vec![line("a line that is much longer")]));
        assert_eq!(page.shown().len(), 5);
        page.apply(OutputChange::Lines(vec![line("x"); MAX_LINES]));
        assert_eq!(page.shown().len(), MAX_LINES - DROPPED);
    }

    #[test]
    fn a_missing_permission_is_named() {
        let mut page = page(0, false);
        let text = "Error from server (Forbidden): pods \"a\" is forbidden: User \"ann\" cannot get resource \
                    \"pods/log\" in API group \"\" in the namespace \"shop\"";
        page.apply(OutputChange::Lines(vec![OutputLine { text: text.to_owned(), is_error: true }]));
        assert_eq!(page.denial(), None, "it has not failed yet");
        page.apply(OutputChange::Ended(Err(KubectlError::Exited(1))));
        assert_eq!(page.denial().as_deref(), Some("ann may not get pods/log"));
    }

    #[test]
    fn a_page_has_only_so_many_bytes_and_says_that_it_was_cut() {
        let mut page = page(3, false);
        assert_eq!(page.dropped, 0);
        let long = line(&"x".repeat(16 * 1024));
        for _ in 0..2 * MAX_BYTES / long.text.len() {
            page.apply(OutputChange::Lines(vec![long.clone()]));
        }
        let kept: usize = page.lines.iter().map(|line| line.text.len()).sum();
        assert!(kept <= MAX_BYTES && kept > MAX_BYTES / 2, "{kept}");
        assert_eq!(page.dropped + page.lines.len(), 3 + 2 * MAX_BYTES / long.text.len());
    }
}
