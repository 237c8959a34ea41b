//! The scheduler: it binds every pod to the best node among those that the pod fits, in the order in which the pods were
//! created. `node_fit` and the requests of the pod determine where it fits, and `node_score` which of these is best.
//!
//! A pod that fits no node gets a `PodScheduled` condition and is retried when a node changes or a pod leaves a node.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use serde_json::{Value, json};

use crate::cluster::catalog::resource::{NODES, PODS};
use crate::cluster::store::{Change, Collection, Key, Object};
use crate::controllers::engine::context::ReconcileContext;
use crate::controllers::engine::controller::{Controller, Requeue, Watches};
use crate::controllers::engine::work_queue::WorkQueue;
use crate::controllers::event::{Author, Event};
use crate::controllers::nodes::node_fit::{self, UnfitReason};
use crate::controllers::nodes::node_loads::{Demand, NodeLoad, NodeLoads};
use crate::controllers::nodes::node_score;
use crate::model::resources::Resources;
use crate::model::{condition, pod};

/// How many nodes that a pod fits are scored, the emptiest of all. kube-scheduler scores no fewer.
const SCORED_NODES: usize = 100;

/// The scheduler's queues and the nodes that it knows.
#[derive(Debug, Default)]
pub(crate) struct Scheduler {
    loads: NodeLoads,
    queue: WorkQueue,
    /// Pods that fitted no node.
    unschedulable: BTreeSet<Key>,
}

impl Scheduler {
    fn observe_node(&mut self, change: &Change) {
        let Some(node) = change.after.as_ref().or(change.before.as_ref()) else {
            return;
        };
        self.loads.set_node(pod::name(node), change.after.clone());
        if matters(change) {
            self.retry();
        }
    }

    fn observe_pod(&mut self, change: &Change) {
        let Some(object) = change.after.as_ref().or(change.before.as_ref()) else {
            return;
        };
        let key = Key::of(object);
        let after = change.after.as_deref();
        let placed_on = after.filter(|pod| !pod::is_finished(pod)).and_then(pod::node);
        if self.loads.place(&key, placed_on, || Demand::of(object)) {
            self.retry();
        }
        if !after.is_some_and(wants_a_node) {
            self.queue.leave(&key);
            self.unschedulable.remove(&key);
        } else if !self.unschedulable.contains(&key) {
            self.queue.join(key);
        }
    }

    fn retry(&mut self) {
        for key in std::mem::take(&mut self.unschedulable) {
            self.queue.join(key);
        }
    }

    fn choose(&self, pod: &Value, demand: &Demand) -> Option<String> {
        let fits_every_open_node = node_fit::fits_every_open_node(pod);
        let fits = |load: &NodeLoad<'_>| {
            let node = load.capacity;
            load.short_of(demand).next().is_none()
                && (node.is_open && fits_every_open_node || node_fit::check(pod, &node.node).is_ok())
        };
        let load = if let Some(name) = node_fit::named_node(pod) {
            self.loads.node(&name).filter(fits)
        } else {
            node_score::best(pod, demand, self.loads.emptiest_first().filter(fits).take(SCORED_NODES))
        };
        load.map(|load| pod::name(&load.capacity.node).to_owned())
    }

    /// The message of the condition of a pod that fits no node.
    fn explain(&self, pod: &Value, demand: &Demand) -> String {
        let mut reasons: BTreeMap<UnfitReason, usize> = BTreeMap::new();
        for load in self.loads.emptiest_first() {
            let lacking = |name: &str| UnfitReason::Insufficient(name.to_owned());
            let unfit: Vec<UnfitReason> = match node_fit::check(pod, &load.capacity.node) {
                Err(reason) => vec![reason],
                Ok(()) => load.short_of(demand).map(lacking).collect(),
            };
            for reason in unfit {
                *reasons.entry(reason).or_default() += 1;
            }
        }
        let counted: Vec<String> =
            reasons.iter().map(|(reason, nodes)| format!("{nodes} {reason}")).collect();
        format!("0/{} nodes are available: {}.", self.loads.len(), counted.join(", "))
    }

    fn give_up(&mut self, ctx: &mut ReconcileContext<'_>, pod: &Object, because: &str) {
        let now = ctx.now;
        ctx.edit_status(&PODS, pod, |pod| {
            let condition = json!({
                "type": "PodScheduled", "status": "False", "lastProbeTime": null,
                "reason": "Unschedulable", "message": because,
            });
            condition::set(&mut pod["status"], condition, now);
        });
        self.unschedulable.insert(Key::of(pod));
    }
}

fn assigned<'a>(pod: &'a Value, node: &str) -> Event<'a> {
    let (namespace, name) = (pod::namespace(pod), pod::name(pod));
    let message = format!("Successfully assigned {namespace}/{name} to {node}");
    Event { author: Author::Scheduler, about: pod, reason: "Scheduled", message }
}

/// Whether a node's change can make a pod fit.
fn matters(change: &Change) -> bool {
    let (Some(before), Some(after)) = (&change.before, &change.after) else {
        return true;
    };
    before["spec"] != after["spec"]
        || before["metadata"]["labels"] != after["metadata"]["labels"]
        || before["status"]["allocatable"] != after["status"]["allocatable"]
        || before["status"]["capacity"] != after["status"]["capacity"]
}

fn wants_a_node(pod: &Value) -> bool {
    let scheduler = pod["spec"]["schedulerName"].as_str();
    let gates = pod["spec"]["schedulingGates"].as_array();
    pod::node(pod).is_none()
        && pod::is_active(pod)
        && scheduler.is_none_or(|name| name == "default-scheduler")
        && gates.is_none_or(Vec::is_empty)
}

/// The fields of a pod that determine where it fits, other than its requests.
fn constraints(pod: &Value) -> String {
    let spec = &pod["spec"];
    json!([spec["nodeSelector"], spec["affinity"]["nodeAffinity"], spec["tolerations"]]).to_string()
}

impl Controller for Scheduler {
    fn watches(&self) -> Watches {
        const WATCHED: &[Collection] = &[NODES, PODS];
        Watches::These(WATCHED)
    }

    fn forget(&mut self, collection: &Collection) {
        if *collection == NODES {
            self.loads.forget_nodes();
        } else {
            self.loads.forget_pods();
            self.queue.clear();
            self.unschedulable.clear();
        }
    }

    fn observe(&mut self, collection: &Collection, change: &Change) {
        if *collection == NODES {
            self.observe_node(change);
        } else {
            self.observe_pod(change);
        }
    }

    fn sync(&mut self, ctx: &mut ReconcileContext<'_>) -> Requeue {
        // Capacity only shrinks during a reconcile, so a pod that fitted nowhere is not tried twice.
        let mut hopeless: HashMap<(String, Resources), String> = HashMap::new();
        while !ctx.is_full() {
            let Some(key) = self.queue.pop() else {
                return Requeue::Change;
            };
            let Some(pod) = ctx.get(&PODS, &key).filter(|pod| wants_a_node(pod)) else {
                continue;
            };
            let demand = Demand::of(&pod);
            let needs = (constraints(&pod), demand.requests.clone());
            if let Some(because) = hopeless.get(&needs) {
                self.give_up(ctx, &pod, because);
            } else if let Some(node) = self.choose(&pod, &demand) {
                if ctx.bind(&key, &node) {
                    self.loads.place(&key, Some(&node), || demand);
                    ctx.record(&assigned(&pod, &node));
                }
            } else {
                let because = self.explain(&pod, &demand);
                self.give_up(ctx, &pod, &because);
                hopeless.insert(needs, because);
            }
        }
        Requeue::now_if(!self.queue.is_empty())
    }
}
