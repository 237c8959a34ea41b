//! Amounts of resources: what pods request and what nodes have.

use std::collections::BTreeMap;

use serde_json::Value;

/// The resource of which each pod uses one.
const PODS: &str = "pods";
/// The resources that the scheduler scores.
pub(crate) const SCORED: [&str; 2] = ["cpu", "memory"];
/// The number of pods that a node runs if it does not report a number.
const DEFAULT_PODS: i64 = 110;

/// Amounts by resource, in thousandths.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub(crate) struct Resources(BTreeMap<String, i64>);

impl Resources {
    /// Nothing.
    pub(crate) const fn none() -> Self {
        Self(BTreeMap::new())
    }

    /// What the scheduler reserves for a pod, including one of `pods`. Containers run at the same time, after init
    /// containers, which run one after another; init containers that always restart keep running.
    pub(crate) fn of_pod(pod: &Value) -> Self {
        let spec = &pod["spec"];
        let (mut running, mut starting) = (Self::default(), Self::default());
        for container in spec["initContainers"].as_array().into_iter().flatten() {
            let mut needed = Self::read(&container["resources"]["requests"]);
            needed.add(&running);
            starting.raise_to(&needed);
            if container["restartPolicy"] == "Always" {
                running = needed;
            }
        }
        for container in spec["containers"].as_array().into_iter().flatten() {
            running.add(&Self::read(&container["resources"]["requests"]));
        }
        running.raise_to(&starting);
        running.0.extend(Self::read(&spec["resources"]["requests"]).0);
        running.add(&Self::read(&spec["overhead"]));
        running.0.insert(PODS.to_owned(), 1000);
        running
    }

    /// What a node has for pods.
    pub(crate) fn of_node(node: &Value) -> Self {
        let status = &node["status"];
        let mut resources = Self::read(&status["capacity"]);
        resources.0.extend(Self::read(&status["allocatable"]).0);
        resources.0.entry(PODS.to_owned()).or_insert(DEFAULT_PODS * 1000);
        resources
    }

    /// The amount of a resource.
    pub(crate) fn amount(&self, resource: &str) -> i64 {
        self.0.get(resource).copied().unwrap_or(0)
    }

    /// Adds others to these.
    pub(crate) fn add(&mut self, others: &Self) {
        for (name, amount) in &others.0 {
            let own = self.0.entry(name.clone()).or_default();
            *own = own.saturating_add(*amount);
        }
    }

    /// Subtracts others from these.
    pub(crate) fn subtract(&mut self, others: &Self) {
        for (name, amount) in &others.0 {
            let own = self.0.entry(name.clone()).or_default();
            *own = own.saturating_sub(*amount);
        }
    }

    /// The resources of which there is too little for `wanted` beside what is `used`.
    pub(crate) fn short_of<'a, 'w>(
        &'a self,
        used: &'a Self,
        wanted: &'w Self,
    ) -> impl Iterator<Item = &'w str> + use<'a, 'w> {
        wanted.0.iter().filter_map(move |(name, amount)| {
            let left = self.amount(name).saturating_sub(used.amount(name));
            (*amount > 0 && *amount > left).then_some(name.as_str())
        })
    }

    fn raise_to(&mut self, others: &Self) {
        for (name, amount) in &others.0 {
            let own = self.0.entry(name.clone()).or_default();
            *own = (*own).max(*amount);
        }
    }

    fn read(amounts: &Value) -> Self {
        let amounts = amounts.as_object().into_iter().flatten();
        Self(amounts.filter_map(|(name, amount)| Some((name.clone(), thousandths(amount)?))).collect())
    }
}

/// CPU and memory as the scheduler counts them when it scores a node, in thousandths: a container without a request
/// counts as a small one.
pub(crate) fn scored(pod: &Value) -> [i64; 2] {
    // 100m and 200 MiB: `DefaultMilliCPURequest` and `DefaultMemoryRequest` of kube-scheduler.
    const DEFAULTS: [i64; 2] = [100, 200 * 1024 * 1024 * 1000];
    let [cpu, memory] = SCORED;
    [(cpu, DEFAULTS[0]), (memory, DEFAULTS[1])].map(|(name, default)| {
        let containers = pod["spec"]["containers"].as_array().into_iter().flatten();
        let amounts = containers.map(|container| thousandths(&container["resources"]["requests"][name]));
        amounts.map(|amount| amount.unwrap_or(default)).fold(0, i64::saturating_add)
    })
}

/// Sets the requests of a container that has limits only: they are its limits.
pub(crate) fn request_limits(container: &mut Value) {
    let limits = container["resources"]["limits"].as_object().cloned().unwrap_or_default();
    for (name, limit) in limits {
        let requests = &mut container["resources"]["requests"];
        if requests[&name].is_null() {
            requests[&name] = limit;
        }
    }
}

