//! What is watched for the tree of replacements.

use nm_core::client::watch_stream::WatchChange;

use crate::objects::replacement_pod::Replica;
use crate::objects::watch_state::WatchState;
use crate::objects::workload::{Workload, WorkloadKind};

/// The pods of a namespace on other nodes, or its workloads of one kind.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct ReplacementScope {
    pub(crate) namespace: String,
    /// None for pods.
    pub(crate) kind: Option<WorkloadKind>,
}

impl ReplacementScope {
    pub(crate) fn pods(namespace: &str) -> Self {
        Self { namespace: namespace.to_owned(), kind: None }
    }

    pub(crate) fn workloads(namespace: &str, kind: WorkloadKind) -> Self {
        Self { namespace: namespace.to_owned(), kind: Some(kind) }
    }
}

#[derive(Debug)]
pub(crate) enum ReplacementChange {
    Replicas(WatchChange<Replica>),
    Workloads(WorkloadKind, WatchChange<Workload>),
    State(WatchState),
}
