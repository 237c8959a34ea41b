//! The `DaemonSet` controller: one pod on every node that matches the template, cordoned or not.
//!
//! A change of a pod or node concerns only that node, so on a large cluster an event costs little. Pods of an older
//! template stay until something else terminates them.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use serde_json::{Value, json};

use crate::cluster::catalog::resource::{DAEMON_SETS, NODES, PODS};
use crate::cluster::registry::Propagation;
use crate::cluster::store::{Change, Collection, Key, Object};
use crate::controllers::engine::context::ReconcileContext;
use crate::controllers::engine::controller::{Controller, Requeue, Watches, sync_queue};
use crate::controllers::event::Event;
use crate::controllers::nodes::node_fit;
use crate::controllers::workloads::pod_summary::PodSummary;
use crate::controllers::workloads::pod_template::{self, PodName};
use crate::controllers::workloads::template_hash::template_hash;
use crate::model::pod;

/// The tolerations of every pod of a `DaemonSet`.
const TOLERATED: [(&str, &str); 6] = [
    ("not-ready", "NoExecute"),
    ("unreachable", "NoExecute"),
    ("disk-pressure", "NoSchedule"),
    ("memory-pressure", "NoSchedule"),
    ("pid-pressure", "NoSchedule"),
    ("unschedulable", "NoSchedule"),
];

/// Which nodes of a set to reconcile.
#[derive(Debug)]
enum AffectedNodes {
    Everywhere,
    On(BTreeSet<String>),
}

/// A set's pods, and the nodes that should have one.
#[derive(Debug, Default)]
struct DaemonSetNodes {
    pods: HashMap<String, BTreeMap<String, PodSummary>>,
    wanted_on: BTreeSet<String>,
}

/// The `DaemonSet` controller.
#[derive(Debug, Default)]
pub(crate) struct DaemonSets {
    fleets: HashMap<String, DaemonSetNodes>,
    sets: BTreeSet<Key>,
    dirty: BTreeMap<Key, AffectedNodes>,
}

impl DaemonSets {
    fn observe_set(&mut self, change: &Change) {
        if let Some(set) = &change.after {
            let key = Key::of(set);
            self.sets.insert(key.clone());
            let same = |before: &Object| before["spec"] == set["spec"];
            if !change.before.as_ref().is_some_and(same) {
                self.dirty.insert(key, AffectedNodes::Everywhere);
            }
        } else if let Some(set) = &change.before {
            self.sets.remove(&Key::of(set));
            self.fleets.remove(pod::uid(set));
        }
    }

    fn observe_node(&mut self, change: &Change) {
        let Some(node) = change.after.as_ref().or(change.before.as_ref()) else {
            return;
        };
        if let (Some(before), Some(after)) = (&change.before, &change.after)
            && before["spec"] == after["spec"]
            && before["metadata"]["labels"] == after["metadata"]["labels"]
        {
            return;
        }
        for set in self.sets.clone() {
            self.look_at(set, pod::name(node));
        }
    }

    fn observe_pod(&mut self, change: &Change) {
        for (object, is_there) in [(&change.before, false), (&change.after, true)] {
            let Some(pod) = object else { continue };
            let owner = pod::controller(pod).filter(|owner| owner["kind"] == "DaemonSet");
            let Some((owner, node)) = owner.zip(node_of(pod)) else {
                continue;
            };
            let text = |field: &str| owner[field].as_str().unwrap_or_default().to_owned();
            let pods = self.fleets.entry(text("uid")).or_default().pods.entry(node.clone()).or_default();
            if is_there {
                pods.insert(pod::name(pod).to_owned(), PodSummary::of(pod, None));
            } else {
                pods.remove(pod::name(pod));
            }
            self.look_at(Key::new(pod::namespace(pod), text("name")), &node);
        }
    }

    fn look_at(&mut self, set: Key, node: &str) {
        let scope = self.dirty.entry(set).or_insert_with(|| AffectedNodes::On(BTreeSet::new()));
        if let AffectedNodes::On(nodes) = scope {
            nodes.insert(node.to_owned());
        }
    }

    fn reconcile(&mut self, ctx: &mut ReconcileContext<'_>, key: &Key, scope: AffectedNodes) {
        let Some(set) = ctx.get(&DAEMON_SETS, key) else {
            return;
        };
        let fleet = self.fleets.entry(pod::uid(&set).to_owned()).or_default();
        let mut nodes = match scope {
            AffectedNodes::On(nodes) => nodes,
            AffectedNodes::Everywhere => {
                let mut nodes: BTreeSet<String> = fleet.pods.keys().cloned().collect();
                let all = ctx.state.list(&NODES, None);
                nodes.extend(all.map(|node| pod::name(&node).to_owned()));
                nodes
            }
        };
        let template = pod_of(&set);
        while let Some(node) = nodes.pop_first() {
            if ctx.is_full() {
                nodes.insert(node);
                break;
            }
            fleet.settle(ctx, &set, &template, &node);
        }
        fleet.report(ctx, &set);
        for node in nodes {
            self.look_at(key.clone(), &node);
        }
    }
}

