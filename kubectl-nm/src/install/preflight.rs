//! Checks before an installation changes anything.
//!
//! The server applies each object in a dry run. That does not work in a namespace that does not exist yet, so for objects in
//! it, the user's permissions are checked instead.

use std::collections::BTreeSet;

use futures::stream::{self, StreamExt, TryStreamExt};
use kube::api::PatchParams;
use kube::core::Status;
use nm_core::client::cluster::{Cluster, MAX_CONCURRENT_REQUESTS};
use nm_core::client::objects::{self, Permission};
use nm_core::client::reconciler_deployment::FIELD_MANAGER;
use nm_core::error::Error;
use nm_core::format;
use nm_shared::cluster::admission_webhook::is_dry_run_unsupported;
use serde_json::Value;

use crate::install::error::SetupError;

/// Applies each object in a dry run, and checks the user's permissions for those in the namespaces `new_namespaces`.
pub(crate) async fn check(
    objects: &[&Value],
    new_namespaces: &[&str],
    force: bool,
    cluster: &Cluster,
) -> Result<(), Error> {
    let is_in_new_namespace = |object: &&Value| {
        object["metadata"]["namespace"].as_str().is_some_and(|name| new_namespaces.contains(&name))
    };
    let (later, now): (Vec<&Value>, Vec<&Value>) = objects.iter().copied().partition(is_in_new_namespace);
    let params = PatchParams { dry_run: true, force, ..PatchParams::apply(FIELD_MANAGER) };
    let answers: Vec<(&Value, Result<Value, Error>)> = stream::iter(now)
        .map(async |object| (object, objects::apply(cluster, object, &params).await))
        .buffered(MAX_CONCURRENT_REQUESTS)
        .collect()
        .await;
    let mut conflicts = Vec::new();
    for (object, answer) in answers {
        let Err(error) = answer else { continue };
        match error.status() {
            Some(status) if status.is_conflict() => conflicts.extend(conflicts_of(object, status)),
            Some(status) if is_caused_by_dry_run(status) => {}
            _ => return Err(error),
        }
    }
    if !conflicts.is_empty() {
        return Err(SetupError::Conflicts(conflicts).into());
    }
    let missing = missing_permissions(&later, cluster).await?;
    if missing.is_empty() { Ok(()) } else { Err(SetupError::MissingPermissions(missing).into()) }
}

fn is_caused_by_dry_run(status: &Status) -> bool {
    // A binding can be refused until its role exists.
    status.is_not_found() || is_dry_run_unsupported(&status.message)
}

/// `create namespaces`, `patch roles.rbac.authorization.k8s.io`.
async fn missing_permissions(objects: &[&Value], cluster: &Cluster) -> Result<Vec<String>, Error> {
    let permissions = |object: &&Value| ["create", "patch"].map(|verb| objects::permission(verb, object));
    let needed: BTreeSet<Permission> = objects.iter().flat_map(permissions).collect();
    let checks = stream::iter(needed).map(async |permission| {
        let is_allowed = objects::is_allowed(cluster, None, &permission).await?;
        let name = || format!("{} {}", permission.verb, permission.qualified_resource());
        Ok::<_, Error>((!is_allowed).then(name))
    });
    let missing: Vec<Option<String>> = checks.buffered(MAX_CONCURRENT_REQUESTS).try_collect().await?;
    Ok(missing.into_iter().flatten().collect())
}

fn conflicts_of(object: &Value, status: &Status) -> Vec<String> {
    let name = format::name(object);
    let causes = status.details.iter().flat_map(|details| &details.causes);
    let lines: Vec<String> =
        causes.map(|cause| format!("{name}: {} {}", cause.field, cause.message)).collect();
    if lines.is_empty() { vec![format!("{name}: {}", status.message)] } else { lines }
}

#[cfg(test)]
mod tests {
    use nm_core::testing::fake_server::{cluster, failure};
    use serde_json::json;

    use super::*;

    fn object(kind: &str, api_version: &str, namespace: Option<&str>) -> Value {
        json!({"apiVersion": api_version, "kind": kind, "metadata": {"name": "x", "namespace": namespace}})
    }

    #[test]
    fn conflicting_fields_are_named_with_their_managers() {
        let status: Status = serde_json::from_value(json!({"code": 409, "message": "Apply failed", "details": {"causes":
            [{"reason": "FieldManagerConflict", "message": "conflict with \"helm\" using apps/v1", "field": ".spec.replicas"}]}}))
        .unwrap();
        assert_eq!(
            conflicts_of(&object("Deployment", "apps/v1", None), &status),
            ["deployment.apps/x: .spec.replicas conflict with \"helm\" using apps/v1"]
        );
    }

    #[tokio::test]
    async fn permissions_are_checked_where_a_dry_run_is_impossible() {
        let (server, log) = cluster(|method, path| match (method, path.rsplit('/').nth(1)) {
            ("POST", _) => (201, json!({"status": {"allowed": false}})),
            (_, Some("clusterrolebindings")) => failure(404, "NotFound", "x"),
            _ => (200, object("Namespace", "v1", None)),
        });
        let binding = object("ClusterRoleBinding", "rbac.authorization.k8s.io/v1", None);
        let (here, there) =
            (object("Service", "v1", Some("here")), object("Deployment", "apps/v1", Some("there")));
        let refused = check(&[&binding, &here, &there], &["there"], false, &server).await.unwrap_err();
        let missing = "you lack permissions: create deployments.apps, patch deployments.apps";
        assert_eq!(refused.to_string(), missing);
        let log = log.lock().unwrap();
        assert!(log.iter().any(|line| line.contains("/services/x")), "{log:?}");
        assert!(!log.iter().any(|line| line.contains("/deployments/")), "{log:?}");
    }

    #[tokio::test]
    async fn a_refusal_is_an_error_unless_the_dry_run_caused_it() {
        for (reason, message, refused) in [
            ("Forbidden", "no", true),
            ("BadRequest", "admission webhook \"w\" does not support dry run", false),
        ] {
            let (server, _) =
                cluster(move |_, _| failure(if reason == "Forbidden" { 403 } else { 400 }, reason, message));
            let namespace = object("Namespace", "v1", None);
            assert_eq!(check(&[&namespace], &[], true, &server).await.is_err(), refused, "{message}");
        }
    }
}
