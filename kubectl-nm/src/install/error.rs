//! Why nm-reconciler cannot be installed, removed or inspected, and what to do about it.

use std::time::Duration;

use nm_core::args::duration;
use nm_core::error::Failure;
use nm_core::error::exit::Exit;
use nm_core::terminal::docs_url::docs_url;
use nm_core::terminal::text::are;

#[derive(Debug, thiserror::Error)]
pub(crate) enum SetupError {
    #[error("nm-reconciler is installed in namespace \"{there}\" and cannot be moved to \"{wanted}\"")]
    Elsewhere { there: String, wanted: String },

    #[error("nm-reconciler is not installed in namespace \"{wanted}\", but in \"{there}\"")]
    NotThere { there: String, wanted: String },

    #[error("the namespace \"{0}\" is reserved for node leases; nm-reconciler needs another one")]
    LeaseNamespace(String),

    #[error("nm-reconciler is not installed in this cluster, so {0} has nothing to change")]
    NothingToChange(String),

    #[error(
        "the Deployment nm-reconciler in namespace {0} sets --max-unavailable in its command line, which takes precedence"
    )]
    LimitIsFlag(String),

    #[error(
        "nm-reconciler {version} is newer than this plugin ({plugin}), whose CRD and permissions are older"
    )]
    OlderPlugin { plugin: &'static str, version: String },

    #[error("you lack permissions: {}", .0.join(", "))]
    MissingPermissions(Vec<String>),

    #[error(
        "the node-maintenance-operator runs in this cluster (deployment {0}), and two operators must not serve the same objects"
    )]
    OtherOperator(String),

    #[error(
        "the Operator Lifecycle Manager installed nm-reconciler (deployment {0}) and would revert any change"
    )]
    ManagedByOlm(String),

    #[error(
        "the Operator Lifecycle Manager installed nm-reconciler (deployment {deployment}) and would install it again"
    )]
    RemovedWithOlm { deployment: String, in_maintenance: Vec<String> },

    #[error("other field managers have set these fields to other values: {}", .0.join("; "))]
    Conflicts(Vec<String>),

    #[error("not ready after {}: {why}", duration::show(*.after))]
    NotReady { after: Duration, why: String, namespace: String },

    #[error("{} in maintenance: {}", are(.0.len()), .0.join(", "))]
    InUse(Vec<String>),

    #[error("{} in maintenance since nm-reconciler was removed: {}", are(.0.len()), .0.join(", "))]
    StartedMeanwhile(Vec<String>),

    #[error("these objects still exist after {}: {}", duration::show(*.after), .what.join(", "))]
    NotGone { after: Duration, what: Vec<String> },
}

impl Failure for SetupError {
    fn hint(&self) -> Option<String> {
        Some(match self {
            Self::Elsewhere { there, .. } => format!(
                "`kubectl nm install -n {there}` upgrades it there; to move it, run `kubectl nm uninstall` first"
            ),
            Self::NotThere { there, .. } => format!("`kubectl nm uninstall -n {there}` removes it"),
            Self::NothingToChange(flags) => format!(
                "nothing was changed; check that this is the right cluster, or install it with `kubectl nm install --image IMAGE \
                 {flags}`"
            ),
            Self::OlderPlugin { .. } => String::from(
                "nothing was changed; update the plugin, or name the image with --image to install these",
            ),
            Self::LimitIsFlag(namespace) => format!(
                "nothing was changed; set it where the flag comes from, or with `kubectl -n {namespace} edit deployment \
                 nm-reconciler`"
            ),
            Self::MissingPermissions(_) => {
                String::from("nothing was changed; the permissions of cluster-admin are sufficient")
            }
            Self::OtherOperator(_) => format!(
                "scale it to 0 or remove it, but keep its CRD; {} describes the migration and what happens to maintenances",
                docs_url("how-to/migrate-from-nmo.md")
            ),
            Self::ManagedByOlm(_) => {
                String::from("upgrade or remove it through its Subscription and ClusterServiceVersion")
            }
            Self::RemovedWithOlm { in_maintenance, .. } => {
                let page = docs_url("how-to/install-with-olm.md");
                let remove =
                    format!("delete its Subscription and ClusterServiceVersion, as described in {page}");
                match in_maintenance.as_slice() {
                    [] => remove,
                    nodes => format!(
                        "{} in maintenance ({}), and only nm-reconciler returns nodes to service: first run \
                         `kubectl nm stop --all --wait`, then {remove}",
                        are(nodes.len()),
                        nodes.join(", ")
                    ),
                }
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
        })
    }

    fn exit(&self) -> Exit {
        match self {
            Self::NotReady { .. } | Self::NotGone { .. } => Exit::TimedOut,
            _ => Exit::Error,
        }
    }
}
