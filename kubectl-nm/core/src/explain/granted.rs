//! Permissions that nm-reconciler lacked when it last tried, and has by now: nobody has to grant them again.

use futures::stream::{self, StreamExt};
use nm_shared::{BlockedPod, ForbiddenAccess, Grant, NodeMaintenance};

use crate::client::cluster::Cluster;
use crate::client::objects::{Permission, is_allowed};
use crate::explain::bounded_requests::{MAX_CONCURRENT, within_timeout};
use crate::explain::cause::{Cause, Outlook};
use crate::explain::cluster_facts::ClusterFacts;
use crate::maintenance::node;
use crate::terminal::command_context::{nm_command, shell_quoted};

/// Those of the denied accesses that are permitted by now. Without access to reviews, none is known to be.
pub(super) async fn read(cluster: &Cluster, denied: &[ForbiddenAccess]) -> Vec<ForbiddenAccess> {
    let check = async |access: &ForbiddenAccess| {
        let permission = permission(access)?;
        let review = is_allowed(cluster, Some(&access.user), &permission);
        let is_granted = within_timeout("create subjectaccessreviews.authorization.k8s.io", review).await;
        is_granted.unwrap_or(false).then(|| access.clone())
    };
    stream::iter(denied)
        .map(check)
        .buffered(MAX_CONCURRENT)
        .filter_map(async |granted| granted)
        .collect()
        .await
}

/// The permission that an access needs; none if its API group is not known.
fn permission(access: &ForbiddenAccess) -> Option<Permission> {
    let permissions = Grant::of(access)?.permissions();
    let wanted =
        |(verb, _, resource): &&(&str, &str, &str)| *verb == access.verb && *resource == access.resource;
    permissions.iter().find(wanted).map(|&permission| permission.into())
}

/// Adds to the cause of pods that a missing permission blocks that nm-reconciler has it by now.
pub(super) fn report(
    cause: &mut Cause,
    pods: &[&BlockedPod],
    maintenance: &NodeMaintenance,
    facts: &ClusterFacts,
    kubectl: &str,
) {
    let is_granted =
        |pod: &&BlockedPod| pod.facts.forbidden.as_ref().is_some_and(|access| facts.granted.contains(access));
    if !pods.iter().all(is_granted) {
        return;
    }
    cause.what.push(String::from("By now, nm-reconciler has this permission."));
    cause.outlook = Outlook::Passes;
    cause.clear_remedy();
    cause.advice = String::from("Wait: nm-reconciler tries again within a minute");
    cause.commands = vec![nm_command(kubectl, &format!("status {}", shell_quoted(node(maintenance))))];
}
