//! The lines of a dialog, cut to the space there is. Lines that are dropped are counted, and problems are dropped last.

use std::cmp::Reverse;

use crate::model::Model;
use crate::objects::watch_state::WatchKind;
use crate::view::header::age_word;
use crate::view::theme::Tone;
use crate::wrapping::wrap;

const MAX_LISTED_LINES: usize = 10;

/// The priority of a line; the lowest are dropped first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum LinePriority {
    /// A separator.
    Blank,
    /// One of a list, which is cut at its end.
    Listed,
    /// What happens to all of the list.
    Consequence,
    /// An error or a warning.
    Problem,
    /// A field, or the keys. Never dropped.
    Required,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct DialogLine {
    pub(super) text: String,
    pub(super) tone: Tone,
    priority: LinePriority,
}

impl DialogLine {
    pub(super) fn new(text: impl Into<String>, tone: Tone, priority: LinePriority) -> Self {
        Self { text: text.into(), tone, priority }
    }

    pub(super) fn blank() -> Self {
        Self::new("", Tone::Plain, LinePriority::Blank)
    }

    /// Wraps a sentence; entries of a list and fields stay on one line.
    fn broken(self, width: u16) -> Vec<Self> {
        if !matches!(self.priority, LinePriority::Consequence | LinePriority::Problem) {
            return vec![self];
        }
        wrap(&self.text, usize::from(width)).into_iter().map(|text| Self { text, ..self }).collect()
    }
}

/// The lines that fit, in their order.
pub(super) fn fit_lines(entries: &[DialogLine], width: u16, rows: usize) -> Vec<DialogLine> {
    let whole: Vec<DialogLine> = entries.iter().cloned().flat_map(|entry| entry.broken(width)).collect();
    let without_blanks = || entries.iter().filter(|entry| entry.priority != LinePriority::Blank).cloned();
    let dense: Vec<DialogLine> = without_blanks().flat_map(|entry| entry.broken(width)).collect();
    // Cutting the end of each sentence is better than dropping a sentence.
    let cut: Vec<DialogLine> = without_blanks().collect();
    for entries in [whole, dense, cut.clone()] {
        if entries.len() <= rows {
            return entries;
        }
    }
    let entries = cut;
    let mut out: Vec<usize> =
        (0..entries.len()).filter(|at| entries[*at].priority < LinePriority::Required).collect();
    out.sort_by_key(|at| (entries[*at].priority, Reverse(*at)));
    // One more, for the line that counts them.
    out.truncate(entries.len() - rows + 1);
    let Some(first) = out.iter().min().copied() else { return entries };
    let hides_problem = out.iter().any(|at| entries[*at].priority == LinePriority::Problem);
    let tone = if hides_problem { Tone::Bad } else { Tone::Plain };
    let note = DialogLine::new(format!("... {} more lines", out.len()), tone, LinePriority::Required);
    let mut shown = Vec::new();
    for (at, entry) in entries.into_iter().enumerate() {
        if at == first {
            shown.push(note.clone());
        }
        if !out.contains(&at) {
            shown.push(entry);
        }
    }
    shown
}

/// A page of lines that are broken to the width, and which of how many lines it has, if there are more. Pages follow each
/// other in a circle.
pub(super) fn page_of(
    lines: &[DialogLine],
    width: u16,
    rows: usize,
    page: isize,
) -> (Vec<DialogLine>, Option<(usize, usize, usize)>) {
    let whole: Vec<DialogLine> = lines.iter().cloned().flat_map(|line| line.broken(width)).collect();
    if whole.len() <= rows {
        return (whole, None);
    }
    let lines: Vec<DialogLine> =
        whole.into_iter().filter(|line| line.priority != LinePriority::Blank).collect();
    let total = lines.len();
    if total <= rows || rows == 0 {
        return (lines.into_iter().take(rows).collect(), None);
    }
    let pages = isize::try_from(total.div_ceil(rows)).unwrap_or(1);
    let first = usize::try_from(page.rem_euclid(pages)).unwrap_or_default() * rows;
    // The last page is full too.
    let first = first.min(total - rows);
    let shown: Vec<DialogLine> = lines.into_iter().skip(first).take(rows).collect();
    (shown, Some((first + 1, first + rows, total)))
}

