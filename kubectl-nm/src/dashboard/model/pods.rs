//! The pods of the open node: those that the watch sees joined with what the status says of them.
//!
//! A pod that the watch saw going is remembered as gone. Who may not list pods sees those that the status names.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use jiff::Timestamp;
use nm_shared::drain::plan::Verdict;
use nm_shared::{BlockedPod, DrainOrder, DrainSpec, MigratingPod, NodeMaintenance, PodReference};

use crate::dashboard::model::listing::{Listing, Row};
use crate::dashboard::model::pod_row::{Place, PodRow, Stand};
use crate::dashboard::pod_facts::{Facts, PodId};
use crate::maintenance::status;

/// With more changes than this at once, sorting anew is less work than moving row by row.
const MANY: usize = 256;

/// The pods of a node.
#[derive(Debug, Default)]
pub(crate) struct Pods {
    /// Those that were seen, by their uids.
    seen: HashMap<String, Seen>,
    /// Their uids by namespace and name, as statuses name them.
    uids: HashMap<String, String>,
    /// What the last status said of all pods, and which of them it named.
    told: (Common, Vec<String>),
    /// What the verdicts were made by.
    spec: DrainSpec,
    /// The rows.
    pub(crate) rows: Listing<PodRow>,
    /// Whether the watch has told of all pods.
    pub(crate) complete: bool,
    /// Whether the user may not list pods.
    pub(crate) hidden: bool,
}

/// A pod that was seen, and what is to become of it.
#[derive(Debug)]
struct Seen {
    facts: Arc<Facts>,
    verdict: Verdict,
}

impl Pods {
    /// All of them.
    pub(crate) fn see_all(
        &mut self,
        pods: &[Arc<Facts>],
        maintenance: Option<&NodeMaintenance>,
        now: Timestamp,
    ) {
        self.complete = true;
        self.hidden = false;
        self.spec = spec(maintenance);
        let seen = pods.iter().map(|facts| (facts.id.key.clone(), Seen::by(facts, &self.spec, now)));
        self.seen = seen.collect();
        let uids = pods.iter().map(|facts| (path(&facts.id.namespace, &facts.id.name), facts.id.key.clone()));
        self.uids = uids.collect();
        self.replace(maintenance, now);
    }

    /// One is new or changed.
    pub(crate) fn see(&mut self, facts: &Arc<Facts>, maintenance: Option<&NodeMaintenance>, now: Timestamp) {
        let seen = Seen::by(facts, &self.spec, now);
        self.rows.put(row(&seen, &Told::by(maintenance), now));
        self.uids.insert(path(&facts.id.namespace, &facts.id.name), facts.id.key.clone());
        self.seen.insert(facts.id.key.clone(), seen);
    }

    /// One is gone.
    pub(crate) fn see_gone(&mut self, id: &PodId, maintenance: Option<&NodeMaintenance>, now: Timestamp) {
        let uid = id.key.as_str();
        self.seen.remove(uid);
        // Another pod of that name may be there already.
        let path = path(&id.namespace, &id.name);
        if self.uids.get(&path).is_some_and(|known| known == uid) {
            self.uids.remove(&path);
        }
        match self.rows.get(uid).filter(|row| maintenance.is_some() && is_missed(row)) {
            Some(row) => self.rows.put(gone(row, now)),
            None => self.rows.remove(uid),
        }
    }

    /// The user may not list pods: all there is to show is in the status.
    pub(crate) fn hide(&mut self, maintenance: Option<&NodeMaintenance>, now: Timestamp) {
        self.hidden = true;
        self.seen.clear();
        self.uids.clear();
        self.replace(maintenance, now);
    }

    /// The maintenance changed.
    pub(crate) fn rejoin(&mut self, maintenance: Option<&NodeMaintenance>, now: Timestamp) {
        if self.hidden {
            self.replace(maintenance, now);
            return;
        }
        let judged_anew = self.judge_by(maintenance, now);
        let told = Told::by(maintenance);
        if told.common == self.told.0 && !judged_anew {
            // Only pods that the status names, or named before, can stand elsewhere: few of ten thousand.
            let named = told.paths();
            let concerned = self.told.1.iter().chain(&named).filter_map(|path| self.uids.get(path));
            let concerned: Vec<&Seen> = concerned.filter_map(|uid| self.seen.get(uid)).collect();
            let changed = self.changed(concerned, &told, now);
            self.put(changed);
            self.told.1 = named;
        } else {
            let changed = self.changed(self.seen.values(), &told, now);
            self.put(changed);
            self.told = (told.common, told.paths());
        }
    }

