//! A row of the tree of replacements: a workload, a pod of it that leaves the node, or what replaces that pod.

use std::borrow::Cow;
use std::cmp::Ordering;
use std::sync::Arc;

use jiff::Timestamp;
use nm_core::explain::owner::Owner;
use nm_shared::PodState;

use crate::model::fleet::drain_record::{SeenReadiness, WorkloadName};
use crate::model::lists::filter::{FilterField, Searchable, any_of_workload};
use crate::model::lists::listing::{Row, Sort};
use crate::model::open_node::pod_row::PodRow;
use crate::objects::replacement_pod::{Replica, ReplicaState};
use crate::objects::workload::ReadyPods;

/// The state of a workload of which no pod is ready.
pub(crate) const DOWN: &str = "Down";

/// How much attention a workload needs; the first needs most.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Attention {
    /// No pod of it is ready, and pods of it leave or have left.
    Down,
    Blocked,
    /// A replacement does not become Ready by itself.
    Stuck,
    Moving,
    /// Each pod that left has a replacement that is Ready.
    Done,
}

/// The workload of a row.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct WorkloadGroup {
    pub(crate) name: WorkloadName,
    pub(crate) attention: Attention,
    /// Whether pods are among these whose owner is not known.
    pub(crate) is_unknown: bool,
}

impl WorkloadGroup {
    /// Such as `sts/cart`; empty for pods without a controller.
    fn text(&self) -> &str {
        self.name.1.as_ref().map_or("", Owner::text)
    }
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) struct TreeRow {
    pub(crate) group: Arc<WorkloadGroup>,
    key: String,
    /// Its place within the workload.
    place: usize,
    pub(crate) item: TreeItem,
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) enum TreeItem {
    Workload {
        readiness: Option<ReadyPods>,
        seen: Option<SeenReadiness>,
        unknown: Unknown,
    },
    Pod(Box<PodRow>),
    Replacement {
        replica: Arc<Replica>,
        message: String,
    },
    /// Why no replacement is shown.
    NoReplacement(String),
}

/// Why the readiness of a workload is not known, or not current.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum Unknown {
    #[default]
    Nothing,
    /// The user has no permission to list this resource.
    Forbidden(&'static str),
    /// Data from before this time.
    OldSince(Timestamp),
}

impl TreeRow {
    pub(crate) fn new(group: &Arc<WorkloadGroup>, place: usize, item: TreeItem) -> Self {
        let (namespace, owner) = &group.name;
        // Unlike the text, it distinguishes kinds of different API groups.
        let workload = owner.as_ref().map_or(Cow::Borrowed(""), Owner::argument);
        let key = match &item {
            TreeItem::Workload { .. } => format!("{namespace}/{workload}"),
            TreeItem::Pod(row) => row.id.key.clone(),
            // The same row, whichever pod replaces the one above it.
            TreeItem::Replacement { .. } | TreeItem::NoReplacement(_) => {
                format!("{namespace}/{workload}#{place}")
            }
        };
        Self { group: Arc::clone(group), key, place, item }
    }

    /// The pod that leaves, if the row is one.
    pub(crate) fn pod(&self) -> Option<&PodRow> {
        match &self.item {
            TreeItem::Pod(row) => Some(row),
            _ => None,
        }
    }

    /// The row as one line of text; none if there is nothing to copy.
    pub(crate) fn line(&self) -> Option<String> {
        let (namespace, workload) = (&self.group.name.0, self.group.text());
        match &self.item {
            TreeItem::Replacement { replica, message } => {
                let (word, name, node) = (replica.state.word(), &replica.id.name, &replica.node);
                Some(format!("{word} {namespace}/{name} {node} {message}").trim_end().to_owned())
            }
            TreeItem::Workload { .. } => Some(format!("{namespace} {workload}").trim_end().to_owned()),
            TreeItem::Pod(_) | TreeItem::NoReplacement(_) => None,
        }
    }

    pub(crate) fn word(&self) -> &'static str {
        match &self.item {
            TreeItem::Workload { .. } if self.group.attention == Attention::Down => DOWN,
            TreeItem::Workload { .. } if self.is_blocked() => PodState::Blocked.word(),
            TreeItem::Workload { .. } | TreeItem::NoReplacement(_) => "",
            TreeItem::Pod(row) => row.progress.word(),
            TreeItem::Replacement { replica, .. } => replica.state.word(),
        }
    }
}

