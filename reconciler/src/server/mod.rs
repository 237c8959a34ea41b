//! Serving: an address is taken, connections are answered, and all of it ends with the program.
//!
//! It is the same for whatever is served. [`Server::bind`] takes the address at the program's start, where one that is
//! in use is an error that a person sees; [`Server::serve`] answers plain connections, [`Server::serve_over`] those that
//! something is made of first, such as TLS. A connection that keeps silent holds up nobody, not even the stop, and of too
//! many some are closed ([`connections`](crate::server::connections)).

pub(crate) mod connections;

use std::future::Future;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::str::FromStr;
use std::time::Duration;

use axum::{Extension, Router};
use hyper::rt::{Read, Write};
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::GracefulShutdown;
use hyper_util::service::TowerToHyperService;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::time::{sleep, timeout};
use tracing::{debug, info, warn};

use crate::runtime::shutdown::stopped;
use crate::server::connections::Connections;

/// A client has this long for its handshake, and for the headers of a request.
const PATIENCE: Duration = Duration::from_secs(10);

/// So many connections are open at once, all of which together take some 30 MiB in the middle of their handshakes.
const MOST_CONNECTIONS: usize = 256;

/// What is read of a request before it is known what to do with it, and so the longest headers.
const READ_AHEAD: usize = 16 << 10;

/// Requests that are being answered when the program is told to stop have this long.
const LAST_WORDS: Duration = Duration::from_secs(1);

/// Where no connection can be accepted, as when there are too many, it is tried again so soon.
const PAUSE: Duration = Duration::from_millis(100);

/// Where to serve; nowhere if it is written as nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Address(pub(crate) Option<Place>);

/// Where connections are accepted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Place {
    /// This address and no other.
    At(SocketAddr),
    /// Every address of the machine on this port: `[::]`, which IPv4 reaches too, or 0.0.0.0 where IPv6 is off.
    Everywhere(u16),
}

impl Place {
    /// What is tried, one after another.
    fn addresses(self) -> Vec<SocketAddr> {
        match self {
            Self::At(address) => vec![address],
            Self::Everywhere(port) => {
                vec![(Ipv6Addr::UNSPECIFIED, port).into(), (Ipv4Addr::UNSPECIFIED, port).into()]
            }
        }
    }

    fn first(self) -> SocketAddr {
        match self {
            Self::At(address) => address,
            Self::Everywhere(port) => (Ipv6Addr::UNSPECIFIED, port).into(),
        }
    }
}

impl From<SocketAddr> for Place {
    fn from(address: SocketAddr) -> Self {
        Self::At(address)
    }
}

impl std::fmt::Display for Place {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.first().fmt(f)
    }
}

impl Address {
    /// Whether both cannot be taken at once. Port 0 is another each time.
    pub(crate) fn collides(self, other: Self) -> bool {
        let (Some(one), Some(other)) = (self.0, other.0) else { return false };
        let (one, other) = (one.first(), other.first());
        let hears = |this: IpAddr, that: IpAddr| {
            this == that || (this.is_unspecified() && (this.is_ipv6() || that.is_ipv4()))
        };
        let overlap = hears(one.ip(), other.ip()) || hears(other.ip(), one.ip());
        one.port() == other.port() && one.port() != 0 && overlap
    }
}

impl FromStr for Address {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "" => Ok(Self(None)),
            text => text.parse().map(|address| Self(Some(Place::At(address)))).map_err(
                |_| "must be an IP address and a port, such as [::]:8080, or nothing, which serves nowhere",
            ),
        }
    }
}

