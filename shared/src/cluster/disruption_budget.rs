//! A disruption budget: which pods it guards, what it allows, and how the API server refuses an eviction because of it.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::api::policy::v1::{PodDisruptionBudget, PodDisruptionBudgetStatus};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use kube::core::{Selector, SelectorExt};

use crate::api::pod_reference::PodReference;
use crate::api::status::BudgetFacts;
use crate::cluster::pod::{self, DrainPod};

/// The namespace and name of a budget.
pub type BudgetKey = PodReference;

/// A budget at a resourceVersion.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct BudgetVersion {
    /// The budget.
    pub key: BudgetKey,
    /// The resourceVersion of the budget.
    pub version: String,
}

/// How many pods a number or a percentage of `all` is.
pub(crate) fn resolve(value: &IntOrString, all: i32, round_up: bool) -> i32 {
    match value {
        IntOrString::Int(number) => *number,
        IntOrString::String(text) => {
            let percent = text.strip_suffix('%').and_then(|percent| percent.parse::<i64>().ok()).unwrap_or(0);
            let share = percent.saturating_mul(i64::from(all));
            let whole = share / 100 + i64::from(round_up && share % 100 > 0);
            i32::try_from(whole).unwrap_or(i32::MAX)
        }
    }
}

/// Why the API server refuses an eviction because of a budget.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct BudgetRefusal {
    /// The API server's sentence.
    pub message: String,
    /// The budget and its numbers, as far as they are known.
    pub budget: Option<BudgetFacts>,
}

/// A budget as it was last observed, parsed once for all decisions.
#[derive(Debug, Clone)]
pub struct Budget {
    version: Arc<BudgetVersion>,
    /// None if it selects nothing, as `selector: null` does.
    selector: Option<Selector>,
    status: PodDisruptionBudgetStatus,
    /// The disruption controller has not processed the latest spec of the budget, and has not failed to either: of a budget that
    /// it could never count, it observes no generation.
    unprocessed: bool,
    always_allows_unhealthy: bool,
    /// The budget counts all existing pods, including the additional ones of a rollout: its `minAvailable` is a number.
    counts_additional: bool,
    minimum: Option<IntOrString>,
    maximum: Option<IntOrString>,
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
        let minimum = spec.and_then(|spec| spec.min_available.clone());
        let maximum = spec.and_then(|spec| spec.max_unavailable.clone());
        let status = object.status.clone().unwrap_or_default();
        let version = metadata.resource_version.clone().unwrap_or_default();
        Self {
            version: Arc::new(BudgetVersion { key, version }),
            selector: selector.and_then(|selector| Selector::try_from(selector).ok()),
            unprocessed: status.observed_generation.unwrap_or(0) < metadata.generation.unwrap_or(0)
                && sync_failure(&status).is_none(),
            always_allows_unhealthy: policy == Some("AlwaysAllow"),
            counts_additional: matches!(minimum, Some(IntOrString::Int(_))),
            minimum,
            maximum,
            status,
        }
    }
}

impl Budget {
    /// The budget and the resourceVersion at which it was observed.
    pub fn version(&self) -> &Arc<BudgetVersion> {
        &self.version
    }

    /// Whether it guards a pod: it selects it, and both are in the same namespace.
    pub fn guards(&self, pod: &DrainPod) -> bool {
        let selects = |selector: &Selector| selector.matches(&pod.labels);
        pod::names(pod).namespace == self.version.key.namespace && self.selector.as_ref().is_some_and(selects)
    }

    /// The number of disruptions that the budget allows; 0 while its controller has not processed its latest spec, as in the API server.
    pub fn allowed(&self) -> i32 {
        if self.unprocessed { 0 } else { self.status.disruptions_allowed }
    }

    /// Whether its controller has processed its latest spec and counted pods. Of pods without a controller, it expects none,
    /// unless `minAvailable` is a number.
    pub fn is_processed(&self) -> bool {
        !self.unprocessed && (self.status.expected_pods > 0 || self.status.current_healthy > 0)
    }

