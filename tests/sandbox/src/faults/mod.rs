//! Failures on demand.
//!
//! A [`Rule`] matches requests (with a [`Target`]), selects some of them ([`When`]) and applies an [`Action`]: a failure, a
//! delay of the request or of its response, a connection that closes before or after the request takes effect, or a
//! watch that ends. [`Faults`] adds and removes rules while the cluster runs. It also ends and mutes open watches, drops
//! history, freezes statuses, makes nodes unreachable and reboots them.
//!
//! Rules apply after authentication and before authorization, like the API server's own request queues.

mod failure;
mod node_outage;
pub(crate) mod open_watches;
mod rule;

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde_json::Value;
use tokio::sync::watch as signal;

use crate::cluster::Cluster;
pub use crate::cluster::store::frozen_status::Writers;
use crate::cluster::store::{Object, State};
pub use crate::faults::failure::Failure;
pub(crate) use crate::faults::open_watches::WatchBudget;
use crate::faults::open_watches::{OpenWatches, WatchControl};
pub use crate::faults::rule::{Action, Moment, Rule, When};
use crate::model::status_error::StatusError;
use crate::request_log::Entry;
pub use crate::request_log::target::Target;

/// The faults of one cluster.
#[derive(Debug)]
pub struct Faults {
    cluster: Arc<Cluster>,
    rules: Mutex<Vec<(RuleId, Rule)>>,
    watches: Arc<OpenWatches>,
    last: AtomicU64,
    played: signal::Sender<u64>,
}

/// Identifies a rule.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RuleId(u64);

/// Identifies a frozen status.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FreezeId(u64);

/// The faults that apply to a request.
#[derive(Debug, Default)]
pub(crate) struct Plan {
    /// Delay before it is handled.
    pub(crate) delay: Duration,
    /// Delay of its response.
    pub(crate) answer_delay: Duration,
    /// How it fails, and whether before or after it takes effect.
    pub(crate) end: Option<(End, Moment)>,
    /// How many events it sends, if it is a watch.
    pub(crate) allowance: WatchBudget,
    /// By how many revisions it is stale, if it is a list.
    pub(crate) stale_by: Option<u64>,
    /// What it counts as while it is in progress, for each rule by which it contends with others.
    contends: Vec<Arc<()>>,
}

/// How a request fails.
#[derive(Debug)]
pub(crate) enum End {
    /// The response is this error.
    Refused(StatusError),
    /// The response is this error in plain text.
    Throttled(StatusError),
    /// The connection is closed without a response.
    Disconnected,
    /// There is no response, and the connection stays open.
    Unanswered,
}

impl Faults {
    /// A cluster without faults.
    pub(crate) fn new(cluster: Arc<Cluster>) -> Self {
        let (rules, watches) = (Mutex::default(), Arc::default());
        Self { cluster, rules, watches, last: AtomicU64::new(0), played: signal::Sender::new(0) }
    }

    /// Adds a rule. If several rules match a request, all their delays apply, and the oldest of the other rules.
    pub fn add(&self, rule: Rule) -> RuleId {
        let id = RuleId(self.next());
        self.rules().push((id, rule));
        id
    }

    /// Removes a rule, if it is still there.
    pub fn remove(&self, id: RuleId) {
        self.rules().retain(|(known, _)| *known != id);
    }

    /// Removes every rule.
    pub fn clear(&self) {
        self.rules().clear();
    }

    /// How many requests a rule was applied to; zero once it is removed.
    pub fn played(&self, id: RuleId) -> u64 {
        let rules = self.rules();
        rules.iter().find(|(known, _)| *known == id).map_or(0, |(_, rule)| rule.played())
    }

    /// Waits until a rule was applied to a request, which may not have been answered yet. Returns at once if the rule is
    /// removed.
    pub async fn until_played(&self, id: RuleId) {
        let mut played = self.played.subscribe();
        loop {
            played.borrow_and_update();
            let is_there = self.rules().iter().any(|(known, _)| *known == id);
            if !is_there || self.played(id) > 0 || played.changed().await.is_err() {
                return;
            }
        }
    }

