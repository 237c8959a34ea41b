//! The cluster of a test: a sandbox of its own, or the cluster that `NM_E2E_KUBECONFIG` names.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::admissionregistration::v1::ValidatingWebhookConfiguration;
use k8s_openapi::api::authentication::v1::{TokenRequest, TokenRequestSpec};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{Namespace, Node, Pod, ServiceAccount};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{
    ApiResource, DeleteParams, DynamicObject, ListParams, PartialObjectMeta, Patch, PatchParams, PostParams,
};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Api, Client, Config, ResourceExt};
use kube_sandbox::sandbox::{Options, Sandbox};
use nm_shared::NodeMaintenance;
use nm_shared::api::names;
use nm_shared::cluster::leader_lease;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::sync::{Mutex, MutexGuard};

use crate::manifests;
use crate::older_groups;
use crate::skip::skipped;
use crate::suspended::{self, SuspendedMaintenances};
use crate::wait::{wait_until, wait_until_none};

/// Label of the namespaces and nodes that tests create.
pub const SUITE_LABEL: &str = "kubectl-nm.dev/e2e";

/// Held by the test that uses the shared cluster.
static TURN: Mutex<()> = Mutex::const_new(());

/// Whether tests run on sandboxes. Where they do not, the test is reported as skipped, for this reason.
pub fn has_sandbox(why: &str) -> bool {
    let found = std::env::var_os("NM_E2E_KUBECONFIG").is_none();
    if !found {
        skipped(why);
    }
    found
}

/// Whether the clusters of the tests let only users who may delete an object change its owner references, as OpenShift does:
/// whether `NM_E2E_ADMISSION` names the admission plugin. It configures sandboxes, and says it of the cluster that
/// `NM_E2E_KUBECONFIG` names.
pub fn enforces_owner_references() -> bool {
    std::env::var("NM_E2E_ADMISSION")
        .is_ok_and(|plugins| plugins.contains("OwnerReferencesPermissionEnforcement"))
}

/// Whether a maintenance may have an owner reference. Where it may not, the test is reported as skipped.
pub fn may_own_maintenances() -> bool {
    let may = !enforces_owner_references();
    if !may {
        skipped("a maintenance may have no owner here");
    }
    may
}

/// A cluster with the manifests installed and nothing in maintenance.
pub struct Cluster {
    /// A client with all permissions.
    pub client: Client,
    kubeconfig: PathBuf,
    sandbox: Option<Sandbox>,
    files: TempDir,
    since: Timestamp,
    suspended: Option<SuspendedMaintenances>,
    _turn: Option<MutexGuard<'static, ()>>,
}

impl Cluster {
    /// A sandbox with `nodes` nodes and no workload, whose pods start within 50 ms and terminate within 300 ms, and
    /// whose Jobs wait for 100 ms after their first failure (a hundredth of what real ones do); or the
    /// cluster that `NM_E2E_KUBECONFIG` names, which must have at least as many nodes.
    ///
    /// The latter must be a cluster for tests: every `NodeMaintenance` is deleted first.
    pub async fn start(nodes: usize) -> Self {
        Self::start_with(nodes, 0).await
    }

    /// Like [`Cluster::start`], and a sandbox runs `pods` pods of some deployments.
    pub async fn start_with(nodes: usize, pods: usize) -> Self {
        let Some(path) = std::env::var_os("NM_E2E_KUBECONFIG") else {
            return Self::of_sandbox(nodes, pods, |sandbox| sandbox).await;
        };
        Self::of_kubeconfig(PathBuf::from(path), nodes).await
    }

    /// The cluster of an administrator's kubeconfig, which must have at least so many nodes. It must be a cluster for tests:
    /// every `NodeMaintenance` is deleted first.
    pub async fn of_kubeconfig(kubeconfig: PathBuf, nodes: usize) -> Self {
        let files = tempfile::tempdir().unwrap();
        let turn = TURN.lock().await;
        let client = client(&kubeconfig).await;
        let since = Timestamp::now();
        let cluster =
            Self { client, kubeconfig, sandbox: None, files, since, suspended: None, _turn: Some(turn) };
        cluster.install().await;
        cluster.clean_up().await;
        let found = cluster.nodes().await.len();
        assert!(found >= nodes, "the test needs {nodes} nodes, the cluster has {found}");
        cluster
    }

