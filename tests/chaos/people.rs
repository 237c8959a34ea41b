//! People: they begin, suspend and end maintenances, change nodes by hand, open and close disruption budgets, and roll out
//! apps, some of whose pods fit nowhere. They reach the API server directly.
//!
//! Hands on a node in maintenance stop where the suites know a limit: nobody removes the undo record and the marks of a
//! maintenance together, or the record of a plan before its status says that it is planned, because then nothing knows whose
//! marks are left. Nobody sets the label while a maintenance of the node ends, which may restore the node once more.

use std::collections::HashSet;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Node, Taint};
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use kube::{Api, Client, ResourceExt};
use nm_shared::api::names::{EXCLUDE_LABEL, EXCLUDE_VALUE, PLANNED_TAINT, UNDO_ANNOTATION};
use nm_shared::drain::node_patch::{has_drain_taint, is_cordoned};
use nm_shared::{Group, NodeMaintenance, Phase, Suspension};
use nm_tests::cluster::Cluster;
use nm_tests::workload::{Workload, parse, pod_spec};
use serde_json::{Value, json};

use crate::history::{History, Seen};
use crate::node_story::{has_record, is_planned};
use crate::plan::{APPS, Drain, Hand};

/// The mark of people: the key of a label, an annotation and a taint.
const OWN_KEY: &str = "chaos.example.com/by-hand";

/// How many pods each app has.
const REPLICAS: [usize; APPS] = [12, 8, 4];

/// After so many seconds without progress, the rollout of an app has stalled.
const PROGRESS_DEADLINE: u32 = 3;

/// How long somebody waits for a maintenance to be gone before it is created again.
const RESTART_TIMEOUT: Duration = Duration::from_secs(20);

/// The time around a request that clears `spec.suspend`.
#[derive(Debug, Clone)]
pub(crate) struct Resumed {
    pub(crate) name: String,
    pub(crate) sent: Timestamp,
    pub(crate) answered: Timestamp,
}

/// The people, and their workload.
pub(crate) struct People {
    client: Client,
    workload: Workload,
    nodes: Vec<String>,
    /// The resourceVersions of nodes that they wrote.
    versions: Mutex<HashSet<String>>,
    resumed: Mutex<Vec<Resumed>>,
    late_pods: AtomicUsize,
}

/// What a request came to.
fn result<T>(answer: kube::Result<T>) -> String {
    match answer {
        Ok(_) => "done".to_owned(),
        Err(kube::Error::Api(status)) => format!("{} {}", status.code, status.reason),
        Err(error) => error.to_string(),
    }
}

/// The name of an app.
pub(crate) fn app(index: usize) -> String {
    format!("app-{index}")
}

/// The name of a maintenance.
fn maintenance_name(index: usize) -> String {
    format!("chaos-{index}")
}

