//! Admission of maintenances: the refusals of the medik8s node-maintenance-operator's webhook, to the letter, and warnings
//! about what a drain would delete.

pub mod certificate_renewal;
pub mod review;

use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Node;

use crate::api::hold::Hook;
use crate::api::maintenance::{DrainSpec, NodeMaintenance};
use crate::cluster::node;
use crate::cluster::pod::{self, DrainPod};
use crate::drain::completion::validate_completion;
use crate::drain::plan::{DaemonSets, DrainPlan, PlannedPod, Warning};
use crate::gate::etcd::Etcd;
use crate::gate::quorum;
use crate::gate::{overrides_quorum, ownership};

/// The number of pods that a warning names before "and N more".
const MAX_NAMED_PODS: usize = 3;

/// The cluster at the time of a request.
#[derive(Debug, Clone, Default)]
pub struct LiveState {
    /// All nodes.
    pub nodes: Vec<Node>,
    /// The nodes that are in maintenance or about to be, one entry for each maintenance.
    pub in_maintenance: Vec<String>,
    /// The nodes among them that are in service: their maintenance is only planned.
    pub in_service: Vec<String>,
    /// The pods on the node.
    pub pods: Vec<Arc<DrainPod>>,
    /// The cluster's `DaemonSet`s.
    pub daemon_sets: DaemonSets,
    /// Where etcd runs, and what guards it.
    pub etcd: Etcd,
}

impl LiveState {
    /// Takes in the other maintenances, and the nodes that have one of an older group.
    pub fn set_maintenances<'a>(
        &mut self,
        others: impl Iterator<Item = &'a NodeMaintenance> + Clone,
        older: Vec<String>,
    ) {
        let node = |other: &NodeMaintenance| other.spec.node_name.clone();
        // One that only others keep, such as a roll that was abandoned, has no node any more.
        let others = others.filter(|other| !ownership::is_released(other));
        self.in_service = others.clone().filter(|other| ownership::is_planned(other)).map(node).collect();
        self.in_maintenance = others.map(node).chain(older).collect();
    }
}

/// The decision.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AdmissionDecision {
    /// Why the request is refused; none if it is allowed.
    pub refusal: Option<String>,
    /// Warnings, which kubectl prints.
    pub warnings: Vec<String>,
}

impl AdmissionDecision {
    fn refused(refusal: String) -> Self {
        Self { refusal: Some(refusal), warnings: Vec::new() }
    }
}

/// Decides about a creation.
pub fn create(maintenance: &NodeMaintenance, live: &LiveState, now: Timestamp) -> AdmissionDecision {
    let name = &maintenance.spec.node_name;
    let Some(node) = live.nodes.iter().find(|node| node::name(node) == name) else {
        return AdmissionDecision::refused(format!("invalid nodeName, no node with name {name} found"));
    };
    if live.in_maintenance.contains(name) {
        return AdmissionDecision::refused(format!(
            "invalid nodeName, a NodeMaintenance for node {name} already exists"
        ));
    }
    // A planned maintenance is judged when it is resumed.
    let mut decision =
        if maintenance.spec.suspend { AdmissionDecision::default() } else { begin(maintenance, node, live) };
    if decision.refusal.is_none() {
        decision.warnings.extend(drain_warnings(maintenance, live, now));
        decision.warnings.extend(Hook::warning(&maintenance.metadata));
    }
    decision
}

/// Decides about the beginning of a maintenance of this node.
fn begin(maintenance: &NodeMaintenance, node: &Node, live: &LiveState) -> AdmissionDecision {
    let in_maintenance = |other: &str| {
        live.in_maintenance.iter().any(|node| node == other)
            && !live.in_service.iter().any(|node| node == other)
    };
    match quorum::violation(node, &live.nodes, in_maintenance, &live.etcd) {
        Some(violation) if overrides_quorum(maintenance) => {
            AdmissionDecision { refusal: None, warnings: vec![violation] }
        }
        Some(violation) => AdmissionDecision::refused(violation),
        None => AdmissionDecision::default(),
    }
}

/// Whether the change starts a planned maintenance, which is decided like a creation.
pub fn begins(before: &NodeMaintenance, after: &NodeMaintenance) -> bool {
    ownership::is_planned(before) && !after.spec.suspend && before.metadata.deletion_timestamp.is_none()
}

