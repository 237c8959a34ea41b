//! The causes of pods that their Deployments replace first: what their replacements wait for.

use std::collections::BTreeMap;

use jiff::Timestamp;
use nm_shared::cluster::pod::reference_in;
use nm_shared::{BlockFacts, BlockedPod, Grant, NodeMaintenance, PodReference, SurgeObstacle, SurgingPod};

use crate::explain::cause::{Cause, Outlook, few};
use crate::explain::cause_wording::tell_counted;
use crate::explain::cluster_facts::{ClusterFacts, Unseen};
use crate::explain::first_cause::{ChainEnd, pods_elsewhere, stuck_replacements};
use crate::explain::told_alone::ToldAlone;
use crate::maintenance::changes::surge_progress;
use crate::maintenance::{node, status};
use crate::terminal::command_context::shell_quoted;

/// How many reasons are said why replacements are not Ready.
const MAX_REASONS: usize = 3;

/// The Deployments that replace pods first. That ends by itself, unless a replacement cannot become Ready.
pub(super) fn surging(
    maintenance: &NodeMaintenance,
    alone: ToldAlone<'_>,
    facts: &ClusterFacts,
    kubectl: &str,
    now: Timestamp,
) -> Vec<Cause> {
    let mut deployments: BTreeMap<(&str, &str, bool), Vec<&SurgingPod>> = BTreeMap::new();
    for pod in status(maintenance).surging_pods.iter().flatten() {
        let is_alone = alone.is(&pod.reference());
        deployments.entry((&pod.namespace, &pod.deployment, is_alone)).or_default().push(pod);
    }
    let cause = |((namespace, deployment, _), pods): ((&str, &str, bool), Vec<&SurgingPod>)| {
        let mut cause = Cause {
            what: few(pods
                .iter()
                .map(|pod| format!("{} is replaced first. {}.", pod.reference(), surge_progress(pod)))),
            pods: pods.iter().map(|pod| pod.reference().to_string()).collect(),
            advice: String::from("The Deployment terminates each pod once its replacement is Ready"),
            commands: vec![format!(
                "{kubectl} -n {} rollout status deployment/{}",
                shell_quoted(namespace),
                shell_quoted(deployment)
            )],
            outlook: Outlook::Passes,
            ..Cause::of_times(pods.iter().map(|pod| pod.since.0))
        };
        let name = |pod: &&SurgingPod| {
            let name = pod.replacement.as_ref()?.name.clone();
            Some(PodReference { namespace: pod.namespace.clone(), name })
        };
        let names: Vec<PodReference> = pods.iter().filter_map(name).collect();
        let read = || names.iter().filter_map(|name| facts.replacements.get(name));
        let of = PodReference { namespace: namespace.to_owned(), name: deployment.to_owned() };
        let rollout = facts.rollouts.get(&of);
        // A new pod of a rollout may be the replacement of another one.
        let more = rollout.into_iter().flatten().flatten();
        let more = more.filter(|read| !names.contains(&reference_in(&read.pod.metadata)));
        let found = read().flatten().flatten().chain(more);
        let found = found.map(|read| (&read.pod, read.warnings.as_slice()));
        let ends = stuck_replacements(found, facts, now);
        // As in the status, it is not blocked before the rollout has exceeded its deadline.
        if !ends.is_empty() {
            cause.outlook = Outlook::WillBlock;
        }
        explain(&mut cause, ends, maintenance, facts, kubectl, now);
        let unseen = read().filter_map(|read| read.as_ref().err());
        let unseen = unseen.chain(rollout.and_then(|read| read.as_ref().err()));
        cause.unseen.extend(few(unseen.map(Unseen::sentence)));
        cause
    };
    deployments.into_iter().map(cause).collect()
}

/// The permission without which a pod that its budget keeps is not replaced first.
pub(super) fn denied(facts: &BlockFacts) -> Option<Grant> {
    let is_denied = facts.surge.as_ref().is_some_and(|surge| surge.reason == SurgeObstacle::Forbidden);
    facts.forbidden.as_ref().filter(|_| is_denied).and_then(Grant::of)
}

/// Why pods are not replaced first without this permission, after `is kept by its budget and`.
pub(super) fn not_permitted(grant: Grant) -> String {
    format!(
        "not replaced first, because nm-reconciler had no permission to {} when it last tried",
        grant.permits()
    )
}

/// Adds to the cause of pods whose Deployment has exceeded its deadline why its new pods are not Ready, as far as the pods
/// of their budgets show that.
pub(super) fn stalled(
    cause: &mut Cause,
    pods: &[&BlockedPod],
    maintenance: &NodeMaintenance,
    facts: &ClusterFacts,
    kubectl: &str,
    now: Timestamp,
) {
    let on = node(maintenance);
    let mut found = Vec::new();
    for pod in pods {
        let (Some(surge), Some(budget)) = (&pod.facts.surge, &pod.facts.budget) else { continue };
        let (SurgeObstacle::Stalled, Some(deployment)) = (surge.reason, &surge.deployment) else { continue };
        let budget = PodReference { namespace: pod.namespace.clone(), name: budget.name.clone() };
        let Some(guarded) = facts.budgets.get(&budget) else { continue };
        for (pod, warnings) in pods_elsewhere(deployment, on, guarded) {
            if !found.iter().any(|(known, _)| *known == pod) {
                found.push((pod, warnings));
            }
        }
    }
    explain(cause, stuck_replacements(found, facts, now), maintenance, facts, kubectl, now);
}

/// Adds why replacements are not Ready, and the remedy of the first reason before the commands of the cause.
fn explain(
    cause: &mut Cause,
    ends: Vec<ChainEnd>,
    maintenance: &NodeMaintenance,
    facts: &ClusterFacts,
    kubectl: &str,
    now: Timestamp,
) {
    for (at, end) in ends.into_iter().take(MAX_REASONS).enumerate() {
        let (told, left_out) = tell_counted(&end, maintenance, facts, kubectl, now);
        cause.what.extend(told.what);
        cause.unseen.extend(few(end.unseen.iter().map(Unseen::sentence)));
        if at == 0 {
            cause.advice = told.advice;
            cause.commands.splice(0..0, told.commands);
            cause.left_out.extend(left_out);
        }
    }
}