/// A quantity such as `250m`, `1.5` or `2Gi` in thousandths, rounded up; none if it is not a quantity.
fn thousandths(quantity: &Value) -> Option<i64> {
    let text = match quantity {
        Value::String(text) => text.clone(),
        Value::Number(number) => number.to_string(),
        _ => return None,
    };
    let suffix = text.find(|c: char| !"+-.0123456789".contains(c)).unwrap_or(text.len());
    let (number, suffix) = text.split_at(suffix);
    let factor = match suffix {
        "n" => 1e-9,
        "u" => 1e-6,
        "m" => 1e-3,
        "" => 1.0,
        "k" => 1e3,
        "M" => 1e6,
        "G" => 1e9,
        "T" => 1e12,
        "P" => 1e15,
        "E" => 1e18,
        "Ki" => 1024.0,
        "Mi" => 1024_f64.powi(2),
        "Gi" => 1024_f64.powi(3),
        "Ti" => 1024_f64.powi(4),
        "Pi" => 1024_f64.powi(5),
        "Ei" => 1024_f64.powi(6),
        exponent => 10_f64.powi(exponent.strip_prefix(['e', 'E'])?.parse().ok()?),
    };
    // A sum of such amounts is far below what a float counts exactly.
    #[expect(clippy::cast_possible_truncation, reason = "a float beyond the range becomes its end")]
    Some((number.parse::<f64>().ok()? * factor * 1000.0 - 1e-6).ceil() as i64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn quantities_are_read_in_thousandths() {
        for (quantity, expected) in [
            (json!("250m"), Some(250)),
            (json!("1.5"), Some(1500)),
            (json!(2), Some(2000)),
            (json!("0.1"), Some(100)),
            (json!("1u"), Some(1)),
            (json!("2Gi"), Some(2 * 1024 * 1024 * 1024 * 1000)),
            (json!("1e3"), Some(1_000_000)),
            (json!("5E"), Some(i64::MAX)),
            (json!("x"), None),
            (json!(""), None),
            (Value::Null, None),
        ] {
            assert_eq!(thousandths(&quantity), expected, "{quantity}");
        }
    }

    #[test]
    fn a_pod_needs_its_containers_or_its_largest_init_container() {
        let container = |cpu: &str| json!({"resources": {"requests": {"cpu": cpu}}});
        let sidecar = |cpu: &str| json!({"restartPolicy": "Always", "resources": {"requests": {"cpu": cpu}}});
        let cpu = |spec: Value| Resources::of_pod(&json!({"spec": spec})).amount("cpu");
        assert_eq!(cpu(json!({"containers": [container("1"), container("500m")]})), 1500);
        assert_eq!(cpu(json!({"containers": [container("1")], "initContainers": [container("3")]})), 3000);
        let sidecars = json!([sidecar("1"), container("3")]);
        assert_eq!(cpu(json!({"containers": [container("2")], "initContainers": sidecars})), 4000);
        assert_eq!(cpu(json!({"containers": [container("1")], "overhead": {"cpu": "250m"}})), 1250);
        assert_eq!(Resources::of_pod(&json!({})).amount("pods"), 1000);
    }

    #[test]
    fn a_container_without_requests_is_scored_as_a_small_one() {
        let pod = json!({"spec": {"containers": [{}, {"resources": {"requests": {"cpu": "1"}}}]}});
        assert_eq!(scored(&pod), [1100, 400 * 1024 * 1024 * 1000]);
    }

    #[test]
    fn limits_are_the_requests_of_a_container_without_any() {
        let mut container =
            json!({"resources": {"limits": {"cpu": "2", "memory": "1Gi"}, "requests": {"cpu": "1"}}});
        request_limits(&mut container);
        assert_eq!(container["resources"]["requests"], json!({"cpu": "1", "memory": "1Gi"}));
        let mut none = json!({"resources": {}});
        request_limits(&mut none);
        assert_eq!(none, json!({"resources": {}}));
    }

    #[test]
    fn what_a_node_lacks_is_named() {
        let node = Resources::of_node(&json!({"status": {"capacity": {"cpu": "4", "memory": "8Gi"},
            "allocatable": {"cpu": "2"}}}));
        let pod = |cpu: &str, memory: &str| {
            Resources::of_pod(&json!({"spec": {"containers": [
                {"resources": {"requests": {"cpu": cpu, "memory": memory}}}]}}))
        };
        let mut used = Resources::default();
        let lacks = |used: &Resources, wanted: &Resources| -> Vec<String> {
            node.short_of(used, wanted).map(str::to_owned).collect()
        };
        assert!(lacks(&used, &pod("2", "8Gi")).is_empty());
        used.add(&pod("1", "4Gi"));
        assert_eq!(lacks(&used, &pod("2", "5Gi")), ["cpu", "memory"]);
        used.subtract(&pod("1", "4Gi"));
        assert!(lacks(&used, &pod("2", "5Gi")).is_empty());
    }
}
