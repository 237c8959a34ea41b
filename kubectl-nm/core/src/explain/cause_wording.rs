//! The words of first causes: one wording, and one piece of advice with a command, for each end of the chain.
//!
//! No command can take a service down. A budget is only suggested to be changed if it can never allow an eviction as it is, or
//! if it keeps pods that are not Ready anyway.

use std::collections::BTreeSet;

use jiff::{SignedDuration, Timestamp};
use kube::core::Status;
use nm_shared::cluster::refusal::Refusal;
use nm_shared::{NodeMaintenance, PodReference};

use crate::explain::cause::{continued, few_of, sentence};
use crate::explain::cluster_facts::{ClusterFacts, IncompleteOwner, Unseen};
use crate::explain::first_cause::{ChainEnd, FirstCause, Subject};
use crate::explain::obstacle::Obstacle;
use crate::explain::owner::OwnerKind;
use crate::explain::recount::recount;
use crate::explain::unsatisfiable_budget::NeverAllows;
use crate::maintenance::{node, roll_name};
use crate::terminal::command_context::{nm_command, shell_quoted};
use crate::terminal::text::{counted, first_names};

/// A pod that has been unready for less than this may just be starting again, for example after a reboot of its node.
pub(super) const RECENTLY: SignedDuration = SignedDuration::from_mins(2);

/// What the words of a cause depend on, besides the cause.
#[derive(Debug, Clone, Copy)]
pub(super) struct Words<'a> {
    /// `kubectl` with the connection flags.
    pub(super) kubectl: &'a str,
    /// Name of the maintenance object.
    pub(super) maintenance: &'a str,
    /// The roll that it is part of.
    pub(super) roll: Option<&'a str>,
    /// The Deployments of other causes that a surge would restart, too, with their namespaces.
    pub(super) restarts: &'a [String],
    /// What the cluster shows.
    pub(super) facts: &'a ClusterFacts,
    /// The node that is explained.
    pub(super) node: &'a str,
    /// The budgets whose chains end here.
    pub(super) budgets: &'a [&'a PodReference],
    /// The pods that the cause is about.
    pub(super) subjects: &'a [Subject],
    /// How many evictions the budgets allow.
    pub(super) allowed: i32,
    /// Whether to leave no command out, however many there are.
    pub(super) has_all_commands: bool,
    /// The clock of this computer.
    pub(super) now: Timestamp,
}

impl<'a> Words<'a> {
    /// Those of a cause that is about these pods of a maintenance, and about no budget.
    pub(super) fn of(
        maintenance: &'a NodeMaintenance,
        facts: &'a ClusterFacts,
        subjects: &'a [Subject],
        kubectl: &'a str,
        now: Timestamp,
    ) -> Self {
        Self {
            kubectl,
            maintenance: maintenance.metadata.name.as_deref().unwrap_or_default(),
            roll: roll_name(maintenance),
            restarts: &[],
            facts,
            node: node(maintenance),
            budgets: &[],
            subjects,
            allowed: 0,
            has_all_commands: false,
            now,
        }
    }
}

/// A first cause in words.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Told {
    /// A sentence; none if the budget's numbers say it all.
    pub(super) what: Option<String>,
    /// A sentence without its full stop.
    pub(super) advice: String,
    /// Commands to paste; none if nothing has to be done.
    pub(super) commands: Vec<String>,
    /// Whether it is over, or ends by itself within a known time.
    pub(super) passes: bool,
}

impl FirstCause {
    /// Its place among the causes of pods: what can be remedied at once comes before a node that nobody may be able to make Ready.
    pub(super) fn rank(&self) -> u8 {
        match self {
            // With fewer pods than a budget counts on, another budget allows nothing either: what keeps them comes first.
            Self::NeverAllows(never) if never.needs_ready.is_some() && !never.only_surges() => 4,
            Self::ItsOwnPods(Obstacle::SilentNode(_)) | Self::OtherPods(Obstacle::SilentNode(_)) => 3,
            // Where no quota has to be raised first, the same helps at once.
            Self::NeverAllows(NeverAllows { full_quota: Some(_), .. }) => 2,
            Self::NeverAllows(_) => 1,
            _ => 0,
        }
    }

    /// Whether somebody has to do something before the pods can leave.
    pub(super) fn is_stuck(&self) -> bool {
        match self {
            Self::ItsOwnPods(obstacle) | Self::OtherPods(obstacle) => {
                !obstacle.passes() && !obstacle.may_be_of_start()
            }
            Self::CannotCount(_)
            | Self::NeverAllows(_)
            | Self::NoNodeLeft(_)
            | Self::NotCreated(_)
            | Self::Outdated => true,
            Self::PodsGone
            | Self::BudgetGone
            | Self::AllowsNow
            | Self::JustEvicted
            | Self::NotCounted
            | Self::PodsUnseen(_)
            | Self::BudgetUnseen(_)
            | Self::NotRead
            | Self::TooFew => false,
        }
    }

