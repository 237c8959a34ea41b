//! The API groups under which clusters know `NodeMaintenance`, and what differs between them.
//!
//! The older two are from before the operator moved to medik8s: `kubevirt.io/v1alpha1` of its versions 0.2 to 0.4 and
//! `nodemaintenance.kubevirt.io/v1beta1` since 0.5. The shape of the objects, their finalizer and their status
//! subresource are the same in all. Nodes have another taint there and no label (`deploy/crds`,
//! `pkg/controller/nodemaintenance/taint.go` and `controllers/taint.go` in kubevirt/node-maintenance-operator, v0.2.0 to
//! v0.11.3).
//!
//! Their definitions prune what they do not know: `spec.drain`, and of the status everything that is not the
//! operator's: `conditions`, `blockedPods` with its facts, `migratingPods`, `waitingPods`, `queue`, `forbidden` and
//! `podCounts`. The operator's own definition of `nodemaintenance.medik8s.io` does that too. `lastError` has the details
//! then.

use std::borrow::Cow;
use std::ops::Deref;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Resource;
use kube::core::ClusterResourceScope;
use serde::de::{Deserialize, Deserializer, Error};

use crate::api::maintenance::{NodeMaintenance, NodeMaintenanceSpec};
use crate::api::names::{DRAIN_TAINT, GROUP, KUBEVIRT_DRAIN_TAINT};
use crate::api::status::NodeMaintenanceStatus;

/// An API group with maintenances.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub enum Group {
    /// `nodemaintenance.medik8s.io/v1beta1`: ours.
    #[default]
    Medik8s,
    /// `nodemaintenance.kubevirt.io/v1beta1`, where it is installed.
    NodeMaintenanceKubevirt,
    /// `kubevirt.io/v1alpha1`, where it is installed.
    Kubevirt,
}

impl Group {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Medik8s, Self::NodeMaintenanceKubevirt, Self::Kubevirt];

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Medik8s => GROUP,
            Self::NodeMaintenanceKubevirt => "nodemaintenance.kubevirt.io",
            Self::Kubevirt => "kubevirt.io",
        }
    }

    /// The version that is served.
    pub fn version(self) -> &'static str {
        match self {
            Self::Medik8s | Self::NodeMaintenanceKubevirt => "v1beta1",
            Self::Kubevirt => "v1alpha1",
        }
    }

    /// The name of its `CustomResourceDefinition`.
    pub fn definition(self) -> String {
        format!("{}.{}", NodeMaintenance::plural(&()), self.name())
    }

    /// The taint of its nodes in maintenance, in addition to the taint of a cordoned node.
    pub fn drain_taint(self) -> &'static str {
        match self {
            Self::Medik8s => DRAIN_TAINT,
            Self::NodeMaintenanceKubevirt | Self::Kubevirt => KUBEVIRT_DRAIN_TAINT,
        }
    }

    /// Whether its nodes in maintenance are labelled to exclude them from remediation. An operator that does not know the
    /// label would leave it on a node that it uncordons.
    pub fn has_exclude_label(self) -> bool {
        self == Self::Medik8s
    }

    /// Whether the API server serves its maintenances by this definition. It does until the last of them is gone, also
    /// while the definition is being deleted.
    pub fn is_served_by(self, definition: &CustomResourceDefinition) -> bool {
        let status = definition.status.as_ref();
        let conditions = status.and_then(|status| status.conditions.as_deref()).unwrap_or_default();
        definition.metadata.name.as_deref() == Some(&self.definition())
            && definition.spec.scope == "Cluster"
            && definition.spec.versions.iter().any(|version| version.served && version.name == self.version())
            && conditions
                .iter()
                .any(|condition| condition.type_ == "Established" && condition.status == "True")
    }
}

/// A maintenance and its group, which only code that reads and writes objects needs to know.
#[derive(Debug, Clone, PartialEq)]
pub struct GroupedMaintenance {
    /// The group.
    pub group: Group,
    /// The maintenance.
    pub maintenance: NodeMaintenance,
}

impl Deref for GroupedMaintenance {
    type Target = NodeMaintenance;

