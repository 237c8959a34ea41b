//! Links in the documentation lead to existing files and headings.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use nm_tests::files::repository;

/// The pages at the top of the repository and all below `docs/`.
fn pages() -> Vec<PathBuf> {
    let top = ["README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "CHANGELOG.md"]
        .map(|name| repository().join(name));
    top.into_iter().chain(pages_below(&repository().join("docs"))).collect()
}

/// The Markdown pages in a folder and its folders, in the order of their paths.
pub(crate) fn pages_below(folder: &Path) -> Vec<PathBuf> {
    let mut pages = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            pages.extend(pages_below(&path));
        } else if path.extension().is_some_and(|extension| extension == "md") {
            pages.push(path);
        }
    }
    pages.sort();
    pages
}

/// The lines of a page outside of code blocks.
fn prose(text: &str) -> Vec<&str> {
    let mut is_code = false;
    let mut is_prose = |line: &&str| {
        let fence = line.trim_start().starts_with("```");
        is_code ^= fence;
        !is_code && !fence
    };
    text.lines().filter(|line| is_prose(line)).collect()
}

/// The targets of all links.
pub(crate) fn links(text: &str) -> Vec<String> {
    let prose = prose(text).join("\n");
    let targets = prose.split("](").skip(1).filter_map(|rest| rest.split_once(')'));
    targets.map(|(target, _)| target.to_owned()).collect()
}

/// The anchors of a page's headings, as GitHub generates them.
fn anchors(text: &str) -> BTreeSet<String> {
    let mut anchors = BTreeSet::new();
    let prose = prose(text);
    let headings =
        prose.iter().filter(|line| line.starts_with('#')).map(|line| line.trim_start_matches('#').trim());
    for heading in headings {
        let kept = heading.chars().filter(|c| c.is_alphanumeric() || " -_".contains(*c));
        let anchor: String = kept.collect::<String>().to_lowercase().replace(' ', "-");
        let same = (1..).map(|count| format!("{anchor}-{count}"));
        let free = std::iter::once(anchor.clone()).chain(same).find(|anchor| !anchors.contains(anchor));
        anchors.extend(free);
    }
    anchors
}

/// What is wrong with a link; `None` if it is right or leads outside of the repository.
fn problem(page: &Path, link: &str) -> Option<String> {
    if link.contains("://") || link.starts_with("mailto:") {
        return None;
    }
    let (path, anchor) = link.split_once('#').map_or((link, None), |(path, anchor)| (path, Some(anchor)));
    let target = if path.is_empty() { page.to_owned() } else { page.parent().unwrap().join(path) };
    let name = page.strip_prefix(repository()).unwrap().display();
    if !target.exists() {
        return Some(format!("{name}: there is no {path}"));
    }
    let anchor = anchor?;
    let text = std::fs::read_to_string(&target).unwrap_or_default();
    (!anchors(&text).contains(anchor)).then(|| format!("{name}: {link} leads to no heading"))
}

#[test]
fn every_link_in_the_documentation_is_valid() {
    let mut problems = Vec::new();
    let mut count = 0;
    for page in pages() {
        let links = links(&std::fs::read_to_string(&page).unwrap());
        count += links.len();
        problems.extend(links.iter().filter_map(|link| problem(&page, link)));
    }
    assert!(problems.is_empty(), "{problems:#?}");
    assert!(count > 20, "{count} links were found");
}

#[test]
fn broken_links_are_detected() {
    let page = repository().join("docs/how-to/install.md");
    assert_eq!(problem(&page, "nowhere.md"), Some("docs/how-to/install.md: there is no nowhere.md".into()));
    assert_eq!(
        problem(&page, "upgrade.md#x"),
        Some("docs/how-to/install.md: upgrade.md#x leads to no heading".into())
    );
    assert_eq!(problem(&page, "../../README.md"), None);
    let text = "# A `b` (c), d\n[x](y.md#z)\n```\n# no\n[n](o)\n```\n## A b c d\n[a\nb](c)\n";
    assert_eq!(links(text), ["y.md#z", "c"]);
    assert_eq!(anchors(text), ["a-b-c-d", "a-b-c-d-1"].map(String::from).into());
}
