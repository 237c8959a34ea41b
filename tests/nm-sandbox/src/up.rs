//! `nm-sandbox up`: a cluster that runs until the program is stopped.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;
use kube_sandbox::duration;
use kube_sandbox::sandbox::{Options, Sandbox};
use serde_json::json;
use tokio::signal::unix::{SignalKind, signal};

use crate::kubeconfig_file::KubeconfigFile;
use crate::output;

/// The size and the speed of the cluster.
#[derive(Debug, Args)]
pub(crate) struct Up {
    /// Number of nodes
    #[arg(long, default_value_t = 6, value_name = "N")]
    nodes: usize,
    /// Number of pods, not counting one agent on each node
    #[arg(long, default_value_t = 60, value_name = "N")]
    pods: usize,
    /// How long a pod takes to become Ready, such as 200ms, 1s or 2m
    #[arg(long, default_value = "200ms", value_parser = duration::parse, value_name = "DURATION")]
    start_delay: Duration,
    /// How long a pod takes to terminate, at most its grace period
    #[arg(long, default_value = "1s", value_parser = duration::parse, value_name = "DURATION")]
    stop_delay: Duration,
    /// Where to write the kubeconfig [default: a temporary file, removed at exit]
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
}

/// Runs the cluster until SIGINT or SIGTERM.
///
/// # Errors
/// When the cluster does not start or its kubeconfig cannot be written.
pub(crate) async fn run(up: Up) -> io::Result<()> {
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
    output::data(&export(kubeconfig.path()))?;
    output::message(
        "No nm-reconciler runs in it: start one with this KUBECONFIG, `cargo run -p nm-reconciler`.",
    );
    output::message("The cluster runs until Ctrl-C.");
    stopped.await;
    sandbox.stop().await;
    Ok(())
}

async fn start(up: &Up) -> io::Result<Sandbox> {
    output::message(&format!("Starting {} nodes and {} pods …", up.nodes, up.pods));
    let options = Options {
        nodes: up.nodes,
        pods: up.pods,
        start_delay: up.start_delay,
        stop_delay: up.stop_delay,
        ..Options::default()
    };
    let sandbox = Sandbox::start(options).await?;
    let crd = json!(nm_shared::api::crd::crd());
    sandbox.install_crd(crd).map_err(io::Error::other)?;
    output::message(&format!("Ready at {}.", sandbox.url()));
    Ok(sandbox)
}

/// The command that makes a shell use this kubeconfig.
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
    fn the_export_command_is_quoted_for_a_shell() {
        let check = |path: &str, expected: &str| assert_eq!(export(Path::new(path)), expected);
        check("/tmp/a-b/kubeconfig", "export KUBECONFIG=/tmp/a-b/kubeconfig");
        check("/tmp/my dir/k", "export KUBECONFIG='/tmp/my dir/k'");
        check("/tmp/it's", r"export KUBECONFIG='/tmp/it'\''s'");
    }
}
