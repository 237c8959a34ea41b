//! Pods that the drain leaves to terminate on their own, and that may never do that: nothing restarts their drain, and the status
//! counts them as waiting.

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use nm_shared::cluster::pod::reference_in;
use nm_shared::{NodeMaintenance, WaitReason, WaitingPod};

use crate::client::pod_limit::PodLimit;
use crate::client::pod_problem::{container_statuses, is_restarted_forever};
use crate::explain::cause::{Cause, few, few_of};
use crate::explain::cause_wording::tell_counted;
use crate::explain::cluster_facts::{ClusterFacts, ReadPod};
use crate::explain::first_cause::{ChainEnd, FirstCause, Subject, stuck_replacements};
use crate::explain::obstacle::Obstacle;
use crate::explain::owner::{OwnerKind, job_of};
use crate::explain::remedy::patch_drain;
use crate::explain::told_alone::ToldAlone;
use crate::terminal::command_context::shell_quoted;
use crate::terminal::text::{counted, first_names};

/// Evicts all pods that the drain waits for.
pub(super) const EVICT_ALL: &str = "{\"waitForCompletion\":null}";

/// Why an awaited pod may never terminate on its own.
enum Endless {
    RestartedForever,
    NotRunning,
}

impl Endless {
    /// Why it may not; none if it runs, starts or terminates.
    fn of(ReadPod { pod, warnings }: &ReadPod, limit: Option<PodLimit>, now: Timestamp) -> Option<Self> {
        use Obstacle::{ContainerCreation, CrashLoop, Ended, Image, Sandbox, Terminating, Volume};
        match Obstacle::of(pod, warnings, now) {
            Some(Ended(_) | Terminating) => None,
            _ if is_restarted_forever(pod) => Some(Self::RestartedForever),
            // It terminates in any case.
            _ if limit.is_some() => None,
            Some(Image { .. } | CrashLoop { .. } | ContainerCreation { .. } | Volume(_) | Sandbox(_)) => {
                Some(Self::NotRunning)
            }
            _ => None,
        }
    }
}

/// What ends an awaited pod in any case, if anything does, as far as that is known.
fn limit(pod: &Pod, facts: &ClusterFacts, now: Timestamp) -> Option<PodLimit> {
    PodLimit::of(pod, job_of(pod).and_then(|job| facts.awaited_jobs.get(&job)), now)
}

/// Which of these pods end in any case, and when, a sentence for each kind of limit.
pub(super) fn limits(pods: &[&WaitingPod], facts: &ClusterFacts, now: Timestamp) -> Vec<String> {
    let (mut last, mut by_deadline, mut by_restarts) = (Timestamp::MIN, Vec::new(), Vec::new());
    for pod in pods.iter().map(|pod| pod.reference()) {
        let read = facts.awaited.get(&pod);
        match read.and_then(|read| limit(&read.pod, facts, now)) {
            Some(PodLimit::Deadline(Some(end))) if end > now => {
                last = last.max(end);
                by_deadline.push(pod.to_string());
            }
            Some(PodLimit::Restarts(limit)) => by_restarts.push(format!(
                "The containers of {pod} keep failing: its Job fails after {} (backoffLimit), and terminates it.",
                counted(usize::try_from(limit).unwrap_or(0), "restart")
            )),
            Some(PodLimit::Deadline(_)) | None => {}
        }
    }
    let deadline = match by_deadline.as_slice() {
        [] => None,
        [only] => Some(format!("{only} is terminated at {last} at the latest (activeDeadlineSeconds).")),
        several => Some(format!(
            "{} are terminated by {last} at the latest (activeDeadlineSeconds).",
            first_names(several)
        )),
    };
    deadline.into_iter().chain(few(by_restarts)).collect()
}

/// Takes those of these pods that may never terminate on their own: a cause for each reason.
pub(super) fn take(
    pods: &mut Vec<&WaitingPod>,
    maintenance: &NodeMaintenance,
    alone: ToldAlone<'_>,
    facts: &ClusterFacts,
    kubectl: &str,
    now: Timestamp,
) -> Vec<Cause> {
    let read = |pod: &WaitingPod| facts.awaited.get(&pod.reference());
    let why = |pod: &WaitingPod| {
        let read = read(pod)?;
        Endless::of(read, limit(&read.pod, facts, now), now)
    };
    let restarted: Vec<&WaitingPod> =
        pods.iter().copied().filter(|pod| matches!(why(pod), Some(Endless::RestartedForever))).collect();
    let stuck: Vec<&WaitingPod> =
        pods.iter().copied().filter(|pod| matches!(why(pod), Some(Endless::NotRunning))).collect();
    pods.retain(|pod| why(pod).is_none());
    let mut causes = Vec::new();
    if !restarted.is_empty() {
        let is_all = stuck.is_empty() && pods.is_empty();
        causes.push(restarted_forever(&restarted, is_all, maintenance, kubectl));
    }
    for part in alone.split(stuck, |pod| pod.reference()) {
        causes.extend(not_running(&part, maintenance, facts, kubectl, now));
    }
    causes
}

