//! A relay in front of an API server, whose connections can be lost without a sign.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{oneshot, watch};

use crate::wait::in_time;

/// What has passed a relay.
#[derive(Debug, Default, Clone, Copy)]
struct Traffic {
    open_connections: usize,
    /// Bytes from the server.
    received: u64,
}

/// A relay. It ends when dropped.
pub struct Relay {
    address: SocketAddr,
    /// What silences each connection, the oldest first.
    connections: Arc<Mutex<Vec<oneshot::Sender<()>>>>,
    traffic: watch::Sender<Traffic>,
    accepting: tokio::task::JoinHandle<()>,
}

impl Relay {
    /// Relays connections to the server of this URL.
    pub async fn start(url: &str) -> Self {
        let server = url.strip_prefix("https://").unwrap().to_owned();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let connections = Arc::new(Mutex::new(Vec::new()));
        let accepted = connections.clone();
        let traffic = watch::Sender::new(Traffic::default());
        let counted = traffic.clone();
        let accepting = tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let server = server.clone();
                let (silence, silenced) = oneshot::channel();
                accepted.lock().unwrap().push(silence);
                counted.send_modify(|traffic| traffic.open_connections += 1);
                let counted = counted.clone();
                tokio::spawn(async move {
                    if let Ok(server) = TcpStream::connect(server).await {
                        let (of_client, of_server) = (client.into_split(), server.into_split());
                        let count = |received| counted.send_modify(|traffic| traffic.received += received);
                        tokio::select! {
                            _ = futures::future::join(
                                relay(of_client.0, of_server.1, |_| ()),
                                relay(of_server.0, of_client.1, count),
                            ) => {}
                            Ok(()) = silenced => std::future::pending().await,
                        }
                    }
                    counted.send_modify(|traffic| traffic.open_connections -= 1);
                });
            }
        });
        Self { address, connections, traffic, accepting }
    }

    /// The URL of the relay.
    pub fn url(&self) -> String {
        format!("https://{}", self.address)
    }

    /// The bytes that the server has sent, once all connections have ended.
    pub async fn received(&self) -> u64 {
        let mut traffic = self.traffic.subscribe();
        in_time("all connections end", traffic.wait_for(|now| now.open_connections == 0))
            .await
            .unwrap()
            .received
    }

    /// The present connections stay open, but nothing passes them any more. New connections are relayed.
    pub fn silence(&self) {
        for connection in self.connections.lock().unwrap().drain(..) {
            // A connection that has ended needs no silence.
            let _ = connection.send(());
        }
    }

    /// The same for the newest connection that is open. Panics if there is none.
    pub fn silence_newest(&self) {
        let mut connections = self.connections.lock().unwrap();
        while connections.pop().expect("a connection is open").send(()).is_err() {}
    }
}

/// Relays one direction of a connection until its end, and counts the bytes.
async fn relay(mut from: OwnedReadHalf, mut to: OwnedWriteHalf, count: impl Fn(u64)) {
    let mut buffer = [0; 1 << 14];
    while let Ok(length @ 1..) = from.read(&mut buffer).await {
        if to.write_all(&buffer[..length]).await.is_err() {
            return;
        }
        count(length as u64);
    }
    // The other side may be gone already.
    let _ = to.shutdown().await;
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}
