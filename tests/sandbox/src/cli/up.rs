//! `nm-sandbox up`: a cluster for as long as the program runs.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;
use serde_json::json;
use tokio::signal::unix::{SignalKind, signal};

use crate::sandbox::{Options, Sandbox};
use crate::span;

use super::kubeconfig_file::KubeconfigFile;
use super::output;

/// What the cluster is to be like.
#[derive(Debug, Args)]
pub(super) struct Up {
    /// How many nodes
    #[arg(long, default_value_t = 6, value_name = "N")]
    nodes: usize,
    /// How many pods, beside one on each node
    #[arg(long, default_value_t = 60, value_name = "N")]
    pods: usize,
    /// How long a pod takes to become Ready, as in 200ms, 1s, 2m
    #[arg(long, default_value = "200ms", value_parser = span::parse, value_name = "DURATION")]
    start_delay: Duration,
    /// How long a pod takes to end, where its grace allows it
    #[arg(long, default_value = "1s", value_parser = span::parse, value_name = "DURATION")]
    stop_delay: Duration,
    /// Where to write the kubeconfig [default: a temporary file, removed at the end]
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
}

/// Runs the cluster until it is told to stop.
///
/// # Errors
/// When the cluster cannot be started or its kubeconfig not be written.
pub(super) async fn run(up: Up) -> io::Result<()> {
    let mut terminated = signal(SignalKind::terminate())?;
    let mut interrupted = signal(SignalKind::interrupt())?;
    let stopped = async {
        tokio::select! {
            _ = terminated.recv() => {}
            _ = interrupted.recv() => {}
        }
    };
    tokio::pin!(stopped);
    let sandbox = tokio::select! {
        sandbox = start(&up) => sandbox?,
        () = &mut stopped => return Ok(()),
    };
    let kubeconfig = KubeconfigFile::write(up.kubeconfig, &sandbox.kubeconfig())?;
    output::print(&export(kubeconfig.path()))?;
    output::say("The cluster runs until Ctrl-C.");
    stopped.await;
    sandbox.stop().await;
    Ok(())
}

async fn start(up: &Up) -> io::Result<Sandbox> {
    output::say(&format!("Starting {} nodes and {} pods …", up.nodes, up.pods));
    let options =
        Options { nodes: up.nodes, pods: up.pods, start_delay: up.start_delay, stop_delay: up.stop_delay };
    let sandbox = Sandbox::start(options).await?;
    // So that a maintenance can be applied at once; applying the manifest again changes nothing.
    let crd = json!(nm_shared::api::crd::crd());
    crate::http::install(sandbox.cluster(), crd).map_err(|refusal| io::Error::other(refusal.message))?;
    output::say(&format!("Ready at {}.", sandbox.url()));
    Ok(sandbox)
}

/// The line that a shell can take in.
fn export(path: &Path) -> String {
    let path = path.display().to_string();
    let plain = |c: char| c.is_ascii_alphanumeric() || "/._-".contains(c);
    if path.chars().all(plain) {
        format!("export KUBECONFIG={path}")
    } else {
        format!("export KUBECONFIG='{}'", path.replace('\'', r"'\''"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_is_safe_in_a_shell() {
        let check = |path: &str, expected: &str| assert_eq!(export(Path::new(path)), expected);
        check("/tmp/a-b/kubeconfig", "export KUBECONFIG=/tmp/a-b/kubeconfig");
        check("/tmp/my dir/k", "export KUBECONFIG='/tmp/my dir/k'");
        check("/tmp/it's", r"export KUBECONFIG='/tmp/it'\''s'");
    }
}
