//! `kubectl nm start`: puts nodes into maintenance.
//!
//! First everything is looked at, so that a typo in the last of ten names stops nothing halfway; then all objects are
//! created at once.

use std::collections::BTreeMap;
use std::time::Duration;

use clap::Args;
use futures::stream::{self, StreamExt, TryStreamExt};
use kube::ResourceExt;
use kube::core::Status;
use nm_shared::{NodeMaintenance, NodeMaintenanceSpec};

use crate::cluster::{AT_ONCE, Cluster, NodeLookup};
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
  # Put a node into maintenance and return at once
  kubectl nm start node-1 --reason 'new kernel'

  # Drain two nodes at the same time, and wait for ten minutes at most until both are drained
  kubectl nm start node-1 node-2 --wait --timeout 10m

  # Every node of a zone
  kubectl nm start $(kubectl get nodes -l topology.kubernetes.io/zone=a -o name)

Exit codes with --wait: 0 drained, 3 failed, 4 stopped or replaced meanwhile, 124 timed out,
130 interrupted.
Blocked pods are told as they come and do not end the wait.";

/// Put nodes into maintenance: cordon them and move their pods away
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct StartArgs {
    /// Names of the nodes
    #[arg(value_name = "NODE", required = true, value_parser = node_name::parse)]
    nodes: Vec<String>,

    /// Why, for whoever looks at the nodes next
    #[arg(long, short = 'r')]
    reason: Option<String>,

    /// Wait until all nodes are drained
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
/// When a node does not exist or cannot be put into maintenance, or the server refuses.
pub(crate) async fn run(args: StartArgs, cluster: &Cluster, out: &mut Output) -> Result<Exit, Error> {
    let nodes = node_name::distinct(&args.nodes);
    let existing = cluster.maintenances().await?;
    let steps: Vec<(String, Step)> =
        nodes.into_iter().map(|node| (node.clone(), Step::towards(&node, &existing))).collect();
    let new: Vec<&String> =
        steps.iter().filter(|(_, step)| *step == Step::Create).map(|(node, _)| node).collect();
    let lookups: BTreeMap<String, NodeLookup> = stream::iter(new)
        .map(async |node| Ok::<_, Error>((node.clone(), cluster.node(node).await?)))
        .buffered(AT_ONCE)
        .try_collect()
        .await?;
    for node in check(&steps, &lookups)? {
        out.talk(&Line::new(format!(
            "node/{node}: you may not read nodes, so nobody checked that it exists"
        )));
    }

    let begun: Vec<(String, Result<Begun, Error>)> = stream::iter(steps)
        .map(async |(node, step)| {
            let begun = begin(cluster, &node, step, args.reason.as_ref()).await;
            (node, begun)
        })
        .buffered(AT_ONCE)
        .collect()
        .await;
    let (mut targets, mut failed) = (Vec::new(), false);
    for (node, begun) in begun {
        match begun {
            Ok(begun) => {
                out.data(&begun.line(&node))?;
                targets.push(begun.target);
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
    if !args.wait {
        return Ok(Exit::Done);
    }
    let mut vigil = Vigil::for_targets(out, Goal::Drained, targets).with_live_lines();
    let timeout = args.timeout.filter(|timeout| !timeout.is_zero());
    follow(news(cluster), timeout, interrupted(), |moment| vigil.react(moment)).await
}

/// What it takes to have a node in maintenance.
#[derive(Clone, Debug, PartialEq)]
enum Step {
    /// An object is to be created.
    Create,
    /// There is one.
    Present(Target),
    /// There is one, but it is being deleted.
    Ending,
    /// There is an object of the node's name for another node.
    NameTaken(String),
}

impl Step {
    fn towards(wanted: &str, existing: &[NodeMaintenance]) -> Self {
        let is_ending = |object: &NodeMaintenance| object.metadata.deletion_timestamp.is_some();
        let oldest = existing
            .iter()
            .filter(|object| node(object) == wanted && !is_ending(object))
            .min_by_key(|object| object.metadata.creation_timestamp.clone());
        let namesake = existing.iter().find(|object| object.name_any() == wanted);
        match (oldest, namesake) {
            (Some(object), _) => Self::Present(Target::from(object)),
            (None, Some(object)) if node(object) != wanted => Self::NameTaken(node(object).to_owned()),
            _ if existing.iter().any(|object| node(object) == wanted) => Self::Ending,
            _ => Self::Create,
        }
    }

    /// Why this step cannot be taken, if it cannot.
    fn refusal(&self, node: &str) -> Option<Error> {
        match self {
            Self::Create | Self::Present(_) => None,
            Self::Ending => Some(Error::Ending(node.to_owned())),
            Self::NameTaken(other) => Some(Error::NameTaken { name: node.to_owned(), other: other.clone() }),
        }
    }
}

/// Whether all steps can be taken, and for which nodes nobody knows whether they exist.
fn check(steps: &[(String, Step)], lookups: &BTreeMap<String, NodeLookup>) -> Result<Vec<String>, Error> {
    let found = |wanted| -> Vec<String> {
        steps
            .iter()
            .map(|(node, _)| node)
            .filter(|node| lookups.get(*node) == Some(&wanted))
            .cloned()
            .collect()
    };
    let missing = found(NodeLookup::Missing);
    if !missing.is_empty() {
        return Err(Error::UnknownNodes(missing));
    }
    match steps.iter().find_map(|(node, step)| step.refusal(node)) {
        Some(refusal) => Err(refusal),
        None => Ok(found(NodeLookup::Hidden)),
    }
}

/// A node that is in maintenance.
#[derive(Debug, PartialEq)]
struct Begun {
    target: Target,
    created: bool,
}

impl Begun {
    fn line(&self, node: &str) -> Line {
        let line = Line::new(format!("node/{node} "));
        let name = &self.target.name;
        match self.created {
            true => line.with(Style::Good, "maintenance started"),
            false if name == node => line.and("is in maintenance already"),
            false => line.and(format!("is in maintenance already, by the NodeMaintenance {name}")),
        }
    }
}

async fn begin(cluster: &Cluster, node: &str, step: Step, reason: Option<&String>) -> Result<Begun, Error> {
    if let Step::Present(target) = step {
        return Ok(Begun { target, created: false });
    }
    let spec =
        NodeMaintenanceSpec { node_name: node.to_owned(), reason: reason.cloned(), ..Default::default() };
    let refused = match cluster.create(&NodeMaintenance::new(node, spec)).await {
        Ok(created) => return Ok(Begun { target: Target::from(&created), created: true }),
        Err(error) => error,
    };
    if !refused.status().is_some_and(Status::is_already_exists) {
        return Err(refused);
    }
    // Somebody was faster; what they made may do.
    let theirs: Vec<NodeMaintenance> = cluster.maintenance(node).await?.into_iter().collect();
    match Step::towards(node, &theirs) {
        Step::Present(target) => Ok(Begun { target, created: false }),
        step => Err(step.refusal(node).unwrap_or(refused)),
    }
}

#[cfg(test)]
#[path = "start_tests.rs"]
mod tests;
