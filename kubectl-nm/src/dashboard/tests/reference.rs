//! The keys in `docs/reference/dashboard.md`.

use std::path::Path;

use crate::dashboard::view::dialogs::HELP;

#[test]
fn every_key_of_the_help_is_in_the_reference() {
    let folders = ["..", "docs", "reference", "dashboard.md"];
    let page =
        folders.iter().fold(Path::new(env!("CARGO_MANIFEST_DIR")).to_owned(), |path, part| path.join(part));
    let page = std::fs::read_to_string(page).unwrap();
    let rows: Vec<&str> = page.lines().filter(|line| line.starts_with("| `")).collect();
    let missing: Vec<&str> = HELP
        .iter()
        .map(|(key, _)| *key)
        .filter(|key| !key.is_empty())
        .filter(|key| {
            let keys: Vec<String> = key.split(", ").map(|key| format!("`{key}`")).collect();
            !rows.iter().any(|row| row.starts_with(&format!("| {} |", keys.join(", "))))
        })
        .collect();
    assert!(missing.is_empty(), "the reference has no row for {missing:?}");
}
