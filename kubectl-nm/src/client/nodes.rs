//! The nodes that a command is about: named on the command line, listed in a file, or chosen by their labels.

use std::io::{self, Read};
use std::path::{Path, PathBuf};

use clap::Args;
use futures::stream::{self, StreamExt, TryStreamExt};

use crate::args::node_name::{self, distinct};
use crate::args::suggestion::closest;
use crate::client::cluster::{AT_ONCE, Cluster, NodeLookup};
use crate::error::Error;
use crate::terminal::text::Line;

/// How a command is told which nodes it is about.
#[derive(Args, Debug, Default)]
pub(crate) struct Selection {
    /// Names of the nodes
    #[arg(value_name = "NODE", value_parser = node_name::parse)]
    pub(crate) nodes: Vec<String>,

    /// The nodes whose labels match, such as pool=blue,!spare
    #[arg(long, short = 'l', value_name = "SELECTOR", value_parser = selector,
        conflicts_with_all = ["nodes", "filename"])]
    pub(crate) selector: Option<String>,

    /// The nodes that a file names, one a line, with comments after #; - is standard input. May be repeated
    #[arg(long, short = 'f', value_name = "FILE")]
    pub(crate) filename: Vec<PathBuf>,
}

impl Selection {
    /// The nodes, each once and in the order given.
    ///
    /// # Errors
    ///
    /// When the file cannot be read or names none, when the server refuses, or no node has such labels.
    pub(crate) async fn resolve(&self, cluster: &Cluster) -> Result<Vec<String>, Error> {
        let Some(selector) = &self.selector else { return self.named() };
        let found = cluster.node_names(Some(selector)).await.map_err(|error| match error.status() {
            Some(status) if status.code == 400 => {
                Error::Selector { selector: selector.clone(), why: status.message.clone() }
            }
            _ => error,
        })?;
        if found.is_empty() { Err(Error::NothingSelected(selector.clone())) } else { Ok(found) }
    }

    /// Whether the cluster said itself that these nodes exist.
    pub(crate) fn are_known(&self) -> bool {
        self.selector.is_some()
    }

    fn named(&self) -> Result<Vec<String>, Error> {
        let mut names = self.nodes.clone();
        for path in &self.filename {
            let unusable = |why: String| Error::NodeFile { file: shown(path), why };
            let text = read(path).map_err(|error| unusable(error.to_string()))?;
            names.extend(parse(&text).map_err(unusable)?);
        }
        match self.filename.as_slice() {
            [.., last] if names.is_empty() => {
                Err(Error::NodeFile { file: shown(last), why: String::from("it names no node") })
            }
            _ => Ok(distinct(&names)),
        }
    }
}

/// Which of these nodes nobody knows to exist, because the user may not read nodes.
///
/// # Errors
///
/// When some do not exist, with what may have been meant; or when the server cannot be asked.
pub(crate) async fn check_exist<'a>(
    cluster: &Cluster,
    names: impl IntoIterator<Item = &'a String>,
) -> Result<Vec<String>, Error> {
    let lookups: Vec<(&String, NodeLookup)> = stream::iter(names)
        .map(async |name| Ok::<_, Error>((name, cluster.node(name).await?)))
        .buffered(AT_ONCE)
        .try_collect()
        .await?;
    let of = |wanted| -> Vec<String> {
        lookups.iter().filter(|(_, found)| *found == wanted).map(|(name, _)| (*name).clone()).collect()
    };
    let missing = of(NodeLookup::Missing);
    if missing.is_empty() { Ok(of(NodeLookup::Hidden)) } else { Err(unknown(cluster, missing).await) }
}

/// What is said of a node of which nobody knows whether it exists.
pub(crate) fn unchecked(node: &str) -> Line {
    Line::new(format!("node/{node}: you may not read nodes, so nobody checked that it exists"))
}

/// The error for nodes that do not exist.
async fn unknown(cluster: &Cluster, names: Vec<String>) -> Error {
    // Who may not list nodes gets no suggestion.
    let known = cluster.node_names(None).await.unwrap_or_default();
    let guesses = names.iter().flat_map(|name| closest(name, known.iter().map(String::as_str)));
    let meant = distinct(&guesses.map(str::to_owned).collect::<Vec<_>>());
    Error::UnknownNodes { names, meant }
}

/// A selector that says something. The empty one matches every node, which is seldom what was meant: rather a variable was
/// not set.
fn selector(text: &str) -> Result<String, String> {
    if text.split(',').all(|part| part.trim().is_empty()) {
        return Err(String::from(
            "it is empty, and would choose every node; kubernetes.io/hostname is a label that all nodes have, and stop \
             has --all",
        ));
    }
    Ok(text.to_owned())
}

