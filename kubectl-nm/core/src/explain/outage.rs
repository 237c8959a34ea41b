//! Workloads that have no ready pod since pods of theirs left a node in maintenance. A pure function of what the cluster shows.
//!
//! The status of a maintenance does not name the pods that are gone. The kubelet's events do: it reports each container that it
//! stops, for as long as the API server keeps events.

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::apps::v1::{Deployment, StatefulSet};
use k8s_openapi::api::core::v1::{ContainerState, ContainerStatus, Event, Pod};
use nm_shared::PodReference;

use crate::explain::cluster_facts::{IncompleteOwner, Outage, PreemptedPod, ReadPod, StoppedPod, Workload};
use crate::explain::owner::{Owner, OwnerKind, owner_of};

/// A container that fails this soon after its start has not served.
const SOON: SignedDuration = SignedDuration::from_mins(2);

/// The kubelet sets the first conditions of a pod so soon after it has accepted it.
const ADMISSION: SignedDuration = SignedDuration::from_secs(5);

/// The kubelet waits so long at most before it starts a container again.
const MAX_BACKOFF: SignedDuration = SignedDuration::from_mins(5);

impl Outage {
    /// When it began: its last pod was stopped, or a replacement that had served stopped to. The condition of a workload has the
    /// last restart of a replacement that fails again and again, which may be Ready for a moment each time.
    pub fn since(&self) -> Timestamp {
        // A workload is unavailable once it has too few ready pods, so perhaps before the last of them was lost.
        let unavailable = self.workload.unavailable_since.filter(|since| *since > self.last_stopped);
        let unavailable = unavailable.unwrap_or(self.last_stopped);
        // Pods that were failing had been lost before they were stopped.
        let lost_at = self.failing_since.unwrap_or(self.last_stopped);
        if self.pods.is_empty() {
            return self.failing_since.unwrap_or(unavailable);
        }
        let lost = |pod| match Served::of(pod) {
            Served::Never => lost_at,
            Served::Until(since) => since,
            Served::Unknown => unavailable,
        };
        self.pods.iter().map(lost).fold(lost_at, Timestamp::max)
    }
}

/// What warnings show of a pod from shortly before it was stopped: it may not have been Ready.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Unready {
    /// Since when its kubelet waited between attempts to start its containers, because they failed, if it did.
    pub crashes: Option<Timestamp>,
}

/// Whether a replacement that is not Ready has served.
enum Served {
    /// It has failed from its start on.
    Never,
    /// Until it began to fail again and again.
    Until(Timestamp),
    Unknown,
}

impl Served {
    fn of(read: &ReadPod) -> Self {
        let Some(created) = read.pod.metadata.creation_timestamp.as_ref().map(|at| at.0) else {
            return Self::Unknown;
        };
        let containers = read.pod.status.iter().flat_map(|status| status.container_statuses.iter().flatten());
        let containers: Vec<&ContainerStatus> = containers.collect();
        if containers.iter().all(|container| container.restart_count == 0) {
            let has_run = |container: &&ContainerStatus| {
                container.state.as_ref().is_some_and(|state| state.waiting.is_none())
            };
            return if containers.iter().any(has_run) {
                Self::by_ready_condition(&read.pod)
            } else {
                Self::Never
            };
        }
        let reported = read.warnings.iter().filter(|warning| warning.reason == "BackOff");
        match reported.filter_map(|warning| warning.first).min() {
            Some(first) if first.duration_since(created) > SOON => Self::Until(first),
            Some(_) => Self::Never,
            None if containers.iter().all(|container| is_explained_by_restarts(container, created)) => {
                Self::Never
            }
            None => Self::Unknown,
        }
    }

    /// Of a pod whose containers run on: its condition changes only if it has been Ready.
    fn by_ready_condition(pod: &Pod) -> Self {
        let Some(status) = &pod.status else { return Self::Unknown };
        let ready = status.conditions.iter().flatten().find(|condition| condition.type_ == "Ready");
        let changed = ready.and_then(|ready| Some(ready.last_transition_time.as_ref()?.0));
        match (changed, &status.start_time) {
            (Some(changed), Some(started)) if changed.duration_since(started.0) > ADMISSION => {
                Self::Until(changed)
            }
            (Some(_), Some(_)) => Self::Never,
            _ => Self::Unknown,
        }
    }
}

