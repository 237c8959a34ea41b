//! The controllers, the scheduler and the kubelets.
//!
//! Each is a [`engine::controller::Controller`], which sees every change and reconciles in one step, and runs as a
//! task of its own. [`Controllers`] owns the tasks; dropping it stops them.

mod budget_math;
mod disruption;
mod endpoint_slices;
pub(crate) mod engine;
mod event;
mod garbage_collector;
mod namespace;
pub(crate) mod nodes;
mod role_aggregation;
mod service_account;
mod storage;
pub(crate) mod workloads;

#[cfg(test)]
mod tests;

pub use nodes::kubelet;

/// Annotations on persistent volumes that change what their driver does.
pub use crate::model::volume;

use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinSet;

use crate::cluster::Cluster;
use crate::controllers::engine::controller::Controller;
use crate::controllers::engine::driver::run;
use crate::controllers::nodes::kubelet::{Kubelets, Pace};

/// The running controllers of a cluster; they end when this is dropped.
#[derive(Debug)]
pub struct Controllers {
    tasks: JoinSet<()>,
}

impl Controllers {
    /// Starts all of them. A job whose first pod has failed waits for `job_backoff`. Call it within a tokio runtime.
    pub fn start(cluster: &Arc<Cluster>, pace: Pace, job_backoff: Duration) -> Self {
        let mut controllers = Self { tasks: JoinSet::new() };
        controllers.add(cluster, Kubelets::new(pace));
        controllers.add(cluster, nodes::scheduler::Scheduler::default());
        controllers.add(cluster, workloads::replicaset::ReplicaSets::new());
        controllers.add(cluster, workloads::deployment::Deployments::default());
        controllers.add(cluster, disruption::Disruption::default());
        controllers.add(cluster, endpoint_slices::EndpointSlices::default());
        controllers.add(cluster, workloads::daemonset::DaemonSets::default());
        controllers.add(cluster, workloads::statefulset::StatefulSets::new());
        controllers.add(cluster, workloads::job::Jobs::new(job_backoff));
        controllers.add(cluster, garbage_collector::GarbageCollector::default());
        controllers.add(cluster, namespace::Namespaces::default());
        controllers.add(cluster, nodes::pod_gc::PodGc::default());
        controllers.add(cluster, service_account::ServiceAccounts::default());
        controllers.add(cluster, role_aggregation::RoleAggregation::default());
        controllers.add(cluster, nodes::node_lifecycle::NodeLifecycle::default());
        controllers.add(cluster, storage::volume_binding::VolumeBinding::default());
        controllers.add(cluster, storage::attach_detach::AttachDetach::default());
        controllers.add(cluster, storage::csi_driver::CsiDrivers::default());
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