    /// Whether what the pods are blocked by is over.
    pub(super) fn is_over(&self) -> bool {
        matches!(self, Self::PodsGone | Self::BudgetGone | Self::AllowsNow)
    }
}

/// The same, and the commands that are left out.
pub(super) fn tell_counted(
    end: &ChainEnd,
    maintenance: &NodeMaintenance,
    facts: &ClusterFacts,
    kubectl: &str,
    now: Timestamp,
) -> (Told, Vec<String>) {
    Words::of(maintenance, facts, &end.subjects, kubectl, now).counted(|words| words.tell(&end.cause))
}

/// Why replacements are not Ready, without the budget that waits for them.
pub(super) fn tell_of_replacements(
    end: &ChainEnd,
    maintenance: &NodeMaintenance,
    facts: &ClusterFacts,
    kubectl: &str,
    now: Timestamp,
) -> Told {
    tell_counted(end, maintenance, facts, kubectl, now).0
}

impl Words<'_> {
    pub(super) fn tell(&self, cause: &FirstCause) -> Told {
        let told = |what: String, advice: &str, commands: Vec<String>| Told {
            what: Some(sentence(&what)),
            advice: advice.to_owned(),
            commands,
            passes: cause.is_over(),
        };
        let retried = "The eviction is retried within seconds";
        let status = || vec![nm_command(self.kubectl, &format!("status {}", shell_quoted(self.node)))];
        match cause {
            FirstCause::PodsGone => told(
                "The pods have left the node by now, or are terminating".into(),
                "The next update of the status shows this",
                status(),
            ),
            FirstCause::BudgetGone => {
                told(self.of_budgets("does not exist any more", "do not exist any more"), retried, status())
            }
            FirstCause::AllowsNow => {
                let evictions = counted(self.allowed, "eviction");
                let allow =
                    self.of_budgets(&format!("allows {evictions}"), &format!("allow {evictions} in total"));
                told(format!("By now, {}", continued(&allow)), retried, status())
            }
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
            FirstCause::Outdated => told(
                "More pods of the budget are Ready than the disruption controller has counted".into(),
                "It usually counts them within a moment. If it does not, change an annotation of the budget, so that it counts again; if \
                 that does not help, check kube-controller-manager",
                self.each_budget(|namespace, budget| format!("-n {namespace} {}", recount(budget)))
                    .into_iter()
                    .chain(self.describe_budgets())
                    .collect(),
            ),
            FirstCause::CannotCount(message) => told(
                format!("The disruption controller cannot count the pods of the budget: {message}"),
                "Give the pods a controller that can be scaled; a budget for other pods must set minAvailable to a \
                 number",
                self.describe_budgets(),
            ),
            FirstCause::NeverAllows(never) => self.never_allows(never),
            FirstCause::ItsOwnPods(obstacle) => self.own_pods(obstacle),
            FirstCause::OtherPods(obstacle) => self.other_pods(obstacle),
            FirstCause::NoNodeLeft(left) => self.no_node_left(left),
            FirstCause::NotCreated(owner) => {
                let (change, command) = self.not_created(owner);
                told(
                    format!(
                        "{} could not create {} when it last tried: {}",
                        owner.owner,
                        counted(owner.missing, "pod"),
                        owner.message
                    ),
                    &format!(
                        "{change}; then the controller tries again by itself, perhaps only after minutes"
                    ),
                    vec![command],
                )
            }
            FirstCause::PodsUnseen(Unseen::Forbidden(_)) | FirstCause::BudgetUnseen(Unseen::Forbidden(_)) => {
                Told {
                    what: None,
                    advice:
                        "A user with permission to read the budget and its pods can find out why the budget allows \
                         no eviction"
                            .into(),
                    // The other user has flags of their own.
                    commands: vec![nm_command("kubectl", &format!("explain {}", shell_quoted(self.node)))],
                    passes: false,
                }
            }
            FirstCause::PodsUnseen(_) | FirstCause::BudgetUnseen(_) => Told {
                what: None,
                advice: "Find out why the budget allows no eviction before you change anything".into(),
                commands: self.describe_budgets(),
                passes: false,
            },
            FirstCause::NotRead => Told {
                what: None,
                advice: "Too many budgets block pods to look up why each of them allows no eviction: name single nodes".into(),
                commands: vec![nm_command(self.kubectl, &format!("explain {}", shell_quoted(self.node)))],
                passes: false,
            },
            FirstCause::TooFew => told(
                "The pods that the budget selects are Ready, but the budget requires more pods than exist: the controller of a \
                 pod that has just left may be about to create another one"
                    .into(),
                "Wait until it has; if that takes longer, compare the budget with the replicas of its workload",
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
        Told { what: None, advice: advice.to_owned(), commands: self.describe_budgets(), passes: waits }
    }

    /// What to change so that pods are created, and the command that shows what refuses them.
    fn not_created(&self, owner: &IncompleteOwner) -> (String, String) {
        let (kubectl, namespace) = (self.kubectl, shell_quoted(&owner.namespace));
        let webhooks =
            || format!("{kubectl} get validatingwebhookconfigurations,mutatingwebhookconfigurations");
        let refusal = Status::failure(&owner.message, "Forbidden").with_code(403);
        match Refusal::from(&refusal) {
            Refusal::Policy(policy) => {
                let kind = if owner.message.contains("ValidatingAdmissionPolicy") {
                    "validatingadmissionpolicies"
                } else {
                    "mutatingadmissionpolicies"
                };
                (
                    String::from("Do what the policy requires, or exempt the pods from it"),
                    format!("{kubectl} get {kind} {} -o yaml", shell_quoted(&policy.name)),
                )
            }
            Refusal::Webhook { name } => {
                (format!("Do what webhook {name} requires, or exempt the pods from it"), webhooks())
            }
            Refusal::UnreachableWebhook { name } => {
                (format!("Repair webhook {name}, or exempt the pods from it"), webhooks())
            }
            _ if owner.message.contains("violates PodSecurity ") => (
                String::from(
                    "Change the pods so that they meet the Pod Security level of their namespace, or the level",
                ),
                format!("{kubectl} get namespace {namespace} --show-labels"),
            ),
            Refusal::QuotaWithoutAmount { name } => (
                format!(
                    "Set what quota {name} counts in the pod template of {}, or as a default in a LimitRange of the namespace",
                    owner.owner
                ),
                format!("{kubectl} -n {namespace} edit {}", shell_quoted(&owner.owner.argument())),
            ),
            Refusal::Quota { .. } => (
                String::from("Raise the quota, or free some of it"),
                format!("{kubectl} -n {namespace} get resourcequotas"),
            ),
            _ => (
                String::from("Change what prevents it, or the pods, so that they are admitted"),
                format!("{kubectl} -n {namespace} describe {}", shell_quoted(&owner.owner.argument())),
            ),
        }
    }

    fn other_pods(&self, obstacle: &Obstacle) -> Told {
        let (advice, mut commands) = self.remedy(obstacle);
        let suitable = self.suitable(obstacle);
        commands.extend(self.return_commands(&suitable));
        let cordoned = self.uncordon_too(&suitable);
        let instead = match suitable.as_slice() {
            [] => String::new(),
            [node] if node == self.node => {
                format!("; or stop the maintenance{cordoned}: the pods may fit on its node")
            }
            nodes => {
                let which = if nodes.len() == 1 { "a node" } else { "one of the nodes" };
                let unless = self.unless_worked_on(nodes);
                format!("; or return {which} to service on which the pods may fit{unless}{cordoned}")
            }
        };
        let (wait, status) = self.returned_by_rolls(obstacle);
        commands.extend(status);
        Told {
            what: Some(sentence(&self.unready(obstacle))),
            advice: format!("{advice}{instead}{wait}"),
            commands,
            passes: self.only_starts(obstacle),
        }
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
            return Told {
                what: Some(sentence(&self.unready(obstacle))),
                advice,
                commands,
                passes: self.only_starts(obstacle),
            };
        }
        let patch = "{\"spec\":{\"unhealthyPodEvictionPolicy\":\"AlwaysAllow\"}}";
        let allow = self.each_budget(|namespace, budget| {
            format!("-n {namespace} patch pdb {budget} --type=merge -p '{patch}'")
        });
        Told {
            what: Some(format!(
                "The budget protects pods that are not Ready themselves: {}",
                sentence(&self.unready(obstacle))
            )),
            advice: String::from(
                "Find out why they are not Ready: members of a quorum must become Ready first. Otherwise, allow the eviction of pods \
                 that are not Ready; the budget keeps protecting those that are",
            ),
            commands: commands.into_iter().chain(allow).collect(),
            passes: false,
        }
    }

    /// The nodes in maintenance that may take pods for which the scheduler finds no node: the explained one last, and not if pods of
    /// the same workload, as the explained node has, keep these pods away. A roll returns its nodes by itself, and its maintenances are not to be stopped one
    /// by one.
    fn suitable(&self, obstacle: &Obstacle) -> Vec<String> {
        if !lacks_a_node(obstacle) {
            return Vec::new();
        }
        let suits: BTreeSet<&String> = self.subjects.iter().flat_map(|subject| &subject.suits).collect();
        let mut suits: Vec<&String> = suits.into_iter().collect();
        let cordoned_before = self.cordoned_before();
        suits.sort_by_key(|node| self.return_order(node, &cordoned_before));
        let (own, others): (Vec<&String>, Vec<&String>) =
            suits.into_iter().partition(|node| *node == self.node);
        // Once the node is drained, they have left it.
        let is_apart = obstacle.is_of_anti_affinity() && !self.facts.drained.contains(self.node);
        let suitable = if is_apart { others } else { [others, own].concat() };
        suitable.into_iter().filter(|node| self.roll_of(node).is_none()).cloned().collect()
    }

    /// That rolls return nodes on which pods may fit for which the scheduler finds no node, and the commands that show how far they
    /// are.
    fn returned_by_rolls(&self, obstacle: &Obstacle) -> (String, Vec<String>) {
        if !lacks_a_node(obstacle) {
            return (String::new(), Vec::new());
        }
        let suits = self.subjects.iter().flat_map(|subject| &subject.suits);
        let of_rolls = suits.filter(|node| *node != self.node && self.roll_of(node).is_some());
        let ways = self.ways_back(&of_rolls.cloned().collect());
        match ways.wait() {
            Some(wait) => (format!("; or {wait}: the pods may fit there"), ways.commands(self)),
            None => (String::new(), Vec::new()),
        }
    }

    pub(super) fn are_all_of_jobs(&self) -> bool {
        let is_of_job =
            |subject: &Subject| subject.owner.as_ref().is_some_and(|owner| *owner.kind() == OwnerKind::Job);
        self.subjects.iter().all(is_of_job)
    }

    /// The commands that edit the workloads of the pods.
    pub(super) fn edited_owners(&self) -> Vec<String> {
        let edit = |subject: &Subject| {
            // The template of a Job cannot be changed.
            let owner = subject.owner.as_ref().filter(|owner| *owner.kind() != OwnerKind::Job)?.argument();
            let (namespace, owner) = (shell_quoted(&subject.pod.namespace), shell_quoted(&owner));
            Some(format!("{} -n {namespace} edit {owner}", self.kubectl))
        };
        self.few(self.subjects.iter().filter_map(edit))
    }

    pub(super) fn subjects(&self) -> String {
        let names: Vec<String> = self.subjects.iter().map(|subject| subject.pod.to_string()).collect();
        first_names(&names)
    }

    /// `The budget allows 1 eviction`, or `The budgets allow 2 evictions in total` if the chains of several end here.
    fn of_budgets(&self, one: &str, several: &str) -> String {
        if self.budgets.len() == 1 { format!("The budget {one}") } else { format!("The budgets {several}") }
    }

    pub(super) fn describe_budgets(&self) -> Vec<String> {
        self.each_budget(|namespace, budget| format!("-n {namespace} describe pdb {budget}"))
    }

    /// A kubectl command for each of the first budgets, by its namespace and name.
    pub(super) fn each_budget(&self, command: impl Fn(&str, &str) -> String) -> Vec<String> {
        let named = self.budgets.iter().copied().filter(|budget| !budget.name.is_empty());
        self.each(named, command)
    }

    /// A kubectl command for each of the first pods.
    pub(super) fn each_pod(&self, command: impl Fn(&str, &str) -> String) -> Vec<String> {
        self.each(self.subjects.iter().map(|subject| &subject.pod), command)
    }

    /// A cause in words, and the commands that are left out.
    pub(super) fn counted(self, tell: impl Fn(Self) -> Told) -> (Told, Vec<String>) {
        let all = tell(Self { has_all_commands: true, ..self }).commands;
        let told = tell(self);
        let left_out = all.into_iter().filter(|command| !told.commands.contains(command)).collect();
        (told, left_out)
    }

    /// The first few distinct commands of a kind, or all.
    pub(super) fn few(&self, commands: impl Iterator<Item = String>) -> Vec<String> {
        let (mut few, left_out) = few_of(commands);
        if self.has_all_commands {
            few.extend(left_out);
        }
        few
    }

    fn each<'a>(
        &self,
        objects: impl Iterator<Item = &'a PodReference>,
        command: impl Fn(&str, &str) -> String,
    ) -> Vec<String> {
        self.few(objects.map(|object| {
            let command = command(&shell_quoted(&object.namespace), &shell_quoted(&object.name));
            format!("{} {command}", self.kubectl)
        }))
    }
}

/// Whether the scheduler finds no node for a pod, and another node could be one.
fn lacks_a_node(obstacle: &Obstacle) -> bool {
    matches!(obstacle, Obstacle::Unschedulable(_)) && !obstacle.is_of_volume()
}