    /// [`Cluster::start`] on a sandbox; `None` where the suite runs on another cluster, and the test is reported as skipped.
    pub async fn sandbox_or_skip(nodes: usize, why: &str) -> Option<Self> {
        if !has_sandbox(why) {
            return None;
        }
        Some(Self::start(nodes).await)
    }

    /// Whether it is a sandbox.
    pub fn is_sandbox(&self) -> bool {
        self.sandbox.is_some()
    }

    /// A sandbox even where `NM_E2E_KUBECONFIG` names a cluster; `prepare` configures it.
    pub async fn of_sandbox(nodes: usize, pods: usize, prepare: impl FnOnce(Sandbox) -> Sandbox) -> Self {
        if suspended::is_wanted() {
            return Self::beside_suspended(nodes, pods, prepare).await;
        }
        let cluster = Self::bare_sandbox(nodes, pods, prepare).await;
        cluster.install().await;
        cluster
    }

    /// A sandbox that also has [`SuspendedMaintenances`], on two more nodes.
    pub async fn beside_suspended(
        nodes: usize,
        pods: usize,
        prepare: impl FnOnce(Sandbox) -> Sandbox,
    ) -> Self {
        let mut cluster = Self::bare_sandbox(nodes + suspended::NODES, pods, prepare).await;
        cluster.install().await;
        let theirs = cluster.nodes().await.split_off(nodes).try_into().unwrap();
        let state = Arc::clone(cluster.sandbox.as_ref().unwrap().cluster());
        cluster.suspended = Some(SuspendedMaintenances::create(&cluster.client, state, theirs).await);
        cluster
    }

    /// A sandbox with nothing installed, not even the custom resource definition.
    pub async fn bare_sandbox(nodes: usize, pods: usize, prepare: impl FnOnce(Sandbox) -> Sandbox) -> Self {
        let files = tempfile::tempdir().unwrap();
        let (start_delay, stop_delay) = (Duration::from_millis(50), Duration::from_millis(300));
        let job_backoff = Duration::from_millis(100);
        let options = Options { nodes, pods, start_delay, stop_delay, job_backoff };
        let sandbox = Sandbox::start(options).await.unwrap();
        let sandbox =
            if enforces_owner_references() { sandbox.enforcing_owner_references() } else { sandbox };
        let sandbox = prepare(sandbox);
        let kubeconfig = files.path().join("kubeconfig");
        std::fs::write(&kubeconfig, sandbox.kubeconfig()).unwrap();
        let client = client(&kubeconfig).await;
        let since = Timestamp::now();
        Self { client, kubeconfig, sandbox: Some(sandbox), files, since, suspended: None, _turn: None }
    }

    /// The path of an administrator's kubeconfig.
    pub fn kubeconfig(&self) -> &Path {
        &self.kubeconfig
    }

    /// The path of the kubeconfig of the reconciler's service account.
    pub fn reconciler_kubeconfig(&self) -> PathBuf {
        self.files.path().join("reconciler")
    }

    /// The path of a new kubeconfig of a service account.
    pub async fn kubeconfig_of(&self, account: &ServiceAccount) -> PathBuf {
        let path = self.files.path().join(account.name_any());
        let token = self.token(account).await;
        std::fs::write(&path, with_token(&self.kubeconfig, &token)).unwrap();
        path
    }

    /// The sandbox, if the cluster is one.
    pub fn sandbox(&self) -> Option<&Sandbox> {
        self.sandbox.as_ref()
    }

    /// The suspended maintenances beside those of the test, if there are any.
    pub fn suspended(&self) -> Option<&SuspendedMaintenances> {
        self.suspended.as_ref()
    }

    /// When the test began to use the cluster.
    pub fn since(&self) -> Timestamp {
        self.since
    }

