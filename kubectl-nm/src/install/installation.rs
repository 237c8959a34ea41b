//! The installation of nm-reconciler in a cluster, its version, and other operators that serve the same objects.

use kube::api::ListParams;
use nm_core::client::cluster::Cluster;
use nm_core::client::objects::{self, ApiVersionKind};
use nm_core::client::reconciler_deployment::{self, NAME_LABEL, OTHER_OPERATOR};
use nm_core::error::Error;
use serde::Serialize;
use serde_json::{Value, json};

use crate::install::manifests::{NAMESPACE, VERSION_LABEL};

const DEPLOYMENT: ApiVersionKind = ("apps/v1", "Deployment");

const OLM_OWNER: &str = "olm.owner";

#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Installation {
    /// The namespace of nm-reconciler, or where it would be installed.
    pub(crate) namespace: String,
    pub(crate) deployment: Option<Value>,
    /// The namespace and name of the medik8s operator's Deployment, if that has replicas.
    pub(crate) other_operator: Option<String>,
}

impl Installation {
    /// Searches all Deployments of the cluster. The namespace of a partly removed installation comes from its
    /// `ClusterRoleBinding`.
    pub(crate) async fn find(cluster: &Cluster, wanted: Option<&str>) -> Result<Self, Error> {
        let deployments = objects::list(cluster, DEPLOYMENT, None, &ListParams::default()).await?;
        let mut found = Self::among(deployments);
        if found.namespace.is_empty() {
            found.namespace = match wanted {
                Some(wanted) => wanted.to_owned(),
                None => bound_namespace(cluster).await.unwrap_or_else(|| NAMESPACE.to_owned()),
            };
        }
        Ok(found)
    }

    fn among(deployments: Vec<Value>) -> Self {
        let other = |deployment: &&Value| {
            let name = deployment["metadata"]["name"].as_str().unwrap_or_default();
            name.starts_with(OTHER_OPERATOR) && deployment["spec"]["replicas"] != 0
        };
        let other_operator = deployments.iter().find(other).map(full_name);
        let ours = |deployment: &Value| {
            let labels = &deployment["metadata"]["labels"];
            deployment["metadata"]["name"] == "nm-reconciler"
                && (labels[NAME_LABEL.0] == NAME_LABEL.1 || labels.get(OLM_OWNER).is_some())
        };
        let deployment = deployments.into_iter().find(ours);
        let namespace = deployment.as_ref().and_then(|found| found["metadata"]["namespace"].as_str());
        Self { namespace: namespace.unwrap_or_default().to_owned(), deployment, other_operator }
    }

    pub(crate) fn by_olm(&self) -> Option<String> {
        let deployment = self.deployment.as_ref()?;
        deployment["metadata"]["labels"].get(OLM_OWNER).map(|_| full_name(deployment))
    }

    pub(crate) fn image(&self) -> Option<&str> {
        reconciler_deployment::image(self.deployment.as_ref()?)
    }

    /// The version of nm-reconciler: the image's tag if that is a version, or else the version label of the Deployment.
    pub(crate) fn version(&self) -> Option<String> {
        let by_label = || self.deployment.as_ref()?["metadata"]["labels"][VERSION_LABEL].as_str();
        let tag = self.image().and_then(tag).filter(|tag| is_version(tag));
        tag.or_else(by_label).map(|version| version.trim_start_matches('v').to_owned())
    }
}

/// The version in the tag of an image, if it has one.
pub(crate) fn version_of(image: &str) -> Option<&str> {
    tag(image).filter(|tag| is_version(tag)).map(|version| version.trim_start_matches('v'))
}

/// The tag of an image, if it has one. The port of a registry is not a tag.
fn tag(image: &str) -> Option<&str> {
    let last = image.rsplit('/').next()?;
    last.split('@').next()?.split_once(':').map(|(_, tag)| tag)
}

/// Whether a text starts with a version such as 1.2.3.
fn is_version(text: &str) -> bool {
    let mut parts = text.trim_start_matches('v').splitn(3, '.');
    let mut number = || parts.next().is_some_and(|part| part.starts_with(|c: char| c.is_ascii_digit()));
    number() && number() && number()
}

async fn bound_namespace(cluster: &Cluster) -> Option<String> {
    let binding = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding",
        "metadata": {"name": "nm-reconciler"}});
    // Without permission to read it, the default is used.
    let found = objects::get(cluster, &binding).await.ok()??;
    found["subjects"][0]["namespace"].as_str().map(str::to_owned)
}

fn full_name(object: &Value) -> String {
    let field = |name: &str| object["metadata"][name].as_str().unwrap_or_default();
    format!("{}/{}", field("namespace"), field("name"))
}