/// The pods whose containers are restarted. `is_all`: whether the drain waits for no others.
fn restarted_forever(
    pods: &[&WaitingPod],
    is_all: bool,
    maintenance: &NodeMaintenance,
    kubectl: &str,
) -> Cause {
    let name = maintenance.name_any();
    let completing = WaitReason::Completing.as_str();
    let (advice, command) = if is_all {
        ("To evict the pods, remove the setting", patch_drain(kubectl, &name, EVICT_ALL))
    } else {
        (
            "To evict these pods, and wait for the others, exclude them in spec.drain.waitForCompletion.podSelector",
            format!("{kubectl} edit nm {}", shell_quoted(&name)),
        )
    };
    Cause {
        what: vec![format!(
            "The drain waits for pods to terminate on their own ({completing}) that never do: their containers are restarted \
             (restartPolicy Always)."
        )],
        advice: String::from(advice),
        commands: vec![command],
        ..about(pods)
    }
}

/// The pods that do not run, by the reason.
fn not_running(
    pods: &[&WaitingPod],
    maintenance: &NodeMaintenance,
    facts: &ClusterFacts,
    kubectl: &str,
    now: Timestamp,
) -> Vec<Cause> {
    let read: Vec<&ReadPod> = pods.iter().filter_map(|pod| facts.awaited.get(&pod.reference())).collect();
    let ends = stuck_replacements(read.iter().map(|read| (&read.pod, read.warnings.as_slice())), facts, now);
    let completing = WaitReason::Completing.as_str();
    // What a pod of a silent node does is not known.
    let is_known = |end: &ChainEnd| !matches!(end.cause, FirstCause::OtherPods(Obstacle::SilentNode(_)));
    let cause = |end| {
        let (told, left_out) = tell_counted(&end, maintenance, facts, kubectl, now);
        let is_of = |pod: &Pod| end.subjects.iter().any(|subject| subject.pod == reference_in(&pod.metadata));
        let have_run = read.iter().any(|read| is_of(&read.pod) && has_run(&read.pod));
        let waiting: Vec<&WaitingPod> = pods
            .iter()
            .copied()
            .filter(|pod| end.subjects.iter().any(|subject| subject.pod == pod.reference()))
            .collect();
        let delete = |subject: &Subject| {
            let (namespace, name) = (shell_quoted(&subject.pod.namespace), shell_quoted(&subject.pod.name));
            format!("{kubectl} -n {namespace} delete pod {name}")
        };
        let (deletes, kept) = few_of(end.subjects.iter().map(delete));
        let waits = format!(
            "The drain waits for pods to terminate on their own ({completing}), and these do not run."
        );
        Cause {
            what: [waits].into_iter().chain(told.what).collect(),
            advice: format!("{}. {}", told.advice, evict_now(&end.subjects, have_run)),
            commands: told.commands.into_iter().chain(deletes).collect(),
            left_out: left_out.into_iter().chain(kept).collect(),
            ..about(&waiting)
        }
    };
    ends.into_iter().filter(is_known).map(cause).collect()
}

/// What is lost if pods that do not run are deleted, and what becomes of them.
fn evict_now(pods: &[Subject], have_run: bool) -> String {
    let is_one = pods.len() == 1;
    let lost = match (have_run, is_one) {
        (false, true) => "None of its containers has ever started, so no work is lost without it: ",
        (false, false) => "None of their containers has ever started, so no work is lost without them: ",
        (true, _) => "",
    };
    let is_of_job = |pod: &Subject| pod.owner.as_ref().is_some_and(|owner| *owner.kind() == OwnerKind::Job);
    let then = if pods.iter().all(is_of_job) {
        "the Job counts a deleted pod as failed, and creates another one elsewhere unless it has failed too often"
    } else {
        "a controller creates another one elsewhere, and without a controller it is gone"
    };
    let pod = if is_one { "the pod" } else { "the pods" };
    let to = if lost.is_empty() { "To" } else { "to" };
    format!("{lost}{to} continue the drain, delete {pod}; {then}")
}

/// Whether a container of a pod has ever started.
fn has_run(pod: &Pod) -> bool {
    container_statuses(pod).any(|container| {
        let current = container.state.as_ref();
        let runs = current.is_some_and(|state| state.running.is_some() || state.terminated.is_some());
        let ran = container.last_state.as_ref().is_some_and(|last| last.terminated.is_some());
        runs || ran || container.restart_count > 0
    })
}

fn about(pods: &[&WaitingPod]) -> Cause {
    Cause {
        pods: pods.iter().map(|pod| pod.reference().to_string()).collect(),
        ..Cause::of_times(pods.iter().map(|pod| pod.since.0))
    }
}
