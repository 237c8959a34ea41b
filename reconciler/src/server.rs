//! Serving: an address is taken, connections are answered, and all of it ends with the program.
//!
//! It is the same for whatever is served. [`Server::bind`] takes the address at the program's start, where one that is
//! in use is an error that a person sees; [`Server::serve`] answers plain connections, [`Server::serve_over`] those that
//! something is made of first, such as TLS. A connection that keeps silent holds up nobody, not even the stop.

use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::str::FromStr;
use std::time::Duration;

use axum::Router;
use hyper::rt::{Read, Write};
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::GracefulShutdown;
use hyper_util::service::TowerToHyperService;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::time::{sleep, timeout};
use tracing::{debug, info, warn};

use crate::stop::stopped;

/// A client has this long for its handshake, and for the headers of a request.
const PATIENCE: Duration = Duration::from_secs(10);

/// Requests that are being answered when the program is told to stop have this long.
const LAST_WORDS: Duration = Duration::from_secs(1);

/// Where no connection can be accepted, as when there are too many, it is tried again so soon.
const PAUSE: Duration = Duration::from_millis(100);

/// Where to serve; nowhere if it is written as nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Address(pub(crate) Option<SocketAddr>);

impl Address {
    /// Whether both cannot be taken at once. Port 0 is another each time.
    pub(crate) fn collides(self, other: Self) -> bool {
        let (Some(one), Some(other)) = (self.0, other.0) else { return false };
        let everywhere = one.ip().is_unspecified() || other.ip().is_unspecified();
        one.port() == other.port() && one.port() != 0 && (one.ip() == other.ip() || everywhere)
    }
}

impl FromStr for Address {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "" => Ok(Self(None)),
            text => text.parse().map(|address| Self(Some(address))).map_err(|_| {
                "must be an IP address and a port, such as 0.0.0.0:8080, or nothing, which serves nowhere"
            }),
        }
    }
}

impl std::fmt::Display for Address {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.map_or(Ok(()), |address| address.fmt(f))
    }
}

/// An address that cannot be taken.
#[derive(Debug, thiserror::Error)]
#[error(
    "cannot serve the {what} on {address}: {source}. Give another address by {flag}, or none to switch it off"
)]
pub(crate) struct BindError {
    what: &'static str,
    flag: &'static str,
    address: SocketAddr,
    source: io::Error,
}

/// An address that has been taken, to serve on.
#[derive(Debug)]
pub(crate) struct Server {
    what: &'static str,
    listener: TcpListener,
    address: SocketAddr,
}

impl Server {
    /// Takes `address`, which `flag` gave, to serve `what`, in the plural.
    pub(crate) async fn bind(
        what: &'static str,
        flag: &'static str,
        address: SocketAddr,
    ) -> Result<Self, BindError> {
        let bound = async {
            let listener = TcpListener::bind(address).await?;
            let address = listener.local_addr()?;
            Ok(Self { what, listener, address })
        };
        let server = bound.await.map_err(|source| BindError { what, flag, address, source })?;
        info!(address = %server.address, "serving the {what}");
        Ok(server)
    }

    /// The address that was taken, which tells the port where any would do.
    #[cfg(test)]
    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Answers until `stop`.
    pub(crate) async fn serve(self, router: Router, stop: watch::Receiver<bool>) {
        self.serve_over(|stream| async { Ok(stream) }, router, stop).await;
    }

