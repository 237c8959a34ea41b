//! What a person can do about a blocked pod: a piece of advice, and a command to paste.
//!
//! The commands look before they act wherever looking is what comes first. Names come from the API, and what is pasted
//! is obeyed, so everything in a command is quoted for a shell.

use nm_shared::{BlockReason, Grant};

/// A blocked pod.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Case<'a> {
    /// How kubectl is called for this cluster.
    pub(crate) kubectl: &'a str,
    /// The node.
    pub(crate) node: &'a str,
    /// The pod's namespace.
    pub(crate) namespace: &'a str,
    /// The pod's name.
    pub(crate) name: &'a str,
    /// What controls it, as `sts/cart`, if that is known.
    pub(crate) owner: Option<&'a str>,
    /// Why it is blocked.
    pub(crate) reason: BlockReason,
    /// The same with names and numbers.
    pub(crate) message: &'a str,
}

/// What to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Remedy {
    /// In a sentence without its full stop.
    pub(crate) advice: String,
    /// A command for a shell.
    pub(crate) command: String,
}

/// What to do where a permission is missing that is granted apart: advice and a command. `said` is what the status says of it.
pub(crate) fn granting(kubectl: &str, said: &str) -> Option<(String, String)> {
    let grant = Grant::named_in(said)?;
    let (verb, resource) = grant.permission();
    // A plugin takes kubectl's flags behind its name.
    let (program, flags) = kubectl.split_at(kubectl.find(' ').unwrap_or(kubectl.len()));
    let advice = format!("Give nm-reconciler the permission to {verb} {resource}");
    Some((advice, format!("{program} nm install --grant {grant}{flags}")))
}

/// What to do about a blocked pod.
pub(crate) fn remedy(case: &Case<'_>) -> Remedy {
    let Case { kubectl, namespace, name, node, .. } = *case;
    let (kubectl_in, pod) = (format!("{kubectl} -n {}", quoted(namespace)), quoted(name));
    let (advice, command) = match case.reason {
        BlockReason::DisruptionBudget => budget(case, &kubectl_in),
        BlockReason::MultipleDisruptionBudgets => (
            "Leave the pod one budget: evictions are refused while several match it".into(),
            format!("{kubectl_in} get pdb -o wide"),
        ),
        BlockReason::AdmissionWebhook => (
            "Ask the owner of the webhook, or see what it wants".into(),
            format!("{kubectl} get validatingwebhookconfigurations,mutatingwebhookconfigurations"),
        ),
        BlockReason::NotMigratable => (
            "Shut the machine down, or make it migratable: its conditions say what it lacks".into(),
            format!("{kubectl_in} describe {}", machine(case).unwrap_or_else(|| format!("pod {pod}"))),
        ),
        BlockReason::MigrationFailed => (
            "KubeVirt tries again by itself; the migrations say why it failed".into(),
            format!("{kubectl_in} get vmim -o wide"),
        ),
        BlockReason::Forbidden => granting(kubectl, case.message).unwrap_or_else(|| {
            (
                "Give nm-reconciler the right to evict pods there".into(),
                format!(
                    "{kubectl} auth can-i create pods --subresource=eviction -n {} --as={}",
                    quoted(namespace),
                    quoted(refused_user(case.message))
                ),
            )
        }),
        BlockReason::NamespaceTerminating => (
            "The namespace is being deleted and will end the pod; see what holds it up".into(),
            format!("{kubectl} get namespace {} -o yaml", quoted(namespace)),
        ),
        BlockReason::ServerError => (
            "It is tried again by itself; see how the API server is doing".into(),
            format!("{kubectl} get --raw '/readyz?verbose'"),
        ),
        BlockReason::Unmanaged => (
            "Nothing would replace it: delete it yourself if it may be lost".into(),
            format!("{kubectl_in} delete pod {pod}"),
        ),
        BlockReason::LocalStorage => (
            "Its emptyDir data goes with it: delete it yourself once the data may be lost".into(),
            format!("{kubectl_in} delete pod {pod}"),
        ),
        BlockReason::ComesBack => comes_back(case, &kubectl_in),
        BlockReason::Finalizers => (
            "Whoever set its finalizers must finish; if they are gone for good, remove them".into(),
            format!(
                "{kubectl_in} patch pod {pod} --type=merge -p '{{\"metadata\":{{\"finalizers\":null}}}}'"
            ),
        ),
        BlockReason::NodeNotReady => (
            "Bring the node back, or delete it if it is gone for good".into(),
            format!("{kubectl} describe node {}", quoted(node)),
        ),
        BlockReason::NotEnding => (
            "Its node does not end it: see its events, then the kubelet's log".into(),
            format!("{kubectl_in} describe pod {pod}"),
        ),
        BlockReason::Unknown => {
            ("See what its events say".into(), format!("{kubectl_in} describe pod {pod}"))
        }
    };
    Remedy { advice, command }
}

