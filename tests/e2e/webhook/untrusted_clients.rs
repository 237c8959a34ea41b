//! The webhook's port is open to every pod in the cluster. Clients other than the API server learn nothing, cost no
//! requests, and do not disturb the API server.

use std::net::SocketAddr;
use std::time::Duration;

use k8s_openapi::api::admissionregistration::v1::ValidatingWebhookConfiguration;
use k8s_openapi::api::core::v1::Secret;
use kube::Api;
use kube::api::{Patch, PatchParams};
use kube_sandbox::request_log::Entry;
use nm_shared::api::names::{WEBHOOK, WEBHOOK_CONFIGURATION};
use nm_tests::cluster::Cluster;
use nm_tests::leader_election::until_leads;
use nm_tests::maintenance::{create_dry_run, start, stop, until_drained_without_errors};
use nm_tests::requests::is_by;
use nm_tests::wait::wait_until;
use nm_tests::webhook::{WebhookConnection, namespace, serve_webhook};
use nm_tests::workload::Workload;
use serde_json::json;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;

use crate::webhook::certificates::SHORT_CERTIFICATES;

fn configurations(cluster: &Cluster) -> Api<ValidatingWebhookConfiguration> {
    Api::all(cluster.client.clone())
}

fn secrets(cluster: &Cluster) -> Api<Secret> {
    Api::namespaced(cluster.client.clone(), &namespace())
}

/// The webhook's path in the Secret.
fn path_in(secret: Option<&Secret>) -> Option<String> {
    let path = secret?.data.as_ref()?.get("webhook-path")?;
    String::from_utf8(path.0.clone()).ok()
}

/// The paths in a webhook configuration.
fn paths_of(configuration: &ValidatingWebhookConfiguration) -> Vec<Option<String>> {
    let webhooks = configuration.webhooks.iter().flatten();
    webhooks.map(|webhook| webhook.client_config.service.as_ref()?.path.clone()).collect()
}

/// Waits until the webhook configuration has this path.
async fn until_configured_path(cluster: &Cluster, path: &str) {
    wait_until(&configurations(cluster), WEBHOOK_CONFIGURATION, path, |found| {
        found.is_some_and(|found| paths_of(found).iter().all(|named| named.as_deref() == Some(path)))
    })
    .await;
}

/// An admission review of a creation, as the API server sends it.
fn review(node: &str) -> String {
    json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": {
        "uid": "u", "operation": "CREATE", "name": "e2e-client", "userInfo": {},
        "kind": {"group": "nodemaintenance.medik8s.io", "version": "v1beta1", "kind": "NodeMaintenance"},
        "resource": {"group": "nodemaintenance.medik8s.io", "version": "v1beta1", "resource": "nodemaintenances"},
        "object": {"apiVersion": "nodemaintenance.medik8s.io/v1beta1", "kind": "NodeMaintenance",
            "metadata": {"name": "e2e-client"}, "spec": {"nodeName": node}},
    }})
    .to_string()
}

#[tokio::test(flavor = "multi_thread")]
async fn clients_without_the_path_get_404_and_cost_no_request() {
    let Some(cluster) = Cluster::sandbox_or_skip(1, "only a sandbox logs requests").await else { return };
    let node = cluster.nodes().await.remove(0);
    let reconciler = serve_webhook(&cluster, &[]).await;
    let address = reconciler.webhook_address().await;
    create_dry_run(&cluster, &node).await.unwrap();
    let is_node_read =
        |entry: &Entry| is_by(entry, reconciler.pid()) && entry.verb == "get" && entry.resource == "nodes";
    let reads = || cluster.sandbox().unwrap().requests().count(is_node_read);
    let before = reads();
    assert!(before > 0, "a review reads the node");
    let guess = format!("/validate/{}", "0".repeat(32));
    for path in ["/", "/validate", "/validate/", &guess, "/metrics", "/livez"] {
        let mut client = WebhookConnection::open(&cluster, address).await;
        let response = client.post(path, &review(&node)).await;
        assert!(response.starts_with("HTTP/1.1 404 "), "{path}: {response}");
    }
    assert_eq!(reads(), before, "nothing is read for other clients");
    let path = path_in(Some(&secrets(&cluster).get(WEBHOOK).await.unwrap())).unwrap();
    let response = WebhookConnection::open(&cluster, address).await.post(&path, &review(&node)).await;
    assert!(response.starts_with("HTTP/1.1 200 ") && response.contains("\"allowed\":true"), "{response}");
}