    /// The number of disruptions that the budget allows when all expected pods are healthy; 0 if its controller cannot count them.
    pub fn at_most(&self) -> usize {
        if !self.is_counted() {
            return 0;
        }
        usize::try_from(self.status.expected_pods - self.status.desired_healthy).unwrap_or(0)
    }

    /// Whether it allows no disruption even when all expected pods are healthy. They are at least the `replicas` of a
    /// Deployment. If its `minAvailable` is a number, it also expects pods that end or have ended, and never are healthy
    /// again: `others` may have such pods.
    pub fn never_allows<'a>(&self, replicas: i32, others: impl Iterator<Item = &'a DrainPod>) -> bool {
        if !self.counts_additional {
            return self.at_most() == 0;
        }
        let ends = |pod: &&DrainPod| pod::is_finished(pod) || pod::deadline(pod).is_some();
        let ending = others.filter(ends).filter(|pod| self.guards(pod)).count();
        let ending = i32::try_from(ending).unwrap_or(i32::MAX);
        let expected = self.status.expected_pods.saturating_sub(ending).max(replicas);
        expected <= self.status.desired_healthy
    }

    /// Whether it allows no disruption even when all expected pods are healthy, as soon as no rollout adds to them. Of a rollout
    /// of `replicas` pods, no more than that many are additional.
    pub fn never_allows_after_rollout(&self, replicas: Option<i32>) -> bool {
        let (desired, healthy) = (self.status.desired_healthy, self.status.current_healthy);
        let additional = || healthy.saturating_sub(desired) <= desired;
        self.at_most() == 0
            || (self.counts_additional && additional() && replicas.is_none_or(|replicas| desired >= replicas))
    }

    /// How many of its healthy pods a rollout has added to the `replicas` of a Deployment, whose pods these are. The rollout may
    /// end so many at any moment.
    pub fn added_by_rollout<'a>(&self, replicas: i32, pods: impl Iterator<Item = &'a DrainPod>) -> i32 {
        self.healthy_among(pods).saturating_sub(replicas).max(0)
    }

    /// How many of these pods are healthy ones of the budget.
    fn healthy_among<'a>(&self, pods: impl Iterator<Item = &'a DrainPod>) -> i32 {
        let is_healthy =
            |pod: &&DrainPod| pod::is_ready(pod) && pod::deadline(pod).is_none() && self.guards(pod);
        i32::try_from(pods.filter(is_healthy).count()).unwrap_or(i32::MAX)
    }

    /// Whether its controller has processed its latest spec, and yet counts fewer healthy pods than there are among these. That lasts
    /// if another budget selected the pods: the controller counts one budget of a pod that has changed, and the deletion of that one
    /// does not make it count the other (`pkg/controller/disruption/disruption.go` in kubernetes). A change of the budget does.
    pub fn is_outdated<'a>(&self, pods: impl Iterator<Item = &'a DrainPod>) -> bool {
        let evicted = self.status.disrupted_pods.as_ref();
        let stays =
            |pod: &&DrainPod| evicted.is_none_or(|evicted| !evicted.contains_key(pod::names(pod).name));
        !self.unprocessed
            && self.is_counted()
            && self.status.current_healthy < self.healthy_among(pods.filter(stays))
    }

    /// Whether it is outdated, and would allow an eviction once its controller has counted these pods. Usually, that is about to happen.
    pub fn allows_once_counted<'a>(&self, pods: impl Iterator<Item = &'a DrainPod> + Clone) -> bool {
        let healthy = self.healthy_among(pods.clone());
        self.is_outdated(pods) && healthy > self.desired_of(self.status.expected_pods.max(healthy))
    }

    /// How many healthy pods it needs of so many expected ones (`getExpectedPodCount` of the disruption controller).
    fn desired_of(&self, expected: i32) -> i32 {
        match (&self.minimum, &self.maximum) {
            (Some(minimum), _) => resolve(minimum, expected, true),
            (None, Some(maximum)) => expected.saturating_sub(resolve(maximum, expected, true)),
            (None, None) => self.status.desired_healthy,
        }
    }

    /// How many healthy pods it has beyond those that it needs; negative if it lacks some.
    pub fn surplus(&self) -> i32 {
        self.status.current_healthy.saturating_sub(self.status.desired_healthy)
    }

    /// Whether it has allowed an eviction since it was as `before`, expects more pods, or was processed.
    pub fn has_changed(&self, before: &Self) -> bool {
        let (now, then) = (&self.status, &before.status);
        let known = then.disrupted_pods.as_ref();
        let is_new = |pod: &String| known.is_none_or(|known| !known.contains_key(pod));
        now.disrupted_pods.iter().flat_map(BTreeMap::keys).any(is_new)
            || now.expected_pods > then.expected_pods
            || before.unprocessed && !self.unprocessed
    }

    /// When an eviction was last accepted or its condition changed, as far as the budget shows that.
    pub fn last_change(&self) -> Option<Timestamp> {
        let conditions = self.status.conditions.iter().flatten();
        let changed = conditions.map(|condition| condition.last_transition_time.0);
        changed.chain(self.status.disrupted_pods.iter().flatten().map(|(_, at)| at.0)).max()
    }

    /// Whether it can never allow a disruption as it is: with all expected pods healthy it allows none, or its controller
    /// cannot count them.
    pub fn is_unsatisfiable(&self) -> bool {
        !self.unprocessed && self.at_most() == 0
    }

    /// Whether it cannot allow a disruption before some of so many pods that are stuck are Ready: with all others healthy it has
    /// fewer than it needs, so that it does not even allow the eviction of those that are not Ready.
    pub fn is_unsatisfiable_without(&self, stuck: usize) -> bool {
        !self.unprocessed && stuck > self.at_most()
    }

    /// Whether its controller can count its pods.
    pub fn is_counted(&self) -> bool {
        self.sync_failure().is_none()
    }

    /// Why its controller cannot count its pods, if it says so.
    pub fn sync_failure(&self) -> Option<&Condition> {
        sync_failure(&self.status)
    }

    /// Whether the eviction of a pod is no disruption: it does not run, or it is unhealthy and the policy allows it.
    pub fn ignores(&self, pod: &DrainPod) -> bool {
        if pod::is_pending(pod) || pod::is_finished(pod) {
            return true;
        }
        if pod::is_ready(pod) {
            return false;
        }
        let (current, desired) = (self.status.current_healthy, self.status.desired_healthy);
        self.always_allows_unhealthy || (current >= desired && desired > 0)
    }

    /// The budget and its numbers.
    pub fn facts(&self) -> BudgetFacts {
        BudgetFacts {
            name: self.version.key.name.clone(),
            desired_healthy: Some(self.status.desired_healthy),
            current_healthy: Some(self.status.current_healthy),
            disruptions_allowed: Some(self.allowed()),
            expected_pods: Some(self.status.expected_pods).filter(|pods| *pods > 0 && !self.unprocessed),
        }
    }

    /// How the API server refuses an eviction because of this budget.
    pub fn refusal(&self) -> BudgetRefusal {
        BudgetRefusal { message: self.sentence(), budget: Some(self.facts()) }
    }

    /// The API server's sentence (`pkg/registry/core/pod/storage/eviction.go` in kubernetes). Of a budget that could never be
    /// counted, which it says is still being processed, the reason is given at once.
    fn sentence(&self) -> String {
        let (status, name) = (&self.status, &self.version.key.name);
        if self.unprocessed {
            return format!("The disruption budget {name} is still being processed by the server.");
        }
        if let Some(Condition { message, .. }) = self.sync_failure() {
            return format!(
                "The disruption budget {name} does not allow evicting pods currently because it failed sync: {message}"
            );
        }
        let (desired, current) = (status.desired_healthy, status.current_healthy);
        if current > desired && self.allowed() <= 0 {
            // How many pods there should be is not known.
            return format!("The disruption budget {name} does not allow evicting pods currently");
        }
        format!("The disruption budget {name} needs {desired} healthy pods and has {current} currently")
    }
}

fn sync_failure(status: &PodDisruptionBudgetStatus) -> Option<&Condition> {
    status.conditions.iter().flatten().find(|condition| {
        (condition.type_.as_str(), condition.status.as_str(), condition.reason.as_str())
            == ("DisruptionAllowed", "False", "SyncFailed")
    })
}
