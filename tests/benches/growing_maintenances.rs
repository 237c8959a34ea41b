//! Measurements of `growth` whose size is the number of maintenances.

use futures::{StreamExt, stream};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::PostParams;
use kube::{Api, ResourceExt};
use nm_shared::NodeMaintenance;
use nm_shared::api::pod_selector::{MAX_REQUIREMENTS, MAX_VALUES};
use nm_tests::cluster::Cluster;
use nm_tests::leader_election::until_leads;
use nm_tests::webhook::{configure_webhook, until_trusted};
use serde_json::{Value, json};

use crate::fleet::{POLL_INTERVAL, begin, drained, end, grow_pods, maintenances, number};
use crate::meter::{Meter, start};

/// How many maintenances are created at once.
const CONCURRENT_WRITES: usize = 16;

/// Creates a maintenance of each node, of the same name.
pub(crate) async fn create(cluster: &Cluster, nodes: &[String], spec: &Value) {
    let api = cluster.maintenances();
    stream::iter(nodes)
        .for_each_concurrent(CONCURRENT_WRITES, |node| {
            let mut spec = spec.clone();
            spec["nodeName"] = json!(node);
            let maintenance = NodeMaintenance::new(node, serde_json::from_value(spec).unwrap());
            let api = &api;
            async move { drop(api.create(&PostParams::default(), &maintenance).await.unwrap()) }
        })
        .await;
}

/// Waits until there are so many maintenances, and all have a phase.
async fn until_shown(cluster: &Cluster, count: usize) {
    let is_shown = |found: &Value| found["status"]["phase"].is_string();
    loop {
        let found = maintenances(cluster);
        if found.len() == count && found.iter().all(is_shown) {
            return;
        }
        tokio::time::sleep(POLL_INTERVAL).await;
    }
}

/// Waits until these nodes are drained.
pub(crate) async fn until_drained(cluster: &Cluster, nodes: &[String]) {
    while drained(cluster).iter().filter(|name| nodes.contains(name)).count() < nodes.len() {
        tokio::time::sleep(POLL_INTERVAL).await;
    }
}

/// A selector of so many requirements with the longest keys, of 317 characters, and the longest values. One of labels matches no
/// pod; the other one matches all.
fn largest(requirements: usize, with_labels: bool) -> Value {
    let key = |at: usize| format!("{}a.b.c/{at:063}", format!("{:061}.", 0).repeat(4));
    let value = |at: usize| format!("{at:063}");
    let values: Vec<String> = (0..MAX_VALUES).map(value).collect();
    let expressions: Vec<Value> =
        (0..requirements).map(|at| json!({"key": key(at), "operator": "NotIn", "values": values})).collect();
    let labels: serde_json::Map<_, _> = (0..requirements).map(|at| (key(at), json!(value(at)))).collect();
    if with_labels {
        json!({"matchLabels": labels, "matchExpressions": expressions})
    } else {
        json!({"matchExpressions": expressions})
    }
}

/// A drain with selectors of so many requirements.
fn selecting(requirements: usize) -> Value {
    if requirements == 0 {
        return json!({});
    }
    let completion = json!({"podSelector": largest(requirements, true)});
    json!({"podSelector": largest(requirements, false), "waitForCompletion": completion})
}

/// Installs the definition of another build.
async fn define(cluster: &Cluster, file: &std::ffi::OsStr) {
    let mut definition: CustomResourceDefinition =
        serde_saphyr::from_str(&std::fs::read_to_string(file).unwrap()).unwrap();
    let definitions: Api<CustomResourceDefinition> = Api::all(cluster.client.clone());
    let name = definition.name_any();
    definition.metadata.resource_version = definitions.get(&name).await.unwrap().resource_version();
    definitions.replace(&name, &PostParams::default(), &definition).await.unwrap();
}

