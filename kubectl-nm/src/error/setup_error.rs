//! What can go wrong when nm-reconciler is installed, removed or looked at, with what to do about it.

use std::time::Duration;

use crate::args::duration;
use crate::error::doc_links;

/// Why such a command came to nothing.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SetupError {
    /// It is installed in another namespace than the one that was named.
    #[error(
        "error: nm-reconciler is installed in namespace \"{there}\", and moving it to \"{wanted}\" is no upgrade"
    )]
    Elsewhere {
        /// Where it is.
        there: String,
        /// Where it was to be.
        wanted: String,
    },

    /// It is to be removed from another namespace than the one that it is in.
    #[error("error: nm-reconciler is not installed in namespace \"{wanted}\", but in \"{there}\"")]
    NotThere {
        /// Where it is.
        there: String,
        /// Where it was to be.
        wanted: String,
    },

    /// The namespace for nm-reconciler is that of the leases.
    #[error("error: the namespace \"{0}\" is for the leases on nodes, nm-reconciler needs another")]
    LeaseNamespace(String),

    /// Another operator serves the same objects.
    #[error(
        "error: the node-maintenance-operator runs in this cluster (deployment {0}), and two must not serve the same objects"
    )]
    OtherOperator(String),

    /// The Operator Lifecycle Manager has installed it.
    #[error(
        "error: the Operator Lifecycle Manager has installed nm-reconciler (deployment {0}) and would undo any change"
    )]
    ManagedByOlm(String),

    /// Others have set fields to other values than ours.
    #[error("error: others have set fields to other values: {}", .0.join("; "))]
    Conflicts(Vec<String>),

    /// All is applied, but it does not run.
    #[error("error: not ready after {}: {why}", duration::show(*.after))]
    NotReady {
        /// How long it was waited for.
        after: Duration,
        /// What is not, and why.
        why: String,
        /// The namespace.
        namespace: String,
    },

    /// There are maintenances, which nobody would end any more.
    #[error("error: {} in maintenance: {}", are(.0.len()), .0.join(", "))]
    InUse(Vec<String>),

    /// Maintenances that were begun after nm-reconciler was removed.
    #[error("error: {} in maintenance since nm-reconciler was removed: {}", are(.0.len()), .0.join(", "))]
    BegunMeanwhile(Vec<String>),

    /// Maintenances that do not end.
    #[error("error: not gone after {}: {}", duration::show(*.after), .what.join(", "))]
    NotGone {
        /// How long it was waited for.
        after: Duration,
        /// What is still there.
        what: Vec<String>,
    },

    /// Nobody confirmed it.
    #[error("error: there is no terminal to ask on: -y confirms")]
    Unconfirmed,
}

impl SetupError {
    /// What to do about it.
    pub(crate) fn hint(&self) -> Option<String> {
        Some(match self {
            Self::Elsewhere { there, .. } => format!(
                "`kubectl nm install -n {there}` changes it there; `kubectl nm uninstall` removes it first"
            ),
            Self::NotThere { there, .. } => format!("`kubectl nm uninstall -n {there}` removes it"),
            Self::OtherOperator(_) => format!(
                "scale it to 0 or remove it, but not its CRD: {} says how, and what happens to its maintenances",
                doc_links::address("how-to/migrate-from-nmo.md")
            ),
            Self::ManagedByOlm(_) => {
                String::from("upgrade and remove it by its Subscription and ClusterServiceVersion")
            }
            Self::Conflicts(_) => String::from(
                "nothing was changed; have them agree, or take the fields with --force-conflicts",
            ),
            Self::NotReady { namespace, .. } => format!(
                "all objects are applied, and it may still come: `kubectl nm doctor` tells, and so does \
                 `kubectl -n {namespace} describe pods`"
            ),
            Self::InUse(_) => {
                String::from("nothing was changed; --stop-all ends them first, which gives their nodes back")
            }
            Self::BegunMeanwhile(_) => String::from(
                "the definition of NodeMaintenance stays: `kubectl nm install` has them served again, then \
                 `kubectl nm uninstall --stop-all` gives the nodes back first",
            ),
            Self::NotGone { .. } => String::from(
                "`kubectl nm doctor` tells whether nm-reconciler runs; the same command goes on, --timeout waits longer",
            ),
            Self::LeaseNamespace(_) => String::from("choose another one with -n"),
            // It says itself what would do.
            Self::Unconfirmed => return None,
        })
    }
}

fn are(nodes: usize) -> String {
    if nodes == 1 { String::from("1 node is") } else { format!("{nodes} nodes are") }
}
