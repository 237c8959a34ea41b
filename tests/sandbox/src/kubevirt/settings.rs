//! The settings of migrations, in the object `kubevirt`, with KubeVirt's defaults.

use jiff::SignedDuration;
use serde_json::{Value, json};

use crate::cluster::store::{Key, State};
use crate::kubevirt::objects::{KUBEVIRTS, NAMESPACE};
use crate::model::pod;

/// An annotation on the object `kubevirt`: virt-controller is down.
pub const CONTROLLER_DOWN: &str = "kube-sandbox.dev/virt-controller-down";
/// An annotation on the object `kubevirt`: the seconds before the first retry of a migration, which double with each.
pub const BACKOFF: &str = "kube-sandbox.dev/migration-backoff-seconds";
/// An annotation on the object `kubevirt`: for how many seconds a target pod may be unschedulable.
pub const UNSCHEDULABLE_TIMEOUT: &str = "kube-sandbox.dev/unschedulable-timeout-seconds";

const NAME: &str = "kubevirt";

/// The installation of KubeVirt.
pub(crate) fn kubevirt() -> Value {
    json!({
        "metadata": {"namespace": NAMESPACE, "name": NAME},
        "spec": {"configuration": {"migrations": {}}},
        "status": {"phase": "Deployed"},
    })
}

/// The settings.
#[derive(Debug, Clone)]
pub(crate) struct Settings {
    /// Whether virt-controller does nothing.
    pub(crate) controller_is_down: bool,
    /// How many migrations may be under way in the cluster.
    pub(crate) parallel_per_cluster: usize,
    /// How many may leave one node.
    pub(crate) parallel_per_node: usize,
    /// How long before the first retry; it doubles with each.
    pub(crate) backoff: SignedDuration,
    /// For how long a target pod may be unschedulable.
    pub(crate) unschedulable_timeout: SignedDuration,
    /// Nodes with this taint are evacuated.
    pub(crate) drain_taint: String,
}

impl Settings {
    /// The current settings.
    pub(crate) fn read(state: &State) -> Self {
        let object = state.get(&KUBEVIRTS, &Key::new(NAMESPACE, NAME));
        let object = object.as_deref().unwrap_or(&Value::Null);
        let migrations = &object["spec"]["configuration"]["migrations"];
        let count = |field: &str, default: usize| {
            migrations[field].as_u64().and_then(|count| usize::try_from(count).ok()).unwrap_or(default)
        };
        let seconds = |name: &str, default: i64| {
            let set = pod::annotation(object, name).and_then(|seconds| seconds.parse().ok());
            SignedDuration::from_secs(set.unwrap_or(default))
        };
        Self {
            controller_is_down: pod::annotation(object, CONTROLLER_DOWN).is_some(),
            parallel_per_cluster: count("parallelMigrationsPerCluster", 5),
            parallel_per_node: count("parallelOutboundMigrationsPerNode", 2),
            backoff: seconds(BACKOFF, 20),
            unschedulable_timeout: seconds(UNSCHEDULABLE_TIMEOUT, 300),
            drain_taint: migrations["nodeDrainTaintKey"].as_str().unwrap_or("kubevirt.io/drain").to_owned(),
        }
    }

    /// Whether a node has the taint by which it is evacuated.
    pub(crate) fn drains(&self, node: &Value) -> bool {
        let mut taints = node["spec"]["taints"].as_array().into_iter().flatten();
        taints.any(|taint| taint["key"] == *self.drain_taint && taint["effect"] == "NoSchedule")
    }
}

/// The taint by which a node is evacuated, if the node has it.
pub(crate) fn drain_taint(state: &State, node: &Value) -> Option<String> {
    let settings = Settings::read(state);
    settings.drains(node).then(|| format!("{}:NoSchedule", settings.drain_taint))
}