/// Opens connections that stop in the middle of a handshake, of headers, or of a body.
async fn flood(cluster: &Cluster, address: SocketAddr) -> (Vec<TcpStream>, Vec<WebhookConnection>) {
    let (mut plain, mut encrypted) = (Vec::new(), Vec::new());
    for number in 0..400 {
        let mut stream = TcpStream::connect(address).await.unwrap();
        if number % 2 == 0 {
            // The first bytes of a ClientHello.
            let _ = stream.write_all(&[0x16, 3, 1, 2, 0, 1]).await;
        }
        plain.push(stream);
    }
    for number in 0..300 {
        let mut connection = WebhookConnection::open(cluster, address).await;
        let begun = if number % 3 == 0 {
            "POST /validate HTTP/1.1\r\nHost: "
        } else {
            "POST /validate HTTP/1.1\r\nHost: x\r\nContent-Length: 100000\r\n\r\n{"
        };
        connection.send(begun).await;
        encrypted.push(connection);
    }
    (plain, encrypted)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_flood_of_slow_connections_blocks_no_creation() {
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
        let mut stream = TcpStream::connect(address).await.unwrap();
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
    // Servers close connections that are too many or too slow, so there are new ones all the time.
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
    let Some(cluster) = Cluster::sandbox_or_skip(1, "the test reads the path in the Secret").await else {
        return;
    };
    let reconciler = serve_webhook(&cluster, &[]).await;
    let path = path_in(Some(&secrets(&cluster).get(WEBHOOK).await.unwrap())).unwrap();
    let mut connection = WebhookConnection::open(&cluster, reconciler.webhook_address().await).await;
    let head = format!("POST {path} HTTP/1.1\r\nHost: x\r\nContent-Length: {}\r\n\r\n", 4 << 20);
    connection.send(&head).await;
    let response = connection.response().await;
    assert!(response.starts_with("HTTP/1.1 413 "), "{response}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_path_is_stored_in_the_secret_and_in_the_webhook_configuration() {
    let Some(cluster) = Cluster::sandbox_or_skip(1, "others' requests would be refused meanwhile").await
    else {
        return;
    };
    let node = cluster.nodes().await.remove(0);
    let reconciler = serve_webhook(&cluster, SHORT_CERTIFICATES).await;
    let path = path_in(Some(&secrets(&cluster).get(WEBHOOK).await.unwrap())).unwrap();
    let (_, token) = path.split_at("/validate/".len());
    assert!(token.len() == 32 && token.chars().all(|c| c.is_ascii_hexdigit()), "{path}");
    until_configured_path(&cluster, &path).await;
    reconciler.crash().await;
    let _next = serve_webhook(&cluster, SHORT_CERTIFICATES).await;
    until_configured_path(&cluster, &path).await;
    assert_eq!(path_in(secrets(&cluster).get_opt(WEBHOOK).await.unwrap().as_ref()), Some(path.clone()));
    // An administrator does this who applies an older configuration.
    let service = json!({"service": {"path": "/validate"}});
    let names = ["validate.nodemaintenance.medik8s.io", "validate-delete.nodemaintenance.medik8s.io"];
    let webhooks = names.map(|name| json!({"name": name, "clientConfig": service}));
    let older = Patch::Strategic(json!({"webhooks": webhooks}));
    configurations(&cluster).patch(WEBHOOK_CONFIGURATION, &PatchParams::default(), &older).await.unwrap();
    until_configured_path(&cluster, &path).await;
    create_dry_run(&cluster, &node).await.unwrap();
}
