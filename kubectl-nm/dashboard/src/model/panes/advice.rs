//! What blocks the selected row and what to do about it, and what is copied.

use jiff::Timestamp;
use nm_core::explain::cause::{Cause, Outlook, capitalized};
use nm_core::explain::cluster_facts::ClusterFacts;
use nm_core::explain::deletions;
use nm_core::explain::explanation;
use nm_core::explain::obstacle_wording::{CRASH_LOOP_ADVICE, log_of_exited};
use nm_core::explain::remedy::{self, Case, Remedy};
use nm_core::explain::roll_causes::skip_of;
use nm_core::leader::Reconcilers;
use nm_core::maintenance::roll::RollRunners;
use nm_core::maintenance::slow_surge::SlowSurge;
use nm_core::maintenance::{State, blocked_pods, is_held_by_hooks, is_refused, uid};
use nm_core::terminal::command_context::{nm_command, shell_quoted};
use nm_core::terminal::text::{counted, first_names, harmless};
use nm_roll::halted::HaltedRoll;
use nm_shared::{BlockReason, BlockedPod, NodeMaintenance, PodReference, PodState};

use crate::model::fleet::fleet_row::FleetRow;
use crate::model::fleet::node_row::NodeRow;
use crate::model::lists::listing::Row;
use crate::model::open_node::pod_row::PodRow;
use crate::model::tree::tree_row::{TreeItem, TreeRow};
use crate::model::{Model, OpenNode, SideContent};
use crate::objects::replacement_pod::{ReplicaState, WaitsFor};

/// What blocks a row, and what to do about it.
#[derive(Debug, Clone)]
pub(crate) struct Advice {
    /// With the name of what it is about.
    pub(crate) why: String,
    pub(crate) remedy: Remedy,
    /// The commands that follow the one of the remedy.
    pub(crate) then: Vec<String>,
    /// How many further commands are left out.
    pub(crate) left_out: usize,
}

impl Advice {
    /// The words and the commands of a cause.
    fn of(why: String, cause: Cause) -> Self {
        let mut commands = cause.commands.into_iter();
        let command = commands.next().unwrap_or_default();
        let remedy = Remedy { advice: cause.advice, command };
        Self { why, remedy, then: commands.collect(), left_out: cause.left_out.len() }
    }
}

impl From<(String, Remedy)> for Advice {
    fn from((why, remedy): (String, Remedy)) -> Self {
        Self { why, remedy, then: Vec::new(), left_out: 0 }
    }
}

impl Model {
    /// What blocks the selected row, or else the first row, and what to do about it first.
    #[cfg(test)]
    pub(crate) fn remedy(&self) -> Option<(String, Remedy)> {
        self.advice().map(|(_, advice)| (advice.why, advice.remedy))
    }

    /// What blocks the selected row, or else the first row, and whether it is the selected one. The pane with the details is only
    /// about the selected row.
    pub(crate) fn advice(&self) -> Option<(bool, Advice)> {
        let of_selected = self.advice_of_selected().map(|advice| (true, advice));
        let has_details = self.side.is_some_and(|side| side.shows == SideContent::Details);
        // Without rows, it is about the open node.
        let has_no_rows = self.rows().len() == 0;
        of_selected.or_else(|| Some((has_no_rows, self.advice_of_first().filter(|_| !has_details)?)))
    }

    fn advice_of_first(&self) -> Option<Advice> {
        match &self.open {
            Some(open) => {
                let first = open.pods.rows.nth(0).and_then(|row| self.remedy_of_pod(open, row));
                first.or_else(|| self.remedy_of_node(self.maintenance()?))
            }
            None if self.shows_nodes() => None,
            None => self.remedy_of_node(self.fleet.maintenance(self.fleet.rows.nth(0)?.key())?),
        }
    }

    pub(super) fn advice_of_selected(&self) -> Option<Advice> {
        match &self.open {
            Some(open) => {
                let maintenance = self.maintenance().filter(|_| !open.has_chosen());
                let held = || self.first_remedy(maintenance.filter(|it| waits(it))?);
                let of_node = maintenance.and_then(|it| self.remedy_of_halt(it)).or_else(held);
                of_node.or_else(|| match open.pod_of_selected() {
                    Some(row) => self.remedy_of_pod(open, row),
                    None => self.remedy_of_replacement(open.selected_in_tree()?).map(Advice::from),
                })
            }
            None => self.remedy_of_node(self.maintenance()?),
        }
    }

