//! The cluster: requests about `NodeMaintenance` objects and nodes. `objects` sends requests about other objects in the same
//! way; the dashboard starts its own watches.
//!
//! Requests are retried for a few seconds while the server is busy, are limited by `--request-timeout`, and fail with
//! readable [`Error`]s.

use std::fmt::Debug;
use std::path::Path;
use std::time::Duration;

use k8s_openapi::api::core::v1::{Namespace, Node};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::ResourceExt;
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams, PostParams, Preconditions};
use kube::core::{PartialObjectMeta, Status};
use nm_shared::gate::etcd_guard;
use nm_shared::{Group, GroupedMaintenance, NodeMaintenance};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::connection::Connection;
use crate::error::{Error, RESOURCE};

const MAX_ATTEMPTS: u32 = 5;

/// Longest delay before a retry that the server can ask for, in seconds.
const MAX_RETRY_AFTER_SECONDS: u32 = 5;

/// How many requests run concurrently. High, because nodes that go into maintenance together must all be cordoned before
/// pods move from one to the next; limited, because a server queues only so many requests of one user.
pub const MAX_CONCURRENT_REQUESTS: usize = 64;

/// Result of a delete request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Deletion {
    /// The object no longer exists.
    Gone,
    /// It is gone once its finalizers are removed.
    UnderWay,
    /// It is gone. A newer object has its name, and is left alone. Or it was to be deleted unchanged, and has changed.
    Replaced,
}

/// A connection to a cluster, with the requests that commands send. Clones share the connection.
#[derive(Clone)]
pub struct Cluster {
    connection: Connection,
    older_groups: Vec<Group>,
}

impl From<Connection> for Cluster {
    fn from(connection: Connection) -> Self {
        Self { connection, older_groups: Vec::new() }
    }
}

impl Cluster {
    /// The same cluster, with older groups whose maintenances are watched and stopped too.
    #[must_use]
    pub fn with_older_groups(&self, groups: &[Group]) -> Self {
        Self { connection: self.connection.clone(), older_groups: groups.to_vec() }
    }

    pub(crate) fn older_groups(&self) -> &[Group] {
        &self.older_groups
    }

    /// The kube client. Requests sent through it directly are not retried.
    pub fn client(&self) -> kube::Client {
        self.connection.client.clone()
    }

    /// Address of the API server for messages, with its proxy.
    pub fn server(&self) -> &str {
        &self.connection.server
    }

    /// Name of the kubeconfig's context; without one, the address of the API server.
    pub fn context(&self) -> &str {
        &self.connection.context
    }

    /// The connection flags, each with a leading blank, for `kubectl nm` commands to paste. They go at the end, because
    /// kubectl accepts none before the name of a plugin.
    pub fn flags(&self) -> &str {
        &self.connection.flags
    }

    /// `kubectl` with the connection flags, for commands to paste.
    pub fn kubectl(&self) -> &str {
        &self.connection.kubectl
    }

    /// The connection flags for kubectl as a program that is started, with credentials.
    pub fn kubectl_arguments(&self) -> &[String] {
        &self.connection.kubectl_arguments
    }

    /// The kubeconfig that a flag names.
    pub fn kubeconfig(&self) -> Option<&Path> {
        self.connection.kubeconfig.as_deref()
    }

    fn api(&self) -> Api<NodeMaintenance> {
        Api::all(self.client())
    }

    pub(crate) async fn is_openshift(&self) -> Result<bool, Error> {
        let groups = self
            .request("get the API groups", async || self.connection.client.list_api_groups().await)
            .await?;
        Ok(etcd_guard::is_openshift(&groups))
    }

    /// Lists the maintenances of the current API group.
    ///
    /// # Errors
    ///
    /// If the request fails; [`Error::NotInstalled`] if the cluster does not serve NodeMaintenance.
    pub async fn maintenances(&self) -> Result<Vec<NodeMaintenance>, Error> {
        self.list(&self.api(), RESOURCE, &ListParams::default()).await
    }

    /// Reads a maintenance of the current API group by name; `None` if it does not exist.
    ///
    /// # Errors
    ///
    /// If the request fails for another reason.
    pub async fn maintenance(&self, name: &str) -> Result<Option<NodeMaintenance>, Error> {
        match self.request(&format!("get {RESOURCE}"), async || self.api().get(name).await).await {
            Err(error) if error.is_not_found() => Ok(None),
            found => found.map(Some),
        }
    }

