//! Whether a reconciler is active, as far as the user's permissions show.

use jiff::Timestamp;

use crate::client::reconciler_deployment::LABEL_SELECTOR;

/// Whether a reconciler leads.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Leadership {
    /// A reconciler renews the lease.
    Held,
    /// A reconciler without leader election: it wrote at this time, after the last leader ended.
    Unelected(Timestamp),
    /// None: the last leader ended at this time, and nothing was written since.
    Lapsed(Timestamp),
    /// Not known: the lease does not exist, cannot be read, or has no holder, as with a reconciler without leader election.
    #[default]
    Unknown,
}

/// The reconcilers of a cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Reconcilers {
    pub(crate) leadership: Leadership,
    /// Where they are installed, if the user can see that.
    pub(crate) namespace: Option<String>,
}

impl Reconcilers {
    /// Why a maintenance has not begun although it has existed for a while.
    pub(crate) fn not_begun(&self) -> &'static str {
        match self.leadership {
            Leadership::Held | Leadership::Unelected(_) => "nm-reconciler runs, but has not begun",
            Leadership::Lapsed(_) => "no nm-reconciler leads",
            Leadership::Unknown => "nm-reconciler has not begun; whether it runs is not known",
        }
    }

    /// The command that shows why: the log of the reconcilers, or where they run.
    pub(crate) fn command(&self, kubectl: &str) -> String {
        match (self.leadership, &self.namespace) {
            (Leadership::Held | Leadership::Unelected(_), Some(namespace)) => {
                format!("{kubectl} logs -n {namespace} -l {LABEL_SELECTOR} --prefix --tail 50")
            }
            _ => format!("{kubectl} get pods -A -l {LABEL_SELECTOR} -o wide"),
        }
    }
}
