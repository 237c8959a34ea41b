//! The causes that concern workloads without a ready pod, of which pods left the node.

use jiff::Timestamp;
use nm_shared::NodeMaintenance;

use crate::explain::cause::{Cause, CommonGround};
use crate::explain::cause_wording::{Told, tell_of_replacements};
use crate::explain::cluster_facts::{ClusterFacts, Outage, OutageGap, Unseen, Workload};
use crate::explain::first_cause::{ChainEnd, FirstCause, replacements};
use crate::maintenance::node;
use crate::terminal::command_context::shell_quoted;
use crate::terminal::text::{counted, first_names};

/// How many reasons are said why replacements are not Ready.
const MAX_REASONS: usize = 2;

/// The workloads without a ready pod: each is a cause.
pub(super) fn down(
    maintenance: &NodeMaintenance,
    facts: &ClusterFacts,
    kubectl: &str,
    now: Timestamp,
) -> Vec<Cause> {
    let outages = facts.outages.get(node(maintenance)).map(Vec::as_slice).unwrap_or_default();
    outages.iter().map(|outage| cause(outage, maintenance, facts, kubectl, now)).collect()
}

/// That more workloads may be without a ready pod than could be found, and why that is not known.
pub(super) fn unknown(maintenance: &NodeMaintenance, facts: &ClusterFacts, kubectl: &str) -> Option<Cause> {
    let gaps = facts.outage_gaps.get(node(maintenance))?;
    Some(Cause {
        what: vec![String::from(
            "It is not known of all workloads whose pods left the node whether they have a ready pod.",
        )],
        unseen: gaps.iter().map(gap_sentence).collect(),
        advice: String::from("Check the workloads themselves"),
        commands: vec![format!("{kubectl} get deployments,statefulsets -A")],
        // A limit is reported even where nobody has asked about this node.
        passes: !gaps.iter().any(OutageGap::is_limit),
        is_outage: true,
        ..Cause::default()
    })
}

fn gap_sentence(gap: &OutageGap) -> String {
    match gap {
        OutageGap::Unseen(unseen) => unseen.sentence(),
        OutageGap::MoreEvents(limit) => format!(
            "Only {limit} events about stopped pods were read, but there are more, so some pods that left may be \
             missing here."
        ),
        OutageGap::MoreNamespaces(more) => {
            let namespaces = counted(*more, "more namespace");
            format!("Pods of {namespaces} left too, but their workloads were not checked.")
        }
        OutageGap::MoreWarnings(namespace) => format!(
            "Not all warnings about pods in {namespace} were read: a workload may have been down before the drain."
        ),
        OutageGap::Expired { pods, down } => {
            let (pods, have) = (counted(*pods, "pod"), if *pods == 1 { "has" } else { "have" });
            let events = format!("The events of {pods} that {have} left have expired");
            match down.as_slice() {
                [] => format!("{events}, so the workloads of these pods are not known."),
                [only] => format!("{events}: {only} has no ready pod, perhaps since the drain."),
                several => {
                    format!("{events}: {} have no ready pod, perhaps since the drain.", first_names(several))
                }
            }
        }
    }
}

/// The workloads without a ready pod, with the node that their pods left: `shop/deploy/web is down: its 1 pod is not ready`.
pub fn summary(facts: &ClusterFacts) -> Vec<(&str, String)> {
    let all = facts.outages.iter().flat_map(|(node, outages)| outages.iter().map(move |one| (node, one)));
    all.map(|(node, outage)| (node.as_str(), is_down(outage))).collect()
}

/// The workloads that the drain of a node has left without a ready pod: `shop/deploy/web`.
pub fn names(facts: &ClusterFacts, node: &str) -> Vec<String> {
    let outages = facts.outages.get(node).into_iter().flatten();
    outages.map(|outage| format!("{}/{}", outage.workload.namespace, outage.workload.owner)).collect()
}

fn is_down(outage: &Outage) -> String {
    let Workload { namespace, owner, wanted, .. } = &outage.workload;
    let none = if *wanted == 1 { "is not ready" } else { "are not ready" };
    format!("{namespace}/{owner} is down: its {} {none}", counted(*wanted, "pod"))
}

fn cause(
    outage: &Outage,
    maintenance: &NodeMaintenance,
    facts: &ClusterFacts,
    kubectl: &str,
    now: Timestamp,
) -> Cause {
    let workload = &outage.workload;
    let (namespace, owner) = (&workload.namespace, &workload.owner);
    let left = counted(outage.left.len(), "pod");
    let is_down = format!("{}.", is_down(outage));
    let mut what = vec![
        is_down.clone(),
        format!("{left} of this workload left {} during the drain.", node(maintenance)),
    ];
    let pods = outage.pods.iter().map(|read| (&read.pod, read.warnings.as_slice()));
    let mut ends: Vec<ChainEnd> = replacements(pods, facts, now);
    if let Some(incomplete) = workload.incomplete.clone().filter(|_| ends.is_empty()) {
        ends.push(FirstCause::NotCreated(incomplete).into());
    }
    let describe =
        format!("{kubectl} -n {} describe {}", shell_quoted(namespace), shell_quoted(&owner.argument()));
    let mut first: Option<Told> = None;
    let mut unseen = Vec::new();
    // It is over by itself only if each of its pods becomes Ready by itself.
    let mut passes = !ends.is_empty();
    for end in ends.iter().take(MAX_REASONS) {
        let told = tell_of_replacements(end, maintenance, kubectl, now);
        what.extend(told.what.clone());
        passes &= told.passes;
        unseen.extend(end.unseen.iter().map(Unseen::sentence));
        first.get_or_insert(told);
    }
    let (advice, mut commands) = match first {
        Some(told) => (told.advice, told.commands),
        None if outage.pods.is_empty() => {
            (String::from("The workload has no replacement pod yet: its events show why"), Vec::new())
        }
        None => {
            (String::from("The events of the workload show why its replacements are not ready"), Vec::new())
        }
    };
    if commands.is_empty() {
        commands.push(describe);
    }
    Cause {
        what,
        since: Some(outage.since()),
        unseen,
        advice,
        commands,
        passes,
        common: Some(CommonGround::Outage(is_down)),
        is_outage: true,
        ..Cause::default()
    }
}
