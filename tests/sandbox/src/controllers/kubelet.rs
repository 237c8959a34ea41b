//! The kubelets of all nodes: they start the pods that are bound to their node, and end those that are deleted.
//!
//! A pod that starts takes `start`, one that ends takes `stop` but never longer than its grace. A node that is not
//! Ready confirms nothing: what is due on it waits until the node is Ready again. What a pod's annotations can change
//! for the sake of a test is in [`annotations`].

use std::collections::{BTreeSet, HashMap};
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use serde_json::Value;

use crate::condition;
use crate::duration;
use crate::pod;
use crate::registry::{self, Propagation};
use crate::resource::{NODES, PODS};
use crate::store::{Change, Collection, Key, Object};

use super::controller::{Controller, Next, Watches};
use super::desk::Desk;
use super::event::{Author, Event};
use super::pod_status;
use super::timeline::Timeline;

/// Annotations by which a pod tells its kubelet to be difficult.
pub mod annotations {
    /// The pod runs, but its Ready condition stays false while the annotation is there.
    pub const NEVER_READY: &str = "kube-sandbox.dev/never-ready";
    /// The pod uses all of its grace to end.
    pub const IGNORE_TERMINATION: &str = "kube-sandbox.dev/ignore-termination";
    /// How long this pod takes to start, as in `5s`.
    pub const START_DELAY: &str = "kube-sandbox.dev/start-delay";
    /// How long this pod takes to end, if its grace allows it.
    pub const STOP_DELAY: &str = "kube-sandbox.dev/stop-delay";
    /// How long after its start the pod succeeds by itself.
    pub const RUN_FOR: &str = "kube-sandbox.dev/run-for";
    /// What this pod's containers have logged.
    pub const LOG: &str = "kube-sandbox.dev/log";
}

/// How long pods take.
#[derive(Debug, Clone, Copy)]
pub struct Pace {
    /// From bound to Ready.
    pub start: Duration,
    /// From deleted to gone.
    pub stop: Duration,
}

/// What a kubelet is about to do to a pod.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Errand {
    /// Say that it runs, and whether it is Ready.
    Report,
    /// Say that it has succeeded.
    Finish,
    /// Confirm that it has ended.
    End,
}

/// All kubelets.
#[derive(Debug)]
pub(crate) struct Kubelets {
    pace: Pace,
    /// Pods that may need something else than before.
    changed: BTreeSet<Key>,
    errands: Timeline<Errand>,
    /// Pods with something due on nodes that are not Ready, by node.
    parked: HashMap<String, BTreeSet<Key>>,
    addresses: u32,
}

impl Kubelets {
    /// Kubelets that have no pods yet.
    pub(crate) fn new(pace: Pace) -> Self {
        Self {
            pace,
            changed: BTreeSet::new(),
            errands: Timeline::default(),
            parked: HashMap::new(),
            addresses: 0,
        }
    }

    fn plan(&mut self, desk: &mut Desk<'_>, pod: &Value) {
        let key = Key::of(pod);
        let Some((errand, wait)) = self.errand(pod, desk.now) else {
            self.errands.cancel(&key);
            return;
        };
        let at = desk.now.saturating_add(wait).unwrap_or(Timestamp::MAX);
        let is_new = self.errands.plan(key, pod::uid(pod), errand, at);
        if is_new && errand == Errand::End {
            tell(desk, pod, "Killing");
        }
    }

    /// What the pod needs next, and how long that takes.
    fn errand(&self, pod: &Value, now: Timestamp) -> Option<(Errand, SignedDuration)> {
        pod::node(pod)?;
        if pod::is_terminating(pod) {
            // At zero its end is confirmed, and only finalizers hold the object.
            let grace = pod["metadata"]["deletionGracePeriodSeconds"].as_i64().filter(|grace| *grace > 0)?;
            return Some((Errand::End, self.stop_delay(pod, grace, now)));
        }
        if pod::is_finished(pod) {
            return None;
        }
        if pod::phase(pod) != "Running" || pod::is_ready(pod) != should_be_ready(pod) {
            return Some((Errand::Report, delay(pod, annotations::START_DELAY, self.pace.start)));
        }
        pod::annotation(pod, annotations::RUN_FOR)?;
        Some((Errand::Finish, delay(pod, annotations::RUN_FOR, Duration::ZERO)))
    }

