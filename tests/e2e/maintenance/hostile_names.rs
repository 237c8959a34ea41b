//! Names that a user of maintenances makes up, and what becomes of them.

use kube_sandbox::request_log::Entry;
use nm_shared::Phase;
use nm_shared::api::names::LEASE_NAMESPACE;
use nm_tests::cluster::Cluster;
use nm_tests::maintenance::{create_dry_run, start, stop, until_drained, until_phase};
use nm_tests::reconciler::Reconciler;
use nm_tests::requests::is_by_reconciler;
use nm_tests::webhook::serve_webhook;
use serde_json::Value;

/// Names that would change a path, a query, a selector, a log line or a terminal.
const NAMES: [&str; 8] = [
    "node-01/status",
    "../namespaces/kube-system/secrets/token",
    "node-01?dryRun=All",
    "node-01#",
    "%2e%2e/pods",
    "node-01,metadata.namespace=kube-system",
    "node-01\n{\"level\":\"ERROR\",\"message\":\"forged\"}",
    "\u{1b}]0;title\u{7}node-01",
];

#[tokio::test(flavor = "multi_thread")]
async fn hostile_node_names_change_no_request_and_forge_no_log_line() {
    let why = "only a sandbox logs the requests";
    let Some(cluster) = Cluster::sandbox_or_skip(1, why).await else { return };
    let node = cluster.nodes().await.remove(0);
    let reconciler = Reconciler::start_with_only(&cluster, &["--log-level", "debug"]);
    for (number, name) in NAMES.iter().enumerate() {
        let maintenance = format!("e2e-hostile-{number}");
        start(&cluster, &maintenance, name).await;
        until_phase(&cluster, &maintenance, Phase::Failed).await;
    }
    start(&cluster, "e2e-honest", &node).await;
    until_drained(&cluster, "e2e-honest").await;
    for number in 0..NAMES.len() {
        stop(&cluster, &format!("e2e-hostile-{number}")).await;
    }
    stop(&cluster, "e2e-honest").await;

    let ours = cluster.sandbox().unwrap().requests().all().into_iter().filter(is_by_reconciler);
    let strange = |entry: &Entry| match entry.resource.as_str() {
        "nodes" => !entry.name.is_empty() && entry.name != node,
        "pods" => entry.field_selector.contains(',') || entry.field_selector.contains('?'),
        "leases" if entry.namespace == LEASE_NAMESPACE => {
            !["", &format!("node-{node}")].contains(&entry.name.as_str())
        }
        resource => ["secrets", "namespaces"].contains(&resource),
    };
    assert_eq!(ours.filter(strange).collect::<Vec<Entry>>(), []);
    for line in reconciler.log() {
        let parsed: Value = serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: {line}"));
        assert_ne!(parsed["message"], "forged");
        assert!(!line.contains('\u{1b}'), "{line}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_webhook_reads_no_path_that_a_node_name_makes_up() {
    let why = "only a sandbox logs the requests";
    let Some(cluster) = Cluster::sandbox_or_skip(1, why).await else { return };
    let _reconciler = serve_webhook(&cluster, &[]).await;
    for name in NAMES {
        let answer = create_dry_run(&cluster, name).await;
        let Err(kube::Error::Api(status)) = answer else { panic!("{name:?}: {answer:?}") };
        assert!(status.message.contains("invalid nodeName, no node with name"), "{status:?}");
        assert!(!status.message.contains(char::is_control), "{status:?}");
    }
    let all = cluster.sandbox().unwrap().requests().all();
    let reads = all.into_iter().filter(|entry| is_by_reconciler(entry) && entry.verb == "get");
    let of_nodes: Vec<Entry> = reads.filter(|entry| entry.resource == "nodes").collect();
    assert_eq!(of_nodes, [], "an invalid name is not sent");
}
