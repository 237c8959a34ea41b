//! The lines that report the changes of a maintenance, without the node's name.
//!
//! A person follows them for a hundred nodes at once. So a node has a line when its state changes, not when its progress does,
//! and a pod has one when it becomes blocked, and when that ends. Every change of a pod is reported only if that was asked for.

use kube::ResourceExt;
use nm_shared::api::condition::{ConditionReason, ConditionType};
use nm_shared::{
    AttachedVolume, BlockFacts, BlockReason, BlockedPod, BudgetFacts, MigratingPod, NodeMaintenance,
    PodReference,
};

use crate::args::duration::age;
use crate::maintenance::changes::{
    MaintenanceChange, PodChange, attached_volume, blocked, blocked_pod, count_deleted, pod_changes,
    returned_pod, surging_pod, waiting_pod,
};
use crate::maintenance::{
    State, attached_volumes, condition, degraded, headline, hold, is_ending, node, purpose_words, reason,
    status, stop_progress,
};
use crate::terminal::text::{Line, MAX_NAMES, Style, counted, first_names};

/// Up to this many pods that are blocked for the same cause have a line each.
const MAX_SINGLE_PODS: usize = 3;

/// Pods of a node that are blocked for more causes than this share a line.
const MAX_CAUSES: usize = 5;

/// Which changes have lines.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LineDetail {
    /// Changes of nodes, and pods that are blocked.
    #[default]
    Nodes,
    /// Every pod too.
    Pods,
}

/// The lines that report a change; none if nothing changed that matters to people. `lost_node`: whether the node of the
/// maintenance is known to be deleted.
pub(crate) fn lines(change: &MaintenanceChange, detail: LineDetail, lost_node: bool) -> Vec<Line> {
    let stopped = Line::default().with(Style::Good, "Stopped");
    match change {
        MaintenanceChange::Updated { before, now } => update_lines(before.as_deref(), now, detail, lost_node),
        MaintenanceChange::Deleted(_) if lost_node => {
            vec![stopped.and(": the node was deleted, and its maintenance has ended")]
        }
        // What becomes of its node is not known here: it may have been cordoned before.
        MaintenanceChange::Deleted(last) if last.metadata.deletion_timestamp.is_some() => {
            vec![stopped.and(": the maintenance has ended")]
        }
        MaintenanceChange::Deleted(_) => vec![stopped.and(": the maintenance was deleted")],
    }
}

fn update_lines(
    before: Option<&NodeMaintenance>,
    now: &NodeMaintenance,
    detail: LineDetail,
    lost_node: bool,
) -> Vec<Line> {
    let mut lines = Vec::new();
    if before.is_none_or(|before| Phase::of(before) != Phase::of(now)) {
        let headline = if lost_node && is_ending(now) { deleted_headline(now) } else { headline(now) };
        lines.push(if before.is_none() { headline.and(purpose_words(now)) } else { headline });
    }
    if before.is_none() && now.name_any() != node(now) {
        lines.push(Line::new(format!("name of the NodeMaintenance: {}", now.name_any())));
    }
    lines.extend(pod_lines(before, now, detail));
    lines.extend(failed_detachments(before, now));
    let error = &status(now).last_error;
    let is_reported = before.is_some_and(|before| &status(before).last_error == error)
        || is_in_headline(now)
        || only_names_blocked_pods(now);
    if !error.is_empty() && !is_reported {
        lines.push(Line::default().with(Style::Bad, "error").and(": ").and(error));
    }
    lines.extend(became_degraded(before, now));
    lines
}

/// The headline of a maintenance that ends because its node was deleted.
fn deleted_headline(now: &NodeMaintenance) -> Line {
    let state = State::of(now);
    let line = Line::default().with(state.style(), state.word());
    line.and(": the node was deleted, and its maintenance ends")
}

/// What a headline is about, without its numbers.
#[derive(PartialEq, Eq)]
struct Phase {
    state: State,
    /// Why it waits or has failed, or what ends it.
    why: String,
    waits_for_volumes: bool,
}

impl Phase {
    fn of(maintenance: &NodeMaintenance) -> Self {
        let state = State::of(maintenance);
        let why = match state {
            // The sentences have numbers that change, such as the position in the queue.
            State::Queued | State::Failed => condition(maintenance, ConditionType::Drained)
                .map_or_else(|| reason(maintenance).to_owned(), |drained| drained.reason.clone()),
            State::Stopping => stop_progress(maintenance),
            // The hooks that are left.
            _ => hold(maintenance).map(ToString::to_string).unwrap_or_default(),
        };
        let detached = condition(maintenance, ConditionType::VolumesDetached);
        Self { state, why, waits_for_volumes: detached.is_some_and(|detached| detached.status == "False") }
    }
}

