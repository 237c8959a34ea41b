//! The API server without sockets: a request in, a response out.
//!
//! [`Api::answer`] parses the path (`request`), authenticates and authorizes the user (`access`), applies faults
//! (`lifecycle`), and calls one of the `handlers`: `read`, `watch`, `write`, `modify` for patches and updates,
//! `subresources` or `reviews`. Handlers decode bodies (`decode`), read and write the store through `registry`, and
//! respond in the requested format (`response`).

mod api;
pub(crate) mod decode;
mod handlers;
pub(crate) mod lifecycle;
pub(crate) mod patch;
pub(crate) mod request;
mod response;
pub(crate) mod selector;

use crate::access::{Attributes, User};
use crate::cluster::catalog::resource::SERVICE_ACCOUNTS;
use crate::cluster::catalog::{discovery, openapi};
use crate::cluster::store::State;
use crate::faults::WatchBudget;
use crate::http::handlers::{evacuation, modify, read, reviews, subresources, token_request, watch, write};
use crate::http::lifecycle::server_state::Subscription;
use crate::http::lifecycle::{fault_injection, watch_body};
use crate::http::request::attributes::RequestAttributes;
use crate::http::request::call::Call;
use crate::http::request::path::{self, Path, Query, ResourcePath};
use crate::http::request::{body, negotiate};
use crate::http::response::answer::{self, HandlerResult, not_allowed};
use crate::request_log::{Entry, RequestLog};

use std::sync::Arc;

use bytes::Bytes;
use http::request::Parts;
use http::{HeaderMap, Method, Request, Response};
use jiff::Timestamp;
use tokio::time::Instant;

pub use crate::http::api::{Api, Upstream};
pub(crate) use crate::http::lifecycle::server_state::Shutdown;
pub use crate::http::response::answer::{Body, ConnectionLost};

impl Api {
    /// Handles a request. If the response has a [`ConnectionLost`] extension, the connection must be closed instead.
    pub async fn answer(self: &Arc<Self>, request: Request<Bytes>) -> Response<Body> {
        let life = self.serving.life();
        if !self.serving.is_up() {
            return answer::lost();
        }
        let mut mine = life.clone();
        tokio::select! {
            biased;
            () = mine.killed() => answer::lost(),
            response = self.answer_alive(request, life) => response,
        }
    }

    async fn answer_alive(self: &Arc<Self>, request: Request<Bytes>, life: Subscription) -> Response<Body> {
        let (head, body) = request.into_parts();
        let query = Query::parse(head.uri.query().unwrap_or_default());
        let path = path::parse(head.uri.path());
        let mut under_way = InFlightRequest {
            log: &self.log,
            began: Instant::now(),
            entry: entry(&head, &path, &query, self.cluster.clock.now()),
        };
        let entry = &mut under_way.entry;
        let mut allowance = WatchBudget::default();
        let answer = match (&self.upstream, self.access.authenticate(&head.headers)) {
            (Some(upstream), _) => {
                let plan = self.faults.meet(entry);
                allowance = plan.allowance;
                let forward = async {
                    let answer = upstream.forward(Request::from_parts(head, body)).await;
                    Ok(answer.unwrap_or_else(|_: ConnectionLost| answer::lost()))
                };
                fault_injection::play(plan, Box::pin(forward)).await
            }
            (None, Err(refusal)) => Err(refusal),
            (None, Ok(user)) => {
                user.name.clone_into(&mut entry.user);
                let plan = self.faults.meet(entry);
                allowance = plan.allowance;
                let query = match plan.stale_by {
                    Some(revisions) => query.at_revision(self.cluster.store.readable_revision(revisions)),
                    None => query,
                };
                let carry_out = async {
                    match path {
                        Path::Resource(path) => {
                            let (method, headers) = (&head.method, &head.headers);
                            self.resource(ResourceRequest { path, query, method, headers, body, user }).await
                        }
                        other => self.page(&other, &head.method, &head.headers, head.uri.path(), &user),
                    }
                };
                fault_injection::play(plan, Box::pin(carry_out)).await
            }
        };
        let mut response = answer.unwrap_or_else(|refusal| answer::refusal(&refusal));
        if response.extensions().get::<ConnectionLost>().is_none() {
            entry.code = response.status().as_u16();
        }
        if entry.verb == "watch" && entry.code == 200 {
            let leash = self.faults.watch(entry, allowance);
            response = response.map(|body| watch_body::hold(body, leash, life));
        }
        response
    }

    fn page(
        &self,
        path: &Path,
        method: &Method,
        headers: &HeaderMap,
        raw: &str,
        user: &User,
    ) -> HandlerResult {
        let verb = method.as_str().to_lowercase();
        self.access.authorize(user, Attributes::Path { verb: &verb, path: raw })?;
        let accept = Some(text(headers, "accept"));
        let aggregated = negotiate::wants_aggregated(accept);
        let protobuf = negotiate::openapi_in_protobuf(accept);
        let catalog = &self.cluster.catalog;
        let found = match path {
            Path::CoreVersions if aggregated => return Ok(aggregate(&discovery::aggregated_core(catalog))),
            Path::Groups if aggregated => return Ok(aggregate(&discovery::aggregated_groups(catalog))),
            Path::CoreVersions => Some(discovery::core(&self.address())),
            Path::Groups => Some(discovery::groups(catalog)),
            Path::Group(group) => discovery::group(catalog, group),
            Path::GroupVersion { group, version } => discovery::version(catalog, group, version),
            Path::Resource(_) => None,
            Path::Nowhere => return Err(subresources::not_served()),
            Path::Other(path) => match path.as_str() {
                "/healthz" | "/livez" | "/readyz" => return Ok(answer::text(200, "ok")),
                "/version" | "/version/" => Some(discovery::server_version()),
                path => match (path.strip_suffix('/').unwrap_or(path), protobuf) {
                    ("/openapi/v2", Some(content_type)) => {
                        return Ok(answer::bytes_of(200, content_type, openapi::in_protobuf()));
                    }
                    (path, _) => openapi::document(catalog, path),
                },
            },
        };
        Ok(found.map_or_else(answer::page_not_found, |value| answer::json(200, &value)))
    }

