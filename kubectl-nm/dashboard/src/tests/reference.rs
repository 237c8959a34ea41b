//! The tables in `docs/reference` that are made from tables of the dashboard: keys and columns.
//!
//! `NM_UPDATE=1 cargo test -p nm-dashboard reference` rewrites them.

use std::fmt::Write;
use std::path::PathBuf;

use crate::config::action_table::ACTIONS;
use crate::config::columns::ListName;
use crate::config::config_file::Config;
use crate::view::dialogs::REPLAY_HELP;

fn page(name: &str) -> PathBuf {
    ["..", "..", "docs", "reference", name]
        .iter()
        .fold(PathBuf::from(env!("CARGO_MANIFEST_DIR")), |path, part| path.join(part))
}

/// Compares a generated section of a page with what it has to be, or rewrites it.
fn check(name: &str, section: &str, table: &str) {
    let file = page(name);
    let (begin, end) =
        (format!("<!-- generated: {section} -->\n"), format!("<!-- end of generated: {section} -->\n"));
    let text = std::fs::read_to_string(&file).unwrap();
    let (before, rest) = text.split_once(&begin).unwrap();
    let (_, after) = rest.split_once(&end).unwrap();
    let expected = format!("{before}{begin}\n{table}\n{end}{after}");
    if std::env::var_os("NM_UPDATE").is_some() {
        std::fs::write(&file, &expected).unwrap();
    }
    let found = std::fs::read_to_string(&file).unwrap();
    assert!(found == expected, "{name}: run NM_UPDATE=1 cargo test -p nm-dashboard reference");
}

#[test]
fn the_reference_has_every_key() {
    let mut table = String::from("| key | action | effect |\n|---|---|---|\n");
    for entry in ACTIONS {
        let keys: Vec<String> = entry.keys.iter().map(|key| format!("`{key}`")).collect();
        let name = entry.name;
        let mark = if entry.changes { " *" } else { "" };
        let _ = writeln!(table, "| {} | `{name}`{mark} | {} |", keys.join(", "), entry.help);
    }
    check("dashboard.md", "keys", &table);
}

#[test]
fn the_reference_has_every_key_of_a_replay() {
    let page = std::fs::read_to_string(page("dashboard.md")).unwrap();
    let of_replay = REPLAY_HELP.iter().map(|(key, _)| *key).filter(|key| !key.is_empty());
    let missing: Vec<&str> = of_replay.filter(|key| !page.contains(&format!("\n| `{key}` |"))).collect();
    assert!(missing.is_empty(), "the reference has no row for {missing:?}");
}

#[test]
fn the_reference_has_every_column() {
    let mut table = String::from("| list | column | content | shown by default |\n|---|---|---|---|\n");
    for list in ListName::ALL {
        for column in list.columns() {
            let shown = if column.is_default { "yes" } else { "no" };
            let _ = writeln!(table, "| `{}` | `{}` | {} | {shown} |", list.name(), column.name, column.what);
        }
    }
    check("config.md", "columns", &table);
}

#[test]
fn the_example_of_a_configuration_has_no_mistake() {
    let text = std::fs::read_to_string(page("config.md")).unwrap();
    let (_, rest) = text.split_once("```toml\n").unwrap();
    let (example, _) = rest.split_once("```").unwrap();
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), example).unwrap();
    let (config, mistakes) = Config::read(file.path());
    assert!(mistakes.is_empty(), "{mistakes:?}");
    assert!(config != Config::default());
}