fn pod_lines(before: Option<&NodeMaintenance>, now: &NodeMaintenance, detail: LineDetail) -> Vec<Line> {
    let was_blocked = before.map(blocked).unwrap_or_default();
    let was = |pod: &PodReference| was_blocked.contains_key(pod).then(|| pod.clone());
    let (mut new, mut freed, mut others) = (Vec::new(), Vec::new(), Vec::new());
    let (mut deleted, mut gone) = (Vec::new(), Vec::new());
    for change in pod_changes(before, now) {
        match change {
            PodChange::Blocked(pod) => {
                let same = was_blocked.get(&pod.reference());
                if detail == LineDetail::Pods || same.is_none_or(|was| Cause::of(was) != Cause::of(pod)) {
                    new.push(pod);
                }
            }
            PodChange::Unblocked(pod) => freed.push(pod),
            PodChange::Deleted(pod) => deleted.push(pod),
            PodChange::Gone(pod) => {
                if detail == LineDetail::Pods || was_blocked.contains_key(&pod) {
                    gone.push(pod);
                }
            }
            PodChange::Waiting(pod) => {
                freed.extend(was(&pod.reference()));
                others.push(waiting_pod(pod));
            }
            PodChange::Migrating(pod) => {
                freed.extend(was(&pod.reference()));
                others.push(migrating_pod(pod));
            }
            PodChange::Surging(pod) => {
                freed.extend(was(&pod.reference()));
                others.push(surging_pod(pod));
            }
            PodChange::Returned(pod) => others.push(returned_pod(pod)),
        }
    }
    let count = before.map_or(0, |before| count_deleted(before, now));
    let deleted = deleted_line(count, &deleted, now).into_iter();
    if detail == LineDetail::Nodes {
        let ended = [("unblocked", freed), ("gone", gone)];
        let ended = ended.iter().flat_map(|(what, pods)| ended_lines(what, pods));
        return blocked_lines(new).into_iter().chain(deleted).chain(ended).collect();
    }
    let freed = freed.iter().map(|pod| ended_block("unblocked", pod));
    others.extend(gone.iter().map(|pod| ended_block("gone", pod)));
    new.into_iter().map(blocked_pod).chain(deleted).chain(freed).chain(others).collect()
}

/// `deleted 3 pods because their evictions were refused for 20s (--delete-after): shop/a, shop/b and 1 more`. Not all of them may be
/// known by name.
fn deleted_line(count: usize, names: &[PodReference], now: &NodeMaintenance) -> Option<Line> {
    let their = match count {
        0 => return None,
        1 => "its eviction was",
        _ => "their evictions were",
    };
    let seconds = now.spec.drain.as_ref().map_or(0, |drain| drain.delete_after_seconds);
    let why = format!("because {their} refused for {} (--delete-after)", age(seconds));
    let line = Line::default().with(Style::Bad, "deleted");
    Some(match names {
        [only] if count == 1 => line.and(format!(" {only} {why}")),
        [] => line.and(format!(" {} {why}", counted(count, "pod"))),
        names => {
            let shown: Vec<String> = names.iter().take(MAX_NAMES).map(PodReference::to_string).collect();
            let more = match count.saturating_sub(shown.len()) {
                0 => String::new(),
                more => format!(" and {more} more"),
            };
            line.and(format!(" {} {why}: {}{more}", counted(count, "pod"), shown.join(", ")))
        }
    })
}

/// Why a pod is blocked, without numbers that change while it is.
#[derive(PartialEq)]
struct Cause {
    reason: BlockReason,
    facts: BlockFacts,
}

impl Cause {
    fn of(pod: &BlockedPod) -> Self {
        let unnumbered =
            |budget: &BudgetFacts| BudgetFacts { name: budget.name.clone(), ..BudgetFacts::default() };
        let facts = BlockFacts {
            budget: pod.facts.budget.as_ref().map(unnumbered),
            budgets: pod.facts.budgets.iter().map(unnumbered).collect(),
            migration: None,
            ..pod.facts.clone()
        };
        Self { reason: pod.reason, facts }
    }
}

