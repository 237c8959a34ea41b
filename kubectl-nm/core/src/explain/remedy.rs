//! What to do about a blocked pod: advice, and a command to paste into a shell.
//!
//! Where it is necessary to look before acting, the command only looks. Names come from the API and pasted text is
//! executed, so everything in a command is quoted.

use nm_shared::api::names::OUT_OF_SERVICE_TAINT;
use nm_shared::{BlockFacts, BlockReason, BudgetFacts, ForbiddenAccess, Grant, SurgeFacts, SurgeObstacle};

use crate::explain::deletions;
use crate::explain::finalizers;
use crate::explain::owner::{Owner, OwnerKind};
use crate::explain::recount::quoted_names;
use crate::explain::surge_causes;
use crate::terminal::command_context::{nm_command, shell_quoted};
use crate::terminal::text::{counted, first_names};

/// A blocked pod, and what its remedy depends on.
#[derive(Debug, Clone, Copy)]
pub struct Case<'a> {
    /// `kubectl` with the connection flags, for commands to paste.
    pub kubectl: &'a str,
    /// Node of the pod.
    pub node: &'a str,
    /// Namespace of the pod.
    pub namespace: &'a str,
    /// Name of the pod.
    pub name: &'a str,
    /// What controls it, if that is known.
    pub owner: Option<&'a Owner>,
    /// Whether it is known that nothing controls it.
    pub is_bare: bool,
    /// Why the pod is blocked.
    pub reason: BlockReason,
    /// Details of the reason, such as the budget.
    pub facts: &'a BlockFacts,
}

/// What to do about a blocked pod.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Remedy {
    /// A sentence without its full stop.
    pub advice: String,
    /// Command to paste into a shell, with connection flags; empty if nothing has to be done.
    pub command: String,
}

/// What to do about access that the reconciler lacks. `check` is the permission to check, as `kubectl auth can-i` accepts it.
/// Older reconcilers, and the medik8s operator, do not report which access and whose.
pub(crate) fn missing_access(
    kubectl: &str,
    access: Option<&ForbiddenAccess>,
    check: &str,
) -> (String, String) {
    let Some(access) = access else {
        let advice = "Grant nm-reconciler the permissions of its manifests; this checks the installation";
        return (advice.to_owned(), nm_command(kubectl, "doctor"));
    };
    if let Some(grant) = Grant::of(access) {
        let cost = match grant {
            Grant::PodDeletion => "; it then deletes the pods whatever their budgets allow",
            _ => "",
        };
        let advice = format!("Grant nm-reconciler the permission to {}{cost}", grant.permits());
        return (advice, nm_command(kubectl, &format!("install --grant {grant}")));
    }
    let advice = "Grant nm-reconciler the permissions of its manifests; this checks what it has".to_owned();
    (advice, format!("{kubectl} auth can-i {check} --as={}", shell_quoted(&access.user)))
}

