//! The kubelets of all nodes: they start the pods that are bound to their node and terminate those that are deleted.
//!
//! Starting a pod takes `start`, terminating one takes `stop`, but never longer than its grace period. The kubelet of a
//! node that is not Ready or that reboots reports nothing; what is due waits until the node is Ready again.
//! [`annotations`] on a pod or a node change what its kubelet does.

use std::collections::{BTreeSet, HashMap};
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use serde_json::Value;

use crate::cluster::catalog::resource::{NODES, PODS};
use crate::cluster::registry::{self, Propagation};
use crate::cluster::store::{Change, Collection, Key, Object};
use crate::controllers::engine::context::ReconcileContext;
use crate::controllers::engine::controller::{Controller, Requeue, Watches};
use crate::controllers::engine::delay_queue::DelayQueue;
use crate::controllers::event::{Author, Event};
use crate::controllers::nodes::pod_status::{self, StartFailure};
use crate::controllers::nodes::reboot::Reboots;
use crate::model::{duration, node, pod};

/// Annotations on a pod or a node that change what its kubelet does.
pub mod annotations {
    pub use crate::model::node::{NEVER, REBOOT};

    /// The pod runs but is not Ready while it has the annotation.
    pub const NEVER_READY: &str = "kube-sandbox.dev/never-ready";
    /// The images of the pod's containers cannot be pulled while it has the annotation.
    pub const IMAGE_MISSING: &str = "kube-sandbox.dev/image-missing";
    /// The pod's containers exit with this code, and are restarted as its restart policy says, while it has the annotation.
    pub const EXIT_CODE: &str = "kube-sandbox.dev/exit-code";
    /// The pod terminates only at the end of its grace period.
    pub const IGNORE_TERMINATION: &str = "kube-sandbox.dev/ignore-termination";
    /// How long the pod takes to start, such as `5s`.
    pub const START_DELAY: &str = "kube-sandbox.dev/start-delay";
    /// How long the pod takes to terminate, at most its grace period.
    pub const STOP_DELAY: &str = "kube-sandbox.dev/stop-delay";
    /// How long after its start the pod succeeds.
    pub const RUN_FOR: &str = "kube-sandbox.dev/run-for";
    /// The log of the pod's containers.
    pub const LOG: &str = "kube-sandbox.dev/log";
}

/// How long pods take to start and to terminate.
#[derive(Debug, Clone, Copy)]
pub struct Pace {
    /// From binding to Ready.
    pub start: Duration,
    /// From deletion to removal.
    pub stop: Duration,
}

/// What a kubelet will do to a pod.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum PodTask {
    /// Report that it runs, and whether it is Ready.
    Report,
    /// Report that it has succeeded.
    Finish,
    /// Remove it, since it has terminated.
    End,
}

/// All kubelets.
#[derive(Debug)]
pub(crate) struct Kubelets {
    pace: Pace,
    /// Pods to reconcile.
    changed: BTreeSet<Key>,
    tasks: DelayQueue<PodTask>,
    /// Pods with tasks that are due, on nodes that are not Ready, by node.
    parked: HashMap<String, BTreeSet<Key>>,
    reboots: Reboots,
    addresses: u32,
}

impl Kubelets {
    /// Kubelets without pods.
    pub(crate) fn new(pace: Pace) -> Self {
        Self {
            pace,
            changed: BTreeSet::new(),
            tasks: DelayQueue::default(),
            parked: HashMap::new(),
            reboots: Reboots::default(),
            addresses: 0,
        }
    }

    fn plan(&mut self, ctx: &mut ReconcileContext<'_>, pod: &Value) {
        let key = Key::of(pod);
        let Some((task, wait)) = self.task(pod, ctx.now) else {
            self.tasks.cancel(&key);
            return;
        };
        let at = ctx.now.saturating_add(wait).unwrap_or(Timestamp::MAX);
        let is_new = self.tasks.plan(key, pod::uid(pod), task, at);
        if is_new && task == PodTask::End {
            self.record(ctx, pod, "Killing");
        }
    }

