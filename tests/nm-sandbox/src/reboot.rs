//! `nm-sandbox reboot`: a node of a running cluster reboots, as after `sudo reboot` on a real one.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use k8s_openapi::api::core::v1::Node;
use kube::api::{Patch, PatchParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Api, Client, Config};
use kube_sandbox::controllers::kubelet::annotations;
use kube_sandbox::duration;
use serde_json::json;

use crate::kubeconfig_file::CONTEXT;
use crate::output;

/// Which node reboots, and how.
#[derive(Debug, Args)]
pub(crate) struct Reboot {
    /// The node
    #[arg(value_name = "NODE")]
    node: String,
    /// How long the node is down, such as 500ms, 5s or 1m
    #[arg(long, default_value = "5s", value_parser = duration::parse, value_name = "DURATION")]
    downtime: Duration,
    /// The node does not return until its annotation kube-sandbox.dev/reboot is removed
    #[arg(long, conflicts_with = "downtime")]
    never: bool,
    /// The kubeconfig of the cluster [default: $KUBECONFIG]
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
}

/// Begins the reboot and does not wait for its end.
///
/// # Errors
/// When the kubeconfig is not one of a sandbox, or there is no such node.
pub(crate) async fn run(reboot: Reboot) -> io::Result<()> {
    let client = client(&reboot).await?;
    let value = if reboot.never {
        annotations::NEVER.to_owned()
    } else {
        format!("{}ms", reboot.downtime.as_millis())
    };
    let patch = Patch::Merge(json!({"metadata": {"annotations": {annotations::REBOOT: value}}}));
    let nodes: Api<Node> = Api::all(client);
    let patched = nodes.patch(&reboot.node, &PatchParams::default(), &patch).await;
    patched.map_err(|error| {
        let reason = match error {
            kube::Error::Api(status) => status.message,
            other => other.to_string(),
        };
        io::Error::other(format!("cannot reboot node {}: {reason}", reboot.node))
    })?;
    output::data(&format!("node/{} is rebooting", reboot.node))
}

/// A client of the context that only a sandbox's kubeconfig has, so that no real node is annotated.
async fn client(reboot: &Reboot) -> io::Result<Client> {
    let kubeconfig = match &reboot.kubeconfig {
        Some(path) => Kubeconfig::read_from(path),
        None => Kubeconfig::read(),
    };
    let kubeconfig = kubeconfig.map_err(io::Error::other)?;
    if !kubeconfig.contexts.iter().any(|context| context.name == CONTEXT) {
        return Err(io::Error::other("the kubeconfig is not one that nm-sandbox wrote"));
    }
    let options = KubeConfigOptions { context: Some(CONTEXT.to_owned()), ..KubeConfigOptions::default() };
    let mut config = Config::from_custom_kubeconfig(kubeconfig, &options).await.map_err(io::Error::other)?;
    // The sandbox is on this machine.
    config.proxy_url = None;
    Client::try_from(config).map_err(io::Error::other)
}