    fn stop_delay(&self, pod: &Value, grace: i64, now: Timestamp) -> SignedDuration {
        if pod::annotation(pod, annotations::IGNORE_TERMINATION).is_none() {
            let own = delay(pod, annotations::STOP_DELAY, self.pace.stop);
            return own.min(SignedDuration::from_secs(grace));
        }
        let ends_at = pod["metadata"]["deletionTimestamp"].as_str();
        let ends_at = ends_at.and_then(|at| at.parse::<Timestamp>().ok());
        // Deletion timestamps are cut off to whole seconds; what was cut off is the pod's still.
        let left = ends_at.map_or(SignedDuration::ZERO, |at| at.duration_since(now));
        let cut = SignedDuration::from_secs(i64::from(left.subsec_nanos() > 0));
        SignedDuration::from_secs(left.as_secs()).saturating_add(cut).max(SignedDuration::ZERO)
    }

    fn carry_out(&mut self, desk: &mut Desk<'_>, key: Key, uid: &str, errand: Errand) {
        let Some(pod) = desk.get(&PODS, &key).filter(|pod| pod::uid(pod) == uid) else {
            return;
        };
        let name = pod::node(&pod).unwrap_or_default();
        let Some(node) = desk.get(&NODES, &Key::cluster(name)).filter(|node| is_up(node)) else {
            self.parked.entry(name.to_owned()).or_default().insert(key);
            return;
        };
        match errand {
            Errand::Report => self.report(desk, &pod, &node),
            Errand::Finish => {
                let now = desk.now;
                desk.edit_status(&PODS, &pod, |pod| pod_status::succeed(pod, now));
            }
            Errand::End => end(desk, &pod),
        }
    }

    fn report(&mut self, desk: &mut Desk<'_>, pod: &Object, node: &Value) {
        self.addresses += 1;
        let (address, now) = (self.addresses, desk.now);
        if pod::phase(pod) != "Running" {
            tell(desk, pod, "Started");
        }
        desk.edit_status(&PODS, pod, |pod| {
            let ready = should_be_ready(pod);
            pod_status::run(pod, node, address, ready, now);
        });
    }
}

/// Says what happens to each container, unless the node is not heard of.
fn tell(desk: &mut Desk<'_>, pod: &Value, reason: &'static str) {
    let node = pod::node(pod).unwrap_or_default();
    if !desk.get(&NODES, &Key::cluster(node)).is_some_and(|node| is_up(&node)) {
        return;
    }
    for container in pod["spec"]["containers"].as_array().into_iter().flatten() {
        let name = container["name"].as_str().unwrap_or_default();
        let message = match reason {
            "Killing" => format!("Stopping container {name}"),
            _ => "Container started".to_owned(),
        };
        desk.tell(&Event { author: Author::Kubelet(node, name), about: pod, reason, message });
    }
}

fn should_be_ready(pod: &Value) -> bool {
    pod::annotation(pod, annotations::NEVER_READY).is_none()
}

fn delay(pod: &Value, annotation: &str, default: Duration) -> SignedDuration {
    let own = pod::annotation(pod, annotation).and_then(|text| duration::parse(text).ok());
    SignedDuration::try_from(own.unwrap_or(default)).unwrap_or(SignedDuration::MAX)
}

fn is_up(node: &Value) -> bool {
    condition::is_true(&node["status"], "Ready")
}

/// Confirms a pod's end: the object goes, or stays for its finalizers with a status that says that it has ended.
fn end(desk: &mut Desk<'_>, pod: &Object) {
    let mut ended = pod.clone();
    if !registry::finalizers(pod).is_empty() && !pod::is_finished(pod) {
        let now = desk.now;
        let Some(written) = desk.edit_status(&PODS, pod, |pod| pod_status::succeed(pod, now)) else {
            return;
        };
        ended = written;
    }
    desk.delete(&PODS, &ended, Some(0), Propagation::Background);
}

impl Controller for Kubelets {
    fn watches(&self) -> Watches {
        const WATCHED: &[Collection] = &[NODES, PODS];
        Watches::These(WATCHED)
    }

    fn forget(&mut self, _: &Collection) {
        // Every errand is checked against the pod when it is due.
    }

    fn observe(&mut self, collection: &Collection, change: &Change) {
        let Some(object) = change.after.as_ref().or(change.before.as_ref()) else {
            return;
        };
        if *collection == PODS {
            self.changed.insert(Key::of(object));
        } else if change.after.is_some() && is_up(object) {
            let waiting = self.parked.remove(pod::name(object));
            self.changed.extend(waiting.into_iter().flatten());
        }
    }

    fn act(&mut self, desk: &mut Desk<'_>) -> Next {
        for key in std::mem::take(&mut self.changed) {
            match desk.get(&PODS, &key) {
                Some(pod) => self.plan(desk, &pod),
                None => self.errands.cancel(&key),
            }
        }
        while let Some((key, uid, errand)) = self.errands.pop(desk.now) {
            self.carry_out(desk, key, &uid, errand);
            if desk.is_full() {
                break;
            }
        }
        Next::at(self.errands.next_at())
    }
}
