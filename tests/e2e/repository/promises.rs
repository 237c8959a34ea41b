//! `docs/reference/promises.md`: what the README and the explanations promise, and the tests that verify it.
//!
//! Each sentence that the page quotes is in its document, and each test that the page names exists and runs. The page
//! quotes each sentence that has one of the words in [`STRONG`].

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use nm_tests::files::repository;

use super::links::pages_below;

const PAGE: &str = "docs/reference/promises.md";

/// Words of promises. The page explains why a sentence with such a word is none, if it is none.
const STRONG: [&str; 6] = ["never", "always", "every", "at most", "exactly", "only"];

/// How the page begins the explanation why a sentence is no promise.
const NO_PROMISE: &str = "no promise: ";

/// A quotation is a whole sentence, or has at least so many characters.
const MIN_QUOTATION: usize = 40;

/// A row of the page.
#[derive(Debug, PartialEq, Eq)]
struct Promise {
    /// The path of the document.
    document: String,
    quotation: String,
    /// The tests, as the page names them.
    tests: String,
}

fn read(path: &str) -> String {
    std::fs::read_to_string(repository().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// The documents whose promises the page has.
fn documents() -> Vec<String> {
    let explanations: Vec<PathBuf> = pages_below(&repository().join("docs/explanation"));
    let relative = |page: PathBuf| page.strip_prefix(repository()).unwrap().display().to_string();
    std::iter::once("README.md".to_owned()).chain(explanations.into_iter().map(relative)).collect()
}

/// The cells of a row of a table; none for the line below its head.
fn cells(line: &str) -> Option<Vec<&str>> {
    let row = line.strip_prefix('|')?.strip_suffix('|')?;
    let cells: Vec<&str> = row.split('|').map(str::trim).collect();
    (!cells[0].starts_with("--")).then_some(cells)
}

/// The rows below the headings that name documents.
fn promises(page: &str) -> Vec<Promise> {
    let (mut document, mut found) = (String::new(), Vec::new());
    for line in page.lines() {
        if let Some(heading) = line.strip_prefix("## ") {
            heading.trim_matches('`').clone_into(&mut document);
        } else if let Some([quotation, tests]) = cells(line).as_deref()
            && *tests != "verified by"
        {
            let (quotation, tests) = ((*quotation).to_owned(), (*tests).to_owned());
            found.push(Promise { document: document.clone(), quotation, tests });
        }
    }
    found
}

/// The text with its links reduced to what they show, and single blanks.
fn plain(text: &str) -> String {
    let mut parts = text.split("](");
    let mut plain = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        if let Some(begin) = plain.rfind('[') {
            plain.remove(begin);
        }
        plain.push_str(part.split_once(')').map_or(part, |(_, rest)| rest));
    }
    plain.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// The sentences and the cells of the tables of a document, in their order, without code and headings.
fn sentences(document: &str) -> Vec<String> {
    let (mut paragraphs, mut is_code) = (vec![String::new()], false);
    for line in document.lines() {
        let text = line.trim_start();
        is_code ^= text.starts_with("```");
        if let Some(cells) = cells(line) {
            paragraphs.extend(cells.into_iter().map(str::to_owned));
            paragraphs.push(String::new());
        } else if is_code
            || text.is_empty()
            || ["```", "#", "!", "|--", "<!--"].iter().any(|it| text.starts_with(it))
        {
            paragraphs.push(String::new());
        } else if let Some(item) = text.strip_prefix("- ") {
            paragraphs.push(item.to_owned());
        } else if let Some(paragraph) = paragraphs.last_mut() {
            *paragraph = format!("{paragraph} {text}");
        }
    }
    let split =
        |text: &String| plain(text).split_inclusive(". ").map(|it| it.trim().to_owned()).collect::<Vec<_>>();
    paragraphs.iter().flat_map(split).filter(|sentence| !sentence.is_empty()).collect()
}

/// Whether a sentence has one of the words in [`STRONG`].
fn is_strong(sentence: &str) -> bool {
    let is_separator = |c: char| !c.is_alphanumeric() && c != '-';
    let words: Vec<String> = sentence.split(is_separator).map(str::to_lowercase).collect();
    let words = format!(" {} ", words.join(" "));
    STRONG.iter().any(|word| words.contains(&format!(" {word} ")))
}

/// Whether the text of a file has a test of this name that is not ignored.
fn has_test(text: &str, name: &str) -> bool {
    let lines: Vec<&str> = text.lines().map(str::trim).collect();
    let declared = lines.iter().position(|line| line.contains(&format!("fn {name}(")));
    let above = declared.map_or(&[][..], |at| &lines[..at]);
    let attributes: Vec<&&str> = above.iter().rev().take_while(|line| line.starts_with("#[")).collect();
    let has = |begin: &str| attributes.iter().any(|attribute| attribute.starts_with(begin));
    (has("#[test]") || has("#[tokio::test")) && !has("#[ignore")
}

/// What is wrong with the tests that a row names: `` `FILE`: `TEST`, `TEST`; `FILE`: `TEST`; benchmark `NAME` ``.
fn problems(tests: &str) -> Vec<String> {
    let parts: Vec<&str> = tests.split('`').collect();
    let (mut file, mut found, mut count) = (("", String::new()), Vec::new(), 0);
    for pair in parts.chunks_exact(2) {
        let (before, name) = (pair[0], pair[1]);
        let is_file = Path::new(name).extension().is_some_and(|extension| extension == "rs");
        count += usize::from(!is_file);
        if before.ends_with("benchmark ") {
            if !repository().join(format!("tests/benches/{name}.rs")).exists() {
                found.push(format!("there is no benchmark {name}"));
            }
        } else if is_file {
            file = (name, read(name));
        } else if !has_test(&file.1, name) {
            found.push(format!("{} has no test {name}", file.0));
        }
    }
    if count == 0 {
        found.push("no test is named".to_owned());
    }
    found
}

#[test]
fn every_promise_is_in_its_document_and_every_test_exists() {
    let all = promises(&read(PAGE));
    let mut wrong = Vec::new();
    for Promise { document, quotation, tests } in &all {
        let sentences = sentences(&read(document));
        let is_long = quotation.len() >= MIN_QUOTATION || sentences.contains(quotation);
        if !is_long || !sentences.join(" ").contains(quotation) {
            wrong.push(format!("{document} does not have the sentence: {quotation}"));
        }
        if !tests.starts_with(NO_PROMISE) {
            wrong.extend(problems(tests).into_iter().map(|problem| format!("{quotation}: {problem}")));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
    let quoted: BTreeSet<&str> = all.iter().map(|promise| promise.document.as_str()).collect();
    assert_eq!(quoted, documents().iter().map(String::as_str).collect());
}

#[test]
fn every_sentence_that_says_never_or_always_is_in_the_page() {
    let all = promises(&read(PAGE));
    let mut missing = Vec::new();
    for document in documents() {
        let quotations = || all.iter().filter(|promise| promise.document == document).map(|it| &it.quotation);
        let is_quoted = |sentence: &String| {
            quotations().any(|it| it.contains(sentence.as_str()) || sentence.contains(it))
        };
        let strong = sentences(&read(&document)).into_iter().filter(|sentence| is_strong(sentence));
        let unquoted = strong.filter(|sentence| !is_quoted(sentence));
        missing.extend(unquoted.map(|sentence| format!("{document}: {sentence}")));
    }
    assert!(missing.is_empty(), "{PAGE} does not have {missing:#?}");
}

#[test]
fn sentences_and_tests_are_found() {
    let document = "# Only\n\nOne [link\nof two](x.md#y). It\nnever `is`.\n```sh\nonly code\n```\n- An item\n  ends.\n\
                    | a | b [c](d) |\n|---|---|\n| eviction-only | at\u{a0}most |\n<!-- always -->\n";
    let expected =
        ["One link of two.", "It never `is`.", "An item ends.", "a", "b c", "eviction-only", "at most"];
    assert_eq!(sentences(document), expected);
    let strong: Vec<&str> = expected.into_iter().filter(|sentence| is_strong(sentence)).collect();
    assert_eq!(strong, ["It never `is`.", "at most"]);
    let page = "## `a.md`\n\n| sentence | verified by |\n|---|---|\n| b | `c.rs`: `d` |\n";
    let (document, quotation, tests) = ("a.md".to_owned(), "b".to_owned(), "`c.rs`: `d`".to_owned());
    assert_eq!(promises(page), [Promise { document, quotation, tests }]);
    let text = "#[test]\nfn a() {\n}\n#[test]\n#[ignore = \"x\"]\nfn b() {\n}\nfn c() {\n}\n";
    assert_eq!(["a", "b", "c", "d"].map(|name| has_test(text, name)), [true, false, false, false]);
    assert_eq!(problems("benchmark `none`"), ["there is no benchmark none"]);
    assert_eq!(
        problems("`tests/e2e/main.rs`: `none`; benchmark `drain`"),
        ["tests/e2e/main.rs has no test none"]
    );
    assert_eq!(problems("nothing"), ["no test is named"]);
}
