//! A relay in front of an API server, whose connections can be lost without a sign.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use tokio::net::{TcpListener, TcpStream};
use tokio::sync::oneshot;

/// A relay. It ends when dropped.
pub struct Relay {
    address: SocketAddr,
    /// What silences each connection, the oldest first.
    connections: Arc<Mutex<Vec<oneshot::Sender<()>>>>,
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
        let accepting = tokio::spawn(async move {
            while let Ok((mut client, _)) = listener.accept().await {
                let server = server.clone();
                let (silence, silenced) = oneshot::channel();
                accepted.lock().unwrap().push(silence);
                tokio::spawn(async move {
                    let Ok(mut server) = TcpStream::connect(server).await else { return };
                    tokio::select! {
                        _ = tokio::io::copy_bidirectional(&mut client, &mut server) => {}
                        Ok(()) = silenced => std::future::pending().await,
                    }
                });
            }
        });
        Self { address, connections, accepting }
    }

    /// The URL of the relay.
    pub fn url(&self) -> String {
        format!("https://{}", self.address)
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

impl Drop for Relay {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}
