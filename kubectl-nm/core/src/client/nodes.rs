//! The nodes that a command selects: by name, from a file, or by labels.

use std::io::{self, Read};
use std::path::{Path, PathBuf};

use clap::Args;
use futures::stream::{self, StreamExt};
use k8s_openapi::api::core::v1::Node;
use nm_shared::cluster::node::is_unschedulable;

use crate::args::names::{closest, distinct, parse_node};
use crate::client::cluster::{Cluster, MAX_CONCURRENT_REQUESTS};
use crate::error::{Error, NodeFileProblem};
use crate::terminal::command_context::shell_quoted;
use crate::terminal::shortened::{beginning, last_causes};
use crate::terminal::text::Line;

/// The arguments that select nodes.
#[derive(Args, Debug, Default)]
pub struct NodeSelection {
    /// Names of the nodes
    #[arg(value_name = "NODE", value_parser = parse_node)]
    pub(crate) nodes: Vec<String>,

    /// Select nodes whose labels match, such as pool=blue,!spare
    #[arg(long, short = 'l', value_name = "SELECTOR", value_parser = parse_selector,
        conflicts_with_all = ["nodes", "filename"])]
    pub(crate) selector: Option<String>,

    /// Read the names of nodes from a file, one per line; - reads standard input. Text after # is ignored. May be repeated
    #[arg(long, short = 'f', value_name = "FILE")]
    pub(crate) filename: Vec<PathBuf>,
}

impl NodeSelection {
    /// The selected nodes: those whose labels match, or the given names without duplicates.
    ///
    /// # Errors
    ///
    /// If a file cannot be read or does not contain valid node names, if the selector is not valid or matches no node,
    /// or if the request fails.
    pub async fn resolve(&self, cluster: &Cluster) -> Result<Vec<String>, Error> {
        let Some(selector) = &self.selector else { return self.named() };
        let found = cluster.node_names(Some(selector)).await.map_err(|error| match error.status() {
            Some(status) if status.code == 400 => {
                let short = beginning(selector);
                // The message repeats the selector.
                let why =
                    if short == *selector { status.message.clone() } else { last_causes(&status.message) };
                Error::Selector { selector: short, why }
            }
            _ => error,
        })?;
        if found.is_empty() { Err(Error::NothingSelected(beginning(selector))) } else { Ok(found) }
    }

    /// Whether the nodes are known to exist, because the cluster listed them.
    pub fn are_known(&self) -> bool {
        self.selector.is_some()
    }

    fn named(&self) -> Result<Vec<String>, Error> {
        let mut names = self.nodes.clone();
        for path in &self.filename {
            let unusable = |problem| Error::NodeFile { file: display_name(path), problem };
            let text = read_file(path).map_err(|error| unusable(error.into()))?;
            names.extend(parse_file(&text).map_err(unusable)?);
        }
        match self.filename.as_slice() {
            [.., last] if names.is_empty() => {
                Err(Error::NodeFile { file: display_name(last), problem: NodeFileProblem::Empty })
            }
            _ => Ok(distinct(&names)),
        }
    }
}

/// Checks that nodes exist. Returns those that cannot be checked, because the user has no permission to read nodes.
///
/// # Errors
///
/// If a node does not exist ([`Error::UnknownNodes`]), or if a request fails.
pub async fn check_exist<'a>(
    cluster: &Cluster,
    names: impl IntoIterator<Item = &'a String>,
) -> Result<Vec<String>, Error> {
    Ok(read(cluster, names, async |name| cluster.node_metadata(name).await).await?.1)
}

/// Reads nodes that have to exist. Returns them, and the names of those that the user has no permission to read.
///
/// # Errors
///
/// As [`check_exist`].
pub async fn read_existing<'a>(
    cluster: &Cluster,
    names: impl IntoIterator<Item = &'a String>,
) -> Result<(Vec<Node>, Vec<String>), Error> {
    read(cluster, names, async |name| cluster.node(name).await).await
}

