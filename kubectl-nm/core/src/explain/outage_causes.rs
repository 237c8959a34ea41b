//! The causes that concern workloads without a ready pod, of which pods left the node.

use jiff::Timestamp;
use nm_shared::NodeMaintenance;

use crate::explain::cause::{Cause, CommonGround};
use crate::explain::cause_wording::{Told, tell_of_replacements};
use crate::explain::cluster_facts::{ClusterFacts, Outage, Unseen};
use crate::explain::first_cause::{ChainEnd, FirstCause, replacements};
use crate::maintenance::node;
use crate::terminal::command_context::shell_quoted;
use crate::terminal::text::counted;

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

fn cause(
    outage: &Outage,
    maintenance: &NodeMaintenance,
    facts: &ClusterFacts,
    kubectl: &str,
    now: Timestamp,
) -> Cause {
    let workload = &outage.workload;
    let (namespace, owner) = (&workload.namespace, &workload.owner);
    let (wanted, left) = (counted(workload.wanted, "pod"), counted(outage.left.len(), "pod"));
    let none = match workload.wanted {
        1 => "is not ready",
        _ => "are not ready",
    };
    let is_down = format!("{namespace}/{owner} is down: its {wanted} {none}.");
    let mut what =
        vec![is_down.clone(), format!("{left} of it left {} during the drain.", node(maintenance))];
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
            (String::from("It has no replacement yet: its events show why"), Vec::new())
        }
        None => (String::from("Its events show why its replacements are not ready"), Vec::new()),
    };
    if commands.is_empty() {
        commands.push(describe);
    }
    Cause {
        what,
        since: outage.since(),
        unseen,
        advice,
        commands,
        passes,
        common: Some(CommonGround::Outage(is_down)),
        is_outage: true,
        ..Cause::default()
    }
}