/// Decides about a change.
pub fn update(
    before: &NodeMaintenance,
    after: &NodeMaintenance,
    live: &LiveState,
    now: Timestamp,
) -> AdmissionDecision {
    if before.spec.node_name != after.spec.node_name {
        return AdmissionDecision::refused("updating spec.NodeName isn't allowed".to_owned());
    }
    let name = &after.spec.node_name;
    let node = live.nodes.iter().find(|node| node::name(node) == name && begins(before, after));
    let mut decision = node.map(|node| begin(after, node, live)).unwrap_or_default();
    if decision.refusal.is_none() && before.spec.drain != after.spec.drain {
        decision.warnings.extend(drain_warnings(after, live, now));
    }
    if decision.refusal.is_none() && before.metadata.annotations != after.metadata.annotations {
        decision.warnings.extend(Hook::warning(&after.metadata));
    }
    decision
}

/// Warnings about what the drain would delete, and about a selector that selects nothing.
fn drain_warnings(maintenance: &NodeMaintenance, live: &LiveState, now: Timestamp) -> Vec<String> {
    let spec = maintenance.spec.drain.clone().unwrap_or_default();
    let mut warnings: Vec<String> = spec.warning().map(str::to_owned).into_iter().collect();
    let plan = DrainPlan::new(live.pods.iter().cloned(), &spec, &live.daemon_sets, now);
    let plan = match plan.and_then(|plan| validate_completion(&spec).map(|()| plan)) {
        Ok(plan) => plan,
        Err(error) => {
            warnings.push(error.to_string());
            return warnings;
        }
    };
    let unmanaged: Vec<&PlannedPod> =
        plan.pending().filter(|planned| planned.warnings.contains(&Warning::Unmanaged)).collect();
    if spec.force && !unmanaged.is_empty() {
        warnings.push(format!("{}: {}", Warning::Unmanaged.as_str(), names(&unmanaged)));
    }
    if selects_nothing(&spec, &plan, live, now) {
        let name = &maintenance.spec.node_name;
        warnings.push(format!(
            "spec.drain.podSelector selects none of the pods that would be moved away from node {name}"
        ));
    }
    warnings
}

/// Whether there are pods to move, but the selector excludes all of them.
fn selects_nothing(spec: &DrainSpec, plan: &DrainPlan, live: &LiveState, now: Timestamp) -> bool {
    if spec.pod_selector.is_none() || plan.pending().next().is_some() {
        return false;
    }
    let all = DrainSpec { pod_selector: None, ..spec.clone() };
    let plan = DrainPlan::new(live.pods.iter().cloned(), &all, &live.daemon_sets, now);
    plan.is_ok_and(|plan| plan.pending().next().is_some())
}