    fn remedy_of_pod(&self, open: &OpenNode, row: &PodRow) -> Option<Advice> {
        let is_pending = row.progress.state.is_some_and(PodState::is_pending);
        let causes = self.first_causes.of_node(&open.name).filter(|_| is_pending);
        if let Some((causes, cause)) = causes.and_then(|causes| Some((causes, causes.of(&row.id)?))) {
            let why = of_pod(&row.id.namespace, &row.id.name, &told(cause));
            return Some(of_cause(why, cause, causes.all(), self.maintenance().map(AsRef::as_ref)));
        }
        let case = Case {
            kubectl: &self.options.kubectl,
            node: &open.name,
            namespace: &row.id.namespace,
            name: &row.id.name,
            owner: row.id.owner.as_ref(),
            is_bare: row.id.owner.is_none() && !row.id.is_named_only(),
            reason: row.progress.reason?,
            facts: row.progress.facts.as_deref()?,
        };
        let maintenance = self.maintenance().map(AsRef::as_ref);
        let remedy = match maintenance {
            Some(maintenance) => explanation::remedy_of(&case, maintenance),
            None => remedy::remedy(&case),
        };
        let remedy = and_continue(maintenance, remedy);
        // Nothing has to be read of some causes.
        let told = maintenance.and_then(|maintenance| {
            let (facts, kubectl) = (self.known_facts(), &self.options.kubectl);
            let none = Reconcilers::default();
            explanation::of_pod(&row.id.reference(), maintenance, &none, &facts, kubectl, self.now)
        });
        let told = told.filter(|told| told.commands.first() == Some(&remedy.command));
        let then = told.map(|told| told.commands.into_iter().skip(1).collect()).unwrap_or_default();
        Some(Advice { then, ..(why(&case, &row.progress.message), remedy).into() })
    }

    /// What a replacement waits for, and a command that shows more.
    fn remedy_of_replacement(&self, row: &TreeRow) -> Option<(String, Remedy)> {
        let TreeItem::Replacement { replica, message } = &row.item else { return None };
        let id = &replica.id;
        let (namespace, name) = (shell_quoted(&id.namespace), shell_quoted(&id.name));
        let kubectl = format!("{} -n {namespace}", self.options.kubectl);
        let (advice, command) = match &replica.state {
            ReplicaState::Waiting(WaitsFor::CrashLoop { name: container, has_ended, .. }) => {
                let rest = log_of_exited(container, *has_ended);
                (CRASH_LOOP_ADVICE, format!("{kubectl} logs {name} {rest}"))
            }
            _ => ("See what the replacement waits for", format!("{kubectl} describe pod {name}")),
        };
        let advice = advice.to_owned();
        (!message.is_empty())
            .then(|| (format!("{}/{}: {message}", id.namespace, id.name), Remedy { advice, command }))
    }

    fn remedy_of_node(&self, maintenance: &NodeMaintenance) -> Option<Advice> {
        let causes = self.first_causes.of_node(&maintenance.spec.node_name);
        let first = self.remedy_of_halt(maintenance).or_else(|| self.first_remedy(maintenance));
        let first = first.or_else(|| remedy_of_causes(maintenance, causes?.all()));
        let blocked = || remedy_of_blocked(maintenance, &self.fleet.rolls, &self.options.kubectl, self.now);
        let remedy =
            first.or_else(|| blocked().map(Advice::from)).or_else(|| self.remedy_of_cause(maintenance));
        let other = || self.remedy_of_surge(maintenance).or_else(|| self.remedy_of_outages(maintenance));
        remedy.or_else(|| other().map(Advice::from)).or_else(|| {
            let halted = self.fleet.halted_roll_of(maintenance)?;
            Some(of_halt(maintenance, halted, &self.options.kubectl))
        })
    }

    /// What to do about the roll that the node has halted, unless its drain has to continue before.
    fn remedy_of_halt(&self, maintenance: &NodeMaintenance) -> Option<Advice> {
        let halted = self.fleet.halted_roll_of(maintenance)?;
        let is_first = halted.node() == maintenance.spec.node_name && !halted.awaits_drain();
        is_first.then(|| of_halt(maintenance, halted, &self.options.kubectl))
    }

    /// A surge that takes long, and the command that shows its cause.
    fn remedy_of_surge(&self, maintenance: &NodeMaintenance) -> Option<(String, Remedy)> {
        let surge = SlowSurge::of(maintenance).filter(|_| State::of(maintenance) == State::Draining)?;
        let node = &maintenance.spec.node_name;
        let why = format!("{node}: {}", surge.words(self.now)?);
        let command = nm_command(&self.options.kubectl, &format!("explain {}", shell_quoted(node)));
        Some((why, Remedy { advice: String::from("This shows why the new pods are not Ready"), command }))
    }