impl Searchable for TreeRow {
    fn any(&self, field: FilterField, is_match: &dyn Fn(&str) -> bool) -> bool {
        match (field, &self.item) {
            (FilterField::Namespace, _) => is_match(&self.group.name.0),
            (FilterField::State, _) => is_match(self.word()),
            (FilterField::Workload, _) => any_of_workload(self.group.name.1.as_ref(), is_match),
            (FilterField::Node, TreeItem::Replacement { replica, .. }) => is_match(&replica.node),
            (FilterField::Reason | FilterField::Object | FilterField::Path, TreeItem::Pod(row)) => {
                row.any(field, is_match)
            }
            (FilterField::Path, TreeItem::Replacement { replica, .. }) => {
                is_match(&format!("{}/{}", self.group.name.0, replica.id.name))
            }
            (FilterField::Object, TreeItem::Replacement { replica, .. }) => is_match(&replica.id.name),
            (FilterField::Text, item) => {
                let (name, message) = match item {
                    TreeItem::Workload { .. } => ("", ""),
                    TreeItem::Pod(row) => (row.id.name.as_str(), row.progress.message.as_str()),
                    TreeItem::Replacement { replica, message } => {
                        (replica.id.name.as_str(), message.as_str())
                    }
                    TreeItem::NoReplacement(why) => ("", why.as_str()),
                };
                [name, self.group.text(), message].into_iter().any(is_match)
            }
            (
                FilterField::Node
                | FilterField::Phase
                | FilterField::Reason
                | FilterField::Object
                | FilterField::Path,
                _,
            ) => false,
        }
    }

    fn has(&self, field: FilterField) -> bool {
        match field {
            FilterField::Node => matches!(self.item, TreeItem::Replacement { .. }),
            FilterField::Phase => false,
            _ => true,
        }
    }
}

impl Row for TreeRow {
    // Workloads have no age here.
    const SORTS: &'static [Sort] = &[Sort::Risk, Sort::Name];

    fn key(&self) -> &str {
        &self.key
    }

    fn lead(&self, other: &Self, by: Sort) -> Ordering {
        match by {
            Sort::Name => Ordering::Equal,
            Sort::Risk | Sort::Pool | Sort::Progress | Sort::Age => {
                self.group.attention.cmp(&other.group.attention)
            }
        }
    }

    fn by_name(&self, other: &Self) -> Ordering {
        self.group.name.cmp(&other.group.name).then_with(|| self.place.cmp(&other.place))
    }

    fn is_blocked(&self) -> bool {
        match &self.item {
            TreeItem::Workload { .. } => {
                matches!(self.group.attention, Attention::Blocked | Attention::Stuck)
            }
            TreeItem::Pod(row) => row.is_blocked(),
            TreeItem::Replacement { replica, .. } => replica.state.is_stuck(),
            TreeItem::NoReplacement(_) => false,
        }
    }
}

/// How much attention a workload needs that has these pods and replacements. What it shows may be old, or not be known.
pub(crate) fn attention<'a>(
    readiness: Option<ReadyPods>,
    pods: impl IntoIterator<Item = (&'a PodRow, Option<&'a Arc<Replica>>)>,
) -> Attention {
    let of_pod = |(row, replacement): (&PodRow, Option<&Arc<Replica>>)| match replacement {
        _ if row.is_blocked() => Attention::Blocked,
        Some(replica) if replica.state.is_stuck() => Attention::Stuck,
        Some(replica) if replica.state == ReplicaState::Ready && is_gone(row) => Attention::Done,
        None if is_gone(row) && row.id.controller.is_empty() => Attention::Done,
        _ => Attention::Moving,
    };
    let is_down = readiness.is_some_and(|pods| pods.wanted > 0 && pods.ready == 0);
    let of_pod = |(row, replacement): (&PodRow, Option<&Arc<Replica>>)| {
        let has_left = row.progress.state.is_some_and(PodState::is_replaced);
        if is_down && has_left { Attention::Down } else { of_pod((row, replacement)) }
    };
    pods.into_iter().map(of_pod).min().unwrap_or(Attention::Done)
}

fn is_gone(row: &PodRow) -> bool {
    row.progress.state == Some(PodState::Gone)
}