    /// How many open watches match.
    pub fn open_watches(&self, target: &Target) -> usize {
        self.watches.count(target)
    }

    /// Ends the open watches that match, cleanly, after so many more events. Returns the number of watches.
    ///
    /// Clients may watch again at once; use a rule with [`Action::EndWatch`] for later watches.
    pub fn end_watches(&self, target: &Target, after: usize) -> usize {
        self.watches.allow(target, WatchBudget::Events(after))
    }

    /// Mutes the open watches that match: they send no more events and do not end, not even at their timeout, like a
    /// connection that a load balancer has dropped silently. Returns the number of watches.
    pub fn mute_watches(&self, target: &Target) -> usize {
        self.watches.allow(target, WatchBudget::Nothing)
    }

    /// Delays the events of the open watches that match. Returns the number of watches.
    pub fn delay_watches(&self, target: &Target, delay: Duration) -> usize {
        self.watches.allow(target, WatchBudget::Late(delay))
    }

    /// Restores all objects as they were at `revision`, as from a backup of etcd: later changes never happened, and the
    /// next one gets the revision after it. Restart the API server, because watches do not know this.
    ///
    /// Returns whether the history goes back that far.
    pub fn restore(&self, revision: u64) -> bool {
        self.cluster.store.restore(revision)
    }

    /// Drops all history: watches and continue tokens at an older revision get a 410.
    ///
    /// Open watches have seen every change and continue. End them to make their clients resume too late.
    pub fn forget_history(&self) {
        self.cluster.store.write(State::compact);
    }

    /// Freezes the status of the objects that match: writes to it succeed without effect. Only group, resource, namespace
    /// and name of the target count.
    pub fn freeze_status(&self, target: Target, writers: Writers) -> FreezeId {
        let id = self.next();
        self.cluster.store.write(|state| state.frozen.add(id, target, writers));
        FreezeId(id)
    }

    /// Unfreezes a status. Every object is written once, unchanged, so that every controller reconciles it.
    pub fn thaw_status(&self, id: FreezeId) {
        let resources = self.cluster.catalog.all();
        self.cluster.store.write(|state| {
            let Some(target) = state.frozen.remove(id.0) else {
                return;
            };
            let mut collections: Vec<_> = resources.into_iter().map(|resource| resource.collection).collect();
            collections.sort();
            collections.dedup();
            for collection in collections {
                let covered = |object: &Object| {
                    let field = |name: &str| object["metadata"][name].as_str().unwrap_or_default();
                    let (group, plural) = (&collection.group, &collection.plural);
                    target.covers(group, plural, field("namespace"), field("name"))
                };
                let objects: Vec<Object> = state.list(&collection, None).filter(covered).collect();
                for object in objects {
                    state.put(&collection, Value::clone(&object));
                }
            }
        });
    }

    /// Makes a node unreachable: its Ready condition is `Unknown`, its pods are not Ready, and none of them terminates.
    ///
    /// # Errors
    /// 404 if there is no such node.
    pub fn silence_node(&self, name: &str) -> Result<(), StatusError> {
        node_outage::silence(&self.cluster, name)
    }

    /// Reboots a node as the annotation `kube-sandbox.dev/reboot` does (see `controllers::kubelet::annotations::REBOOT`):
    /// it is down for `downtime` and then Ready with a new boot ID. Without a downtime it does not return.
    ///
    /// # Errors
    /// 404 if there is no such node.
    pub fn reboot_node(&self, name: &str, downtime: Option<Duration>) -> Result<(), StatusError> {
        node_outage::reboot(&self.cluster, name, downtime)
    }

    /// Makes a node reachable again: it is Ready, and its kubelet catches up. A node that is down for a reboot starts.
    ///
    /// # Errors
    /// 404 if there is no such node.
    pub fn revive_node(&self, name: &str) -> Result<(), StatusError> {
        node_outage::revive(&self.cluster, name)
    }

