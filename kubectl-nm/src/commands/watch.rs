//! `kubectl nm watch`: a plain line for every change, for logs and scripts.

use std::time::Duration;

use clap::Args;
use jiff::Timestamp;

use crate::cluster::Cluster;
use crate::error::Error;
use crate::exit::Exit;
use crate::follow::follow;
use crate::interrupt::interrupted;
use crate::news::news;
use crate::output::Output;
use crate::vigil::{Vigil, Voice};
use crate::wait::Goal;
use crate::{duration, node_name};

const EXAMPLES: &str = "\
Examples:
  # Follow all maintenances until Ctrl-C
  kubectl nm watch

  # Follow one node's until it is drained
  kubectl nm watch node-1 --until drained --timeout 1h

Exit codes: 0 reached, 1 not in maintenance, 3 failed, 4 stopped or replaced meanwhile,
124 timed out, 130 interrupted.
Times are in UTC.";

/// Follow maintenances, one line a change
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct WatchArgs {
    /// Names of the nodes; all if none is named
    #[arg(value_name = "NODE", value_parser = node_name::parse)]
    nodes: Vec<String>,

    /// End when this is true of every maintenance that there is at first
    #[arg(long, value_name = "GOAL")]
    pub(crate) until: Option<Goal>,

    /// How long to watch, such as 30s or 1h30m; 0: as long as it takes
    #[arg(long, value_name = "DURATION", value_parser = duration::parse)]
    timeout: Option<Duration>,
}

/// Runs the command.
///
/// # Errors
///
/// When there is nothing to wait for, or the server refuses.
pub(crate) async fn run(args: WatchArgs, cluster: &Cluster, out: &mut Output) -> Result<Exit, Error> {
    // A cluster that is not there, or does not know maintenances, is an error and nothing to wait for.
    cluster.maintenances().await?;
    let nodes = node_name::distinct(&args.nodes);
    let mut vigil = Vigil::over(out, Voice::Journal(Timestamp::now), nodes, args.until);
    let timeout = args.timeout.filter(|timeout| !timeout.is_zero());
    follow(news(cluster), timeout, interrupted(), |moment| vigil.react(moment)).await
}
