//! Why nm-reconciler cannot be installed, removed or inspected, and what to do about it.

use std::time::Duration;

use crate::args::duration;
use crate::terminal::docs_url::docs_url;

/// Why such a command failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SetupError {
    /// An installation exists in another namespace than the requested one.
    #[error("nm-reconciler is installed in namespace \"{there}\" and cannot be moved to \"{wanted}\"")]
    Elsewhere {
        /// The existing namespace.
        there: String,
        /// The requested namespace.
        wanted: String,
    },

    /// Nothing is installed in the namespace to uninstall from, but in another one.
    #[error("nm-reconciler is not installed in namespace \"{wanted}\", but in \"{there}\"")]
    NotThere {
        /// The existing namespace.
        there: String,
        /// The requested namespace.
        wanted: String,
    },

    /// The requested namespace is the one that holds node leases.
    #[error("the namespace \"{0}\" is reserved for node leases; nm-reconciler needs another one")]
    LeaseNamespace(String),

    /// The user lacks permissions to install.
    #[error("you lack permissions: {}", .0.join(", "))]
    MissingPermissions(Vec<String>),

    /// Another operator serves the same objects.
    #[error(
        "the node-maintenance-operator runs in this cluster (deployment {0}), and two operators must not serve the same objects"
    )]
    OtherOperator(String),

    /// The Operator Lifecycle Manager has installed it.
    #[error(
        "the Operator Lifecycle Manager installed nm-reconciler (deployment {0}) and would revert any change"
    )]
    ManagedByOlm(String),

    /// Other field managers have set fields to other values.
    #[error("other field managers have set these fields to other values: {}", .0.join("; "))]
    Conflicts(Vec<String>),

    /// All objects are applied, but nm-reconciler is not ready.
    #[error("not ready after {}: {why}", duration::show(*.after))]
    NotReady {
        /// The timeout.
        after: Duration,
        /// What is not ready, and why.
        why: String,
        /// The namespace.
        namespace: String,
    },

    /// There are maintenances, which nothing would end after the removal.
    #[error("{} in maintenance: {}", are(.0.len()), .0.join(", "))]
    InUse(Vec<String>),

    /// Maintenances were started after nm-reconciler was removed.
    #[error("{} in maintenance since nm-reconciler was removed: {}", are(.0.len()), .0.join(", "))]
    StartedMeanwhile(Vec<String>),

    /// Objects still exist when the timeout expires.
    #[error("not gone after {}: {}", duration::show(*.after), .what.join(", "))]
    NotGone {
        /// The timeout.
        after: Duration,
        /// What still exists.
        what: Vec<String>,
    },

    /// The user has not confirmed.
    #[error("there is no terminal to ask for confirmation: confirm with --yes")]
    Unconfirmed,
}

impl SetupError {
    /// What to do about it.
    pub(crate) fn hint(&self) -> Option<String> {
        Some(match self {
            Self::Elsewhere { there, .. } => format!(
                "`kubectl nm install -n {there}` upgrades it there; to move it, run `kubectl nm uninstall` first"
            ),
            Self::NotThere { there, .. } => format!("`kubectl nm uninstall -n {there}` removes it"),
            Self::MissingPermissions(_) => String::from(
                "nothing was changed; `kubectl nm doctor` lists the permissions that each command needs",
            ),
            Self::OtherOperator(_) => format!(
                "scale it to 0 or remove it, but keep its CRD; {} describes the migration and what happens to maintenances",
                docs_url("how-to/migrate-from-nmo.md")
            ),
            Self::ManagedByOlm(_) => {
                String::from("upgrade or remove it through its Subscription and ClusterServiceVersion")
            }
            Self::Conflicts(_) => String::from(
                "nothing was changed; change the values at their source, or overwrite them with --force-conflicts",
            ),
            Self::NotReady { namespace, .. } => format!(
                "all objects are applied, and it may still become ready; `kubectl nm doctor` and \
                 `kubectl -n {namespace} describe pods` show the cause"
            ),
            Self::InUse(_) => String::from(
                "nothing was changed; --stop-all stops the maintenances first, which returns the nodes to service",
            ),
            Self::StartedMeanwhile(_) => String::from(
                "the CRD of NodeMaintenance is kept; run `kubectl nm install` to serve these maintenances, then \
                 `kubectl nm uninstall --stop-all` to return the nodes to service first",
            ),
            Self::NotGone { .. } => String::from(
                "`kubectl nm doctor` shows whether nm-reconciler runs; repeat the command to continue, with a longer --timeout",
            ),
            Self::LeaseNamespace(_) => String::from("choose another namespace with -n"),
            // The message says what to do.
            Self::Unconfirmed => return None,
        })
    }
}

fn are(nodes: usize) -> String {
    if nodes == 1 { String::from("1 node is") } else { format!("{nodes} nodes are") }
}
