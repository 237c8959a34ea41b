//! Binding a pod to a node.

use jiff::Timestamp;
use serde_json::{Value, json};

use crate::cluster::catalog::resource::PODS;
use crate::cluster::store::{Key, Object, State};
use crate::model::condition;
use crate::model::pod;
use crate::model::status_error::StatusError;

/// Binds a pod to a node. The generation does not change.
///
/// # Errors
/// 404 for an unknown pod, 409 for one that is bound or terminating.
pub(crate) fn bind(
    state: &mut State,
    namespace: &str,
    name: &str,
    node: &str,
    now: Timestamp,
) -> Result<Object, StatusError> {
    let pod = state
        .get(&PODS, &Key::new(namespace, name))
        .ok_or_else(|| StatusError::not_found("", "pods", name))?;
    let conflict = |because: &str| Err(StatusError::conflict("", "pods/binding", name, because));
    if pod::is_terminating(&pod) {
        return conflict(&format!("pod {name} is being deleted, cannot be assigned to a host"));
    }
    if let Some(bound) = pod::node(&pod) {
        return conflict(&format!("pod {name} is already assigned to node {bound:?}"));
    }
    let mut next = Value::clone(&pod);
    next["spec"]["nodeName"] = json!(node);
    let scheduled = json!({"type": "PodScheduled", "status": "True", "lastProbeTime": null});
    condition::set(&mut next["status"], scheduled, now);
    Ok(state.put(&PODS, next))
}
