//! Jobs: pods until enough of them have succeeded. A pod that is deleted while it runs is replaced and counts as
//! neither a success nor a failure.

use std::collections::{BTreeSet, HashMap};

use serde_json::{Value, json};

use crate::clock::metav1_time;
use crate::condition;
use crate::pod;
use crate::registry::Propagation;
use crate::resource::{JOBS, PODS};
use crate::store::{Change, Collection, Key, Object};

use super::controller::{Controller, Next, Watches};
use super::desk::Desk;
use super::event::Event;
use super::owned_pods::OwnedPods;
use super::pod_template::{self, PodName};

/// The pods of a job that have finished, whether or not they are still there.
#[derive(Debug, Default)]
struct Finished {
    succeeded: BTreeSet<String>,
    failed: BTreeSet<String>,
}

/// The Job controller.
#[derive(Debug)]
pub(crate) struct Jobs {
    pods: OwnedPods,
    finished: HashMap<String, Finished>,
}

impl Jobs {
    /// A controller that has seen nothing yet.
    pub(crate) fn new() -> Self {
        Self { pods: OwnedPods::of_kind("Job"), finished: HashMap::new() }
    }

    fn reconcile(&mut self, desk: &mut Desk<'_>, key: Key) {
        let Some(job) = desk.get(&JOBS, &key) else {
            return;
        };
        let pods = self.pods.objects(desk, &job);
        let finished = self.finished.entry(pod::uid(&job).to_owned()).or_default();
        for pod in &pods {
            match pod::phase(pod) {
                "Succeeded" => drop(finished.succeeded.insert(pod::uid(pod).to_owned())),
                "Failed" => drop(finished.failed.insert(pod::uid(pod).to_owned())),
                _ => {}
            }
        }
        let (succeeded, failed) = (finished.succeeded.len(), finished.failed.len());
        let outcome = outcome(&job, succeeded, failed);
        let active: Vec<&Object> = pods.iter().filter(|pod| pod::is_active(pod)).collect();
        let suspended = job["spec"]["suspend"] == true;
        let wanted = if outcome.is_some() || suspended {
            0
        } else {
            number(&job, "parallelism", 1).min(number(&job, "completions", 1).saturating_sub(succeeded))
        };
        if !pod::is_terminating(&job) {
            for _ in active.len()..wanted {
                if desk.is_full() {
                    self.pods.again(key);
                    break;
                }
                let Some(pod) = desk.create(&PODS, pod_template::pod(&job, PodName::Generated)) else {
                    break;
                };
                desk.tell(&Event::created("job-controller", &job, &pod));
            }
            for pod in active.iter().skip(wanted) {
                desk.delete(&PODS, pod, None, Propagation::Background);
            }
        }
        report(desk, &job, &active, (succeeded, failed), outcome);
    }
}

/// The condition with which a job ends, if it has.
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
    desk: &mut Desk<'_>,
    job: &Object,
    active: &[&Object],
    (succeeded, failed): (usize, usize),
    outcome: Option<&'static str>,
) {
    let now = desk.now;
    let ready = active.iter().filter(|pod| pod::is_ready(pod)).count();
    desk.edit_status(&JOBS, job, |job| {
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
            return;
        }
        self.pods.observe_owner(change);
        if let (Some(job), None) = (&change.before, &change.after) {
            self.finished.remove(pod::uid(job));
        }
    }

    fn act(&mut self, desk: &mut Desk<'_>) -> Next {
        while !desk.is_full() {
            let Some(key) = self.pods.next() else {
                return Next::Change;
            };
            self.reconcile(desk, key);
        }
        Next::now_if(self.pods.has_more())
    }
}