impl std::fmt::Display for Address {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.map_or(Ok(()), |place| place.fmt(f))
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
    address: Place,
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
        address: impl Into<Place>,
    ) -> Result<Self, BindError> {
        let address = address.into();
        let bound = async {
            let listener = listen(&address.addresses()).await?;
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
        let (graceful, connections) = (GracefulShutdown::new(), Connections::at_most(MOST_CONNECTIONS));
        let mut stop = std::pin::pin!(stopped(stop));
        let mut fails = false;
        loop {
            let (stream, from) = tokio::select! {
                accepted = self.listener.accept() => match accepted {
                    Ok((stream, from)) => (stream, from.ip().to_canonical()),
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
            let Some(mut open) = connections.open(from) else {
                debug!("a connection was not taken up, because there are too many");
                continue;
            };
            // Each request tells over which connection it came.
            let router = router.clone().layer(Extension(open.visitor()));
            let (prepared, watcher) = (prepare(stream), graceful.watcher());
            let answer = async move {
                let answered = match timeout(PATIENCE, prepared).await {
                    Ok(Ok(stream)) => watcher.watch(connection(TokioIo::new(stream), router)).await,
                    Ok(Err(error)) => return debug!(%error, "a connection was not taken up"),
                    Err(_) => return debug!("a connection was not taken up in time"),
                };
                if let Err(error) = answered {
                    debug!(%error, "a connection broke off");
                }
            };
            tokio::spawn(async move {
                tokio::select! {
                    () = answer => {}
                    () = open.closed() => debug!("a connection was closed for another one"),
                }
            });
        }
        drop(self.listener);
        if timeout(LAST_WORDS, graceful.shutdown()).await.is_err() {
            debug!("connections for the {} are left unanswered", self.what);
        }
    }
}

/// Takes the first of these addresses that there is. One that is in use is no reason to take another.
async fn listen(addresses: &[SocketAddr]) -> io::Result<TcpListener> {
    let mut untaken = None;
    for address in addresses {
        match TcpListener::bind(address).await {
            Err(error) if error.kind() != io::ErrorKind::AddrInUse => {
                untaken.get_or_insert(error);
            }
            taken => return taken,
        }
    }
    Err(untaken.unwrap_or_else(|| io::ErrorKind::InvalidInput.into()))
}

fn connection<S: Read + Write + Unpin>(
    stream: S,
    router: Router,
) -> http1::Connection<S, TowerToHyperService<Router>> {
    http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(PATIENCE)
        .max_buf_size(READ_AHEAD)
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
        let address: SocketAddr = "127.0.0.1:0".parse().unwrap();
        Server::bind("tests", "--tests-addr", address).await.unwrap()
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

    /// What a client at `ip` is answered by a server on this port.
    async fn answer_at(ip: IpAddr, port: u16) -> String {
        let mut client = ask((ip, port).into()).await;
        let mut answered = String::new();
        client.read_to_string(&mut answered).await.unwrap();
        answered
    }

    #[tokio::test]
    async fn everywhere_is_every_address_of_ipv6_and_of_ipv4() {
        let server = Server::bind("tests", "--tests-addr", Place::Everywhere(0)).await.unwrap();
        let address = server.address();
        let (stop, stopped) = watch::channel(false);
        let hello = || async { ([(http::header::CONNECTION, "close")], "hello") };
        let serving = tokio::spawn(server.serve(Router::new().route("/", get(hello)), stopped));
        let has_ipv6 = TcpListener::bind((Ipv6Addr::LOCALHOST, 0)).await.is_ok();
        assert!(answer_at(Ipv4Addr::LOCALHOST.into(), address.port()).await.ends_with("hello"));
        if has_ipv6 {
            assert!(answer_at(Ipv6Addr::LOCALHOST.into(), address.port()).await.ends_with("hello"));
        }
        assert_eq!(address.is_ipv6(), has_ipv6);
        stop.send_replace(true);
        serving.await.unwrap();
    }

    #[tokio::test]
    async fn where_there_is_no_ipv6_the_next_address_is_taken_and_one_in_use_is_an_error() {
        // Kept for documentation, so it is no machine's: it fails as `[::]` does where IPv6 is off.
        let absent: SocketAddr = "[2001:db8::1]:0".parse().unwrap();
        let local: SocketAddr = "127.0.0.1:0".parse().unwrap();
        let taken = listen(&[absent, local]).await.unwrap().local_addr().unwrap();
        assert_eq!(taken.ip(), local.ip());
        assert!(listen(&[absent]).await.is_err(), "an address that was given is not replaced");
        let used = TcpListener::bind(local).await.unwrap();
        let error = listen(&[used.local_addr().unwrap(), local]).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::AddrInUse);
    }

    #[tokio::test]
    async fn who_asks_is_answered_however_many_keep_silent() {
        let server = anywhere().await;
        let (address, router) = (server.address(), Router::new().route("/", get(async || "heard")));
        let (_stop, stopped) = watch::channel(false);
        let serving = tokio::spawn(server.serve(router, stopped));
        let mut silent = Vec::new();
        for _ in 0..=MOST_CONNECTIONS {
            silent.push(TcpStream::connect(address).await.unwrap());
        }
        let mut client = ask(address).await;
        let mut answer = [0; 12];
        client.read_exact(&mut answer).await.unwrap();
        assert_eq!(&answer, b"HTTP/1.1 200");
        let closed = silent[0].read(&mut answer).await;
        assert!(matches!(closed, Ok(0) | Err(_)), "the first of them made way");
        serving.abort();
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
            ("[::]:8080", "127.0.0.1:8080", true),
            ("[::]:8080", "0.0.0.0:8080", true),
            ("0.0.0.0:8080", "[::1]:8080", false),
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
