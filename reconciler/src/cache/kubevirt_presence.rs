//! Whether the cluster has KubeVirt, as far as discovery was requested.

use std::collections::HashSet;
use std::time::Duration;

use tokio::time::Instant;

/// How long to wait after discovery failed.
const RETRY_INTERVAL: Duration = Duration::from_secs(30);

#[derive(Default)]
pub(crate) enum KubevirtPresence {
    #[default]
    Unknown,
    Requested,
    Present,
    /// KubeVirt was absent when pods with these uids led to the request.
    Absent(HashSet<String>),
    Failed(Instant),
}

/// A discovery that has to be requested.
pub(crate) struct DiscoveryRequest {
    /// The uids of the pods that have ever led to one.
    pub(crate) causes: HashSet<String>,
    /// Whether the one before failed.
    pub(crate) is_retry: bool,
}

impl KubevirtPresence {
    pub(crate) fn is_present(&self) -> bool {
        matches!(self, Self::Present)
    }

    /// The discovery to request because of virtual machines' pods with these uids, if any. It is in progress from now on.
    pub(crate) fn request(&mut self, pods: &HashSet<&str>) -> Option<DiscoveryRequest> {
        let (mut causes, is_retry) = match self {
            Self::Present | Self::Requested => return None,
            Self::Absent(known) if pods.iter().all(|uid| known.contains(*uid)) => return None,
            Self::Failed(at) if at.elapsed() < RETRY_INTERVAL => return None,
            Self::Unknown => (HashSet::new(), false),
            Self::Absent(known) => (std::mem::take(known), false),
            Self::Failed(_) => (HashSet::new(), true),
        };
        causes.extend(pods.iter().map(|uid| (*uid).to_owned()));
        *self = Self::Requested;
        Some(DiscoveryRequest { causes, is_retry })
    }
}
