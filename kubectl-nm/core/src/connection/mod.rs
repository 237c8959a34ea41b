//! The connection to a cluster, from kubectl's flags and kubeconfig.
//!
//! The precedence is kubectl's: flags over the kubeconfig, `--kubeconfig` over `KUBECONFIG` over `~/.kube/config`, and at
//! last the service account of the pod that the program runs in.

mod error;
mod flags;
mod kubeconfig;
mod proxy;
mod response_guard;

use std::io::{self, IsTerminal};
use std::path::PathBuf;
use std::time::Duration;

use http::HeaderValue;
use http::header::USER_AGENT;
use kube::client::{ClientBuilder, ConfigExt};
use kube::config::{AuthInfo, Config, Kubeconfig};
use nm_connection::{Authenticated, Reread, credentials, http1};
use tower::{ServiceBuilder, ServiceExt};

use crate::connection::kubeconfig::KubeconfigFiles;
use crate::connection::response_guard::ResponseGuard;

pub use error::ConnectionError;
pub use flags::ConnectionFlags;
pub(crate) use response_guard::NotApiServer;

/// Timeout of the connection and of the first response, as long as kubectl's for a connection. `--request-timeout` replaces
/// it, and limits every request.
const CONNECTION_TIMEOUT: Duration = Duration::from_secs(30);

const USER_AGENT_VALUE: &str = concat!("kubectl-nm/", env!("CARGO_PKG_VERSION"));

/// A client for a cluster, and what messages show of the connection.
#[derive(Clone)]
pub struct Connection {
    pub(crate) client: kube::Client,
    /// Address of the API server for messages, with its proxy.
    pub server: String,
    /// The name of the kubeconfig's context, for headings; without one, the server's address.
    pub(crate) context: String,
    /// The connection flags for commands to paste, each with a leading blank.
    pub(crate) flags: String,
    pub(crate) kubectl: String,
    /// The connection flags for kubectl as a program that is started, with credentials.
    pub(crate) kubectl_arguments: Vec<String>,
    /// The kubeconfig that a flag names.
    pub(crate) kubeconfig: Option<PathBuf>,
    pub(crate) request_timeout: Option<Duration>,
}

/// Reads and merges the kubeconfig files that the flags and the environment select.
///
/// # Errors
///
/// If a file cannot be read or parsed, or if the file of `--kubeconfig` does not exist.
pub fn kubeconfig(flags: &ConnectionFlags) -> Result<Kubeconfig, ConnectionError> {
    KubeconfigFiles::from_process(flags).read()
}

/// Prepares a client for the cluster that the flags and the environment select, without sending a request. The credentials
/// are issued now, so that whoever has to log in is asked before anything is shown.
///
/// # Errors
///
/// If the kubeconfig is missing or not valid, if certificates or the proxy are not valid, or if no credentials are
/// issued.
pub async fn connect(flags: &ConnectionFlags) -> Result<Connection, ConnectionError> {
    let (context, mut config) = config(flags)?;
    let timeout = if flags.limits_requests() { flags.request_timeout() } else { Some(CONNECTION_TIMEOUT) };
    config.connect_timeout = timeout;
    // Shown in the cluster's audit log.
    config.headers.push((USER_AGENT, HeaderValue::from_static(USER_AGENT_VALUE)));
    let server = address(&config);
    let credentials = credentials(&config, Some(reread(flags, context.as_deref(), &config)), can_prompt);
    let prepared = credentials.prepare().await;
    prepared.map_err(|source| ConnectionError::Credentials { server: server.clone(), source })?;
    let client = client(&config, credentials, timeout)
        .map_err(|source| ConnectionError::Client { server: server.clone(), source: Box::new(source) })?;
    let context = context.unwrap_or_else(|| server.clone());
    let (kubectl_arguments, request_timeout) = (flags.for_kubectl(), flags.request_timeout());
    let kubeconfig = flags.kubeconfig.clone();
    let flags = flags.to_paste();
    let kubectl = format!("kubectl{flags}");
    Ok(Connection { client, server, context, flags, kubectl, kubectl_arguments, kubeconfig, request_timeout })
}