    /// The names of the nodes, without those of [`SuspendedMaintenances`].
    pub async fn nodes(&self) -> Vec<String> {
        let nodes: Api<Node> = Api::all(self.client.clone());
        let which = ListParams::default().labels(&format!("!{}", suspended::LABEL));
        nodes.list_metadata(&which).await.unwrap().iter().map(ResourceExt::name_any).collect()
    }

    /// A node as it is now.
    pub async fn node(&self, name: &str) -> Node {
        Api::<Node>::all(self.client.clone()).get(name).await.unwrap()
    }

    /// Merges `patch` into a node.
    pub async fn patch_node(&self, name: &str, patch: Value) -> Node {
        let nodes: Api<Node> = Api::all(self.client.clone());
        nodes.patch(name, &PatchParams::default(), &Patch::Merge(patch)).await.unwrap()
    }

    /// All maintenances.
    pub fn maintenances(&self) -> Api<NodeMaintenance> {
        Api::all(self.client.clone())
    }

    /// The leases of nodes in maintenance.
    pub fn node_leases(&self) -> Api<Lease> {
        Api::namespaced(self.client.clone(), names::LEASE_NAMESPACE)
    }

    async fn install(&self) {
        for object in manifests::prerequisites() {
            self.apply(&object).await;
        }
        let crds: Api<CustomResourceDefinition> = Api::all(self.client.clone());
        wait_until(&crds, &nm_shared::api::crd::crd().name_any(), "established", |crd| {
            let status = crd.and_then(|crd| crd.status.as_ref());
            let conditions = status.and_then(|status| status.conditions.as_deref()).unwrap_or_default();
            conditions.iter().any(|condition| condition.type_ == "Established" && condition.status == "True")
        })
        .await;
        self.write_reconciler_kubeconfig().await;
    }

    /// Removes a field from the definition of `NodeMaintenance`, as older definitions and that of the medik8s operator lack it.
    pub async fn remove_field(&self, path: &[&str]) {
        let (field, parents) = path.split_last().unwrap();
        let definitions: Api<CustomResourceDefinition> = Api::all(self.client.clone());
        let name = nm_shared::api::crd::crd().name_any();
        let mut definition = definitions.get(&name).await.unwrap();
        let schema = definition.spec.versions[0].schema.as_mut().unwrap();
        let mut schema = schema.open_api_v3_schema.as_mut().unwrap();
        for parent in parents {
            schema = schema.properties.as_mut().unwrap().get_mut(*parent).unwrap();
        }
        schema.properties.as_mut().unwrap().remove(*field).unwrap();
        definitions.replace(&name, &PostParams::default(), &definition).await.unwrap();
    }

    /// Writes the kubeconfig of the reconciler's service account, which must exist.
    pub async fn write_reconciler_kubeconfig(&self) {
        let token = self.token(&manifests::service_account()).await;
        std::fs::write(self.reconciler_kubeconfig(), with_token(&self.kubeconfig, &token)).unwrap();
    }

    /// The API of the object's kind, in its namespace.
    fn api_of(&self, object: &DynamicObject) -> Api<DynamicObject> {
        let kind = object.types.as_ref().unwrap().try_into().unwrap();
        let resource = ApiResource::from_gvk(&kind);
        let client = self.client.clone();
        match object.namespace() {
            Some(namespace) => Api::namespaced_with(client, &namespace, &resource),
            None => Api::all_with(client, &resource),
        }
    }

    /// Deletes an object, if it exists.
    pub async fn remove(&self, object: &DynamicObject) {
        let _ = self.api_of(object).delete(&object.name_any(), &DeleteParams::default()).await;
    }

    /// Applies an object by server-side apply, with force.
    pub async fn apply(&self, object: &DynamicObject) {
        let api = self.api_of(object);
        let params = PatchParams::apply("nm-tests").force();
        api.patch(&object.name_any(), &params, &Patch::Apply(object)).await.unwrap();
    }

    /// Grants the reconciler the permissions of a component of the manifests, such as `pod_deletion`.
    pub async fn grant(&self, component: &str) {
        for object in manifests::component(component) {
            self.apply(&object).await;
        }
    }

