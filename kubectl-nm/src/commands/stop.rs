//! `kubectl nm stop`: ends the maintenance of nodes, whatever their objects are called.

use std::cell::Cell;
use std::time::Duration;

use clap::{ArgGroup, Args};
use futures::stream::{self, StreamExt};
use nm_shared::NodeMaintenance;

use crate::args::duration;
use crate::args::names::distinct;
use crate::client::cluster::{Cluster, Deletion, MAX_CONCURRENT_REQUESTS};
use crate::client::nodes::{NodeSelection, check_exist};
use crate::client::watch_stream::news;
use crate::error::Error;
use crate::error::exit::Exit;
use crate::interaction::confirm::confirm;
use crate::interaction::progress;
use crate::maintenance::node;
use crate::terminal::output::Output;
use crate::terminal::signals::interrupted;
use crate::terminal::text::{Line, Style};
use crate::watch::follow::follow;
use crate::watch::wait::{Goal, Target};
use crate::watch::wait_reporter::Vigil;

const EXAMPLES: &str = "\
Examples:
  # Give a node back
  kubectl nm stop node-1

  # Give the nodes of a pool back, and wait until that is done
  kubectl nm stop -l pool=blue --wait --timeout 1m

  # End every maintenance, without being asked
  kubectl nm stop --all --yes

Exit codes: 0 stopped or not in maintenance, 1 some are not stopped, 2 usage, or nobody confirmed
more than one node. With --wait: 124 timed out, 130 interrupted.";

/// End the maintenance of nodes and give them back as they were
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
#[command(group = ArgGroup::new("which").args(["nodes", "selector", "filename", "all"]).required(true).multiple(true))]
pub(crate) struct StopArgs {
    #[command(flatten)]
    nodes: NodeSelection,

    /// All nodes that are in maintenance
    #[arg(long, conflicts_with_all = ["nodes", "selector", "filename"])]
    all: bool,