    /// Answers until `stop` over what `prepare` makes of each connection.
    pub(crate) async fn serve_over<S, F>(
        self,
        prepare: impl Fn(TcpStream) -> F,
        router: Router,
        stop: watch::Receiver<bool>,
    ) where
        S: tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin + Send + 'static,
        F: Future<Output = io::Result<S>> + Send + 'static,
    {
        let connections = GracefulShutdown::new();
        let mut stop = std::pin::pin!(stopped(stop));
        let mut fails = false;
        loop {
            let stream = tokio::select! {
                accepted = self.listener.accept() => match accepted {
                    Ok((stream, _)) => stream,
                    Err(error) => {
                        if !std::mem::replace(&mut fails, true) {
                            warn!(%error, "cannot accept connections for the {}", self.what);
                        }
                        sleep(PAUSE).await;
                        continue;
                    }
                },
                () = &mut stop => break,
            };
            fails = false;
            let (prepared, router, watcher) = (prepare(stream), router.clone(), connections.watcher());
            tokio::spawn(async move {
                let answered = match timeout(PATIENCE, prepared).await {
                    Ok(Ok(stream)) => watcher.watch(connection(TokioIo::new(stream), router)).await,
                    Ok(Err(error)) => return debug!(%error, "a connection was not taken up"),
                    Err(_) => return debug!("a connection was not taken up in time"),
                };
                if let Err(error) = answered {
                    debug!(%error, "a connection broke off");
                }
            });
        }
        drop(self.listener);
        if timeout(LAST_WORDS, connections.shutdown()).await.is_err() {
            debug!("connections for the {} are left unanswered", self.what);
        }
    }
}

fn connection<S: Read + Write + Unpin>(
    stream: S,
    router: Router,
) -> http1::Connection<S, TowerToHyperService<Router>> {
    http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(PATIENCE)
        .serve_connection(stream, TowerToHyperService::new(router))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use axum::routing::get;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::sync::Notify;

    use super::*;

    async fn anywhere() -> Server {
        Server::bind("tests", "--tests-addr", "127.0.0.1:0".parse().unwrap()).await.unwrap()
    }

    async fn ask(server: SocketAddr) -> TcpStream {
        let mut client = TcpStream::connect(server).await.unwrap();
        client.write_all(b"GET / HTTP/1.1\r\nHost: test\r\n\r\n").await.unwrap();
        client
    }

    #[tokio::test]
    async fn an_address_in_use_is_named_with_its_flag_and_a_remedy() {
        let server = anywhere().await;
        let error = Server::bind("tests", "--tests-addr", server.address()).await.unwrap_err().to_string();
        assert!(error.starts_with(&format!("cannot serve the tests on {}: ", server.address())), "{error}");
        assert!(error.contains("in use"), "{error}");
        assert!(error.ends_with("Give another address by --tests-addr, or none to switch it off"), "{error}");
    }

    #[tokio::test]
    async fn who_is_being_answered_at_the_stop_is_answered_and_who_keeps_silent_is_not_waited_for() {
        let server = anywhere().await;
        let address = server.address();
        let (stop, stopped) = watch::channel(false);
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
        let serving = tokio::spawn(server.serve(router, stopped));
        let _silent = TcpStream::connect(address).await.unwrap();
        let mut client = ask(address).await;
        asked.notified().await;
        stop.send_replace(true);
        answer.notify_one();
        let mut answered = String::new();
        client.read_to_string(&mut answered).await.unwrap();
        assert!(answered.ends_with("at last"), "{answered}");
        serving.await.unwrap();
        assert!(TcpStream::connect(address).await.is_err(), "nobody is listened to any more");
    }

    #[test]
    fn addresses_are_an_ip_and_a_port_or_nothing() {
        for text in ["", "0.0.0.0:8080", "127.0.0.1:0", "[::]:8080"] {
            assert_eq!(text.parse::<Address>().unwrap().to_string(), text);
        }
        for text in ["8080", ":8080", "localhost:8080", "0.0.0.0", "0.0.0.0:99999", " "] {
            assert!(text.parse::<Address>().is_err(), "{text}");
        }
    }

    #[test]
    fn addresses_collide_where_both_would_hear_the_same_port() {
        for (one, other, expected) in [
            ("127.0.0.1:8080", "127.0.0.1:8080", true),
            ("0.0.0.0:8080", "127.0.0.1:8080", true),
            ("127.0.0.1:8080", "127.0.0.2:8080", false),
            ("127.0.0.1:8080", "127.0.0.1:9443", false),
            ("0.0.0.0:0", "0.0.0.0:0", false),
            ("", "0.0.0.0:8080", false),
        ] {
            let (first, second): (Address, Address) = (one.parse().unwrap(), other.parse().unwrap());
            assert_eq!(
                (first.collides(second), second.collides(first)),
                (expected, expected),
                "{one} {other}"
            );
        }
    }
}
