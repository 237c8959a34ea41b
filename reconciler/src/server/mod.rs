//! The HTTP server that serves probes, metrics and the webhook.
//!
//! [`Server::bind`] listens on an address at startup, so that an address in use is reported there. [`Server::serve`]
//! answers plain connections, [`Server::serve_over`] those that need a handshake first, such as TLS. A silent connection
//! delays nothing, not even shutdown, and the number of connections is limited
//! ([`connections`](crate::server::connections)).

pub(crate) mod connections;

use std::future::Future;
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use hyper::rt::{Read, Write};
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::GracefulShutdown;
use hyper_util::service::TowerToHyperService;
use tokio::net::{TcpListener, TcpStream};
use tokio::time::{sleep, timeout};
use tracing::{debug, info, warn};

use crate::server::connections::ConnectionLimit;

/// How long a client may take for its handshake, and for the headers of a request.
const CLIENT_TIMEOUT: Duration = Duration::from_secs(10);

/// The read buffer, which limits the headers of a request.
const MAX_HEADER_BYTES: usize = 16 << 10;

/// How long requests in progress may take after shutdown begins.
const GRACEFUL_SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(1);

/// How long to wait after a connection could not be accepted, as when there are no file descriptors left.
const ACCEPT_RETRY_INTERVAL: Duration = Duration::from_millis(100);

/// The value of a flag: where to listen, or none for an empty text, which disables the server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct AddressFlag(pub(crate) Option<SocketAddr>);

impl FromStr for AddressFlag {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "" => Ok(Self(None)),
            text => text
                .parse()
                .map(|address| Self(Some(address)))
                .map_err(|_| "must be an IP address and a port, such as [::]:8080, or empty to disable it"),
        }
    }
}

/// The server cannot listen on an address.
#[derive(Debug, thiserror::Error)]
#[error(
    "cannot serve the {what} on {address}: {source}. Set {flag} to another address, or to an empty one to disable it"
)]
pub(crate) struct BindError {
    what: &'static str,
    flag: &'static str,
    address: SocketAddr,
    source: io::Error,
}

#[derive(Debug)]
pub(crate) struct Server {
    what: &'static str,
    listener: TcpListener,
    address: SocketAddr,
}

impl Server {
    /// Listens on `address`, the value of `flag`. `what` names what is served.
    pub(crate) async fn bind(
        what: &'static str,
        flag: &'static str,
        address: SocketAddr,
    ) -> Result<Self, BindError> {
        let is_everywhere = address.ip() == Ipv6Addr::UNSPECIFIED;
        let without_ipv6 = is_everywhere.then(|| (Ipv4Addr::UNSPECIFIED, address.port()).into());
        let bound = async {
            let listener = listen(address, without_ipv6).await?;
            let address = listener.local_addr()?;
            Ok(Self { what, listener, address })
        };
        let server = bound.await.map_err(|source| BindError { what, flag, address, source })?;
        info!(address = %server.address, "serving the {what}");
        Ok(server)
    }

    /// The address, with the port that was chosen for port 0.
    #[cfg(test)]
    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Answers requests until shutdown.
    pub(crate) async fn serve(self, router: Router, shutdown: impl Future<Output = ()>) {
        self.serve_over(|stream| async { Ok(stream) }, router, shutdown).await;
    }