/// Chooses the remedy by the reason and its details.
pub fn remedy(case: &Case<'_>) -> Remedy {
    let Case { kubectl, namespace, name, node, .. } = *case;
    let (kubectl_in, pod) = (format!("{kubectl} -n {}", shell_quoted(namespace)), shell_quoted(name));
    let (advice, command) = match case.reason {
        BlockReason::DisruptionBudget => budget(case, &kubectl_in),
        BlockReason::MultipleDisruptionBudgets => {
            // Without their names, one of them may be gone by now.
            if case.facts.budgets.is_empty() {
                let advice = "If more than one budget still selects the pod, change their selectors: Kubernetes refuses its \
                              eviction as long as more than one does. Otherwise, wait for the next attempt";
                (advice.into(), format!("{kubectl_in} get pdb -o wide"))
            } else {
                let advice = "Change the selectors of the budgets so that only one selects the pod, or delete those that guard \
                              nothing else: as long as more than one selects it, Kubernetes refuses its eviction, whatever \
                              they allow. Then change an annotation of those that are left, so that their pods are counted again";
                (advice.into(), format!("{kubectl_in} edit pdb {}", quoted_names(&case.facts.budgets)))
            }
        }
        BlockReason::AdmissionWebhook => (
            "Find the owner of the webhook, or see what it requires".into(),
            format!("{kubectl} get validatingwebhookconfigurations,mutatingwebhookconfigurations"),
        ),
        BlockReason::AdmissionPolicy => admission_policy(case, &kubectl_in),
        BlockReason::NotMigratable => (
            "Shut the virtual machine down, or make it migratable: its conditions show what is missing".into(),
            format!(
                "{kubectl_in} describe {}",
                virtual_machine(case).unwrap_or_else(|| format!("pod {pod}"))
            ),
        ),
        BlockReason::MigrationFailed => (
            "KubeVirt retries the migration; the migrations of the virtual machine show why it failed".into(),
            format!("{kubectl_in} get vmim -o wide"),
        ),
        BlockReason::MigrationNotStarted => match &case.facts.migration {
            Some(migration) => (
                "To find out why the migration does not start, check its events and those of its target pod".into(),
                format!("{kubectl_in} describe vmim {}", shell_quoted(&migration.name)),
            ),
            None => (
                "Check whether virt-controller is running, and whether the eviction strategy of the virtual machine \
                 leaves the migration to another controller"
                    .into(),
                format!(
                    "{kubectl_in} describe {}",
                    virtual_machine(case).unwrap_or_else(|| format!("pod {pod}"))
                ),
            ),
        },
        BlockReason::Forbidden => {
            let evict = format!("create pods --subresource=eviction -n {}", shell_quoted(namespace));
            missing_access(kubectl, case.facts.forbidden.as_ref(), &evict)
        }
        BlockReason::NamespaceTerminating => (
            "The namespace is being deleted, together with the pod: check what delays the deletion".into(),
            format!("{kubectl} get namespace {} -o yaml", shell_quoted(namespace)),
        ),
        BlockReason::ServerError if case.facts.webhook.is_some() => (
            "The API server cannot call the webhook: check the service behind it".into(),
            format!("{kubectl} get validatingwebhookconfigurations,mutatingwebhookconfigurations"),
        ),
        BlockReason::ServerError => (
            "Check the health of the API server".into(),
            format!("{kubectl} get --raw '/readyz?verbose'"),
        ),
        BlockReason::Unmanaged => (
            "Delete the pod if you no longer need it: no controller replaces it, and a deletion ignores budgets"
                .into(),
            format!("{kubectl_in} delete pod {pod}"),
        ),
        BlockReason::LocalStorage if case.is_bare => (
            "Delete the pod if you no longer need it or its emptyDir data: no controller replaces it, and a deletion ignores budgets"
                .into(),
            format!("{kubectl_in} delete pod {pod}"),
        ),
        BlockReason::LocalStorage => (
            "Delete the pod if you no longer need its emptyDir data. A deletion ignores budgets: if a controller replaces the pod, \
             wait for its replacement before you delete another one. A Job counts it as failed"
                .into(),
            format!("{kubectl_in} delete pod {pod}"),
        ),
        BlockReason::KeepsReturning => keeps_returning(case, &kubectl_in),
        BlockReason::Finalizers => {
            (finalizers::advice(case.facts.finalizers.len()).into(), format!("{kubectl_in} edit pod {pod}"))
        }
        BlockReason::NodeNotReady => (
            format!("Make the node Ready. {}", node_is_off()),
            format!("{kubectl} describe node {}", shell_quoted(node)),
        ),
        BlockReason::NotEnding => (
            "The kubelet has not terminated the pod: check its events, then the kubelet's log".into(),
            format!("{kubectl_in} describe pod {pod}"),
        ),
        BlockReason::Unknown => ("Check the events of the pod".into(), format!("{kubectl_in} describe pod {pod}")),
    };
    Remedy { advice, command }
}

/// That the node of terminating pods, whose names these are, does not report.
pub(super) fn never_ends(pods: &str, be: &str, node: &str) -> String {
    format!("{pods} {be} terminating, but node {node} is not Ready: no kubelet confirms that")
}

