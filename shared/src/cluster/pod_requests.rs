//! The resource requests of a pod, which the scheduler reserves on a node, and its limits.
//!
//! Source: `pkg/scheduler/framework/types.go` and `k8s.io/component-helpers/resource` in kubernetes. Containers run
//! concurrently, init containers one after another before them, and init containers that always restart keep running.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Container, Node, Pod, ResourceRequirements};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;

use crate::cluster::quantity;

/// The resource of which each pod uses one.
pub const PODS: &str = "pods";

/// Amounts by resource, in thousandths.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Resources(BTreeMap<String, i128>);

/// The requests or limits of a container.
type Amounts = fn(&ResourceRequirements) -> Option<&BTreeMap<String, Quantity>>;

impl Resources {
    /// The requests of a pod, including one of [`PODS`].
    pub fn of_pod(pod: &Pod) -> Self {
        let mut requests = Self::sum(pod, |resources| resources.requests.as_ref());
        if let Some(spec) = &pod.spec {
            requests.add(&Self::read(spec.overhead.as_ref()));
            requests.0.insert(PODS.to_owned(), 1000);
        }
        requests
    }

    /// The limits of a pod. What runs it is limited only together with the pod, and uses nothing of what that does not limit.
    pub fn limits_of_pod(pod: &Pod) -> Self {
        let mut limits = Self::sum(pod, |resources| resources.limits.as_ref());
        let mut overhead = Self::read(pod.spec.as_ref().and_then(|spec| spec.overhead.as_ref()));
        overhead.0.retain(|name, _| limits.amount(name) > 0);
        limits.add(&overhead);
        limits
    }

    fn sum(pod: &Pod, amounts: Amounts) -> Self {
        let Some(spec) = &pod.spec else { return Self::default() };
        let read = |resources: Option<&ResourceRequirements>| Self::read(resources.and_then(amounts));
        let of_container = |container: &Container| read(container.resources.as_ref());
        let mut running = Self::default();
        for container in &spec.containers {
            running.add(&of_container(container));
        }
        let (mut sidecars, mut begin) = (Self::default(), Self::default());
        for container in spec.init_containers.iter().flatten() {
            let mut needed = of_container(container);
            needed.add(&sidecars);
            begin.raise_to(&needed);
            if container.restart_policy.as_deref() == Some("Always") {
                sidecars = needed;
            }
        }
        running.add(&sidecars);
        running.raise_to(&begin);
        // Those of the pod as a whole replace those of its containers.
        for (name, amount) in read(spec.resources.as_ref()).0 {
            running.0.insert(name, amount);
        }
        running
    }

    /// The allocatable resources of a node.
    pub fn of_node(node: &Node) -> Self {
        Self::read(node.status.as_ref().and_then(|status| status.allocatable.as_ref()))
    }

    /// The pods that fit on a node at most, as if all of them were there.
    pub fn pods_of_node(node: &Node) -> Self {
        let mut allocatable = Self::of_node(node);
        allocatable.0.retain(|name, _| name == PODS);
        allocatable
    }

    fn read(amounts: Option<&BTreeMap<String, Quantity>>) -> Self {
        let read =
            |(name, amount): (&String, &Quantity)| Some((name.clone(), quantity::thousandths(&amount.0)?));
        Self(amounts.into_iter().flatten().filter_map(read).collect())
    }

    /// The amount of a resource.
    pub fn amount(&self, resource: &str) -> i128 {
        self.0.get(resource).copied().unwrap_or(0)
    }

    /// Adds others to these.
    pub fn add(&mut self, others: &Self) {
        for (name, amount) in &others.0 {
            *self.0.entry(name.clone()).or_default() += amount;
        }
    }

    /// Subtracts others from these.
    pub fn subtract(&mut self, others: &Self) {
        for (name, amount) in &others.0 {
            *self.0.entry(name.clone()).or_default() -= amount;
        }
    }

