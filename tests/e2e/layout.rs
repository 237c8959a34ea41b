//! The layers: inside each crate a folder imports only from folders below it, and files have no import cycles.
//!
//! An edge is a `use` declaration or a path that begins with `crate::`, `super::` or `self::`, outside of test code.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// The files of a crate by module path; the root is the empty path.
type Modules = BTreeMap<Vec<String>, String>;

/// The folders (and files) directly under `src/` of each crate, from the lowest layer to the highest. Those on one line do not import each other; `lib.rs`, `main.rs` and `mod.rs` are above all of them.
const LAYERS: [(&str, &[&[&str]]); 7] = [
    ("shared", &[&["api"], &["cluster"], &["drain"], &["gate"], &["admission", "decide", "forecast"]]),
    ("shared/connection", &[&["tls"], &["credentials", "http1"], &["service"]]),
    (
        "reconciler",
        &[
            &["runtime"],
            &["server", "telemetry"],
            &["cache"],
            &["client", "config"],
            &["evict", "watch"],
            &["controller", "leader", "webhook"],
            &["leader_term"],
            &["in_process", "program"],
        ],
    ),
    (
        "kubectl-nm/core",
        &[
            &["args", "terminal"],
            &["connection"],
            &["error"],
            &["client", "format"],
            &["maintenance", "redact"],
            &["leader"],
            &["interaction", "plan"],
            &["watch"],
            &["explain"],
            &["testing"],
        ],
    ),
    (
        "kubectl-nm",
        &[
            &["gather", "install"],
            &["doctor"],
            &["completion"],
            &["commands"],
            &["cli"],
            &["in_process", "unknown_command"],
        ],
    ),
    (
        "kubectl-nm/dashboard",
        &[
            &["elapsed", "objects", "screen", "wrapping"],
            &["config"],
            &["model"],
            &["layout", "message"],
            &["tasks", "update", "view", "watches"],
            &["recording"],
            &["roll"],
            &["headless", "run"],
            &["replay"],
        ],
    ),
    (
        "tests/sandbox",
        &[
            &["model"],
            &["request_log"],
            &["cluster"],
            &["access", "faults", "workload"],
            &["controllers"],
            &["kubevirt"],
            &["http"],
            &["server"],
            &["sandbox"],
        ],
    ),
];

#[test]
fn folders_import_only_from_the_layers_below_them() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut upward = Vec::new();
    for (package, layers) in LAYERS {
        let modules = modules(&root.join(package).join("src"));
        let rank = |name: &str| layers.iter().position(|layer| layer.contains(&name));
        for (from, text) in &modules {
            let Some(own) = from.first() else { continue };
            let own_rank = rank(own).unwrap_or_else(|| panic!("{package}: no layer for {}", from.join("/")));
            for target in used(from, text, &modules) {
                let Some(used) = target.first() else { continue };
                if used != own && rank(used) >= Some(own_rank) {
                    upward.push(format!("{package}: {} uses crate::{}", from.join("/"), target.join("::")));
                }
            }
        }
    }
    assert!(upward.is_empty(), "imports that do not point downwards: {upward:#?}");
}

#[test]
fn no_file_uses_a_file_that_uses_it() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    for package in [
        "shared",
        "shared/connection",
        "reconciler",
        "kubectl-nm",
        "kubectl-nm/core",
        "kubectl-nm/dashboard",
        "kubectl-nm/roll",
        "tests",
        "tests/nm-sandbox",
        "tests/sandbox",
    ] {
        let modules = modules(&root.join(package).join("src"));
        assert!(modules.len() > 3, "{package} has files");
        let edges: BTreeMap<&Vec<String>, BTreeSet<Vec<String>>> =
            modules.iter().map(|(path, text)| (path, used(path, text, &modules))).collect();
        let cycles: Vec<String> = modules.keys().filter_map(|start| way_back(start, &edges)).collect();
        assert!(cycles.is_empty(), "{package} has cycles of files: {cycles:#?}");
    }
}

#[test]
fn no_file_is_longer_than_five_hundred_lines() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut long = Vec::new();
    for folder in ["shared", "reconciler", "kubectl-nm", "tests"] {
        for file in rust_files(&root.join(folder)) {
            let lines = std::fs::read_to_string(&file).unwrap().lines().count();
            if lines > 500 {
                long.push((lines, file));
            }
        }
    }
    assert!(long.is_empty(), "{long:#?}");
}

fn rust_files(folder: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            files.extend(rust_files(&path));
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            files.push(path);
        }
    }
    files
}

fn modules(source: &Path) -> Modules {
    let files = rust_files(source).into_iter().filter_map(|file| {
        let relative = file.strip_prefix(source).unwrap().with_extension("");
        let mut path: Vec<String> = relative.iter().map(|part| part.to_string_lossy().into_owned()).collect();
        let is_test = path.iter().any(|part| part == "tests" || part.ends_with("_tests"));
        if path.last().is_some_and(|last| last == "mod") || path == ["lib"] {
            path.pop();
        }
        (!is_test && path != ["main"])
            .then(|| (path, without_tests(&std::fs::read_to_string(&file).unwrap())))
    });
    files.collect()
}