/// The apps, whose pods run on these nodes only, each with a budget.
pub(crate) async fn create_apps(workload: &Workload, nodes: &[String]) {
    let terms: Vec<Value> = nodes
        .iter()
        .map(|node| json!({"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node]}]}))
        .collect();
    let mut spec = pod_spec();
    spec["affinity"] = json!({"nodeAffinity": {
        "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms},
    }});
    for (index, replicas) in REPLICAS.into_iter().enumerate() {
        workload.deployment_of(&app(index), replicas, &spec).await;
        // The smallest app needs all of its pods, so that they are replaced first.
        let needed = if index + 1 == APPS { replicas } else { replicas / 2 };
        workload.budget(&app(index), needed).await;
        // A restart then terminates no pod before its replacement is Ready.
        let one_more = Patch::Merge(json!({"spec": {"strategy": {"rollingUpdate": {"maxUnavailable": 0}}}}));
        workload.deployments().patch(&app(index), &PatchParams::default(), &one_more).await.unwrap();
    }
}

impl People {
    pub(crate) fn new(cluster: &Cluster, workload: Workload, nodes: Vec<String>) -> Self {
        Self {
            client: cluster.client.clone(),
            workload,
            nodes,
            versions: Mutex::default(),
            resumed: Mutex::default(),
            late_pods: AtomicUsize::new(0),
        }
    }

    /// The name of a node.
    pub(crate) fn node(&self, index: usize) -> &str {
        &self.nodes[index]
    }

    /// The resourceVersions of nodes that people wrote.
    pub(crate) fn versions(&self) -> HashSet<String> {
        self.versions.lock().unwrap().clone()
    }

    /// When maintenances were resumed.
    pub(crate) fn resumed(&self) -> Vec<Resumed> {
        self.resumed.lock().unwrap().clone()
    }

    /// Creates a maintenance. One that exists already stays as it is.
    pub(crate) async fn start(&self, name: usize, node: usize, suspend: bool, drain: Drain) -> String {
        let drain = match drain {
            Drain::Default => Value::Null,
            Drain::ShortGrace => json!({"gracePeriodSeconds": 1}),
            Drain::Ordered => json!({"order": "PriorityAscending"}),
            Drain::Surge => json!({"surge": "WhenBlocked"}),
        };
        result(self.create(&maintenance_name(name), node, suspend, drain).await)
    }

    async fn create(
        &self,
        name: &str,
        node: usize,
        suspend: bool,
        drain: Value,
    ) -> kube::Result<NodeMaintenance> {
        let spec = parse(json!({"nodeName": self.nodes[node], "suspend": suspend, "drain": drain}));
        let maintenance = NodeMaintenance::new(name, spec);
        self.maintenances().create(&PostParams::default(), &maintenance).await
    }

    pub(crate) async fn stop(&self, name: usize) -> String {
        result(self.maintenances().delete(&maintenance_name(name), &DeleteParams::default()).await)
    }

    /// Deletes a maintenance, and creates it again once it is gone, perhaps for another node.
    pub(crate) async fn restart(&self, history: &History, name: usize, node: usize) -> String {
        let deleted = self.stop(name).await;
        if deleted != "done" {
            return deleted;
        }
        let name = maintenance_name(name);
        let is_gone = |seen: &Seen| match seen.maintenances.named(&name) {
            None => Ok(()),
            Some(_) => Err("not gone in time".to_owned()),
        };
        match history.until(RESTART_TIMEOUT, is_gone).await {
            Ok(()) => result(self.create(&name, node, false, Value::Null).await),
            Err(why) => why,
        }
    }

    pub(crate) async fn suspend(&self, name: usize, suspend: bool) -> String {
        self.set_suspend(&maintenance_name(name), suspend).await
    }

    async fn set_suspend(&self, name: &str, suspend: bool) -> String {
        let patch = Patch::Merge(json!({"spec": {"suspend": suspend}}));
        let sent = Timestamp::now();
        let answer = self.maintenances().patch(name, &PatchParams::default(), &patch).await;
        if !suspend {
            let resumed = Resumed { name: name.to_owned(), sent, answered: Timestamp::now() };
            self.resumed.lock().unwrap().push(resumed);
        }
        result(answer)
    }

    /// Clears `spec.suspend` of every maintenance.
    pub(crate) async fn resume_all(&self, history: &History) {
        for name in names_of_all(history) {
            self.set_suspend(&name, false).await;
        }
    }

    /// Deletes every maintenance.
    pub(crate) async fn stop_all(&self, history: &History) {
        for name in names_of_all(history) {
            let _ = self.maintenances().delete(&name, &DeleteParams::default()).await;
        }
    }

    fn maintenances(&self) -> Api<NodeMaintenance> {
        Api::all(self.client.clone())
    }

    fn nodes(&self) -> Api<Node> {
        Api::all(self.client.clone())
    }

    /// A budget allows the disruption of half of its pods, or of none.
    pub(crate) async fn set_budget(&self, index: usize, open: bool) -> String {
        let replicas = REPLICAS[index];
        self.patch_budget(index, if open { replicas / 2 } else { replicas }).await
    }

    /// No budget blocks any more, even if all pods of an app wait for a node.
    pub(crate) async fn open_all_budgets(&self) {
        for index in 0..APPS {
            self.patch_budget(index, 0).await;
        }
    }

    async fn patch_budget(&self, index: usize, min_available: usize) -> String {
        let patch = Patch::Merge(json!({"spec": {"minAvailable": min_available}}));
        result(self.workload.budgets().patch(&app(index), &PatchParams::default(), &patch).await)
    }

    /// The new pods of an app fit nowhere, or run again.
    pub(crate) async fn set_rollout(&self, index: usize, stalls: bool) -> String {
        // No node has this label.
        let label = if stalls { json!("set") } else { Value::Null };
        let pods = json!({"spec": {"nodeSelector": {OWN_KEY: label}}});
        let patch =
            Patch::Merge(json!({"spec": {"progressDeadlineSeconds": PROGRESS_DEADLINE, "template": pods}}));
        result(self.workload.deployments().patch(&app(index), &PatchParams::default(), &patch).await)
    }

    /// No rollout is kept from its end any more.
    pub(crate) async fn end_all_rollouts(&self) {
        for index in 0..APPS {
            self.set_rollout(index, false).await;
        }
    }

    /// Binds a pod to a node, whatever goes on there.
    pub(crate) async fn late_pod(&self, node: usize) -> String {
        let name = format!("late-{}", self.late_pods.fetch_add(1, Ordering::Relaxed));
        let mut spec = pod_spec();
        spec["nodeName"] = json!(self.nodes[node]);
        let pod = parse(json!({"metadata": {"name": name}, "spec": spec}));
        result(self.workload.pods().create(&PostParams::default(), &pod).await)
    }

    /// Changes a node by hand, as it was last seen.
    pub(crate) async fn hand(&self, history: &History, node: usize, hand: Hand) -> String {
        let name = &self.nodes[node];
        let Some(node) = history.seen().nodes.named(name).cloned() else { return "no node".to_owned() };
        if hand == Hand::StripRecord && is_planned(&node) && !is_reported_as_planned(&history.seen(), name) {
            return "does not apply".to_owned();
        }
        if hand == Hand::SetLabel && has_maintenance(&history.seen(), name) {
            return "does not apply".to_owned();
        }
        let Some(mut patch) = change(&node, hand) else { return "does not apply".to_owned() };
        // Only the node that was looked at is changed.
        patch["metadata"]["resourceVersion"] = json!(node.metadata.resource_version);
        let answer = self.nodes().patch(name, &PatchParams::default(), &Patch::Merge(patch)).await;
        // A patch that changes nothing is answered with the version of before, which somebody else wrote.
        if let Ok(changed) = &answer
            && changed.metadata.resource_version != node.metadata.resource_version
        {
            self.versions.lock().unwrap().extend(changed.resource_version());
        }
        result(answer)
    }

    /// Removes what people did to the nodes.
    ///
    /// # Errors
    /// Whatever the API server answers.
    pub(crate) async fn clean_up(&self) -> kube::Result<()> {
        for name in &self.nodes {
            let marks = json!({
                "metadata": {
                    "labels": {OWN_KEY: null, EXCLUDE_LABEL: null},
                    "annotations": {OWN_KEY: null},
                },
                "spec": {"unschedulable": null, "taints": null},
            });
            self.nodes().patch(name, &PatchParams::default(), &Patch::Merge(marks)).await?;
        }
        Ok(())
    }
}

/// Whether a status says that a maintenance of the node is planned.
fn is_reported_as_planned(seen: &Seen, node: &str) -> bool {
    let of_node = seen.maintenances.present().filter(|maintenance| maintenance.spec.node_name == node);
    of_node.filter_map(|maintenance| maintenance.status.as_ref()).any(|status| {
        status.phase == Some(Phase::Pending) && Suspension::in_status(status) == Some(Suspension::Planned)
    })
}

fn has_maintenance(seen: &Seen, node: &str) -> bool {
    seen.maintenances.present().any(|maintenance| maintenance.spec.node_name == node)
}

fn names_of_all(history: &History) -> Vec<String> {
    history.seen().maintenances.present().map(ResourceExt::name_any).collect()
}

/// The merge patch of a hand on a node; none if nobody would do that now.
fn change(node: &Node, hand: Hand) -> Option<Value> {
    let group = Group::Medik8s;
    let in_maintenance = has_record(node);
    let labels = node.metadata.labels.clone().unwrap_or_default();
    let label = labels.get(EXCLUDE_LABEL);
    let is_free = !in_maintenance && !has_drain_taint(node, group);
    let taints = node.spec.as_ref().and_then(|spec| spec.taints.clone()).unwrap_or_default();
    let is_tainted = || taints.iter().any(|taint| taint.key == PLANNED_TAINT);
    let known = in_maintenance || is_free;
    match hand {
        Hand::Cordon => known.then(|| json!({"spec": {"unschedulable": true}})),
        Hand::Uncordon => known.then(|| json!({"spec": {"unschedulable": null}})),
        Hand::StripTaints => in_maintenance.then(|| {
            let kept: Vec<&Taint> = taints.iter().filter(|taint| taint.key != group.drain_taint()).collect();
            json!({"spec": {"taints": kept}})
        }),
        Hand::StripLabel => in_maintenance.then(|| json!({"metadata": {"labels": {EXCLUDE_LABEL: null}}})),
        Hand::StripRecord => (is_cordoned(node, group) || is_planned(node) && is_tainted())
            .then(|| json!({"metadata": {"annotations": {UNDO_ANNOTATION: null}}})),
        Hand::SetLabel => is_free.then(|| {
            let value = if label.is_none() { json!(EXCLUDE_VALUE) } else { Value::Null };
            json!({"metadata": {"labels": {EXCLUDE_LABEL: value}}})
        }),
        Hand::OwnMarks => {
            let is_set = labels.contains_key(OWN_KEY);
            let mut all: Vec<Taint> = taints.into_iter().filter(|taint| taint.key != OWN_KEY).collect();
            let value = if is_set { Value::Null } else { json!("set") };
            if !is_set {
                all.push(Taint {
                    key: OWN_KEY.to_owned(),
                    effect: "PreferNoSchedule".to_owned(),
                    ..Taint::default()
                });
            }
            Some(json!({
                "metadata": {"labels": {OWN_KEY: value}, "annotations": {OWN_KEY: value}},
                "spec": {"taints": all},
            }))
        }
    }
}
