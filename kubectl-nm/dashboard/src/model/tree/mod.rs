//! The tree of replacements of the open node: each workload, its pods that leave, and what replaces them elsewhere.
//!
//! It is watched from the first time that it is shown until the node is closed: the pods and the workloads of the
//! namespaces concerned, and nothing else. What is missing, for example for lack of permission, is shown in its place.

mod replacement_matching;
pub(crate) mod tree_row;

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use jiff::Timestamp;
use nm_core::client::watch_stream::WatchChange;
use nm_core::explain::owner::{Owner, OwnerKind};
use nm_core::maintenance::cordoned_since;
use nm_shared::{NodeMaintenance, PodState};

use crate::model::fleet::drain_record::{DrainRecords, WorkloadName};
use crate::model::lists::listing::{Listing, Row};
use crate::model::open_node::pod_row::PodRow;
use crate::model::open_node::pods::{PodList, had_to_go};
use crate::model::tree::replacement_matching::{LeavingPod, replacements};
use crate::model::tree::tree_row::{TreeItem, TreeRow, Unknown, WorkloadGroup, attention};
use crate::objects::node_pod::PodId;
use crate::objects::replacement_pod::Replica;
use crate::objects::replacements::ReplacementChange;
use crate::objects::replacements::ReplacementScope;
use crate::objects::watch_state::WatchState;
use crate::objects::workload::{ReadyPods, WorkloadKind};

/// How many namespaces are watched at most: each costs a watch, and one for each kind of workload.
const MAX_NAMESPACES: usize = 50;

/// From so many pods on, the tree is rebuilt once a second instead of with each change.
const REBUILT_EACH_SECOND_FROM: usize = 1000;

/// Pods on other nodes, by owner and uid.
type Replicas = HashMap<Option<Owner>, HashMap<String, Arc<Replica>>>;

#[derive(Debug, Clone, Default)]
pub(crate) struct Tree {
    pub(crate) is_shown: bool,
    pub(crate) rows: Listing<TreeRow>,
    /// By namespace.
    replicas: HashMap<String, Replicas>,
    workloads: HashMap<WorkloadName, ReadyPods>,
    states: BTreeMap<ReplacementScope, WatchState>,
    requested: BTreeSet<ReplacementScope>,
    is_watched: bool,
    outdated: Outdated,
    /// How many of the pods in it are gone.
    gone: i32,
}

/// Which rows are not as the data is.
#[derive(Debug, Clone, Default)]
enum Outdated {
    #[default]
    Nothing,
    Workloads(BTreeSet<WorkloadName>),
    Everything,
}

impl Outdated {
    fn add(&mut self, workload: WorkloadName) {
        match self {
            Self::Nothing => *self = Self::Workloads(BTreeSet::from([workload])),
            Self::Workloads(workloads) => {
                workloads.insert(workload);
            }
            Self::Everything => {}
        }
    }

    fn has(&self, workload: &WorkloadName) -> bool {
        match self {
            Self::Nothing => false,
            Self::Workloads(workloads) => workloads.contains(workload),
            Self::Everything => true,
        }
    }
}

/// What the tree is built from, beside its own watches.
pub(crate) struct TreeSources<'a> {
    pub(crate) pods: &'a PodList,
    pub(crate) maintenance: &'a NodeMaintenance,
    pub(crate) records: &'a mut DrainRecords,
    pub(crate) now: Timestamp,
}

impl Tree {
    pub(crate) fn toggle(&mut self) {
        self.is_shown = !self.is_shown;
        self.is_watched = true;
        self.outdated = Outdated::Everything;
    }

    /// Begins to watch, although it is not shown.
    pub(crate) fn watch(&mut self) {
        if !std::mem::replace(&mut self.is_watched, true) {
            self.outdated = Outdated::Everything;
        }
    }

    /// Whether anything was reported about a watch on this.
    pub(crate) fn knows(&self, scope: &ReplacementScope) -> bool {
        self.states.contains_key(scope)
    }

