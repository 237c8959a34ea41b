//! Changing the drain of an existing maintenance, for the dashboard.

use kube::ResourceExt;
use nm_shared::NodeMaintenance;
use serde_json::{Map, Value, json};

use crate::client::cluster::Cluster;
use crate::error::Error;
use crate::maintenance::uid;

/// Applies a merge patch of `spec.drain`, unless another object has the name by now. Where the definition lacks one of the
/// fields, the API server would drop it silently: then nothing is changed.
///
/// # Errors
///
/// If the definition lacks a field ([`Error::DrainPruned`]), or if a request fails.
pub async fn patch_drain(cluster: &Cluster, target: &NodeMaintenance, patch: &Value) -> Result<(), Error> {
    let mut patch = patch.clone();
    patch["metadata"] = json!({"uid": uid(target)});
    check_kept(&cluster.patch(&target.name_any(), &patch, true).await?, &patch)?;
    check_kept(&cluster.patch(&target.name_any(), &patch, false).await?, &patch)
}

/// Checks that the API server has kept the fields of `spec.drain` that a patch sets.
fn check_kept(answer: &NodeMaintenance, patch: &Value) -> Result<(), Error> {
    let drain = json!(answer.spec.drain.clone().unwrap_or_default());
    let fields = patch["spec"]["drain"].as_object().into_iter().flatten();
    let pruned: Vec<String> = fields
        .filter(|(field, wanted)| !has(&drain[field.as_str()], wanted))
        .map(|(field, _)| format!("spec.drain.{field}"))
        .collect();
    if pruned.is_empty() { Ok(()) } else { Err(Error::DrainPruned(pruned)) }
}

/// Whether a value has what a merge patch sets in it.
fn has(value: &Value, patch: &Value) -> bool {
    match patch {
        Value::Object(fields) => {
            let empty = Map::new();
            let known = value.as_object().unwrap_or(&empty);
            fields.iter().all(|(key, wanted)| has(known.get(key).unwrap_or(&Value::Null), wanted))
        }
        other => value == other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::fake_server::{cluster, failure};
    use crate::testing::objects::requested;

    fn drain(drain: &Value) -> Value {
        let mut object = json!(requested("n1"));
        object["spec"]["drain"] = drain.clone();
        object
    }

    #[tokio::test]
    async fn a_change_is_sent_after_a_dry_run_has_shown_that_it_is_kept() {
        let wanted = json!({"timeoutSeconds": 60, "podSelector": {"matchLabels": {"a": "b", "c": null}}});
        let kept = drain(&json!({"timeoutSeconds": 60, "podSelector": {"matchLabels": {"a": "b"}}}));
        let (keeping, requests) = cluster(move |_, _| (200, kept.clone()));
        patch_drain(&keeping, &requested("n1"), &json!({"spec": {"drain": wanted}})).await.unwrap();
        assert_eq!(requests.lock().unwrap().len(), 2);
    }

    #[tokio::test]
    async fn nothing_is_changed_where_the_definition_would_drop_a_field() {
        let patch = json!({"spec": {"drain": {"timeoutSeconds": 60, "podSelector": null}}});
        let pruned = drain(&json!({"force": true}));
        let (pruning, requests) = cluster(move |_, _| (200, pruned.clone()));
        let error = patch_drain(&pruning, &requested("n1"), &patch).await.unwrap_err();
        assert!(error.to_string().ends_with("has no spec.drain.timeoutSeconds"), "{error}");
        assert_eq!(requests.lock().unwrap().len(), 1, "only the dry run");
    }

    #[tokio::test]
    async fn a_refusal_is_an_error() {
        let (refusing, _) = cluster(|_, _| failure(403, "Forbidden", "n1"));
        let patch = json!({"spec": {"drain": {"timeoutSeconds": 60}}});
        assert!(patch_drain(&refusing, &requested("n1"), &patch).await.unwrap_err().is_forbidden());
    }
}