    /// Answers requests until shutdown, over what `handshake` makes of each connection.
    pub(crate) async fn serve_over<S, F>(
        self,
        handshake: impl Fn(TcpStream) -> F,
        router: Router,
        shutdown: impl Future<Output = ()>,
    ) where
        S: tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin + Send + 'static,
        F: Future<Output = io::Result<S>> + Send + 'static,
    {
        let (graceful, connections) = (GracefulShutdown::new(), Arc::new(ConnectionLimit::default()));
        let mut shutdown = std::pin::pin!(shutdown);
        let mut is_failing = false;
        loop {
            let (stream, from) = tokio::select! {
                accepted = self.listener.accept() => match accepted {
                    Ok((stream, from)) => (stream, from.ip().to_canonical()),
                    Err(error) => {
                        if !std::mem::replace(&mut is_failing, true) {
                            warn!(%error, "cannot accept connections for the {}", self.what);
                        }
                        sleep(ACCEPT_RETRY_INTERVAL).await;
                        continue;
                    }
                },
                () = &mut shutdown => break,
            };
            is_failing = false;
            let Some(open) = connections.accept(from) else {
                debug!("connection refused: there are too many");
                continue;
            };
            let (stream, watcher, router) = (handshake(stream), graceful.watcher(), router.clone());
            tokio::spawn(async move {
                let _open = open;
                let answered = match timeout(CLIENT_TIMEOUT, stream).await {
                    Ok(Ok(stream)) => watcher.watch(connection(TokioIo::new(stream), router)).await,
                    Ok(Err(error)) => return debug!(%error, "handshake failed"),
                    Err(_) => return debug!("handshake timed out"),
                };
                if let Err(error) = answered {
                    debug!(%error, "connection failed");
                }
            });
        }
        drop(self.listener);
        if timeout(GRACEFUL_SHUTDOWN_TIMEOUT, graceful.shutdown()).await.is_err() {
            debug!("shutdown with unanswered requests for the {}", self.what);
        }
    }
}

/// Listens on `address` or, where IPv6 is disabled, on the other one. If an address is in use, that is an error and no other
/// is tried.
async fn listen(address: SocketAddr, without_ipv6: Option<SocketAddr>) -> io::Result<TcpListener> {
    match (TcpListener::bind(address).await, without_ipv6) {
        (Err(error), Some(other)) if error.kind() != io::ErrorKind::AddrInUse => {
            TcpListener::bind(other).await.map_err(|_| error)
        }
        (bound, _) => bound,
    }
}

