//! The Job controller: it creates pods until enough of them have succeeded. A pod that is deleted before it succeeds
//! is replaced and counts as a failure, unless the job itself deleted it to run fewer.
//!
//! After each failure it waits longer before it creates the next pod: as `backoff_utils.go` in Kubernetes, but from when a failure is
//! observed, and a success that is observed together with failures counts as the last.

use std::collections::{BTreeSet, HashMap};
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use crate::cluster::catalog::resource::{JOBS, PODS};
use crate::cluster::registry::Propagation;
use crate::cluster::store::{Change, Collection, Key, Object};
use crate::controllers::engine::context::ReconcileContext;
use crate::controllers::engine::controller::{Controller, Requeue, Watches, sync_queue};
use crate::controllers::engine::delay_queue::DelayQueue;
use crate::controllers::event::Event;
use crate::controllers::workloads::owned_pods::OwnedPods;
use crate::controllers::workloads::pod_template::{self, PodName};
use crate::model::clock::metav1_time;
use crate::model::{condition, pod};

/// The longest wait is this many times the first one: in Kubernetes, ten minutes and ten seconds.
const LONGEST_WAIT: u32 = 60;

/// The finished pods of a job, including those that are gone.
#[derive(Debug, Default)]
struct Finished {
    succeeded: BTreeSet<String>,
    failed: BTreeSet<String>,
    /// The pods that the job itself deleted.
    let_go: BTreeSet<String>,
    backoff: Backoff,
}

/// The failures since the last success.
#[derive(Debug, Default)]
struct Backoff {
    /// How many pods have succeeded and failed so far.
    seen: (usize, usize),
    failures: usize,
    last_failure: Timestamp,
}

impl Backoff {
    fn observe(&mut self, succeeded: usize, failed: usize, now: Timestamp) {
        if succeeded > self.seen.0 {
            self.failures = 0;
        } else if failed > self.seen.1 {
            self.failures += failed - self.seen.1;
            self.last_failure = now;
        }
        self.seen = (succeeded, failed);
    }

    /// When the next pod may be created; `first` is the wait after one failure.
    fn ends(&self, first: Duration) -> Option<Timestamp> {
        let doublings = u32::try_from(self.failures.checked_sub(1)?).unwrap_or(u32::MAX);
        let times = 2_u32.saturating_pow(doublings).min(LONGEST_WAIT);
        let wait = SignedDuration::try_from(first.saturating_mul(times)).unwrap_or(SignedDuration::MAX);
        Some(self.last_failure.saturating_add(wait).unwrap_or(Timestamp::MAX))
    }
}

impl Finished {
    /// Counts a pod once when it has finished or will not finish any more. One that runs again does not count: etcd was
    /// restored from a backup of before its end.
    fn count(&mut self, pod: &Value, is_gone: bool) {
        let uid = pod::uid(pod);
        if pod::is_active(pod) && !is_gone {
            for known in [&mut self.succeeded, &mut self.failed, &mut self.let_go] {
                known.remove(uid);
            }
            return;
        }
        if [&self.succeeded, &self.failed, &self.let_go].iter().any(|known| known.contains(uid)) {
            return;
        }
        match pod::phase(pod) {
            "Succeeded" => self.succeeded.insert(uid.to_owned()),
            "Failed" => self.failed.insert(uid.to_owned()),
            _ if is_gone || pod::is_terminating(pod) => self.failed.insert(uid.to_owned()),
            _ => return,
        };
    }
}

/// The Job controller.
#[derive(Debug)]
pub(crate) struct Jobs {
    pods: OwnedPods,
    finished: HashMap<String, Finished>,
    /// How long to wait after a first failure.
    backoff: Duration,
    /// The jobs that wait.
    delayed: DelayQueue<()>,
}

impl Jobs {
    /// A controller that has seen nothing yet, and waits for `backoff` after the first failure of a job.
    pub(crate) fn new(backoff: Duration) -> Self {
        let (finished, delayed) = (HashMap::new(), DelayQueue::default());
        Self { pods: OwnedPods::of_kind("Job"), finished, backoff, delayed }
    }

    fn reconcile(&mut self, ctx: &mut ReconcileContext<'_>, key: Key) {
        let Some(job) = ctx.get(&JOBS, &key) else {
            return;
        };
        let pods = self.pods.objects(ctx, &job);
        let finished = self.finished.entry(pod::uid(&job).to_owned()).or_default();
        for pod in &pods {
            finished.count(pod, false);
        }
        let (succeeded, failed) = (finished.succeeded.len(), finished.failed.len());
        finished.backoff.observe(succeeded, failed, ctx.now);
        let outcome = outcome(&job, succeeded, failed);
        let active: Vec<&Object> = pods.iter().filter(|pod| pod::is_active(pod)).collect();
        let suspended = job["spec"]["suspend"] == true;
        let wanted = if outcome.is_some() || suspended {
            0
        } else {
            number(&job, "parallelism", 1).min(number(&job, "completions", 1).saturating_sub(succeeded))
        };
        let waits = finished.backoff.ends(self.backoff).filter(|end| active.len() < wanted && *end > ctx.now);
        if let Some(end) = waits {
            self.delayed.plan(key.clone(), pod::uid(&job), (), end);
        }
        if !pod::is_terminating(&job) {
            let missing = if waits.is_some() { 0 } else { wanted.saturating_sub(active.len()) };
            for _ in 0..missing {
                if ctx.is_full() {
                    self.pods.again(key);
                    break;
                }
                let Some(pod) = ctx.create(&PODS, pod_of(&job)) else {
                    break;
                };
                ctx.record(&Event::created("job-controller", &job, &pod));
            }
            for pod in active.iter().skip(wanted) {
                if outcome.is_none() {
                    finished.let_go.insert(pod::uid(pod).to_owned());
                }
                ctx.delete(&PODS, pod, None, Propagation::Background);
            }
        }
        report(ctx, &job, &active, (succeeded, failed), outcome);
    }
}

