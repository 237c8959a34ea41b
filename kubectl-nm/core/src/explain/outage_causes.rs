//! The causes that concern workloads that lack ready pods, of which pods left the node or were preempted by replacements.

use std::collections::BTreeSet;

use jiff::Timestamp;
use nm_shared::NodeMaintenance;
use nm_shared::forecast::outage::USUAL_REPLACEMENT;

use crate::explain::cause::{Cause, CommonGround, Outlook, few};
use crate::explain::cause_wording::{Told, tell_of_replacements};
use crate::explain::cluster_facts::{ClusterFacts, Outage, OutageGap, PreemptedPod, Unseen, Workload};
use crate::explain::first_cause::{ChainEnd, FirstCause, replacements};
use crate::explain::preemption::preempted_by;
use crate::maintenance::node;
use crate::terminal::command_context::shell_quoted;
use crate::terminal::text::{MAX_NAMES, counted, first_names};

/// How many reasons are said why replacements are not Ready.
const MAX_REASONS: usize = 2;

/// The workloads without a ready pod. Those whose replacements are not Ready for the same reasons are one cause.
pub(super) fn down(
    maintenance: &NodeMaintenance,
    facts: &ClusterFacts,
    kubectl: &str,
    now: Timestamp,
) -> Vec<Cause> {
    let outages = facts.outages.get(node(maintenance)).into_iter().flatten();
    grouped(outages.map(|outage| Group::of(outage, facts, now)), maintenance, facts, kubectl, now)
}

/// The workloads with ready pods that lack some of which the replacements do not become Ready by themselves.
pub(super) fn lacking(
    maintenance: &NodeMaintenance,
    facts: &ClusterFacts,
    kubectl: &str,
    now: Timestamp,
) -> Vec<Cause> {
    let lacking = facts.lacking.get(node(maintenance)).into_iter().flatten();
    let mut groups: Vec<Group<'_>> = lacking.map(|outage| Group::of(outage, facts, now)).collect();
    groups.retain(|group| group.ends.first().is_some_and(|end| !passes(end)) && !group.may_only_start(now));
    grouped(groups, maintenance, facts, kubectl, now)
}

fn passes(end: &ChainEnd) -> bool {
    matches!(&end.cause, FirstCause::OtherPods(obstacle) if obstacle.passes())
}

/// Those whose replacements are not Ready for the same reasons together.
fn grouped<'a>(
    all: impl IntoIterator<Item = Group<'a>>,
    maintenance: &NodeMaintenance,
    facts: &ClusterFacts,
    kubectl: &str,
    now: Timestamp,
) -> Vec<Cause> {
    let mut groups: Vec<Group<'_>> = Vec::new();
    for group in all {
        let causes = group.causes();
        let is_alike = |known: &&mut Group<'_>| {
            !causes.is_empty()
                && known.causes() == causes
                && known.failing_since().is_some() == group.failing_since().is_some()
        };
        match groups.iter_mut().find(is_alike) {
            Some(known) => known.add(group),
            None => groups.push(group),
        }
    }
    groups.iter().map(|group| group.cause(maintenance, facts, kubectl, now)).collect()
}

