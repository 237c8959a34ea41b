//! The nodes of a roll that need it.

use k8s_openapi::api::core::v1::Node;
use kube::ResourceExt;
use kube::api::{Api, ListParams};
use nm_core::client::cluster::Cluster;
use nm_core::client::nodes::check_exist;
use nm_core::client::objects;
use nm_core::error::Error;
use nm_core::terminal::output::Output;
use nm_core::terminal::text::{Line, counted};
use nm_roll::needs::Needs;

use super::args::BeginArgs;

/// The names of the nodes that were selected and need the roll, and how many do not.
pub(super) async fn names(args: &BeginArgs, cluster: &Cluster) -> Result<(Vec<String>, usize), Error> {
    let names = args.nodes.resolve(cluster).await?;
    if !args.nodes.are_known() {
        check_exist(cluster, &names).await?;
    }
    let needs = Needs {
        annotations: args.needs.only_if.clone(),
        older_than_control_plane: args.needs.older_than_control_plane,
        kernel_not: args.needs.kernel_not.clone(),
    };
    if needs.is_empty() {
        return Ok((names, 0));
    }
    let server = objects::server_version(cluster).await?;
    let all = cluster.list(&Api::<Node>::all(cluster.client()), "nodes", &ListParams::default()).await?;
    let is_needed =
        |name: &String| all.iter().any(|node| node.name_any() == *name && needs.of(node, &server));
    let (needed, others): (Vec<String>, Vec<String>) = names.into_iter().partition(is_needed);
    Ok((needed, others.len()))
}

/// Reports how many nodes do not need the roll. Returns whether none does.
pub(super) fn is_none(names: &[String], others: usize, out: &mut Output) -> bool {
    if others > 0 {
        let text = match names.len() {
            0 => format!("No node needs the roll: nothing to do for {}.", counted(others, "node")),
            1 => format!("1 of {} needs the roll.", counted(1 + others, "node")),
            needed => format!("{needed} of {} need the roll.", counted(needed + others, "node")),
        };
        out.message(&Line::new(text));
    }
    names.is_empty() && others > 0
}
