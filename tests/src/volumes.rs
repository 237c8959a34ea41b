//! Persistent volumes, claims and attachments. Where no driver runs, the test creates and deletes attachments itself.

use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim};
use k8s_openapi::api::storage::v1::VolumeAttachment;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::{Api, Client, ResourceExt};
use serde_json::{Value, json};

use crate::cluster::{Cluster, SUITE_LABEL};
use crate::wait::wait_until;
use crate::workload::{Workload, parse};

/// The driver of every volume here. No cluster has it.
pub const DRIVER: &str = "volumes.e2e.kubectl-nm.dev";

/// The volumes of a cluster, and their attachments.
pub struct Volumes {
    client: Client,
}

impl Volumes {
    /// Removes what earlier tests left.
    pub async fn new(cluster: &Cluster) -> Self {
        let volumes = Self { client: cluster.client.clone() };
        Box::pin(volumes.clean_up()).await;
        volumes
    }

    async fn clean_up(&self) {
        let ours = ListParams::default().labels(SUITE_LABEL);
        for attachment in self.attachments().list(&ours).await.unwrap() {
            self.detach(&attachment.name_any()).await;
        }
        for volume in self.volumes().list(&ours).await.unwrap() {
            let without_finalizers = Patch::Merge(json!({"metadata": {"finalizers": null}}));
            let (name, params) = (volume.name_any(), PatchParams::default());
            let _ = self.volumes().delete(&name, &DeleteParams::default()).await;
            let _ = self.volumes().patch(&name, &params, &without_finalizers).await;
            wait_until(&self.volumes(), &name, "gone", |found| found.is_none()).await;
        }
    }

    /// All attachments.
    pub fn attachments(&self) -> Api<VolumeAttachment> {
        Api::all(self.client.clone())
    }

    fn volumes(&self) -> Api<PersistentVolume> {
        Api::all(self.client.clone())
    }

    /// Creates a volume and a claim of the same name that are bound to each other.
    pub async fn create(&self, workload: &Workload, name: &str, annotations: Value) {
        let (params, size) = (PostParams::default(), json!({"storage": "1Gi"}));
        let claim = json!({"metadata": {"name": name}, "spec": {"accessModes": ["ReadWriteOnce"],
            "storageClassName": "", "volumeName": name, "resources": {"requests": size}}});
        let claims: Api<PersistentVolumeClaim> = Api::namespaced(self.client.clone(), workload.namespace());
        claims.create(&params, &parse(claim)).await.unwrap();
        let volume = json!({
            "metadata": {"name": name, "labels": {SUITE_LABEL: ""}, "annotations": annotations},
            "spec": {"accessModes": ["ReadWriteOnce"], "storageClassName": "", "capacity": size,
                "claimRef": {"namespace": workload.namespace(), "name": name},
                "csi": {"driver": DRIVER, "volumeHandle": name}},
        });
        self.volumes().create(&params, &parse(volume)).await.unwrap();
        wait_until(&claims, name, "bound", |claim| {
            claim.and_then(|claim| claim.status.as_ref()?.phase.as_deref()) == Some("Bound")
        })
        .await;
    }

    /// Replaces the annotations of a volume by `annotations`; null removes one.
    pub async fn annotate(&self, name: &str, annotations: Value) {
        let patch = Patch::Merge(json!({"metadata": {"annotations": annotations}}));
        self.volumes().patch(name, &PatchParams::default(), &patch).await.unwrap();
    }

    /// Attaches a volume to a node, as its driver would.
    pub async fn attach(&self, attachment: &str, volume: &str, node: &str) {
        let object = json!({
            "metadata": {"name": attachment, "labels": {SUITE_LABEL: ""}},
            "spec": {"attacher": DRIVER, "nodeName": node, "source": {"persistentVolumeName": volume}},
        });
        self.attachments().create(&PostParams::default(), &parse(object)).await.unwrap();
    }

    /// Reports an error of the driver.
    pub async fn fail_to_detach(&self, attachment: &str, error: &str) {
        let patch = Patch::Merge(
            json!({"status": {"detachError": {"time": "2026-01-01T00:00:00Z", "message": error}}}),
        );
        self.attachments().patch_status(attachment, &PatchParams::default(), &patch).await.unwrap();
    }

    /// Deletes an attachment and waits until it is gone.
    pub async fn detach(&self, attachment: &str) {
        self.attachments().delete(attachment, &DeleteParams::default()).await.unwrap();
        wait_until(&self.attachments(), attachment, "gone", |found| found.is_none()).await;
    }
}

/// What makes a pod use a claim, to be merged into the pod.
pub fn uses(claim: &str) -> Value {
    json!({"spec": {"volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": claim}}]}})
}
