//! `nm-sandbox demo`: one maintenance, or the roll of a pool, from start to end.

mod maintenance;
mod roll;
mod stage;

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;

/// The demo of one maintenance takes about ten seconds, and that of a roll about fifty. One that takes longer than this
/// has failed.
const MAINTENANCE_TIMEOUT: Duration = Duration::from_secs(55);
const ROLL_TIMEOUT: Duration = Duration::from_secs(115);

/// What is shown.
#[derive(Debug, Args)]
pub(crate) struct Demo {
    /// Reboot a pool of six nodes instead, in two minutes at most
    #[arg(long)]
    roll: bool,

    /// Record the dashboard to this file
    #[arg(long, value_name = "FILE", conflicts_with = "roll")]
    record: Option<PathBuf>,
}

/// Runs the demo.
///
/// # Errors
/// When a program fails or the demo takes too long.
pub(crate) async fn run(demo: Demo) -> io::Result<()> {
    if demo.roll {
        in_time(ROLL_TIMEOUT, roll::run()).await
    } else {
        in_time(MAINTENANCE_TIMEOUT, maintenance::run(demo.record.as_deref())).await
    }
}

async fn in_time(timeout: Duration, demo: impl Future<Output = io::Result<()>>) -> io::Result<()> {
    match tokio::time::timeout(timeout, demo).await {
        Ok(outcome) => outcome,
        Err(_) => Err(io::Error::other(format!("the demo did not end within {timeout:?}"))),
    }
}
