//! What the server would say to objects that are about to be applied, asked before anything has changed.
//!
//! It applies each of them for show. It cannot do that in a namespace that is only about to be made; so of what will be in
//! there it is asked whether the caller may create it.

use std::collections::BTreeSet;

use futures::stream::{self, StreamExt, TryStreamExt};
use kube::core::Status;
use serde_json::Value;

use crate::client::cluster::{AT_ONCE, Cluster};
use crate::client::objects::{self, Manner, Right};
use crate::client::reconciler_settings;
use crate::error::Error;
use crate::error::setup_error::SetupError;
use crate::format;

/// Has the server say of each object whether it would be applied, and returns the rights that are missing for those of
/// which it cannot say that: what is in the namespaces `to_come`.
///
/// # Errors
///
/// When one would be refused, or others have set fields differently.
pub(crate) async fn rehearse(
    objects: &[&Value],
    to_come: &[&str],
    force: bool,
    cluster: &Cluster,
) -> Result<Vec<Right>, Error> {
    let has_no_place = |object: &&Value| {
        object["metadata"]["namespace"].as_str().is_some_and(|name| to_come.contains(&name))
    };
    let (later, now): (Vec<&Value>, Vec<&Value>) = objects.iter().copied().partition(has_no_place);
    let manner = Manner { dry_run: true, force };
    let answers: Vec<(&Value, Result<Value, Error>)> = stream::iter(now)
        .map(async |object| (object, objects::apply(cluster, object, manner).await))
        .buffered(AT_ONCE)
        .collect()
        .await;
    let mut conflicts = Vec::new();
    for (object, answer) in answers {
        let Err(error) = answer else { continue };
        match error.status() {
            Some(_) if only_command_line(&error) => {}
            Some(status) if status.is_conflict() => conflicts.extend(described(object, status)),
            Some(status) if says_nothing(status) => {}
            _ => return Err(error),
        }
    }
    if conflicts.is_empty() {
        lacking(&later, cluster).await
    } else {
        Err(SetupError::Conflicts(conflicts).into())
    }
}

/// Whether a refusal is of the rehearsal, and not of what is rehearsed.
fn says_nothing(status: &Status) -> bool {
    // What binds a role of which the caller has every right is refused until the role is there, which it will be.
    status.is_not_found()
        // A webhook that has effects of its own is not asked, which is nobody's answer.
        || status.message.contains("does not support dry run")
}

/// Whether others have set nothing differently but the command line of nm-reconciler. Of that nothing is applied which is not
/// there already, but a flag for which somebody has asked: so it is taken over.
pub(crate) fn only_command_line(error: &Error) -> bool {
    let Some(status) = error.status().filter(|status| status.is_conflict()) else { return false };
    let mut causes = status.details.iter().flat_map(|details| &details.causes).peekable();
    causes.peek().is_some() && causes.all(|cause| reconciler_settings::is_command_line(&cause.field))
}

/// The rights that are missing to make these objects.
async fn lacking(objects: &[&Value], cluster: &Cluster) -> Result<Vec<Right>, Error> {
    let rights = |object: &&Value| ["create", "patch"].map(|verb| objects::right(verb, object));
    let needed: BTreeSet<Right> = objects.iter().flat_map(rights).collect();
    let asked = stream::iter(needed).map(async |right| {
        let may = objects::may(cluster, &right).await?;
        Ok::<_, Error>((!may).then_some(right))
    });
    let answers: Vec<Option<Right>> = asked.buffered(AT_ONCE).try_collect().await?;
    Ok(answers.into_iter().flatten().collect())
}

/// A few words for each field that somebody else has set.
fn described(object: &Value, status: &Status) -> Vec<String> {
    let name = format::name(object);
    let causes = status.details.iter().flat_map(|details| &details.causes);
    let lines: Vec<String> =
        causes.map(|cause| format!("{name}: {} {}", cause.field, cause.message)).collect();
    if lines.is_empty() { vec![format!("{name}: {}", status.message)] } else { lines }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::client::cluster::tests::{cluster, failure};

    fn object(kind: &str, api_version: &str, namespace: Option<&str>) -> Value {
        json!({"apiVersion": api_version, "kind": kind, "metadata": {"name": "x", "namespace": namespace}})
    }

    #[test]
    fn fields_of_others_are_named_with_whose_they_are() {
        let status: Status = serde_json::from_value(json!({"code": 409, "message": "Apply failed", "details": {"causes":
            [{"reason": "FieldManagerConflict", "message": "conflict with \"helm\" using apps/v1", "field": ".spec.replicas"}]}}))
        .unwrap();
        assert_eq!(
            described(&object("Deployment", "apps/v1", None), &status),
            ["deployment.apps/x: .spec.replicas conflict with \"helm\" using apps/v1"]
        );
    }

    #[tokio::test]
    async fn what_the_server_cannot_rehearse_it_is_asked_for_rights_on() {
        let (server, log) = cluster(|method, path| match (method, path.rsplit('/').nth(1)) {
            ("POST", _) => (201, json!({"status": {"allowed": false}})),
            (_, Some("clusterrolebindings")) => failure(404, "NotFound", "x"),
            _ => (200, object("Namespace", "v1", None)),
        });
        let binding = object("ClusterRoleBinding", "rbac.authorization.k8s.io/v1", None);
        let (here, there) =
            (object("Service", "v1", Some("here")), object("Deployment", "apps/v1", Some("there")));
        let missing = rehearse(&[&binding, &here, &there], &["there"], false, &server).await.unwrap();
        let missing: Vec<String> =
            missing.iter().map(|right| format!("{} {}", right.verb, right.object())).collect();
        assert_eq!(missing, ["create deployments.apps", "patch deployments.apps"]);
        let log = log.lock().unwrap();
        assert!(log.iter().any(|line| line.contains("/services/x")), "{log:?}");
        assert!(!log.iter().any(|line| line.contains("/deployments/")), "{log:?}");
    }

    #[tokio::test]
    async fn a_refusal_of_one_object_is_the_answer_but_not_one_to_rehearse() {
        for (reason, message, refused) in [
            ("Forbidden", "no", true),
            ("BadRequest", "admission webhook \"w\" does not support dry run", false),
        ] {
            let (server, _) =
                cluster(move |_, _| failure(if reason == "Forbidden" { 403 } else { 400 }, reason, message));
            let namespace = object("Namespace", "v1", None);
            assert_eq!(rehearse(&[&namespace], &[], true, &server).await.is_err(), refused, "{message}");
        }
    }
}