/// Whether the restarts of a container account for all the time since its pod was created.
fn is_explained_by_restarts(container: &ContainerStatus, created: Timestamp) -> bool {
    if container.restart_count == 0 {
        return true;
    }
    let ended = |state: &Option<ContainerState>| state.as_ref()?.terminated.as_ref()?.finished_at.clone();
    let longest =
        MAX_BACKOFF.saturating_add(SOON).saturating_mul(container.restart_count).saturating_add(SOON);
    let last = ended(&container.state).or_else(|| ended(&container.last_state));
    last.is_some_and(|at| at.0.duration_since(created) <= longest)
}

impl StoppedPod {
    /// The pod that an event is about; none if the event is another one, or if the kubelet only restarts a container.
    pub fn of(event: &Event) -> Option<Self> {
        let (about, source) = (&event.involved_object, event.source.as_ref()?);
        let time = event.last_timestamp.as_ref().or(event.first_timestamp.as_ref())?;
        Some(Self {
            pod: PodReference { namespace: about.namespace.clone()?, name: about.name.clone()? },
            uid: about.uid.clone()?,
            node: source.host.clone()?,
            at: time.0,
        })
        .filter(|_| event.reason.as_deref() == Some("Killing") && !is_restart(event))
    }
}

/// Whether a kubelet stops a container to start it again, such as after a failed liveness probe, of which only its words tell.
fn is_restart(event: &Event) -> bool {
    event.message.as_deref().is_some_and(|message| message.ends_with("will be restarted"))
}

impl From<&Deployment> for Workload {
    fn from(object: &Deployment) -> Self {
        let name = object.metadata.name.as_deref().unwrap_or_default();
        let owner = Owner::new(OwnerKind::Deployment, name);
        let status = object.status.clone().unwrap_or_default();
        let wanted = object.spec.as_ref().and_then(|spec| spec.replicas).unwrap_or(1);
        let conditions = status.conditions.unwrap_or_default();
        let find = |type_: &str, status: &str| {
            conditions.iter().find(|condition| condition.type_ == type_ && condition.status == status)
        };
        let unavailable_since =
            find("Available", "False").and_then(|condition| Some(condition.last_transition_time.as_ref()?.0));
        let namespace = object.metadata.namespace.clone().unwrap_or_default();
        let incomplete = find("ReplicaFailure", "True").map(|failure| IncompleteOwner {
            namespace: namespace.clone(),
            owner: owner.clone(),
            missing: wanted.saturating_sub(status.replicas.unwrap_or(0)),
            message: failure.message.clone().unwrap_or_default(),
        });
        Self {
            namespace,
            owner,
            wanted,
            existing: status.replicas.unwrap_or(0),
            ready: status.ready_replicas.unwrap_or(0),
            unavailable_since,
            incomplete: incomplete.filter(|incomplete| incomplete.missing > 0),
        }
    }
}

impl From<&StatefulSet> for Workload {
    fn from(object: &StatefulSet) -> Self {
        Self {
            namespace: object.metadata.namespace.clone().unwrap_or_default(),
            owner: Owner::new(OwnerKind::StatefulSet, object.metadata.name.as_deref().unwrap_or_default()),
            wanted: object.spec.as_ref().and_then(|spec| spec.replicas).unwrap_or(1),
            existing: object.status.as_ref().map_or(0, |status| status.replicas),
            ready: object.status.as_ref().and_then(|status| status.ready_replicas).unwrap_or(0),
            unavailable_since: None,
            incomplete: None,
        }
    }
}

impl Workload {
    /// With its namespace: `shop/deploy/web`.
    pub fn reference(&self) -> String {
        format!("{}/{}", self.namespace, self.owner)
    }

    /// Whether it wants pods, and none is Ready.
    pub fn is_down(&self) -> bool {
        self.wanted > 0 && self.ready == 0
    }

    /// Whether fewer of its pods are Ready than it wants.
    pub fn lacks_pods(&self) -> bool {
        self.ready < self.wanted
    }

    pub(super) fn names(&self, pod: &PodReference) -> bool {
        pod.namespace == self.namespace && self.owner.names(&pod.name)
    }

