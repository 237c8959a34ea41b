//! The reconciler's connections to the API server: they are few, and lost ones are noticed.

use std::time::{Duration, Instant};

use kube_sandbox::faults::Target;
use kube_sandbox::request_log::Entry;
use nm_shared::Phase;
use nm_tests::cluster::Cluster;
use nm_tests::leader_election::{LONG_LEASE, until_leads};
use nm_tests::maintenance::{start, stop, until_drained, until_phase};
use nm_tests::reconciler::Reconciler;
use nm_tests::relay::Relay;
use nm_tests::requests::{by_reconciler, is_by_reconciler, until_requests, user_agent};
use nm_tests::webhook::{serve_webhook, serve_webhook_too};

/// Nodes in maintenance: each has a watch on its pods.
const NODES: usize = 120;

/// Of nodes, budgets, `DaemonSet`s, maintenances and leases, and two of definitions.
const CLUSTER_WATCHES: usize = 7;

/// Of the leader's lease, and of the certificate and the configuration of the webhook.
const REPLICA_WATCHES: usize = 3;

/// Enough nodes for watches on several connections.
const SEVERAL: usize = 40;

const WHY: &str = "the test needs many nodes, or a relay in front of the API server";

/// How many files and sockets the process has open; none where the system has no `/proc`.
fn open_files(pid: u32) -> Option<usize> {
    Some(std::fs::read_dir(format!("/proc/{pid}/fd")).ok()?.count())
}

#[tokio::test(flavor = "multi_thread")]
async fn many_nodes_in_maintenance_need_few_connections() {
    let Some(cluster) = Cluster::sandbox_or_skip(NODES, WHY).await else { return };
    let reconciler = Reconciler::start_with(&cluster, &["--metrics-addr", "127.0.0.1:0"]);
    for (index, node) in cluster.nodes().await.iter().enumerate() {
        start(&cluster, &format!("e2e-many-{index}"), node).await;
    }
    for index in 0..NODES {
        until_phase(&cluster, &format!("e2e-many-{index}"), Phase::Succeeded).await;
    }
    let faults = cluster.sandbox().unwrap().faults();
    let open = faults.open_watches(&by_reconciler().verb("watch").resource("pods"));
    assert_eq!(open, NODES, "each drained node has a watch");
    assert_eq!(faults.open_watches(&by_reconciler().verb("watch")), CLUSTER_WATCHES + NODES);
    if let Some(open) = open_files(reconciler.pid()) {
        assert!(open < 64, "{open} files");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_standby_has_three_watches_and_a_leader_those_of_the_cluster_too() {
    let cluster = Cluster::of_sandbox(1, 0, |sandbox| sandbox).await;
    let leader = serve_webhook(&cluster, LONG_LEASE).await;
    until_leads(&cluster, &leader).await;
    let standby = serve_webhook_too(&cluster, LONG_LEASE).await;
    let node = &cluster.nodes().await[0];
    start(&cluster, "e2e-watches", node).await;
    until_drained(&cluster, "e2e-watches").await;
    let open = |replica: &Reconciler| {
        let its = Target::any().user_agent(&user_agent(replica.pid()));
        cluster.sandbox().unwrap().faults().open_watches(&its.verb("watch"))
    };
    assert_eq!((open(&leader), open(&standby)), (REPLICA_WATCHES + CLUSTER_WATCHES + 1, REPLICA_WATCHES));
    stop(&cluster, "e2e-watches").await;
}

/// A reconciler that reaches the API server through a relay.
async fn start_behind_relay(cluster: &Cluster) -> (Reconciler, Relay) {
    let server = cluster.sandbox().unwrap().url();
    let relay = Relay::start(&server).await;
    let kubeconfig = cluster.reconciler_kubeconfig();
    let direct = std::fs::read_to_string(&kubeconfig).unwrap();
    std::fs::write(&kubeconfig, direct.replace(&server, &relay.url())).unwrap();
    (Reconciler::start(cluster), relay)
}

#[tokio::test(flavor = "multi_thread")]
async fn connections_that_are_lost_silently_are_replaced_within_half_a_minute() {
    let Some(cluster) = Cluster::sandbox_or_skip(2, WHY).await else { return };
    let sandbox = cluster.sandbox().unwrap();
    let (_reconciler, relay) = start_behind_relay(&cluster).await;
    let nodes = cluster.nodes().await;
    start(&cluster, "e2e-before", &nodes[0]).await;
    until_phase(&cluster, "e2e-before", Phase::Succeeded).await;
    let is_watch = |entry: &Entry| entry.verb == "watch" && entry.resource == "pods";
    until_requests(sandbox, 1, "the pods are watched", is_watch).await;
    relay.silence();
    let silent = Instant::now();
    start(&cluster, "e2e-after", &nodes[1]).await;
    until_phase(&cluster, "e2e-after", Phase::Succeeded).await;
    // A watch that is silent would be replaced after 35 s.
    assert!(silent.elapsed() < Duration::from_secs(30), "{:?}", silent.elapsed());
}

#[tokio::test(flavor = "multi_thread")]
async fn one_silent_connection_of_several_takes_only_its_own_watches_down() {
    let Some(cluster) = Cluster::sandbox_or_skip(SEVERAL + 1, WHY).await else { return };
    let sandbox = cluster.sandbox().unwrap();
    let (_reconciler, relay) = start_behind_relay(&cluster).await;
    let nodes = cluster.nodes().await;
    for (index, node) in nodes[..SEVERAL].iter().enumerate() {
        start(&cluster, &format!("e2e-several-{index}"), node).await;
    }
    for index in 0..SEVERAL {
        until_phase(&cluster, &format!("e2e-several-{index}"), Phase::Succeeded).await;
    }
    let is_watch = |entry: &Entry| is_by_reconciler(entry) && entry.verb == "watch";
    let watches = || sandbox.requests().count(is_watch);
    let before = watches();
    assert!(before > SEVERAL, "the pods of each node are watched: {before}");
    relay.silence_newest();
    until_requests(sandbox, before + 1, "a watch is opened again", is_watch).await;
    // The reconciler works on all of its connections.
    start(&cluster, "e2e-after", &nodes[SEVERAL]).await;
    until_phase(&cluster, "e2e-after", Phase::Succeeded).await;
    let opened = watches() - before;
    assert!(opened < SEVERAL / 2, "{opened} of {before} watches were opened again");
}