    /// Creates a maintenance, and returns it as stored. With `dry_run`, the API server only validates it.
    ///
    /// # Errors
    ///
    /// If the request fails, for example because the name is taken or a webhook denies the object.
    pub async fn create(
        &self,
        maintenance: &NodeMaintenance,
        dry_run: bool,
    ) -> Result<NodeMaintenance, Error> {
        let params = PostParams { field_manager: Some(String::from("kubectl-nm")), dry_run };
        self.request(&format!("create {RESOURCE}"), async || self.api().create(&params, maintenance).await)
            .await
    }

    /// Sets or clears `spec.suspend`, unless another object has the name by now. Returns the object as it is stored, or
    /// would be.
    ///
    /// # Errors
    ///
    /// If the request fails, or if the object is gone or has another uid.
    pub async fn suspend(
        &self,
        name: &str,
        uid: &str,
        suspend: bool,
        dry_run: bool,
    ) -> Result<NodeMaintenance, Error> {
        let patch = json!({"metadata": {"uid": uid}, "spec": {"suspend": suspend}});
        self.patch(name, &patch, dry_run).await
    }

    /// Applies a merge patch. If it has the uid or the resourceVersion of an object, it fails if that has changed.
    ///
    /// # Errors
    ///
    /// If the request fails; with status code 409 if the uid or the resourceVersion has changed.
    pub async fn patch(&self, name: &str, patch: &Value, dry_run: bool) -> Result<NodeMaintenance, Error> {
        let field_manager = Some(String::from("kubectl-nm"));
        let params = PatchParams { field_manager, dry_run, ..PatchParams::default() };
        let asked = format!("patch {RESOURCE}");
        self.request(&asked, async || self.api().patch(name, &params, &Patch::Merge(patch)).await).await
    }

    /// Applies a merge patch to a maintenance of any group.
    ///
    /// # Errors
    ///
    /// If the request fails; with status code 409 if the patch has another uid than the object.
    pub async fn patch_grouped(&self, object: &GroupedMaintenance, patch: &Value) -> Result<(), Error> {
        let api: Api<GroupedMaintenance> = Api::all_with(self.client(), &object.group);
        let field_manager = Some(String::from("kubectl-nm"));
        let params = PatchParams { field_manager, ..PatchParams::default() };
        let (asked, name) = (format!("patch {}", object.group.definition()), object.maintenance.name_any());
        self.request(&asked, async || api.patch(&name, &params, &Patch::Merge(patch)).await).await.map(drop)
    }

    /// Deletes the maintenance of the current API group with this name and uid.
    ///
    /// # Errors
    ///
    /// If the request fails. A missing or replaced object is not an error: see [`Deletion`].
    pub async fn delete(&self, name: &str, uid: &str) -> Result<Deletion, Error> {
        self.delete_exactly(&self.api(), RESOURCE, name, Some(uid.to_owned())).await
    }

    /// Deletes a maintenance unless it has changed since it was read.
    ///
    /// # Errors
    ///
    /// If the request fails. A missing or changed object is not an error: see [`Deletion`].
    pub async fn delete_unchanged(&self, maintenance: &NodeMaintenance) -> Result<Deletion, Error> {
        let exactly =
            Preconditions { uid: maintenance.uid(), resource_version: maintenance.resource_version() };
        self.delete_if(&self.api(), RESOURCE, &maintenance.name_any(), exactly).await
    }

    /// The metadata of a node; none if there is no such node.
    ///
    /// # Errors
    ///
    /// If the request fails.
    pub async fn node_metadata(&self, name: &str) -> Result<Option<ObjectMeta>, Error> {
        let nodes: Api<Node> = Api::all(self.client());
        let found = self.request("get nodes", async || nodes.get_metadata_opt(name).await).await?;
        Ok(found.map(|node| node.metadata))
    }

    /// The node; none if it does not exist.
    ///
    /// # Errors
    ///
    /// If the request fails.
    pub async fn node(&self, name: &str) -> Result<Option<Node>, Error> {
        let nodes: Api<Node> = Api::all(self.client());
        self.request("get nodes", async || nodes.get_opt(name).await).await
    }

    /// The names of the nodes whose labels match, or of all nodes.
    ///
    /// # Errors
    ///
    /// If the request fails; with status code 400 if the selector is not valid.
    pub async fn node_names(&self, selector: Option<&str>) -> Result<Vec<String>, Error> {
        let which = ListParams { label_selector: selector.map(str::to_owned), ..ListParams::default() };
        let nodes = self.list_metadata(&Api::<Node>::all(self.client()), "nodes", &which).await?;
        Ok(nodes.iter().map(ResourceExt::name_any).collect())
    }

    /// Lists the names of all namespaces.
    ///
    /// # Errors
    ///
    /// If the request fails.
    pub async fn namespaces(&self) -> Result<Vec<String>, Error> {
        let (api, which) = (Api::<Namespace>::all(self.client()), ListParams::default());
        let namespaces = self.list_metadata(&api, "namespaces", &which).await?;
        Ok(namespaces.iter().map(ResourceExt::name_any).collect())
    }