/// A client that retries nothing: `client::cluster` retries itself.
fn client(
    config: &Config,
    credentials: nm_connection::Credentials,
    timeout: Option<Duration>,
) -> kube::Result<kube::Client> {
    let guard = ResponseGuard::new(timeout);
    let connections = config.clone();
    // The guard is below the credentials: the server has no part in how long a login takes.
    let authenticated = Authenticated::new(config, credentials, move |tls| {
        let guard = guard.clone();
        let client = http1::client(&connections, tls)?;
        Ok(client.map_future(move |response| guard.clone().check(response)).boxed_clone())
    })?;
    let service = ServiceBuilder::new()
        .layer(config.base_uri_layer())
        .layer(config.extra_headers_layer()?)
        .service(authenticated);
    Ok(ClientBuilder::new(service, config.default_namespace.clone()).build())
}

/// Reads the user of the same context again: somebody may have logged in meanwhile.
fn reread(flags: &ConnectionFlags, context: Option<&str>, before: &Config) -> Reread {
    let (server, mut flags) = (before.cluster_url.clone(), flags.clone());
    flags.context = flags.context.or_else(|| context.map(str::to_owned));
    Box::new(move || {
        let (_, config) = config(&flags).ok()?;
        (config.cluster_url == server).then_some(config.auth_info)
    })
}

/// Whether a credential program may use the terminal. It may not while the dashboard has the screen, which closes standard
/// input for other programs then.
fn can_prompt() -> bool {
    #[cfg(unix)]
    let is_closed =
        rustix::io::fcntl_getfd(io::stdin()).is_ok_and(|flags| flags.contains(rustix::io::FdFlags::CLOEXEC));
    #[cfg(not(unix))]
    let is_closed = false;
    !is_closed && io::stdin().is_terminal()
}

/// Whether a credential program would be started for this connection.
///
/// # Errors
///
/// If the kubeconfig cannot be read, or lacks the selected context, cluster or user.
pub fn starts_program(flags: &ConnectionFlags) -> Result<bool, ConnectionError> {
    let user = kubeconfig::effective(&kubeconfig(flags)?, flags)?.auth_infos.into_iter().next();
    let user: AuthInfo = user.and_then(|named| named.auth_info).unwrap_or_default();
    Ok(user.exec.is_some())
}

/// The client's configuration, and the name of the context that it comes from.
fn config(flags: &ConnectionFlags) -> Result<(Option<String>, Config), ConnectionError> {
    let files = KubeconfigFiles::from_process(flags);
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
    let mut config = Config::try_from(effective)?;
    config.proxy_url =
        proxy::choose(configured_proxy.as_deref(), &config.cluster_url, |name| std::env::var(name).ok())?;
    let context = flags.context.clone().or(kubeconfig.current_context).filter(|name| !name.is_empty());
    Ok((context, config))
}

/// The server's address for messages, with the proxy, but without the proxy's credentials.
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
    struct TestCommand {
        #[command(flatten)]
        flags: ConnectionFlags,
    }

    #[tokio::test(start_paused = true)]
    async fn a_silent_server_times_out_as_in_kubectl() {
        // The system accepts the connection, and nothing ever responds.
        let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let server = format!("--server=https://{}", silent.local_addr().unwrap());
        let kubeconfig = tempfile::NamedTempFile::new().unwrap();
        let kubeconfig = format!("--kubeconfig={}", kubeconfig.path().display());
        let line = ["nm", &server, &kubeconfig, "--insecure-skip-tls-verify"];
        let connected = connect(&TestCommand::try_parse_from(line).unwrap().flags).await.unwrap();
        let begun = tokio::time::Instant::now();
        let error = Cluster::from(connected).maintenances().await.unwrap_err();
        assert!(error.to_string().ends_with(": it does not respond"), "{error}");
        let waited = begun.elapsed().as_secs();
        assert!((29..=31).contains(&waited), "{waited} s");
    }
}
