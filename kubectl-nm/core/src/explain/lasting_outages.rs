//! The workloads that drains have left without a ready pod for longer than a replacement usually takes, read again and again: of a
//! workload that is known to be down, there may be no event any more.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use futures::stream::{self, StreamExt};
use jiff::{SignedDuration, Timestamp};
use nm_shared::NodeMaintenance;
use nm_shared::forecast::outage::USUAL_REPLACEMENT;

use crate::client::cluster::Cluster;
use crate::explain::bounded_requests::MAX_CONCURRENT;
use crate::explain::cluster_facts::{ClusterFacts, Outage, OutageGap, Unseen, Workload};
use crate::explain::read_outages::{add_seen, down_in};
use crate::maintenance::{State, node, pods_gone, status, uid};

/// A workload whose last pod has left counts as down once its replacement has had its usual time.
pub const SETTLED: SignedDuration = USUAL_REPLACEMENT.saturating_add(SignedDuration::from_secs(1));

/// A maintenance, and the workloads that were down when they were last read: `shop/deploy/web`.
#[derive(Debug, Clone, PartialEq)]
pub struct KnownOutages {
    /// The maintenance.
    pub maintenance: Arc<NodeMaintenance>,
    /// The workloads.
    pub down: Vec<String>,
}

/// What was read of a maintenance.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SeenOutages {
    /// The workloads that are down.
    pub down: Vec<String>,
    /// The permissions that the user lacks to find more, as RBAC words them: `list events`.
    pub denied: BTreeSet<String>,
}

/// Whether pods have left the node of a maintenance that is not being stopped.
pub fn may_have(maintenance: &NodeMaintenance) -> bool {
    pods_gone(status(maintenance)) > 0 && State::of(maintenance) != State::Stopping
}

/// Reads which workloads are down since pods of theirs left the nodes of these maintenances, by the uids of the maintenances. Those
/// that were known to be down are, until their namespace shows otherwise.
pub async fn read(cluster: &Cluster, known: &[KnownOutages]) -> BTreeMap<String, SeenOutages> {
    let mut facts = ClusterFacts::default();
    add_seen(&mut facts, known.iter().map(|known| &*known.maintenance), cluster).await;
    let now = Timestamp::now();
    let mut seen: BTreeMap<String, SeenOutages> = BTreeMap::new();
    let mut unseen: Vec<(String, &String)> = Vec::new();
    for known in known {
        let (uid, found) = (uid(&known.maintenance), lasting(&facts, node(&known.maintenance), now));
        unseen.extend(known.down.iter().filter(|name| !found.contains(name)).map(|name| (uid.clone(), name)));
        seen.insert(uid, SeenOutages { down: found, denied: denied(&facts, node(&known.maintenance)) });
    }
    let still = still_down(cluster, unseen.iter().map(|(_, name)| (*name).clone()).collect()).await;
    for (uid, name) in unseen.into_iter().filter(|(_, name)| still.contains(*name)) {
        seen.entry(uid).or_default().down.push(name.clone());
    }
    seen
}

fn denied(facts: &ClusterFacts, node: &str) -> BTreeSet<String> {
    let gaps = facts.outage_gaps.get(node).into_iter().flatten();
    let permission = |gap: &OutageGap| match gap {
        OutageGap::Unseen(Unseen::Forbidden(permission)) => Some(permission.clone()),
        _ => None,
    };
    gaps.filter_map(permission).collect()
}

fn lasting(facts: &ClusterFacts, node: &str, now: Timestamp) -> Vec<String> {
    let outages = facts.outages.get(node).into_iter().flatten();
    let lasting = outages.filter(|outage: &&Outage| now.duration_since(outage.since()) >= USUAL_REPLACEMENT);
    lasting.map(|outage| outage.workload.reference()).collect()
}

/// Those of these workloads that have no ready pod, or of whose namespace that could not be read.
pub(super) async fn still_down(cluster: &Cluster, names: BTreeSet<String>) -> BTreeSet<String> {
    let mut namespaces: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for name in names {
        let namespace = name.split('/').next().unwrap_or_default().to_owned();
        namespaces.entry(namespace).or_default().push(name);
    }
    let check = async |(namespace, names): (String, Vec<String>)| {
        let Ok(down) = down_in(cluster, &namespace).await else { return names };
        let down: BTreeSet<String> = down.iter().map(Workload::reference).collect();
        names.into_iter().filter(|name| down.contains(name)).collect()
    };
    let read = stream::iter(namespaces).map(check).buffer_unordered(MAX_CONCURRENT);
    read.collect::<Vec<Vec<String>>>().await.into_iter().flatten().collect()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::testing::fake_server::{cluster, failure};
    use crate::testing::objects::{running, with_status};

    /// The workloads of node n1 that are down, if these were and the namespace of web answers this. No event is left.
    async fn down(was: &[&str], deployments: (u16, Value)) -> Vec<String> {
        let events = (200, json!({"kind": "List", "metadata": {}, "items": []}));
        seen(was, deployments, events).await.down
    }

    async fn seen(was: &[&str], deployments: (u16, Value), events: (u16, Value)) -> SeenOutages {
        let empty = || (200, json!({"kind": "List", "metadata": {}, "items": []}));
        let (cluster, _) = cluster(move |_, path| match path {
            "/api/v1/events" => events.clone(),
            "/apis/apps/v1/namespaces/shop/deployments" => deployments.clone(),
            _ => empty(),
        });
        let mut status = running(40, &[]);
        status["podCounts"] = json!({"gone": 3});
        status["conditions"] = json!([{"type": "Cordoned", "status": "True", "reason": "Cordoned", "message": "",
            "lastTransitionTime": "2026-01-02T03:04:05Z"}]);
        let known = KnownOutages {
            maintenance: Arc::new(with_status("n1", status)),
            down: was.iter().map(|name| (*name).to_owned()).collect(),
        };
        read(&cluster, &[known]).await.into_values().next().unwrap()
    }

    #[tokio::test]
    async fn a_workload_that_was_down_is_until_its_namespace_shows_otherwise() {
        let web = |ready: i32| {
            let web = json!({"metadata": {"name": "web", "namespace": "shop"}, "spec": {"replicas": 2},
                "status": {"readyReplicas": ready}});
            (200, json!({"kind": "List", "metadata": {}, "items": [web]}))
        };
        let none: [String; 0] = [];
        assert_eq!(down(&["shop/deploy/web"], web(0)).await, ["shop/deploy/web"], "its events have expired");
        assert_eq!(down(&["shop/deploy/web"], web(1)).await, none);
        assert_eq!(
            down(&["shop/deploy/web"], failure(500, "InternalError", "web")).await,
            ["shop/deploy/web"]
        );
        assert_eq!(down(&["shop/deploy/other"], web(0)).await, none, "it was deleted");
        assert_eq!(down(&[], web(0)).await, none, "no pod of it is known to have left the node");
    }

    #[tokio::test]
    async fn the_permission_without_which_no_outage_is_seen_is_named() {
        let of = async |events| seen(&[], (200, Value::Null), events).await.denied;
        assert_eq!(of(failure(403, "Forbidden", "no")).await, [String::from("list events")].into());
        assert_eq!(of(failure(500, "InternalError", "no")).await, [].into(), "that is over soon");
    }
}
