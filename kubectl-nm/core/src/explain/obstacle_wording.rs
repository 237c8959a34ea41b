//! The words of what keeps pods from being Ready: a sentence, and what to do.

use std::collections::BTreeSet;

use jiff::Timestamp;
use nm_shared::cluster::node::Readiness;
use nm_shared::drain::pod_state::deadline_on;

use crate::args::duration::age;
use crate::explain::cause_wording::{RECENTLY, Words};
use crate::explain::first_cause::{Subject, are_counted_later};
use crate::explain::obstacle::Obstacle;
use crate::explain::remedy::never_ends;
use crate::terminal::command_context::shell_quoted;
use crate::terminal::shortened::{beginning, last_causes};
use crate::terminal::text::{counted, first_names};

/// A message at the end of a sentence, after a colon.
fn quoted(message: &str) -> String {
    if message.is_empty() { String::new() } else { format!(": {}", last_causes(message)) }
}

/// That a container exits again and again: `container app keeps exiting with exit code 7, 5 restarts so far`.
pub fn crash_loop_words(container: &str, exit_code: Option<i32>, reason: &str, restarts: i32) -> String {
    let code = exit_code.map_or_else(String::new, |code| format!(" with exit code {code}"));
    let reason = if reason.is_empty() { String::new() } else { format!(" ({reason})") };
    let restarts = counted(restarts, "restart");
    format!("container {container} keeps exiting{code}{reason}, {restarts} so far")
}

/// What to do about a container that exits again and again, before the command that prints its log.
pub const CRASH_LOOP_ADVICE: &str = "Find out from its log why the container exits";

/// The rest of the command that prints why a container of a pod has exited: what follows `logs POD`. The kubelet has removed the run
/// before one that has ended and is not started again yet.
pub fn log_of_exited(container: &str, has_ended: bool) -> String {
    let previous = if has_ended { "" } else { " --previous" };
    format!("-c {}{previous}", shell_quoted(container))
}

