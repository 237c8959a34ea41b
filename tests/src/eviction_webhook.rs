//! A validating webhook that reviews evictions or deletions of pods. Only a sandbox serves it.

use std::sync::Arc;

use k8s_openapi::api::admissionregistration::v1::ValidatingWebhookConfiguration;
use kube::Api;
use kube::api::{DeleteParams, PostParams};
use kube_sandbox::admission::Reviewer;
use serde_json::{Value, json};

use crate::cluster::Cluster;
use crate::workload::{Workload, parse};

/// The name of the configuration.
const NAME: &str = "guard";

/// What the API server reports when [`RefuseAll`] refuses a request.
pub const REFUSAL: &str = "admission webhook \"guard.example.com\" denied the request: not before noon";

/// Refuses every request.
#[derive(Debug)]
pub struct RefuseAll;

impl Reviewer for RefuseAll {
    fn review(&self, _: &Value) -> Value {
        refusal(403)
    }
}

/// A review that refuses with this code.
pub fn refusal(code: u16) -> Value {
    json!({"allowed": false, "status": {"code": code, "message": "not before noon"}})
}

/// Has a webhook review these operations on these resources in the workload's namespace.
pub async fn install(
    cluster: &Cluster,
    workload: &Workload,
    operations: &[&str],
    resources: &[&str],
    reviewer: Arc<dyn Reviewer>,
) {
    let namespace = workload.namespace();
    cluster.sandbox().unwrap().cluster().admission.services.answer(namespace, NAME, reviewer);
    let webhook = parse(json!({"metadata": {"name": NAME}, "webhooks": [{
        "name": "guard.example.com", "admissionReviewVersions": ["v1"], "sideEffects": "None",
        "clientConfig": {"service": {"namespace": namespace, "name": NAME}},
        "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": namespace}},
        "rules": [{"operations": operations, "apiGroups": [""], "apiVersions": ["v1"], "resources": resources}],
    }]}));
    configurations(cluster).create(&PostParams::default(), &webhook).await.unwrap();
}

/// Removes the webhook.
pub async fn remove(cluster: &Cluster) {
    configurations(cluster).delete(NAME, &DeleteParams::default()).await.unwrap();
}

fn configurations(cluster: &Cluster) -> Api<ValidatingWebhookConfiguration> {
    Api::all(cluster.client.clone())
}
