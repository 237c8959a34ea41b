//! The persistent volumes of pods, as far as they restrict the nodes for a pod.

use std::collections::HashMap;

use k8s_openapi::api::core::v1::{NodeSelector, PersistentVolume, Pod};

use crate::api::pod_reference::PodReference;

/// Volumes by the namespace and name of their claim.
#[derive(Debug, Clone, Default)]
pub struct Volumes(HashMap<(String, String), PersistentVolume>);

impl Volumes {
    /// The volumes that have a claim.
    pub fn new(volumes: impl IntoIterator<Item = PersistentVolume>) -> Self {
        let by_claim = volumes.into_iter().filter_map(|volume| {
            let claim = volume.spec.as_ref()?.claim_ref.as_ref()?;
            let key = (claim.namespace.clone()?, claim.name.clone()?);
            Some((key, volume))
        });
        Self(by_claim.collect())
    }

    /// Adds others.
    pub fn add(&mut self, others: Self) {
        self.0.extend(others.0);
    }

    /// Whether the volume of a claim stays when the claim is removed; none if the volume is not known.
    pub fn is_retained(&self, claim: &PodReference) -> Option<bool> {
        let spec = self.0.get(&(claim.namespace.clone(), claim.name.clone()))?.spec.as_ref()?;
        Some(spec.persistent_volume_reclaim_policy.as_deref() == Some("Retain"))
    }

    /// The nodes from which the pod's volumes are accessible.
    pub fn node_selectors<'a>(&'a self, pod: &'a Pod) -> Vec<&'a NodeSelector> {
        self.of(pod).filter_map(selector).collect()
    }

    /// The names of the pod's volumes that are local to the node, whose data stays behind.
    pub fn local<'a>(&'a self, pod: &'a Pod) -> Vec<&'a str> {
        names(self.of(pod).filter(|volume| is_local(volume)))
    }

    /// Those of them that bind the pod to the node. A path of the host is one of each node.
    pub fn binding<'a>(&'a self, pod: &'a Pod) -> Vec<&'a str> {
        names(self.of(pod).filter(|volume| is_local(volume) && selector(volume).is_some()))
    }

    fn of<'a>(&'a self, pod: &'a Pod) -> impl Iterator<Item = &'a PersistentVolume> {
        let namespace = pod.metadata.namespace.as_deref().unwrap_or_default();
        claims(pod).filter_map(move |claim| self.0.get(&(namespace.to_owned(), claim.to_owned())))
    }
}

fn is_local(volume: &PersistentVolume) -> bool {
    volume.spec.as_ref().is_some_and(|spec| spec.local.is_some() || spec.host_path.is_some())
}

/// The nodes from which a volume is accessible; none if all can access it.
fn selector(volume: &PersistentVolume) -> Option<&NodeSelector> {
    volume.spec.as_ref()?.node_affinity.as_ref()?.required.as_ref()
}

fn names<'a>(volumes: impl Iterator<Item = &'a PersistentVolume>) -> Vec<&'a str> {
    volumes.filter_map(|volume| volume.metadata.name.as_deref()).collect()
}

/// The names of the claims of a pod.
pub fn claims(pod: &Pod) -> impl Iterator<Item = &str> {
    let volumes = pod.spec.iter().flat_map(|spec| spec.volumes.iter().flatten());
    volumes.filter_map(|volume| Some(volume.persistent_volume_claim.as_ref()?.claim_name.as_str()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn volume(name: &str, claim: &str, source: &Value) -> PersistentVolume {
        let here = json!({"key": "metadata.name", "operator": "In", "values": ["n1"]});
        let mut spec = json!({
            "claimRef": {"namespace": "shop", "name": claim},
            "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchFields": [here]}]}},
        });
        spec[source["kind"].as_str().unwrap()] = source["is"].clone();
        serde_json::from_value(json!({"metadata": {"name": name}, "spec": spec})).unwrap()
    }

    fn pod(namespace: &str, claims: &[&str]) -> Pod {
        let volume = |claim: &&str| json!({"name": claim, "persistentVolumeClaim": {"claimName": claim}});
        let mut volumes: Vec<Value> = claims.iter().map(volume).collect();
        volumes.push(json!({"name": "tmp", "emptyDir": {}}));
        let metadata = json!({"namespace": namespace, "name": "p"});
        serde_json::from_value(json!({"metadata": metadata, "spec": {"containers": [], "volumes": volumes}}))
            .unwrap()
    }

    #[test]
    fn volumes_are_found_by_their_claims() {
        let volumes = Volumes::new([
            volume("pv-local", "data", &json!({"kind": "local", "is": {"path": "/data"}})),
            volume("pv-path", "logs", &json!({"kind": "hostPath", "is": {"path": "/logs"}})),
            volume("pv-disk", "disk", &json!({"kind": "csi", "is": {"driver": "d", "volumeHandle": "h"}})),
            PersistentVolume::default(),
        ]);
        let found = |pod: &Pod| (volumes.local(pod).join(","), volumes.node_selectors(pod).len());
        assert_eq!(found(&pod("shop", &["data", "disk"])), ("pv-local".to_owned(), 2));
        assert_eq!(found(&pod("shop", &["logs"])), ("pv-path".to_owned(), 1));
        assert_eq!(found(&pod("elsewhere", &["data"])), (String::new(), 0));
        assert_eq!(found(&pod("shop", &[])), (String::new(), 0));
    }

    #[test]
    fn a_path_that_each_node_has_binds_no_pod() {
        let mut path = volume("pv-path", "logs", &json!({"kind": "hostPath", "is": {"path": "/logs"}}));
        path.spec.as_mut().unwrap().node_affinity = None;
        let local = volume("pv-local", "data", &json!({"kind": "local", "is": {"path": "/data"}}));
        let (volumes, pod) = (Volumes::new([path, local]), pod("shop", &["logs", "data"]));
        assert_eq!(
            (volumes.local(&pod), volumes.binding(&pod)),
            (vec!["pv-path", "pv-local"], vec!["pv-local"])
        );
    }
}