    /// The pod's next task, and when it is due.
    fn task(&self, pod: &Value, now: Timestamp) -> Option<(PodTask, SignedDuration)> {
        pod::node(pod)?;
        if pod::is_terminating(pod) {
            // With a grace period of zero the pod is removed, and only finalizers keep the object.
            let grace = pod["metadata"]["deletionGracePeriodSeconds"].as_i64().filter(|grace| *grace > 0)?;
            return Some((PodTask::End, self.stop_delay(pod, grace, now)));
        }
        if pod::is_finished(pod) {
            return None;
        }
        let is_as_reported = match start_failure(pod) {
            Some(failure) => pod_status::shows(pod, failure),
            None => pod::phase(pod) == "Running" && pod::is_ready(pod) == should_be_ready(pod),
        };
        if !is_as_reported || pod_status::has_ended_container(pod) {
            return Some((PodTask::Report, delay(pod, annotations::START_DELAY, self.pace.start)));
        }
        pod::annotation(pod, annotations::RUN_FOR).filter(|_| start_failure(pod).is_none())?;
        Some((PodTask::Finish, delay(pod, annotations::RUN_FOR, Duration::ZERO) - ran_for(pod, now)))
    }

    fn stop_delay(&self, pod: &Value, grace: i64, now: Timestamp) -> SignedDuration {
        if pod::annotation(pod, annotations::IGNORE_TERMINATION).is_none() {
            let own = delay(pod, annotations::STOP_DELAY, self.pace.stop);
            return own.min(SignedDuration::from_secs(grace));
        }
        let ends_at = pod["metadata"]["deletionTimestamp"].as_str();
        let ends_at = ends_at.and_then(|at| at.parse::<Timestamp>().ok());
        // Deletion timestamps are rounded down to seconds; the fraction is part of the grace period.
        let left = ends_at.map_or(SignedDuration::ZERO, |at| at.duration_since(now));
        let cut = SignedDuration::from_secs(i64::from(left.subsec_nanos() > 0));
        SignedDuration::from_secs(left.as_secs()).saturating_add(cut).max(SignedDuration::ZERO)
    }

    fn carry_out(&mut self, ctx: &mut ReconcileContext<'_>, key: Key, uid: &str, task: PodTask) {
        let Some(pod) = ctx.get(&PODS, &key).filter(|pod| pod::uid(pod) == uid) else {
            return;
        };
        let name = pod::node(&pod).unwrap_or_default();
        let Some(node) = ctx.get(&NODES, &Key::cluster(name)).filter(|node| self.is_up(node)) else {
            self.parked.entry(name.to_owned()).or_default().insert(key);
            return;
        };
        match task {
            PodTask::Report => self.report(ctx, &pod, &node),
            PodTask::Finish => {
                let now = ctx.now;
                ctx.edit_status(&PODS, &pod, |pod| pod_status::succeed(pod, now));
            }
            PodTask::End => end(ctx, &pod),
        }
    }

    fn report(&mut self, ctx: &mut ReconcileContext<'_>, pod: &Object, node: &Value) {
        self.addresses += 1;
        let (address, now) = (self.addresses, ctx.now);
        if let Some(code) = final_exit(pod) {
            self.record(ctx, pod, "Started");
            ctx.edit_status(&PODS, pod, |pod| {
                pod_status::run(pod, node, address, false, now);
                pod_status::exit(pod, code, now);
            });
            return;
        }
        if let Some(failure) = start_failure(pod) {
            ctx.edit_status(&PODS, pod, |pod| pod_status::fail_to_start(pod, node, failure, now));
            return;
        }
        if pod::phase(pod) != "Running" || pod_status::has_ended_container(pod) {
            self.record(ctx, pod, "Started");
        }
        ctx.edit_status(&PODS, pod, |pod| {
            let ready = should_be_ready(pod);
            pod_status::run(pod, node, address, ready, now);
        });
    }

    /// Writes an event for each container, unless the node is unreachable.
    fn record(&self, ctx: &mut ReconcileContext<'_>, pod: &Value, reason: &'static str) {
        let node = pod::node(pod).unwrap_or_default();
        if !ctx.get(&NODES, &Key::cluster(node)).is_some_and(|node| self.is_up(&node)) {
            return;
        }
        for container in pod["spec"]["containers"].as_array().into_iter().flatten() {
            let name = container["name"].as_str().unwrap_or_default();
            let message = match reason {
                "Killing" => format!("Stopping container {name}"),
                _ => "Container started".to_owned(),
            };
            ctx.record(&Event { author: Author::Kubelet(node, name), about: pod, reason, message });
        }
    }

