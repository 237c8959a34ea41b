//! Whether a pod may run on a node regardless of its capacity: cordons, taints, node selectors, required node affinity
//! and the nodes from which its volumes are accessible.
//!
//! Requirements that depend on other pods or on the configuration of the scheduler are not checked; [`left_out`] lists
//! those of a pod. Source: `pkg/scheduler/framework/plugins` in kubernetes.

use std::fmt;

use k8s_openapi::api::core::v1::{
    Affinity, Node, NodeSelector, NodeSelectorRequirement, NodeSelectorTerm, Pod, PodSpec, Taint, Toleration,
    TopologySpreadConstraint,
};

use crate::api::names::{NO_SCHEDULE, UNSCHEDULABLE_TAINT};
use crate::cluster::node;
use crate::cluster::pod_exclusion;
use crate::cluster::pod_requests::PODS;

/// Why a pod may not run on a node.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Unfit {
    /// The node is not Ready.
    NotReady,
    /// The node is cordoned.
    Cordoned,
    /// The node has a taint that the pod does not tolerate.
    Taint(String),
    /// The pod selects other nodes.
    NotSelected,
    /// A volume of the pod is not accessible from it.
    Volume,
    /// The node lacks a resource.
    Short(String),
}

impl fmt::Display for Unfit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotReady => f.write_str("not Ready"),
            Self::Cordoned => f.write_str("cordoned"),
            Self::Taint(taint) => write!(f, "tainted {taint}"),
            Self::NotSelected => f.write_str("not selected"),
            Self::Volume => f.write_str("cannot access its volume"),
            Self::Short(resource) if resource == PODS => f.write_str("full"),
            Self::Short(resource) => write!(f, "short of {resource}"),
        }
    }
}

/// What decides whether pods may run on a node. A cache of nodes may keep them in a type of its own.
pub trait CandidateNode {
    /// Its name.
    fn name(&self) -> &str;
    /// The value of a label.
    fn label(&self, key: &str) -> Option<&str>;
    /// Its taints.
    fn taints(&self) -> &[Taint];
    /// Whether it is cordoned.
    fn is_unschedulable(&self) -> bool;
    /// Whether it is Ready, or has not reported the condition.
    fn is_ready(&self) -> bool;
}

impl CandidateNode for Node {
    fn name(&self) -> &str {
        node::name(self)
    }

    fn label(&self, key: &str) -> Option<&str> {
        self.metadata.labels.as_ref()?.get(key).map(String::as_str)
    }

    fn taints(&self) -> &[Taint] {
        self.spec.as_ref().and_then(|spec| spec.taints.as_deref()).unwrap_or_default()
    }

    fn is_unschedulable(&self) -> bool {
        node::is_unschedulable(self)
    }

    fn is_ready(&self) -> bool {
        node::is_ready(self)
    }
}

/// Whether `pod`, whose volumes are accessible from these nodes, may run on `node`.
///
/// # Errors
/// The reason why not.
pub fn check(pod: &Pod, volumes: &[&NodeSelector], node: &impl CandidateNode) -> Result<(), Unfit> {
    check_spec(pod.spec.as_ref().unwrap_or(&PodSpec::default()), volumes, node)
}

/// The same of a pod with this spec.
///
/// # Errors
/// The reason why not.
pub fn check_spec(spec: &PodSpec, volumes: &[&NodeSelector], node: &impl CandidateNode) -> Result<(), Unfit> {
    if !node.is_ready() {
        return Err(Unfit::NotReady);
    }
    let tolerations = spec.tolerations.as_deref().unwrap_or_default();
    if node.is_unschedulable() && !tolerates(tolerations, &taint(UNSCHEDULABLE_TAINT)) {
        return Err(Unfit::Cordoned);
    }
    if !is_selected(spec, node) {
        return Err(Unfit::NotSelected);
    }
    if !volumes.iter().all(|selector| selects(selector, node)) {
        return Err(Unfit::Volume);
    }
    match untolerated(spec, node) {
        Some(taint) => Err(Unfit::Taint(shown(taint))),
        None => Ok(()),
    }
}

/// The first taint of the node that keeps out a pod with this spec.
pub(super) fn untolerated<'a>(spec: &PodSpec, node: &'a impl CandidateNode) -> Option<&'a Taint> {
    let tolerations = spec.tolerations.as_deref().unwrap_or_default();
    let keeps_out = |taint: &&Taint| {
        matches!(taint.effect.as_str(), NO_SCHEDULE | "NoExecute") && !tolerates(tolerations, taint)
    };
    node.taints().iter().find(keeps_out)
}

/// The topology spread constraints without which a pod with this spec is not scheduled.
pub(super) fn required_spread(spec: &PodSpec) -> impl Iterator<Item = &TopologySpreadConstraint> {
    let constraints = spec.topology_spread_constraints.iter().flatten();
    constraints.filter(|constraint| constraint.when_unsatisfiable == "DoNotSchedule")
}