    /// Judges every pod anew if other pods are to go now, and says whether it did. Who is to go after a maintenance is
    /// over is no question.
    fn judge_by(&mut self, maintenance: Option<&NodeMaintenance>, now: Timestamp) -> bool {
        let wanted = spec(maintenance);
        if maintenance.is_none() || wanted == self.spec {
            return false;
        }
        self.spec = wanted;
        for seen in self.seen.values_mut() {
            seen.verdict = seen.facts.verdict(&self.spec, now);
        }
        true
    }

    /// Time went by.
    pub(crate) fn tick(&mut self, maintenance: Option<&NodeMaintenance>, now: Timestamp) {
        let ending = self.seen.values().filter(|seen| seen.facts.is_ending());
        let changed = self.changed(ending, &Told::by(maintenance), now);
        self.put(changed);
    }

    /// New rows for those of the pods that stand elsewhere now.
    fn changed<'a>(
        &self,
        concerned: impl IntoIterator<Item = &'a Seen>,
        told: &Told<'_>,
        now: Timestamp,
    ) -> Vec<PodRow> {
        let is_changed = |seen: &&Seen| {
            let row = self.rows.get(&seen.facts.id.key);
            row.is_none_or(|row| row.stand != stand(seen, told, now))
        };
        concerned.into_iter().filter(is_changed).map(|seen| row(seen, told, now)).collect()
    }

    fn put(&mut self, changed: Vec<PodRow>) {
        if changed.len() < MANY {
            for row in changed {
                self.rows.put(row);
            }
            return;
        }
        let keys: HashSet<String> = changed.iter().map(|row| row.key().to_owned()).collect();
        let same = self.rows.all().filter(|row| !keys.contains(row.key())).cloned();
        let rows: Vec<PodRow> = same.chain(changed).collect();
        self.rows.replace(rows);
    }

    /// Makes all rows anew; those of pods that were there and are no longer are of pods that went.
    fn replace(&mut self, maintenance: Option<&NodeMaintenance>, now: Timestamp) {
        let told = Told::by(maintenance);
        self.told = (told.common, told.paths());
        let mut rows: Vec<PodRow> = if self.hidden {
            told.rows()
        } else {
            self.seen.values().map(|seen| row(seen, &told, now)).collect()
        };
        if maintenance.is_some() {
            let there: HashSet<&str> = rows.iter().map(Row::key).collect();
            let missed = self.rows.all().filter(|row| is_missed(row) && !there.contains(row.key()));
            let missed: Vec<PodRow> = missed.map(|row| gone(row, now)).collect();
            rows.extend(missed);
        }
        self.rows.replace(rows);
    }
}

impl Seen {
    fn by(facts: &Arc<Facts>, spec: &DrainSpec, now: Timestamp) -> Self {
        Self { facts: Arc::clone(facts), verdict: facts.verdict(spec, now) }
    }
}

/// What a status says of pods that it does not name.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Common {
    in_maintenance: bool,
    /// Whether every pod that is neither blocked nor ending has been asked to go.
    all_asked: bool,
    /// Whether it counts more blocked pods than it lists.
    unlisted: bool,
    /// Which pods go first.
    order: DrainOrder,
}

/// What a status says of pods, by namespace and name.
#[derive(Default)]
struct Told<'a> {
    common: Common,
    blocked: HashMap<(&'a str, &'a str), &'a BlockedPod>,
    migrating: HashMap<(&'a str, &'a str), &'a MigratingPod>,
    /// Those that are still to go.
    pending: &'a [PodReference],
}