impl Words<'_> {
    /// Whether the pods are on their way to become Ready, in the time that this may take.
    pub(super) fn only_starts(&self, obstacle: &Obstacle) -> bool {
        match obstacle {
            // The kubelet restarts a container whose startup probe fails too often.
            Obstacle::StartupProbe { .. } => self.subjects.iter().all(|subject| subject.restarts == 0),
            Obstacle::FirstProbe { .. } => true,
            obstacle => obstacle.is_start() && self.have_just_begun(),
        }
    }

    fn have_just_begun(&self) -> bool {
        let has_just_begun = |subject: &Subject| {
            subject.starting_since.is_some_and(|since| self.now.duration_since(since) < RECENTLY)
        };
        self.subjects.iter().all(has_just_begun)
    }

    /// What keeps the pods from being Ready, as a sentence without its full stop.
    pub(super) fn unready(&self, obstacle: &Obstacle) -> String {
        let pods = self.subjects();
        let be = if self.subjects.len() == 1 { "is" } else { "are" };
        let nodes: BTreeSet<&String> =
            self.subjects.iter().filter_map(|subject| subject.node.as_ref()).collect();
        let nodes: Vec<String> = nodes.into_iter().cloned().collect();
        let on_node = if nodes.is_empty() { String::new() } else { format!(" on {}", first_names(&nodes)) };
        match obstacle {
            Obstacle::Unschedulable(message) => {
                // The scheduler then says the same of claims and pods that it could take away from others.
                let first = [" no new claims to deallocate", " preemption: "]
                    .iter()
                    .fold(message.as_str(), |text, next| {
                        text.split_once(next).map_or(text, |(first, _)| first)
                    });
                let message = beginning(first);
                format!("{pods} {be} Pending, because the scheduler finds no node: {message}")
            }
            Obstacle::Claim(claim) => format!("{pods} {be} Pending: {}", claim.words()),
            Obstacle::SchedulingGates(gates) => {
                format!("{pods} {be} Pending: scheduling gates {}", gates.join(", "))
            }
            Obstacle::Image { image, reason, message } => {
                format!("{pods}{on_node}: the image {image} cannot be pulled ({reason}){}", quoted(message))
            }
            Obstacle::CrashLoop { container, exit_code, reason } => {
                let restarts = self
                    .subjects
                    .iter()
                    .map(|subject| subject.restarts.saturating_add(subject.init_restarts));
                let restarts = restarts.max().unwrap_or(0);
                format!("{pods}{on_node}: {}", crash_loop_words(container, *exit_code, reason, restarts))
            }
            Obstacle::ContainerCreation { container, reason, message } => {
                let message = quoted(message);
                format!("{pods}{on_node}: container {container} cannot be created ({reason}){message}")
            }
            Obstacle::Volume(message) => {
                format!("{pods}{on_node}: a volume is not available{}", quoted(message))
            }
            Obstacle::Sandbox(message) => {
                format!("{pods}{on_node}: the pod sandbox cannot be created{}", quoted(message))
            }
            Obstacle::ReadinessProbe { container, message } if self.have_just_begun() => {
                format!("{}: container {container} is not ready yet{}", self.starting(), quoted(message))
            }
            Obstacle::ReadinessProbe { container, message } => {
                format!("{pods}{on_node}: container {container} runs and is not ready{}", quoted(message))
            }
            Obstacle::StartupProbe { container } => {
                format!(
                    "{}: the startup probe of container {container} has not succeeded yet",
                    self.starting()
                )
            }
            Obstacle::FirstProbe { container, delay, period } => format!(
                "{}: the readiness probe of container {container} (initialDelaySeconds {delay}, periodSeconds {period}) has not \
                 succeeded yet",
                self.starting()
            ),
            Obstacle::ReadinessGates(gates) => {
                format!(
                    "{pods}{on_node}: the containers are ready, the readiness gates {} are not",
                    gates.join(", ")
                )
            }
            Obstacle::SilentNode(node) => {
                format!("{pods} {be} not Ready, because node {node} does not report")
            }
            Obstacle::Terminating => self.terminating(),
            Obstacle::NeverEnds(node) => never_ends(&pods, be, node),
            Obstacle::Ended(reason) => format!("{pods} {be} finished ({reason}) and not replaced"),
            Obstacle::InitContainer(container) => {
                format!("{}: init container {container} runs", self.starting())
            }
            Obstacle::Starting => self.starting(),
            Obstacle::Unscheduled => format!("{pods} {be} not scheduled yet"),
        }
    }

    /// `shop/a has been starting on n2 for 40s`.
    fn starting(&self) -> String {
        let since = self.subjects.iter().filter_map(|subject| subject.starting_since).min();
        let time = since.map(|since| age(self.now.duration_since(since).as_secs().max(0)));
        let pods = self.subjects();
        match (self.subjects, time) {
            ([Subject { node: Some(node), .. }], Some(time)) => {
                format!("{pods} has been starting on {node} for {time}")
            }
            ([_], Some(time)) => format!("{pods} has been starting for {time}"),
            (_, Some(time)) => format!("{pods} have been starting for up to {time}"),
            ([Subject { node: Some(node), .. }], None) => format!("{pods} is starting on {node}"),
            ([_], None) => format!("{pods} is starting"),
            (_, None) => format!("{pods} are starting"),
        }
    }

    /// What to do about pods that are not Ready.
    pub(super) fn remedy(&self, obstacle: &Obstacle) -> (String, Vec<String>) {
        if let Obstacle::Claim(claim) = obstacle {
            return (claim.advice(), claim.commands(self.kubectl));
        }
        let (advice, commands) = self.remedy_of_pods(obstacle);
        (advice.to_owned(), commands)
    }

    fn remedy_of_pods(&self, obstacle: &Obstacle) -> (&'static str, Vec<String>) {
        if self.only_starts(obstacle) {
            let is_one = self.subjects.len() == 1;
            let (one, several) = (
                "Wait: nothing has to be done while the pod is starting",
                "Wait: nothing has to be done while the pods are starting",
            );
            return (if is_one { one } else { several }, Vec::new());
        }
        let describe = || self.each_pod(|namespace, pod| format!("-n {namespace} describe pod {pod}"));
        let logs = |container: &str, flag: &str| {
            let container = shell_quoted(container);
            self.each_pod(|namespace, pod| format!("-n {namespace} logs {pod} -c {container}{flag}"))
        };
        match obstacle {
            Obstacle::Unschedulable(_) if obstacle.is_of_volume() => (
                "Return a node to service that can use the volume of the pod: no other node can. This shows the nodes of each volume",
                vec![format!(
                    "{} get pv -o custom-columns=CLAIM:.spec.claimRef.name,NODES:.spec.nodeAffinity.required",
                    self.kubectl
                )],
            ),
            Obstacle::Unschedulable(_) => (
                "Add capacity, or check what the pods request and select, and their volume claims",
                describe(),
            ),
            Obstacle::SchedulingGates(_) => ("The owners of the gates have to remove them", describe()),
            Obstacle::Image { reason, .. } if reason == "ErrImageNeverPull" => (
                "The node does not have the image, and imagePullPolicy Never forbids pulling it: load the image \
                 onto the node, or change the policy",
                describe(),
            ),
            Obstacle::Image { .. } => {
                ("Check the name of the image, its registry and the pull secret", describe())
            }
            Obstacle::CrashLoop { container, .. } => {
                let log = |subject: &Subject| {
                    let (namespace, pod) =
                        (shell_quoted(&subject.pod.namespace), shell_quoted(&subject.pod.name));
                    let rest = log_of_exited(container, subject.has_ended_container);
                    format!("{} -n {namespace} logs {pod} {rest}", self.kubectl)
                };
                (CRASH_LOOP_ADVICE, self.few(self.subjects.iter().map(log)))
            }
            Obstacle::ContainerCreation { .. } => {
                ("Create or correct what the container refers to", describe())
            }
            Obstacle::Volume(_) => ("Find out why the volume is not attached or mounted", describe()),
            Obstacle::Sandbox(_) => {
                ("Check the network plugin and the container runtime of the node", describe())
            }
            Obstacle::ReadinessProbe { container, .. } if self.have_just_begun() => (
                "Wait until it is ready; if that takes longer than usual, its log shows why",
                logs(container, ""),
            ),
            Obstacle::ReadinessProbe { container, .. } => {
                ("Find out from its log why the container is not ready", logs(container, ""))
            }
            Obstacle::StartupProbe { container }
            | Obstacle::FirstProbe { container, .. }
            | Obstacle::InitContainer(container) => {
                ("Wait until it has started; its log shows how far it is", logs(container, ""))
            }
            Obstacle::ReadinessGates(_) => ("The controllers of the gates have to confirm them", describe()),
            Obstacle::SilentNode(node) | Obstacle::NeverEnds(node) => (
                "Make the node Ready",
                vec![format!("{} describe node {}", self.kubectl, shell_quoted(node))],
            ),
            Obstacle::Terminating => ("Wait until it has terminated", describe()),
            Obstacle::Ended(_) => ("Find out why its owner does not replace it", describe()),
            Obstacle::Starting | Obstacle::Unscheduled | Obstacle::Claim(_) => {
                ("Wait until it is Ready; its events show how far it is", describe())
            }
        }
    }

    /// When the grace period of a terminating pod ends: later than its object shows if the kubelet was away and is back.
    fn deadline(&self, subject: &Subject) -> Option<Timestamp> {
        let since = subject.node.as_ref().and_then(|node| self.facts.ready_since.get(node));
        Some(deadline_on(Readiness::Ready(since.copied()), subject.deadline?, subject.grace_seconds))
    }

    /// `shop/a is terminating, with 20s of its grace period left`.
    pub(super) fn terminating(&self) -> String {
        if are_counted_later(self.subjects) {
            return match self.subjects {
                [only] => format!("{} has ended, and is removed once its Job has counted it", only.pod),
                _ => format!(
                    "{} have ended, and are removed once their Jobs have counted them",
                    self.subjects()
                ),
            };
        }
        let one = |subject: &Subject| {
            let grace = self.deadline(subject).map(|deadline| deadline.duration_since(self.now).as_secs());
            let grace = match grace {
                None => String::new(),
                Some(left) if left > 0 => format!(", with {} of its grace period left", age(left)),
                Some(over) => format!(": its grace period ended {} ago", age(-over)),
            };
            format!("{} is terminating{grace}", subject.pod)
        };
        match self.subjects {
            [only] => one(only),
            several => {
                let left = several.iter().filter_map(|subject| self.deadline(subject));
                let left = left.map(|deadline| deadline.duration_since(self.now).as_secs());
                let (left, over): (Vec<i64>, Vec<i64>) = left.partition(|left| *left > 0);
                let over_for = over.iter().min().map(|over| age(-over));
                let grace = match (left.iter().max().map(|left| age(*left)), over_for) {
                    (None, None) => String::new(),
                    (Some(left), None) => format!(": at most {left} of their grace periods are left"),
                    (None, Some(over)) => format!(": their grace periods ended up to {over} ago"),
                    (Some(left), Some(over_for)) => {
                        let ended = match over.len() {
                            1 => format!("the grace period of 1 of them ended {over_for} ago"),
                            count => {
                                format!("the grace periods of {count} of them ended up to {over_for} ago")
                            }
                        };
                        format!(": {ended}, and the others have at most {left} left")
                    }
                };
                format!("{} are terminating{grace}", self.subjects())
            }
        }
    }
}