    /// Notes that all pods of the node, or its maintenance, have changed.
    pub(crate) fn outdate(&mut self) {
        self.outdated = Outdated::Everything;
    }

    /// Notes that a pod of the node has changed.
    pub(crate) fn outdate_workload_of(&mut self, pod: &PodId) {
        if self.is_watched {
            self.outdated.add((pod.namespace.clone(), pod.owner.clone()));
        }
    }

    /// How many of so many pods that are gone are not in it, because they left before the node was opened.
    pub(crate) fn gone_before(&self, gone: i32) -> usize {
        usize::try_from(gone.saturating_sub(self.gone)).unwrap_or(0)
    }

    /// Whether it has to be rebuilt now. With many pods that is only at the end of a second.
    pub(crate) fn is_due(&self, pods: usize, is_tick: bool) -> bool {
        let is_outdated = !matches!(self.outdated, Outdated::Nothing);
        self.is_watched && is_outdated && (is_tick || pods < REBUILT_EACH_SECOND_FROM)
    }

    /// Whether a pod of a workload whose pods have to leave was created, has changed its state, or is gone.
    pub(crate) fn changes_replacement(
        &self,
        scope: &ReplacementScope,
        change: &ReplacementChange,
        pods: &PodList,
    ) -> bool {
        let ReplacementChange::Replicas(WatchChange::Applied(pod) | WatchChange::Deleted(pod)) = change
        else {
            return false;
        };
        let of_workload = self.replicas.get(&scope.namespace).and_then(|known| known.get(&pod.id.owner));
        let known = of_workload.and_then(|known| known.get(&pod.id.key));
        let is_gone = matches!(change, ReplacementChange::Replicas(WatchChange::Deleted(_)));
        let is_pending = |row: &PodRow| row.progress.state.is_some_and(PodState::is_pending);
        let is_of_workload =
            |row: &PodRow| (&row.id.namespace, &row.id.owner) == (&scope.namespace, &pod.id.owner);
        (is_gone || known.is_none_or(|known| known.state != pod.state))
            && pods.rows.all().any(|row| is_of_workload(row) && is_pending(row))
    }

    pub(crate) fn apply(&mut self, scope: &ReplacementScope, change: ReplacementChange) {
        let namespace = &scope.namespace;
        match &change {
            ReplacementChange::Replicas(WatchChange::Applied(pod) | WatchChange::Deleted(pod)) => {
                self.outdated.add((namespace.clone(), pod.id.owner.clone()));
            }
            ReplacementChange::Workloads(kind, WatchChange::Applied(found) | WatchChange::Deleted(found)) => {
                self.outdated.add((namespace.clone(), Some(kind.owner(&found.name))));
            }
            _ => self.outdated = Outdated::Everything,
        }
        match change {
            ReplacementChange::Replicas(WatchChange::Listed(all)) => {
                let known = self.replicas.entry(namespace.clone()).or_default();
                known.clear();
                for replica in all {
                    known
                        .entry(replica.id.owner.clone())
                        .or_default()
                        .insert(replica.id.key.clone(), replica);
                }
            }
            ReplacementChange::Replicas(WatchChange::Applied(replica)) => {
                let known = self.replicas.entry(namespace.clone()).or_default();
                known.entry(replica.id.owner.clone()).or_default().insert(replica.id.key.clone(), replica);
            }
            ReplacementChange::Replicas(WatchChange::Deleted(replica)) => {
                let known = self.replicas.get_mut(namespace);
                if let Some(pods) = known.and_then(|known| known.get_mut(&replica.id.owner)) {
                    pods.remove(&replica.id.key);
                }
            }
            ReplacementChange::Workloads(kind, change) => {
                let workload = |name: &str| (namespace.clone(), Some(kind.owner(name)));
                match change {
                    WatchChange::Listed(all) => {
                        self.workloads.retain(|(known, workload), _| {
                            known != namespace || workload.as_ref().and_then(WorkloadKind::of) != Some(kind)
                        });
                        let all = all.iter().map(|found| (workload(&found.name), found.readiness));
                        self.workloads.extend(all);
                    }
                    WatchChange::Applied(found) => {
                        self.workloads.insert(workload(&found.name), found.readiness);
                    }
                    WatchChange::Deleted(found) => {
                        self.workloads.remove(&workload(&found.name));
                    }
                }
            }
            ReplacementChange::State(state) => {
                self.states.insert(scope.clone(), state);
            }
        }
    }