/// What a request returns about nodes that have to exist, and the names of those that the user has no permission to read.
async fn read<'a, T>(
    cluster: &Cluster,
    names: impl IntoIterator<Item = &'a String>,
    request: impl AsyncFn(&'a str) -> Result<Option<T>, Error>,
) -> Result<(Vec<T>, Vec<String>), Error> {
    let answers: Vec<_> = stream::iter(names)
        .map(async |name| (name, request(name).await))
        .buffered(MAX_CONCURRENT_REQUESTS)
        .collect()
        .await;
    let (mut found, mut missing, mut hidden) = (Vec::new(), Vec::new(), Vec::new());
    for (name, answer) in answers {
        match answer {
            Ok(Some(node)) => found.push(node),
            Ok(None) => missing.push(name.clone()),
            Err(error) if error.is_forbidden() => hidden.push(name.clone()),
            Err(error) => return Err(error),
        }
    }
    if missing.is_empty() { Ok((found, hidden)) } else { Err(unknown(cluster, missing).await) }
}

/// Warning that the existence of a node cannot be checked.
pub fn unchecked(node: &str) -> Line {
    Line::new(format!(
        "node/{node}: cannot check that it exists, because you have no permission to read nodes"
    ))
}

/// That a node is not in maintenance, and that it is cordoned, where it is among the nodes that were read.
pub fn not_in_maintenance(name: &str, read: &[Node], kubectl: &str) -> Line {
    let line = Line::new(format!("node/{name} is not in maintenance"));
    if !read.iter().any(|node| node.metadata.name.as_deref() == Some(name) && is_unschedulable(node)) {
        return line;
    }
    let uncordon = format!("{kubectl} uncordon {}", shell_quoted(name));
    line.and(format!("; it is cordoned; if the cordon is not needed any more: {uncordon}"))
}

async fn unknown(cluster: &Cluster, names: Vec<String>) -> Error {
    // Without permission to list nodes there is no suggestion.
    let known = cluster.node_names(None).await.unwrap_or_default();
    let guesses = names.iter().flat_map(|name| closest(name, known.iter().map(String::as_str)));
    let meant = distinct(&guesses.map(str::to_owned).collect::<Vec<_>>());
    Error::UnknownNodes { names, meant }
}

/// Parses a label selector. An empty one would match every node, and is more often a variable that is not set.
fn parse_selector(text: &str) -> Result<String, String> {
    if text.split(',').all(|part| part.trim().is_empty()) {
        return Err(String::from(
            "an empty selector would match every node; to select all, use -l kubernetes.io/hostname, or stop --all",
        ));
    }
    Ok(text.to_owned())
}

fn read_file(path: &Path) -> io::Result<String> {
    if path == Path::new("-") {
        let mut text = String::new();
        io::stdin().read_to_string(&mut text)?;
        return Ok(text);
    }
    std::fs::read_to_string(path)
}

fn display_name(path: &Path) -> String {
    if path == Path::new("-") { String::from("standard input") } else { path.display().to_string() }
}

