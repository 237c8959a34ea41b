//! The words of what a drain would harm, for people and for programs.

use std::collections::{BTreeMap, BTreeSet};

use nm_shared::cluster::node_fit::Unfit;
use nm_shared::forecast::capacity::UnplacedPods;
use nm_shared::forecast::outage::{NamespacedWorkload, WorkloadOutage};
use nm_shared::forecast::preemption::Preemption;
use nm_shared::forecast::schedulable::NodeGroup;
use nm_shared::{BlockReason, PodReference};
use serde_json::{Value, json};

use crate::plan::denied;
use crate::plan::harm::{Harm, Lasting};
use crate::terminal::text::{Line, Style, counted, first_names};

impl Harm {
    /// The harm in one line.
    pub fn line(&self) -> Line {
        let bad = |text: &str| Line::default().with(Style::Bad, text);
        match self {
            Self::NobodyLeads(gap) => bad(&gap.words()),
            Self::NodeNotReady(node) => Line::new(format!("node/{node} "))
                .with(Style::Bad, "is not Ready")
                .and(": its pods do not leave until its kubelet reports"),
            Self::EmptyDirData(pods) => {
                let loses = if pods.len() == 1 { "loses its" } else { "lose their" };
                let line = Line::new(counted(pods.len(), "pod")).and(" ");
                line.with(Style::Bad, format!("{loses} emptyDir data"))
                    .and(": ")
                    .and(first_names(&texts(pods)))
            }
            Self::ClaimDeleted(claim) => claim.line(),
            Self::Unmanaged(pods) => bad("no controller replaces").and(" ").and(named(pods)),
            Self::DeletedAfterRefusal { pods, seconds, perhaps } => {
                let when = match (perhaps, pods.len()) {
                    (false, 1) => "although its eviction is refused",
                    (false, _) => "although their evictions are refused",
                    (true, 1) => "unless its budget allows its eviction before",
                    (true, _) => "unless their budgets allow their evictions before",
                };
                let line = Line::new(counted(pods.len(), "pod")).and(" ");
                line.with(Style::Bad, format!("deleted after {seconds}s {when}"))
                    .and(format!(": {}", first_names(&texts(pods))))
            }
            Self::Unselected(pods) => {
                let (stay, them) = if pods.len() == 1 { ("stays", "it") } else { ("stay", "them") };
                let line = Line::new(counted(pods.len(), "pod")).and(" ");
                line.with(Style::Bad, format!("{stay} on the node")).and(format!(
                    ", because podSelector does not match {them}: {}",
                    first_names(&texts(pods))
                ))
            }
            Self::Denied(grant) => denied::line(*grant),
            Self::NeverTerminates(endless) => endless.line(),
            Self::FailingJobs(failing) => failing.line(),
            Self::NoReadyPod { workloads, budgets_known } => {
                let names: Vec<String> = workloads.iter().map(workload).collect();
                let unless = if *budgets_known { "" } else { ", unless a disruption budget prevents it" };
                let line = bad("no Ready pod").and(format!(" until a replacement is Ready{unless}: "));
                line.and(format!("{} ({})", counted(names.len(), "workload"), first_names(&names)))
            }
            Self::NoCapacity { unplaced: UnplacedPods { pods, reasons }, nodes } => {
                let why = unsuitable(reasons, *nodes, pods.len() == 1);
                bad("no capacity").and(" for ").and(format!("{} ({why})", first_names(&texts(pods))))
            }
            Self::Preemption(Preemption { pod, node, preempted, displaced }) => {
                let instead =
                    format!(": {pod}, probably on {node} instead of {}", first_names(&texts(preempted)));
                let fits = if displaced.len() == 1 { "fits" } else { "fit" };
                let then = match displaced.len() {
                    0 => String::new(),
                    all if all == preempted.len() => format!(", which then {fits} on no node"),
                    _ => format!("; {} then {fits} on no node", first_names(&texts(displaced))),
                };
                bad("fits only by preemption").and(instead).and(then)
            }
            Self::NoSchedulableNode(group) => {
                bad("no schedulable node is left").and(format!(" in {}", group_name(group)))
            }
            Self::Finalizer { name, pods } => {
                let line = bad(&format!("finalizer {name}"));
                let whose = if pods.len() == 1 { "the object" } else { "the objects" };
                line.and(format!(" keeps {whose} until its controller removes it: {}", named(pods)))
            }
            Self::NeverLeave { pods, count, reason, message, lasting } => {
                let line = if *count < pods.len() {
                    let line = Line::new(format!("{count} of {} ", counted(pods.len(), "pod")));
                    line.with(Style::Bad, never_leaves(*lasting, *count))
                } else {
                    bad(never_leaves(*lasting, 1))
                };
                let names = first_names(&texts(pods));
                let each = each_namespace(pods, *reason);
                line.and(format!(": {names}: {}{each}", message.trim_end_matches('.')))
            }
            Self::Quorum { node, why } => Line::new(format!("node/{node}: ")).with(Style::Bad, why),
        }
    }

