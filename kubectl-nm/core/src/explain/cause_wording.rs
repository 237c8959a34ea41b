//! The words of first causes: one wording, and one piece of advice with a command, for each end of the chain.
//!
//! No command can take a service down. A budget is only suggested to be changed if it can never allow an eviction as it is, or
//! if it keeps pods that are not Ready anyway.

use std::collections::BTreeSet;

use jiff::{SignedDuration, Timestamp};
use nm_shared::PodReference;

use crate::args::duration::age;
use crate::explain::cause::{few, sentence};
use crate::explain::cluster_facts::Unseen;
use crate::explain::first_cause::{Demand, FirstCause, NeverAllows, Subject};
use crate::explain::no_node_left::{NoNodeLeft, Selection};
use crate::explain::obstacle::Obstacle;
use crate::terminal::command_context::{nm_command, shell_quoted};
use crate::terminal::text::{counted, first_names};

/// A pod that has been unready for less than this may just be starting again, for example after a reboot of its node.
const RECENTLY: SignedDuration = SignedDuration::from_mins(2);

/// What the words of a cause depend on, besides the cause.
#[derive(Debug, Clone, Copy)]
pub(super) struct Words<'a> {
    /// `kubectl` with the connection flags.
    pub(super) kubectl: &'a str,
    /// Name of the maintenance object.
    pub(super) maintenance: &'a str,
    /// The node that is explained.
    pub(super) node: &'a str,
    /// The budgets whose chains end here.
    pub(super) budgets: &'a [&'a PodReference],
    /// The pods that the cause is about.
    pub(super) subjects: &'a [Subject],
    /// How many evictions the budgets allow.
    pub(super) allowed: i32,
    /// The clock of this computer.
    pub(super) now: Timestamp,
}

/// A first cause in words.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Told {
    /// A sentence; none if the budget's numbers say it all.
    pub(super) what: Option<String>,
    /// A sentence without its full stop.
    pub(super) advice: String,
    /// Commands to paste.
    pub(super) commands: Vec<String>,
}

impl FirstCause {
    /// Whether somebody has to do something before the pods can leave.
    pub(super) fn is_stuck(&self) -> bool {
        match self {
            Self::ItsOwnPods(obstacle) | Self::OtherPods(obstacle) => {
                !obstacle.passes() && !obstacle.may_be_of_start()
            }
            Self::CannotCount(_) | Self::NeverAllows(_) | Self::NoNodeLeft(_) | Self::NotCreated(_) => true,
            Self::PodsGone
            | Self::BudgetGone
            | Self::AllowsNow
            | Self::JustEvicted
            | Self::NotCounted
            | Self::PodsUnseen(_)
            | Self::BudgetUnseen(_)
            | Self::TooFew => false,
        }
    }

    /// Whether what the pods are blocked by is over.
    pub(super) fn is_over(&self) -> bool {
        matches!(self, Self::PodsGone | Self::BudgetGone | Self::AllowsNow)
    }
}

impl Unseen {
    /// `you have no permission to list pods`.
    pub(super) fn why(&self) -> String {
        match self {
            Self::Forbidden(access) => format!("you have no permission to {access}"),
            Self::Failed(request, error) => {
                format!("the request to {request} failed: {}", error.trim_end_matches('.'))
            }
        }
    }
}

