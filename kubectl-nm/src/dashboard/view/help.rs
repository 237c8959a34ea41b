//! What the keys and the filter language mean.

/// The help, line by line: what to press, and what it does. Without a key it is a heading or a sentence.
const HELP: &[(&str, &str)] = &[
    ("", "Moving"),
    ("arrows, j k", "up and down"),
    ("PgUp PgDn", "a screen up and down"),
    ("g G", "first and last"),
    ("Enter", "open the selected node"),
    ("Esc", "close what was opened last, take the filter away"),
    ("mouse", "the wheel scrolls, a click selects, another one opens"),
    ("", ""),
    ("", "Looking"),
    ("/", "filter: ns:x state:blocked node:worker-1* text"),
    ("s S", "sort by risk, name, progress or age; the other way round"),
    ("f", "blocked ones only"),
    ("e", "events about the open node"),
    ("y", "the maintenance as YAML"),
    ("Tab", "scroll the side pane, or the rows again"),
    ("c", "copy the suggested command, or the row"),
    ("p", "let the picture stand still, or go on"),
    ("r", "connect and draw anew"),
    ("", ""),
    ("", "Doing"),
    ("n", "put nodes into maintenance"),
    ("Space", "mark a node"),
    ("x", "stop the marked maintenances, or the selected one"),
    ("q, Ctrl-C", "quit; maintenances go on"),
    ("Ctrl-Z", "suspend"),
    ("", ""),
    ("", "A filter's words must all hold. ns: and node: take the beginning of"),
    ("", "a name or a pattern with * and ?, state: the beginning of a state."),
    ("", ""),
    ("", "! refused or failed   ~ under way   > migrating   . waits"),
    ("", "? nobody has taken it up   < being given back   = stays"),
];

/// The keys that only serve to start and stop.
const DOING: [&str; 3] = ["n", "Space", "x"];

/// The help without what is not on offer.
pub(super) fn lines(readonly: bool) -> impl Iterator<Item = (&'static str, &'static str)> {
    HELP.iter().copied().filter(move |(key, _)| !(readonly && DOING.contains(key)))
}