fn names(planned: &[&PlannedPod]) -> String {
    let named: Vec<String> =
        planned.iter().take(MAX_NAMED_PODS).map(|planned| pod::reference(&planned.pod).to_string()).collect();
    let more = planned.len().saturating_sub(MAX_NAMED_PODS);
    let ending = if more > 0 { format!(" and {more} more") } else { String::new() };
    named.join(", ") + &ending
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::names::FINALIZER;
    use crate::api::names::OVERRIDE_QUORUM_ANNOTATION;
    use serde_json::{Value, json};

    fn maintenance(drain: &Value, annotations: &Value) -> NodeMaintenance {
        serde_json::from_value(json!({
            "apiVersion": "nodemaintenance.medik8s.io/v1beta1", "kind": "NodeMaintenance",
            "metadata": {"name": "m", "annotations": annotations}, "spec": {"nodeName": "n1", "drain": drain},
        }))
        .unwrap()
    }

    fn node(name: &str, labels: &Value) -> Node {
        serde_json::from_value(json!({"metadata": {"name": name, "labels": labels}})).unwrap()
    }

    fn live(pods: &[&str]) -> LiveState {
        let pod = |name: &&str| {
            Arc::new(
                serde_json::from_value(json!({"metadata": {"namespace": "ns", "name": name, "uid": name}}))
                    .unwrap(),
            )
        };
        LiveState {
            nodes: vec![node("n1", &json!({})), node("n2", &json!({}))],
            pods: pods.iter().map(pod).collect(),
            ..LiveState::default()
        }
    }

    fn refusal(live: &LiveState) -> Option<String> {
        create(&maintenance(&Value::Null, &json!({})), live, Timestamp::UNIX_EPOCH).refusal
    }

    // Cases 7 and 8.
    #[test]
    fn a_node_must_exist_and_have_no_other_maintenance() {
        assert_eq!(refusal(&LiveState::default()).unwrap(), "invalid nodeName, no node with name n1 found");
        let taken = LiveState { in_maintenance: vec!["n1".to_owned()], ..live(&[]) };
        assert_eq!(
            refusal(&taken).unwrap(),
            "invalid nodeName, a NodeMaintenance for node n1 already exists"
        );
        let other = LiveState { in_maintenance: vec!["n2".to_owned()], ..live(&[]) };
        assert_eq!(refusal(&other), None);
    }

    #[test]
    fn a_change_to_a_grace_period_of_0_has_a_warning() {
        let (before, after) = (
            maintenance(&Value::Null, &json!({})),
            maintenance(&json!({"gracePeriodSeconds": 0}), &json!({})),
        );
        let warnings = |before: &NodeMaintenance, after: &NodeMaintenance| {
            update(before, after, &live(&[]), Timestamp::UNIX_EPOCH).warnings
        };
        assert_eq!(warnings(&before, &after).len(), 1);
        assert!(warnings(&after, &after).is_empty() && warnings(&after, &before).is_empty());
    }

    // Case 9.
    #[test]
    fn the_node_of_a_maintenance_cannot_be_changed() {
        let before = maintenance(&Value::Null, &json!({}));
        let mut after = before.clone();
        assert_eq!(update(&before, &after, &live(&[]), Timestamp::UNIX_EPOCH), AdmissionDecision::default());
        after.spec.node_name = "n2".to_owned();
        let review = update(&before, &after, &live(&[]), Timestamp::UNIX_EPOCH);
        assert_eq!(review.refusal.as_deref(), Some("updating spec.NodeName isn't allowed"));
    }

    #[test]
    fn the_quorum_is_kept_unless_the_annotation_overrides_it() {
        let label = json!({"node-role.kubernetes.io/control-plane": ""});
        let live = LiveState { nodes: vec![node("n1", &label), node("n2", &label)], ..live(&[]) };
        let refused = refusal(&live).unwrap();
        assert!(refused.starts_with(
            "can not put master/control-plane node into maintenance at this moment, disrupting node n1 will violate etcd \
             quorum"
        ));
        let insisting = maintenance(&Value::Null, &json!({OVERRIDE_QUORUM_ANNOTATION: "true"}));
        let review = create(&insisting, &live, Timestamp::UNIX_EPOCH);
        assert_eq!(review, AdmissionDecision { refusal: None, warnings: vec![refused] });
    }

    #[test]
    fn the_quorum_is_judged_when_a_planned_maintenance_is_resumed() {
        let label = json!({"node-role.kubernetes.io/control-plane": ""});
        let live = LiveState { nodes: vec![node("n1", &label), node("n2", &label)], ..live(&[]) };
        let resumed = maintenance(&Value::Null, &json!({}));
        let mut planned = resumed.clone();
        planned.spec.suspend = true;
        assert_eq!(create(&planned, &live, Timestamp::UNIX_EPOCH), AdmissionDecision::default());
        let review = |before: &NodeMaintenance, after: &NodeMaintenance| {
            update(before, after, &live, Timestamp::UNIX_EPOCH)
        };
        assert_eq!(review(&planned, &resumed).refusal, refusal(&live));
        assert_eq!(review(&planned, &planned), AdmissionDecision::default());
        let mut paused = planned.clone();
        let cordoned = json!({"phase": "Running", "conditions": [{"type": "Cordoned", "status": "True",
            "reason": "Cordoned", "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z"}]});
        paused.status = serde_json::from_value(cordoned).unwrap();
        assert_eq!(review(&paused, &resumed), AdmissionDecision::default(), "it has begun");
    }

    fn control_plane() -> [Node; 3] {
        let label = json!({"node-role.kubernetes.io/control-plane": ""});
        let ready = json!({"conditions": [{"type": "Ready", "status": "True"}]});
        ["n1", "n2", "n3"].map(|name| {
            serde_json::from_value(json!({"metadata": {"name": name, "labels": label}, "status": ready}))
                .unwrap()
        })
    }

    #[test]
    fn the_node_of_a_planned_maintenance_counts_as_in_service() {
        let taken =
            LiveState { nodes: control_plane().to_vec(), in_maintenance: vec!["n2".to_owned()], ..live(&[]) };
        assert!(refusal(&taken).is_some());
        assert_eq!(refusal(&LiveState { in_service: vec!["n2".to_owned()], ..taken }), None);
    }

    #[test]
    fn a_node_that_is_back_in_service_does_not_count_although_its_maintenance_is_kept() {
        for (finalizers, is_in_service) in
            [(json!(["kubectl-nm.dev/roll"]), true), (json!(["kubectl-nm.dev/roll", FINALIZER]), false)]
        {
            let kept: NodeMaintenance = serde_json::from_value(json!({
                "apiVersion": "nodemaintenance.medik8s.io/v1beta1", "kind": "NodeMaintenance",
                "metadata": {"name": "n2", "deletionTimestamp": "2026-01-02T03:04:05Z", "finalizers": finalizers},
                "spec": {"nodeName": "n2"},
            }))
            .unwrap();
            let mut live = LiveState { nodes: control_plane().to_vec(), ..live(&[]) };
            live.set_maintenances([kept].iter(), Vec::new());
            assert_eq!(refusal(&live).is_none(), is_in_service);
        }
    }

    #[test]
    fn a_node_whose_maintenance_only_others_keep_may_have_a_new_one() {
        let kept = |finalizers: Value| -> NodeMaintenance {
            serde_json::from_value(json!({
                "apiVersion": "nodemaintenance.medik8s.io/v1beta1", "kind": "NodeMaintenance",
                "metadata": {"name": "old", "deletionTimestamp": "2026-01-02T03:04:05Z", "finalizers": finalizers},
                "spec": {"nodeName": "n1"},
            }))
            .unwrap()
        };
        let refusal = |kept: NodeMaintenance| {
            let mut live = live(&[]);
            live.set_maintenances([kept].iter(), Vec::new());
            refusal(&live)
        };
        let exists = "invalid nodeName, a NodeMaintenance for node n1 already exists";
        assert_eq!(refusal(kept(json!(["kubectl-nm.dev/roll", FINALIZER]))).as_deref(), Some(exists));
        assert_eq!(refusal(kept(json!(["kubectl-nm.dev/roll"]))), None, "a roll that was abandoned");
    }

    #[test]
    fn deleted_data_is_warned_about_and_not_refused() {
        let warnings = |drain: Value, pods: &[&str]| {
            let review = create(&maintenance(&drain, &json!({})), &live(pods), Timestamp::UNIX_EPOCH);
            assert_eq!(review.refusal, None);
            review.warnings
        };
        assert!(warnings(Value::Null, &[]).is_empty());
        let named = "deleting Pods that declare no controller: ns/a, ns/b, ns/c and 1 more";
        assert_eq!(warnings(Value::Null, &["a", "b", "c", "d"]), [named]);
        assert!(warnings(json!({"force": false}), &["a"]).is_empty(), "it blocks instead");
        let nothing = json!({"podSelector": {"matchLabels": {"app": "x"}}});
        assert_eq!(
            warnings(nothing.clone(), &["a"]),
            ["spec.drain.podSelector selects none of the pods that would be moved away from node n1"]
        );
        assert!(warnings(nothing, &[]).is_empty(), "there is nothing to select");
        let forced = "spec.drain.gracePeriodSeconds is 0: pods are force-deleted, and their containers may still run after \
                      the node is drained";
        assert_eq!(warnings(json!({"gracePeriodSeconds": 0}), &[]), [forced]);
        assert_eq!(warnings(json!({"gracePeriodSeconds": 0}), &["a"]).len(), 2, "beside the other warning");
        assert!(warnings(json!({"gracePeriodSeconds": 1}), &[]).is_empty());
        let bad = json!({"podSelector": {"matchExpressions": [{"key": "a", "operator": "Near"}]}});
        assert!(warnings(bad.clone(), &["a"])[0].starts_with("spec.drain.podSelector: "));
        let completion = json!({"waitForCompletion": bad});
        assert!(warnings(completion, &["a"])[0].starts_with("spec.drain.waitForCompletion.podSelector: "));
    }
}