fn read(path: &Path) -> io::Result<String> {
    if path == Path::new("-") {
        let mut text = String::new();
        io::stdin().read_to_string(&mut text)?;
        return Ok(text);
    }
    std::fs::read_to_string(path)
}

fn shown(path: &Path) -> String {
    if path == Path::new("-") { String::from("standard input") } else { path.display().to_string() }
}

/// The names in a file; the error names the line.
fn parse(text: &str) -> Result<Vec<String>, String> {
    let lines = text.lines().enumerate();
    let names = lines.map(|(at, line)| (at + 1, line.split('#').next().unwrap_or_default().trim()));
    names
        .filter(|(_, name)| !name.is_empty())
        .map(|(at, name)| node_name::parse(name).map_err(|why| format!("line {at}, \"{name}\": {why}")))
        .collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::client::cluster::tests::{cluster, failure, nodes};

    #[test]
    fn files_name_a_node_a_line() {
        let text = "# the blue pool\nn1\n\n  node/n2  # spare\r\nn1\n";
        assert_eq!(parse(text).unwrap(), ["n1", "n2", "n1"]);
        assert_eq!(parse("# nobody\n").unwrap(), Vec::<String>::new());
        let complaint = parse("n1\nn2 n3\n").unwrap_err();
        assert!(complaint.starts_with("line 2, \"n2 n3\": a node's name"), "{complaint}");
    }

    #[tokio::test]
    async fn names_and_a_file_add_up_to_each_node_once() {
        let (cluster, requests) = cluster(|_, _| failure(500, "InternalError", "x"));
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), "n2\nn3\n").unwrap();
        let named = |names: &[&str], files: &[&Path]| Selection {
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
        assert!(
            missing.to_string().starts_with("error: cannot take nodes from /nowhere/nodes: "),
            "{missing}"
        );
    }

    #[test]
    fn a_selector_that_says_nothing_never_stands_for_every_node() {
        for blank in ["", " ", ",", " , ,", "\t"] {
            assert!(selector(blank).is_err(), "{blank:?}");
        }
        assert_eq!(selector("a=b,!c").as_deref(), Ok("a=b,!c"));
    }

    #[tokio::test]
    async fn a_selector_that_matches_nothing_is_an_error() {
        let (cluster, _) = cluster(|_, _| nodes(&[]));
        let selected = Selection { selector: Some("pool=blue".into()), ..Selection::default() };
        let error = selected.resolve(&cluster).await.unwrap_err();
        assert_eq!(error.to_string(), "error: no node has labels that match \"pool=blue\"");
    }

    #[tokio::test]
    async fn a_selector_that_is_none_is_told_with_what_one_looks_like() {
        let (cluster, _) = cluster(|_, _| failure(400, "BadRequest", "x"));
        let selected = Selection { selector: Some("a b".into()), ..Selection::default() };
        let error = selected.resolve(&cluster).await.unwrap_err();
        assert_eq!(error.to_string(), "error: cannot choose nodes by \"a b\": x BadRequest");
        assert!(error.hint().is_some_and(|hint| hint.contains("pool=blue")));
    }

    #[tokio::test]
    async fn a_node_that_does_not_exist_is_told_with_what_was_meant() {
        let (cluster, _) = cluster(|_, path| match path {
            "/api/v1/nodes" => nodes(&["worker-07", "db-1"]),
            "/api/v1/nodes/worker-07" => (200, json!({"metadata": {"name": "worker-07"}})),
            "/api/v1/nodes/hidden" => failure(403, "Forbidden", "hidden"),
            _ => failure(404, "NotFound", "x"),
        });
        let names = |names: &[&str]| names.iter().map(ToString::to_string).collect::<Vec<_>>();
        let hidden = check_exist(&cluster, &names(&["worker-07", "hidden"])).await.unwrap();
        assert_eq!(hidden, ["hidden"]);
        for (wanted, said) in [
            (vec!["worker-o7"], "nodes \"worker-o7\" not found; did you mean worker-07?"),
            (vec!["worker-07", "gone"], "nodes \"gone\" not found"),
            (
                vec!["worker-o7", "db-l"],
                "nodes \"worker-o7\", \"db-l\" not found; did you mean worker-07 or db-1?",
            ),
        ] {
            let error = check_exist(&cluster, &names(&wanted)).await.unwrap_err();
            assert_eq!(error.to_string(), format!("Error from server (NotFound): {said}"));
        }
    }
}