/// What to do about a node whose machine is off. While the machine runs, its pods may run on it beside their replacements.
pub(super) fn node_is_off() -> String {
    format!(
        "Only if you have verified that the machine is off, and not merely unreachable, delete the node if it will not return, or \
         add the taint {OUT_OF_SERVICE_TAINT}=nodeshutdown:NoExecute: Kubernetes then force-deletes the node's pods that do \
         not tolerate it and detaches their volumes. Remove the taint once the node is back"
    )
}

fn budget(case: &Case<'_>, kubectl_in: &str) -> (String, String) {
    if let Some(surge) = &case.facts.surge
        && let Some(remedy) = surge_remedy(case, surge, kubectl_in)
    {
        return remedy;
    }
    // Whether the budget or its pods have to change depends on more than the status shows.
    if let Some(budget) = case.facts.budget.as_ref().filter(|_| case.facts.surge.is_none()) {
        let explain = nm_command(case.kubectl, &format!("explain {}", shell_quoted(case.node)));
        return (by_numbers(budget).to_owned(), explain);
    }
    let command = match &case.facts.budget {
        Some(budget) => format!("{kubectl_in} describe pdb {}", shell_quoted(&budget.name)),
        None => format!("{kubectl_in} get pdb"),
    };
    ("Find out why the budget allows no eviction before you change anything".into(), command)
}

/// Why a budget allows no eviction, as far as its numbers show that. The command shows the rest.
fn by_numbers(budget: &BudgetFacts) -> &'static str {
    let pods = budget.expected_pods;
    match (budget.desired_healthy, budget.current_healthy) {
        // Otherwise it would allow one, but for evictions that its status counts already, or if it expects no pods.
        (Some(needed), Some(healthy)) if healthy > needed && pods.is_some() => {
            "The budget still counts evictions that were just accepted: wait until those pods have left. This shows more"
        }
        (Some(needed), Some(healthy)) if healthy < needed || pods.is_some_and(|pods| healthy < pods) => {
            "Some of the budget's pods are not Ready, or are missing: this shows which, and why"
        }
        // Of `minAvailable`, the pods that there are count as expected, even if their owner wants more.
        (Some(needed), _) if pods.is_some_and(|pods| needed >= pods) => {
            "The budget requires all existing pods: this shows whether some are missing, and how the pod can leave"
        }
        _ => "This shows why the budget allows no eviction",
    }
}

