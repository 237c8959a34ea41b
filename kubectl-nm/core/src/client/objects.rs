//! Requests about objects of any kind, for the commands that inspect or change the installation.
//!
//! An object is a [`Value`] as the API server sends it, so that unknown fields are kept.

use std::time::Duration;

use futures::{AsyncBufReadExt, StreamExt};
use kube::ResourceExt;
use kube::api::{
    Api, ApiResource, DynamicObject, GroupVersionKind, ListParams, LogParams, Patch, PatchParams, PostParams,
};
use kube::runtime::wait::await_condition;
use serde_json::{Value, json};

use crate::client::cluster::{Cluster, Deletion};
use crate::error::Error;
use crate::error::from_client::GET_VERSION;

const RETRY_INTERVAL: Duration = Duration::from_secs(1);

/// API version and kind, such as `("apps/v1", "Deployment")`.
pub type ApiVersionKind = (&'static str, &'static str);

/// Permission to use a verb on a resource.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Permission {
    /// The RBAC verb, such as `get`.
    pub verb: &'static str,
    /// The API group, empty for the core group.
    pub group: String,
    /// The resource, with its subresource.
    pub resource: String,
}

impl From<nm_shared::api::grant::Permission> for Permission {
    fn from((verb, group, resource): nm_shared::api::grant::Permission) -> Self {
        Self { verb, group: group.to_owned(), resource: resource.to_owned() }
    }
}

impl Permission {
    /// The resource as `kubectl auth can-i` accepts it.
    pub fn qualified_resource(&self) -> String {
        if self.group.is_empty() {
            self.resource.clone()
        } else {
            format!("{}.{}", self.resource, self.group)
        }
    }
}

/// The permission to use a verb on objects of this kind.
pub fn permission(verb: &'static str, object: &Value) -> Permission {
    let resource = resource_of(object);
    Permission { verb, group: resource.group, resource: resource.plural }
}

/// Reads the object with this one's kind, namespace and name; `None` if it does not exist or its kind is not served.
///
/// # Errors
///
/// If the request fails, including for lack of permission.
pub async fn get(cluster: &Cluster, object: &Value) -> Result<Option<Value>, Error> {
    let (api, name, what) = locate(cluster, object);
    match cluster.request(&format!("get {what}"), async || api.get(&name).await).await {
        Ok(found) => value(&found).map(Some),
        Err(error) if error.is_unserved() || error.is_not_found() => Ok(None),
        Err(error) => Err(error),
    }
}

/// Whether the server serves objects of this kind. A user without permission to read them may still apply them.
///
/// # Errors
///
/// If the API server does not respond. A refusal is not an error.
pub async fn is_served(cluster: &Cluster, object: &Value) -> Result<bool, Error> {
    let (api, name, what) = locate(cluster, object);
    match cluster.request(&format!("get {what}"), async || api.get(&name).await).await {
        Ok(_) => Ok(true),
        Err(error) if error.is_unserved() => Ok(false),
        Err(error) if error.status().is_some() => Ok(true),
        Err(error) => Err(error),
    }
}

/// Lists the objects of a kind, in a namespace or in all. Sets `apiVersion` and `kind` of each item.
///
/// # Errors
///
/// If the request fails, including when the kind is not served.
pub async fn list(
    cluster: &Cluster,
    kind: (&str, &str),
    namespace: Option<&str>,
    selector: &ListParams,
) -> Result<Vec<Value>, Error> {
    let resource = resource(kind.0, kind.1);
    let api = api(cluster, namespace, &resource);
    let items = cluster.list(&api, &name_of(&resource), selector).await?;
    // The items of a list have neither apiVersion nor kind.
    let with_kind = |mut item: Value| {
        item["apiVersion"] = kind.0.into();
        item["kind"] = kind.1.into();
        item
    };
    items.iter().map(|item| value(item).map(with_kind)).collect()
}

/// Applies an object by server-side apply, and returns it as stored.
///
/// # Errors
///
/// If the request fails; with status code 409 if another field manager owns a field and the parameters do not force it.
pub async fn apply(cluster: &Cluster, object: &Value, params: &PatchParams) -> Result<Value, Error> {
    let (api, name, what) = locate(cluster, object);
    let patch = Patch::Apply(object);
    let applied =
        cluster.request(&format!("patch {what}"), async || api.patch(&name, params, &patch).await).await?;
    value(&applied)
}