/// That more workloads may be without a ready pod than could be found, and why that is not known.
pub(super) fn unknown(maintenance: &NodeMaintenance, facts: &ClusterFacts, kubectl: &str) -> Option<Cause> {
    let gaps = facts.outage_gaps.get(node(maintenance))?;
    Some(Cause {
        what: vec![String::from(
            "It is not known of all workloads whose pods left the node whether they have recovered.",
        )],
        unseen: gaps.iter().map(gap_sentence).collect(),
        advice: String::from("Check the workloads themselves"),
        commands: vec![format!("{kubectl} get deployments,statefulsets,jobs -A")],
        // A limit is reported even where nobody has asked about this node.
        outlook: Outlook::of(!gaps.iter().any(OutageGap::is_limit)),
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
        OutageGap::MoreJobs { namespace, limit } => {
            format!(
                "Only {limit} Jobs in {namespace} were read, but there are more, and one may have failed."
            )
        }
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

/// That these workloads, each with its namespace, are down.
pub fn are_down(names: &[String]) -> String {
    format!("{} are down: none of their pods is ready.", first_names(names))
}

/// The command that shows these workloads; none if a sentence names them all.
pub fn command_for_more(down: &[String], kubectl: &str) -> Option<String> {
    (down.len() > MAX_NAMES).then(|| format!("{kubectl} get deployments,statefulsets -A"))
}

/// What is said at once of a workload without a ready pod.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OutageLine<'a> {
    /// The node that its pods left.
    pub node: &'a str,
    /// `shop/deploy/web is down: its 1 pod is not ready`, `shop/deploy/web has no ready pod yet`.
    pub words: String,
    /// Whether it may only be waiting for its replacement to start.
    pub may_only_start: bool,
}

/// The workloads without a ready pod.
pub fn summary(facts: &ClusterFacts, now: Timestamp) -> Vec<OutageLine<'_>> {
    let line = |node, outage| {
        let may_only_start = Group::of(outage, facts, now).may_only_start(now);
        let words = if may_only_start {
            format!("{} has no ready pod yet", outage.workload.reference())
        } else {
            let before = match outage.failing_since {
                Some(_) => "; the pods that left had been failing before the drain",
                None => "",
            };
            format!("{}{before}", is_down(&outage.workload))
        };
        OutageLine { node, words, may_only_start }
    };
    let all = facts.outages.iter();
    all.flat_map(|(node, outages)| outages.iter().map(move |outage| line(node, outage))).collect()
}

/// `shop/deploy/low has 2 of 4 pods ready; 2 pods of it were preempted by shop/high-6f-a`.
pub fn lost_by_preemption(workload: &Workload, preempted: &[PreemptedPod]) -> String {
    format!("{}; {}", is_down(workload), preempted_by("it", preempted))
}

fn is_down(workload: &Workload) -> String {
    if !workload.is_down() {
        return format!("{} has {} of {} pods ready", workload.reference(), workload.ready, workload.wanted);
    }
    let why = match workload.existing {
        ..=0 => String::from("it has no pod"),
        1 => String::from("its 1 pod is not ready"),
        several => format!("its {several} pods are not ready"),
    };
    format!("{} is down: {why}", workload.reference())
}

/// That the pods that left are not what the drain has taken from a workload.
fn failed_before(pods: usize, since: Timestamp) -> String {
    let it = if pods == 1 { "It" } else { "They" };
    format!("{it} had been failing before the drain, since {since}.")
}

/// Workloads whose replacements are not Ready for the same reasons.
struct Group<'a> {
    outages: Vec<&'a Outage>,
    ends: Vec<ChainEnd>,
}

impl<'a> Group<'a> {
    fn of(outage: &'a Outage, facts: &ClusterFacts, now: Timestamp) -> Self {
        let pods = outage.pods.iter().map(|read| (&read.pod, read.warnings.as_slice()));
        let mut ends: Vec<ChainEnd> = replacements(pods, facts, now);
        if let Some(incomplete) = outage.workload.incomplete.clone().filter(|_| ends.is_empty()) {
            ends.push(FirstCause::NotCreated(incomplete).into());
        }
        Self { outages: vec![outage], ends }
    }

    fn may_only_start(&self, now: Timestamp) -> bool {
        let is_recent = |outage: &&Outage| now.duration_since(outage.since()) < USUAL_REPLACEMENT;
        self.outages.iter().all(is_recent) && !self.ends.iter().any(|end| end.cause.is_stuck())
    }

