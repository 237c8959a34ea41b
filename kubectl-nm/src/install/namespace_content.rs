//! What others have in the namespace that nm-reconciler runs in, which would go with it.

use std::collections::BTreeSet;

use futures::stream::{self, StreamExt, TryStreamExt};
use nm_shared::api::names::WEBHOOK;
use nm_shared::cluster::leader_lease;
use serde_json::Value;

use crate::client::cluster::{AT_ONCE, Cluster};
use crate::client::objects;
use crate::error::Error;
use crate::format;
use crate::install::manifests;

/// What every namespace has, by kind: made by Kubernetes, and by OpenShift.
const EVERYWHERE: &[(&str, &[&str])] = &[
    ("ConfigMap", &["kube-root-ca.crt", "openshift-service-ca.crt"]),
    ("RoleBinding", &["system:deployers", "system:image-builders", "system:image-pullers"]),
    ("ServiceAccount", &["default", "builder", "deployer"]),
];

/// The annotations of Secrets that a platform makes for a service account: Kubernetes before 1.24, and OpenShift.
const MADE_FOR_ACCOUNTS: &[&str] =
    &["kubernetes.io/service-account.name", "openshift.io/internal-registry-auth-token.service-account"];

/// What nm-reconciler makes, or has made for it, without our label.
const MADE_AT_WORK: &[(&str, &str)] =
    &[("Lease", leader_lease::NAME), ("Secret", WEBHOOK), ("Endpoints", WEBHOOK)];

/// The objects of others in a namespace, as `kubectl get -o name` names them, of whatever kinds there are.
///
/// # Errors
///
/// When the server refuses to list one of the kinds, or cannot be asked.
pub(crate) async fn of_others(cluster: &Cluster, namespace: &str) -> Result<Vec<String>, Error> {
    let kinds = objects::kinds_in_namespaces(cluster).await?;
    let found: Vec<Vec<Value>> = stream::iter(&kinds)
        .map(async |kind| objects::list_metadata(cluster, kind, namespace).await)
        .buffered(AT_ONCE)
        .try_collect()
        .await?;
    Ok(foreign(&found.concat()))
}

/// Which of the objects in a namespace are neither ours nor everywhere, nor go with another one.
fn foreign(objects: &[Value]) -> Vec<String> {
    let uids: BTreeSet<&str> =
        objects.iter().filter_map(|object| object["metadata"]["uid"].as_str()).collect();
    let is_owned = |object: &Value| {
        let owners = object["metadata"]["ownerReferences"].as_array();
        owners.into_iter().flatten().any(|owner| owner["uid"].as_str().is_some_and(|uid| uids.contains(uid)))
    };
    let foreign: BTreeSet<String> = objects
        .iter()
        .filter(|object| !manifests::is_ours(object) && !is_owned(object) && !is_of_no_account(object))
        .map(format::name)
        .collect();
    foreign.into_iter().collect()
}

fn is_of_no_account(object: &Value) -> bool {
    let field = |value: &'_ Value| value.as_str().unwrap_or_default().to_owned();
    let (kind, name) = (field(&object["kind"]), field(&object["metadata"]["name"]));
    // Events tell of what was, and go by themselves.
    kind == "Event"
        || MADE_AT_WORK.contains(&(kind.as_str(), name.as_str()))
        || (kind == "Secret" && MADE_FOR_ACCOUNTS.iter().any(|annotation| is_annotated(object, annotation)))
        || EVERYWHERE.iter().any(|(of, names)| *of == kind && names.contains(&name.as_str()))
}

fn is_annotated(object: &Value, annotation: &str) -> bool {
    object["metadata"]["annotations"].get(annotation).is_some()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn object(kind: &str, name: &str, metadata: &Value) -> Value {
        let mut object = json!({"apiVersion": "v1", "kind": kind, "metadata": metadata});
        object["metadata"]["name"] = json!(name);
        object
    }

    #[test]
    fn only_what_somebody_else_has_made_is_of_others() {
        let nothing = json!({});
        let ours = json!({"uid": "d", "labels": {manifests::LABEL.0: manifests::LABEL.1}});
        let owned = |by: &str, uid: &str| json!({"uid": uid, "ownerReferences": [{"kind": "X", "name": "x", "uid": by}]});
        let made_for = |annotation: &str| json!({"annotations": {annotation: "default"}});
        let objects = [
            object("Deployment", "nm-reconciler", &ours),
            object("ReplicaSet", "nm-reconciler-1", &owned("d", "r")),
            object("Pod", "nm-reconciler-1-x", &owned("r", "p")),
            object("Pod", "of-a-node", &owned("elsewhere", "q")),
            object("Secret", WEBHOOK, &nothing),
            object("Secret", "db", &nothing),
            object("Secret", "default-token-x", &made_for("kubernetes.io/service-account.name")),
            object(
                "Secret",
                "default-dockercfg-x",
                &made_for("openshift.io/internal-registry-auth-token.service-account"),
            ),
            object("ConfigMap", "of-default", &made_for("kubernetes.io/service-account.name")),
            object("Lease", leader_lease::NAME, &nothing),
            object("ConfigMap", "kube-root-ca.crt", &nothing),
            object("ConfigMap", "settings", &nothing),
            object("ServiceAccount", "default", &nothing),
            object("Event", "e", &nothing),
        ];
        assert_eq!(
            foreign(&objects),
            ["configmap/of-default", "configmap/settings", "pod/of-a-node", "secret/db"]
        );
        assert_eq!(foreign(&[]), Vec::<String>::new());
    }
}
