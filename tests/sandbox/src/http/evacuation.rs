//! `PUT virtualmachineinstances/NAME/evacuate/cancel`: KubeVirt's own subresource, by which an evacuation is called off.

use http::Method;
use serde_json::{Value, json};

use super::answer::{self, Answer, not_allowed};
use super::path::ResourcePath;
use crate::cluster::Cluster;
use crate::kubevirt::VMIS;
use crate::refusal::Refusal;
use crate::registry::{self, Effect, Part};
use crate::store::Key;

/// Whether a path leads here.
pub(super) fn is_meant(path: &ResourcePath) -> bool {
    path.group == "subresources.kubevirt.io"
        && path.plural == VMIS.plural
        && path.subresource.as_deref() == Some("evacuate/cancel")
}

/// Takes the mark off an instance whose node was to be left.
///
/// # Errors
/// 404 for an instance that is not there, or without KubeVirt.
pub(super) fn cancel(cluster: &Cluster, method: &Method, path: &ResourcePath) -> Answer {
    if method != Method::PUT {
        return Err(not_allowed());
    }
    let name = path.name.as_deref().unwrap_or_default();
    let Some(resource) = cluster.catalog.of(&VMIS) else {
        return Ok(answer::page_not_found());
    };
    let key = Key::new(path.namespace.as_deref().unwrap_or_default(), name);
    cluster.store.write(|state| {
        let missing = || Refusal::not_found(&VMIS.group, "virtualmachineinstance", name);
        let mut next = Value::clone(&*state.get(&VMIS, &key).ok_or_else(missing)?);
        if let Some(status) = next["status"].as_object_mut() {
            status.remove("evacuationNodeName");
        }
        registry::update(state, &resource, &next, Part::Status, Effect::Real)
    })?;
    let done =
        json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 200});
    Ok(answer::json(200, &done))
}