    /// The workloads that the drain has left without a ready pod.
    fn remedy_of_outages(&self, maintenance: &NodeMaintenance) -> Option<(String, Remedy)> {
        let down = self.fleet.outages.of(&uid(maintenance));
        let node = &maintenance.spec.node_name;
        let advice = match down.len() {
            0 => return None,
            1 => "See why the workload has no ready pod",
            _ => "See why the workloads have no ready pod",
        };
        let why = format!("{node}: {} down: {}", counted(down.len(), "workload"), first_names(down));
        let command = nm_command(&self.options.kubectl, &format!("explain {}", shell_quoted(node)));
        Some((why, Remedy { advice: advice.to_owned(), command }))
    }

    /// What keeps the maintenance as a whole from continuing, which comes before its pods in `explain`, too. None if its pods have
    /// to be fixed first.
    fn first_remedy(&self, maintenance: &NodeMaintenance) -> Option<Advice> {
        if first_fixes_pods(maintenance) {
            return None;
        }
        let facts = self.known_facts();
        let (kubectl, now) = (&self.options.kubectl, self.now);
        let cause = explanation::of_the_node(maintenance, &Reconcilers::default(), &facts, kubectl, now)?;
        remedy_of(maintenance, Some(cause).filter(|cause| waits(maintenance) || !cause.passes())?)
    }

    /// What blocks the whole node, as `explain` reports it, except for what passes by itself at once.
    fn remedy_of_cause(&self, maintenance: &NodeMaintenance) -> Option<Advice> {
        let facts = self.known_facts();
        let (kubectl, now) = (&self.options.kubectl, self.now);
        let causes = explanation::causes(maintenance, &Reconcilers::default(), &facts, kubectl, now);
        remedy_of(maintenance, causes.into_iter().find(|cause| waits(maintenance) || !cause.passes())?)
    }

    fn known_facts(&self) -> ClusterFacts {
        ClusterFacts { rolls: self.fleet.rolls.clone(), ..ClusterFacts::default() }
    }

    /// What the user most likely wants to paste: the command that is shown, or a description of the selected row.
    pub(crate) fn copy_text(&self) -> Option<String> {
        let command = self.advice().map(|(_, advice)| advice.remedy.command);
        let command = command.filter(|command| !command.is_empty());
        let text = command.or_else(|| self.selected_line())?;
        // It is pasted where line breaks and control characters take effect.
        Some(harmless(&text))
    }

    fn selected_line(&self) -> Option<String> {
        if let Some(open) = &self.open {
            let Some(row) = open.selected_pod() else { return open.selected_in_tree()?.line() };
            let (id, progress) = (&row.id, &row.progress);
            let line = format!("{} {}/{} {}", progress.word(), id.namespace, id.name, progress.message);
            return Some(line.trim_end().to_owned());
        }
        if self.shows_nodes() {
            return self.nodes.rows.selected().map(NodeRow::line);
        }
        let row = self.fleet.rows.selected()?;
        let FleetRow { node, percent, gone, pods, .. } = row;
        let line =
            format!("{node} {} {percent}% {gone}/{pods} {}", row.state_word(), self.fleet.why(row, self.now));
        Some(line.trim_end().to_owned())
    }
}

/// Whether what a maintenance waits for as a whole is shown although it passes: somebody has to end it.
fn waits(maintenance: &NodeMaintenance) -> bool {
    matches!(State::of(maintenance), State::Queued | State::Planned | State::Paused)
        || is_held_by_hooks(maintenance)
}

/// Whether what blocked pods has to be fixed before the drain, which has timed out, can continue.
fn first_fixes_pods(maintenance: &NodeMaintenance) -> bool {
    explanation::continues(maintenance).is_some() && !is_held_by_hooks(maintenance)
}

fn of_halt(maintenance: &NodeMaintenance, halted: &HaltedRoll, kubectl: &str) -> Advice {
    let cause = halted.cause(kubectl);
    Advice::of(format!("{}: {}", maintenance.spec.node_name, told(&cause)), cause)
}

fn remedy_of(maintenance: &NodeMaintenance, cause: Cause) -> Option<Advice> {
    let what = cause.what.first()?;
    let why = format!("{}: {}", maintenance.spec.node_name, what.trim_end_matches('.'));
    (!cause.commands.is_empty()).then(|| Advice::of(why, cause))
}