/// Code without comments and without what is for tests alone.
fn without_tests(text: &str) -> String {
    let mut kept = Vec::new();
    let mut lines = text.lines();
    while let Some(line) = lines.next() {
        if line != "#[cfg(test)]" {
            kept.push(line.split("//").next().unwrap_or_default());
            continue;
        }
        // The item that follows: one line, or as far as the next brace at the margin.
        let item = lines.by_ref().find(|line| !line.starts_with("#[")).unwrap_or_default();
        if !item.ends_with([';', '}']) {
            let _ = lines.by_ref().find(|line| line.starts_with('}'));
        }
    }
    kept.join("\n")
}

#[test]
fn of_a_file_only_what_is_for_tests_is_left_out() {
    let text = "use a;\n#[cfg(test)]\n#[path = \"t.rs\"]\nmod tests;\nuse b; // c\n#[cfg(test)]\nmod more {\n    use d;\n}\nuse e;";
    assert_eq!(without_tests(text), "use a;\nuse b; \nuse e;");
}

/// The files that a file uses.
fn used(from: &[String], text: &str, modules: &Modules) -> BTreeSet<Vec<String>> {
    let mut targets = BTreeSet::new();
    // A file reaches the modules that it declares by their names alone.
    let children = text.lines().filter_map(|line| line.split_once("mod ")?.1.strip_suffix(';'));
    for child in children {
        let child_path = [from, &[child.to_owned()]].concat();
        if modules.contains_key(&child_path) && uses_by_name(text, child) {
            targets.insert(child_path);
        }
    }
    for keyword in ["crate::", "super::", "self::"] {
        for (at, _) in text.match_indices(keyword) {
            let before = text[..at].chars().next_back();
            let is_visibility = text[..at].ends_with("pub(in ");
            if is_visibility || before.is_some_and(|c| c.is_alphanumeric() || c == '_' || c == ':') {
                continue;
            }
            let base: &[String] = match keyword {
                "crate::" => &[],
                "super::" => from.split_last().map_or(&[], |(_, parent)| parent),
                _ => from,
            };
            let rest = &text[at + keyword.len()..];
            if rest.starts_with('*') {
                // A module within a file takes in that file.
                continue;
            }
            for path in expand(rest) {
                targets.extend(resolve(base, &path, modules));
            }
        }
    }
    targets.remove(from);
    targets
}

/// Whether `name::` begins a path in the text.
fn uses_by_name(text: &str, name: &str) -> bool {
    let path = format!("{name}::");
    let begins = |at: usize| {
        let before = text[..at].chars().next_back();
        !before.is_some_and(|c| c.is_alphanumeric() || c == '_' || c == ':')
    };
    text.match_indices(&path).any(|(at, _)| begins(at))
}

/// `a::{b, c::d}` as `a::b` and `a::c::d`; anything that is not a path ends it.
fn expand(text: &str) -> Vec<Vec<String>> {
    let end = text.find(|c: char| !(c.is_alphanumeric() || c == '_')).unwrap_or(text.len());
    let (name, rest) = text.split_at(end);
    if let Some(group) = rest.strip_prefix('{').filter(|_| name.is_empty()) {
        let mut depth = 0;
        let mut parts = vec![String::new()];
        for c in group.chars() {
            match c {
                '{' => depth += 1,
                '}' if depth == 0 => break,
                '}' => depth -= 1,
                ',' if depth == 0 => {
                    parts.push(String::new());
                    continue;
                }
                _ => {}
            }
            parts.last_mut().unwrap().push(c);
        }
        return parts.iter().flat_map(|part| expand(part.trim())).collect();
    }
    match rest.strip_prefix("::") {
        Some(rest) => expand(rest).into_iter().map(|tail| [vec![name.to_owned()], tail].concat()).collect(),
        None => vec![vec![name.to_owned()]],
    }
}

/// The file that a path leads to: the longest part of it that is a module. Paths to a parent's own items lead to it.
fn resolve(base: &[String], path: &[String], modules: &Modules) -> Option<Vec<String>> {
    let supers = path.iter().take_while(|part| *part == "super").count();
    let base = &base[..base.len().saturating_sub(supers)];
    let full = [base, &path[supers..]].concat();
    (0..=full.len()).rev().map(|length| full[..length].to_vec()).find(|prefix| modules.contains_key(prefix))
}

/// A way from a file back to itself.
fn way_back(start: &Vec<String>, edges: &BTreeMap<&Vec<String>, BTreeSet<Vec<String>>>) -> Option<String> {
    let mut seen = BTreeSet::new();
    let mut open = vec![vec![start.clone()]];
    while let Some(way) = open.pop() {
        for next in edges.get(way.last()?).into_iter().flatten() {
            if next == start {
                let names: Vec<String> = way.iter().chain([next]).map(|path| path.join("::")).collect();
                return Some(names.join(" -> "));
            }
            if seen.insert(next.clone()) {
                open.push([way.clone(), vec![next.clone()]].concat());
            }
        }
    }
    None
}