/// The first of the lines, and how many more there are.
pub(super) fn listed(lines: impl ExactSizeIterator<Item = String>) -> Vec<DialogLine> {
    let more = lines.len().saturating_sub(MAX_LISTED_LINES);
    let and_more = (more > 0).then(|| format!("  and {more} more"));
    lines
        .take(MAX_LISTED_LINES)
        .chain(and_more)
        .map(|text| DialogLine::new(text, Tone::Plain, LinePriority::Listed))
        .collect()
}

/// A notice that the metadata of nodes may be out of date.
pub(super) fn age_of_nodes(model: &Model) -> Option<DialogLine> {
    model.fleet.node_names().next()?;
    let (age, _) = age_word(model.health.of(WatchKind::Nodes), model.now)?;
    Some(DialogLine::new(
        format!("The information about nodes is out of date: {age}"),
        Tone::Busy,
        LinePriority::Problem,
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_follow_each_other_in_a_circle_and_the_last_one_is_full() {
        let lines: Vec<DialogLine> =
            (1..=7).map(|at| DialogLine::new(at.to_string(), Tone::Plain, LinePriority::Listed)).collect();
        let shown = |rows, page| {
            let (lines, position) = page_of(&lines, 20, rows, page);
            let text: Vec<&str> = lines.iter().map(|line| line.text.as_str()).collect();
            (text.concat(), position)
        };
        for (rows, page, text, position) in [
            (7, 0, "1234567", None),
            (3, 0, "123", Some((1, 3, 7))),
            (3, 1, "456", Some((4, 6, 7))),
            (3, 2, "567", Some((5, 7, 7))),
            (3, 3, "123", Some((1, 3, 7))),
            (3, -1, "567", Some((5, 7, 7))),
            (0, 0, "", None),
        ] {
            assert_eq!(shown(rows, page), (text.to_owned(), position), "{rows} {page}");
        }
    }

    #[test]
    fn problems_are_dropped_last_and_what_is_dropped_is_counted() {
        let entries = || {
            let listed =
                (0..4).map(|at| DialogLine::new(format!("node {at}"), Tone::Plain, LinePriority::Listed));
            let problems = ["no such node", "stopping"]
                .map(|text| DialogLine::new(text, Tone::Bad, LinePriority::Problem));
            let mut all =
                vec![DialogLine::new("Nodes:", Tone::Plain, LinePriority::Required), DialogLine::blank()];
            all.extend(problems);
            all.extend(listed);
            all.push(DialogLine::new("They are cordoned", Tone::Plain, LinePriority::Consequence));
            all.push(DialogLine::new("[Enter]", Tone::Quiet, LinePriority::Required));
            all
        };
        let shown = |rows| -> String {
            let shown = fit_lines(&entries(), 20, rows);
            assert!(shown.len() <= rows, "{rows}");
            shown.iter().map(|entry| entry.text.as_str()).collect::<Vec<_>>().join("|")
        };
        let whole = "Nodes:||no such node|stopping|node 0|node 1|node 2|node 3|They are cordoned|[Enter]";
        for (rows, expected) in [
            (10, whole),
            (9, &whole.replace("||", "|")),
            (8, "Nodes:|no such node|stopping|node 0|node 1|... 2 more lines|They are cordoned|[Enter]"),
            (6, "Nodes:|no such node|stopping|... 4 more lines|They are cordoned|[Enter]"),
            (5, "Nodes:|no such node|stopping|... 5 more lines|[Enter]"),
            (4, "Nodes:|no such node|... 6 more lines|[Enter]"),
            (3, "Nodes:|... 7 more lines|[Enter]"),
        ] {
            assert_eq!(shown(rows), expected, "{rows}");
        }
        assert_eq!(fit_lines(&entries(), 20, 4)[2].tone, Tone::Bad, "a problem is among what is left out");
        assert_eq!(fit_lines(&entries(), 20, 4)[2].tone, Tone::Bad, "a problem is among the dropped lines");
        let narrow = fit_lines(&entries(), 12, 12);
        assert_eq!((narrow[8].text.as_str(), narrow[9].text.as_str()), ("They are", "cordoned"));
        let narrow = fit_lines(&entries(), 12, 9);
        assert_eq!((narrow.len(), narrow[7].text.as_str()), (9, "They are cordoned"), "where it is cut off");
    }
}
