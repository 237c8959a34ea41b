//! Reads which workloads have no ready pod since pods of theirs left nodes in maintenance. What cannot be read is left out: it
//! concerns nothing that blocks the maintenance.

use std::collections::{BTreeMap, BTreeSet, HashSet};

use futures::future::join_all;
use jiff::Timestamp;
use k8s_openapi::api::apps::v1::{Deployment, StatefulSet};
use k8s_openapi::api::core::v1::{Event, Pod};
use kube::Api;
use kube::api::ListParams;
use nm_shared::NodeMaintenance;

use crate::client::cluster::Cluster;
use crate::explain::cluster_facts::{ClusterFacts, Outage, StoppedPod, Workload};
use crate::explain::read_facts::{MAX_DETAILS, MAX_PODS, events, list, warnings_about};
use crate::maintenance::{State, cordoned_since, node};

/// How many events are read at most, of the whole cluster.
const MAX_EVENTS: u32 = 5000;

/// In how many namespaces workloads are read at most.
const MAX_NAMESPACES: usize = 20;

/// Adds the outages of the workloads whose pods left the nodes of these maintenances.
pub async fn add<'a>(
    facts: &mut ClusterFacts,
    explained: impl IntoIterator<Item = &'a NodeMaintenance>,
    cluster: &Cluster,
) {
    let drains: BTreeMap<&str, Timestamp> = explained
        .into_iter()
        .filter(|object| State::of(object) != State::Stopping)
        .filter_map(|object| Some((node(object), cordoned_since(object)?)))
        .collect();
    if drains.is_empty() {
        return;
    }
    let all: Api<Event> = Api::all(cluster.client());
    let killing = ListParams::default().fields("reason=Killing").limit(MAX_EVENTS);
    let found = list(cluster, &all, "list events", killing).await.unwrap_or_default();
    let is_of_drain = |pod: &StoppedPod| drains.get(pod.node.as_str()).is_some_and(|began| pod.at >= *began);
    let stopped: Vec<StoppedPod> = found.iter().filter_map(StoppedPod::of).filter(is_of_drain).collect();
    let namespaces: BTreeSet<&str> = stopped.iter().map(|pod| pod.pod.namespace.as_str()).collect();
    let read = namespaces.into_iter().take(MAX_NAMESPACES).map(async |namespace| {
        let stopped: Vec<StoppedPod> =
            stopped.iter().filter(|pod| pod.pod.namespace == namespace).cloned().collect();
        of_namespace(cluster, namespace, &stopped, &drains).await
    });
    for (node, outage) in join_all(read).await.into_iter().flatten() {
        facts.outages.entry(node).or_default().push(outage);
    }
}

async fn of_namespace(
    cluster: &Cluster,
    namespace: &str,
    stopped: &[StoppedPod],
    drains: &BTreeMap<&str, Timestamp>,
) -> Vec<(String, Outage)> {
    let deployments: Api<Deployment> = Api::namespaced(cluster.client(), namespace);
    let sets: Api<StatefulSet> = Api::namespaced(cluster.client(), namespace);
    let (deployments, sets) = tokio::join!(
        list(cluster, &deployments, "list deployments.apps", ListParams::default()),
        list(cluster, &sets, "list statefulsets.apps", ListParams::default()),
    );
    let (deployments, sets) = (deployments.unwrap_or_default(), sets.unwrap_or_default());
    let workloads = deployments.iter().map(Workload::from).chain(sets.iter().map(Workload::from));
    let down: Vec<Workload> = workloads.filter(Workload::is_down).collect();
    if down.is_empty() {
        return Vec::new();
    }
    let pods: Api<Pod> = Api::namespaced(cluster.client(), namespace);
    let Ok(pods) = list(cluster, &pods, "list pods", ListParams::default().limit(MAX_PODS)).await else {
        return Vec::new();
    };
    let warned = warned_before(cluster, namespace, stopped).await;
    let mut outages = Vec::new();
    for workload in down {
        for (node, began) in drains {
            let was_unready = |pod: &StoppedPod| warned.contains(&pod.uid);
            let outage = workload.clone().outage(node, *began, stopped, &pods, was_unready);
            outages.extend(outage.map(|outage| ((*node).to_owned(), outage)));
        }
    }
    // The same pods replace those of several nodes.
    let mut known = BTreeMap::new();
    for (_, outage) in &mut outages {
        for read in outage.pods.iter_mut().take(MAX_DETAILS) {
            let uid = read.pod.metadata.uid.clone();
            if !known.contains_key(&uid) {
                known.insert(uid.clone(), warnings_about(cluster, &read.pod).await);
            }
            read.warnings.clone_from(&known[&uid]);
        }
    }
    outages
}

/// The uids of the pods of which there are warnings from before they were stopped: they may not have been Ready.
async fn warned_before(cluster: &Cluster, namespace: &str, stopped: &[StoppedPod]) -> HashSet<String> {
    let warnings = events(cluster, namespace, "type=Warning,involvedObject.kind=Pod").await;
    let first = |event: &Event| event.first_timestamp.as_ref().map(|at| at.0);
    let is_warned = |pod: &&StoppedPod| {
        warnings.iter().any(|event| {
            event.involved_object.uid.as_ref() == Some(&pod.uid) && first(event).is_none_or(|at| at < pod.at)
        })
    };
    stopped.iter().filter(is_warned).map(|pod| pod.uid.clone()).collect()
}