/// A line for each pod or, if many are blocked for the same cause, one for all of them. Pods of further causes share one.
pub fn blocked_lines(pods: Vec<&BlockedPod>) -> Vec<Line> {
    let mut groups: Vec<(String, Cause, Vec<&BlockedPod>)> = Vec::new();
    for pod in pods {
        let cause = Cause::of(pod);
        let same = groups.iter_mut().find(|(space, known, _)| *space == pod.namespace && *known == cause);
        match same {
            Some((.., group)) => group.push(pod),
            None => groups.push((pod.namespace.clone(), cause, vec![pod])),
        }
    }
    let lines = |(_, cause, pods): (String, Cause, Vec<&BlockedPod>)| match pods.as_slice() {
        [first, ..] if pods.len() > MAX_SINGLE_PODS => {
            let names: Vec<String> = pods.iter().map(|pod| pod.reference().to_string()).collect();
            let line = Line::default().with(Style::Bad, "blocked");
            let what = format!(" {}: {}", counted(pods.len(), "pod"), cause.reason.as_str());
            let line = if first.message.is_empty() {
                line.and(what)
            } else {
                line.and(what).and(": ").and(&first.message)
            };
            vec![line.and(format!(": {}", first_names(&names)))]
        }
        _ => pods.into_iter().map(blocked_pod).collect(),
    };
    let others = groups.split_off(MAX_CAUSES.min(groups.len()));
    let names: Vec<String> =
        others.iter().flat_map(|(.., pods)| pods).map(|pod| pod.reference().to_string()).collect();
    let others = (!others.is_empty()).then(|| {
        let (pods, causes) = (counted(names.len(), "more pod"), counted(others.len(), "other cause"));
        let line = Line::default().with(Style::Bad, "blocked");
        line.and(format!(" {pods} for {causes} (-v shows all): {}", first_names(&names)))
    });
    groups.into_iter().flat_map(lines).chain(others).collect()
}

/// The lines about pods whose block ended so.
fn ended_lines(what: &str, pods: &[PodReference]) -> Vec<Line> {
    if pods.len() <= MAX_SINGLE_PODS {
        return pods.iter().map(|pod| ended_block(what, pod)).collect();
    }
    let names: Vec<String> = pods.iter().map(ToString::to_string).collect();
    let pods = format!(" {}: {}", counted(pods.len(), "pod"), first_names(&names));
    vec![Line::default().with(Style::Good, what).and(pods)]
}

/// `migrating shop/virt-launcher-db to n2: VirtualMachine db`.
fn migrating_pod(pod: &MigratingPod) -> Line {
    let MigratingPod { namespace, name, machine, target, .. } = pod;
    let target = target.as_ref().map(|target| format!(" to {target}")).unwrap_or_default();
    Line::default()
        .with(Style::Busy, "migrating")
        .and(format!(" {namespace}/{name}{target}: virtual machine {machine}"))
}

/// The volumes whose driver reports an error that it has not reported before.
fn failed_detachments(before: Option<&NodeMaintenance>, now: &NodeMaintenance) -> Vec<Line> {
    let known = |volume: &AttachedVolume| {
        let mut all = before.map(attached_volumes).unwrap_or_default().iter();
        all.any(|was| was.attachment == volume.attachment && was.error == volume.error)
    };
    let failed = attached_volumes(now).iter().filter(|volume| volume.error.is_some() && !known(volume));
    failed.map(attached_volume).collect()
}

fn ended_block(what: &str, pod: &PodReference) -> Line {
    Line::default().with(Style::Good, what).and(format!(" {pod}"))
}

/// Whether the headline has `lastError`.
fn is_in_headline(maintenance: &NodeMaintenance) -> bool {
    matches!(State::of(maintenance), State::Queued | State::Failed)
}

/// Whether `lastError` only names the blocked pods, each of which has a line.
fn only_names_blocked_pods(maintenance: &NodeMaintenance) -> bool {
    condition(maintenance, ConditionType::Drained)
        .is_some_and(|drained| ConditionReason::of(drained) == Some(ConditionReason::Blocked))
}

fn became_degraded(before: Option<&NodeMaintenance>, now: &NodeMaintenance) -> Option<Line> {
    // Without a message, `lastError` has it.
    let condition = degraded(now).filter(|condition| !condition.message.is_empty())?;
    let is_reported = before.and_then(degraded).is_some_and(|was| was.message == condition.message);
    (!is_reported).then(|| Line::default().with(Style::Bad, "degraded").and(": ").and(&condition.message))
}

#[cfg(test)]
#[path = "change_lines_tests.rs"]
mod tests;