/// Merges a patch into the object with this one's kind, namespace and name.
///
/// # Errors
///
/// If the object does not exist, or if the request fails.
pub async fn patch(cluster: &Cluster, object: &Value, patch: &Value) -> Result<Value, Error> {
    let (api, name, what) = locate(cluster, object);
    let (asked, params, patch) = (format!("patch {what}"), PatchParams::default(), Patch::Merge(patch));
    value(&cluster.request(&asked, async || api.patch(&name, &params, &patch).await).await?)
}

/// Creates an object. With `dry_run`, the API server only checks whether it would.
///
/// # Errors
///
/// If the object cannot be converted, or if the request fails.
pub async fn create(cluster: &Cluster, object: &Value, dry_run: bool) -> Result<Value, Error> {
    let resource = resource_of(object);
    let (api, what) = (api(cluster, object["metadata"]["namespace"].as_str(), &resource), name_of(&resource));
    let params = PostParams { dry_run, ..PostParams::default() };
    let asked = format!("create {what}");
    let object =
        serde_json::from_value(object.clone()).map_err(|error| Error::Unshowable(error.to_string()))?;
    value(&cluster.request(&asked, async || api.create(&params, &object).await).await?)
}

/// Deletes the object with this one's name and uid.
///
/// # Errors
///
/// If the request fails. A missing or replaced object is not an error: see [`Deletion`].
pub async fn delete(cluster: &Cluster, object: &Value) -> Result<Deletion, Error> {
    let (api, name, what) = locate(cluster, object);
    let uid = object["metadata"]["uid"].as_str().map(str::to_owned);
    cluster.delete_exactly(&api, &what, &name, uid).await
}

/// Waits until the object with this one's name and uid is gone.
pub async fn wait_until_gone(cluster: &Cluster, object: &Value) {
    let uid = object["metadata"]["uid"].as_str();
    wait_until(cluster, object, |found| found.is_none_or(|found| found.metadata.uid.as_deref() != uid)).await;
}

/// Waits until the object with this one's name meets a condition, which gets `None` if there is no object. Retries a
/// failed watch after a second, without limit.
pub async fn wait_until(
    cluster: &Cluster,
    object: &Value,
    condition: impl Fn(Option<&DynamicObject>) -> bool,
) {
    let (api, name, _) = locate(cluster, object);
    while await_condition(api.clone(), &name, |found: Option<&DynamicObject>| condition(found)).await.is_err()
    {
        tokio::time::sleep(RETRY_INTERVAL).await;
    }
}

/// Reads the log of a pod.
///
/// # Errors
///
/// If the request fails.
pub async fn log(cluster: &Cluster, pod: &Value, params: &LogParams) -> Result<String, Error> {
    let namespace = pod["metadata"]["namespace"].as_str().unwrap_or_default();
    let name = pod["metadata"]["name"].as_str().unwrap_or_default();
    let pods: Api<k8s_openapi::api::core::v1::Pod> = Api::namespaced(cluster.client(), namespace);
    cluster.request("get pods/log", async || pods.logs(name, params).await).await
}

/// Follows the log of a pod, and reads each line. Returns when the container has ended.
///
/// # Errors
///
/// If the request or the connection fails, or if `read` does.
pub async fn follow_log(
    cluster: &Cluster,
    pod: &Value,
    params: &LogParams,
    mut read: impl FnMut(&str) -> Result<(), Error>,
) -> Result<(), Error> {
    let namespace = pod["metadata"]["namespace"].as_str().unwrap_or_default();
    let name = pod["metadata"]["name"].as_str().unwrap_or_default();
    let pods: Api<k8s_openapi::api::core::v1::Pod> = Api::namespaced(cluster.client(), namespace);
    let log = cluster.request("get pods/log", async || pods.log_stream(name, params).await).await?;
    let mut lines = log.lines();
    while let Some(line) = lines.next().await {
        let broken =
            |error| Error::from_client(kube::Error::ReadEvents(error), "get pods/log", cluster.server());
        read(&line.map_err(broken)?)?;
    }
    Ok(())
}

/// Whether an account, or else the user, has a permission in all namespaces.
///
/// # Errors
///
/// If the request for the review fails.
pub async fn is_allowed(
    cluster: &Cluster,
    account: Option<&str>,
    permission: &Permission,
) -> Result<bool, Error> {
    review(cluster, account, permission, "").await
}

