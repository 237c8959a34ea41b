//! Whether the quotas of a namespace allow one more pod like one that runs there.
//!
//! Source: `pkg/quota/v1/evaluator/core/pods.go` and `staging/src/k8s.io/apiserver/pkg/admission/plugin/resourcequota` in
//! kubernetes. A pod that terminates counts until its grace period ends, so an eviction needs no more quota than the pod has.

use std::fmt;

use k8s_openapi::api::core::v1::{Pod, ResourceQuota, ScopedResourceSelectorRequirement};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;

use crate::cluster::pod_requests::{PODS, Resources};
use crate::cluster::quantity;

/// A quota that allows no more pod.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct FullQuota {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// The resources that are used up, as the quota names them: how much of each is used, and how much may be.
    pub exceeded: Vec<(String, String, String)>,
}

impl fmt::Display for FullQuota {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { namespace, name, exceeded } = self;
        let exceeded: Vec<String> = exceeded
            .iter()
            .map(|(resource, used, hard)| format!("{resource}: {used} of {hard} used"))
            .collect();
        write!(f, "quota {namespace}/{name} allows no additional pod ({})", exceeded.join(", "))
    }
}

/// The first of these quotas that does not allow a pod like `pod` in addition.
pub fn refusing(quotas: &[ResourceQuota], pod: &Pod) -> Option<FullQuota> {
    let (requests, limits) = (Resources::of_pod(pod), Resources::limits_of_pod(pod));
    let amount = |resource: &str| match resource.split_once('.') {
        _ if resource == "count/pods" => requests.amount(PODS),
        Some(("limits", resource)) => limits.amount(resource),
        Some(("requests", resource)) => requests.amount(resource),
        _ => requests.amount(resource),
    };
    quotas.iter().filter(|quota| applies(quota, pod)).find_map(|quota| {
        let status = quota.status.as_ref()?;
        let used = |resource: &String| status.used.as_ref()?.get(resource).map(|used| used.0.clone());
        let exceeds = |(resource, hard): &(&String, &Quantity)| {
            let wanted = amount(resource);
            let of_used = used(resource).and_then(|used| quantity::thousandths(&used)).unwrap_or(0);
            wanted > 0 && quantity::thousandths(&hard.0).is_some_and(|hard| of_used + wanted > hard)
        };
        let exceeded: Vec<(String, String, String)> = status
            .hard
            .iter()
            .flatten()
            .filter(exceeds)
            .map(|(resource, hard)| {
                let used = used(resource).unwrap_or_else(|| String::from("0"));
                (resource.clone(), used, hard.0.clone())
            })
            .collect();
        (!exceeded.is_empty()).then(|| FullQuota {
            namespace: quota.metadata.namespace.clone().unwrap_or_default(),
            name: quota.metadata.name.clone().unwrap_or_default(),
            exceeded,
        })
    })
}

/// Whether a quota counts the pod. One with a scope that is not known counts as none.
fn applies(quota: &ResourceQuota, pod: &Pod) -> bool {
    let Some(spec) = &quota.spec else { return true };
    let selected =
        spec.scope_selector.iter().flat_map(|selector| selector.match_expressions.iter().flatten());
    spec.scopes.iter().flatten().all(|scope| is_in_scope(scope, pod))
        && selected.into_iter().all(|wanted| match wanted.scope_name.as_str() {
            "PriorityClass" => has_priority(wanted, pod),
            scope => wanted.operator == "Exists" && is_in_scope(scope, pod),
        })
}

fn is_in_scope(scope: &str, pod: &Pod) -> bool {
    let ends = pod.spec.as_ref().is_some_and(|spec| spec.active_deadline_seconds.is_some());
    let is_best_effort =
        || pod.status.as_ref().and_then(|status| status.qos_class.as_deref()) == Some("BestEffort");
    match scope {
        "Terminating" => ends,
        "NotTerminating" => !ends,
        "BestEffort" => is_best_effort(),
        "NotBestEffort" => !is_best_effort(),
        "PriorityClass" => class(pod).is_some(),
        _ => false,
    }
}