    /// A bearer token of a service account, valid for longer than any test takes.
    async fn token(&self, account: &ServiceAccount) -> String {
        let namespace = account.namespace().unwrap();
        let accounts: Api<ServiceAccount> = Api::namespaced(self.client.clone(), &namespace);
        let spec = TokenRequestSpec { expiration_seconds: Some(3600), ..TokenRequestSpec::default() };
        let request = TokenRequest { spec, ..TokenRequest::default() };
        let params = PostParams::default();
        let answer = accounts.create_token_request(&account.name_any(), &params, &request).await.unwrap();
        answer.status.unwrap().token
    }

    /// Removes everything that earlier tests, even failed ones, left on the cluster.
    async fn clean_up(&self) {
        for component in manifests::PERMISSION_COMPONENTS {
            for object in manifests::component(component) {
                self.remove(&object).await;
            }
        }
        let webhooks: Api<ValidatingWebhookConfiguration> = Api::all(self.client.clone());
        let _ = webhooks.delete(names::WEBHOOK_CONFIGURATION, &DeleteParams::default()).await;
        let leases: Api<Lease> = Api::all(self.client.clone());
        let led = ListParams::default().fields(&format!("metadata.name={}", leader_lease::NAME));
        for lease in leases.list(&led).await.unwrap() {
            let own: Api<Lease> = Api::namespaced(self.client.clone(), &lease.namespace().unwrap());
            let _ = own.delete(leader_lease::NAME, &DeleteParams::default()).await;
        }
        let maintenances = self.maintenances();
        for maintenance in maintenances.list(&ListParams::default()).await.unwrap() {
            let name = maintenance.name_any();
            let without_finalizers = Patch::Merge(json!({"metadata": {"finalizers": null}}));
            let _ = maintenances.delete(&name, &DeleteParams::default()).await;
            let _ = maintenances.patch(&name, &PatchParams::default(), &without_finalizers).await;
        }
        older_groups::clean_up(&self.client).await;
        let nodes: Api<Node> = Api::all(self.client.clone());
        for node in nodes.list_metadata(&ListParams::default().labels(SUITE_LABEL)).await.unwrap() {
            nodes.delete(&node.name_any(), &DeleteParams::default()).await.unwrap();
        }
        for name in self.nodes().await {
            let without_marks = json!({
                "metadata": {
                    "labels": {names::EXCLUDE_LABEL: null},
                    "annotations": {names::UNDO_ANNOTATION: null},
                },
                "spec": {"unschedulable": null, "taints": null},
            });
            self.patch_node(&name, without_marks).await;
        }
        let namespaces: Api<Namespace> = Api::all(self.client.clone());
        for namespace in namespaces.list(&ListParams::default().labels(SUITE_LABEL)).await.unwrap() {
            let name = namespace.name_any();
            let _ = namespaces.delete(&name, &DeleteParams::default()).await;
            let pods: Api<PartialObjectMeta<Pod>> = Api::namespaced(self.client.clone(), &name);
            let left = pods.list(&ListParams::default()).await.unwrap();
            for pod in left.into_iter().filter(|pod| !pod.finalizers().is_empty()) {
                let without_finalizers = Patch::Merge(json!({"metadata": {"finalizers": null}}));
                let _ = pods.patch(&pod.name_any(), &PatchParams::default(), &without_finalizers).await;
            }
            wait_until_none(&pods, "no pods left").await;
        }
    }
}

/// A client with the permissions of a kubeconfig.
pub async fn client(kubeconfig: &Path) -> Client {
    let kubeconfig = Kubeconfig::read_from(kubeconfig).unwrap();
    let config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await.unwrap();
    Client::try_from(config).unwrap()
}

/// A kubeconfig for the same cluster whose only credential is a token.
fn with_token(kubeconfig: &Path, token: &str) -> String {
    let mut config: Value = serde_saphyr::from_str(&std::fs::read_to_string(kubeconfig).unwrap()).unwrap();
    config["users"] = json!([{"name": "reconciler", "user": {"token": token}}]);
    for context in config["contexts"].as_array_mut().unwrap() {
        context["context"]["user"] = json!("reconciler");
    }
    config.to_string()
}
