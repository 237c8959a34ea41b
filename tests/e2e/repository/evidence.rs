//! The pages that name tests as evidence, `docs/security.md` and `docs/reliability.md`: every named test exists, and every
//! defect of another drain controller is named in the comment of its test too.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use nm_tests::files::repository;

/// The folders of the workspace's tests.
const FOLDERS: [&str; 5] = ["shared/src", "shared/connection/src", "reconciler/src", "kubectl-nm", "tests"];

/// The pages that name tests.
const PAGES: [&str; 2] = ["docs/security.md", "docs/reliability.md"];

/// The heading of the table of defects in the second page.
const DEFECTS: &str = "\n## Defects of other drain controllers\n";

fn read(path: &str) -> String {
    std::fs::read_to_string(repository().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// The path and the text of every Rust file below a folder.
pub(super) fn sources(folder: &Path) -> Vec<(PathBuf, String)> {
    let mut texts = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            texts.extend(sources(&path));
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let text = std::fs::read_to_string(&path).unwrap();
            texts.push((path, text));
        }
    }
    texts
}

/// The tests of a file, each with the comment above it.
pub(super) fn tests_of(text: &str) -> Vec<(String, String)> {
    let (mut tests, mut comment, mut is_test) = (Vec::new(), String::new(), false);
    for line in text.lines().map(str::trim) {
        if let Some(words) = line.strip_prefix("// ") {
            comment = comment + words + " ";
        } else if line.starts_with("#[test]") || line.starts_with("#[tokio::test") {
            is_test = true;
        } else if !line.starts_with("#[") {
            if let (true, Some((_, name))) = (is_test, line.split_once("fn ")) {
                let name = name.split('(').next().unwrap();
                tests.push((name.to_owned(), std::mem::take(&mut comment)));
            }
            (comment, is_test) = (String::new(), false);
        }
    }
    tests
}

/// Every test of the workspace, with the comment above it.
fn all_tests() -> BTreeMap<String, String> {
    let texts = FOLDERS.iter().flat_map(|folder| sources(&repository().join(folder)));
    texts.flat_map(|(_, text)| tests_of(&text)).collect()
}

/// The tests that a text names: words in backticks that have at least three underscores.
fn named_tests(text: &str) -> Vec<&str> {
    let is_name = |word: &&str| {
        word.matches('_').count() >= 3
            && word.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_')
    };
    text.split('`').skip(1).step_by(2).filter(is_name).collect()
}

/// The defects in a comment: `Defect OWNER/NAME#NUMBER, …: what happened`.
fn defects_in(comment: &str) -> BTreeSet<String> {
    let lists = comment.split("Defect ").skip(1).filter_map(|rest| rest.split_once(": "));
    lists.flat_map(|(list, _)| list.split(", ").map(str::to_owned)).collect()
}

/// The defects that a row links to. Each link shows its target: `[OWNER/NAME#NUMBER](https://github.com/…/NUMBER)`.
fn linked_defects(row: &str) -> BTreeSet<String> {
    let links = row.split("](https://github.com/").collect::<Vec<_>>();
    let pairs = links.windows(2).map(|pair| {
        let shown = pair[0].rsplit('[').next().unwrap();
        let target = pair[1].split(')').next().unwrap();
        let from_target = target.replacen("/issues/", "#", 1).replacen("/pull/", "#", 1);
        assert_eq!(shown, from_target, "the link shows another target");
        shown.to_owned()
    });
    pairs.collect()
}

#[test]
fn every_test_that_a_page_names_exists() {
    let all = all_tests();
    for page in PAGES {
        let text = read(page);
        let named = named_tests(&text);
        let missing: Vec<&&str> = named.iter().filter(|name| !all.contains_key(**name)).collect();
        assert!(missing.is_empty(), "{page} names tests that do not exist: {missing:#?}");
        assert!(named.len() > 20, "{page}: {named:?}");
    }
}

#[test]
fn every_known_defect_is_named_in_the_page_and_in_the_comment_of_its_test() {
    let page = read(PAGES[1]);
    let (_, section) = page.split_once(DEFECTS).expect("the page has the section");
    let section = section.split("\n## ").next().unwrap();
    let mut documented: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for row in section.lines().filter(|line| line.starts_with("| [")) {
        let [test] = named_tests(row)[..] else { panic!("one test for each row: {row}") };
        documented.entry(test.to_owned()).or_default().extend(linked_defects(row));
    }
    let in_comments: BTreeMap<String, BTreeSet<String>> = all_tests()
        .into_iter()
        .map(|(name, comment)| (name, defects_in(&comment)))
        .filter(|(_, defects)| !defects.is_empty())
        .collect();
    assert_eq!(documented, in_comments);
    let count = documented.values().flatten().count();
    for page in [PAGES[1], "docs/explanation/what-you-can-rely-on.md"] {
        assert!(read(page).contains(&format!("{count} published ")), "{page}: {count} defects");
    }
}

#[test]
fn names_and_defects_are_found() {
    let text = "// Case 1.\n// Defect a/b#1,\n// c/d#2: What\n// happened.\n#[test]\n#[ignore]\nfn a_b_c_d() {\nx();\n}\n\
                // Defect e/f#3: No test.\nfn no() {}\n#[tokio::test(flavor = \"x\")]\nasync fn e() {\n";
    let tests = tests_of(text);
    let names: Vec<&str> = tests.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names, ["a_b_c_d", "e"]);
    assert_eq!(defects_in(&tests[0].1), ["a/b#1", "c/d#2"].map(String::from).into());
    assert_eq!(defects_in(&tests[1].1), BTreeSet::new());
    assert_eq!(named_tests("`a_b_c_d`, `a_b`, `A_B_C_D`, `a/b_c_d_e`, a_b_c_e"), ["a_b_c_d"]);
    let row = "| [a/b#1](https://github.com/a/b/issues/1), [c/d#2](https://github.com/c/d/pull/2) | x |";
    assert_eq!(linked_defects(row), ["a/b#1", "c/d#2"].map(String::from).into());
}
