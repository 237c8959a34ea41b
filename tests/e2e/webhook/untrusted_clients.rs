//! The webhook's port is open to every pod in the cluster. Other clients do not disturb the API server.

use std::net::SocketAddr;
use std::time::Duration;

use nm_shared::api::names::WEBHOOK_PATH;
use nm_tests::cluster::Cluster;
use nm_tests::leader_election::until_leads;
use nm_tests::maintenance::{create_dry_run, start, stop, until_drained_without_errors};
use nm_tests::webhook::{WebhookConnection, connect_as_another_client, serve_webhook};
use nm_tests::workload::Workload;
use serde_json::json;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;

/// Opens more connections than an address may have, which stop in the middle of a handshake, of headers, or of a body.
async fn flood(cluster: &Cluster, address: SocketAddr) -> (Vec<TcpStream>, Vec<WebhookConnection>) {
    let (mut plain, mut encrypted) = (Vec::new(), Vec::new());
    for number in 0..100 {
        // The server refuses connections beyond its limit.
        if let Ok(mut connection) = WebhookConnection::open(cluster, address).await {
            let begun = if number % 3 == 0 {
                format!("POST {WEBHOOK_PATH} HTTP/1.1\r\nHost: ")
            } else {
                format!("POST {WEBHOOK_PATH} HTTP/1.1\r\nHost: x\r\nContent-Length: 100000\r\n\r\n{{")
            };
            connection.send(&begun).await;
            encrypted.push(connection);
        }
        let mut stream = connect_as_another_client(address).await.unwrap();
        // The first bytes of a ClientHello.
        let _ = stream.write_all(&[0x16, 3, 1, 2, 0, 1]).await;
        plain.push(stream);
    }
    (plain, encrypted)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_flood_of_slow_connections_from_one_address_blocks_no_creation() {
    let Some(cluster) = Cluster::sandbox_or_skip(1, "the port is flooded").await else { return };
    let node = cluster.nodes().await.remove(0);
    let reconciler = serve_webhook(&cluster, &[]).await;
    let held = flood(&cluster, reconciler.webhook_address().await).await;
    for _ in 0..5 {
        create_dry_run(&cluster, &node).await.expect("the API server gets a response");
    }
    drop(held);
}

/// Opens connections to a server without TLS that stay silent, stop in the middle of the headers, or never end them.
async fn flood_plain(address: SocketAddr) -> Vec<TcpStream> {
    let mut held = Vec::new();
    for number in 0..300 {
        let mut stream = connect_as_another_client(address).await.unwrap();
        let begun = match number % 3 {
            0 => String::new(),
            1 => "GET /metrics HTTP/1.1\r\nHost: ".to_owned(),
            _ => format!("GET /metrics HTTP/1.1\r\nHost: x\r\nX-Long: {}", "x".repeat(1 << 20)),
        };
        // The server may close the connection meanwhile.
        let _ = tokio::time::timeout(Duration::from_millis(100), stream.write_all(begun.as_bytes())).await;
        held.push(stream);
    }
    held
}

#[tokio::test(flavor = "multi_thread")]
async fn a_drain_continues_while_both_servers_are_flooded() {
    let Some(cluster) = Cluster::sandbox_or_skip(2, "the ports are flooded").await else { return };
    let node = &cluster.nodes().await[0];
    let workload = Workload::new(&cluster, "flooded").await;
    for number in 0..20 {
        workload.create_pod(node, &format!("pod-{number}"), json!({})).await;
    }
    let flags = ["--leader-elect", "--metrics-addr", "127.0.0.1:0"];
    let reconciler = serve_webhook(&cluster, &flags).await;
    let (webhook, metrics) = (reconciler.webhook_address().await, reconciler.metrics_address().await);
    let before = until_leads(&cluster, &reconciler).await;
    let open = async || (flood(&cluster, webhook).await, flood_plain(metrics).await);
    let mut held = open().await;
    // Servers refuse connections that are too many and close those that are too slow, so there are new ones all the time.
    let flooding = async {
        loop {
            held = open().await;
        }
    };
    let drain = async {
        // The webhook is called for both.
        create_dry_run(&cluster, node).await.unwrap();
        start(&cluster, "e2e-flooded", node).await;
        until_drained_without_errors(&cluster, "e2e-flooded").await;
    };
    tokio::select! {
        () = drain => {}
        never = flooding => match never {},
    }
    let after = until_leads(&cluster, &reconciler).await;
    assert_eq!(after.lease_transitions, before.lease_transitions, "the lease is kept");
    stop(&cluster, "e2e-flooded").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_body_larger_than_any_review_is_refused() {
    let cluster = Cluster::start(1).await;
    let reconciler = serve_webhook(&cluster, &[]).await;
    let address = reconciler.webhook_address().await;
    let mut connection = WebhookConnection::open(&cluster, address).await.unwrap();
    let head = format!("POST {WEBHOOK_PATH} HTTP/1.1\r\nHost: x\r\nContent-Length: {}\r\n\r\n", 4 << 20);
    connection.send(&head).await;
    let response = connection.response().await;
    assert!(response.starts_with("HTTP/1.1 413 "), "{response}");
}