impl Words<'_> {
    pub(super) fn tell(&self, cause: &FirstCause) -> Told {
        let told = |what: String, advice: &str, commands: Vec<String>| Told {
            what: Some(sentence(&what)),
            advice: advice.to_owned(),
            commands,
        };
        let retried = "The eviction is retried within seconds";
        let status = || vec![nm_command(self.kubectl, &format!("status {}", shell_quoted(self.node)))];
        match cause {
            FirstCause::PodsGone => told(
                "The pods have left the node by now, or are terminating".into(),
                "The next status shows it",
                status(),
            ),
            FirstCause::BudgetGone => told("The budget does not exist any more".into(), retried, status()),
            FirstCause::AllowsNow => told(
                format!(
                    "By now, the budget allows {}",
                    counted(usize::try_from(self.allowed).unwrap_or(0), "eviction")
                ),
                retried,
                status(),
            ),
            FirstCause::JustEvicted => told(
                "Enough pods are Ready; the budget still counts evictions that were just accepted".into(),
                "Wait until the evicted pods have left",
                self.describe_budgets(),
            ),
            FirstCause::NotCounted => told(
                "The disruption controller has not counted the pods of the budget yet".into(),
                "This usually takes a moment; if it takes longer, check kube-controller-manager",
                self.describe_budgets(),
            ),
            FirstCause::CannotCount(message) => told(
                format!("The disruption controller cannot count the pods of the budget: {message}"),
                "Give the pods a controller that can be scaled; for other pods, a budget can only have minAvailable with a \
                 number",
                self.describe_budgets(),
            ),
            FirstCause::NeverAllows(never) => self.never_allows(never),
            FirstCause::ItsOwnPods(obstacle) => self.own_pods(obstacle),
            FirstCause::OtherPods(obstacle) => {
                let (advice, commands) = self.remedy(obstacle);
                told(self.unready(obstacle), advice, commands)
            }
            FirstCause::NoNodeLeft(left) => self.no_node_left(left),
            FirstCause::NotCreated(owner) => told(
                format!(
                    "{} cannot create {}: {}",
                    owner.owner,
                    counted(usize::try_from(owner.missing).unwrap_or(0), "pod"),
                    owner.message
                ),
                "Remove what prevents it, such as a quota or a webhook",
                self.each_budget(|namespace, _| {
                    format!("-n {namespace} describe {}", shell_quoted(&owner.owner.argument()))
                }),
            ),
            FirstCause::PodsUnseen(Unseen::Forbidden(_)) | FirstCause::BudgetUnseen(Unseen::Forbidden(_)) => {
                Told {
                    what: None,
                    advice:
                        "Somebody who may read the budget and its pods can find out why it allows no eviction"
                            .into(),
                    commands: vec![nm_command(self.kubectl, &format!("explain {}", shell_quoted(self.node)))],
                }
            }
            FirstCause::PodsUnseen(_) | FirstCause::BudgetUnseen(_) => Told {
                what: None,
                advice: "Find out why the budget allows no eviction before you change anything".into(),
                commands: self.describe_budgets(),
            },
            FirstCause::TooFew => told(
                "The pods that the budget selects are Ready, but it counts on more pods than there are"
                    .into(),
                "Compare the budget with the replicas of its workload",
                self.describe_budgets(),
            ),
        }
    }

    /// What to do if nothing but the status is known.
    pub(super) fn without_facts(&self, waits: bool) -> Told {
        let advice = if waits {
            "Wait: each pod is evicted once the pods that were evicted before it have been replaced"
        } else {
            "Find out why the budget allows no eviction before you change anything"
        };
        Told { what: None, advice: advice.to_owned(), commands: self.describe_budgets() }
    }

    fn never_allows(&self, never: &NeverAllows) -> Told {
        let pods = counted(usize::try_from(never.pods).unwrap_or(0), "pod");
        let demand = match &never.demand {
            Demand::MinAvailable(number) => format!("minAvailable is {number}"),
            Demand::MinAvailablePercent(percent) => format!("minAvailable is {percent}"),
            Demand::MaxUnavailable(value) => format!("maxUnavailable is {value}"),
        };
        let what = format!("The budget can never allow an eviction: {demand}, and it has {pods}");
        if let Some(left) = &never.no_node {
            let (advice, commands) = self.for_want_of_a_node(left);
            let what = sentence(&what);
            let why = self.why_no_node_is_left(left);
            let what = format!("{what} A replacement fits on no other node: {why}.");
            return Told { what: Some(what), advice, commands };
        }
        let fewer = never.pods.saturating_sub(1);
        let (setting, patch) = match &never.demand {
            Demand::MinAvailable(_) => {
                (format!("minAvailable to {fewer}"), format!("{{\"minAvailable\":{fewer}}}"))
            }
            Demand::MinAvailablePercent(_) => {
                ("maxUnavailable to 1".into(), "{\"minAvailable\":null,\"maxUnavailable\":1}".into())
            }
            Demand::MaxUnavailable(_) => ("maxUnavailable to 1".into(), "{\"maxUnavailable\":1}".into()),
        };
        let (advice, commands) = if never.pods > 1 {
            (
                format!("Set {setting}: one of its {pods} at a time may then be unavailable"),
                self.each_budget(|namespace, budget| {
                    format!("-n {namespace} patch pdb {budget} --type=merge -p '{{\"spec\":{patch}}}'")
                }),
            )
        } else if never.is_of_deployment {
            let name = shell_quoted(self.maintenance);
            (
                "Let the Deployment replace its only pod before the pod leaves; nm-reconciler needs the permission that \
                 `kubectl nm install --grant surge` grants"
                    .into(),
                vec![format!(
                    "{} patch nm {name} --type=merge -p '{{\"spec\":{{\"drain\":{{\"surge\":\"WhenBlocked\"}}}}}}'",
                    self.kubectl
                )],
            )
        } else {
            (
                format!(
                    "Agree on a time with the owner of the pod, then set {setting}: the only pod is unavailable from its \
                     eviction until its replacement is Ready"
                ),
                self.each_budget(|namespace, budget| format!("-n {namespace} edit pdb {budget}")),
            )
        };
        Told { what: Some(sentence(&what)), advice, commands }
    }

    fn own_pods(&self, obstacle: &Obstacle) -> Told {
        let (advice, commands) = self.remedy(obstacle);
        let has_just_begun = |subject: &Subject| {
            subject.unready_since.is_some_and(|since| self.now.duration_since(since) < RECENTLY)
        };
        let is_starting = obstacle.may_be_of_start() && self.subjects.iter().any(has_just_begun);
        let may_recover = obstacle.passes() || is_starting;
        // Of a silent node, the pods may well run.
        if may_recover || matches!(obstacle, Obstacle::SilentNode(_)) {
            return Told { what: Some(sentence(&self.unready(obstacle))), advice: advice.into(), commands };
        }
        let patch = "{\"spec\":{\"unhealthyPodEvictionPolicy\":\"AlwaysAllow\"}}";
        Told {
            what: Some(format!(
                "The budget protects pods that are not Ready themselves: {}",
                sentence(&self.unready(obstacle))
            )),
            advice:
                "Allow the eviction of pods that are not Ready; the budget keeps protecting those that are"
                    .into(),
            commands: self.each_budget(|namespace, budget| {
                format!("-n {namespace} patch pdb {budget} --type=merge -p '{patch}'")
            }),
        }
    }

    fn no_node_left(&self, left: &NoNodeLeft) -> Told {
        let (advice, commands) = self.for_want_of_a_node(left);
        let replacements = if self.subjects.len() == 1 { "replacement" } else { "replacements" };
        let why = self.why_no_node_is_left(left);
        Told {
            what: Some(format!("No node is left for the {replacements} {}: {why}.", self.subjects())),
            advice,
            commands,
        }
    }

    /// `n1 is in maintenance`, `its nodeSelector pool=blue selects only n1, which is in maintenance`.
    fn why_no_node_is_left(&self, left: &NoNodeLeft) -> String {
        let which = if left.selection.is_some() { ", which" } else { "" };
        let list = |nodes: &BTreeSet<String>, what: &str| {
            let names: Vec<String> = nodes.iter().cloned().collect();
            let be = if nodes.len() == 1 { "is" } else { "are" };
            format!("{}{which} {be} {what}", first_names(&names))
        };
        let ours = list(&left.in_maintenance, "in maintenance");
        let nodes = if left.cordoned.is_empty() {
            ours
        } else {
            format!("{ours}, and {}", list(&left.cordoned, "cordoned"))
        };
        let their = if self.subjects.len() == 1 { "its" } else { "their" };
        match &left.selection {
            None => nodes,
            Some(Selection::NodeAffinity { .. }) => format!("{their} node affinity selects only {nodes}"),
            Some(Selection::NodeSelector(labels)) => {
                let labels: Vec<String> =
                    labels.iter().map(|(label, value)| format!("{label}={value}")).collect();
                format!("{their} nodeSelector {} selects only {nodes}", labels.join(","))
            }
        }
    }

    /// What to do about pods for which no node is left.
    fn for_want_of_a_node(&self, left: &NoNodeLeft) -> (String, Vec<String>) {
        // The node that is explained is the one that is to be drained: it comes last.
        let (own, others): (Vec<&String>, Vec<&String>) =
            left.in_maintenance.iter().partition(|node| *node == self.node);
        let stop = |node: &String| nm_command(self.kubectl, &format!("stop {}", shell_quoted(node)));
        let stop = few(others.into_iter().chain(own).map(stop));
        let is_one = left.in_maintenance.len() == 1;
        let Some(selection) = &left.selection else {
            let one = if is_one { "one" } else { "one of these nodes" };
            return (format!("Add a node, or return {one} to service"), stop);
        };
        let selector = match selection {
            Selection::NodeSelector(_) => "nodeSelector",
            Selection::NodeAffinity { .. } => "node affinity",
        };
        let edit = |subject: &Subject| {
            let owner = subject.owner.as_ref()?.argument();
            let (namespace, owner) = (shell_quoted(&subject.pod.namespace), shell_quoted(&owner));
            Some(format!("{} -n {namespace} edit {owner}", self.kubectl))
        };
        let edit = few(self.subjects.iter().filter_map(edit));
        let whose = if edit.len() == 1 { "its workload" } else { "their workloads" };
        let stopped = if is_one { "the maintenance" } else { "one of the maintenances" };
        let advice = if selection.names_nodes() {
            format!("Change the {selector} of {whose}, or stop {stopped}")
        } else {
            format!(
                "Add a node that the {selector} selects, change the {selector} of {whose}, or stop {stopped}"
            )
        };
        (advice, edit.into_iter().chain(stop).collect())
    }

    /// What keeps the pods from being Ready, as a sentence without its full stop.
    fn unready(&self, obstacle: &Obstacle) -> String {
        let pods = self.subjects();
        let be = if self.subjects.len() == 1 { "is" } else { "are" };
        let on_node = match self.subjects {
            [Subject { node: Some(node), .. }] => format!(" on {node}"),
            _ => String::new(),
        };
        match obstacle {
            Obstacle::Unschedulable(message) => {
                format!("{pods} {be} Pending, because the scheduler finds no node: {message}")
            }
            Obstacle::Claim(claim) => format!("{pods} {be} Pending: {}", claim.words()),
            Obstacle::SchedulingGates(gates) => {
                format!("{pods} {be} Pending: scheduling gates {}", gates.join(", "))
            }
            Obstacle::Image { image, reason } => {
                format!("{pods}{on_node}: the image {image} cannot be pulled ({reason})")
            }
            Obstacle::CrashLoop { container, exit_code, reason } => {
                let code = exit_code.map_or_else(String::new, |code| format!(" with exit code {code}"));
                let reason = if reason.is_empty() { String::new() } else { format!(" ({reason})") };
                let restarts = self.subjects.iter().map(|subject| subject.restarts).max().unwrap_or(0);
                let restarts = counted(usize::try_from(restarts).unwrap_or(0), "restart");
                format!(
                    "{pods}{on_node}: container {container} keeps exiting{code}{reason}, {restarts} so far"
                )
            }
            Obstacle::ContainerCreation { container, reason, message } => {
                let message = if message.is_empty() { String::new() } else { format!(": {message}") };
                format!("{pods}{on_node}: container {container} cannot be created ({reason}){message}")
            }
            Obstacle::Volume(message) => format!("{pods}{on_node}: a volume is not available: {message}"),
            Obstacle::Sandbox(message) => {
                format!("{pods}{on_node}: the pod sandbox cannot be created: {message}")
            }
            Obstacle::ReadinessProbe { container, message } => {
                let message = if message.is_empty() { String::new() } else { format!(": {message}") };
                format!("{pods}{on_node}: container {container} runs and is not ready{message}")
            }
            Obstacle::StartupProbe { container } => {
                format!("{pods}{on_node}: container {container} is still starting")
            }
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
            Obstacle::Ended(reason) => format!("{pods} {be} finished ({reason}) and not replaced"),
            Obstacle::InitContainer(container) => format!("{pods}{on_node}: init container {container} runs"),
            Obstacle::Starting => format!("{pods} {be} starting{on_node}"),
            Obstacle::Unscheduled => format!("{pods} {be} not scheduled yet"),
        }
    }

    /// What to do about pods that are not Ready.
    fn remedy(&self, obstacle: &Obstacle) -> (&'static str, Vec<String>) {
        let describe = || self.each_pod(|namespace, pod| format!("-n {namespace} describe pod {pod}"));
        let logs = |container: &str, flag: &str| {
            let container = shell_quoted(container);
            self.each_pod(|namespace, pod| format!("-n {namespace} logs {pod} -c {container}{flag}"))
        };
        match obstacle {
            Obstacle::Unschedulable(_) => (
                "Add capacity, or check what the pods request and select, and their volume claims",
                describe(),
            ),
            Obstacle::Claim(claim) => (claim.advice(), claim.commands(self.kubectl)),
            Obstacle::SchedulingGates(_) => ("The owners of the gates have to remove them", describe()),
            Obstacle::Image { .. } => {
                ("Check the name of the image, its registry and the pull secret", describe())
            }
            Obstacle::CrashLoop { container, .. } => {
                ("Find out from its log why the container exits", logs(container, " --previous"))
            }
            Obstacle::ContainerCreation { .. } => {
                ("Create or correct what the container refers to", describe())
            }
            Obstacle::Volume(_) => ("Find out why the volume is not attached or mounted", describe()),
            Obstacle::Sandbox(_) => {
                ("Check the network plugin and the container runtime of the node", describe())
            }
            Obstacle::ReadinessProbe { container, .. } => {
                ("Find out from its log why the container is not ready", logs(container, ""))
            }
            Obstacle::StartupProbe { container } | Obstacle::InitContainer(container) => {
                ("Wait until it has started; its log shows how far it is", logs(container, ""))
            }
            Obstacle::ReadinessGates(_) => ("The controllers of the gates have to confirm them", describe()),
            Obstacle::SilentNode(node) => (
                "Make the node Ready",
                vec![format!("{} describe node {}", self.kubectl, shell_quoted(node))],
            ),
            Obstacle::Terminating => ("Wait until it has terminated", describe()),
            Obstacle::Ended(_) => ("Find out why its owner does not replace it", describe()),
            Obstacle::Starting | Obstacle::Unscheduled => {
                ("Wait until it is Ready; its events show how far it is", describe())
            }
        }
    }

    /// `shop/a is terminating: 20s of its grace period are left`.
    pub(super) fn terminating(&self) -> String {
        let one = |subject: &Subject| {
            let grace = subject.deadline.map(|deadline| deadline.duration_since(self.now).as_secs());
            let grace = match grace {
                None => String::new(),
                Some(left) if left > 0 => format!(": {} of its grace period are left", age(left)),
                Some(over) => format!(": its grace period ended {} ago", age(-over)),
            };
            format!("{} is terminating{grace}", subject.pod)
        };
        match self.subjects {
            [only] => one(only),
            several => {
                let latest = several.iter().filter_map(|subject| subject.deadline).max();
                let left =
                    latest.map(|latest| latest.duration_since(self.now).as_secs()).filter(|left| *left > 0);
                let left =
                    left.map(|left| format!(": at most {} of their grace periods are left", age(left)));
                format!("{} are terminating{}", self.subjects(), left.unwrap_or_default())
            }
        }
    }

    fn subjects(&self) -> String {
        let names: Vec<String> = self.subjects.iter().map(|subject| subject.pod.to_string()).collect();
        first_names(&names)
    }

    fn describe_budgets(&self) -> Vec<String> {
        self.each_budget(|namespace, budget| format!("-n {namespace} describe pdb {budget}"))
    }

    /// A kubectl command for each of the first budgets, by its namespace and name.
    fn each_budget(&self, command: impl Fn(&str, &str) -> String) -> Vec<String> {
        let named = self.budgets.iter().copied().filter(|budget| !budget.name.is_empty());
        self.each(named, command)
    }

    /// A kubectl command for each of the first pods.
    pub(super) fn each_pod(&self, command: impl Fn(&str, &str) -> String) -> Vec<String> {
        self.each(self.subjects.iter().map(|subject| &subject.pod), command)
    }

    fn each<'a>(
        &self,
        objects: impl Iterator<Item = &'a PodReference>,
        command: impl Fn(&str, &str) -> String,
    ) -> Vec<String> {
        few(objects.map(|object| {
            let command = command(&shell_quoted(&object.namespace), &shell_quoted(&object.name));
            format!("{} {command}", self.kubectl)
        }))
    }
}
