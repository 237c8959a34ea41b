//! Ports on which nothing listens.

use tokio::net::TcpSocket;

/// A socket whose port refuses connections, and that nothing else can take while it exists.
pub fn unused_port() -> TcpSocket {
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    socket
}
