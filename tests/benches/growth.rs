//! How the reconciler's cost grows with the number of objects that somebody may create: maintenances, their selectors, the
//! volumes of nodes and the `ReplicaSet`s of pods.
//!
//! `cargo bench -p nm-tests --bench growth` prints the processor time, requests and memory of the reconciler for four sizes of
//! each measurement, or for those in `NM_GROWTH_SIZES`. Arguments select measurements, and `NM_GROWTH_RECONCILER` names another
//! build to compare with. The size of a measurement is the number of maintenances, unless it says otherwise.
//!
//! - `selectors`: each maintenance has the largest selectors that the definition admits, and its node has four pods.
//!   `NM_GROWTH_DEFINITION` names the file of another definition, and `NM_GROWTH_REQUIREMENTS` other numbers of requirements.
//! - `planned`: planned maintenances are created, without selectors and with the largest ones.
//! - `surge_denied`: the size is the number of `ReplicaSet`s whose pods are to be replaced first, ten on a node. The reconciler may
//!   not read them.
//! - `volumes`: each maintenance waits for volumes. Each pod of the cluster has four, which are detached once it is gone.
//! - `deletions`: planned maintenances are deleted together, while nodes show conditions.
//! - `replica_sets`: the size is the number of `ReplicaSet`s on one node, whose pods are to be replaced first if their budgets do
//!   not allow their evictions. These allow them.
//! - `creations`: planned maintenances are created, each of which a webhook reviews that another replica serves.
//! - `changes`: `NM_GROWTH_CHANGES` planned maintenances, a hundred unless set, are created and deleted, while so many others wait
//!   in the queue.
#![allow(clippy::unwrap_used, reason = "a benchmark panics where it cannot measure")]
#![expect(clippy::print_stdout, reason = "figures are what a benchmark is for")]

mod fleet;
mod growing_maintenances;
mod growing_workloads;
mod meter;

use crate::growing_maintenances::{changes, creations, deletions, planned, selectors};
use crate::growing_workloads::{replica_sets, surge_denied, volumes};

#[tokio::main]
async fn main() {
    let wanted: Vec<String> = std::env::args().skip(1).filter(|name| !name.starts_with('-')).collect();
    for (name, sizes) in [
        ("selectors", [12, 25, 50, 100]),
        ("planned", [12, 25, 50, 100]),
        ("surge_denied", [50, 100, 200, 400]),
        ("volumes", [5, 10, 20, 40]),
        ("deletions", [200, 400, 800, 1_600]),
        ("replica_sets", [20, 50, 100, 200]),
        ("creations", [100, 200, 400, 800]),
        ("changes", [200, 400, 800, 1_600]),
    ] {
        if !wanted.is_empty() && !wanted.iter().any(|wanted| wanted == name) {
            continue;
        }
        for size in chosen("NM_GROWTH_SIZES").unwrap_or_else(|| sizes.to_vec()) {
            match name {
                "selectors" => selectors(size, chosen("NM_GROWTH_REQUIREMENTS")).await,
                "planned" => planned(size).await,
                "surge_denied" => surge_denied(size).await,
                "volumes" => volumes(size).await,
                "deletions" => deletions(size).await,
                "replica_sets" => replica_sets(size).await,
                "creations" => creations(size).await,
                _ => changes(size).await,
            }
        }
    }
}

/// Numbers from the environment, separated by commas.
fn chosen(name: &str) -> Option<Vec<usize>> {
    let text = std::env::var(name).ok()?;
    Some(text.split(',').map(|number| number.parse().unwrap()).collect())
}
