//! What a reconcile has at hand.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Node;
use kube::runtime::reflector::ObjectRef;
use kube::{Api, Client, ResourceExt};
use nm_shared::drain::node_conditions;
use nm_shared::gate::max_unavailable_queue::MaxUnavailable;
use nm_shared::gate::ownership;
use nm_shared::{Group, Grouped, PodReference};

use crate::cache::maintenances::Maintenances;
use crate::cache::read_your_writes::OwnWrites;
use crate::cache::triggers::Triggers;
use crate::controller::backoff::Failures;
use crate::controller::event_recorder::Announcer;
use crate::controller::node_conditions::NodeConditions;
use crate::evict::evictor::Evictor;
use crate::telemetry::metrics::Metrics;
use crate::watch::cluster_watches::ClusterWatches;
use crate::watch::node_leases::NodeLeases;
use crate::watch::platform::Platform;
use crate::watch::pod_watches::PodWatches;
use crate::watch::virtual_machine_watches::MachineWatches;

/// Everything that reconciles share. What is remembered here is only ever a cache.
pub(crate) struct Context {
    pub(crate) client: Client,
    pub(crate) triggers: Triggers,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) maintenances: Arc<Maintenances>,
    pub(crate) cluster: ClusterWatches,
    pub(crate) leases: NodeLeases,
    pub(crate) pods: PodWatches,
    pub(crate) machines: MachineWatches,
    pub(crate) evictor: Arc<Evictor>,
    pub(crate) platform: Platform,
    pub(crate) announcer: Announcer,
    pub(crate) own_maintenances: OwnWrites<Grouped>,
    pub(crate) own_nodes: Arc<OwnWrites<Node>>,
    pub(crate) memories: Memories,
    /// How many nodes may be unavailable at once.
    pub(crate) max_unavailable: Option<MaxUnavailable>,
    /// Whether nodes tell by their conditions where their maintenance stands.
    pub(crate) node_conditions: bool,
    /// Has them do so.
    pub(crate) conditions: NodeConditions,
    /// The pod that this program runs in, if it knows.
    pub(crate) own_pod: Option<PodReference>,
}

impl Context {
    /// Forgets and stops whatever belongs to maintenances that are gone, however they went.
    pub(crate) fn sweep(&self) {
        let maintenances = self.maintenances.seen();
        let uids: HashSet<&str> =
            maintenances.iter().filter_map(|m| m.maintenance.metadata.uid.as_deref()).collect();
        let nodes: HashSet<&str> = maintenances.iter().map(|m| m.spec.node_name.as_str()).collect();
        self.memories.retain(|uid| uids.contains(uid));
        self.maintenances.retain(|uid| uids.contains(uid));
        self.own_maintenances.retain(|m| m.metadata.uid.as_deref().is_some_and(|uid| uids.contains(uid)));
        self.own_nodes.retain(|node| nodes.contains(&*node.name_any()));
        self.leases.retain(|node| nodes.contains(node));
        self.leave(|node| nodes.contains(node));
        if self.node_conditions && self.maintenances.unsettled_for().is_none() {
            let told = self.cluster.nodes.state_filter(|node| {
                node_conditions::has_maintenance_conditions(node) && !nodes.contains(&*node.name_any())
            });
            for node in told {
                self.conditions.want(&node.name_any(), Vec::new());
            }
        }
    }

    /// Stops all that is under way for nodes but those that `in_maintenance` names.
    pub(crate) fn leave(&self, in_maintenance: impl Fn(&str) -> bool) {
        self.evictor.retain(&in_maintenance);
        self.pods.retain(&in_maintenance);
        self.machines.retain(&in_maintenance);
    }

    /// The maintenance with all of its status that is known, whatever its definition keeps of it.
    pub(crate) fn complete(&self, maintenance: Arc<Grouped>) -> Arc<Grouped> {
        self.recovered(self.maintenances.complete(maintenance))
    }

    /// All maintenances, each complete and as it was last written.
    pub(crate) fn complete_maintenances(&self) -> Vec<Arc<Grouped>> {
        let seen = self.maintenances.seen().into_iter();
        seen.map(|maintenance| self.complete(self.own_maintenances.freshest(maintenance))).collect()
    }

    /// As having begun, where its status has lost that and the record on the node has not.
    fn recovered(&self, maintenance: Arc<Grouped>) -> Arc<Grouped> {
        let node = self.cluster.nodes.get(&ObjectRef::new(&maintenance.spec.node_name));
        let recovered = node.and_then(|node| ownership::recovered(&maintenance, &node));
        match recovered {
            Some(status) => {
                let mut complete = Grouped::clone(&maintenance);
                complete.maintenance.status = Some(status);
                Arc::new(complete)
            }
            None => maintenance,
        }
    }

    /// The API of maintenances of a group.
    pub(crate) fn maintenance_api(&self, group: Group) -> Api<Grouped> {
        Api::all_with(self.client.clone(), &group)
    }

    /// The API of nodes.
    pub(crate) fn node_api(&self) -> Api<Node> {
        Api::all(self.client.clone())
    }
}

/// What this process remembers of each maintenance, by uid.
#[derive(Debug, Default)]
pub(crate) struct Memories {
    by_uid: Mutex<HashMap<String, Memory>>,
}

/// What this process remembers of one maintenance.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Memory {
    /// When it was first seen.
    pub(crate) first_seen: Instant,
    /// It was decided that its node is its own to work on, though its status may not tell yet.
    pub(crate) at_work: bool,
    /// Until when it is not looked at again, whatever happens.
    pub(crate) rest_until: Option<Instant>,
    /// How often its cordon was put back, since that last stood for a while.
    pub(crate) recordons: u32,
    /// When it was last put back.
    pub(crate) recordoned_at: Option<Instant>,
    /// When its status was last written.
    pub(crate) status_written: Option<Timestamp>,
    /// Reconciles that failed, one after another.
    pub(crate) failures: Failures,
    /// The node was given back and our finalizer taken off, though the watch may not have told yet.
    pub(crate) released: bool,
}

impl Memories {
    /// Changes what is remembered of a maintenance and returns it.
    pub(crate) fn update(&self, uid: &str, change: impl FnOnce(&mut Memory)) -> Memory {
        let mut memories = self.by_uid.lock().unwrap_or_else(PoisonError::into_inner);
        let fresh = Memory {
            first_seen: Instant::now(),
            at_work: false,
            rest_until: None,
            recordons: 0,
            recordoned_at: None,
            status_written: None,
            failures: Failures::default(),
            released: false,
        };
        let memory = memories.entry(uid.to_owned()).or_insert(fresh);
        change(memory);
        *memory
    }

    /// Whether it was decided that a maintenance goes to work.
    pub(crate) fn is_at_work(&self, uid: &str) -> bool {
        let memories = self.by_uid.lock().unwrap_or_else(PoisonError::into_inner);
        memories.get(uid).is_some_and(|memory| memory.at_work)
    }

    /// Forgets all maintenances but those that `exists` names.
    pub(crate) fn retain(&self, exists: impl Fn(&str) -> bool) {
        self.by_uid.lock().unwrap_or_else(PoisonError::into_inner).retain(|uid, _| exists(uid));
    }

    /// For how long no new maintenance has been seen.
    pub(crate) fn quiet_for(&self) -> Duration {
        let memories = self.by_uid.lock().unwrap_or_else(PoisonError::into_inner);
        memories.values().map(|memory| memory.first_seen.elapsed()).min().unwrap_or(Duration::MAX)
    }
}