    /// Rebuilds the rows of the workloads that are outdated. Returns what has to be watched, if that is more than before.
    pub(crate) fn rebuild(&mut self, sources: Option<TreeSources<'_>>) -> Option<BTreeSet<ReplacementScope>> {
        let outdated = std::mem::take(&mut self.outdated);
        let Some(sources) = sources else {
            self.rows.replace([]);
            return None;
        };
        let TreeSources { pods, maintenance, records, now } = sources;
        let is_counted = |row: &&PodRow| row.progress.state == Some(PodState::Gone) && !pods.is_later(row);
        let gone = pods.rows.all().filter(is_counted).count();
        self.gone = i32::try_from(gone).unwrap_or(i32::MAX);
        let mut groups: BTreeMap<(&str, Option<&Owner>), Vec<&PodRow>> = BTreeMap::new();
        for row in pods.rows.all().filter(|row| had_to_go(row)) {
            groups.entry((&row.id.namespace, row.id.owner.as_ref())).or_default().push(row);
        }
        let wanted = scopes(groups.keys().copied());
        let grew = !wanted.is_subset(&self.requested);
        self.requested.extend(wanted);
        let since = drain_began(maintenance);
        let mut rows = Vec::new();
        for ((namespace, owner), mut leaving) in groups {
            let name = (namespace.to_owned(), owner.cloned());
            if !outdated.has(&name) {
                continue;
            }
            leaving.sort_by(|one, other| one.id.name.cmp(&other.id.name));
            let readiness = self.workloads.get(&name).copied();
            if let Some(readiness) = readiness {
                let has_begun = leaving.iter().any(|row| is_replaced(row));
                records.observe_readiness(maintenance, name.clone(), readiness, has_begun, now);
            }
            let seen = records.of(maintenance).and_then(|record| record.readiness(&name));
            let found = self.replacements_of(&name, &leaving, since);
            let is_new = !seen.is_some_and(|seen| seen.was_down);
            let attention =
                attention(readiness.filter(|_| is_new), leaving.iter().copied().zip(found.iter().copied()));
            let is_unknown = leaving.iter().any(|row| row.id.is_named_only());
            let group = Arc::new(WorkloadGroup { name, attention, is_unknown });
            let unknown = self.unknown(namespace, owner);
            rows.push(TreeRow::new(&group, 0, TreeItem::Workload { readiness, seen, unknown }));
            for (at, (row, replacement)) in leaving.into_iter().zip(found).enumerate() {
                rows.push(TreeRow::new(&group, 2 * at + 1, TreeItem::Pod(Box::new(row.clone()))));
                let below = match replacement {
                    Some(replica) => {
                        let (replica, message) = (Arc::clone(replica), replica.state.message());
                        Some(TreeItem::Replacement { replica, message })
                    }
                    None => self.why_none(row, readiness).map(TreeItem::NoReplacement),
                };
                rows.extend(below.map(|item| TreeRow::new(&group, 2 * at + 2, item)));
            }
        }
        self.show(rows, &outdated);
        grew.then(|| self.requested.clone())
    }

    fn show(&mut self, rows: Vec<TreeRow>, outdated: &Outdated) {
        if matches!(outdated, Outdated::Everything) {
            return self.rows.replace(rows);
        }
        let keys: HashSet<&str> = rows.iter().map(Row::key).collect();
        let is_over = |row: &&TreeRow| !keys.contains(row.key()) && outdated.has(&row.group.name);
        let over: Vec<String> = self.rows.all().filter(is_over).map(|row| row.key().to_owned()).collect();
        for key in over {
            self.rows.remove(&key);
        }
        for row in rows {
            self.rows.upsert(row);
        }
    }