    async fn resource(self: &Arc<Self>, asked: ResourceRequest<'_>) -> HandlerResult {
        let ResourceRequest { path, query, method, headers, body, user } = asked;
        let right = RequestAttributes::of(&path, &query, method);
        self.access.authorize(&user, right.attributes(&path))?;
        body::check(method, &body)?;
        if let Some(review) = reviews::Review::at(&path) {
            return review.answer(self, method, text(headers, "content-type"), &path, &body, &user);
        }
        if evacuation::is_meant(&path) {
            self.access.authorize(&user, right.whole(&path))?;
            return evacuation::cancel(&self.cluster, method, &path, &body);
        }
        let Some(mut call) = Call::new(&self.cluster.catalog, path, query, headers, body, user)? else {
            return Ok(answer::page_not_found());
        };
        if self.enforces_owner_references() {
            call.may_set_owners =
                self.access.decide(&call.user, right.to_delete().attributes(&call.path)).allowed;
        }
        if *method == Method::PATCH && call.content_type == "application/apply-patch+yaml" {
            let there = |state: &State| state.get(call.stored.storage(), &call.key()).is_some();
            if !self.cluster.store.read(there) {
                self.access.authorize(&call.user, right.to_create().attributes(&call.path))?;
            }
        }
        self.dispatch(method, call).await
    }

    async fn dispatch(self: &Arc<Self>, method: &Method, call: Call) -> HandlerResult {
        let cluster = &self.cluster;
        let known = match call.subresource() {
            "" => true,
            "status" => call.resource.status,
            "token" if call.stored.collection == SERVICE_ACCOUNTS => {
                return token_request::create(self, method, &call);
            }
            _ => return subresources::answer(cluster, method, &call).await,
        };
        if !known {
            return Err(subresources::not_served());
        }
        // Objects of a namespaced resource are read and written in their namespace.
        let placed = call.path.namespace.is_some() || !call.resource.namespaced;
        match (method.as_str(), &call.path.name) {
            ("GET" | "HEAD", None) if call.query.flag("watch") => watch::answer(self, &call),
            ("GET" | "HEAD", None) => read::list(cluster, &call),
            ("GET" | "HEAD", Some(_)) if placed => read::get(cluster, &call),
            ("POST", None) if placed && call.subresource().is_empty() => write::create(cluster, &call).await,
            ("PUT", Some(_)) if placed => modify::update(cluster, &call).await,
            ("PATCH", Some(_)) if placed => modify::patch(cluster, &call).await,
            ("DELETE", Some(_)) if placed && call.subresource().is_empty() => {
                write::delete(cluster, &call).await
            }
            ("DELETE", None) if placed => write::delete_many(cluster, &call).await,
            _ => Err(not_allowed()),
        }
    }
}

struct ResourceRequest<'a> {
    path: ResourcePath,
    query: Query,
    method: &'a Method,
    headers: &'a HeaderMap,
    body: Bytes,
    user: User,
}

/// A request in flight. It is logged when it ends, also if the client has gone or the server was killed.
struct InFlightRequest<'a> {
    log: &'a RequestLog,
    began: Instant,
    entry: Entry,
}

impl Drop for InFlightRequest<'_> {
    fn drop(&mut self) {
        let mut entry = std::mem::take(&mut self.entry);
        entry.took = self.began.elapsed();
        self.log.record(entry);
    }
}

/// The log entry of a request, before authentication.
fn entry(head: &Parts, path: &Path, query: &Query, at: Timestamp) -> Entry {
    let accept = text(&head.headers, "accept");
    let mut entry = Entry {
        at,
        user_agent: text(&head.headers, "user-agent").to_owned(),
        verb: "get",
        resource: head.uri.path().to_owned(),
        field_selector: query.get("fieldSelector").unwrap_or_default().to_owned(),
        label_selector: query.get("labelSelector").unwrap_or_default().to_owned(),
        metadata_only: negotiate::form(Some(accept)) == Ok(negotiate::ResponseFormat::Metadata),
        ..Entry::default()
    };
    if let Path::Resource(path) = path {
        entry.verb = RequestAttributes::of(path, query, &head.method).verb;
        path.group.clone_into(&mut entry.group);
        path.plural.clone_into(&mut entry.resource);
        entry.subresource = path.subresource.clone().unwrap_or_default();
        entry.namespace = path.namespace.clone().unwrap_or_default();
        entry.name = path.name.clone().unwrap_or_default();
    }
    entry
}

fn aggregate(value: &serde_json::Value) -> Response<Body> {
    let content_type = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";
    answer::bytes_of(200, content_type, serde_json::to_vec(value).unwrap_or_default())
}

fn text<'a>(headers: &'a HeaderMap, name: &str) -> &'a str {
    headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default()
}