fn has_priority(wanted: &ScopedResourceSelectorRequirement, pod: &Pod) -> bool {
    let is_listed = || wanted.values.iter().flatten().any(|value| Some(value.as_str()) == class(pod));
    match wanted.operator.as_str() {
        "In" => is_listed(),
        "NotIn" => !is_listed(),
        "Exists" => class(pod).is_some(),
        "DoesNotExist" => class(pod).is_none(),
        _ => false,
    }
}

fn class(pod: &Pod) -> Option<&str> {
    pod.spec.as_ref()?.priority_class_name.as_deref().filter(|class| !class.is_empty())
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    /// Whether a quota refuses a pod that requests 500m of cpu, is limited to 1, and has a priority class.
    fn refused(spec: &Value, hard: &Value, used: &Value) -> Option<String> {
        let container =
            json!({"name": "c", "resources": {"requests": {"cpu": "500m"}, "limits": {"cpu": "1"}}});
        let pod = json!({"metadata": {"namespace": "shop"}, "status": {"qosClass": "Burstable"},
            "spec": {"containers": [container], "priorityClassName": "high"}});
        let quota = json!({"metadata": {"namespace": "shop", "name": "few"}, "spec": spec,
            "status": {"hard": hard, "used": used}});
        let (quota, pod) = (serde_json::from_value(quota).unwrap(), serde_json::from_value(pod).unwrap());
        refusing(&[quota], &pod).map(|full| full.to_string())
    }

    #[test]
    fn a_quota_refuses_one_more_pod_if_what_is_left_is_less_than_the_pod_needs() {
        for (hard, used, is_refused) in [
            (json!({"pods": "3"}), json!({"pods": "2"}), false),
            (json!({"pods": "3"}), json!({"pods": "3"}), true),
            (json!({"count/pods": "3"}), json!({"count/pods": "3"}), true),
            (json!({"requests.cpu": "2"}), json!({"requests.cpu": "1500m"}), false),
            (json!({"requests.cpu": "2"}), json!({"requests.cpu": "1501m"}), true),
            (json!({"cpu": "2"}), json!({"cpu": "1900m"}), true),
            (json!({"limits.cpu": "2"}), json!({"limits.cpu": "1500m"}), true),
            (json!({"limits.cpu": "2"}), json!({"limits.cpu": "1"}), false),
            // It needs none of these.
            (
                json!({"requests.memory": "1Gi", "services": "1", "limits.memory": "1Gi"}),
                json!({"requests.memory": "2Gi",
                "services": "1", "limits.memory": "2Gi"}),
                false,
            ),
            (json!({"pods": "0"}), json!({}), true),
        ] {
            assert_eq!(refused(&json!({}), &hard, &used).is_some(), is_refused, "{hard} {used}");
        }
        let (hard, used) = (json!({"pods": "3", "cpu": "1"}), json!({"pods": "3", "cpu": "900m"}));
        let full = refused(&json!({}), &hard, &used);
        let expected = "quota shop/few allows no additional pod (cpu: 900m of 1 used, pods: 3 of 3 used)";
        assert_eq!(full.as_deref(), Some(expected));
    }

    #[test]
    fn a_quota_of_other_pods_refuses_none() {
        let class = |operator: &str, values: &Value| {
            let wanted = json!({"scopeName": "PriorityClass", "operator": operator, "values": values});
            json!({"scopeSelector": {"matchExpressions": [wanted]}})
        };
        for (spec, is_refused) in [
            (json!({"scopes": ["NotTerminating", "NotBestEffort"]}), true),
            (json!({"scopes": ["Terminating"]}), false),
            (json!({"scopes": ["BestEffort"]}), false),
            (class("In", &json!(["high"])), true),
            (class("In", &json!(["low"])), false),
            (class("NotIn", &json!(["low"])), true),
            (class("DoesNotExist", &json!(null)), false),
            (json!({"scopes": ["CrossNamespacePodAffinity"]}), false),
        ] {
            let full = refused(&spec, &json!({"pods": "3"}), &json!({"pods": "3"}));
            assert_eq!(full.is_some(), is_refused, "{spec}");
        }
    }
}
