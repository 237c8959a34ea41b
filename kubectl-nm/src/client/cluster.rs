//! The way to a cluster, and the requests about `NodeMaintenance` objects and whether a node exists. `objects` makes those
//! about any other object in the same way, and the dashboard its watches.
//!
//! Requests are tried again for a few seconds while the server says that it is busy, are bounded by
//! `--request-timeout`, and fail as [`Error`]s that a person can read.

use std::time::Duration;

use k8s_openapi::api::core::v1::{Namespace, Node};
use kube::ResourceExt;
use kube::api::{Api, DeleteParams, DynamicObject, ListParams, PostParams, Preconditions};
use kube::core::{ApiResource, Status};
use nm_shared::NodeMaintenance;
use nm_shared::gate::quorum;
use serde_json::Value;

use crate::connection::Connected;
use crate::error::{Error, RESOURCE};

/// How often a request that met a busy server is tried.
const TRIES: u32 = 5;

/// How many requests may be under way at once. Many, because nodes that go into maintenance together must be cordoned
/// before pods are moved from one to the next; not all, because a server queues only so much for one user.
pub(crate) const AT_ONCE: usize = 64;

/// What is known of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NodeLookup {
    /// It exists.
    Exists,
    /// There is no such node.
    Missing,
    /// The user may not know.
    Hidden,
}

/// What became of an object that was to be deleted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Deletion {
    /// It is gone.
    Gone,
    /// It goes when its finalizers are done.
    UnderWay,
    /// It is gone, and there is a later one of its name, which is left alone.
    Replaced,
}

/// The cluster, as far as the plugin goes.
#[derive(Clone)]
pub(crate) struct Cluster {
    client: kube::Client,
    server: String,
    context: String,
    flags: String,
    kubectl: String,
    request_timeout: Option<Duration>,
}

impl From<Connected> for Cluster {
    fn from(connected: Connected) -> Self {
        let Connected { client, server, context, flags, request_timeout } = connected;
        Self { client, server, context, kubectl: format!("kubectl{flags}"), flags, request_timeout }
    }
}

impl Cluster {
    /// The client, for the dashboard's watches.
    pub(crate) fn client(&self) -> kube::Client {
        self.client.clone()
    }

    /// The address of the server, for messages.
    pub(crate) fn server(&self) -> &str {
        &self.server
    }

    /// The name that people have for the cluster: that of the kubeconfig's context, where there is one.
    pub(crate) fn context(&self) -> &str {
        &self.context
    }

    /// The flags that lead to this cluster, each with a blank before it, for commands of our own to paste: `kubectl` takes
    /// none before the name of a plugin.
    pub(crate) fn flags(&self) -> &str {
        &self.flags
    }

    /// How kubectl is called for this cluster, for commands to paste.
    pub(crate) fn kubectl(&self) -> &str {
        &self.kubectl
    }

    fn api(&self) -> Api<NodeMaintenance> {
        Api::all(self.client.clone())
    }

    /// Whether the cluster is OpenShift.
    ///
    /// # Errors
    ///
    /// When the server cannot be asked or refuses.
    pub(crate) async fn is_openshift(&self) -> Result<bool, Error> {
        let groups = self.ask("get the API groups", async || self.client.list_api_groups().await).await?;
        Ok(quorum::is_openshift(&groups))
    }

    /// All maintenances.
    ///
    /// # Errors
    ///
    /// When the server cannot be asked or refuses.
    pub(crate) async fn maintenances(&self) -> Result<Vec<NodeMaintenance>, Error> {
        let everything = ListParams::default();
        let list = self.ask(&format!("list {RESOURCE}"), async || self.api().list(&everything).await).await?;
        Ok(list.items)
    }

    /// All maintenances as the server sends them, with fields that this program does not know.
    ///
    /// # Errors
    ///
    /// When the server cannot be asked or refuses.
    pub(crate) async fn raw_maintenances(&self) -> Result<Vec<DynamicObject>, Error> {
        let resource = ApiResource::erase::<NodeMaintenance>(&());
        let api: Api<DynamicObject> = Api::all_with(self.client.clone(), &resource);
        let everything = ListParams::default();
        let list = self.ask(&format!("list {RESOURCE}"), async || api.list(&everything).await).await?;
        Ok(list.items)
    }