/// Drains nodes with selectors of so many requirements; unless these are chosen, without selectors and with the largest ones.
pub(crate) async fn selectors(size: usize, requirements: Option<Vec<usize>>) {
    for requirements in requirements.unwrap_or_else(|| vec![0, MAX_REQUIREMENTS]) {
        let cluster = Cluster::of_sandbox(2 * size, 8 * size, |sandbox| sandbox).await;
        if let Some(file) = std::env::var_os("NM_GROWTH_DEFINITION") {
            define(&cluster, &file).await;
        }
        let nodes = cluster.nodes().await;
        let nodes = &nodes[..size];
        grow_pods(&cluster, nodes).await;
        let drain = selecting(requirements);
        let bytes = drain.to_string().len();
        let reconciler = start(&cluster, &[]);
        let meter = Meter::once_quiet(&cluster, &reconciler).await;
        create(&cluster, nodes, &json!({"drain": drain})).await;
        until_drained(&cluster, nodes).await;
        meter
            .print_once_quiet(&format!("selectors of {requirements} requirements, {bytes} bytes,"), size)
            .await;
    }
}

/// Creates planned maintenances with the largest selectors, and without.
pub(crate) async fn planned(size: usize) {
    for requirements in [0, MAX_REQUIREMENTS] {
        let cluster = Cluster::of_sandbox(size, 0, |sandbox| sandbox).await;
        let nodes = cluster.nodes().await;
        let reconciler = start(&cluster, &[]);
        let meter = Meter::once_quiet(&cluster, &reconciler).await;
        create(&cluster, &nodes, &json!({"suspend": true, "drain": selecting(requirements)})).await;
        until_shown(&cluster, size).await;
        meter.print_once_quiet(&format!("planned, selectors of {requirements} requirements,"), size).await;
    }
}

/// Deletes planned maintenances.
pub(crate) async fn deletions(size: usize) {
    let cluster = Cluster::of_sandbox(size, 0, |sandbox| sandbox).await;
    cluster.grant("node_conditions").await;
    let nodes = cluster.nodes().await;
    let reconciler = start(&cluster, &["--node-conditions"]);
    create(&cluster, &nodes, &json!({"suspend": true})).await;
    until_shown(&cluster, size).await;
    let meter = Meter::once_quiet(&cluster, &reconciler).await;
    end(&cluster, &nodes).await;
    until_shown(&cluster, 0).await;
    meter.print_once_quiet("deletions", size).await;
}

/// Creates planned maintenances, and measures the replica that reviews them.
pub(crate) async fn creations(size: usize) {
    let cluster = Cluster::of_sandbox(size, 0, |sandbox| sandbox).await;
    let nodes = cluster.nodes().await;
    let leader = start(&cluster, &["--leader-elect"]);
    until_leads(&cluster, &leader).await;
    let text = ["--log-format", "text", "--log-level", "debug"];
    let webhook =
        start(&cluster, &[&text[..], &["--leader-elect", "--webhook-addr", "127.0.0.1:0"]].concat());
    webhook.until_logged("its certificate", |line| line.contains("serves a new certificate")).await;
    configure_webhook(&cluster, webhook.webhook_address().await).await;
    until_trusted(&cluster).await;
    let meter = Meter::once_quiet(&cluster, &webhook).await;
    create(&cluster, &nodes, &json!({"suspend": true})).await;
    meter.print_once_quiet("creations", size).await;
}

/// Changes the gate while many maintenances wait.
pub(crate) async fn changes(size: usize) {
    let changing = number("NM_GROWTH_CHANGES", 100);
    let cluster = Cluster::of_sandbox(size + changing, 0, |sandbox| sandbox).await;
    let nodes = cluster.nodes().await;
    let (waiting, others) = nodes.split_at(size);
    let reconciler = start(&cluster, &["--max-unavailable=1"]);
    begin(&cluster, waiting).await;
    until_shown(&cluster, size).await;
    let meter = Meter::once_quiet(&cluster, &reconciler).await;
    create(&cluster, others, &json!({"suspend": true})).await;
    until_shown(&cluster, nodes.len()).await;
    end(&cluster, others).await;
    until_shown(&cluster, size).await;
    meter.print_once_quiet("changes", size).await;
}