    /// What it lost when pods left the node after the drain started. None if it was unavailable before, or may have been. `stopped`
    /// are the pods of all nodes, `preempted` those that the drain has preempted on others, and `pods` those that exist in its
    /// namespace; `warned` tells of a pod whether, and since when, it may have been unready before it was stopped.
    pub fn outage(
        self,
        node: &str,
        began: Timestamp,
        stopped: &[StoppedPod],
        preempted: &[PreemptedPod],
        pods: &[Pod],
        warned: impl Fn(&StoppedPod) -> Option<Unready>,
    ) -> Option<Outage> {
        if !self.lacks_pods() || self.unavailable_since.is_some_and(|since| since < began) {
            return None;
        }
        // A container that its kubelet starts again is stopped, too.
        let is_there = |uid: &String| {
            pods.iter().any(|pod| {
                pod.metadata.uid.as_ref() == Some(uid) && pod.metadata.deletion_timestamp.is_none()
            })
        };
        let of_drain =
            || stopped.iter().filter(|pod| pod.at >= began && self.names(&pod.pod) && !is_there(&pod.uid));
        let preempted: Vec<PreemptedPod> =
            preempted.iter().filter(|pod| self.names(&pod.pod) && !is_there(&pod.uid)).cloned().collect();
        let last_stopped = of_drain().map(|pod| pod.at).chain(preempted.iter().map(|pod| pod.at)).max()?;
        let mut left: Vec<StoppedPod> = of_drain().filter(|pod| pod.node == node).cloned().collect();
        left.sort_by(|a, b| (&a.uid, a.at).cmp(&(&b.uid, b.at)));
        left.dedup_by(|a, b| a.uid == b.uid);
        let is_lost =
            |pod: &&StoppedPod| pod.node == node || preempted.iter().any(|lost| lost.uid == pod.uid);
        let were_unready = || {
            let mut lost = of_drain().filter(is_lost).peekable();
            lost.peek().is_some() && lost.all(|pod| warned(pod).is_some())
        };
        if (left.is_empty() && preempted.is_empty()) || (self.unavailable_since.is_none() && were_unready()) {
            return None;
        }
        // The condition of one whose pods crash again and again may be newer: they are Ready for a moment each time.
        let crashed_before = |pod| warned(pod)?.crashes.filter(|first: &Timestamp| *first < began);
        let failing_since = of_drain().map(crashed_before).collect::<Option<Vec<Timestamp>>>();
        let failing_since = failing_since.and_then(|since| since.into_iter().min());
        let exists =
            |stopped: &&StoppedPod| pods.iter().any(|pod| pod.metadata.uid.as_ref() == Some(&stopped.uid));
        let terminating = left.iter().filter(exists).count();
        let is_own = |pod: &&Pod| {
            pod.metadata.namespace.as_ref() == Some(&self.namespace)
                && owner_of(pod).as_ref() == Some(&self.owner)
        };
        let pods: Vec<&Pod> = pods.iter().filter(is_own).collect();
        // The status of the workload may be older than its pods, and does not count those that still serve while they terminate.
        let has_none = self.is_down();
        if has_none && pods.iter().any(|pod| is_ready(pod)) {
            return None;
        }
        // Only a StatefulSet waits for a pod to terminate before it creates the replacement.
        let waits_for_pods = *self.owner.kind() == OwnerKind::StatefulSet;
        let (staying, leaving): (Vec<&Pod>, Vec<&Pod>) =
            pods.into_iter().partition(|pod| pod.metadata.deletion_timestamp.is_none());
        let pods = if staying.is_empty() && waits_for_pods { leaving } else { staying };
        // Pods that were not Ready before the drain are not what it has lost.
        let is_new = |pod: &&Pod| pod.metadata.creation_timestamp.as_ref().is_none_or(|at| at.0 >= began);
        // It may have lacked pods that it cannot create before the drain. Those that it has lost by the drain then have replacements.
        let are_replaced = pods.iter().filter(|pod| is_new(pod)).count() >= left.len() + preempted.len();
        let incomplete = self.incomplete.clone().filter(|_| !are_replaced);
        let pods = pods.into_iter().filter(|pod| has_none || (!is_ready(pod) && is_new(pod)));
        let pods = pods.map(|pod| ReadPod { pod: pod.clone(), warnings: Vec::new() }).collect();
        let workload = Self { incomplete, ..self };
        Some(Outage { workload, left, preempted, terminating, last_stopped, failing_since, pods })
    }
}

pub(super) fn is_ready(pod: &Pod) -> bool {
    let conditions = pod.status.as_ref().and_then(|status| status.conditions.as_ref());
    conditions.into_iter().flatten().any(|condition| condition.type_ == "Ready" && condition.status == "True")
}

#[cfg(test)]
#[path = "outage_tests.rs"]
mod tests;
