//! From kubectl's own flags and kubeconfig to a client.
//!
//! The order is kubectl's: flags over the kubeconfig, `--kubeconfig` over `KUBECONFIG` over `~/.kube/config`, and the
//! service account of the pod we run in as the last resort. [`flags`] are the flags, [`kubeconfig`] finds, merges and
//! overrides the files, [`proxy`] says which proxy is in between.

mod answer;
mod error;
mod flags;
mod kubeconfig;
mod proxy;

use std::time::Duration;

use http::HeaderValue;
use http::header::USER_AGENT;
use kube::client::ClientBuilder;
use kube::config::{Config, KubeConfigOptions};
use tower::util::MapFutureLayer;

use crate::terminal::output::FirstAnswer;
use answer::Audience;

pub(crate) use answer::Foreign;
pub(crate) use error::ConnectionError;
pub(crate) use flags::ConnectionFlags;

/// How long a connection may take to come about, and the first answer: as long as kubectl waits for a connection, for links
/// can be slow. Long before somebody is told what is waited for. `--request-timeout` limits every request instead.
const PATIENCE: Duration = Duration::from_secs(30);

/// Who asks.
const AGENT: &str = concat!("kubectl-nm/", env!("CARGO_PKG_VERSION"));

/// A client for the chosen cluster.
pub(crate) struct Connected {
    /// The client.
    pub(crate) client: kube::Client,
    /// The address of the server, for messages.
    pub(crate) server: String,
    /// The name of the kubeconfig's context, for headings; the server's address where there is none.
    pub(crate) context: String,
    /// The flags that lead to this cluster, each with a blank before it, for commands to paste.
    pub(crate) flags: String,
    /// What `--request-timeout` says; `None` is unlimited.
    pub(crate) request_timeout: Option<Duration>,
}

/// The names that a kubeconfig gives to what can be chosen by a flag.
pub(crate) struct Choices {
    /// For `--context`.
    pub(crate) contexts: Vec<String>,
    /// For `--cluster`.
    pub(crate) clusters: Vec<String>,
    /// For `--user`.
    pub(crate) users: Vec<String>,
}

/// What the kubeconfig that flags and environment name offers.
///
/// # Errors
///
/// When it cannot be read.
pub(crate) fn choices(flags: &ConnectionFlags) -> Result<Choices, ConnectionError> {
    let kubeconfig = kubeconfig::Files::of_this_process(flags).read()?;
    Ok(Choices {
        contexts: kubeconfig.contexts.into_iter().map(|named| named.name).collect(),
        clusters: kubeconfig.clusters.into_iter().map(|named| named.name).collect(),
        users: kubeconfig.auth_infos.into_iter().map(|named| named.name).collect(),
    })
}

/// Prepares a client for the cluster that flags and environment name. No request is sent yet; `first` will tell whether one
/// has been answered.
///
/// # Errors
///
/// When nothing says where the cluster is, or what says so cannot be used.
pub(crate) async fn connect(
    flags: &ConnectionFlags,
    first: &FirstAnswer,
) -> Result<Connected, ConnectionError> {
    let (context, mut config) = config(flags).await?;
    let patience = if flags.limits_requests() { flags.request_timeout() } else { Some(PATIENCE) };
    config.connect_timeout = patience;
    // Retries are counted where requests are made: a person waits for a minute less patiently than a controller.
    config.default_retry = false;
    // In the cluster's audit log.
    config.headers.push((USER_AGENT, HeaderValue::from_static(AGENT)));
    let server = address(&config);
    let audience = Audience::new(patience, first.clone());
    let client = ClientBuilder::try_from(config)
        .map_err(|source| ConnectionError::Client { server: server.clone(), source: Box::new(source) })?
        .with_layer(&MapFutureLayer::new(move |answer| audience.clone().hear(answer)))
        .build();
    let context = context.unwrap_or_else(|| server.clone());
    let (flags, request_timeout) = (flags.to_paste(), flags.request_timeout());
    Ok(Connected { client, server, context, flags, request_timeout })
}

/// What to connect with, and the name of the context that says so.
async fn config(flags: &ConnectionFlags) -> Result<(Option<String>, Config), ConnectionError> {
    let files = kubeconfig::Files::of_this_process(flags);
    let kubeconfig = files.read()?;
    if kubeconfig::is_empty(&kubeconfig) && flags.server.is_none() {
        return match Config::incluster() {
            Ok(mut config) => {
                kubeconfig::override_user(&mut config.auth_info, flags)?;
                Ok((None, config))
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
    let context = flags.context.clone().or(kubeconfig.current_context).filter(|name| !name.is_empty());
    Ok((context, config))
}

/// The server's address as people write it, with the proxy in between, but without the credentials for that.
fn address(config: &Config) -> String {
    let server = config.cluster_url.to_string();
    let server = server.trim_end_matches('/');
    let proxy = config.proxy_url.as_ref().and_then(http::Uri::host);
    proxy.map_or_else(|| server.to_owned(), |proxy| format!("{server} (through the proxy {proxy})"))
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::client::cluster::Cluster;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        flags: ConnectionFlags,
    }

    #[tokio::test(start_paused = true)]
    async fn a_server_that_says_nothing_is_waited_for_as_kubectl_does_and_then_given_up() {
        // The system takes the connection, and nobody ever speaks.
        let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let server = format!("--server=https://{}", silent.local_addr().unwrap());
        let kubeconfig = tempfile::NamedTempFile::new().unwrap();
        let kubeconfig = format!("--kubeconfig={}", kubeconfig.path().display());
        let line = ["nm", &server, &kubeconfig, "--insecure-skip-tls-verify"];
        let first = FirstAnswer::default();
        let connected = connect(&Line::try_parse_from(line).unwrap().flags, &first).await.unwrap();
        let begun = tokio::time::Instant::now();
        let error = Cluster::from(connected).maintenances().await.unwrap_err();
        assert!(error.to_string().ends_with(": it does not answer"), "{error}");
        let waited = begun.elapsed().as_secs();
        assert!((29..=31).contains(&waited) && !first.has_come(), "{waited} s");
    }
}
