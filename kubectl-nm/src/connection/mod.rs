//! From kubectl's own flags and kubeconfig to a client.
//!
//! The order is kubectl's: flags over the kubeconfig, `--kubeconfig` over `KUBECONFIG` over `~/.kube/config`, and the
//! service account of the pod we run in as the last resort. [`flags`] are the flags, [`kubeconfig`] finds, merges and
//! overrides the files, [`proxy`] says which proxy is in between.

pub(crate) mod flags;
mod kubeconfig;
mod proxy;

use std::path::PathBuf;
use std::time::Duration;

use kube::config::{Config, KubeConfigOptions, KubeconfigError};

pub(crate) use flags::ConnectionFlags;

/// How long a connection may take to come about. A cluster that is not there is noticed before anyone wonders.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(4);

/// Why there is no way to a cluster.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ConnectionError {
    /// Nothing says where the cluster is.
    #[error("error: no cluster to talk to: there is no kubeconfig at {}", list(.0))]
    NoKubeconfig(Vec<PathBuf>),
    /// The file named by `--kubeconfig` does not exist.
    #[error("error: no such kubeconfig: {}", .0.display())]
    MissingFile(PathBuf),
    /// There are contexts, but none is the current one.
    #[error("error: the kubeconfig has no current context")]
    NoContext(Vec<String>),
    /// A context, cluster or user that the kubeconfig does not have.
    #[error("error: {kind} \"{name}\" does not exist in the kubeconfig")]
    Unknown {
        /// What was looked for.
        kind: &'static str,
        /// By which name.
        name: String,
        /// The names there are.
        known: Vec<String>,
    },
    /// The cluster has no address.
    #[error("error: the kubeconfig gives no server address for cluster \"{0}\"")]
    NoServer(String),
    /// `--as-group` and its like without `--as`.
    #[error("error: --as-group, --as-uid and --as-user-extra need --as")]
    ImpersonationWithoutUser,
    /// The address of the server or of the proxy is none.
    #[error("error: \"{address}\" is no address: {source}")]
    Address {
        /// As given.
        address: String,
        /// What is wrong with it.
        source: http::uri::InvalidUri,
    },
    /// The kubeconfig, or a file that it names, cannot be used.
    #[error("error: the kubeconfig cannot be used: {0}")]
    Kubeconfig(#[from] KubeconfigError),
    /// Credentials or certificates cannot be used.
    #[error("error: cannot prepare the connection to {server}: {source}")]
    Client {
        /// The address of the server.
        server: String,
        /// What is wrong.
        source: Box<kube::Error>,
    },
}

impl ConnectionError {
    /// What to do about it.
    pub(crate) fn hint(&self) -> Option<String> {
        let known = |names: &[String]| match names {
            [] => String::from("the kubeconfig has none; is it the right file?"),
            names => format!("there are: {}", names.join(", ")),
        };
        Some(match self {
            Self::NoKubeconfig(_) | Self::MissingFile(_) => String::from(
                "name an existing kubeconfig with --kubeconfig FILE or KUBECONFIG, or the server with --server",
            ),
            Self::NoContext(names) => {
                format!("choose one with --context or `kubectl config use-context`; {}", known(names))
            }
            Self::Unknown { known: names, .. } => known(names),
            Self::NoServer(_) => String::from("set clusters[].cluster.server in it, or pass --server"),
            Self::Client { source, .. } if matches!(**source, kube::Error::Auth(_)) => String::from(
                "the kubeconfig gets its credentials from a program: does `kubectl version` work?",
            ),
            Self::ImpersonationWithoutUser
            | Self::Address { .. }
            | Self::Kubeconfig(_)
            | Self::Client { .. } => return None,
        })
    }
}

/// The files by name.
fn list(paths: &[PathBuf]) -> String {
    paths.iter().map(|path| path.display().to_string()).collect::<Vec<_>>().join(", ")
}

/// A client for the chosen cluster.
pub(crate) struct Connected {
    /// The client.
    pub(crate) client: kube::Client,
    /// The address of the server, for messages.
    pub(crate) server: String,
    /// What `--request-timeout` says; `None` is unlimited.
    pub(crate) request_timeout: Option<Duration>,
}

/// Prepares a client for the cluster that flags and environment name. No request is sent yet.
///
/// # Errors
///
/// When nothing says where the cluster is, or what says so cannot be used.
pub(crate) async fn connect(flags: &ConnectionFlags) -> Result<Connected, ConnectionError> {
    let mut config = config(flags).await?;
    config.connect_timeout = Some(CONNECT_TIMEOUT);
    // Retries are counted where requests are made: a person waits for a minute less patiently than a controller.
    config.default_retry = false;
    let server = address(&config.cluster_url);
    let client = kube::Client::try_from(config)
        .map_err(|source| ConnectionError::Client { server: server.clone(), source: Box::new(source) })?;
    Ok(Connected { client, server, request_timeout: flags.request_timeout() })
}

async fn config(flags: &ConnectionFlags) -> Result<Config, ConnectionError> {
    let files = kubeconfig::Files::of_this_process(flags);
    let kubeconfig = files.read()?;
    if kubeconfig::is_empty(&kubeconfig) && flags.server.is_none() {
        return match Config::incluster() {
            Ok(mut config) => {
                kubeconfig::override_user(&mut config.auth_info, flags)?;
                Ok(config)
            }
            Err(_) => Err(ConnectionError::NoKubeconfig(files.paths)),
        };
    }
    let effective = kubeconfig::effective(&kubeconfig, flags)?;
    let configured_proxy = kubeconfig::proxy_url(&effective);
    let mut config = Config::from_custom_kubeconfig(effective, &KubeConfigOptions::default()).await?;
    config.proxy_url =
        proxy::choose(configured_proxy.as_deref(), &config.cluster_url, |name| std::env::var(name).ok())
            .map_err(|(address, source)| ConnectionError::Address { address, source })?;
    Ok(config)
}

/// The address as people write it.
fn address(url: &http::Uri) -> String {
    url.to_string().trim_end_matches('/').to_owned()
}
