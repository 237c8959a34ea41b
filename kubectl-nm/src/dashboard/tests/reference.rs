//! The table of keys in `docs/reference/dashboard.md`, which is made from the table of actions.
//!
//! `NM_UPDATE=1 cargo test -p kubectl-nm reference` rewrites it.

use std::fmt::Write;
use std::path::Path;

use crate::dashboard::action_table::ACTIONS;
use crate::dashboard::view::dialogs::REPLAY_HELP;

const BEGIN: &str = "<!-- generated: keys -->\n";
const END: &str = "<!-- end of generated: keys -->\n";

fn table() -> String {
    let mut table = String::from("| key | action | effect |\n|---|---|---|\n");
    for entry in ACTIONS {
        let keys: Vec<String> = entry.keys.iter().map(|key| format!("`{key}`")).collect();
        let name = entry.name;
        let mark = if entry.changes { " *" } else { "" };
        let _ = writeln!(table, "| {} | `{name}`{mark} | {} |", keys.join(", "), entry.help);
    }
    table
}

#[test]
fn the_reference_has_every_key() {
    let folders = ["..", "docs", "reference", "dashboard.md"];
    let file =
        folders.iter().fold(Path::new(env!("CARGO_MANIFEST_DIR")).to_owned(), |path, part| path.join(part));
    let page = std::fs::read_to_string(&file).unwrap();
    let (before, rest) = page.split_once(BEGIN).unwrap();
    let (_, after) = rest.split_once(END).unwrap();
    let expected = format!("{before}{BEGIN}\n{}\n{END}{after}", table());
    if std::env::var_os("NM_UPDATE").is_some() {
        std::fs::write(&file, &expected).unwrap();
    }
    let found = std::fs::read_to_string(&file).unwrap();
    assert!(found == expected, "run NM_UPDATE=1 cargo test -p kubectl-nm reference");
    let of_replay = REPLAY_HELP.iter().map(|(key, _)| *key).filter(|key| !key.is_empty());
    let missing: Vec<&str> = of_replay.filter(|key| !found.contains(&format!("\n| `{key}` |"))).collect();
    assert!(missing.is_empty(), "the reference has no row for {missing:?}");
}