fn budget(case: &Case<'_>, kubectl_in: &str) -> (String, String) {
    match budget_of(case.message) {
        Some(budget) => {
            let scaled = case.owner.unwrap_or("what owns it");
            (
                format!("Scale {scaled} up, or relax its budget"),
                format!("{kubectl_in} edit pdb {}", quoted(budget)),
            )
        }
        None => ("Scale what owns it up, or relax its budget".into(), format!("{kubectl_in} get pdb")),
    }
}

fn comes_back(case: &Case<'_>, kubectl_in: &str) -> (String, String) {
    let advice = "Take away the toleration that lets it come back, or scale its owner down".into();
    let command = match case.owner.and_then(|owner| owner.split_once('/')) {
        Some((kind, name)) => format!("{kubectl_in} edit {}/{}", quoted(kind), quoted(name)),
        None => format!("{kubectl_in} describe pod {}", quoted(case.name)),
    };
    (advice, command)
}

/// The virtual machine in the pod, as `vmi/db`.
fn machine(case: &Case<'_>) -> Option<String> {
    let name = case.owner?.strip_prefix("vmi/")?;
    Some(format!("vmi/{}", quoted(name)))
}

/// Whom the API server has refused, by its own sentence: the reconciler may be installed anywhere, or run as a person. What
/// does not tell gets the usual one.
pub(crate) fn refused_user(message: &str) -> &str {
    let named =
        message.split_once("User \"").and_then(|(_, rest)| rest.split_once('"')).map(|(user, _)| user);
    named.filter(|user| !user.is_empty()).unwrap_or("system:serviceaccount:node-maintenance:nm-reconciler")
}

/// The budget that the API server's sentence names.
pub(crate) fn budget_of(message: &str) -> Option<&str> {
    let (_, rest) = message.split_once("disruption budget ")?;
    rest.split_whitespace().next().filter(|name| !name.is_empty())
}

/// The obstacle in few words, with its numbers: `PDB shop/cart needs 3, has 3`.
pub(crate) fn in_short(namespace: &str, reason: BlockReason, message: &str) -> String {
    match (reason, budget_of(message), numbers(message)) {
        (BlockReason::DisruptionBudget, Some(name), Some((needs, has))) => {
            format!("PDB {namespace}/{name} needs {needs}, has {has}")
        }
        (BlockReason::DisruptionBudget, Some(name), None) => {
            let rest = message.split_once(name).map_or("", |(_, rest)| rest).trim_end_matches('.');
            format!("PDB {namespace}/{name}{rest}")
        }
        (BlockReason::Finalizers, ..) if message.contains(": ") => {
            format!("held by finalizers {}", message.rsplit_once(": ").map_or("", |(_, them)| them))
        }
        _ if message.is_empty() => words(reason).to_owned(),
        _ => message.to_owned(),
    }
}

/// How many healthy pods a budget needs and has, from the API server's sentence.
fn numbers(message: &str) -> Option<(&str, &str)> {
    let (_, rest) = message.split_once(" needs ")?;
    let (needs, rest) = rest.split_once(' ')?;
    let (_, rest) = rest.split_once(" has ")?;
    Some((needs, rest.split_whitespace().next()?))
}

/// What the obstacles of several pods have in common: `PDB shop/cart`, `finalizers in shop`.
pub(crate) fn obstacle(namespace: &str, reason: BlockReason, message: &str) -> String {
    match (reason, budget_of(message)) {
        (BlockReason::DisruptionBudget, Some(name)) => format!("PDB {namespace}/{name}"),
        _ => format!("{} in {namespace}", words(reason)),
    }
}

/// The kind of obstacle in plain words.
fn words(reason: BlockReason) -> &'static str {
    match reason {
        BlockReason::DisruptionBudget => "disruption budget",
        BlockReason::MultipleDisruptionBudgets => "several budgets",
        BlockReason::AdmissionWebhook => "webhook",
        BlockReason::NotMigratable => "not migratable",
        BlockReason::MigrationFailed => "migration failed",
        BlockReason::Forbidden => "missing right",
        BlockReason::NamespaceTerminating => "namespace terminating",
        BlockReason::ServerError => "API server busy",
        BlockReason::Unmanaged => "no controller",
        BlockReason::LocalStorage => "emptyDir data",
        BlockReason::ComesBack => "comes back",
        BlockReason::Finalizers => "finalizers",
        BlockReason::NodeNotReady => "node not Ready",
        BlockReason::NotEnding => "not ending",
        BlockReason::Unknown => "unknown reason",
    }
}

/// A word as a shell takes it for one.
pub(crate) fn quoted(word: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "._/:-".contains(c);
    if !word.is_empty() && word.chars().all(is_plain) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', r"'\''"))
    }
}

#[cfg(test)]
#[path = "remedy_tests.rs"]
mod tests;
