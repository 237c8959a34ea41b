//! The workloads whose pods leave the open node: how many of their pods are ready, and how many they want.

use k8s_openapi::api::apps::v1::{Deployment, ReplicaSet, StatefulSet};
use k8s_openapi::api::core::v1::ReplicationController;
use kube::core::{ApiResource, Object};
use nm_core::explain::owner::{Owner, OwnerKind};
use serde::{Deserialize, Serialize};

/// A kind of workload that counts its ready pods.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) enum WorkloadKind {
    Deployment,
    StatefulSet,
    ReplicaSet,
    ReplicationController,
}

impl WorkloadKind {
    /// The kind of an owner; none if it does not count ready pods, or is not known.
    pub(crate) fn of(owner: &Owner) -> Option<Self> {
        match owner.kind() {
            OwnerKind::Deployment => Some(Self::Deployment),
            OwnerKind::StatefulSet => Some(Self::StatefulSet),
            OwnerKind::ReplicaSet => Some(Self::ReplicaSet),
            OwnerKind::ReplicationController => Some(Self::ReplicationController),
            OwnerKind::DaemonSet
            | OwnerKind::Job
            | OwnerKind::VirtualMachineInstance
            | OwnerKind::Other { .. } => None,
        }
    }

    /// The workload of that name, as the owner of pods.
    pub(crate) fn owner(self, name: &str) -> Owner {
        let kind = match self {
            Self::Deployment => OwnerKind::Deployment,
            Self::StatefulSet => OwnerKind::StatefulSet,
            Self::ReplicaSet => OwnerKind::ReplicaSet,
            Self::ReplicationController => OwnerKind::ReplicationController,
        };
        Owner::new(kind, name)
    }

    /// The name in RBAC.
    pub(crate) fn resource(self) -> &'static str {
        match self {
            Self::Deployment => "deployments.apps",
            Self::StatefulSet => "statefulsets.apps",
            Self::ReplicaSet => "replicasets.apps",
            Self::ReplicationController => "replicationcontrollers",
        }
    }

    pub(crate) fn api_resource(self) -> ApiResource {
        match self {
            Self::Deployment => ApiResource::erase::<Deployment>(&()),
            Self::StatefulSet => ApiResource::erase::<StatefulSet>(&()),
            Self::ReplicaSet => ApiResource::erase::<ReplicaSet>(&()),
            Self::ReplicationController => ApiResource::erase::<ReplicationController>(&()),
        }
    }
}

/// A workload of any of the kinds, as the watch decodes it.
pub(crate) type WatchedWorkload = Object<WorkloadSpecJson, WorkloadStatusJson>;

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(crate) struct WorkloadSpecJson {
    replicas: Option<i32>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct WorkloadStatusJson {
    ready_replicas: Option<i32>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Workload {
    pub(crate) name: String,
    pub(crate) readiness: ReadyPods,
}

/// How many pods are ready, and how many there should be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ReadyPods {
    pub(crate) ready: i32,
    pub(crate) wanted: i32,
}

impl ReadyPods {
    /// How many more pods should be ready.
    pub(crate) fn missing(self) -> i32 {
        self.wanted.saturating_sub(self.ready).max(0)
    }
}

impl From<WatchedWorkload> for Workload {
    fn from(object: WatchedWorkload) -> Self {
        let ready = object.status.and_then(|status| status.ready_replicas).unwrap_or(0);
        // The API server fills in this default.
        let wanted = object.spec.replicas.unwrap_or(1);
        Self { name: object.metadata.name.unwrap_or_default(), readiness: ReadyPods { ready, wanted } }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn an_owner_is_a_workload_of_its_kind() {
        use WorkloadKind::{Deployment, ReplicaSet, ReplicationController, StatefulSet};
        for kind in [Deployment, StatefulSet, ReplicaSet, ReplicationController] {
            assert_eq!(WorkloadKind::of(&kind.owner("x")), Some(kind));
        }
        for other in ["ds/x", "job/x", "vmi/x", "statefulset.apps.kruise.io/x"] {
            assert_eq!(WorkloadKind::of(&Owner::recorded(other).unwrap()), None, "{other}");
        }
    }

    #[test]
    fn readiness_is_read_from_every_kind_and_nothing_ready_is_zero() {
        for (status, ready) in [(json!({"readyReplicas": 2, "replicas": 3}), 2), (json!({"replicas": 3}), 0)]
        {
            let object = json!({"metadata": {"name": "cart", "namespace": "shop"},
                "spec": {"replicas": 3, "template": {}}, "status": status});
            let workload = Workload::from(serde_json::from_value::<WatchedWorkload>(object).unwrap());
            let expected = Workload { name: "cart".into(), readiness: ReadyPods { ready, wanted: 3 } };
            assert_eq!(workload, expected);
        }
    }
}