/// Whether a pod like this one may be scheduled to `node` while that is in maintenance, with `drain_taint`.
pub fn tolerates_maintenance(pod: &Pod, node: &Node, drain_taint: &str) -> bool {
    let unsaid = PodSpec::default();
    let spec = pod.spec.as_ref().unwrap_or(&unsaid);
    let tolerations = spec.tolerations.as_deref().unwrap_or_default();
    let own = node.taints().iter().filter(|taint| taint.effect == NO_SCHEDULE).cloned();
    let mut taints = own.chain([taint(drain_taint), taint(UNSCHEDULABLE_TAINT)]);
    is_selected(spec, node) && taints.all(|taint| tolerates(tolerations, &taint))
}

/// The requirements of the pod that [`check`] does not consider.
pub fn left_out(pod: &Pod) -> Vec<&'static str> {
    let Some(spec) = &pod.spec else { return Vec::new() };
    let affinity = spec.affinity.as_ref();
    let required = |of: fn(&Affinity) -> bool| affinity.is_some_and(of);
    let attracts = required(|all| {
        let pods = all.pod_affinity.as_ref();
        pods.is_some_and(|pods| pods.required_during_scheduling_ignored_during_execution.is_some())
    });
    let repels = required(|all| {
        let pods = all.pod_anti_affinity.as_ref();
        pods.is_some_and(|pods| pods.required_during_scheduling_ignored_during_execution.is_some())
    });
    let spreads = required_spread(spec).next().is_some();
    let has_port = !pod_exclusion::host_ports(spec).is_empty();
    let other = spec.scheduler_name.as_deref().is_some_and(|name| name != "default-scheduler");
    let aspects = [
        (attracts || repels, "affinity between pods"),
        (spreads, "spread over topologies"),
        (has_port, "host ports"),
        (spec.resource_claims.is_some(), "resource claims"),
        (other, "schedulers of their own"),
    ];
    aspects.into_iter().filter(|(asked, _)| *asked).map(|(_, aspect)| aspect).collect()
}

/// The taint with this key, the effect `NoSchedule` and no value.
pub fn taint(key: &str) -> Taint {
    Taint { key: key.to_owned(), effect: NO_SCHEDULE.to_owned(), ..Taint::default() }
}

/// Whether one of these tolerations tolerates the taint.
pub fn tolerates(tolerations: &[Toleration], taint: &Taint) -> bool {
    tolerations.iter().any(|toleration| {
        let exists = toleration.operator.as_deref() == Some("Exists");
        let is = |said: &Option<String>, wanted: &str| said.as_deref().unwrap_or_default() == wanted;
        let any_key = exists && is(&toleration.key, "");
        let equal = matches!(toleration.operator.as_deref(), None | Some("" | "Equal"))
            && is(&toleration.value, taint.value.as_deref().unwrap_or_default());
        (is(&toleration.effect, "") || is(&toleration.effect, &taint.effect))
            && (any_key || is(&toleration.key, &taint.key))
            && (exists || equal)
    })
}

fn shown(taint: &Taint) -> String {
    let value = taint.value.as_deref().filter(|value| !value.is_empty());
    let value = value.map(|value| format!("={value}")).unwrap_or_default();
    format!("{}{value}:{}", taint.key, taint.effect)
}

/// Whether the selector and the required affinity of a pod with this spec allow the node.
pub(super) fn is_selected(spec: &PodSpec, node: &impl CandidateNode) -> bool {
    let mut wanted = spec.node_selector.iter().flatten();
    let affinity = spec.affinity.as_ref().and_then(|affinity| affinity.node_affinity.as_ref());
    let required =
        affinity.and_then(|nodes| nodes.required_during_scheduling_ignored_during_execution.as_ref());
    wanted.all(|(key, value)| node.label(key) == Some(value))
        && required.is_none_or(|required| selects(required, node))
}

/// One matching term is enough.
fn selects(selector: &NodeSelector, node: &impl CandidateNode) -> bool {
    selector.node_selector_terms.iter().any(|term| fulfils(term, node))
}

/// An empty term selects nothing.
fn fulfils(term: &NodeSelectorTerm, node: &impl CandidateNode) -> bool {
    let (labels, fields) = (term.match_expressions.as_deref(), term.match_fields.as_deref());
    let (labels, fields) = (labels.unwrap_or_default(), fields.unwrap_or_default());
    !(labels.is_empty() && fields.is_empty())
        && labels.iter().all(|wanted| admits(wanted, node.label(&wanted.key)))
        && fields.iter().all(|wanted| wanted.key == "metadata.name" && admits(wanted, Some(node.name())))
}

fn admits(wanted: &NodeSelectorRequirement, found: Option<&str>) -> bool {
    let values = wanted.values.as_deref().unwrap_or_default();
    let is_listed = || found.is_some_and(|found| values.iter().any(|value| value == found));
    let numbers = || Some((found?.parse::<i64>().ok()?, values.first()?.parse::<i64>().ok()?));
    match wanted.operator.as_str() {
        "In" => is_listed(),
        "NotIn" => !is_listed(),
        "Exists" => found.is_some(),
        "DoesNotExist" => found.is_none(),
        "Gt" => numbers().is_some_and(|(found, bound)| found > bound),
        "Lt" => numbers().is_some_and(|(found, bound)| found < bound),
        _ => false,
    }
}

#[cfg(test)]
#[path = "node_fit_tests.rs"]
mod tests;
