//! `kubectl nm version`: prints the versions of plugin, reconciler and API server.

use clap::Args;
use nm_core::client::cluster::Cluster;
use nm_core::client::objects;
use nm_core::error::Error;
use nm_core::error::exit::Exit;
use nm_core::format::{self, DataFormat};
use nm_core::interaction::progress;
use nm_core::terminal::output::Output;
use nm_core::terminal::text::Line;

use crate::install::installation::{Installation, OWN_VERSION, Versions, version_skew};

const EXAMPLES: &str = "\
Examples:
  # Print all versions, and a warning if they may be incompatible
  kubectl nm version

  # Print the version of the plugin only, without a cluster
  kubectl nm version --client -o json";

const EXIT_CODES: &str = "\
Exit codes: 0 printed, 1 only the plugin's version is known because the cluster cannot be reached, 2 usage error.";

/// Print the versions of plugin, reconciler and API server
#[derive(Args, Debug)]
#[command(before_help = EXAMPLES, after_help = EXIT_CODES)]
pub(crate) struct VersionArgs {
    /// Print the version of the plugin only, without contacting the cluster
    #[arg(long)]
    client: bool,

    /// Print the versions in this format
    #[arg(long, short = 'o', value_name = "FORMAT", value_parser = format::data_formats(["json", "yaml"]))]
    output: Option<DataFormat>,
}

impl VersionArgs {
    pub(crate) fn needs_cluster(&self) -> bool {
        !self.client
    }
}

pub(crate) fn run_client(args: &VersionArgs, out: &mut Output) -> Result<Exit, Error> {
    print(&Versions { plugin: OWN_VERSION.to_owned(), ..Versions::default() }, args, out)
}

pub(crate) async fn run(args: VersionArgs, cluster: &Cluster, out: &mut Output) -> Result<Exit, Error> {
    let reading = || format!("reading versions from {}", cluster.server());
    let read = async {
        // If the server does not respond, there is no second request.
        let server = objects::server_version(cluster).await?;
        Ok::<_, Error>((server, Installation::find(cluster, None).await))
    };
    let (server, installation) = match progress::during(out, reading, read).await {
        Ok(found) => found,
        Err(error) => {
            run_client(&args, out)?;
            return Err(error);
        }
    };
    let mut versions =
        Versions { plugin: OWN_VERSION.to_owned(), server: Some(server), ..Versions::default() };
    match installation {
        Ok(installation) => {
            versions.reconciler = installation.version();
            versions.reconciler_image = installation.image().map(str::to_owned);
            if installation.deployment.is_none() {
                out.advise("nm-reconciler is not installed; `kubectl nm install --image IMAGE` installs it.");
            }
        }
        Err(error) => error.print(out),
    }
    print(&versions, &args, out)
}

fn print(versions: &Versions, args: &VersionArgs, out: &mut Output) -> Result<Exit, Error> {
    if let Some(format) = args.output {
        let value = serde_json::to_value(versions).map_err(|error| Error::Unshowable(error.to_string()))?;
        format.print(&value, out)?;
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
    let reconciler = versions.reconciler.as_deref();
    if let Some(warning) = reconciler.and_then(|reconciler| version_skew(OWN_VERSION, reconciler)) {
        out.advise(&format!(
            "warning: {warning}; `kubectl nm install --image IMAGE` installs another version of nm-reconciler"
        ));
    }
    Ok(Exit::Done)
}
