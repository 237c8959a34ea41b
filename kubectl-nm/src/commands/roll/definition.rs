//! Whether the definition of the cluster has the fields that a roll sets.

use nm_core::client::cluster::Cluster;
use nm_core::error::Error;
use nm_core::maintenance::start;
use nm_core::terminal::output::Output;
use nm_core::terminal::text::Line;
use nm_shared::{Autoscalers, NodeMaintenance};

use super::args::BeginArgs;

/// The field that keeps autoscalers off a node.
const AUTOSCALERS: &str = "spec.drain.autoscalers";

/// Checks with a dry run that the definition of the cluster has every field that is set. Where it lacks the one that keeps
/// autoscalers off, which no flag has asked for, the roll does without.
pub(super) async fn check_definition(
    wanted: &mut [NodeMaintenance],
    args: &BeginArgs,
    cluster: &Cluster,
    out: &mut Output,
) -> Result<(), Error> {
    let Some(first) = wanted.first() else { return Ok(()) };
    let is_default = !args.request.drain.decides_about_autoscalers();
    match start::start(cluster, first, true).await {
        Err(Error::DrainPruned(fields)) if is_default && fields.iter().any(|field| field == AUTOSCALERS) => {}
        checked => return checked.map(drop),
    }
    for drain in wanted.iter_mut().filter_map(|object| object.spec.drain.as_mut()) {
        drain.autoscalers = Autoscalers::Ignore;
    }
    start::start(cluster, &wanted[0], true).await?;
    out.message_with_commands(&Line::new(format!(
        "Autoscalers may remove the nodes of this roll: the CRD of NodeMaintenance in this cluster has no \
         {AUTOSCALERS}. \
         Update it with `kubectl nm install`."
    )));
    Ok(())
}
