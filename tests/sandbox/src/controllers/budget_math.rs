//! The numbers of a disruption budget.

use std::collections::{BTreeMap, HashMap, HashSet};

use serde_json::{Map, Value};

use crate::cluster::catalog::resource::{DEPLOYMENTS, REPLICA_SETS, STATEFUL_SETS};
use crate::cluster::store::{Collection, Key, State};
use crate::model::pod;

use crate::controllers::workloads::pod_summary::PodSummary;

/// The numbers in a budget's status.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct BudgetNumbers {
    /// `expectedPods`.
    pub(crate) expected: i64,
    /// `desiredHealthy`.
    pub(crate) desired: i64,
    /// `currentHealthy`.
    pub(crate) healthy: i64,
}

impl BudgetNumbers {
    /// `disruptionsAllowed`. A budget without pods allows none.
    pub(crate) fn allowed(&self) -> i64 {
        if self.expected <= 0 {
            return 0;
        }
        (self.healthy - self.desired).max(0)
    }
}

/// The total scale of the controllers of a budget's pods.
#[derive(Debug)]
pub(crate) struct Scales {
    known: HashMap<String, i64>,
    /// A pod whose controller has no scale.
    stranger: Option<String>,
}

impl Scales {
    /// Looks up the controllers of these pods.
    pub(crate) fn of(state: &State, namespace: &str, pods: &BTreeMap<String, PodSummary>) -> Self {
        let mut scales = Self { known: HashMap::new(), stranger: None };
        let mut seen: HashSet<&str> = HashSet::new();
        for (name, pod) in pods {
            let owner = &*pod.controller;
            let uid = owner["uid"].as_str().unwrap_or_default();
            if owner.is_null() || !seen.insert(uid) {
                continue;
            }
            match scale(state, namespace, owner) {
                Some((uid, replicas)) => drop(scales.known.insert(uid, replicas)),
                None => scales.stranger = Some(name.clone()),
            }
        }
        scales
    }

    fn total(&self) -> Result<i64, String> {
        match &self.stranger {
            Some(pod) => Err(format!("found no controllers for pod {pod:?}")),
            None => Ok(self.known.values().sum()),
        }
    }
}

/// The uid and scale of a controller. For a `ReplicaSet` of a deployment, those of the deployment.
fn scale(state: &State, namespace: &str, owner: &Value) -> Option<(String, i64)> {
    let find = |collection: &Collection, owner: &Value| {
        let object = state.get(collection, &Key::new(namespace, owner["name"].as_str()?))?;
        (pod::uid(&object) == owner["uid"].as_str()?).then_some(object)
    };
    let object = match owner["kind"].as_str()? {
        "ReplicaSet" => {
            let set = find(&REPLICA_SETS, owner)?;
            let deployment = pod::controller(&set).and_then(|owner| find(&DEPLOYMENTS, owner));
            deployment.unwrap_or(set)
        }
        "StatefulSet" => find(&STATEFUL_SETS, owner)?,
        _ => return None,
    };
    let replicas = object["spec"]["replicas"].as_i64().unwrap_or(1);
    Some((pod::uid(&object).to_owned(), replicas))
}

/// Computes the numbers of a budget for the pods that it selects.
///
/// # Errors
/// When a percentage or `maxUnavailable` needs a scale that no controller has.
pub(crate) fn numbers(
    budget: &Value,
    pods: &BTreeMap<String, PodSummary>,
    scales: &Scales,
    disrupted: &Map<String, Value>,
) -> Result<BudgetNumbers, String> {
    let spec = &budget["spec"];
    let selected = i64::try_from(pods.len()).unwrap_or(i64::MAX);
    let (expected, desired) = if spec["maxUnavailable"].is_null() {
        match &spec["minAvailable"] {
            Value::Null => (selected, 0),
            Value::String(_) => {
                let expected = scales.total()?;
                (expected, amount(&spec["minAvailable"], expected)?)
            }
            number => (selected, amount(number, selected)?),
        }
    } else {
        let expected = scales.total()?;
        let unavailable = amount(&spec["maxUnavailable"], expected)?;
        (expected, (expected - unavailable).max(0))
    };
    let healthy = pods
        .iter()
        .filter(|(name, pod)| pod.ready && !pod.terminating && !disrupted.contains_key(*name))
        .count();
    Ok(BudgetNumbers { expected, desired, healthy: i64::try_from(healthy).unwrap_or(i64::MAX) })
}

/// A number, or a percentage of `of`, rounded up.
fn amount(value: &Value, of: i64) -> Result<i64, String> {
    if let Some(number) = value.as_i64() {
        return Ok(number);
    }
    let text = value.as_str().unwrap_or_default();
    let percent: Option<i64> = text.strip_suffix('%').and_then(|digits| digits.parse().ok());
    percent
        .map(|percent| (of * percent + 99) / 100)
        .ok_or_else(|| format!("invalid value for IntOrString: {value}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[expect(clippy::needless_pass_by_value, reason = "cases read better without a borrow each")]
    fn check(spec: Value, ready: usize, of: usize, scale: i64, expected: (i64, i64, i64)) {
        let pods: BTreeMap<String, PodSummary> = (0..of)
            .map(|number| {
                let ready = if number < ready { "True" } else { "False" };
                let pod = json!({"status": {"conditions": [{"type": "Ready", "status": ready}]}});
                (number.to_string(), PodSummary::of(&pod, None))
            })
            .collect();
        let scales = Scales { known: HashMap::from([(String::new(), scale)]), stranger: None };
        let found = numbers(&json!({"spec": spec}), &pods, &scales, &Map::new()).unwrap();
        assert_eq!((found.expected, found.desired, found.allowed()), expected, "{spec}");
    }

    #[test]
    fn numbers_and_percentages_round_as_the_controller_does() {
        check(json!({"minAvailable": 1}), 1, 1, 1, (1, 1, 0));
        check(json!({"minAvailable": 1}), 3, 3, 3, (3, 1, 2));
        check(json!({"minAvailable": "50%"}), 3, 3, 3, (3, 2, 1));
        check(json!({"minAvailable": "100%"}), 3, 3, 3, (3, 3, 0));
        check(json!({"maxUnavailable": 1}), 3, 3, 3, (3, 2, 1));
        check(json!({"maxUnavailable": 1}), 2, 3, 3, (3, 2, 0));
        check(json!({"maxUnavailable": "30%"}), 10, 10, 10, (10, 7, 3));
        check(json!({"maxUnavailable": "25%"}), 5, 5, 5, (5, 3, 2));
        check(json!({"maxUnavailable": 5}), 3, 3, 3, (3, 0, 3));
        check(json!({"minAvailable": 0}), 0, 0, 0, (0, 0, 0));
    }

    #[test]
    fn a_scale_that_nobody_knows_is_an_error_only_where_it_is_needed() {
        let pod = json!({"metadata": {"ownerReferences": [
            {"kind": "DaemonSet", "name": "d", "uid": "1", "controller": true}]}});
        let pods = BTreeMap::from([("a".to_owned(), PodSummary::of(&pod, None))]);
        let scales = Scales::of(&State::default(), "ns", &pods);
        let of = |spec: Value| numbers(&json!({"spec": spec}), &pods, &scales, &Map::new());
        assert!(of(json!({"minAvailable": 1})).is_ok());
        let because = of(json!({"maxUnavailable": 1})).unwrap_err();
        assert_eq!(because, r#"found no controllers for pod "a""#);
    }
}