pub(crate) const OWN_VERSION: &str = env!("CARGO_PKG_VERSION");

#[derive(Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Versions {
    pub(crate) plugin: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) reconciler: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) reconciler_image: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) server: Option<String>,
}

/// A warning if plugin and reconciler may be incompatible: before 1.0 if their minor versions differ, then if their major
/// versions do.
pub(crate) fn version_skew(plugin: &str, reconciler: &str) -> Option<String> {
    (series(plugin) != series(reconciler))
        .then(|| format!("plugin {plugin} and reconciler {reconciler} may be incompatible"))
}

/// Whether the plugin is older than nm-reconciler, so that it would set the definition and the permissions back.
pub(crate) fn is_older(plugin: &str, reconciler: &str) -> bool {
    let numbers = |version: &str| {
        let number = |part: &str| part.split(|c: char| !c.is_ascii_digit()).next()?.parse::<u64>().ok();
        version.splitn(3, '.').map(number).collect::<Option<Vec<u64>>>()
    };
    matches!((numbers(plugin), numbers(reconciler)), (Some(plugin), Some(reconciler)) if plugin < reconciler)
}

/// The part of a version within which versions are compatible.
fn series(version: &str) -> (&str, &str) {
    let mut parts = version.split('.');
    let major = parts.next().unwrap_or_default();
    let minor = parts.next().unwrap_or_default();
    if major == "0" { (major, minor) } else { (major, "") }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn deployment(name: &str, labels: &Value, image: &str) -> Value {
        json!({"metadata": {"name": name, "namespace": "ns", "labels": labels},
            "spec": {"replicas": 1, "template": {"spec": {"containers": [{"image": image}]}}}})
    }

    #[test]
    fn nm_reconciler_and_the_medik8s_operator_are_found() {
        let foreign = deployment("nm-reconciler", &json!({}), "x");
        let ours = deployment("nm-reconciler", &json!({NAME_LABEL.0: NAME_LABEL.1}), "x:1");
        let mut other = deployment("node-maintenance-operator-controller-manager", &json!({}), "y");
        let found = Installation::among(vec![foreign, other.clone(), ours.clone()]);
        assert_eq!((found.namespace.as_str(), found.image()), ("ns", Some("x:1")));
        assert_eq!(found.other_operator.as_deref(), Some("ns/node-maintenance-operator-controller-manager"));
        assert_eq!(found.by_olm(), None);
        other["spec"]["replicas"] = json!(0);
        assert_eq!(Installation::among(vec![other]), Installation::default());
        let by_olm = Installation::among(vec![deployment("nm-reconciler", &json!({OLM_OWNER: "csv"}), "x")]);
        assert_eq!(by_olm.by_olm().as_deref(), Some("ns/nm-reconciler"));
    }

    #[test]
    fn the_version_is_the_tag_or_else_the_label() {
        for (image, version) in [
            ("localhost/nm-reconciler:0.1.0", "0.1.0"),
            ("r.example.com:5000/nm:v1.2.3-rc1", "1.2.3-rc1"),
            ("r.example.com:5000/nm:1.2.3@sha256:ab", "1.2.3"),
            ("r.example.com:5000/nm", "9.9.9"),
            ("nm:mine", "9.9.9"),
            ("nm:2024", "9.9.9"),
            ("nm@sha256:0123", "9.9.9"),
        ] {
            let labels = json!({NAME_LABEL.0: NAME_LABEL.1, VERSION_LABEL: "9.9.9"});
            let found = Installation::among(vec![deployment("nm-reconciler", &labels, image)]);
            assert_eq!(found.version().as_deref(), Some(version), "{image}");
        }
        assert_eq!(Installation::default().version(), None);
    }

    #[test]
    fn a_plugin_is_older_if_its_numbers_are() {
        for (plugin, reconciler, older) in [
            ("0.1.0", "0.1.0", false),
            ("0.1.0", "0.1.1", true),
            ("0.9.0", "0.10.0", true),
            ("0.2.0", "0.1.9", false),
            ("0.1.0", "0.2.0-rc1", true),
            ("0.1.0", "latest", false),
        ] {
            assert_eq!(is_older(plugin, reconciler), older, "{plugin} {reconciler}");
        }
    }

    #[test]
    fn versions_of_one_series_are_compatible() {
        for (a, b, compatible) in [
            ("0.1.0", "0.1.9", true),
            ("0.1.0", "0.2.0", false),
            ("1.2.0", "1.9.3", true),
            ("1.2.0", "2.0.0", false),
            ("0.1.0", "0.1.0-rc1", true),
        ] {
            assert_eq!(version_skew(a, b).is_none(), compatible, "{a} {b}");
        }
    }
}