    /// The maintenance of that name, if there is one.
    ///
    /// # Errors
    ///
    /// When the server cannot be asked or refuses.
    pub(crate) async fn maintenance(&self, name: &str) -> Result<Option<NodeMaintenance>, Error> {
        let found = self.ask(&format!("get {RESOURCE}"), async || self.api().get(name).await).await;
        match found {
            Ok(found) => Ok(Some(found)),
            Err(error) if error.status().is_some_and(Status::is_not_found) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Creates a maintenance, or has the server only check whether it would.
    ///
    /// # Errors
    ///
    /// When the server cannot be asked or refuses.
    pub(crate) async fn create(
        &self,
        maintenance: &NodeMaintenance,
        dry_run: bool,
    ) -> Result<NodeMaintenance, Error> {
        let params = PostParams { field_manager: Some(String::from("kubectl-nm")), dry_run };
        self.ask(&format!("create {RESOURCE}"), async || self.api().create(&params, maintenance).await).await
    }

    /// Deletes the maintenance of that name, unless it is another than the one with that uid.
    ///
    /// # Errors
    ///
    /// When the server cannot be asked or refuses.
    pub(crate) async fn delete(&self, name: &str, uid: &str) -> Result<Deletion, Error> {
        let exactly = Preconditions { uid: Some(uid.to_owned()), resource_version: None };
        let params = DeleteParams { preconditions: Some(exactly), ..DeleteParams::default() };
        let answer =
            self.ask(&format!("delete {RESOURCE}"), async || self.api().delete(name, &params).await).await;
        match answer {
            Ok(answer) => Ok(answer.either(|_| Deletion::UnderWay, |_| Deletion::Gone)),
            Err(error) if error.status().is_some_and(Status::is_not_found) => Ok(Deletion::Gone),
            Err(error) if error.status().is_some_and(Status::is_conflict) => Ok(Deletion::Replaced),
            Err(error) => Err(error),
        }
    }

    /// Whether there is a node of that name. Who may not read nodes can still use everything else.
    ///
    /// # Errors
    ///
    /// When the server cannot be asked, or refuses for another reason than a missing right.
    pub(crate) async fn node(&self, name: &str) -> Result<NodeLookup, Error> {
        let nodes: Api<Node> = Api::all(self.client.clone());
        match self.ask("get nodes", async || nodes.get_metadata(name).await).await {
            Ok(_) => Ok(NodeLookup::Exists),
            Err(error) if error.status().is_some_and(Status::is_not_found) => Ok(NodeLookup::Missing),
            Err(error) if error.status().is_some_and(Status::is_forbidden) => Ok(NodeLookup::Hidden),
            Err(error) => Err(error),
        }
    }

    /// The names of the nodes whose labels match, or of all.
    ///
    /// # Errors
    ///
    /// When the server cannot be asked or refuses.
    pub(crate) async fn node_names(&self, selector: Option<&str>) -> Result<Vec<String>, Error> {
        let nodes: Api<Node> = Api::all(self.client.clone());
        let which = ListParams { label_selector: selector.map(str::to_owned), ..ListParams::default() };
        let list = self.ask("list nodes", async || nodes.list_metadata(&which).await).await?;
        Ok(list.items.iter().map(ResourceExt::name_any).collect())
    }

    /// The names of the namespaces.
    ///
    /// # Errors
    ///
    /// When the server cannot be asked or refuses.
    pub(crate) async fn namespaces(&self) -> Result<Vec<String>, Error> {
        let namespaces: Api<Namespace> = Api::all(self.client.clone());
        let everything = ListParams::default();
        let list = self.ask("list namespaces", async || namespaces.list_metadata(&everything).await).await?;
        Ok(list.items.iter().map(ResourceExt::name_any).collect())
    }

    /// What the server says of a request that it is to judge only: every answer counts, and none is asked for again.
    ///
    /// # Errors
    ///
    /// When the server cannot be asked.
    pub(crate) async fn judge(&self, asked: &str, path: &str, body: &Value) -> Result<Status, Error> {
        let request = http::Request::post(path).header(http::header::CONTENT_TYPE, "application/json");
        let request = request
            .body(body.to_string().into_bytes())
            .map_err(|error| Error::Unreachable { server: self.server.clone(), cause: error.to_string() })?;
        match self.within_timeout(self.client.request::<Status>(request)).await? {
            Ok(status) => Ok(Status { code: 201, ..status }),
            Err(kube::Error::Api(status)) => Ok(*status),
            Err(error) => Err(Error::from_client(error, asked, &self.server)),
        }
    }

    /// Makes a request until the server has time for it. `what` is what it asks for, as RBAC words it.
    ///
    /// # Errors
    ///
    /// When the server cannot be asked or refuses.
    pub(crate) async fn ask<T>(
        &self,
        what: &str,
        request: impl AsyncFn() -> Result<T, kube::Error>,
    ) -> Result<T, Error> {
        let mut tried = 1;
        loop {
            let error = match self.within_timeout(request()).await? {
                Ok(answer) => return Ok(answer),
                Err(error) => error,
            };
            match busy_for(&error).filter(|_| tried < TRIES) {
                Some(hint) => tokio::time::sleep(hint.max(Duration::from_millis(100 << tried))).await,
                None => return Err(Error::from_client(error, what, &self.server)),
            }
            tried += 1;
        }
    }

    async fn within_timeout<T>(&self, request: impl Future<Output = T>) -> Result<T, Error> {
        match self.request_timeout {
            None => Ok(request.await),
            Some(after) => tokio::time::timeout(after, request)
                .await
                .map_err(|_| Error::NoAnswer { server: self.server.clone(), after }),
        }
    }
}

/// How long the server asks us to wait, if being busy is all that is wrong.
fn busy_for(error: &kube::Error) -> Option<Duration> {
    let kube::Error::Api(status) = error else { return None };
    let asked = status.details.as_ref().map_or(0, |details| details.retry_after_seconds);
    matches!(status.code, 429 | 503).then(|| Duration::from_secs(u64::from(asked).min(5)))
}

#[cfg(test)]
#[path = "cluster_tests.rs"]
pub(crate) mod tests;
