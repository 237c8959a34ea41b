//! Whether a reconciler is active, as far as the user's permissions show.

use jiff::Timestamp;

use crate::client::reconciler_deployment::LABEL_SELECTOR;

/// Whether a reconciler leads.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Leadership {
    /// A reconciler renews the lease.
    Held,
    /// None: the last leader ended at this time.
    Lapsed(Timestamp),
    /// Not known: the lease does not exist, cannot be read, or has no holder, as with a reconciler without leader election.
    #[default]
    Unknown,
}

/// The reconcilers of a cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reconcilers {
    /// Whether one of them leads.
    pub leadership: Leadership,
    /// Where they are installed, if the user can see that.
    pub namespace: Option<String>,
}

impl Reconcilers {
    /// The command that shows why: the log of the reconcilers, or where they run.
    pub(crate) fn command(&self, kubectl: &str) -> String {
        match (self.leadership, &self.namespace) {
            (Leadership::Held, Some(namespace)) => {
                format!("{kubectl} logs -n {namespace} -l {LABEL_SELECTOR} --prefix --tail 50")
            }
            _ => format!("{kubectl} get pods -A -l {LABEL_SELECTOR} -o wide"),
        }
    }
}