    fn replacements_of(
        &self,
        (namespace, owner): &WorkloadName,
        leaving: &[&PodRow],
        since: Timestamp,
    ) -> Vec<Option<&Arc<Replica>>> {
        let pods: Vec<LeavingPod<'_>> = leaving
            .iter()
            .map(|row| LeavingPod {
                id: &row.id,
                leaves_since: row.progress.since.filter(|_| is_replaced(row)),
            })
            .collect();
        let elsewhere = self.replicas.get(namespace).and_then(|known| known.get(owner));
        replacements(&pods, elsewhere.into_iter().flat_map(HashMap::values), since)
    }

    /// Why a pod that leaves has no replacement; none if nothing makes it leave yet.
    fn why_none(&self, row: &PodRow, readiness: Option<ReadyPods>) -> Option<String> {
        if !is_replaced(row) {
            return None;
        }
        let namespace = &row.id.namespace;
        let scope = ReplacementScope::pods(namespace);
        let is_stateful = row.id.owner.as_ref().is_some_and(|owner| *owner.kind() == OwnerKind::StatefulSet);
        Some(match (self.states.get(&scope), readiness) {
            _ if row.id.is_named_only() => String::from("its workload is not known"),
            _ if row.id.owner.is_none() => String::from("no controller replaces it"),
            (None, _) if !self.requested.contains(&scope) => {
                format!("not watched: more than {MAX_NAMESPACES} namespaces")
            }
            (None | Some(WatchState::Connecting), _) => format!("loading the pods of {namespace}"),
            (Some(WatchState::Forbidden(_)), _) => format!("no permission to list pods in {namespace}"),
            (Some(WatchState::Unrecorded), _) => format!("the pods of {namespace} were not recorded"),
            (Some(_), Some(ReadyPods { ready, wanted })) if ready >= wanted => {
                format!("none: {ready} of {wanted} are ready")
            }
            (Some(_), _) if is_stateful && row.progress.state != Some(PodState::Gone) => {
                String::from("created once this pod is gone")
            }
            (Some(_), _) => String::from("none yet"),
        })
    }

    fn unknown(&self, namespace: &str, owner: Option<&Owner>) -> Unknown {
        let Some(kind) = owner.and_then(WorkloadKind::of) else { return Unknown::Nothing };
        match self.states.get(&ReplacementScope::workloads(namespace, kind)) {
            Some(WatchState::Forbidden(_)) => Unknown::Forbidden(kind.resource()),
            Some(WatchState::Lost { since, .. }) => Unknown::OldSince(*since),
            _ => Unknown::Nothing,
        }
    }
}

/// What has to be watched for these workloads, given by namespace and owner, in this order.
fn scopes<'a>(workloads: impl Iterator<Item = (&'a str, Option<&'a Owner>)>) -> BTreeSet<ReplacementScope> {
    let mut namespaces = BTreeSet::new();
    let mut scopes = BTreeSet::new();
    for (namespace, owner) in workloads.filter_map(|(namespace, owner)| Some((namespace, owner?))) {
        namespaces.insert(namespace);
        if namespaces.len() > MAX_NAMESPACES {
            break;
        }
        scopes.insert(ReplacementScope::pods(namespace));
        scopes.extend(WorkloadKind::of(owner).map(|kind| ReplacementScope::workloads(namespace, kind)));
    }
    scopes
}

/// Whether something makes the pod leave, for which its workload creates another one.
fn is_replaced(row: &PodRow) -> bool {
    row.progress.state.is_some_and(PodState::is_replaced)
}

/// When the node was cordoned; before that, when the maintenance was created.
fn drain_began(maintenance: &NodeMaintenance) -> Timestamp {
    let created = maintenance.metadata.creation_timestamp.as_ref().map(|time| time.0);
    cordoned_since(maintenance).or(created).unwrap_or(Timestamp::UNIX_EPOCH)
}