/// Whether the user has a permission in a namespace.
///
/// # Errors
///
/// If the request for the review fails.
pub async fn is_allowed_in(
    cluster: &Cluster,
    namespace: &str,
    permission: &Permission,
) -> Result<bool, Error> {
    review(cluster, None, permission, namespace).await
}

async fn review(
    cluster: &Cluster,
    account: Option<&str>,
    permission: &Permission,
    namespace: &str,
) -> Result<bool, Error> {
    let Permission { verb, group, resource } = permission;
    let (resource, subresource) = resource.split_once('/').unwrap_or((resource, ""));
    let attributes = json!({"namespace": namespace, "verb": verb, "group": group, "resource": resource,
        "subresource": subresource});
    let (kind, spec) = match account {
        None => ("SelfSubjectAccessReview", json!({"resourceAttributes": attributes})),
        Some(user) => {
            let spec = json!({"user": user, "groups": groups(user), "resourceAttributes": attributes});
            ("SubjectAccessReview", spec)
        }
    };
    let answer = ask(cluster, ("authorization.k8s.io/v1", kind), json!({"spec": spec})).await?;
    Ok(answer["status"]["allowed"] == true)
}

/// The groups of a service account, which a review does not add to its user by itself. Those of other users are not known.
fn groups(user: &str) -> Vec<String> {
    let account = user.strip_prefix("system:serviceaccount:").and_then(|account| account.split_once(':'));
    let Some((namespace, _)) = account else { return Vec::new() };
    let all =
        ["system:serviceaccounts", &format!("system:serviceaccounts:{namespace}"), "system:authenticated"];
    all.map(str::to_owned).into()
}

/// The name of the user, as the API server knows it.
///
/// # Errors
///
/// If the request for the review fails.
pub async fn user_name(cluster: &Cluster) -> Result<String, Error> {
    let answer = ask(cluster, ("authentication.k8s.io/v1", "SelfSubjectReview"), json!({})).await?;
    Ok(answer["status"]["userInfo"]["username"].as_str().unwrap_or_default().to_owned())
}

/// Creates an object that the API server answers and does not store.
async fn ask(cluster: &Cluster, kind: ApiVersionKind, data: Value) -> Result<Value, Error> {
    let kind = resource(kind.0, kind.1);
    let review = DynamicObject::new("", &kind).data(data);
    let (api, asked) = (api(cluster, None, &kind), format!("create {}", name_of(&kind)));
    let answer = cluster.request(&asked, async || api.create(&PostParams::default(), &review).await).await?;
    Ok(answer.data)
}

/// Version of the API server, such as `v1.35.0`.
///
/// # Errors
///
/// If the request fails.
pub async fn server_version(cluster: &Cluster) -> Result<String, Error> {
    let client = cluster.client();
    let version = cluster.request(GET_VERSION, async || client.apiserver_version().await).await?;
    Ok(version.git_version)
}

/// The API of the object's kind, the object's name, and its resource as RBAC words it.
fn locate(cluster: &Cluster, object: &Value) -> (Api<DynamicObject>, String, String) {
    let resource = resource_of(object);
    let name = object["metadata"]["name"].as_str().unwrap_or_default().to_owned();
    let api = api(cluster, object["metadata"]["namespace"].as_str(), &resource);
    (api, name, name_of(&resource))
}

fn api(cluster: &Cluster, namespace: Option<&str>, resource: &ApiResource) -> Api<DynamicObject> {
    match namespace {
        Some(namespace) => Api::namespaced_with(cluster.client(), namespace, resource),
        None => Api::all_with(cluster.client(), resource),
    }
}

fn resource_of(object: &Value) -> ApiResource {
    let field = |name: &str| object[name].as_str().unwrap_or_default();
    resource(field("apiVersion"), field("kind"))
}

fn resource(api_version: &str, kind: &str) -> ApiResource {
    let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
    ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, kind))
}

/// The resource as RBAC and `kubectl get` name it.
fn name_of(resource: &ApiResource) -> String {
    match resource.group.as_str() {
        "" => resource.plural.clone(),
        group => format!("{}.{group}", resource.plural),
    }
}

fn value(object: &DynamicObject) -> Result<Value, Error> {
    serde_json::to_value(object).map_err(|error| Error::Unshowable(format!("{}: {error}", object.name_any())))
}