impl DaemonSetNodes {
    /// Ensures that the set's pod is on a node if it should be, and only then.
    fn settle(&mut self, ctx: &mut ReconcileContext<'_>, set: &Value, template: &Value, name: &str) {
        let pods = self.pods.get(name).into_iter().flatten();
        let mut live: Vec<(&String, &PodSummary)> = pods.filter(|(_, pod)| !pod.terminating).collect();
        let node = ctx.get(&NODES, &Key::cluster(name));
        let fits = |check: fn(&Value, &Value) -> Result<(), node_fit::UnfitReason>| {
            node.as_ref().is_some_and(|node| check(template, node).is_ok())
        };
        if fits(node_fit::check) {
            self.wanted_on.insert(name.to_owned());
        } else {
            self.wanted_on.remove(name);
        }
        if pod::is_terminating(set) {
            return;
        }
        if live.is_empty()
            && self.wanted_on.contains(name)
            && let Some(pod) = ctx.create(&PODS, pinned(template, name))
        {
            ctx.record(&Event::created("daemonset-controller", set, &pod));
        }
        // One healthy pod may stay. Finished pods are replaced.
        live.sort_by_key(|(_, pod)| (pod.finished, !pod.ready));
        let keeps = fits(node_fit::check_staying) && live.first().is_some_and(|(_, pod)| !pod.finished);
        for (pod, _) in live.into_iter().skip(usize::from(keeps)) {
            if let Some(pod) = ctx.get(&PODS, &Key::new(pod::namespace(set), &**pod)) {
                ctx.delete(&PODS, &pod, None, Propagation::Background);
            }
        }
    }

    fn report(&self, ctx: &mut ReconcileContext<'_>, set: &Object) {
        let (mut current, mut ready, mut misplaced) = (0, 0, 0);
        for (node, pods) in &self.pods {
            let active = || pods.values().filter(|pod| pod.is_active());
            if active().next().is_none() {
                continue;
            }
            if self.wanted_on.contains(node) {
                current += 1;
                ready += usize::from(active().any(|pod| pod.ready));
            } else {
                misplaced += 1;
            }
        }
        let desired = self.wanted_on.len();
        let mut status = json!({
            "currentNumberScheduled": current, "desiredNumberScheduled": desired, "numberReady": ready,
            "numberAvailable": ready, "numberMisscheduled": misplaced, "updatedNumberScheduled": current,
            "observedGeneration": set["metadata"]["generation"],
        });
        if desired > ready {
            status["numberUnavailable"] = json!(desired - ready);
        }
        ctx.edit_status(&DAEMON_SETS, set, |set| set["status"] = status);
    }
}

/// The node of a pod or, before it is bound, the node that it requests.
fn node_of(pod: &Value) -> Option<String> {
    pod::node(pod).map(str::to_owned).or_else(|| node_fit::named_node(pod))
}

/// The set's pod without a node, with the tolerations of every `DaemonSet` pod.
fn pod_of(set: &Value) -> Value {
    let mut pod = pod_template::pod(set, PodName::Generated);
    pod["metadata"]["labels"]["controller-revision-hash"] = json!(template_hash(&set["spec"]["template"]));
    let mut tolerations = pod["spec"]["tolerations"].as_array().cloned().unwrap_or_default();
    let on_host = (pod["spec"]["hostNetwork"] == true).then_some(("network-unavailable", "NoSchedule"));
    for (condition, effect) in TOLERATED.into_iter().chain(on_host) {
        let toleration = json!({
            "key": format!("node.kubernetes.io/{condition}"), "operator": "Exists", "effect": effect,
        });
        // A toleration of the template, which may be limited in time, is replaced by the permanent one.
        let same = |other: &Value| {
            ["key", "operator", "effect", "value"].iter().all(|field| other[*field] == toleration[*field])
        };
        match tolerations.iter_mut().find(|other| same(other)) {
            Some(other) => *other = toleration,
            None => tolerations.push(toleration),
        }
    }
    pod["spec"]["tolerations"] = json!(tolerations);
    pod
}

/// The pod for one node. The scheduler binds it.
fn pinned(template: &Value, node: &str) -> Value {
    let mut pod = template.clone();
    let fields = json!([{"key": "metadata.name", "operator": "In", "values": [node]}]);
    let required =
        &mut pod["spec"]["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"];
    match required["nodeSelectorTerms"].as_array_mut() {
        Some(terms) => {
            for term in terms {
                term["matchFields"] = fields.clone();
            }
        }
        None => *required = json!({"nodeSelectorTerms": [{"matchFields": fields}]}),
    }
    pod
}

impl Controller for DaemonSets {
    fn watches(&self) -> Watches {
        const WATCHED: &[Collection] = &[DAEMON_SETS, NODES, PODS];
        Watches::These(WATCHED)
    }

    fn forget(&mut self, collection: &Collection) {
        if *collection == PODS {
            for fleet in self.fleets.values_mut() {
                fleet.pods.clear();
            }
        }
        for set in &self.sets {
            self.dirty.insert(set.clone(), AffectedNodes::Everywhere);
        }
    }

    fn observe(&mut self, collection: &Collection, change: &Change) {
        if *collection == PODS {
            self.observe_pod(change);
        } else if *collection == NODES {
            self.observe_node(change);
        } else {
            self.observe_set(change);
        }
    }

    fn sync(&mut self, ctx: &mut ReconcileContext<'_>) -> Requeue {
        sync_queue(
            self,
            ctx,
            |this| this.dirty.pop_first(),
            |this, ctx, (key, scope)| this.reconcile(ctx, &key, scope),
        )
    }
}
