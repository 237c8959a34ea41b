//! `kubectl nm status`: the maintenances as they are now.

use clap::{Args, ValueEnum};
use jiff::Timestamp;
use kube::ResourceExt;
use kube::api::DynamicObject;
use nm_shared::NodeMaintenance;
use serde_json::{Value, json};

use crate::changes::blocked_pod;
use crate::cluster::Cluster;
use crate::duration::age;
use crate::error::Error;
use crate::exit::Exit;
use crate::maintenance::{Standing, node, status};
use crate::node_name;
use crate::output::Output;
use crate::table;
use crate::text::{Line, Style};

/// What `-o name` puts before the object's name.
const KIND_AND_GROUP: &str = "nodemaintenance.nodemaintenance.medik8s.io";

const EXAMPLES: &str = "\
Examples:
  # All nodes in maintenance
  kubectl nm status

  # One of them, with the reason and the pods that are still there
  kubectl nm status node-1 -o wide

  # Its object, for jq
  kubectl nm status node-1 -o json

Exit codes: 0, or 1 if a node that is named is not in maintenance.";

/// Show the nodes in maintenance and how far they are
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct StatusArgs {
    /// Names of the nodes; all if none is named
    #[arg(value_name = "NODE", value_parser = node_name::parse)]
    nodes: Vec<String>,

    /// How to show them
    #[arg(long, short = 'o', value_name = "FORMAT", default_value = "table")]
    output: Format,
}

/// How maintenances are shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Format {
    /// A table
    Table,
    /// A table with more columns
    Wide,
    /// The objects as JSON: one alone for one node, else a List
    Json,
    /// The objects as YAML: one alone for one node, else a List
    Yaml,
    /// Their names, as other commands take them
    Name,
}

/// Runs the command.
///
/// # Errors
///
/// When a node that is named is not in maintenance, or the server refuses.
pub(crate) async fn run(args: StatusArgs, cluster: &Cluster, out: &mut Output) -> Result<Exit, Error> {
    let nodes = node_name::distinct(&args.nodes);
    let found = match args.output {
        Format::Json | Format::Yaml => {
            let chosen = choose(cluster.raw_maintenances().await?, &nodes, raw_node);
            let without = without(&nodes, &chosen, raw_node);
            // An empty List is an answer too, but not to the question for one node.
            if !(chosen.is_empty() && nodes.len() == 1) {
                out.document(&document(chosen, nodes.len() == 1, args.output)?)?;
            }
            without
        }
        Format::Table | Format::Wide | Format::Name => {
            let chosen = choose(cluster.maintenances().await?, &nodes, node);
            show(&chosen, nodes.is_empty(), args.output, out)?;
            without(&nodes, &chosen, node)
        }
    };
    if found.is_empty() { Ok(Exit::Done) } else { Err(Error::NotInMaintenance(found)) }
}

/// The objects of these nodes, or all, ordered by node and name.
fn choose<K: ResourceExt>(mut objects: Vec<K>, nodes: &[String], node: fn(&K) -> &str) -> Vec<K> {
    objects.retain(|object| nodes.is_empty() || nodes.iter().any(|wanted| wanted == node(object)));
    objects.sort_by_key(|object| (node(object).to_owned(), object.name_any()));
    objects
}

/// The nodes that have no object.
fn without<K>(nodes: &[String], objects: &[K], node: fn(&K) -> &str) -> Vec<String> {
    nodes.iter().filter(|name| !objects.iter().any(|object| node(object) == *name)).cloned().collect()
}

fn raw_node(object: &DynamicObject) -> &str {
    object.data["spec"]["nodeName"].as_str().unwrap_or_default()
}

/// Prints a table or names.
fn show(objects: &[NodeMaintenance], all: bool, format: Format, out: &mut Output) -> Result<(), Error> {
    if format == Format::Name {
        for object in objects {
            out.data(&Line::new(format!("{KIND_AND_GROUP}/{}", object.name_any())))?;
        }
    } else if !objects.is_empty() {
        for line in table(objects, format == Format::Wide, Timestamp::now()) {
            out.data(&line)?;
        }
        for object in objects {
            for pod in &status(object).blocked_pods {
                out.talk(&Line::new(format!("node/{}: ", node(object))).join(blocked_pod(pod)));
            }
        }
    }
    if objects.is_empty() && all {
        out.talk(&Line::new("No maintenances found."));
    }
    Ok(())
}

fn table(objects: &[NodeMaintenance], wide: bool, now: Timestamp) -> Vec<Line> {
    let mut headers = vec!["NODE", "PHASE", "PROGRESS", "BLOCKED", "AGE"];
    if wide {
        headers.extend(["NAME", "PENDING", "REASON"]);
    }
    let rows: Vec<Vec<(Style, String)>> = objects.iter().map(|object| row(object, wide, now)).collect();
    table::lines(&headers, &rows)
}

fn row(object: &NodeMaintenance, wide: bool, now: Timestamp) -> Vec<(Style, String)> {
    let (standing, status) = (Standing::of(object), status(object));
    let blocked = status.pod_counts.blocked;
    let created = object.metadata.creation_timestamp.as_ref();
    let plain = |text: String| (Style::Plain, if text.is_empty() { String::from("<none>") } else { text });
    let mut row = vec![
        plain(node(object).to_owned()),
        (standing.style(), standing.word().to_owned()),
        plain(status.phase.map(|_| format!("{}%", status.drain_progress)).unwrap_or_default()),
        (if blocked > 0 { Style::Bad } else { Style::Plain }, blocked.to_string()),
        plain(
            created.map_or_else(|| String::from("<unknown>"), |at| age(now.duration_since(at.0).as_secs())),
        ),
    ];
    if wide {
        let pending: Vec<String> = if status.pending_pods_refs.is_empty() {
            status.pending_pods.clone()
        } else {
            status.pending_pods_refs.iter().map(ToString::to_string).collect()
        };
        row.push(plain(object.name_any()));
        row.push(plain(pending.join(",")));
        row.push(plain(object.spec.reason.clone().unwrap_or_default()));
    }
    row
}

/// The objects as one document.
fn document(objects: Vec<DynamicObject>, alone: bool, format: Format) -> Result<String, Error> {
    let mut items: Vec<Value> = Vec::with_capacity(objects.len());
    for mut object in objects {
        // As kubectl: they are bookkeeping and bury everything else.
        object.metadata.managed_fields = None;
        items.push(serde_json::to_value(object).map_err(|error| Error::Unshowable(error.to_string()))?);
    }
    let value = match items.pop() {
        Some(only) if alone && items.is_empty() => only,
        last => {
            items.extend(last);
            json!({"apiVersion": "v1", "items": items, "kind": "List", "metadata": {"resourceVersion": ""}})
        }
    };
    if format == Format::Yaml {
        return serde_saphyr::to_string(&value).map_err(|error| Error::Unshowable(error.to_string()));
    }
    let mut text =
        serde_json::to_string_pretty(&value).map_err(|error| Error::Unshowable(error.to_string()))?;
    text.push('\n');
    Ok(text)
}

#[cfg(test)]
#[path = "status_tests.rs"]
mod tests;