impl<'a> Told<'a> {
    fn by(maintenance: Option<&'a NodeMaintenance>) -> Self {
        let Some(maintenance) = maintenance else { return Self::default() };
        let status = status(maintenance);
        let blocked =
            status.blocked_pods.iter().map(|pod| ((pod.namespace.as_str(), pod.name.as_str()), pod));
        let migrating = status.migrating_pods.iter().flatten();
        let migrating = migrating.map(|pod| ((pod.namespace.as_str(), pod.name.as_str()), pod));
        let counts = &status.pod_counts;
        let listed = i32::try_from(status.blocked_pods.len()).unwrap_or(i32::MAX);
        Self {
            common: Common {
                in_maintenance: true,
                all_asked: counts.waiting == 0 && counts.evicting > 0,
                unlisted: counts.blocked > listed,
                order: spec(Some(maintenance)).order,
            },
            blocked: blocked.collect(),
            migrating: migrating.collect(),
            pending: &status.pending_pods_refs,
        }
    }

    /// The pods that it names as blocked or migrating.
    fn paths(&self) -> Vec<String> {
        self.blocked
            .keys()
            .chain(self.migrating.keys())
            .map(|(namespace, name)| path(namespace, name))
            .collect()
    }

    /// What is said of the pod of that name, if anything is.
    fn of(&self, namespace: &str, name: &str) -> Option<Stand> {
        if let Some(pod) = self.blocked.get(&(namespace, name)) {
            return Some(Stand {
                since: Some(pod.since.0),
                reason: Some(pod.reason),
                message: pod.message.clone(),
                attempts: pod.attempts,
                ..Stand::at(Place::Blocked)
            });
        }
        let pod = self.migrating.get(&(namespace, name))?;
        let message = match (&pod.source, &pod.target) {
            (_, Some(target)) => format!("{} to {target}", pod.machine),
            (_, None) => format!("{} to a node yet to be found", pod.machine),
        };
        let since = pod.since.as_ref().map(|since| since.0);
        Some(Stand { since, message, ..Stand::at(Place::Migrating) })
    }

    /// A row for every pod that is still to go.
    fn rows(&self) -> Vec<PodRow> {
        let row = |PodReference { namespace, name }: &PodReference| {
            let id = PodId {
                key: path(namespace, name),
                namespace: namespace.clone(),
                name: name.clone(),
                owner: String::new(),
            };
            let stand = self.of(namespace, name).unwrap_or_else(|| Stand::at(Place::ToGo));
            PodRow { id: Arc::new(id), stand }
        };
        self.pending.iter().map(row).collect()
    }
}

fn path(namespace: &str, name: &str) -> String {
    format!("{namespace}/{name}")
}

fn row(seen: &Seen, told: &Told<'_>, now: Timestamp) -> PodRow {
    PodRow { id: Arc::clone(&seen.facts.id), stand: stand(seen, told, now) }
}

fn stand(Seen { facts, verdict }: &Seen, told: &Told<'_>, now: Timestamp) -> Stand {
    if !told.common.in_maintenance {
        return Stand::at(Place::Running);
    }
    let seen = Stand::of(facts, *verdict, now);
    if matches!(verdict, Verdict::Skip(_)) {
        return seen;
    }
    match (seen.place, told.of(&facts.id.namespace, &facts.id.name)) {
        // The pod is newer than the status, which may still speak of the time before it was asked to go.
        (Place::Ending, Some(told)) if told.reason != Some(nm_shared::BlockReason::NodeNotReady) => seen,
        (_, Some(told)) => told,
        (Place::Waiting, None) if told.common.all_asked => Stand::at(Place::Evicting),
        (Place::Waiting, None) if told.common.unlisted => {
            Stand { message: String::from("or blocked: the status does not list all"), ..seen }
        }
        (Place::Waiting, None) if told.common.order == DrainOrder::PriorityAscending => {
            Stand { message: String::from("not asked to go yet: lower priorities go first"), ..seen }
        }
        (_, None) => seen,
    }
}

/// Whether a pod that is there no longer went because it was to go.
fn is_missed(row: &PodRow) -> bool {
    !matches!(row.stand.place, Place::Stays | Place::Running)
}

fn gone(row: &PodRow, now: Timestamp) -> PodRow {
    match row.stand.place {
        Place::Gone => row.clone(),
        _ => PodRow { id: Arc::clone(&row.id), stand: Stand { since: Some(now), ..Stand::at(Place::Gone) } },
    }
}

fn spec(maintenance: Option<&NodeMaintenance>) -> DrainSpec {
    maintenance.and_then(|maintenance| maintenance.spec.drain.clone()).unwrap_or_default()
}

#[cfg(test)]
#[path = "pods_tests.rs"]
mod tests;