/// What makes the pod's Deployment replace it first. None if only the budget can be changed.
fn surge_remedy(case: &Case<'_>, surge: &SurgeFacts, kubectl_in: &str) -> Option<(String, String)> {
    let deployment = surge.deployment.as_deref().map(shell_quoted);
    let of_deployment = |what: &str| Some(format!("{kubectl_in} {what}/{}", deployment.as_deref()?));
    let patch = |rolling: &str| {
        let strategy = format!(
            "{{\"spec\":{{\"strategy\":{{\"type\":\"RollingUpdate\",\"rollingUpdate\":{rolling}}}}}}}"
        );
        of_deployment(&format!("patch --type=merge -p '{strategy}' deployment"))
    };
    let (advice, command) = match surge.reason {
        SurgeObstacle::NoDeployment | SurgeObstacle::KeptApart | SurgeObstacle::Unknown => return None,
        SurgeObstacle::Recreate => (
            "If two pods of the Deployment may run at once, use a rolling update with maxSurge 1 and maxUnavailable 0",
            patch("{\"maxSurge\":1,\"maxUnavailable\":0}")?,
        ),
        SurgeObstacle::NoSurge => (
            "If the Deployment may run one pod more than its replicas, set its maxSurge to 1 and maxUnavailable to 0",
            patch("{\"maxSurge\":1,\"maxUnavailable\":0}")?,
        ),
        SurgeObstacle::Unavailable => (
            "Set maxUnavailable of the Deployment to 0, so that it terminates no pod before the replacement is Ready",
            patch("{\"maxUnavailable\":0}")?,
        ),
        SurgeObstacle::Paused => (
            "If its owner agrees, resume the Deployment: it then rolls out what was changed meanwhile, and replaces the pod first",
            of_deployment("rollout resume deployment")?,
        ),
        SurgeObstacle::CreationFailed => (
            "Change what refuses the new pod, such as a quota, or the pod template; then the Deployment tries again by itself, \
             perhaps only after minutes",
            format!("{kubectl_in} get resourcequotas,limitranges"),
        ),
        SurgeObstacle::Stalled => (
            "Check why the new pods of the Deployment do not become Ready",
            of_deployment("describe deployment")?,
        ),
        SurgeObstacle::RolledBack => (
            "Configure the tool that manages the Deployment to keep the annotation of a restart, then restart the \
             Deployment",
            of_deployment("rollout restart deployment")?,
        ),
        SurgeObstacle::SharedVolume => (
            "The volume can move only after the pod has terminated: agree on a downtime with the owner of the Deployment, \
             and scale it to 0 until the node is drained",
            of_deployment("describe deployment")?,
        ),
        SurgeObstacle::MayReturn => (
            "Remove the toleration or nodeName from the template of the Deployment, or scale the Deployment down",
            of_deployment("edit deployment")?,
        ),
        SurgeObstacle::Forbidden => {
            return Some(missing_access(
                case.kubectl,
                case.facts.forbidden.as_ref(),
                "patch deployments.apps",
            ));
        }
        SurgeObstacle::Refused => (
            "Find out why the restart of the Deployment is refused; a restart by hand has the same effect, if it is permitted",
            of_deployment("describe deployment")?,
        ),
    };
    Some((advice.to_owned(), command))
}

fn admission_policy(case: &Case<'_>, kubectl_in: &str) -> (String, String) {
    match &case.facts.policy {
        Some(policy) => (
            "Do what the policy requires, or exempt the evictions from it".into(),
            format!(
                "{} get validatingadmissionpolicies {} -o yaml",
                case.kubectl,
                shell_quoted(&policy.name)
            ),
        ),
        None => (
            "The API server refuses the eviction; its message names the cause".into(),
            format!("{kubectl_in} describe pod {}", shell_quoted(case.name)),
        ),
    }
}

fn keeps_returning(case: &Case<'_>, kubectl_in: &str) -> (String, String) {
    let advice = "If another node can take the pod, remove what lets it return from the pod template; or scale its owner down"
        .into();
    let command = match case.owner {
        Some(owner) => format!("{kubectl_in} edit {}", shell_quoted(&owner.argument())),
        None => format!("{kubectl_in} describe pod {}", shell_quoted(case.name)),
    };
    (advice, command)
}

/// The virtual machine in the pod, as `vmi/db`.
fn virtual_machine(case: &Case<'_>) -> Option<String> {
    let machine = case.owner.filter(|owner| *owner.kind() == OwnerKind::VirtualMachineInstance)?;
    Some(shell_quoted(&machine.argument()).into_owned())
}

