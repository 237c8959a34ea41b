//! `kubectl nm stop`: ends the maintenance of nodes, whatever their objects are called.

use std::collections::BTreeMap;
use std::time::Duration;

use clap::Args;
use futures::stream::{self, StreamExt, TryStreamExt};
use nm_shared::NodeMaintenance;

use crate::cluster::{AT_ONCE, Cluster, Deletion, NodeLookup};
use crate::error::Error;
use crate::exit::Exit;
use crate::follow::follow;
use crate::interrupt::interrupted;
use crate::maintenance::node;
use crate::news::news;
use crate::output::Output;
use crate::text::{Line, Style};
use crate::vigil::Vigil;
use crate::wait::{Goal, Target};
use crate::{duration, node_name};

const EXAMPLES: &str = "\
Examples:
  # Give a node back
  kubectl nm stop node-1

  # Give two nodes back, and wait until that is done
  kubectl nm stop node-1 node-2 --wait --timeout 1m

Exit codes with --wait: 0 stopped, 124 timed out, 130 interrupted.";

/// End the maintenance of nodes and give them back as they were
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct StopArgs {
    /// Names of the nodes
    #[arg(value_name = "NODE", required = true, value_parser = node_name::parse)]
    nodes: Vec<String>,

    /// Wait until the maintenances are gone
    #[arg(long)]
    wait: bool,

    /// How long to wait, such as 30s or 1h30m; 0: as long as it takes
    #[arg(long, value_name = "DURATION", requires = "wait", value_parser = duration::parse)]
    timeout: Option<Duration>,
}

/// Runs the command.
///
/// # Errors
///
/// When a node neither exists nor is in maintenance, or the server refuses.
pub(crate) async fn run(args: StopArgs, cluster: &Cluster, out: &mut Output) -> Result<Exit, Error> {
    let nodes = node_name::distinct(&args.nodes);
    let existing = cluster.maintenances().await?;
    let objects = of_nodes(&nodes, &existing);
    let idle = nodes.iter().filter(|name| !objects.iter().any(|object| object.target.node == **name));
    let lookups: BTreeMap<String, NodeLookup> = stream::iter(idle)
        .map(async |node| Ok::<_, Error>((node.clone(), cluster.node(node).await?)))
        .buffered(AT_ONCE)
        .try_collect()
        .await?;
    for line in idle_lines(&nodes, &lookups)? {
        out.data(&line)?;
    }

    let ended: Vec<(&Object, Result<Deletion, Error>)> = stream::iter(&objects)
        .map(async |object| {
            let target = &object.target;
            let ended = if object.ending {
                Ok(Deletion::UnderWay)
            } else {
                cluster.delete(&target.name, &target.uid).await
            };
            (object, ended)
        })
        .buffered(AT_ONCE)
        .collect()
        .await;
    let (mut targets, mut failed) = (Vec::new(), false);
    for (object, ended) in ended {
        match ended {
            Ok(deletion) => {
                out.data(&object.line(deletion))?;
                targets.extend((deletion == Deletion::UnderWay).then(|| object.target.clone()));
            }
            Err(error) => {
                failed = true;
                error.tell(out);
            }
        }
    }
    if failed {
        return Ok(Exit::Error);
    }
    if !args.wait || targets.is_empty() {
        return Ok(Exit::Done);
    }
    let mut vigil = Vigil::for_targets(out, Goal::Stopped, targets).with_live_lines();
    let timeout = args.timeout.filter(|timeout| !timeout.is_zero());
    follow(news(cluster), timeout, interrupted(), |moment| vigil.react(moment)).await
}

/// An object that is to be gone.
#[derive(Debug, PartialEq)]
struct Object {
    target: Target,
    /// Whether it is being deleted already.
    ending: bool,
}

impl Object {
    fn line(&self, deletion: Deletion) -> Line {
        let Target { node, name, .. } = &self.target;
        let line = Line::new(format!("node/{node} "));
        let line = match deletion {
            Deletion::Gone => line.with(Style::Good, "maintenance stopped"),
            Deletion::UnderWay if self.ending => line.with(Style::Busy, "maintenance is stopping already"),
            Deletion::UnderWay => line.with(Style::Busy, "maintenance is stopping"),
        };
        if name == node { line } else { line.and(format!(" (NodeMaintenance {name})")) }
    }
}

/// The objects for these nodes, in the order of the nodes.
fn of_nodes(nodes: &[String], existing: &[NodeMaintenance]) -> Vec<Object> {
    let of_node = |name: &String| -> Vec<Object> {
        existing
            .iter()
            .filter(|object| node(object) == name)
            .map(|object| Object {
                target: Target::from(object),
                ending: object.metadata.deletion_timestamp.is_some(),
            })
            .collect()
    };
    nodes.iter().flat_map(of_node).collect()
}

/// What to say of nodes that are in no maintenance; an error if some do not even exist.
fn idle_lines(nodes: &[String], lookups: &BTreeMap<String, NodeLookup>) -> Result<Vec<Line>, Error> {
    let missing: Vec<String> =
        nodes.iter().filter(|node| lookups.get(*node) == Some(&NodeLookup::Missing)).cloned().collect();
    if !missing.is_empty() {
        return Err(Error::UnknownNodes(missing));
    }
    let line = |node: &String| {
        let line = Line::new(format!("node/{node} is not in maintenance"));
        lookups.get(node).map(|lookup| match lookup {
            NodeLookup::Hidden => line.and("; you may not read nodes, so nobody checked that it exists"),
            NodeLookup::Exists | NodeLookup::Missing => line,
        })
    };
    Ok(nodes.iter().filter_map(line).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::maintenance::fixture::{named, requested, stopping};

    #[test]
    fn every_object_for_a_node_is_found_whatever_its_name() {
        let existing =
            [requested("n2"), named("a", "n1", "u"), stopping(named("b", "n1", "v")), named("n1", "n3", "w")];
        let nodes = ["n1".to_owned(), "n2".to_owned()];
        let found: Vec<(String, bool)> = of_nodes(&nodes, &existing)
            .into_iter()
            .map(|object| (object.target.uid, object.ending))
            .collect();
        assert_eq!(found, [("u".into(), false), ("v".into(), true), ("uid-n2".into(), false)]);
    }

    #[test]
    fn a_node_that_is_not_in_maintenance_is_no_error_if_it_exists() {
        let nodes = ["n1".to_owned(), "n2".to_owned(), "n3".to_owned()];
        let lookups = |n1, n2| BTreeMap::from([("n1".to_owned(), n1), ("n2".to_owned(), n2)]);
        let lines = idle_lines(&nodes, &lookups(NodeLookup::Exists, NodeLookup::Hidden)).unwrap();
        let lines: Vec<String> = lines.iter().map(ToString::to_string).collect();
        assert_eq!(
            lines,
            [
                "node/n1 is not in maintenance",
                "node/n2 is not in maintenance; you may not read nodes, so nobody checked that it exists"
            ]
        );
        let failed = idle_lines(&nodes, &lookups(NodeLookup::Exists, NodeLookup::Missing));
        assert!(matches!(failed, Err(Error::UnknownNodes(nodes)) if nodes == ["n2"]));
    }
}