/// What is behind the first cause that keeps a blocked pod on its node, and what to do about it, as `explain` reports them; none
/// before the causes are read.
pub(crate) fn remedy_of_causes(maintenance: &NodeMaintenance, causes: &[Cause]) -> Option<Advice> {
    let blocked: Vec<PodReference> = blocked_pods(maintenance).iter().map(BlockedPod::reference).collect();
    let cause = causes.iter().find(|cause| blocked.iter().any(|pod| cause.keeps(pod)))?;
    let why = format!("{}: {}", maintenance.spec.node_name, told(cause));
    Some(of_cause(why, cause, causes, Some(maintenance)))
}

/// What a cause is, and what is not known of it, in one line without its full stop.
fn told(cause: &Cause) -> String {
    let sentences: Vec<&str> = cause.what.iter().chain(&cause.unseen).map(String::as_str).collect();
    sentences.join(" ").trim_end_matches('.').to_owned()
}

/// What to do about one of the causes of pods. If it only waits for the drain to continue, this is what keeps the whole drain, which
/// comes first.
fn of_cause(why: String, cause: &Cause, all: &[Cause], maintenance: Option<&NodeMaintenance>) -> Advice {
    let of_drain = all.first().filter(|first| first.outlook != Outlook::AwaitsDrain);
    if let Some(of_drain) = of_drain.filter(|_| cause.outlook == Outlook::AwaitsDrain) {
        return Advice::of(why, of_drain.clone());
    }
    let advice = Advice::of(why, cause.clone());
    Advice { remedy: and_continue(maintenance, advice.remedy), ..advice }
}

/// What blocks the first blocked pod of a node, and what to do about it; none if no pod is blocked.
pub(crate) fn remedy_of_blocked(
    maintenance: &NodeMaintenance,
    rolls: &RollRunners,
    kubectl: &str,
    now: Timestamp,
) -> Option<(String, Remedy)> {
    let pod = blocked_pods(maintenance).first()?;
    let case = Case {
        kubectl,
        node: &maintenance.spec.node_name,
        namespace: &pod.namespace,
        name: &pod.name,
        owner: None,
        is_bare: false,
        reason: pod.reason,
        facts: &pod.facts,
    };
    let is_off = pod.reason == BlockReason::NodeNotReady;
    let remedy = match skip_of(maintenance, rolls, kubectl, now).filter(|_| is_off) {
        Some(command) => {
            let advice = String::from("Make the node Ready, or continue the roll without it");
            Remedy { advice, command }
        }
        // Only the pod shows what lets it return, and a list reads no pods.
        None if pod.reason == BlockReason::KeepsReturning => Remedy {
            advice: String::from("This shows how to change what lets the pod return"),
            command: nm_command(kubectl, &format!("explain {}", shell_quoted(case.node))),
        },
        None => explanation::remedy_of(&case, maintenance),
    };
    let why = format!("{}: {}", case.node, why(&case, &pod.message));
    let why = match deletions::announced(maintenance).filter(|_| is_refused(pod)) {
        Some(announced) => format!("{why}. {announced}"),
        None => why,
    };
    Some((why, and_continue(Some(maintenance), remedy)))
}

/// The remedy of a blocked pod, and what continues a drain that has timed out.
fn and_continue(maintenance: Option<&NodeMaintenance>, remedy: Remedy) -> Remedy {
    match maintenance.and_then(explanation::continues) {
        None => remedy,
        Some(continues) if remedy.advice.is_empty() => Remedy { advice: capitalized(&continues), ..remedy },
        Some(continues) => Remedy { advice: format!("{}; then {continues}", remedy.advice), ..remedy },
    }
}

/// What blocks a pod: `shop/cart-0: PDB shop/cart needs 3, has 3`.
fn why(case: &Case<'_>, message: &str) -> String {
    let short = remedy::in_short(case.namespace, case.reason, case.facts, message);
    of_pod(case.namespace, case.name, &short)
}

/// What is said of a pod, with its name unless the sentence begins with it.
fn of_pod(namespace: &str, name: &str, what: &str) -> String {
    let pod = format!("{namespace}/{name}");
    let rest = what.strip_prefix(pod.as_str());
    let is_named = rest.is_some_and(|rest| rest.starts_with([' ', ':', ',']));
    if is_named { what.to_owned() } else { format!("{pod}: {what}") }
}
