//! The dependencies of every reconcile: the client, the state of the term, the watches, and the evictor.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use kube::{Api, Client};
use nm_shared::gate::max_unavailable_queue::MaxUnavailable;
use nm_shared::{Group, GroupedMaintenance, PodReference};

use crate::cache::projected_node::ProjectedNode;
use crate::cache::shared_state::SharedState;
use crate::client::discovery::OpenshiftDiscovery;
use crate::client::throttle::Throttle;
use crate::controller::event_recorder::EventRecorder;
use crate::controller::node_conditions::NodeConditionPublisher;
use crate::evict::evictor::Evictor;
use crate::runtime::clock::Clock;
use crate::telemetry::metrics::Metrics;
use crate::watch::migrations::Migrations;
use crate::watch::node_leases::NodeLeases;
use crate::watch::node_watches::NodeWatches;
use crate::watch::volume_attachments::VolumeAttachments;
use crate::watch::workload_watches::WorkloadWatches;

pub(crate) struct Context {
    pub(crate) client: Client,
    /// Pauses the client.
    pub(crate) throttle: Throttle,
    pub(crate) clock: Clock,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) state: Arc<SharedState>,
    pub(crate) leases: NodeLeases,
    pub(crate) watches: NodeWatches,
    pub(crate) migrations: Migrations,
    pub(crate) volumes: VolumeAttachments,
    pub(crate) workloads: Arc<WorkloadWatches>,
    pub(crate) evictor: Arc<Evictor>,
    pub(crate) openshift: OpenshiftDiscovery,
    pub(crate) events: EventRecorder,
    pub(crate) conditions: NodeConditionPublisher,
    /// Whether the API server has denied this term to set the owner of a maintenance.
    pub(crate) owners_denied: AtomicBool,
    /// Whether nodes show the state of their maintenance in their conditions.
    pub(crate) node_conditions: bool,
    pub(crate) max_unavailable: Option<MaxUnavailable>,
    /// Whether etcd runs outside of the cluster.
    pub(crate) has_external_etcd: bool,
    /// How long nothing may move a budget before the pods that wait for it are blocked.
    pub(crate) blocked_after: Duration,
    /// For how long KubeVirt may leave a virtual machine alone.
    pub(crate) migration_start_timeout: Duration,
    /// The pod that this program runs in, if known.
    pub(crate) own_pod: Option<PodReference>,
}

impl Context {
    /// Removes the conditions of maintenances from nodes that have none any more: from this node or, without a name, from all.
    pub(crate) fn remove_outdated_conditions(&self, only: Option<&str>) {
        if self.node_conditions {
            let outdated = self.state.lock().nodes_with_outdated_conditions(only);
            for node in outdated {
                self.conditions.publish(&node, Vec::new());
            }
        }
    }

    pub(crate) fn maintenance_api(&self, group: Group) -> Api<GroupedMaintenance> {
        Api::all_with(self.client.clone(), &group)
    }

    pub(crate) fn node_api(&self) -> Api<ProjectedNode> {
        Api::all(self.client.clone())
    }
}