    /// Lists objects. `resource` is their name in RBAC, here and below.
    ///
    /// # Errors
    ///
    /// If the request fails.
    pub async fn list<K: Clone + Debug + DeserializeOwned>(
        &self,
        api: &Api<K>,
        resource: &str,
        which: &ListParams,
    ) -> Result<Vec<K>, Error> {
        Ok(self.request(&format!("list {resource}"), async || api.list(which).await).await?.items)
    }

    async fn list_metadata<K: Clone + Debug + DeserializeOwned>(
        &self,
        api: &Api<K>,
        resource: &str,
        which: &ListParams,
    ) -> Result<Vec<PartialObjectMeta<K>>, Error> {
        Ok(self.request(&format!("list {resource}"), async || api.list_metadata(which).await).await?.items)
    }

    /// Deletes the object with this name and uid, and then what it owns.
    ///
    /// # Errors
    ///
    /// If the request fails. A missing or replaced object is not an error: see [`Deletion`].
    pub async fn delete_exactly<K: Clone + Debug + DeserializeOwned>(
        &self,
        api: &Api<K>,
        resource: &str,
        name: &str,
        uid: Option<String>,
    ) -> Result<Deletion, Error> {
        self.delete_if(api, resource, name, Preconditions { uid, resource_version: None }).await
    }

    async fn delete_if<K: Clone + Debug + DeserializeOwned>(
        &self,
        api: &Api<K>,
        resource: &str,
        name: &str,
        exactly: Preconditions,
    ) -> Result<Deletion, Error> {
        let params = DeleteParams::background().preconditions(exactly);
        match self.request(&format!("delete {resource}"), async || api.delete(name, &params).await).await {
            Ok(answer) => Ok(answer.either(|_| Deletion::UnderWay, |_| Deletion::Gone)),
            Err(error) if error.is_not_found() => Ok(Deletion::Gone),
            Err(error) if error.status().is_some_and(Status::is_conflict) => Ok(Deletion::Replaced),
            Err(error) => Err(error),
        }
    }

    /// The status with which the server responds to a POST. A refusal is a result too, and nothing is retried.
    ///
    /// # Errors
    ///
    /// If the API server does not respond in time, or responds with something other than a `Status`.
    pub async fn post_for_status(&self, asked: &str, path: &str, body: &Value) -> Result<Status, Error> {
        let request = http::Request::post(path).header(http::header::CONTENT_TYPE, "application/json");
        let request = request.body(body.to_string().into_bytes()).map_err(kube::Error::HttpError);
        let send = async { self.connection.client.request::<Status>(request?).await };
        match self.within_timeout(send).await? {
            Ok(status) => Ok(Status { code: 201, ..status }),
            Err(kube::Error::Api(status)) => Ok(*status),
            Err(error) => Err(Error::from_client(error, asked, self.server())),
        }
    }

    /// Sends a request, and retries it while the server is busy. `asked` is the request as RBAC words it.
    ///
    /// # Errors
    ///
    /// If a request times out or is refused, or if the server is still busy at the fifth attempt.
    pub async fn request<T>(
        &self,
        asked: &str,
        send: impl AsyncFn() -> Result<T, kube::Error>,
    ) -> Result<T, Error> {
        let mut attempts = 1;
        loop {
            let error = match self.within_timeout(send()).await? {
                Ok(response) => return Ok(response),
                Err(error) => error,
            };
            match retry_after(&error).filter(|_| attempts < MAX_ATTEMPTS) {
                Some(delay) => tokio::time::sleep(delay.max(Duration::from_millis(100 << attempts))).await,
                None => return Err(Error::from_client(error, asked, self.server())),
            }
            attempts += 1;
        }
    }

    async fn within_timeout<T>(&self, request: impl Future<Output = T>) -> Result<T, Error> {
        match self.connection.request_timeout {
            None => Ok(request.await),
            Some(after) => tokio::time::timeout(after, request)
                .await
                .map_err(|_| Error::NoAnswer { server: self.server().to_owned(), after }),
        }
    }
}

fn retry_after(error: &kube::Error) -> Option<Duration> {
    let kube::Error::Api(status) = error else { return None };
    let seconds = status.details.as_ref().map_or(0, |details| details.retry_after_seconds);
    matches!(status.code, 429 | 503).then(|| Duration::from_secs(seconds.min(MAX_RETRY_AFTER_SECONDS).into()))
}

#[cfg(test)]
#[path = "cluster_tests.rs"]
mod tests;
