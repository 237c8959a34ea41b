//! Objects of others in nm-reconciler's namespace, which would be deleted with it.

use std::collections::BTreeSet;

use futures::stream::{self, StreamExt, TryStreamExt};
use kube::api::{Api, ApiResource, DynamicObject, ListParams, PartialObjectMeta};
use kube::discovery::{ApiGroup, Discovery, Scope, verbs};
use nm_core::client::cluster::{Cluster, MAX_CONCURRENT_REQUESTS};
use nm_core::client::objects;
use nm_core::error::Error;
use nm_core::format;
use nm_shared::api::names::WEBHOOK;
use nm_shared::cluster::leader_lease;
use serde_json::{Value, json};

use crate::install::manifests;

/// Objects that Kubernetes and OpenShift create in every namespace, by kind.
const IN_EVERY_NAMESPACE: &[(&str, &[&str])] = &[
    ("ConfigMap", &["kube-root-ca.crt", "openshift-service-ca.crt"]),
    ("RoleBinding", &["system:deployers", "system:image-builders", "system:image-pullers"]),
    ("ServiceAccount", &["default", "builder", "deployer"]),
];

/// Annotations of Secrets that Kubernetes before 1.24 and OpenShift create for service accounts.
const SERVICE_ACCOUNT_ANNOTATIONS: &[&str] =
    &["kubernetes.io/service-account.name", "openshift.io/internal-registry-auth-token.service-account"];

/// Objects that nm-reconciler creates, or that are created for it, without its label.
const CREATED_AT_RUNTIME: &[(&str, &str)] =
    &[("Lease", leader_lease::NAME), ("Secret", WEBHOOK), ("Endpoints", WEBHOOK)];

/// The objects of others in a namespace, of all kinds, as `kubectl get -o name` prints them.
pub(crate) async fn of_others(cluster: &Cluster, namespace: &str) -> Result<Vec<String>, Error> {
    let client = cluster.client();
    let discovered =
        cluster.request("get /apis", async || Discovery::new(client.clone()).run().await).await?;
    let kinds = discovered.groups().flat_map(ApiGroup::recommended_resources).filter(|(_, supported)| {
        let operations = [verbs::LIST, verbs::DELETE];
        supported.scope == Scope::Namespaced && operations.iter().all(|one| supported.supports_operation(one))
    });
    let found: Vec<Vec<Value>> = stream::iter(kinds)
        .map(async |(kind, _)| list(cluster, &kind, namespace).await)
        .buffered(MAX_CONCURRENT_REQUESTS)
        .try_collect()
        .await?;
    Ok(foreign(&found.concat()))
}

async fn list(cluster: &Cluster, kind: &ApiResource, namespace: &str) -> Result<Vec<Value>, Error> {
    let api: Api<DynamicObject> = Api::namespaced_with(cluster.client(), namespace, kind);
    let listed = cluster.list_metadata(&api, &objects::name_of(kind), &ListParams::default()).await;
    let items = match listed {
        // The CRD has just been deleted, and its objects with it.
        Err(error) if error.is_unserved() => Vec::new(),
        listed => listed?,
    };
    let object = |item: &PartialObjectMeta<_>| json!({"apiVersion": kind.api_version, "kind": kind.kind, "metadata": item.metadata});
    Ok(items.iter().map(object).collect())
}

/// The objects that neither belong to nm-reconciler, nor exist in every namespace, nor are owned by another object.
fn foreign(objects: &[Value]) -> Vec<String> {
    let uids: BTreeSet<&str> =
        objects.iter().filter_map(|object| object["metadata"]["uid"].as_str()).collect();
    let is_owned = |object: &Value| {
        let owners = object["metadata"]["ownerReferences"].as_array();
        owners.into_iter().flatten().any(|owner| owner["uid"].as_str().is_some_and(|uid| uids.contains(uid)))
    };
    let foreign: BTreeSet<String> = objects
        .iter()
        .filter(|object| {
            !manifests::is_ours(object) && !is_owned(object) && !is_created_by_the_system(object)
        })
        .map(format::name)
        .collect();
    foreign.into_iter().collect()
}

fn is_created_by_the_system(object: &Value) -> bool {
    let field = |value: &'_ Value| value.as_str().unwrap_or_default().to_owned();
    let (kind, name) = (field(&object["kind"]), field(&object["metadata"]["name"]));
    // Events expire.
    kind == "Event"
        || CREATED_AT_RUNTIME.contains(&(kind.as_str(), name.as_str()))
        || (kind == "Secret"
            && SERVICE_ACCOUNT_ANNOTATIONS.iter().any(|annotation| is_annotated(object, annotation)))
        || IN_EVERY_NAMESPACE.iter().any(|(of, names)| *of == kind && names.contains(&name.as_str()))
}

fn is_annotated(object: &Value, annotation: &str) -> bool {
    object["metadata"]["annotations"].get(annotation).is_some()
}

#[cfg(test)]
mod tests {
    use nm_core::client::reconciler_deployment::NAME_LABEL;

    use super::*;

    fn object(kind: &str, name: &str, metadata: &Value) -> Value {
        let mut object = json!({"apiVersion": "v1", "kind": kind, "metadata": metadata});
        object["metadata"]["name"] = json!(name);
        object
    }

    #[test]
    fn only_objects_that_others_created_are_listed() {
        let nothing = json!({});
        let ours = json!({"uid": "d", "labels": {NAME_LABEL.0: NAME_LABEL.1}});
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