/// Why pods are blocked alike, with their names; none if what blocks them is the subject of the words.
pub(super) fn subject_and_reason(
    pods: &[String],
    reason: BlockReason,
    facts: &BlockFacts,
    message: &str,
) -> Option<String> {
    let (is, has, it, its) = match pods.len() {
        1 => ("is", "has", "it", "its budget"),
        _ => ("are", "have", "them", "their budgets"),
    };
    let names = first_names(pods);
    match reason {
        BlockReason::MultipleDisruptionBudgets if !facts.budgets.is_empty() => {
            let budgets: Vec<String> = facts.budgets.iter().map(|budget| budget.name.clone()).collect();
            Some(format!("{names} {is} selected by more than one disruption budget: {}", budgets.join(", ")))
        }
        BlockReason::Forbidden if deletions::is_denied(reason, facts) => Some(format!(
            "{names} {is} to be deleted (--delete-after), but nm-reconciler had no permission to delete pods when it last tried"
        )),
        BlockReason::DisruptionBudget => surge_causes::denied(facts)
            .map(|grant| format!("{names} {is} kept by {its} and {}", surge_causes::not_permitted(grant))),
        BlockReason::Unmanaged => {
            Some(format!("{names} {has} no controller that would replace {it}, and --force=false keeps {it}"))
        }
        BlockReason::LocalStorage => {
            Some(format!("{names} {has} emptyDir volumes, and --delete-emptydir-data=false keeps {it}"))
        }
        BlockReason::Finalizers if !facts.finalizers.is_empty() => {
            Some(format!("{names} {has} terminated, and {}", finalizers::keep(it, &facts.finalizers)))
        }
        BlockReason::NamespaceTerminating => {
            let pods = if pods.len() == 1 { "the pod" } else { "the pods" };
            Some(format!("The namespace of {names} is being deleted, together with {pods}"))
        }
        BlockReason::NodeNotReady => {
            let node = facts.node.as_deref()?;
            Some(never_ends(&names, is, node))
        }
        BlockReason::KeepsReturning if pods.len() == 1 => Some(format!("{names}: {message}")),
        BlockReason::KeepsReturning => Some(format!("{names}: for each, {message}")),
        BlockReason::NotEnding => {
            Some(format!("{names} {is} terminating for too long: the kubelet has not terminated {it}"))
        }
        _ => None,
    }
}

/// Why a pod is blocked, in a few words with the numbers: `PDB shop/cart needs 3, has 3`. Without facts, the message.
pub fn in_short(namespace: &str, reason: BlockReason, facts: &BlockFacts, message: &str) -> String {
    let why = refusal_in_short(namespace, reason, facts, message);
    match deletions::budget_of(reason, facts) {
        // What matters comes first, because a long text is cut.
        Some(budget) => format!("{}; its deletion is refused: {why}", of_budget(namespace, budget, "")),
        None => why,
    }
}

fn refusal_in_short(namespace: &str, reason: BlockReason, facts: &BlockFacts, message: &str) -> String {
    match (reason, &facts.budget) {
        (BlockReason::DisruptionBudget, _) if facts.surge.is_some() => message.to_owned(),
        (BlockReason::DisruptionBudget, Some(budget)) => of_budget(namespace, budget, message),
        (BlockReason::MultipleDisruptionBudgets, _) if !facts.budgets.is_empty() => budgets(namespace, facts),
        (BlockReason::Finalizers, _) if !facts.finalizers.is_empty() => {
            format!("finalizers {}", facts.finalizers.join(", "))
        }
        (BlockReason::ServerError, _) if let Some(webhook) = &facts.webhook => {
            format!("webhook {webhook} does not answer")
        }
        (BlockReason::Forbidden, _) if deletions::is_denied(reason, facts) => {
            String::from("nm-reconciler had no permission to delete pods")
        }
        (BlockReason::NodeNotReady, _) => {
            String::from("the node is not Ready, so the pod does not terminate")
        }
        _ if message.is_empty() => words(reason).to_owned(),
        _ => message.to_owned(),
    }
}

/// `PDB shop/cart needs 3, has 3`. A budget can refuse while it has more pods than it needs, because it counts evictions
/// that have just begun; then its numbers alone would look as if it allowed one.
fn of_budget(namespace: &str, budget: &BudgetFacts, message: &str) -> String {
    let BudgetFacts { name, desired_healthy, current_healthy, disruptions_allowed, .. } = budget;
    match (*desired_healthy, *current_healthy) {
        (Some(desired), Some(current)) if current > desired => {
            let allowed = usize::try_from(disruptions_allowed.unwrap_or(0)).unwrap_or(0);
            let allowed = counted(allowed, "disruption");
            format!("PDB {namespace}/{name} allows {allowed} now (needs {desired}, has {current})")
        }
        (Some(desired), Some(current)) => format!("PDB {namespace}/{name} needs {desired}, has {current}"),
        _ if message.is_empty() => format!("PDB {namespace}/{name}"),
        _ => format!("PDB {namespace}/{name}: {message}"),
    }
}