fn pod_of(job: &Value) -> Value {
    let mut pod = pod_template::pod(job, PodName::Generated);
    let labels = &mut pod["metadata"]["labels"];
    for prefix in ["batch.kubernetes.io/", ""] {
        labels[format!("{prefix}job-name")] = json!(pod::name(job));
        labels[format!("{prefix}controller-uid")] = json!(pod::uid(job));
    }
    pod
}

/// The condition of a job that has ended.
fn outcome(job: &Value, succeeded: usize, failed: usize) -> Option<&'static str> {
    if succeeded >= number(job, "completions", 1) {
        Some("Complete")
    } else if failed > number(job, "backoffLimit", 6) {
        Some("Failed")
    } else {
        None
    }
}

fn number(job: &Value, field: &str, default: usize) -> usize {
    let number = job["spec"][field].as_u64();
    number.map_or(default, |number| usize::try_from(number).unwrap_or(usize::MAX))
}

fn report(
    ctx: &mut ReconcileContext<'_>,
    job: &Object,
    active: &[&Object],
    (succeeded, failed): (usize, usize),
    outcome: Option<&'static str>,
) {
    let now = ctx.now;
    let ready = active.iter().filter(|pod| pod::is_ready(pod)).count();
    ctx.edit_status(&JOBS, job, |job| {
        let status = &mut job["status"];
        status["active"] = json!(active.len());
        status["ready"] = json!(ready);
        status["succeeded"] = json!(succeeded);
        status["failed"] = json!(failed);
        if !status["startTime"].is_string() {
            status["startTime"] = json!(metav1_time(now));
        }
        if let Some(kind) = outcome
            && !condition::is_true(status, kind)
        {
            condition::set(status, json!({"type": kind, "status": "True"}), now);
            if kind == "Complete" {
                status["completionTime"] = json!(metav1_time(now));
            }
        }
    });
}

impl Controller for Jobs {
    fn watches(&self) -> Watches {
        const WATCHED: &[Collection] = &[JOBS, PODS];
        Watches::These(WATCHED)
    }

    fn forget(&mut self, collection: &Collection) {
        self.pods.forget(collection);
    }

    fn observe(&mut self, collection: &Collection, change: &Change) {
        if *collection == PODS {
            self.pods.observe_pod(change);
            // Without a grace period the pod is never seen terminating.
            if let (Some(pod), None) = (&change.before, &change.after)
                && let Some(owner) = pod::controller(pod).and_then(|owner| owner["uid"].as_str())
                && let Some(finished) = self.finished.get_mut(owner)
            {
                finished.count(pod, true);
            }
            return;
        }
        self.pods.observe_owner(change);
        if let (Some(job), None) = (&change.before, &change.after) {
            self.finished.remove(pod::uid(job));
        }
    }

    fn sync(&mut self, ctx: &mut ReconcileContext<'_>) -> Requeue {
        while let Some((key, ..)) = self.delayed.pop(ctx.now) {
            self.pods.again(key);
        }
        match sync_queue(self, ctx, |this| this.pods.next(), Self::reconcile) {
            Requeue::Change => Requeue::at(self.delayed.next_at()),
            more => more,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_failure_doubles_the_wait_up_to_a_limit_and_a_success_ends_it() {
        let (first, at) = (Duration::from_secs(10), |seconds| Timestamp::from_second(seconds).unwrap());
        let mut backoff = Backoff::default();
        assert_eq!(backoff.ends(first), None);
        for (failed, wait) in [(1, 10), (2, 20), (3, 40), (4, 80), (5, 160), (6, 320), (7, 600), (99, 600)] {
            backoff.observe(0, failed, at(5));
            backoff.observe(0, failed, at(7));
            assert_eq!(backoff.ends(first), Some(at(5 + wait)), "after {failed} failures");
        }
        backoff.observe(1, 99, at(9));
        assert_eq!(backoff.ends(first), None);
        backoff.observe(1, 101, at(9));
        assert_eq!(backoff.ends(first), Some(at(29)), "two at once");
    }

    #[test]
    fn a_pod_that_a_restore_of_etcd_has_brought_back_does_not_count() {
        let pod = |phase: &str| json!({"metadata": {"uid": "a"}, "status": {"phase": phase}});
        let mut finished = Finished::default();
        for (phase, succeeded) in [("Running", 0), ("Succeeded", 1), ("Running", 0), ("Succeeded", 1)] {
            finished.count(&pod(phase), false);
            assert_eq!(finished.succeeded.len(), succeeded, "{phase}");
        }
    }
}
