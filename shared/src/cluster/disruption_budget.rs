//! One disruption budget: which pods it guards, what it allows, and how the API server would refuse for it.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::policy::v1::{PodDisruptionBudget, PodDisruptionBudgetStatus};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::core::{Selector, SelectorExt};

use crate::api::status::PodReference;
use crate::cluster::pod;

/// Which budget: its namespace and name.
pub type BudgetKey = PodReference;

/// A budget as it was at some resourceVersion.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct BudgetVersion {
    /// Which budget.
    pub key: BudgetKey,
    /// Its resourceVersion.
    pub version: String,
}

/// A budget as it is seen, read once for all decisions.
#[derive(Debug, Clone)]
pub struct Budget {
    seen: BudgetVersion,
    /// None where it selects nothing, as `selector: null` does.
    selector: Option<Selector>,
    status: PodDisruptionBudgetStatus,
    /// Its controller has not seen its latest spec.
    unprocessed: bool,
    always_allows_unhealthy: bool,
}

impl From<&PodDisruptionBudget> for Budget {
    fn from(object: &PodDisruptionBudget) -> Self {
        let metadata = &object.metadata;
        let key = BudgetKey {
            namespace: metadata.namespace.clone().unwrap_or_default(),
            name: metadata.name.clone().unwrap_or_default(),
        };
        let spec = object.spec.as_ref();
        let selector = spec.and_then(|spec| spec.selector.clone());
        let policy = spec.and_then(|spec| spec.unhealthy_pod_eviction_policy.as_deref());
        let status = object.status.clone().unwrap_or_default();
        Self {
            seen: BudgetVersion { key, version: metadata.resource_version.clone().unwrap_or_default() },
            selector: selector.and_then(|selector| Selector::try_from(selector).ok()),
            unprocessed: status.observed_generation.unwrap_or(0) < metadata.generation.unwrap_or(0),
            always_allows_unhealthy: policy == Some("AlwaysAllow"),
            status,
        }
    }
}

impl Budget {
    /// Which budget, and as it was when.
    pub fn seen(&self) -> &BudgetVersion {
        &self.seen
    }

    /// Whether it guards a pod of its namespace.
    pub fn guards(&self, pod: &Pod) -> bool {
        let matches = |selector: &Selector| match &pod.metadata.labels {
            Some(labels) => selector.matches(labels),
            None => selector.matches(&BTreeMap::new()),
        };
        self.selector.as_ref().is_some_and(matches)
    }

    /// Disruptions that it allows; none while its controller has not seen its latest spec, as the API server has it.
    pub fn allowed(&self) -> i32 {
        if self.unprocessed { 0 } else { self.status.disruptions_allowed }
    }

    /// How many disruptions it allows at once when all pods that it expects are healthy.
    pub fn at_most(&self) -> usize {
        usize::try_from(self.status.expected_pods - self.status.desired_healthy).unwrap_or(0)
    }

    /// Pods whose end is no disruption: those that do not run, and unhealthy ones where the policy says so.
    pub fn lets_pass(&self, pod: &Pod) -> bool {
        if pod::is_pending(pod) || pod::is_finished(pod) {
            return true;
        }
        if pod::is_ready(pod) {
            return false;
        }
        let (current, desired) = (self.status.current_healthy, self.status.desired_healthy);
        self.always_allows_unhealthy || (current >= desired && desired > 0)
    }

    /// The sentence by which the API server refuses (`pkg/registry/core/pod/storage/eviction.go` in kubernetes).
    pub fn refusal(&self) -> String {
        let (status, name) = (&self.status, &self.seen.key.name);
        if self.unprocessed {
            return format!("The disruption budget {name} is still being processed by the server.");
        }
        let failed = status.conditions.iter().flatten().find(|condition| {
            (condition.type_.as_str(), condition.status.as_str(), condition.reason.as_str())
                == ("DisruptionAllowed", "False", "SyncFailed")
        });
        if let Some(Condition { message, .. }) = failed {
            return format!(
                "The disruption budget {name} does not allow evicting pods currently because it failed sync: {message}"
            );
        }
        let (desired, current) = (status.desired_healthy, status.current_healthy);
        format!("The disruption budget {name} needs {desired} healthy pods and has {current} currently")
    }
}