    /// Whether the kubelet of the node reports.
    fn is_up(&self, node: &Value) -> bool {
        node::is_ready(node) && !self.reboots.is_down(pod::name(node))
    }
}

/// What keeps the pod's containers from running.
fn start_failure(pod: &Value) -> Option<StartFailure> {
    let exit_code = pod::annotation(pod, annotations::EXIT_CODE).and_then(|code| code.parse().ok());
    let image = pod::annotation(pod, annotations::IMAGE_MISSING).map(|_| StartFailure::Image);
    image.or_else(|| exit_code.map(StartFailure::Exit))
}

/// The code with which the pod's containers exit, if they are not restarted then.
fn final_exit(pod: &Value) -> Option<i64> {
    let Some(StartFailure::Exit(code)) = start_failure(pod) else { return None };
    let is_final = match pod["spec"]["restartPolicy"].as_str() {
        Some("Never") => true,
        Some("OnFailure") => code == 0,
        _ => false,
    };
    is_final.then_some(code)
}

fn should_be_ready(pod: &Value) -> bool {
    pod::annotation(pod, annotations::NEVER_READY).is_none()
}

/// For how long the pod has run, at least: its start time has whole seconds.
fn ran_for(pod: &Value, now: Timestamp) -> SignedDuration {
    let started = pod["status"]["startTime"].as_str().and_then(|at| at.parse::<Timestamp>().ok());
    let ran = started.map_or(SignedDuration::ZERO, |started| now.duration_since(started));
    (ran - SignedDuration::from_secs(1)).max(SignedDuration::ZERO)
}

fn delay(pod: &Value, annotation: &str, default: Duration) -> SignedDuration {
    let own = pod::annotation(pod, annotation).and_then(|text| duration::parse(text).ok());
    SignedDuration::try_from(own.unwrap_or(default)).unwrap_or(SignedDuration::MAX)
}

/// Removes a terminated pod, or sets its status if finalizers keep it.
fn end(ctx: &mut ReconcileContext<'_>, pod: &Object) {
    let mut ended = pod.clone();
    if !registry::finalizers(pod).is_empty() && !pod::is_finished(pod) {
        let now = ctx.now;
        let Some(written) = ctx.edit_status(&PODS, pod, |pod| pod_status::succeed(pod, now)) else {
            return;
        };
        ended = written;
    }
    ctx.delete(&PODS, &ended, Some(0), Propagation::Background);
}

impl Controller for Kubelets {
    fn watches(&self) -> Watches {
        const WATCHED: &[Collection] = &[NODES, PODS];
        Watches::These(WATCHED)
    }

    fn forget(&mut self, _: &Collection) {
        // A task is checked against the pod when it is due.
    }

    fn observe(&mut self, collection: &Collection, change: &Change) {
        let Some(object) = change.after.as_ref().or(change.before.as_ref()) else {
            return;
        };
        if *collection == PODS {
            self.changed.insert(Key::of(object));
            return;
        }
        self.reboots.observe(change);
        if change.after.is_some() && self.is_up(object) {
            let waiting = self.parked.remove(pod::name(object));
            self.changed.extend(waiting.into_iter().flatten());
        }
    }

    fn sync(&mut self, ctx: &mut ReconcileContext<'_>) -> Requeue {
        self.reboots.sync(ctx, self.pace.start);
        for key in std::mem::take(&mut self.changed) {
            match ctx.get(&PODS, &key) {
                Some(pod) => self.plan(ctx, &pod),
                None => self.tasks.cancel(&key),
            }
        }
        while let Some((key, uid, task)) = self.tasks.pop(ctx.now) {
            self.carry_out(ctx, key, &uid, task);
            if ctx.is_full() {
                break;
            }
        }
        Requeue::at(self.tasks.next_at().into_iter().chain(self.reboots.next_at()).min())
    }
}
