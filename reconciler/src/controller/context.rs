//! The dependencies of every reconcile: the client, the caches and watches, and the evictor.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use k8s_openapi::api::core::v1::Node;
use kube::runtime::reflector::ObjectRef;
use kube::{Api, Client, ResourceExt};
use nm_shared::drain::node_conditions;
use nm_shared::gate::max_unavailable_queue::MaxUnavailable;
use nm_shared::gate::ownership;
use nm_shared::{Group, GroupedMaintenance, PodReference};

use crate::cache::leader_state::LeaderState;
use crate::cache::triggers::Triggers;
use crate::client::discovery::OpenshiftDiscovery;
use crate::client::throttle::Throttle;
use crate::controller::event_recorder::EventRecorder;
use crate::controller::node_conditions::NodeConditionPublisher;
use crate::evict::evictor::Evictor;
use crate::runtime::clock::Clock;
use crate::telemetry::metrics::Metrics;
use crate::watch::cluster_watches::ClusterWatches;
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
    pub(crate) triggers: Triggers,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) state: Arc<LeaderState>,
    pub(crate) cluster: ClusterWatches,
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
    /// For how long KubeVirt may leave a virtual machine alone.
    pub(crate) migration_start_timeout: Duration,
    /// The pod that this program runs in, if known.
    pub(crate) own_pod: Option<PodReference>,
}

impl Context {
    /// Forgets the maintenances that no longer exist, and ends all work for nodes without one.
    pub(crate) fn forget_removed(&self) {
        let in_maintenance = self.state.forget_removed();
        self.evictor.retain_nodes(|node| in_maintenance.contains(node));
        self.migrations.retain_nodes(|node| in_maintenance.contains(node));
        self.volumes.retain_nodes(|node| in_maintenance.contains(node));
        self.workloads.retain_nodes(|node| in_maintenance.contains(node));
        if self.node_conditions && self.state.initial_list_wait().is_none() {
            let outdated = self.cluster.nodes.state_filter(|node| {
                node_conditions::has_maintenance_conditions(node)
                    && !in_maintenance.contains(&node.name_any())
            });
            for node in outdated {
                self.conditions.publish(&node.name_any(), Vec::new());
            }
        }
    }

    /// Forgets a maintenance that is gone, and ends all work for its node if no other maintenance names it. This takes no longer
    /// however many others there are.
    pub(crate) fn forget(&self, maintenance: &GroupedMaintenance) {
        let node = &maintenance.spec.node_name;
        if self.state.forget(maintenance) {
            return;
        }
        self.leave_node(node);
        let shown = self.cluster.nodes.get(&ObjectRef::new(node)).filter(|_| self.node_conditions);
        if shown.is_some_and(|node| node_conditions::has_maintenance_conditions(&node)) {
            self.conditions.publish(node, Vec::new());
        }
    }

    /// Ends the evictions and watches of a node.
    pub(crate) fn leave_node(&self, node: &str) {
        self.evictor.leave_node(node);
        self.migrations.leave_node(node);
        self.volumes.leave_node(node);
        self.workloads.leave_node(node);
        self.state.end_watches(node);
    }

    /// The maintenance as it was last written. If its status has lost that it has begun, that is restored from the undo
    /// record on its node.
    pub(crate) fn latest(&self, received: Arc<GroupedMaintenance>) -> Arc<GroupedMaintenance> {
        self.restore_status(self.state.latest(received))
    }

    fn restore_status(&self, maintenance: Arc<GroupedMaintenance>) -> Arc<GroupedMaintenance> {
        let node = self.cluster.nodes.get(&ObjectRef::new(&maintenance.spec.node_name));
        match node.and_then(|node| ownership::recovered(&maintenance, &node)) {
            Some(status) => {
                let mut restored = GroupedMaintenance::clone(&maintenance);
                restored.maintenance.status = Some(status);
                Arc::new(restored)
            }
            None => maintenance,
        }
    }

    pub(crate) fn maintenance_api(&self, group: Group) -> Api<GroupedMaintenance> {
        Api::all_with(self.client.clone(), &group)
    }

    pub(crate) fn node_api(&self) -> Api<Node> {
        Api::all(self.client.clone())
    }
}