fn connection<S: Read + Write + Unpin>(
    stream: S,
    router: Router,
) -> http1::Connection<S, TowerToHyperService<Router>> {
    http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(CLIENT_TIMEOUT)
        .max_buf_size(MAX_HEADER_BYTES)
        .serve_connection(stream, TowerToHyperService::new(router))
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    use axum::routing::get;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpSocket;
    use tokio::sync::{Notify, watch};

    use super::*;
    use crate::runtime::shutdown::shutdown_begins;
    use crate::server::connections::MAX_CONNECTIONS_PER_ADDRESS;

    async fn anywhere() -> Server {
        let address: SocketAddr = "127.0.0.1:0".parse().unwrap();
        Server::bind("tests", "--tests-addr", address).await.unwrap()
    }

    async fn ask(server: SocketAddr) -> TcpStream {
        let mut client = TcpStream::connect(server).await.unwrap();
        client.write_all(b"GET / HTTP/1.1\r\nHost: test\r\n\r\n").await.unwrap();
        client
    }

    #[tokio::test]
    async fn an_address_in_use_is_reported_with_its_flag_and_a_fix() {
        let server = anywhere().await;
        let error = Server::bind("tests", "--tests-addr", server.address()).await.unwrap_err().to_string();
        assert!(error.starts_with(&format!("cannot serve the tests on {}: ", server.address())), "{error}");
        assert!(error.contains("in use"), "{error}");
        assert!(
            error.ends_with("Set --tests-addr to another address, or to an empty one to disable it"),
            "{error}"
        );
    }

    #[tokio::test]
    async fn shutdown_waits_for_requests_in_progress_and_not_for_silent_connections() {
        let server = anywhere().await;
        let address = server.address();
        let (sender, shutdown) = watch::channel(false);
        let (asked, answer) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
        let (hears, answers) = (asked.clone(), answer.clone());
        let router = Router::new().route(
            "/",
            get(move || async move {
                hears.notify_one();
                answers.notified().await;
                "at last"
            }),
        );
        let serving = tokio::spawn(server.serve(router, shutdown_begins(shutdown)));
        let _silent = TcpStream::connect(address).await.unwrap();
        let mut client = ask(address).await;
        asked.notified().await;
        sender.send_replace(true);
        answer.notify_one();
        let mut answered = String::new();
        client.read_to_string(&mut answered).await.unwrap();
        assert!(answered.ends_with("at last"), "{answered}");
        serving.await.unwrap();
        assert!(TcpStream::connect(address).await.is_err(), "it no longer listens");
    }

    /// The answer of a server on this port to a client that connects to `ip`.
    async fn answer_at(ip: IpAddr, port: u16) -> String {
        let mut client = ask((ip, port).into()).await;
        let mut answered = String::new();
        client.read_to_string(&mut answered).await.unwrap();
        answered
    }

    #[tokio::test]
    async fn everywhere_includes_all_ipv6_and_ipv4_addresses() {
        let server = Server::bind("tests", "--tests-addr", (Ipv6Addr::UNSPECIFIED, 0).into()).await.unwrap();
        let address = server.address();
        let (sender, shutdown) = watch::channel(false);
        let hello = || async { ([(http::header::CONNECTION, "close")], "hello") };
        let serving =
            tokio::spawn(server.serve(Router::new().route("/", get(hello)), shutdown_begins(shutdown)));
        let has_ipv6 = TcpListener::bind((Ipv6Addr::LOCALHOST, 0)).await.is_ok();
        assert!(answer_at(Ipv4Addr::LOCALHOST.into(), address.port()).await.ends_with("hello"));
        if has_ipv6 {
            assert!(answer_at(Ipv6Addr::LOCALHOST.into(), address.port()).await.ends_with("hello"));
        }
        assert_eq!(address.is_ipv6(), has_ipv6);
        sender.send_replace(true);
        serving.await.unwrap();
    }

    #[tokio::test]
    async fn without_ipv6_the_next_address_is_used_and_one_in_use_is_an_error() {
        // Reserved for documentation, so no host has it: it fails as `[::]` does without IPv6.
        let absent: SocketAddr = "[2001:db8::1]:0".parse().unwrap();
        let local: SocketAddr = "127.0.0.1:0".parse().unwrap();
        let taken = listen(absent, Some(local)).await.unwrap().local_addr().unwrap();
        assert_eq!(taken.ip(), local.ip());
        assert!(listen(absent, None).await.is_err(), "a single address is not replaced");
        let used = TcpListener::bind(local).await.unwrap();
        let error = listen(used.local_addr().unwrap(), Some(local)).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::AddrInUse);
    }

    #[tokio::test]
    async fn requests_are_answered_however_many_silent_connections_another_address_has() {
        let server = anywhere().await;
        let (address, router) = (server.address(), Router::new().route("/", get(async || "received")));
        let (_sender, shutdown) = watch::channel(false);
        let serving = tokio::spawn(server.serve(router, shutdown_begins(shutdown)));
        let mut silent = Vec::new();
        for _ in 0..=MAX_CONNECTIONS_PER_ADDRESS {
            let socket = TcpSocket::new_v4().unwrap();
            socket.bind("127.0.0.2:0".parse().unwrap()).unwrap();
            silent.push(socket.connect(address).await.unwrap());
        }
        let mut client = ask(address).await;
        let mut answer = [0; 12];
        client.read_exact(&mut answer).await.unwrap();
        assert_eq!(&answer, b"HTTP/1.1 200");
        let closed = silent[MAX_CONNECTIONS_PER_ADDRESS].read(&mut answer).await;
        assert!(matches!(closed, Ok(0) | Err(_)), "the last of them is refused");
        serving.abort();
    }

    #[test]
    fn an_address_is_an_ip_and_a_port_or_empty() {
        for text in ["", "0.0.0.0:8080", "127.0.0.1:0", "[::]:8080"] {
            let AddressFlag(address) = text.parse().unwrap();
            assert_eq!(address.map(|address| address.to_string()).unwrap_or_default(), text);
        }
        for text in ["8080", ":8080", "localhost:8080", "0.0.0.0", "0.0.0.0:99999", " "] {
            assert!(text.parse::<AddressFlag>().is_err(), "{text}");
        }
    }
}
