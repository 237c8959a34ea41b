//! The dialogs about one pod: evict it, or delete it past its budget.

use nm_core::error::Error;
use nm_core::explain::owner::Owner;
use nm_core::terminal::command_context::shell_quoted;
use nm_shared::BudgetFacts;
use nm_shared::ForbiddenAccess;
use nm_shared::drain::eviction_outcome::AccessDenied;
use serde_json::json;

use crate::model::text_field::Field;

/// What has to be typed before a pod is deleted.
pub(crate) const DELETE_WORD: &str = "delete";

/// A pod, as the selected row has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PodTarget {
    pub(crate) namespace: String,
    pub(crate) name: String,
    /// None where only a status names the pod.
    pub(crate) uid: Option<String>,
    /// The grace period of the drain, in seconds; none is the pod's own.
    pub(crate) grace: Option<i64>,
}

impl PodTarget {
    /// `shop/cart-0`.
    pub(crate) fn path(&self) -> String {
        format!("{}/{}", self.namespace, self.name)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PodAction {
    Evict,
    Delete,
}

impl PodAction {
    /// The permission that it needs: verb, and resource with its subresource.
    pub(crate) fn permission(self) -> (&'static str, &'static str) {
        match self {
            Self::Evict => ("create", "pods/eviction"),
            Self::Delete => ("delete", "pods"),
        }
    }
}

/// What is known of a pod when somebody is asked about it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PodFacts {
    pub(crate) uid: String,
    /// None if no controller recreates it.
    pub(crate) owner: Option<Owner>,
    pub(crate) has_empty_dir: bool,
    /// Whether its deletion has been requested.
    pub(crate) is_terminating: bool,
    /// Whether its pod template assigns it to its node.
    pub(crate) is_assigned: bool,
    /// What it is to a virtual machine.
    pub(crate) machine: Option<MachinePart>,
    pub(crate) budgets: GuardingBudgets,
    /// The finalizers that keep it after it has terminated, without those of Kubernetes.
    pub(crate) finalizers: Vec<String>,
    /// The finalizers that alone keep it: it was deleted, and has terminated.
    pub(crate) kept_by: Vec<String>,
    /// The permission that the user lacks for the action.
    pub(crate) denied: Option<ForbiddenAccess>,
}

/// Where the replacement of a pod starts, as far as that is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ReplacementPlace {
    SameNode,
    /// No node is left for it.
    Nowhere,
    Unknown,
}

/// What a pod is to a virtual machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum MachinePart {
    /// It runs the virtual machine of this name.
    Launcher(String),
    /// It has a disk that is plugged into the virtual machine of this name.
    Disk(String),
}

/// The budgets that guard a pod.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum GuardingBudgets {
    Known(Vec<BudgetFacts>),
    /// Why they are not known.
    Unknown(String),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Lookup {
    Pending,
    Known(Box<PodFacts>),
    /// Why nothing is known.
    Failed(String),
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) struct PodDialog {
    pub(crate) action: PodAction,
    pub(crate) target: PodTarget,
    pub(crate) lookup: Lookup,
    pub(crate) typed: Field,
}

impl PodDialog {
    pub(crate) fn new(action: PodAction, target: PodTarget) -> Self {
        Self { action, target, lookup: Lookup::Pending, typed: Field::default() }
    }

    pub(crate) fn facts(&self) -> Option<&PodFacts> {
        match &self.lookup {
            Lookup::Known(facts) => Some(facts),
            Lookup::Pending | Lookup::Failed(_) => None,
        }
    }

    pub(crate) fn uid(&self) -> Option<String> {
        self.target.uid.clone().or_else(|| Some(self.facts()?.uid.clone()))
    }

    /// Whether nothing that was looked up speaks against it.
    pub(crate) fn is_possible(&self) -> bool {
        let is_permitted =
            self.facts().is_none_or(|facts| facts.denied.is_none() && facts.kept_by.is_empty());
        // A request without a uid could concern another pod of the same name.
        self.lookup != Lookup::Pending && is_permitted && self.uid().is_some()
    }

    pub(crate) fn is_confirmed(&self) -> bool {
        let is_typed = self.action != PodAction::Delete || self.typed.text().trim() == DELETE_WORD;
        self.is_possible() && is_typed
    }

    /// The command that does the same; `kubectl` is kubectl with the connection flags.
    pub(crate) fn command(&self, kubectl: &str) -> String {
        let PodTarget { namespace, name, grace, .. } = &self.target;
        match self.action {
            PodAction::Evict => {
                let mut eviction = json!({"apiVersion": "policy/v1", "kind": "Eviction",
                    "metadata": {"namespace": namespace, "name": name}});
                if let Some(seconds) = grace {
                    eviction["deleteOptions"] = json!({"gracePeriodSeconds": seconds});
                }
                let path = format!("/api/v1/namespaces/{namespace}/pods/{name}/eviction");
                format!(
                    "echo {} | {kubectl} create --raw {} -f -",
                    shell_quoted(&eviction.to_string()),
                    shell_quoted(&path)
                )
            }
            PodAction::Delete => {
                format!("{kubectl} -n {} delete pod {}", shell_quoted(namespace), shell_quoted(name))
            }
        }
    }
}

/// The arguments of a command of kubectl about an object. A name that looks like a flag, as the API server accepts in an
/// ownerReference, comes after `--`.
pub(crate) fn with_object(command: &[&str], object: &[&str], flags: &[&str]) -> Vec<String> {
    let looks_like_flag = object.iter().any(|word| word.starts_with('-'));
    let parts =
        if looks_like_flag { [command, flags, &["--"], object] } else { [command, object, flags, &[]] };
    parts.concat().into_iter().map(str::to_owned).collect()
}

/// A command of kubectl with these arguments, to paste into a shell.
pub(crate) fn shown_command(kubectl: &str, arguments: &[String]) -> String {
    let shown = |word: &str| match word.split_once('=').filter(|(name, _)| name.starts_with("--")) {
        Some((name, value)) => format!("{name}={}", shell_quoted(value)),
        None => shell_quoted(word).into_owned(),
    };
    arguments.iter().fold(kubectl.to_owned(), |line, word| format!("{line} {}", shown(word)))
}

/// The error, or the permission that the user lacks.
pub(crate) fn in_words(error: &Error) -> String {
    let status = error.status().filter(|_| error.is_forbidden());
    let access = status.and_then(|status| AccessDenied::from(status.message.as_str()).access);
    access.map_or_else(|| error.to_string(), |access| denial(&access))
}

/// Who lacks which permission: `ann may not delete pods`.
pub(crate) fn denial(access: &ForbiddenAccess) -> String {
    let ForbiddenAccess { user, verb, resource } = access;
    format!("{user} may not {verb} {resource}")
}
