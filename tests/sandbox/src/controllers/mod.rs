//! Everything that keeps a cluster going once its objects are written: kubelets, the scheduler, the controllers.
//!
//! Each is a [`controller::Controller`], a machine that sees every change and acts on the state in one step, and runs
//! as a task of its own. [`Controllers`] holds those tasks; dropping it stops them.

mod budget_math;
pub(crate) mod controller;
mod daemonset;
mod deployment;
pub(crate) mod desk;
mod disruption;
mod event;
mod feed;
mod garbage;
mod job;
pub mod kubelet;
mod namespace;
mod node_fit;
mod node_lifecycle;
mod node_loads;
mod owned_pods;
mod pod_brief;
mod pod_gc;
pub(crate) mod pod_status;
mod pod_template;
mod replicaset;
mod role_aggregation;
mod run;
mod scheduler;
mod service_account;
mod statefulset;
mod template_hash;
#[cfg(test)]
pub(crate) mod test_bed;
#[cfg(test)]
mod tests;
pub(crate) mod timeline;
mod waiting_line;

use std::sync::Arc;

use tokio::task::JoinSet;

use crate::cluster::Cluster;

use self::controller::Controller;
use self::kubelet::{Kubelets, Pace};
use self::run::run;

/// The running controllers of a cluster; they end when this is dropped.
#[derive(Debug)]
pub struct Controllers {
    tasks: JoinSet<()>,
}

impl Controllers {
    /// Starts all of them. Call it within a tokio runtime.
    pub fn start(cluster: &Arc<Cluster>, pace: Pace) -> Self {
        let mut controllers = Self { tasks: JoinSet::new() };
        controllers.add(cluster, Kubelets::new(pace));
        controllers.add(cluster, scheduler::Scheduler::default());
        controllers.add(cluster, replicaset::ReplicaSets::new());
        controllers.add(cluster, deployment::Deployments::default());
        controllers.add(cluster, disruption::Disruption::default());
        controllers.add(cluster, daemonset::DaemonSets::default());
        controllers.add(cluster, statefulset::StatefulSets::new());
        controllers.add(cluster, job::Jobs::new());
        controllers.add(cluster, garbage::Garbage::default());
        controllers.add(cluster, namespace::Namespaces::default());
        controllers.add(cluster, pod_gc::PodGc::default());
        controllers.add(cluster, service_account::ServiceAccounts::default());
        controllers.add(cluster, role_aggregation::RoleAggregation::default());
        controllers.add(cluster, node_lifecycle::NodeLifecycle::default());
        controllers
    }

    /// Stops all of them and waits until they have stopped.
    pub async fn stop(mut self) {
        self.tasks.shutdown().await;
    }

    /// Starts one more.
    pub(crate) fn add(&mut self, cluster: &Arc<Cluster>, controller: impl Controller) {
        self.tasks.spawn(run(cluster.clone(), controller));
    }
}
