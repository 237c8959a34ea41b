//! The webhook's port is open to every pod of a cluster. Who is not the API server learns nothing there, costs nothing,
//! and is in nobody's way.

use std::net::SocketAddr;

use k8s_openapi::api::admissionregistration::v1::ValidatingWebhookConfiguration;
use k8s_openapi::api::core::v1::Secret;
use kube::Api;
use kube::api::{Patch, PatchParams, PostParams};
use kube_sandbox::request_log::Entry;
use nm_shared::api::names::{WEBHOOK, WEBHOOK_CONFIGURATION};
use nm_shared::{NodeMaintenance, NodeMaintenanceSpec};
use nm_tests::cluster::Cluster;
use nm_tests::until::until;
use nm_tests::webhook::{Connection, address, namespace, serving};
use serde_json::json;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;

use crate::ha::is_by;
use crate::only_sandbox;
use crate::webhook_certificates::SHORT;

fn configurations(cluster: &Cluster) -> Api<ValidatingWebhookConfiguration> {
    Api::all(cluster.client.clone())
}

fn secrets(cluster: &Cluster) -> Api<Secret> {
    Api::namespaced(cluster.client.clone(), &namespace())
}

/// The path at which the API server asks, as the Secret has it.
fn path_in(secret: Option<&Secret>) -> Option<String> {
    let path = secret?.data.as_ref()?.get("webhook-path")?;
    String::from_utf8(path.0.clone()).ok()
}

/// The paths that a configuration names.
fn paths_of(configuration: &ValidatingWebhookConfiguration) -> Vec<Option<String>> {
    let webhooks = configuration.webhooks.iter().flatten();
    webhooks.map(|webhook| webhook.client_config.service.as_ref()?.path.clone()).collect()
}

/// Waits until the API server is told of this path.
async fn told(cluster: &Cluster, path: &str) {
    until(&configurations(cluster), WEBHOOK_CONFIGURATION, path, |found| {
        found.is_some_and(|found| paths_of(found).iter().all(|named| named.as_deref() == Some(path)))
    })
    .await;
}

/// A review of a creation, as the API server posts it.
fn review(node: &str) -> String {
    json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": {
        "uid": "u", "operation": "CREATE", "name": "e2e-stranger", "userInfo": {},
        "kind": {"group": "nodemaintenance.medik8s.io", "version": "v1beta1", "kind": "NodeMaintenance"},
        "resource": {"group": "nodemaintenance.medik8s.io", "version": "v1beta1", "resource": "nodemaintenances"},
        "object": {"apiVersion": "nodemaintenance.medik8s.io/v1beta1", "kind": "NodeMaintenance",
            "metadata": {"name": "e2e-stranger"}, "spec": {"nodeName": node}},
    }})
    .to_string()
}

/// Creates a maintenance and keeps nothing.
async fn create(cluster: &Cluster, node: &str) -> kube::Result<NodeMaintenance> {
    let spec = NodeMaintenanceSpec { node_name: node.to_owned(), ..NodeMaintenanceSpec::default() };
    let dry = PostParams { dry_run: true, ..PostParams::default() };
    cluster.maintenances().create(&dry, &NodeMaintenance::new("e2e-created", spec)).await
}

#[tokio::test(flavor = "multi_thread")]
async fn who_does_not_know_the_path_is_told_nothing_and_costs_no_request() {
    let Some(cluster) = only_sandbox(1, "only a sandbox tells what was read").await else { return };
    let node = cluster.nodes().await.remove(0);
    let reconciler = serving(&cluster, &[]).await;
    let address = address(&reconciler).await;
    create(&cluster, &node).await.unwrap();
    let of_webhook =
        |entry: &Entry| is_by(entry, reconciler.pid()) && entry.verb == "get" && entry.resource == "nodes";
    let reads = || cluster.sandbox().unwrap().requests().count(of_webhook);
    let before = reads();
    assert!(before > 0, "a review reads the node");
    let guess = format!("/validate/{}", "0".repeat(32));
    for path in ["/", "/validate", "/validate/", &guess, "/metrics", "/livez"] {
        let mut stranger = Connection::open(&cluster, address).await;
        let answer = stranger.post(path, &review(&node)).await;
        assert!(answer.starts_with("HTTP/1.1 404 "), "{path}: {answer}");
    }
    assert_eq!(reads(), before, "nothing is read for strangers");
    let path = path_in(Some(&secrets(&cluster).get(WEBHOOK).await.unwrap())).unwrap();
    let answer = Connection::open(&cluster, address).await.post(&path, &review(&node)).await;
    assert!(answer.starts_with("HTTP/1.1 200 ") && answer.contains("\"allowed\":true"), "{answer}");
}

/// Connections that are held open without a word, in the middle of a handshake, of headers, and of a body.
async fn flood(cluster: &Cluster, address: SocketAddr) -> (Vec<TcpStream>, Vec<Connection>) {
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
        let mut connection = Connection::open(cluster, address).await;
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
async fn a_flood_of_slow_connections_keeps_no_maintenance_from_being_created() {
    let Some(cluster) = only_sandbox(1, "the port is flooded").await else { return };
    let node = cluster.nodes().await.remove(0);
    let reconciler = serving(&cluster, &[]).await;
    let held = flood(&cluster, address(&reconciler).await).await;
    for _ in 0..5 {
        create(&cluster, &node).await.expect("the API server is answered");
    }
    drop(held);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_body_that_is_larger_than_any_review_is_refused_unread() {
    let Some(cluster) = only_sandbox(1, "the path is read in the Secret of a sandbox").await else { return };
    let reconciler = serving(&cluster, &[]).await;
    let path = path_in(Some(&secrets(&cluster).get(WEBHOOK).await.unwrap())).unwrap();
    let mut connection = Connection::open(&cluster, address(&reconciler).await).await;
    let head = format!("POST {path} HTTP/1.1\r\nHost: x\r\nContent-Length: {}\r\n\r\n", 4 << 20);
    connection.send(&head).await;
    let answer = connection.answer().await;
    assert!(answer.starts_with("HTTP/1.1 413 "), "{answer}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_path_is_kept_in_the_secret_and_told_to_the_api_server() {
    let Some(cluster) = only_sandbox(1, "others' requests would be refused meanwhile").await else { return };
    let node = cluster.nodes().await.remove(0);
    let reconciler = serving(&cluster, SHORT).await;
    let path = path_in(Some(&secrets(&cluster).get(WEBHOOK).await.unwrap())).unwrap();
    let (_, token) = path.split_at("/validate/".len());
    assert!(token.len() == 32 && token.chars().all(|c| c.is_ascii_hexdigit()), "{path}");
    told(&cluster, &path).await;
    reconciler.crash().await;
    let _next = serving(&cluster, SHORT).await;
    told(&cluster, &path).await;
    assert_eq!(path_in(secrets(&cluster).get_opt(WEBHOOK).await.unwrap().as_ref()), Some(path.clone()));
    // As an administrator does who applies a configuration of before.
    let service = json!({"service": {"path": "/validate"}});
    let names = ["validate.nodemaintenance.medik8s.io", "validate-delete.nodemaintenance.medik8s.io"];
    let webhooks = names.map(|name| json!({"name": name, "clientConfig": service}));
    let older = Patch::Strategic(json!({"webhooks": webhooks}));
    configurations(&cluster).patch(WEBHOOK_CONFIGURATION, &PatchParams::default(), &older).await.unwrap();
    told(&cluster, &path).await;
    create(&cluster, &node).await.unwrap();
}
