//! The lines of a dialog, as many of them as there is room for: what is left out is counted, and what must be read before
//! one goes on is left out last.

use std::cmp::Reverse;

use crate::dashboard::view::pen::wrapped;
use crate::dashboard::view::theme::Tone;

/// What a line is worth where there is no room for all: the first are left out first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Worth {
    /// It keeps others apart.
    Blank,
    /// One of a list, the end of which is left out first.
    Listed,
    /// What happens to all of the list.
    Told,
    /// What is in the way.
    Problem,
    /// What is typed, and how to go on. It is never left out.
    Kept,
}

/// A line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Entry {
    /// What it says.
    pub(super) text: String,
    /// How it says it.
    pub(super) tone: Tone,
    worth: Worth,
}

impl Entry {
    /// A line that is worth so much.
    pub(super) fn new(text: impl Into<String>, tone: Tone, worth: Worth) -> Self {
        Self { text: text.into(), tone, worth }
    }

    /// An empty line.
    pub(super) fn blank() -> Self {
        Self::new("", Tone::Plain, Worth::Blank)
    }

    /// Sentences may go on in the next line; what is listed or typed has one of its own.
    fn broken(self, width: u16) -> Vec<Self> {
        if !matches!(self.worth, Worth::Told | Worth::Problem) {
            return vec![self];
        }
        wrapped(&self.text, width).into_iter().map(|text| Self { text, ..self }).collect()
    }
}

/// The lines that there is room for, in their order.
pub(super) fn excerpt(entries: &[Entry], width: u16, room: usize) -> Vec<Entry> {
    let whole: Vec<Entry> = entries.iter().cloned().flat_map(|entry| entry.broken(width)).collect();
    let without_blanks = || entries.iter().filter(|entry| entry.worth != Worth::Blank).cloned();
    let dense: Vec<Entry> = without_blanks().flat_map(|entry| entry.broken(width)).collect();
    // The beginning of each sentence is worth more than all of some.
    let cut: Vec<Entry> = without_blanks().collect();
    for entries in [whole, dense, cut.clone()] {
        if entries.len() <= room {
            return entries;
        }
    }
    let entries = cut;
    let mut out: Vec<usize> = (0..entries.len()).filter(|at| entries[*at].worth < Worth::Kept).collect();
    out.sort_by_key(|at| (entries[*at].worth, Reverse(*at)));
    // One more, for the line that says so.
    out.truncate(entries.len() - room + 1);
    let Some(first) = out.iter().min().copied() else { return entries };
    let hides_problem = out.iter().any(|at| entries[*at].worth == Worth::Problem);
    let tone = if hides_problem { Tone::Bad } else { Tone::Plain };
    let note = Entry::new(format!("... {} more lines", out.len()), tone, Worth::Kept);
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_in_the_way_is_left_out_last_and_nothing_without_a_word() {
        let entries = || {
            let listed = (0..4).map(|at| Entry::new(format!("node {at}"), Tone::Plain, Worth::Listed));
            let problems =
                ["no such node", "given back"].map(|text| Entry::new(text, Tone::Bad, Worth::Problem));
            let mut all = vec![Entry::new("Nodes:", Tone::Plain, Worth::Kept), Entry::blank()];
            all.extend(problems);
            all.extend(listed);
            all.push(Entry::new("They are cordoned", Tone::Plain, Worth::Told));
            all.push(Entry::new("[Enter]", Tone::Quiet, Worth::Kept));
            all
        };
        let shown = |room| -> String {
            let shown = excerpt(&entries(), 20, room);
            assert!(shown.len() <= room, "{room}");
            shown.iter().map(|entry| entry.text.as_str()).collect::<Vec<_>>().join("|")
        };
        let whole = "Nodes:||no such node|given back|node 0|node 1|node 2|node 3|They are cordoned|[Enter]";
        for (room, expected) in [
            (10, whole),
            (9, &whole.replace("||", "|")),
            (8, "Nodes:|no such node|given back|node 0|node 1|... 2 more lines|They are cordoned|[Enter]"),
            (6, "Nodes:|no such node|given back|... 4 more lines|They are cordoned|[Enter]"),
            (5, "Nodes:|no such node|given back|... 5 more lines|[Enter]"),
            (4, "Nodes:|no such node|... 6 more lines|[Enter]"),
            (3, "Nodes:|... 7 more lines|[Enter]"),
        ] {
            assert_eq!(shown(room), expected, "{room}");
        }
        assert_eq!(excerpt(&entries(), 20, 4)[2].tone, Tone::Bad, "a problem is among what is left out");
        assert_eq!(excerpt(&entries(), 20, 5)[3].tone, Tone::Plain);
        let narrow = excerpt(&entries(), 12, 12);
        assert_eq!((narrow[8].text.as_str(), narrow[9].text.as_str()), ("They are", "cordoned"));
        let narrow = excerpt(&entries(), 12, 9);
        assert_eq!((narrow.len(), narrow[7].text.as_str()), (9, "They are cordoned"), "where it is cut off");
    }
}