    /// The harm for programs.
    pub(crate) fn document(&self) -> Value {
        match self {
            Self::NobodyLeads(gap) => json!({"harm": "NobodyLeads", "message": gap.words()}),
            Self::NodeNotReady(node) => json!({"harm": "NodeNotReady", "node": node}),
            Self::EmptyDirData(pods) => json!({"harm": "EmptyDirDataLost", "pods": pods}),
            Self::ClaimDeleted(claim) => claim.document(),
            Self::Unmanaged(pods) => json!({"harm": "NoController", "pods": pods}),
            Self::DeletedAfterRefusal { pods, seconds, perhaps } => {
                json!({"harm": "DeletedAfterRefusal", "pods": pods, "afterSeconds": seconds, "unlessAllowed": perhaps})
            }
            Self::Unselected(pods) => json!({"harm": "NotSelected", "pods": pods}),
            Self::Denied(grant) => denied::document(*grant),
            Self::NeverTerminates(endless) => endless.document(),
            Self::FailingJobs(failing) => failing.document(),
            Self::NoReadyPod { workloads, budgets_known } => {
                let workloads: Vec<Value> = workloads.iter().map(workload_document).collect();
                json!({"harm": "NoReadyPod", "workloads": workloads, "budgetsKnown": budgets_known})
            }
            Self::NoCapacity { unplaced, .. } => json!({"harm": "NoCapacity", "pods": unplaced.pods}),
            Self::Preemption(Preemption { pod, node, preempted, displaced }) => {
                json!({"harm": "Preemption", "pods": [pod], "node": node, "preempted": preempted, "displaced": displaced})
            }
            Self::NoSchedulableNode(group) => {
                let (of, name) = match group {
                    NodeGroup::Cluster => ("Cluster", None),
                    NodeGroup::Untainted => ("Untainted", None),
                    NodeGroup::Zone(name) => ("Zone", Some(name)),
                    NodeGroup::Pool(name) => ("Pool", Some(name)),
                };
                json!({"harm": "NoSchedulableNode", "of": of, "name": name})
            }
            Self::Finalizer { name, pods } => {
                json!({"harm": "Finalizer", "pods": pods, "finalizer": name})
            }
            Self::NeverLeave { pods, count, reason, message, .. } => {
                json!({"harm": "NeverLeaves", "pods": pods, "count": count, "reason": reason, "message": message})
            }
            Self::Quorum { node, why } => json!({"harm": "QuorumAtRisk", "node": node, "message": why}),
        }
    }
}

/// That budgets of one name are several.
fn each_namespace(pods: &[PodReference], reason: BlockReason) -> String {
    let namespaces: BTreeSet<&str> = pods.iter().map(|pod| pod.namespace.as_str()).collect();
    if reason != BlockReason::DisruptionBudget || namespaces.len() < 2 {
        return String::new();
    }
    format!(", in each of {} namespaces", namespaces.len())
}

/// What becomes of this many pods.
fn never_leaves(lasting: Lasting, count: usize) -> &'static str {
    match (lasting, count) {
        (Lasting::Perhaps, _) => "may stay blocked",
        (Lasting::UntilAllowed, 1) => "stays blocked",
        (Lasting::UntilAllowed, _) => "stay blocked",
        (Lasting::Forever | Lasting::Briefly, 1) => "never leaves",
        (Lasting::Forever | Lasting::Briefly, _) => "never leave",
    }
}

fn texts(pods: &[PodReference]) -> Vec<String> {
    pods.iter().map(ToString::to_string).collect()
}

/// `2 pods: shop/a, shop/b`.
fn named(pods: &[PodReference]) -> String {
    format!("{}: {}", counted(pods.len(), "pod"), first_names(&texts(pods)))
}

/// `Deployment shop/web`, `Deployment shop/low, probably preempted by shop/high-6f-a`.
fn workload(found: &WorkloadOutage) -> String {
    let WorkloadOutage { workload: NamespacedWorkload { namespace, workload }, preempted_by } = found;
    let by: Vec<String> = preempted_by.iter().map(ToString::to_string).collect();
    let by =
        if by.is_empty() { String::new() } else { format!(", probably preempted by {}", first_names(&by)) };
    format!("{} {namespace}/{}{by}", workload.kind, workload.name)
}

fn workload_document(found: &WorkloadOutage) -> Value {
    let WorkloadOutage { workload: NamespacedWorkload { namespace, workload }, preempted_by } = found;
    let mut document = json!({"namespace": namespace, "kind": workload.kind, "name": workload.name});
    if !preempted_by.is_empty() {
        document["preemptedBy"] = json!(preempted_by);
    }
    document
}

/// Why the other nodes do not suit one or several pods: `11 other nodes: 8 not selected by its nodeSelector or affinity, 3 full`.
fn unsuitable(reasons: &BTreeMap<Unfit, usize>, nodes: usize, is_one_pod: bool) -> String {
    let its = if is_one_pod { "its" } else { "their" };
    let others = counted(nodes, "other node");
    if reasons.len() == 1 && reasons.contains_key(&Unfit::NotSelected) {
        let verb = if nodes == 1 { "does" } else { "do" };
        return format!("{others} {verb} not match {its} nodeSelector or affinity");
    }
    let reason = |(why, nodes): (&Unfit, &usize)| match why {
        Unfit::NotSelected => format!("{nodes} not selected by {its} nodeSelector or affinity"),
        why => format!("{nodes} {why}"),
    };
    let reasons: Vec<String> = reasons.iter().map(reason).collect();
    if reasons.is_empty() { others } else { format!("{others}: {}", reasons.join(", ")) }
}

fn group_name(group: &NodeGroup) -> String {
    match group {
        NodeGroup::Cluster => String::from("the cluster"),
        NodeGroup::Untainted => String::from("the cluster, except nodes with taints"),
        NodeGroup::Zone(name) => format!("zone {name}"),
        NodeGroup::Pool(name) => format!("pool {name}"),
    }
}