    fn deref(&self) -> &NodeMaintenance {
        &self.maintenance
    }
}

impl Resource for GroupedMaintenance {
    type DynamicType = Group;
    type Scope = ClusterResourceScope;

    fn kind(_: &Group) -> Cow<'_, str> {
        NodeMaintenance::kind(&())
    }

    fn group(group: &Group) -> Cow<'_, str> {
        group.name().into()
    }

    fn version(group: &Group) -> Cow<'_, str> {
        group.version().into()
    }

    fn plural(_: &Group) -> Cow<'_, str> {
        NodeMaintenance::plural(&())
    }

    fn meta(&self) -> &ObjectMeta {
        &self.maintenance.metadata
    }

    fn meta_mut(&mut self) -> &mut ObjectMeta {
        &mut self.maintenance.metadata
    }
}

/// The serialized form: the group is in `apiVersion`, including each item of a list.
#[derive(serde::Deserialize)]
#[serde(rename_all = "camelCase")]
struct SerializedMaintenance {
    api_version: String,
    metadata: ObjectMeta,
    spec: NodeMaintenanceSpec,
    status: Option<NodeMaintenanceStatus>,
}

impl<'de> Deserialize<'de> for GroupedMaintenance {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let SerializedMaintenance { api_version, metadata, spec, status } =
            SerializedMaintenance::deserialize(deserializer)?;
        let group = api_version.split('/').next().unwrap_or_default();
        let group = Group::ALL.into_iter().find(|known| known.name() == group);
        let unknown = || D::Error::custom(format!("no NodeMaintenance is of apiVersion {api_version:?}"));
        let maintenance = NodeMaintenance { metadata, spec, status };
        Ok(Self { group: group.ok_or_else(unknown)?, maintenance })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    #[test]
    fn the_api_version_names_the_group_of_a_maintenance() {
        let read = |api_version: &str| {
            serde_json::from_value::<GroupedMaintenance>(json!({
                "apiVersion": api_version, "kind": "NodeMaintenance",
                "metadata": {"name": "m"}, "spec": {"nodeName": "n1"},
            }))
        };
        for group in Group::ALL {
            let found = read(&GroupedMaintenance::api_version(&group)).unwrap();
            assert_eq!((found.group, found.spec.node_name.as_str()), (group, "n1"));
        }
        assert!(read("example.com/v1").unwrap_err().to_string().contains("example.com/v1"));
    }

    #[test]
    fn the_default_group_is_that_of_node_maintenance() {
        let ours = Group::Medik8s;
        assert_eq!(GroupedMaintenance::api_version(&ours), NodeMaintenance::api_version(&()));
        assert_eq!(GroupedMaintenance::url_path(&ours, None), NodeMaintenance::url_path(&(), None));
    }

    #[test]
    fn a_group_is_served_once_its_definition_is_established() {
        let served = |change: &dyn Fn(&mut Value)| {
            let mut definition = json!({
                "metadata": {"name": "nodemaintenances.kubevirt.io"},
                "spec": {
                    "group": "kubevirt.io", "scope": "Cluster",
                    "names": {"kind": "NodeMaintenance", "plural": "nodemaintenances"},
                    "versions": [{"name": "v1alpha1", "served": true, "storage": true}],
                },
                "status": {"conditions": [{"type": "Established", "status": "True"}]},
            });
            change(&mut definition);
            Group::Kubevirt.is_served_by(&serde_json::from_value(definition).unwrap())
        };
        assert!(served(&|_| ()));
        assert!(!served(&|it| it["status"]["conditions"][0]["status"] = json!("False")));
        assert!(!served(&|it| it["status"] = Value::Null));
        assert!(!served(&|it| it["spec"]["versions"][0]["served"] = json!(false)));
        assert!(!served(&|it| it["spec"]["versions"][0]["name"] = json!("v1alpha3")));
        assert!(!served(&|it| it["spec"]["scope"] = json!("Namespaced")), "as in the operator's version 0.1");
        assert!(!served(&|it| it["metadata"]["name"] = json!("nodemaintenances.example.com")));
    }
}