/// What blocks several pods alike: `PDB shop/cart`, `finalizers in shop`.
pub fn common_blocker(namespace: &str, reason: BlockReason, facts: &BlockFacts) -> String {
    let blocker = common_refusal(namespace, reason, facts);
    match deletions::budget_of(reason, facts) {
        Some(budget) => format!("PDB {namespace}/{}, and {blocker}", budget.name),
        None => blocker,
    }
}

fn common_refusal(namespace: &str, reason: BlockReason, facts: &BlockFacts) -> String {
    match (reason, &facts.budget) {
        (BlockReason::DisruptionBudget, Some(budget)) => format!("PDB {namespace}/{}", budget.name),
        (BlockReason::MultipleDisruptionBudgets, _) if !facts.budgets.is_empty() => budgets(namespace, facts),
        (BlockReason::ServerError, _) => match &facts.webhook {
            Some(webhook) => format!("webhook {webhook}, which does not answer"),
            None => blocker(reason).to_owned(),
        },
        (BlockReason::NodeNotReady, _) => match &facts.node {
            Some(node) => format!("node {node} (not Ready)"),
            None => blocker(reason).to_owned(),
        },
        _ => format!("{} in {namespace}", blocker(reason)),
    }
}

/// What blocks pods for this reason, as it follows `blocked by`.
fn blocker(reason: BlockReason) -> &'static str {
    match reason {
        BlockReason::NotMigratable => "virtual machines that cannot migrate",
        BlockReason::MigrationFailed => "failed migrations",
        BlockReason::MigrationNotStarted => "migrations that do not start",
        BlockReason::NamespaceTerminating => "the deletion of the namespace",
        BlockReason::ServerError => "errors of the API server",
        BlockReason::Unmanaged => "missing controllers",
        BlockReason::KeepsReturning => "pods that keep returning",
        BlockReason::NodeNotReady => "a node that is not Ready",
        BlockReason::NotEnding => "pods that do not terminate",
        BlockReason::Unknown => "an unknown reason",
        BlockReason::DisruptionBudget
        | BlockReason::MultipleDisruptionBudgets
        | BlockReason::AdmissionWebhook
        | BlockReason::AdmissionPolicy
        | BlockReason::Forbidden
        | BlockReason::LocalStorage
        | BlockReason::Finalizers => words(reason),
    }
}

/// Several budgets: `PDBs shop/cart, shop/web`.
fn budgets(namespace: &str, facts: &BlockFacts) -> String {
    let names: Vec<String> =
        facts.budgets.iter().map(|budget| format!("{namespace}/{}", budget.name)).collect();
    format!("PDBs {}", names.join(", "))
}

fn words(reason: BlockReason) -> &'static str {
    match reason {
        BlockReason::DisruptionBudget => "disruption budget",
        BlockReason::MultipleDisruptionBudgets => "several budgets",
        BlockReason::AdmissionWebhook => "webhook",
        BlockReason::AdmissionPolicy => "admission policy",
        BlockReason::NotMigratable => "not migratable",
        BlockReason::MigrationFailed => "migration failed",
        BlockReason::MigrationNotStarted => "migration not started",
        BlockReason::Forbidden => "missing access",
        BlockReason::NamespaceTerminating => "namespace terminating",
        BlockReason::ServerError => "API server error",
        BlockReason::Unmanaged => "no controller",
        BlockReason::LocalStorage => "emptyDir data",
        BlockReason::KeepsReturning => "keeps returning",
        BlockReason::Finalizers => "finalizers",
        BlockReason::NodeNotReady => "node not Ready",
        BlockReason::NotEnding => "not ending",
        BlockReason::Unknown => "unknown reason",
    }
}

/// A command that changes the drain settings.
pub(super) fn patch_drain(kubectl: &str, name: &str, drain: &str) -> String {
    let name = shell_quoted(name);
    format!("{kubectl} patch nm {name} --type=merge -p '{{\"spec\":{{\"drain\":{drain}}}}}'")
}

#[cfg(test)]
#[path = "remedy_tests.rs"]
mod tests;