    /// The first resource of which `wanted` requests more than there is.
    pub fn short_of<'a>(&self, wanted: &'a Self) -> Option<&'a str> {
        let lacks = |(name, amount): &(&String, &i128)| **amount > 0 && **amount > self.amount(name);
        wanted.0.iter().find(lacks).map(|(name, _)| name.as_str())
    }

    fn raise_to(&mut self, others: &Self) {
        for (name, amount) in &others.0 {
            let own = self.0.entry(name.clone()).or_default();
            *own = (*own).max(*amount);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn container(cpu: &str) -> Value {
        json!({"name": "c", "resources": {"requests": {"cpu": cpu}}})
    }

    #[expect(clippy::needless_pass_by_value, reason = "one-line cases")]
    fn cpu(spec: Value) -> i128 {
        let pod: Pod = serde_json::from_value(json!({"metadata": {}, "spec": spec})).unwrap();
        let resources = Resources::of_pod(&pod);
        assert_eq!(resources.amount(PODS), 1000);
        resources.amount("cpu")
    }

    #[test]
    fn requests_of_containers_add_up_and_the_largest_init_container_counts() {
        let two = json!([container("1"), container("500m")]);
        let sidecar = |cpu: &str| {
            let mut sidecar = container(cpu);
            sidecar["restartPolicy"] = json!("Always");
            sidecar
        };
        for (spec, expected) in [
            (json!({"containers": []}), 0),
            (json!({"containers": two}), 1_500),
            (json!({"containers": two, "initContainers": [container("1")]}), 1_500),
            (json!({"containers": two, "initContainers": [container("4"), container("2")]}), 4_000),
            (json!({"containers": two, "initContainers": [sidecar("1"), container("1")]}), 2_500),
            (json!({"containers": two, "initContainers": [sidecar("1"), container("3")]}), 4_000),
            (json!({"containers": two, "initContainers": [container("3"), sidecar("1")]}), 3_000),
            (json!({"containers": two, "overhead": {"cpu": "250m"}}), 1_750),
            (json!({"containers": two, "resources": {"requests": {"cpu": "3"}}}), 3_000),
            (json!({"containers": [container("much")]}), 0),
        ] {
            assert_eq!(cpu(spec.clone()), expected, "{spec}");
        }
    }

    #[test]
    fn overhead_adds_to_limits_only_where_there_are_any() {
        let limits = |limits: Value| {
            let container = json!({"name": "c", "resources": {"limits": limits}});
            let spec = json!({"containers": [container], "overhead": {"cpu": "250m"}});
            let pod = serde_json::from_value(json!({"metadata": {}, "spec": spec})).unwrap();
            Resources::limits_of_pod(&pod).amount("cpu")
        };
        assert_eq!(limits(json!({"cpu": "1"})), 1_250);
        assert_eq!((limits(json!({"cpu": "0"})), limits(json!({"memory": "1Gi"}))), (0, 0));
    }

    #[test]
    fn a_resource_is_short_only_if_it_is_requested() {
        let resources = |amounts: Value| Resources::read(serde_json::from_value(amounts).ok().as_ref());
        let mut free = resources(json!({"cpu": "2", "memory": "1Gi"}));
        assert_eq!(free.short_of(&resources(json!({"cpu": "2", "memory": "1Gi"}))), None);
        assert_eq!(free.short_of(&resources(json!({"example.com/gpu": "1"}))), Some("example.com/gpu"));
        free.subtract(&resources(json!({"cpu": "3"})));
        assert_eq!(free.short_of(&resources(json!({"cpu": "0", "memory": "1"}))), None);
        assert_eq!(free.short_of(&resources(json!({"cpu": "1m"}))), Some("cpu"));
        free.add(&resources(json!({"cpu": "2"})));
        assert_eq!(free.short_of(&resources(json!({"cpu": "1"}))), None);
    }
}
