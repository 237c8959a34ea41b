//! `docs/` as a book of mdBook: its table of contents, and links that lead to nothing outside.

use std::collections::BTreeMap;
use std::path::{Component, Path};

use nm_tests::files::repository;
use nm_tests::skip::has_program;

use crate::repository::links::{links, pages_below};

#[test]
fn the_table_of_contents_has_each_page_once_with_its_title() {
    let docs = repository().join("docs");
    let contents = std::fs::read_to_string(docs.join("SUMMARY.md")).unwrap();
    let mut listed: BTreeMap<String, String> = BTreeMap::new();
    for line in contents.lines().filter(|line| line.contains("](")) {
        let (title, rest) =
            line.trim_start_matches("- ").strip_prefix('[').unwrap().split_once("](").unwrap();
        let (page, _) = rest.split_once(')').unwrap();
        assert_eq!(listed.insert(page.to_owned(), title.to_owned()), None, "{page} is listed twice");
    }
    let pages = pages_below(&docs).into_iter().filter(|page| !page.ends_with("SUMMARY.md"));
    let there = pages.map(|page| {
        let text = std::fs::read_to_string(&page).unwrap();
        let title = text.lines().find_map(|line| line.strip_prefix("# ")).unwrap().to_owned();
        (page.strip_prefix(&docs).unwrap().display().to_string(), title)
    });
    assert_eq!(listed, there.collect::<BTreeMap<_, _>>());
}

#[test]
fn no_link_of_the_book_leads_out_of_its_folder() {
    let docs = repository().join("docs");
    for page in pages_below(&docs) {
        let folder = page.strip_prefix(&docs).unwrap().parent().unwrap();
        for link in links(&std::fs::read_to_string(&page).unwrap()) {
            if link.contains("://") || link.starts_with("mailto:") {
                continue;
            }
            let mut depth = 0_i32;
            for part in folder.join(Path::new(&link)).components() {
                depth += if part == Component::ParentDir { -1 } else { 1 };
                assert!(depth >= 0, "{}: a site has no {link}", page.display());
            }
        }
    }
}

#[test]
fn mdbook_builds_the_book() {
    if !has_program("mdbook", &["--version"]) {
        return;
    }
    let site = tempfile::tempdir().unwrap();
    let mut build = std::process::Command::new("mdbook");
    let output = build
        .arg("build")
        .arg("--dest-dir")
        .arg(site.path())
        .arg(repository().join("docs"))
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    for file in ["index.html", "how-to/monitor.html", "screenshots/node.svg"] {
        assert!(site.path().join(file).exists(), "{file}");
    }
}
