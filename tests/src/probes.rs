//! The reconciler's HTTP server for probes and metrics, as a client sees it.

use std::net::SocketAddr;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::wait::TEST_TIMEOUT;

/// The status line and the body of the response to a `GET`.
pub async fn get(server: SocketAddr, path: &str) -> (String, String) {
    let mut connection = TcpStream::connect(server).await.unwrap();
    connection.write_all(format!("GET {path} HTTP/1.0\r\n\r\n").as_bytes()).await.unwrap();
    let mut response = String::new();
    connection.read_to_string(&mut response).await.unwrap();
    let (head, body) = response.split_once("\r\n\r\n").unwrap();
    (head.lines().next().unwrap().to_owned(), body.to_owned())
}

/// The body of the response, once `condition` is true for it. What is served follows what the reconciler watches.
pub async fn until_served(server: SocketAddr, path: &str, condition: impl Fn(&str) -> bool) -> String {
    let mut last = String::new();
    let requests = async {
        loop {
            last = get(server, path).await.1;
            if condition(&last) {
                return;
            }
        }
    };
    let in_time = tokio::time::timeout(TEST_TIMEOUT, requests).await;
    assert!(in_time.is_ok(), "waited {TEST_TIMEOUT:?}; {path} serves {last}");
    last
}

/// The value of a metric's sample by its name and labels; `None` if there is no such sample.
pub fn sample(metrics: &str, name: &str) -> Option<f64> {
    let line = metrics.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    line.map(|value| value.parse().unwrap())
}
