//! What `kubectl nm stop` warns of: what a node leaves with its maintenance, and what continues after it.

use std::collections::BTreeSet;
use std::sync::Arc;

use jiff::Timestamp;
use nm_core::maintenance::ending::is_of_medik8s_operator;
use nm_core::maintenance::{hooks_removed, node, status};
use nm_core::terminal::command_context::shell_quoted;
use nm_core::terminal::text::{Line, counted, first_names};
use nm_roll::stopped_rolls::StoppedRolls;
use nm_shared::api::surge::SurgeObstacle;
use nm_shared::{BlockReason, Grant, GroupedMaintenance, Hook, MigratingPod, NodeMaintenance};

/// What is said of a maintenance that is stopped. `kubectl` is kubectl with the connection flags.
pub(super) fn of(object: &NodeMaintenance, kubectl: &str) -> Vec<Line> {
    let mut lines = machines(object);
    lines.extend(rollouts(object, kubectl));
    lines.extend(unready(object));
    lines.extend(kept_by_hooks(object));
    lines
}

/// What is said before these maintenances are stopped: what it means for their rolls.
pub(super) fn of_rolls(
    all: &[GroupedMaintenance],
    stopped: &[GroupedMaintenance],
    kubectl: &str,
    now: Timestamp,
) -> Vec<Line> {
    let all = all.iter().map(|object| Arc::new(object.maintenance.clone()));
    let rolls = StoppedRolls::of(all, stopped.iter().map(|object| &object.maintenance), now);
    rolls.warnings(kubectl).into_iter().map(|text| Line::new(format!("warning: {text}"))).collect()
}

/// The rollouts that the maintenance has started, which its end does not end, and the command that reverts one.
fn rollouts(object: &NodeMaintenance, kubectl: &str) -> Vec<Line> {
    let status = status(object);
    let surging = status.surging_pods.iter().flatten().filter(|pod| pod.restarted);
    let mut started: BTreeSet<(&str, &str)> =
        surging.map(|pod| (pod.namespace.as_str(), pod.deployment.as_str())).collect();
    // A rollout that does not proceed blocks its pods, and may proceed later.
    let restarted = || status.restarted_replica_sets.iter().flatten();
    started.extend(status.blocked_pods.iter().filter_map(|pod| {
        let surge = pod.facts.surge.as_ref()?;
        let is_stuck = matches!(surge.reason, SurgeObstacle::Stalled | SurgeObstacle::CreationFailed);
        let is_of = |set: &str| pod.name.strip_prefix(set).is_some_and(|rest| rest.starts_with('-'));
        let is_restarted = restarted().any(|set| set.namespace == pod.namespace && is_of(&set.name));
        (is_stuck && is_restarted).then_some((pod.namespace.as_str(), surge.deployment.as_deref()?))
    }));
    let Some((namespace, deployment)) = started.first() else { return Vec::new() };
    let names: Vec<String> =
        started.iter().map(|(namespace, deployment)| format!("{namespace}/{deployment}")).collect();
    let (continues, reverts) = match names.len() {
        1 => ("continues", String::from("it")),
        _ => ("continue", format!("the rollout of {}", names[0])),
    };
    let count = counted(names.len(), "rollout");
    let undo = format!(
        "{kubectl} -n {} rollout undo deployment/{}",
        shell_quoted(namespace),
        shell_quoted(deployment)
    );
    [
        format!(
            "warning: {count} that the maintenance of node/{} has started {continues}: {}",
            node(object),
            first_names(&names)
        ),
        format!("hint: unless the Deployment has changed since, `{undo}` reverts {reverts}"),
    ]
    .map(Line::new)
    .into()
}

/// The hooks that keep the node cordoned.
fn kept_by_hooks(object: &NodeMaintenance) -> Option<Line> {
    let is_kept = status(object).has_begun() && !is_of_medik8s_operator(object);
    let removed = hooks_removed(&Hook::before_return(&object.metadata)).filter(|_| is_kept)?;
    Some(Line::new(format!("node/{}: the node stays cordoned until {removed}", node(object))))
}

/// The pods that are terminating on a node that is not Ready. The end of the maintenance does not end them.
fn unready(object: &NodeMaintenance) -> Option<Line> {
    let pods = status(object).blocked_pods.iter().filter(|pod| pod.reason == BlockReason::NodeNotReady);
    let pods: Vec<String> = pods.map(|pod| pod.reference().to_string()).collect();
    let (verb, its) = if pods.len() == 1 { ("is", "it does") } else { ("are", "they do") };
    (!pods.is_empty()).then(|| {
        Line::new(format!(
            "warning: node/{} is not Ready, and {} of its pods {verb} terminating: {its} not terminate until the \
             kubelet reports again, or the node has the taint node.kubernetes.io/out-of-service: {}",
            node(object),
            pods.len(),
            first_names(&pods)
        ))
    })
}

/// The virtual machines that leave although the maintenance ends, and how others could be kept.
pub(super) fn machines(object: &NodeMaintenance) -> Vec<Line> {
    let node = node(object);
    let migrating = || status(object).migrating_pods.iter().flatten();
    let mut leaving: BTreeSet<String> = migrating()
        .filter(|pod| !pod.stays_on_stop)
        .map(|pod| {
            let target = pod.target.as_ref().map(|target| format!(" to {target}"));
            format!("{}/{}{}", pod.namespace, pod.machine, target.unwrap_or_default())
        })
        .collect();
    // What nm-reconciler may not read, it cannot keep either.
    let unseen = status(object).blocked_pods.iter().filter(|pod| {
        let is_of_machine =
            matches!(pod.reason, BlockReason::MigrationNotStarted | BlockReason::MigrationFailed);
        is_of_machine && pod.facts.migration.is_none()
    });
    let unseen: Vec<String> = unseen.map(|pod| format!("{}/{}", pod.namespace, pod.name)).collect();
    let has_unseen = !unseen.is_empty();
    leaving.extend(unseen);
    if leaving.is_empty() {
        return Vec::new();
    }
    let (count, names) = (counted(leaving.len(), "virtual machine"), leaving.into_iter().collect::<Vec<_>>());
    let leave = if names.len() == 1 { "leaves" } else { "leave" };
    let warning = format!("warning: {count} still {leave} node/{node}: {}", first_names(&names));
    let has_begun = |pod: &MigratingPod| pod.migration.is_some() || pod.target.is_some();
    let is_keepable = |pod: &MigratingPod| !pod.stays_on_stop && !has_begun(pod);
    let hint = (has_unseen || migrating().any(is_keepable)).then(|| {
        format!(
            "hint: after `kubectl nm install --grant {}`, virtual machines whose migration has not \
             started stay on the node",
            Grant::VirtualMachines
        )
    });
    [Some(warning), hint].into_iter().flatten().map(Line::new).collect()
}