    /// The faults that apply to a request. Counts the request.
    pub(crate) fn meet(&self, entry: &Entry) -> Plan {
        let mut plan = Plan::default();
        for (_, rule) in &mut *self.rules() {
            let Some(action) = rule.meet(entry) else {
                continue;
            };
            let (end, moment) = match action {
                Action::Delay(delay) => {
                    plan.delay += delay;
                    continue;
                }
                Action::Contend { each, background } => {
                    let (contending, one) = rule.contend();
                    plan.delay += each * contending.saturating_add(background);
                    plan.contends.push(one);
                    continue;
                }
                Action::DelayAnswer(delay) => {
                    plan.answer_delay += delay;
                    continue;
                }
                Action::EndWatch { after } => {
                    if plan.allowance == WatchBudget::Everything {
                        plan.allowance = WatchBudget::Events(after);
                    }
                    continue;
                }
                Action::DelayEvents(delay) => {
                    if plan.allowance == WatchBudget::Everything {
                        plan.allowance = WatchBudget::Late(delay);
                    }
                    continue;
                }
                Action::StaleList { revisions } => {
                    plan.stale_by = Some(revisions);
                    continue;
                }
                Action::Fail(failure @ Failure::Throttled { .. }, moment) => {
                    (End::Throttled(failure.refusal(entry)), moment)
                }
                Action::Fail(failure, moment) => (End::Refused(failure.refusal(entry)), moment),
                Action::Disconnect(moment) => (End::Disconnected, moment),
                Action::NeverAnswer(moment) => (End::Unanswered, moment),
            };
            plan.end.get_or_insert((end, moment));
        }
        self.played.send_modify(|played| *played += 1);
        plan
    }

    /// Registers a watch that starts.
    pub(crate) fn watch(&self, entry: &Entry, allowance: WatchBudget) -> WatchControl {
        self.watches.begin(entry, allowance)
    }

    fn next(&self) -> u64 {
        self.last.fetch_add(1, Ordering::Relaxed)
    }

    fn rules(&self) -> MutexGuard<'_, Vec<(RuleId, Rule)>> {
        self.rules.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::clock::Clock;

    #[tokio::test]
    async fn requests_in_progress_delay_the_next_one() {
        let faults = Faults::new(Arc::new(Cluster::new(Clock::start())));
        let each = Duration::from_millis(10);
        faults.add(Rule::new(Target::any(), Action::Contend { each, background: 3 }));
        let meet = || faults.meet(&Entry::default());
        let (first, second) = (meet(), meet());
        assert_eq!((first.delay, second.delay), (4 * each, 5 * each));
        drop(first);
        assert_eq!(meet().delay, 5 * each);
        drop(second);
        assert_eq!(meet().delay, 4 * each);
    }

    #[tokio::test]
    async fn delays_add_up_and_the_oldest_end_decides() {
        let faults = Faults::new(Arc::new(Cluster::new(Clock::start())));
        let second = Duration::from_secs(1);
        let add = |action| faults.add(Rule::new(Target::any().verb("get"), action));
        let delay = add(Action::Delay(second));
        let first = add(Action::Disconnect(Moment::AfterEffect));
        let later = add(Action::Fail(Failure::Internal, Moment::BeforeEffect));
        add(Action::Delay(second));
        let entry = Entry { verb: "get", ..Entry::default() };
        let plan = faults.meet(&entry);
        assert_eq!(plan.delay, second * 2);
        assert!(matches!(plan.end, Some((End::Disconnected, Moment::AfterEffect))));
        faults.remove(first);
        faults.remove(delay);
        let plan = faults.meet(&entry);
        assert_eq!(plan.delay, second);
        assert!(matches!(
            plan.end,
            Some((End::Refused(StatusError { code: 500, .. }), Moment::BeforeEffect))
        ));
        assert_eq!((faults.played(first), faults.played(later)), (0, 2));
        faults.clear();
        assert!(faults.meet(&entry).end.is_none());
    }
}