    /// Whose pods it is about.
    fn these(&self) -> &'static str {
        if self.outages.len() == 1 { "this workload" } else { "these workloads" }
    }

    /// Which of its pods were preempted, if any were.
    fn preempted(&self, node: &str) -> Option<String> {
        let preempted: Vec<&PreemptedPod> =
            self.outages.iter().flat_map(|outage| &outage.preempted).collect();
        let words = || preempted_by(self.these(), preempted.iter().copied());
        (!preempted.is_empty()).then(|| format!("{}, probably in place of pods that left {node}.", words()))
    }

    /// That so many of its pods left the node, of which some are still terminating.
    fn leaving(&self, all: usize, terminating: usize, node: &str, facts: &ClusterFacts) -> String {
        let at_least = if facts.partly_seen.contains(node) { "At least " } else { "" };
        let these = self.these();
        let are = if terminating == 1 { "is" } else { "are" };
        match all.saturating_sub(terminating) {
            0 => format!("{} of {these} {are} terminating on {node}.", counted(terminating, "pod")),
            left => {
                let left = counted(left, "pod");
                let rest = match terminating {
                    0 => String::new(),
                    rest => format!(", and {rest} more {are} terminating there"),
                };
                format!("{at_least}{left} of {these} left {node} during the drain{rest}.")
            }
        }
    }

    /// Since when the pods that left had been failing, if all had before the drain.
    fn failing_since(&self) -> Option<Timestamp> {
        let since = self.outages.iter().map(|outage| outage.failing_since);
        since.collect::<Option<Vec<Timestamp>>>()?.into_iter().min()
    }

    fn causes(&self) -> Vec<FirstCause> {
        self.ends.iter().map(|end| end.cause.clone()).collect()
    }

    /// Adds a group that has the same causes.
    fn add(&mut self, more: Self) {
        self.outages.extend(more.outages);
        for (end, more) in self.ends.iter_mut().zip(more.ends) {
            end.subjects.extend(more.subjects);
            end.unseen.extend(more.unseen);
        }
    }

    fn cause(
        &self,
        maintenance: &NodeMaintenance,
        facts: &ClusterFacts,
        kubectl: &str,
        now: Timestamp,
    ) -> Cause {
        let left: BTreeSet<&str> =
            self.outages.iter().flat_map(|outage| &outage.left).map(|pod| pod.uid.as_str()).collect();
        let terminating: usize = self.outages.iter().map(|outage| outage.terminating).sum();
        let of_workload =
            (!left.is_empty()).then(|| self.leaving(left.len(), terminating, node(maintenance), facts));
        let are_down_all = self.outages.iter().all(|outage| outage.workload.is_down());
        let names: Vec<String> = self.outages.iter().map(|outage| outage.workload.reference()).collect();
        let is_down = match self.outages.as_slice() {
            [only] => format!("{}.", is_down(&only.workload)),
            _ if are_down_all => are_down(&names),
            _ => format!("{} have too few ready pods.", first_names(&names)),
        };
        let mut what = vec![is_down.clone()];
        what.extend(of_workload);
        what.extend(self.preempted(node(maintenance)));
        what.extend(self.failing_since().map(|since| failed_before(left.len(), since)));
        let mut first: Option<Told> = None;
        let mut unseen = Vec::new();
        // It is over by itself only if each of its pods becomes Ready by itself.
        let mut passes = !self.ends.is_empty();
        for end in self.ends.iter().take(MAX_REASONS) {
            let told = tell_of_replacements(end, maintenance, facts, kubectl, now);
            what.extend(told.what.clone());
            passes &= told.passes;
            unseen.extend(few(end.unseen.iter().map(Unseen::sentence)));
            first.get_or_insert(told);
        }
        let (advice, mut commands) = match first {
            Some(told) => (told.advice, told.commands),
            None if self.outages.iter().all(|outage| outage.pods.is_empty()) => {
                (String::from("The workload has no replacement pod yet: its events show why"), Vec::new())
            }
            None => (
                String::from("The events of the workload show why its replacements are not ready"),
                Vec::new(),
            ),
        };
        if commands.is_empty() {
            let describe = |outage: &&Outage| {
                let Workload { namespace, owner, .. } = &outage.workload;
                let (namespace, owner) =
                    (shell_quoted(namespace), shell_quoted(&owner.argument()).into_owned());
                format!("{kubectl} -n {namespace} describe {owner}")
            };
            commands = few(self.outages.iter().map(describe));
        }
        commands.extend(command_for_more(&names, kubectl));
        let common = match (are_down_all, self.ends.is_empty()) {
            (true, true) => CommonGround::Outage(is_down),
            (true, false) => CommonGround::Outages(self.causes()),
            (false, _) => CommonGround::Lacking(self.causes()),
        };
        Cause {
            what,
            unseen,
            advice,
            commands,
            outlook: Outlook::of(passes),
            common: Some(common),
            is_outage: true,
            down: if are_down_all { names } else { Vec::new() },
            ..Cause::of_times(self.outages.iter().map(|outage| outage.since()))
        }
    }
}
