//! `kubectl nm version`: the versions of plugin, reconciler and API server.

use clap::Args;

use crate::client::cluster::Cluster;
use crate::client::objects;
use crate::error::Error;
use crate::error::exit::Exit;
use crate::format::{self, Form};
use crate::install::installed::Installed;
use crate::install::versions::{OWN, Versions, skew};
use crate::interaction::progress;
use crate::terminal::output::Output;
use crate::terminal::text::Line;

const EXAMPLES: &str = "\
Examples:
  # All versions, and whether they go together
  kubectl nm version

  # This program's own, without a cluster
  kubectl nm version --client -o json

Exit codes: 0, or 1 if the cluster cannot be asked, which leaves the program's own.";

/// Show the versions of plugin, reconciler and API server
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct VersionArgs {
    /// Show the plugin's own and ask no cluster
    #[arg(long)]
    client: bool,

    /// Print them as json, yaml or jsonpath=TEMPLATE
    #[arg(long, short = 'o', value_name = "FORMAT", value_parser = format::parse_data,
        add = format::offered(format::parse_data))]
    output: Option<Form>,
}

impl VersionArgs {
    /// Whether a cluster is asked.
    pub(crate) fn needs_cluster(&self) -> bool {
        !self.client
    }
}

/// Says the version of this program, for which no cluster is needed.
///
/// # Errors
///
/// When it cannot be shown in that form, or stdout is closed.
pub(crate) fn own(args: &VersionArgs, out: &mut Output) -> Result<Exit, Error> {
    show(&Versions { plugin: OWN.to_owned(), ..Versions::default() }, args, out)
}

/// Runs the command.
///
/// # Errors
///
/// When the server cannot be asked, after this program's own version was said. Who may not see the reconciler gets the other versions.
pub(crate) async fn run(args: VersionArgs, cluster: &Cluster, out: &mut Output) -> Result<Exit, Error> {
    let asking = || format!("asking {} for versions", cluster.server());
    let ask = async {
        // A server that does not answer is not asked twice.
        let server = objects::server_version(cluster).await?;
        Ok::<_, Error>((server, Installed::find(cluster, None).await))
    };
    let (server, installed) = match progress::during(out, asking, ask).await {
        Ok(found) => found,
        Err(error) => {
            own(&args, out)?;
            return Err(error);
        }
    };
    let mut versions = Versions { plugin: OWN.to_owned(), server: Some(server), ..Versions::default() };
    match installed {
        Ok(installed) => {
            versions.reconciler = installed.version();
            versions.reconciler_image = installed.image().map(str::to_owned);
            if installed.deployment.is_none() {
                out.advise("The reconciler is not installed; `kubectl nm install` does that.");
            }
        }
        Err(error) => error.tell(out),
    }
    show(&versions, &args, out)
}

fn show(versions: &Versions, args: &VersionArgs, out: &mut Output) -> Result<Exit, Error> {
    if let Some(form) = &args.output {
        let value = serde_json::to_value(versions).map_err(|error| Error::Unshowable(error.to_string()))?;
        form.print(&value, out)?;
        return Ok(Exit::Done);
    }
    out.data(&Line::new(format!("Plugin: {}", versions.plugin)))?;
    if let Some(image) = &versions.reconciler_image {
        let version = versions.reconciler.as_deref().unwrap_or("unknown");
        out.data(&Line::new(format!("Reconciler: {version} ({image})")))?;
    }
    if let Some(server) = &versions.server {
        out.data(&Line::new(format!("API server: {server}")))?;
    }
    if let Some(said) = versions.reconciler.as_deref().and_then(|reconciler| skew(OWN, reconciler)) {
        out.advise(&format!("warning: {said}; `kubectl nm install --image IMAGE` changes the reconciler"));
    }
    Ok(Exit::Done)
}
