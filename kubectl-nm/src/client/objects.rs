//! Requests about objects of any kind, for the commands that inspect or change the installation.
//!
//! An object is a [`Value`] as the API server sends it, so that unknown fields are kept.

use std::time::Duration;

use futures::stream::{self, StreamExt, TryStreamExt};
use k8s_openapi::api::authorization::v1::{
    ResourceAttributes, SelfSubjectAccessReview, SelfSubjectAccessReviewSpec, SubjectAccessReview,
    SubjectAccessReviewSpec,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{APIResource, APIResourceList};
use kube::ResourceExt;
use kube::api::{
    Api, ApiResource, DeleteParams, DynamicObject, GroupVersionKind, ListParams, LogParams, Patch,
    PatchParams, PostParams, Preconditions,
};
use kube::core::Status;
use kube::runtime::wait::await_condition;
use serde_json::{Value, json};

use crate::client::cluster::{Cluster, Deletion, MAX_CONCURRENT_REQUESTS};
use crate::client::reconciler_deployment::FIELD_MANAGER;
use crate::error::Error;
use crate::error::from_client::GET_VERSION;

const RETRY_INTERVAL: Duration = Duration::from_secs(1);

pub(crate) type ApiVersionKind = (&'static str, &'static str);

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Permission {
    pub(crate) verb: &'static str,
    /// The API group, empty for the core group.
    pub(crate) group: String,
    /// The resource, with its subresource.
    pub(crate) resource: String,
}

impl Permission {
    /// The resource as `kubectl auth can-i` accepts it.
    pub(crate) fn qualified_resource(&self) -> String {
        if self.group.is_empty() {
            self.resource.clone()
        } else {
            format!("{}.{}", self.resource, self.group)
        }
    }
}

pub(crate) fn permission(verb: &'static str, object: &Value) -> Permission {
    let resource = resource_of(object);
    Permission { verb, group: resource.group, resource: resource.plural }
}

pub(crate) async fn get(cluster: &Cluster, object: &Value) -> Result<Option<Value>, Error> {
    let (api, name, what) = locate(cluster, object);
    let found = cluster.request(&format!("get {what}"), async || api.get(&name).await).await;
    match found {
        Ok(found) => value(&found).map(Some),
        Err(error) if error.is_unserved() => Ok(None),
        Err(error) if error.status().is_some_and(Status::is_not_found) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Whether the server serves objects of this kind. A user without permission to read them may still apply them.
pub(crate) async fn is_served(cluster: &Cluster, object: &Value) -> Result<bool, Error> {
    let (api, name, what) = locate(cluster, object);
    match cluster.request(&format!("get {what}"), async || api.get(&name).await).await {
        Ok(_) => Ok(true),
        Err(error) if error.is_unserved() => Ok(false),
        Err(error) if error.status().is_some() => Ok(true),
        Err(error) => Err(error),
    }
}

pub(crate) async fn list(
    cluster: &Cluster,
    kind: (&str, &str),
    namespace: Option<&str>,
    selector: &ListParams,
) -> Result<Vec<Value>, Error> {
    let resource = resource(kind.0, kind.1);
    let what = format!("list {}", name_of(&resource));
    let api = api(cluster, namespace, &resource);
    let list = cluster.request(&what, async || api.list(selector).await).await?;
    // The items of a list have neither apiVersion nor kind.
    let with_kind = |mut item: Value| {
        item["apiVersion"] = kind.0.into();
        item["kind"] = kind.1.into();
        item
    };
    list.items.iter().map(|item| value(item).map(with_kind)).collect()
}

/// The namespaced kinds whose objects can be listed and deleted.
pub(crate) async fn kinds_in_namespaces(cluster: &Cluster) -> Result<Vec<ApiResource>, Error> {
    let client = cluster.client();
    let core = cluster.request("get /api/v1", async || client.list_core_api_resources("v1").await).await?;
    let groups = cluster.request("get /apis", async || client.list_api_groups().await).await?.groups;
    let versions = groups.into_iter().filter_map(|group| Some(group.preferred_version?.group_version));
    let others: Vec<Vec<ApiResource>> = stream::iter(versions)
        .map(async |version| {
            let what = format!("get /apis/{version}");
            let list =
                cluster.request(&what, async || client.list_api_group_resources(&version).await).await?;
            Ok::<_, Error>(resources_in_namespaces(&version, list))
        })
        .buffered(MAX_CONCURRENT_REQUESTS)
        .try_collect()
        .await?;
    Ok([resources_in_namespaces("v1", core), others.concat()].concat())
}

fn resources_in_namespaces(api_version: &str, list: APIResourceList) -> Vec<ApiResource> {
    let is_one = |resource: &APIResource| {
        let can = |wanted: &str| resource.verbs.iter().any(|verb| verb == wanted);
        resource.namespaced && !resource.name.contains('/') && can("list") && can("delete")
    };
    let resources = list.resources.into_iter().filter(is_one);
    resources.map(|found| ApiResource { plural: found.name, ..resource(api_version, &found.kind) }).collect()
}

pub(crate) async fn list_metadata(
    cluster: &Cluster,
    resource: &ApiResource,
    namespace: &str,
) -> Result<Vec<Value>, Error> {
    let api = api(cluster, Some(namespace), resource);
    let what = format!("list {}", name_of(resource));
    let list = cluster.request(&what, async || api.list_metadata(&ListParams::default()).await).await;
    let items = match list {
        Ok(list) => list.items,
        // The CRD has just been deleted, and its objects with it.
        Err(error) if error.is_unserved() => Vec::new(),
        Err(error) => return Err(error),
    };
    Ok(items
        .iter()
        .map(|item| json!({"apiVersion": resource.api_version, "kind": resource.kind, "metadata": item.metadata}))
        .collect())
}

#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ApplyOptions {
    pub(crate) dry_run: bool,
    pub(crate) force: bool,
}

pub(crate) async fn apply(cluster: &Cluster, object: &Value, options: ApplyOptions) -> Result<Value, Error> {
    let (api, name, what) = locate(cluster, object);
    let params = PatchParams {
        dry_run: options.dry_run,
        force: options.force,
        field_manager: Some(FIELD_MANAGER.to_owned()),
        ..PatchParams::default()
    };
    let patch = Patch::Apply(object);
    let applied =
        cluster.request(&format!("patch {what}"), async || api.patch(&name, &params, &patch).await).await?;
    value(&applied)
}

/// Deletes the object with this one's name and uid.
pub(crate) async fn delete(cluster: &Cluster, object: &Value) -> Result<Deletion, Error> {
    let (api, name, what) = locate(cluster, object);
    let uid = object["metadata"]["uid"].as_str().map(str::to_owned);
    let exactly = Preconditions { uid, resource_version: None };
    let params = DeleteParams { preconditions: Some(exactly), ..DeleteParams::background() };
    let answer = cluster.request(&format!("delete {what}"), async || api.delete(&name, &params).await).await;
    match answer {
        Ok(answer) => Ok(answer.either(|_| Deletion::UnderWay, |_| Deletion::Gone)),
        Err(error) if error.status().is_some_and(|status| status.is_not_found() || status.is_conflict()) => {
            Ok(Deletion::Gone)
        }
        Err(error) => Err(error),
    }
}

/// Waits until the object with this one's name and uid is gone.
pub(crate) async fn wait_until_gone(cluster: &Cluster, object: &Value) {
    let uid = object["metadata"]["uid"].as_str();
    wait_until(cluster, object, |found| found.is_none_or(|found| found.metadata.uid.as_deref() != uid)).await;
}

pub(crate) async fn wait_until(
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

pub(crate) async fn log(cluster: &Cluster, pod: &Value, params: &LogParams) -> Result<String, Error> {
    let namespace = pod["metadata"]["namespace"].as_str().unwrap_or_default();
    let name = pod["metadata"]["name"].as_str().unwrap_or_default();
    let pods: Api<k8s_openapi::api::core::v1::Pod> = Api::namespaced(cluster.client(), namespace);
    cluster.request("get pods/log", async || pods.logs(name, params).await).await
}

/// Whether the user has a permission in all namespaces.
pub(crate) async fn is_allowed(cluster: &Cluster, permission: &Permission) -> Result<bool, Error> {
    let (resource, subresource) = permission.resource.split_once('/').unwrap_or((&permission.resource, ""));
    let attributes = ResourceAttributes {
        verb: Some(permission.verb.to_owned()),
        group: Some(permission.group.clone()),
        resource: Some(resource.to_owned()),
        subresource: Some(subresource.to_owned()),
        ..ResourceAttributes::default()
    };
    let spec = SelfSubjectAccessReviewSpec { resource_attributes: Some(attributes), ..Default::default() };
    let review = SelfSubjectAccessReview { spec, ..SelfSubjectAccessReview::default() };
    let reviews: Api<SelfSubjectAccessReview> = Api::all(cluster.client());
    let params = PostParams::default();
    let asked = "create selfsubjectaccessreviews.authorization.k8s.io";
    let answer = cluster.request(asked, async || reviews.create(&params, &review).await).await?;
    Ok(answer.status.is_some_and(|status| status.allowed))
}

/// Whether an account has a permission in all namespaces. The resource belongs to the core group.
pub(crate) async fn is_account_allowed(
    cluster: &Cluster,
    account: &str,
    (verb, resource): (&str, &str),
) -> Result<bool, Error> {
    let (resource, subresource) = resource.split_once('/').unwrap_or((resource, ""));
    let attributes = ResourceAttributes {
        verb: Some(verb.to_owned()),
        resource: Some(resource.to_owned()),
        subresource: Some(subresource.to_owned()),
        ..ResourceAttributes::default()
    };
    let spec = SubjectAccessReviewSpec {
        user: Some(account.to_owned()),
        resource_attributes: Some(attributes),
        ..SubjectAccessReviewSpec::default()
    };
    let review = SubjectAccessReview { spec, ..SubjectAccessReview::default() };
    let reviews: Api<SubjectAccessReview> = Api::all(cluster.client());
    let params = PostParams::default();
    let asked = "create subjectaccessreviews.authorization.k8s.io";
    let answer = cluster.request(asked, async || reviews.create(&params, &review).await).await?;
    Ok(answer.status.is_some_and(|status| status.allowed))
}

pub(crate) async fn server_version(cluster: &Cluster) -> Result<String, Error> {
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
