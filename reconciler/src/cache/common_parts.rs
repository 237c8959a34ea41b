//! What pods have in common, stored once for all of them: the pods of a workload have the same namespace, labels and controller,
//! and those of a node its name.

use std::collections::{BTreeMap, HashSet};
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use nm_shared::cluster::pod::DrainPod;

/// As long as there are fewer parts, none is forgotten.
const MIN_SWEPT: usize = 256;

/// The parts that known pods have in common.
#[derive(Default)]
pub(crate) struct CommonParts {
    names: HashSet<Arc<str>>,
    labels: HashSet<Arc<BTreeMap<String, String>>>,
    controllers: HashSet<Controller>,
    /// From this number of parts on, those that no pod has any more are forgotten.
    sweep_at: usize,
}

#[derive(Clone, PartialEq)]
struct Controller(Arc<OwnerReference>);

impl Eq for Controller {}

impl Hash for Controller {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.0.uid.hash(state);
    }
}

impl CommonParts {
    /// Replaces the parts of a pod by those of earlier pods, where they are equal.
    pub(crate) fn share(&mut self, pod: &mut DrainPod) {
        share(&mut self.names, &mut pod.namespace);
        share(&mut self.names, &mut pod.node);
        share(&mut self.labels, &mut pod.labels);
        if let Some(controller) = pod.controller.take() {
            let mut controller = Controller(controller);
            share(&mut self.controllers, &mut controller);
            pod.controller = Some(controller.0);
        }
        if self.len() >= self.sweep_at {
            self.names.retain(|name| Arc::strong_count(name) > 1);
            self.labels.retain(|labels| Arc::strong_count(labels) > 1);
            self.controllers.retain(|controller| Arc::strong_count(&controller.0) > 1);
            self.sweep_at = (2 * self.len()).max(MIN_SWEPT);
        }
    }

    fn len(&self) -> usize {
        self.names.len() + self.labels.len() + self.controllers.len()
    }
}

fn share<T: Clone + Eq + Hash>(known: &mut HashSet<T>, part: &mut T) {
    match known.get(part) {
        Some(known) => *part = known.clone(),
        None => _ = known.insert(part.clone()),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn pod(name: &str, owner: &str) -> DrainPod {
        let owner = json!({"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": owner, "uid": "u", "controller": true});
        serde_json::from_value(json!({
            "metadata": {"namespace": "shop", "name": name, "uid": name, "labels": {"app": owner["name"]},
                "ownerReferences": [owner]},
            "spec": {"nodeName": "n"},
        }))
        .unwrap()
    }

    #[test]
    fn equal_parts_are_stored_once_and_no_pod_changes() {
        let mut common = CommonParts::default();
        let mut shared = |name: &str, owner: &str| {
            let mut shared = pod(name, owner);
            common.share(&mut shared);
            assert_eq!(shared, pod(name, owner));
            shared
        };
        let (one, two, other) = (shared("a", "cart"), shared("b", "cart"), shared("c", "web"));
        assert!(Arc::ptr_eq(&one.labels, &two.labels) && Arc::ptr_eq(&one.namespace, &other.namespace));
        assert!(Arc::ptr_eq(one.controller.as_ref().unwrap(), two.controller.as_ref().unwrap()));
        assert!(!Arc::ptr_eq(one.controller.as_ref().unwrap(), other.controller.as_ref().unwrap()));
    }

    #[test]
    fn parts_that_no_pod_has_any_more_are_forgotten() {
        let mut common = CommonParts::default();
        for at in 0..10 * MIN_SWEPT {
            common.share(&mut pod("p", &at.to_string()));
        }
        assert!(common.len() <= MIN_SWEPT, "{}", common.len());
    }
}
