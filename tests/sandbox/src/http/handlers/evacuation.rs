//! `PUT virtualmachineinstances/NAME/evacuate/cancel`: KubeVirt's subresource that cancels an evacuation.

use bytes::Bytes;
use http::Method;
use serde_json::Value;

use crate::cluster::Cluster;
use crate::cluster::catalog::resource::NODES;
use crate::cluster::registry::{self, Effect, Part};
use crate::cluster::store::Key;
use crate::http::request::path::ResourcePath;
use crate::http::response::answer::{self, HandlerResult, not_allowed};
use crate::kubevirt::{CANCEL, SUBRESOURCES, VMIS, drain_taint};
use crate::model::status_error::StatusError;

/// Whether the path is this subresource.
pub(crate) fn is_meant(path: &ResourcePath) -> bool {
    path.group == SUBRESOURCES
        && path.subresource.as_deref().is_some_and(|below| format!("{}/{below}", path.plural) == CANCEL)
}

/// Removes the evacuation mark of an instance, if it is the one in the body. The response has no body.
///
/// # Errors
/// 404 for an unknown instance, 400 for an invalid body or while the node has the taint of a drain, 500 for another mark.
pub(crate) fn cancel(cluster: &Cluster, method: &Method, path: &ResourcePath, body: &Bytes) -> HandlerResult {
    if !cluster.catalog.aggregated.offers(&path.group, &path.version, CANCEL) {
        return Ok(answer::page_not_found());
    }
    if method != Method::PUT {
        return Err(not_allowed());
    }
    let name = path.name.as_deref().unwrap_or_default();
    let missing = || StatusError::not_found(&VMIS.group, "virtualmachineinstance", name);
    let resource = cluster.catalog.of(&VMIS).ok_or_else(missing)?;
    let key = Key::new(path.namespace.as_deref().unwrap_or_default(), name);
    cluster.store.write(|state| {
        let mut next = Value::clone(&*state.get(&VMIS, &key).ok_or_else(missing)?);
        let status = &next["status"];
        let node = status["evacuationNodeName"].as_str().or(status["nodeName"].as_str()).unwrap_or_default();
        let found = state.get(&NODES, &Key::cluster(node));
        let found = found.ok_or_else(|| internal(&format!("nodes {node:?} not found")))?;
        if let Some(taint) = drain_taint(state, &found) {
            return Err(StatusError::bad_request(format!("Node {node:?} has NodeDrainTaintKey {taint:?}")));
        }
        let Some(mark) = next["status"]["evacuationNodeName"].as_str() else {
            return Ok(());
        };
        let options: Value = serde_json::from_slice(body).map_err(|error| {
            StatusError::bad_request(format!("Can not unmarshal Request body to struct, error: {error}"))
        })?;
        if options["evacuationNodeName"] != mark {
            return Err(internal("the server rejected our request due to an error in our request"));
        }
        if let Some(status) = next["status"].as_object_mut() {
            status.remove("evacuationNodeName");
        }
        registry::update(state, &resource, &next, Part::Main, Effect::Real).map(|_| ())
    })?;
    Ok(answer::text(200, ""))
}

fn internal(message: &str) -> StatusError {
    StatusError::new(500, "InternalError", format!("Internal error occurred: {message}"))
}