fn parse_file(text: &str) -> Result<Vec<String>, NodeFileProblem> {
    // Editors on Windows write a byte order mark.
    let lines = text.strip_prefix('\u{feff}').unwrap_or(text).lines().enumerate();
    let names = lines.map(|(at, line)| (at + 1, line.split('#').next().unwrap_or_default().trim()));
    let invalid = |line, text: &str, why| NodeFileProblem::InvalidName { line, text: text.to_owned(), why };
    names
        .filter(|(_, name)| !name.is_empty())
        .map(|(line, name)| parse_node(name).map_err(|why| invalid(line, name, why)))
        .collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::error::exit::Exit;
    use crate::testing::fake_server::{cluster, failure, nodes};

    #[test]
    fn files_name_one_node_per_line() {
        let text = "# the blue pool\nn1\n\n  node/n2  # spare\r\nn1\n";
        assert_eq!(parse_file(text).unwrap(), ["n1", "n2", "n1"]);
        assert_eq!(parse_file("# nobody\n").unwrap(), Vec::<String>::new());
        assert_eq!(parse_file("\u{feff}n1\r\n").unwrap(), ["n1"], "a byte order mark is no part of a name");
        let problem = parse_file("n1\nn2 n3\n").unwrap_err();
        assert!(
            matches!(&problem, NodeFileProblem::InvalidName { line: 2, text, .. } if text == "n2 n3"),
            "{problem}"
        );
    }

    #[tokio::test]
    async fn names_and_files_are_combined_without_duplicates() {
        let (cluster, requests) = cluster(|_, _| failure(500, "InternalError", "x"));
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), "n2\nn3\n").unwrap();
        let named = |names: &[&str], files: &[&Path]| NodeSelection {
            nodes: names.iter().map(ToString::to_string).collect(),
            filename: files.iter().map(|file| (*file).to_owned()).collect(),
            selector: None,
        };
        let both = named(&["n1", "n2"], &[file.path()]);
        assert_eq!(both.resolve(&cluster).await.unwrap(), ["n1", "n2", "n3"]);
        let more = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(more.path(), "n4\nn2\n").unwrap();
        let files = named(&[], &[file.path(), more.path()]);
        assert_eq!(files.resolve(&cluster).await.unwrap(), ["n2", "n3", "n4"]);
        assert!(requests.lock().unwrap().is_empty());
        std::fs::write(file.path(), "").unwrap();
        let empty = named(&[], &[file.path()]).resolve(&cluster).await.unwrap_err();
        assert!(empty.to_string().ends_with("it names no node"), "{empty}");
        let missing = named(&[], &[Path::new("/nowhere/nodes")]).resolve(&cluster).await.unwrap_err();
        assert!(missing.to_string().starts_with("cannot read nodes from /nowhere/nodes: "), "{missing}");
    }

    #[test]
    fn an_empty_selector_is_refused() {
        for blank in ["", " ", ",", " , ,", "\t"] {
            assert!(parse_selector(blank).is_err(), "{blank:?}");
        }
        assert_eq!(parse_selector("a=b,!c").as_deref(), Ok("a=b,!c"));
    }

    #[tokio::test]
    async fn a_selector_that_matches_nothing_is_an_error() {
        let (cluster, _) = cluster(|_, _| nodes(&[]));
        let selected = NodeSelection { selector: Some("pool=blue".into()), ..NodeSelection::default() };
        let error = selected.resolve(&cluster).await.unwrap_err();
        assert_eq!(error.to_string(), "no node has labels that match \"pool=blue\"");
    }

    #[tokio::test]
    async fn an_invalid_selector_is_reported_with_examples() {
        let (cluster, _) = cluster(|_, _| failure(400, "BadRequest", "x"));
        let selected = NodeSelection { selector: Some("a b".into()), ..NodeSelection::default() };
        let error = selected.resolve(&cluster).await.unwrap_err();
        assert_eq!(error.to_string(), "invalid label selector \"a b\": x BadRequest");
        assert!(error.hint().is_some_and(|hint| hint.contains("pool=blue")));
        assert_eq!(error.exit(), Exit::Usage, "as an invalid --pod-selector");
        let long = "x".repeat(9_000);
        let refused = format!("Invalid value: \"{long}\": must be no more than 63 bytes");
        let (cluster, _) = self::cluster(move |_, _| failure(400, "BadRequest", &refused));
        let selected = NodeSelection { selector: Some(long), ..NodeSelection::default() };
        let error = selected.resolve(&cluster).await.unwrap_err().to_string();
        assert!(error.len() < 300 && error.contains(" ...\": ... must be no more than 63 bytes"), "{error}");
    }

    #[tokio::test]
    async fn a_missing_node_is_reported_with_similar_names() {
        let (cluster, _) = cluster(|_, path| match path {
            "/api/v1/nodes" => nodes(&["worker-07", "db-1"]),
            "/api/v1/nodes/worker-07" => (200, json!({"metadata": {"name": "worker-07"}})),
            "/api/v1/nodes/hidden" => failure(403, "Forbidden", "hidden"),
            _ => failure(404, "NotFound", "x"),
        });
        let names = |names: &[&str]| names.iter().map(ToString::to_string).collect::<Vec<_>>();
        let hidden = check_exist(&cluster, &names(&["worker-07", "hidden"])).await.unwrap();
        assert_eq!(hidden, ["hidden"]);
        for (wanted, message) in [
            (vec!["worker-o7"], "nodes \"worker-o7\" not found; did you mean worker-07?"),
            (vec!["worker-07", "gone"], "nodes \"gone\" not found"),
            (
                vec!["worker-o7", "db-l"],
                "nodes \"worker-o7\", \"db-l\" not found; did you mean worker-07 or db-1?",
            ),
        ] {
            let error = check_exist(&cluster, &names(&wanted)).await.unwrap_err();
            assert_eq!(error.to_string(), format!("Error from server (NotFound): {message}"));
        }
    }
}
