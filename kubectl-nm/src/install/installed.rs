//! Where nm-reconciler is installed in a cluster, and what else serves its objects.

use kube::api::ListParams;
use serde_json::{Value, json};

use crate::client::cluster::Cluster;
use crate::client::objects::{self, Kind};
use crate::client::reconciler_settings;
use crate::error::Error;
use crate::install::manifests::{LABEL, NAMESPACE, VERSION_LABEL};

const DEPLOYMENT: Kind = ("apps/v1", "Deployment");

/// The medik8s operator's Deployment is called so, or so with something behind it
/// (`config/default/kustomization.yaml` in its sources, and the hyperconverged cluster operator's).
const OTHER_OPERATOR: &str = "node-maintenance-operator";

/// The label by which the Operator Lifecycle Manager knows what it installed.
const OLM_OWNER: &str = "olm.owner";

/// What there is of nm-reconciler.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Installed {
    /// The namespace that it is in, or would be.
    pub(crate) namespace: String,
    /// Its Deployment.
    pub(crate) deployment: Option<Value>,
    /// The medik8s operator's Deployment, if it runs pods.
    pub(crate) other_operator: Option<String>,
}

impl Installed {
    /// Looks at all Deployments of the cluster. What is half removed is found by whom the `ClusterRoleBinding` names.
    ///
    /// # Errors
    ///
    /// When the server cannot be asked or refuses.
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
                && (labels[LABEL.0] == LABEL.1 || labels.get(OLM_OWNER).is_some())
        };
        let deployment = deployments.into_iter().find(ours);
        let namespace = deployment.as_ref().and_then(|found| found["metadata"]["namespace"].as_str());
        Self { namespace: namespace.unwrap_or_default().to_owned(), deployment, other_operator }
    }

    /// The Deployment's namespace and name, if the Operator Lifecycle Manager has installed it.
    pub(crate) fn by_olm(&self) -> Option<String> {
        let deployment = self.deployment.as_ref()?;
        deployment["metadata"]["labels"].get(OLM_OWNER).map(|_| full_name(deployment))
    }

    /// The image that nm-reconciler runs.
    pub(crate) fn image(&self) -> Option<&str> {
        reconciler_settings::image(self.deployment.as_ref()?)
    }

    /// The version of nm-reconciler: that of the image's tag if it is one, and otherwise the one that it was installed with.
    pub(crate) fn version(&self) -> Option<String> {
        let by_label = || self.deployment.as_ref()?["metadata"]["labels"][VERSION_LABEL].as_str();
        let tag = self.image().and_then(tag).filter(|tag| is_version(tag));
        tag.or_else(by_label).map(|version| version.trim_start_matches('v').to_owned())
    }
}

/// The tag of an image, if it has one. A port of the registry is none.
fn tag(image: &str) -> Option<&str> {
    let last = image.rsplit('/').next()?;
    last.split('@').next()?.split_once(':').map(|(_, tag)| tag)
}

/// Whether a text is a version such as 1.2.3, with or without something behind it.
fn is_version(text: &str) -> bool {
    let mut parts = text.trim_start_matches('v').splitn(3, '.');
    let mut number = || parts.next().is_some_and(|part| part.starts_with(|c: char| c.is_ascii_digit()));
    number() && number() && number()
}

async fn bound_namespace(cluster: &Cluster) -> Option<String> {
    let binding = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding",
        "metadata": {"name": "nm-reconciler"}});
    // Who may not look gets the default.
    let found = objects::get(cluster, &binding).await.ok()??;
    found["subjects"][0]["namespace"].as_str().map(str::to_owned)
}

fn full_name(object: &Value) -> String {
    let field = |name: &str| object["metadata"][name].as_str().unwrap_or_default();
    format!("{}/{}", field("namespace"), field("name"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn deployment(name: &str, labels: &Value, image: &str) -> Value {
        json!({"metadata": {"name": name, "namespace": "ns", "labels": labels},
            "spec": {"replicas": 1, "template": {"spec": {"containers": [{"image": image}]}}}})
    }

    #[test]
    fn ours_and_the_other_operators_are_told_apart() {
        let foreign = deployment("nm-reconciler", &json!({}), "x");
        let ours = deployment("nm-reconciler", &json!({LABEL.0: LABEL.1}), "x:1");
        let mut other = deployment("node-maintenance-operator-controller-manager", &json!({}), "y");
        let found = Installed::among(vec![foreign, other.clone(), ours.clone()]);
        assert_eq!((found.namespace.as_str(), found.image()), ("ns", Some("x:1")));
        assert_eq!(found.other_operator.as_deref(), Some("ns/node-maintenance-operator-controller-manager"));
        assert_eq!(found.by_olm(), None);
        other["spec"]["replicas"] = json!(0);
        assert_eq!(Installed::among(vec![other]), Installed::default());
        let by_olm = Installed::among(vec![deployment("nm-reconciler", &json!({OLM_OWNER: "csv"}), "x")]);
        assert_eq!(by_olm.by_olm().as_deref(), Some("ns/nm-reconciler"));
    }

    #[test]
    fn the_version_is_the_tags_if_it_is_one_and_the_labels_otherwise() {
        for (image, version) in [
            ("localhost/nm-reconciler:0.1.0", "0.1.0"),
            ("r.example.com:5000/nm:v1.2.3-rc1", "1.2.3-rc1"),
            ("r.example.com:5000/nm:1.2.3@sha256:ab", "1.2.3"),
            ("r.example.com:5000/nm", "9.9.9"),
            ("nm:mine", "9.9.9"),
            ("nm:2024", "9.9.9"),
            ("nm@sha256:0123", "9.9.9"),
        ] {
            let labels = json!({LABEL.0: LABEL.1, VERSION_LABEL: "9.9.9"});
            let found = Installed::among(vec![deployment("nm-reconciler", &labels, image)]);
            assert_eq!(found.version().as_deref(), Some(version), "{image}");
        }
        assert_eq!(Installed::default().version(), None);
    }
}
