//! Nodes, namespaces and workloads to fill a cluster with.
//!
//! Only owners are created. The controllers create their pods, so that a seeded pod is like any other.

mod app;
mod node;

use serde_json::{Value, json};

use crate::cluster::Cluster;
use crate::cluster::catalog::resource::{NAMESPACES, NODES, PRIORITY_CLASSES};
use crate::cluster::registry;
use crate::cluster::registry::Effect;
use crate::cluster::store::Collection;
use crate::model::clock::metav1_time;
use crate::model::status_error::StatusError;

pub use crate::workload::app::{App, Kind};
pub use crate::workload::node::{ROOM, node, node_name};

const SYSTEM_NAMESPACES: [&str; 4] = ["default", "kube-system", "kube-public", "kube-node-lease"];
const SYSTEM_CLASSES: [(&str, i64); 2] =
    [("system-cluster-critical", 2_000_000_000), ("system-node-critical", 2_000_001_000)];
const TEAMS: [&str; 5] = ["shop", "billing", "search", "media", "ops"];
const NAMES: [&str; 8] = ["web", "api", "worker", "cache", "queue", "mailer", "indexer", "gateway"];
/// Pods of one deployment, unless the cluster is large.
const USUAL_REPLICAS: usize = 5;
const MOST_DEPLOYMENTS: usize = 400;

/// Creates nodes, the system namespaces and the system priority classes.
///
/// # Errors
/// The error of the API server, as when a node exists.
pub fn seed_nodes(cluster: &Cluster, nodes: usize) -> Result<(), StatusError> {
    for name in SYSTEM_NAMESPACES {
        seed_namespace(cluster, name)?;
    }
    for (name, value) in SYSTEM_CLASSES {
        create(cluster, &PRIORITY_CLASSES, json!({"metadata": {"name": name}, "value": value}))?;
    }
    let now = metav1_time(cluster.clock.now());
    for number in 1..=nodes {
        let mut node = node(number, nodes);
        for condition in node["status"]["conditions"].as_array_mut().into_iter().flatten() {
            condition["lastHeartbeatTime"] = json!(now);
            condition["lastTransitionTime"] = json!(now);
        }
        create(cluster, &NODES, node)?;
    }
    Ok(())
}

/// Creates a namespace.
///
/// # Errors
/// The error of the API server, as when it exists.
pub fn seed_namespace(cluster: &Cluster, name: &str) -> Result<(), StatusError> {
    create(cluster, &NAMESPACES, json!({"metadata": {"name": name}}))
}

/// Creates deployments with so many pods in total in several namespaces, some of them with budgets, and one `DaemonSet`.
/// Returns the number of pods.
///
/// # Errors
/// The error of the API server, as when a namespace exists.
pub fn seed_apps(cluster: &Cluster, nodes: usize, pods: usize) -> Result<usize, StatusError> {
    let agent = App::new(Kind::DaemonSet, "kube-system", "node-agent").grace(5);
    let mut expected = agent.pods(nodes);
    agent.create(cluster)?;
    let apps = apps(pods);
    let mut namespaces: Vec<&str> = apps.iter().map(|(namespace, _)| namespace.as_str()).collect();
    namespaces.sort_unstable();
    namespaces.dedup();
    for namespace in namespaces {
        seed_namespace(cluster, namespace)?;
    }
    for (_, app) in &apps {
        expected += app.pods(nodes);
        app.create(cluster)?;
    }
    Ok(expected)
}

/// Deployments of about the same size, each with the namespace of a team.
fn apps(pods: usize) -> Vec<(String, App)> {
    let count = pods.div_ceil(USUAL_REPLICAS).min(MOST_DEPLOYMENTS);
    let mut left = pods;
    (0..count)
        .map(|number| {
            let replicas = left.div_ceil(count - number);
            left -= replicas;
            let namespace = numbered(TEAMS[number % TEAMS.len()], number / (TEAMS.len() * NAMES.len()));
            let name = NAMES[number / TEAMS.len() % NAMES.len()];
            let app = App::new(Kind::Deployment, &namespace, name).replicas(replicas);
            // A third of them have a budget that allows one disruption or, for large ones, a quarter of the pods.
            let app = match (number % 3, replicas) {
                (0, 2..=8) => app.budget(json!({"maxUnavailable": 1})),
                (0, 9..) => app.budget(json!({"minAvailable": "75%"})),
                _ => app,
            };
            (namespace, app)
        })
        .collect()
}

fn numbered(name: &str, round: usize) -> String {
    if round == 0 { name.to_owned() } else { format!("{name}-{}", round + 1) }
}

fn create(cluster: &Cluster, collection: &Collection, object: Value) -> Result<(), StatusError> {
    let now = cluster.clock.now();
    let resource = cluster
        .catalog
        .of(collection)
        .ok_or_else(|| StatusError::not_found(&collection.group, &collection.plural, ""))?;
    cluster.store.write(|state| registry::create(state, &resource, object, now, Effect::Real)).map(|_| ())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seeded_deployments_have_the_requested_pods_and_unique_names() {
        for pods in [0, 1, 4, 60, 1_234, 150_000] {
            let apps = apps(pods);
            let sum: usize = apps.iter().map(|(_, app)| app.pods(0)).sum();
            assert_eq!(sum, pods);
            let mut names: Vec<String> = apps
                .iter()
                .flat_map(|(_, app)| app.objects())
                .map(|(collection, object)| format!("{} {}", collection.plural, object["metadata"]))
                .collect();
            let all = names.len();
            names.sort();
            names.dedup();
            assert_eq!(names.len(), all);
        }
    }
}