    /// Do not ask before more than one node is given back
    #[arg(long, short = 'y')]
    yes: bool,

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
/// When a node neither exists nor is in maintenance, or the server refuses to be asked.
pub(crate) async fn run(args: StopArgs, cluster: &Cluster, out: &mut Output) -> Result<Exit, Error> {
    let looking = || format!("asking {} about nodes and maintenances", cluster.server());
    let (objects, idle) = progress::during(out, looking, look(&args, cluster)).await?;
    for line in idle {
        out.data(&line)?;
    }
    if objects.is_empty() {
        if args.all || args.nodes.are_known() {
            out.talk(&Line::new("No maintenances found."));
        }
        return Ok(Exit::Done);
    }
    let nodes: Vec<String> = objects.iter().map(|object| object.target.node.clone()).collect();
    confirm("Give {} back", &distinct(&nodes), args.yes, out)?;

    let (all, done) = (objects.len(), Cell::new(0));
    let ending = || format!("{} of {all} maintenances", done.get());
    let end_all = stream::iter(&objects)
        .map(async |object| {
            let target = &object.target;
            let ended = if object.ending {
                Ok(Deletion::UnderWay)
            } else {
                cluster.delete(&target.name, &target.uid).await
            };
            done.set(done.get() + 1);
            (object, ended)
        })
        .buffered(MAX_CONCURRENT_REQUESTS)
        .collect::<Vec<(&Object, Result<Deletion, Error>)>>();
    let (mut targets, mut failures) = (Vec::new(), Vec::new());
    for (object, ended) in progress::during(out, ending, end_all).await {
        match ended {
            Ok(deletion) => {
                out.data(&object.line(deletion))?;
                targets.extend((deletion == Deletion::UnderWay).then(|| object.target.clone()));
            }
            Err(error) => failures.push((object.target.node.clone(), error)),
        }
    }
    Error::print_all(&failures, out);
    let gone = if args.wait && !targets.is_empty() {
        let mut vigil = Vigil::for_targets(out, Goal::Stopped, targets, cluster.flags()).with_live_lines();
        let timeout = args.timeout.filter(|timeout| !timeout.is_zero());
        follow(news(cluster), timeout, interrupted(), |moment| vigil.react(moment)).await?
    } else {
        Exit::Done
    };
    Ok(if !failures.is_empty() && gone == Exit::Done { Exit::Error } else { gone })
}

/// What is to be stopped, and what to say of nodes that were named and are in no maintenance.
async fn look(args: &StopArgs, cluster: &Cluster) -> Result<(Vec<Object>, Vec<Line>), Error> {
    if args.all {
        let existing = cluster.maintenances().await?;
        let mut nodes: Vec<String> = existing.iter().map(|object| node(object).to_owned()).collect();
        nodes.sort_unstable();
        return Ok((of_nodes(&distinct(&nodes), &existing), Vec::new()));
    }
    let nodes = args.nodes.resolve(cluster).await?;
    let objects = of_nodes(&nodes, &cluster.maintenances().await?);
    if args.nodes.are_known() {
        return Ok((objects, Vec::new()));
    }
    let in_none = |name: &&String| !objects.iter().any(|object| object.target.node == **name);
    let idle: Vec<&String> = nodes.iter().filter(in_none).collect();
    let hidden = check_exist(cluster, idle.iter().copied()).await?;
    let lines = idle.into_iter().map(|node| idle_line(node, hidden.contains(node))).collect();
    Ok((objects, lines))
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
            Deletion::Replaced => {
                line.with(Style::Good, "maintenance stopped").and(", and another one has begun")
            }
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

/// What to say of a node that is in no maintenance.
fn idle_line(node: &str, hidden: bool) -> Line {
    let line = Line::new(format!("node/{node} is not in maintenance"));
    if hidden { line.and("; you may not read nodes, so nobody checked that it exists") } else { line }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::client::cluster::tests::{cluster, failure, list, nodes};
    use crate::maintenance::fixture::{named, requested, stopping};
    use crate::terminal::output::captured::output;

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

    /// Stops in a cluster with these objects and nodes; how it ended, what was printed, and what was deleted.
    async fn stop(
        args: StopArgs,
        existing: Vec<NodeMaintenance>,
    ) -> (Result<Exit, Error>, String, Vec<String>) {
        let (cluster, requests) = cluster(move |method, path| match (method, path.rsplit('/').next()) {
            ("DELETE", Some("n3")) => failure(403, "Forbidden", "n3"),
            ("DELETE", Some("n6")) => failure(409, "Conflict", "n6"),
            ("DELETE", _) => {
                (200, json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success"}))
            }
            (_, Some("nodes")) => nodes(&["n1", "n2", "n4"]),
            (_, Some("nodemaintenances")) => list(&existing),
            (_, Some("n9")) => failure(404, "NotFound", "n9"),
            (_, Some("n8")) => failure(403, "Forbidden", "n8"),
            (_, name) => (200, json!({"metadata": {"name": name}})),
        });
        let (mut out, captured) = output();
        let ended = run(args, &cluster, &mut out).await;
        let log = requests.lock().unwrap();
        let deleted = log.iter().filter_map(|line| line.strip_prefix("DELETE "));
        let deleted = deleted.filter_map(|path| path.rsplit('/').next()).map(str::to_owned).collect();
        (ended, captured.data() + &captured.talk(), deleted)
    }

    fn args(line: &str) -> StopArgs {
        #[derive(clap::Parser)]
        struct Line {
            #[command(flatten)]
            args: StopArgs,
        }
        <Line as clap::Parser>::try_parse_from(std::iter::once("nm").chain(line.split(' '))).unwrap().args
    }

    #[tokio::test]
    async fn a_node_that_is_not_in_maintenance_is_no_error_if_it_exists() {
        let (ended, printed, deleted) = stop(args("n1 n8"), vec![]).await;
        assert_eq!((ended.unwrap(), deleted.len()), (Exit::Done, 0));
        assert_eq!(
            printed,
            "node/n1 is not in maintenance\n\
             node/n8 is not in maintenance; you may not read nodes, so nobody checked that it exists\n"
        );
        let (ended, _, deleted) = stop(args("n1 n9 -y"), vec![requested("n1")]).await;
        assert!(matches!(ended, Err(Error::UnknownNodes { names, .. }) if names == ["n9"]));
        assert!(deleted.is_empty(), "{deleted:?}");
    }

    #[tokio::test]
    async fn labels_and_all_choose_what_is_in_maintenance() {
        let existing = || vec![requested("n4"), requested("n2"), requested("n5")];
        for (line, expected) in [("-l a=b -y", vec!["n2", "n4"]), ("--all -y", vec!["n2", "n4", "n5"])] {
            let (ended, printed, deleted) = stop(args(line), existing()).await;
            assert_eq!(
                (ended.unwrap(), deleted),
                (Exit::Done, expected.iter().map(ToString::to_string).collect())
            );
            let stopped = expected
                .iter()
                .fold(String::new(), |all, node| format!("{all}node/{node} maintenance stopped\n"));
            assert_eq!(printed, stopped, "{line}");
            let (ended, printed, _) = stop(args(line), vec![]).await;
            assert_eq!(
                (ended.unwrap(), printed.as_str()),
                (Exit::Done, "No maintenances found.\n"),
                "{line}"
            );
        }
    }

    #[tokio::test]
    async fn a_maintenance_that_began_meanwhile_goes_on_and_is_told_of() {
        let (ended, printed, _) = stop(args("n6"), vec![requested("n6")]).await;
        let said = "node/n6 maintenance stopped, and another one has begun\n";
        assert_eq!((ended.unwrap(), printed.as_str()), (Exit::Done, said));
    }

    #[tokio::test]
    async fn more_than_one_node_is_not_given_back_unasked() {
        for line in ["n1 n2", "--all", "-l a=b"] {
            let (ended, _, deleted) = stop(args(line), vec![requested("n1"), requested("n2")]).await;
            assert!(matches!(ended, Err(Error::Unconfirmed(2))), "{line}");
            assert!(deleted.is_empty(), "{line}");
        }
    }

    #[tokio::test]
    async fn a_refusal_keeps_no_other_node_in_maintenance() {
        let (ended, printed, _) = stop(args("--all -y"), vec![requested("n3"), requested("n4")]).await;
        assert_eq!(ended.unwrap(), Exit::Error);
        let expected =
            "node/n4 maintenance stopped\nError from server (Forbidden): n3 Forbidden (node/n3)\nhint: ";
        assert!(printed.starts_with(expected), "{printed}");
    }
}
