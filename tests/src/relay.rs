//! A relay in front of an API server, whose connections can be lost without a sign.

use std::net::SocketAddr;

use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

/// A relay. It ends when dropped.
pub struct Relay {
    address: SocketAddr,
    silenced: watch::Sender<()>,
    accepting: tokio::task::JoinHandle<()>,
}

impl Relay {
    /// Relays connections to the server of this URL.
    pub async fn start(url: &str) -> Self {
        let server = url.strip_prefix("https://").unwrap().to_owned();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let silenced = watch::Sender::new(());
        let subscriptions = silenced.clone();
        let accepting = tokio::spawn(async move {
            while let Ok((mut client, _)) = listener.accept().await {
                let (server, mut silenced) = (server.clone(), subscriptions.subscribe());
                tokio::spawn(async move {
                    let Ok(mut server) = TcpStream::connect(server).await else { return };
                    tokio::select! {
                        _ = tokio::io::copy_bidirectional(&mut client, &mut server) => {}
                        Ok(()) = silenced.changed() => std::future::pending().await,
                    }
                });
            }
        });
        Self { address, silenced, accepting }
    }

    /// The URL of the relay.
    pub fn url(&self) -> String {
        format!("https://{}", self.address)
    }

    /// The present connections stay open, but nothing passes them any more. New connections are relayed.
    pub fn silence(&self) {
        self.silenced.send_replace(());
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}
