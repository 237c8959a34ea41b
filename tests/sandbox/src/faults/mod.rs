//! Faults on demand: what an API server does to its clients on a bad day, when a test says so.
//!
//! A [`Rule`] names requests by what the request log would say of them (a [`Target`]), chooses some of them ([`When`])
//! and says what happens to those (an [`Action`]): a failure, a delay of it or of its answer, a connection that closes before or after the
//! request took effect, a watch that ends. [`Faults`] is where rules are added and removed while the cluster runs; it
//! also plays what is no request's fate: open watches that end now or fall silent, history that is forgotten, statuses that nobody
//! keeps any more, and nodes whose kubelet is silent.
//!
//! A request meets its rules when it is known who asks, and before it is decided whether they may, as in the API
//! server's own queues.

mod failure;
pub(crate) mod open_watches;
mod rule;
mod unreachable_node;

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde_json::Value;

pub use crate::cluster::store::frozen_status::Writers;
pub use crate::faults::failure::Failure;
pub(crate) use crate::faults::open_watches::WatchBudget;
use crate::faults::open_watches::{OpenWatches, WatchControl};
pub use crate::faults::rule::{Action, Moment, Rule, When};
pub use crate::request_log::target::Target;

use crate::cluster::Cluster;
use crate::cluster::store::{Object, State};
use crate::model::status_error::StatusError;
use crate::request_log::Entry;

/// The faults of one cluster.
#[derive(Debug)]
pub struct Faults {
    cluster: Arc<Cluster>,
    rules: Mutex<Vec<(RuleId, Rule)>>,
    watches: Arc<OpenWatches>,
    last: AtomicU64,
}

/// By which a rule is removed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RuleId(u64);

/// By which a status is let go again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FreezeId(u64);

/// What is in store for a request.
#[derive(Debug, Default)]
pub(crate) struct Plan {
    /// How long it waits.
    pub(crate) delay: Duration,
    /// How long its answer waits.
    pub(crate) answer_delay: Duration,
    /// How it fails, and when.
    pub(crate) end: Option<(End, Moment)>,
    /// How much it may say, if it is a watch.
    pub(crate) allowance: WatchBudget,
}

/// How a request fails.
#[derive(Debug)]
pub(crate) enum End {
    /// It is answered so.
    Refused(StatusError),
    /// It is not answered.
    Disconnected,
}

impl Faults {
    /// A cluster without faults.
    pub(crate) fn new(cluster: Arc<Cluster>) -> Self {
        let (rules, watches) = (Mutex::default(), Arc::default());
        Self { cluster, rules, watches, last: AtomicU64::new(0) }
    }

    /// Adds a rule. Where several match a request, it waits for all their delays, and the oldest other one decides.
    pub fn add(&self, rule: Rule) -> RuleId {
        let id = RuleId(self.next());
        self.rules().push((id, rule));
        id
    }

    /// Removes a rule; one that is gone already is no mistake.
    pub fn remove(&self, id: RuleId) {
        self.rules().retain(|(known, _)| *known != id);
    }

    /// Removes every rule.
    pub fn clear(&self) {
        self.rules().clear();
    }

    /// To how many requests a rule has happened; zero once it is removed.
    pub fn played(&self, id: RuleId) -> u64 {
        let rules = self.rules();
        rules.iter().find(|(known, _)| *known == id).map_or(0, |(_, rule)| rule.played())
    }

    /// How many open watches match.
    pub fn open_watches(&self, target: &Target) -> usize {
        self.watches.count(target)
    }

    /// Ends the open watches that match, in good order, after so many events more. Returns how many they are.
    ///
    /// Their clients may begin again at once; a rule with [`Action::EndWatch`] is for watches to come.
    pub fn end_watches(&self, target: &Target, after: usize) -> usize {
        self.watches.allow(target, WatchBudget::Events(after))
    }

    /// Silences the open watches that match, for good: they say nothing more and do not end, not even when their time
    /// is over, as when whatever stood between lost the connection without a word. Returns how many they are.
    pub fn mute_watches(&self, target: &Target) -> usize {
        self.watches.allow(target, WatchBudget::Nothing)
    }

    /// Forgets all past changes: watches and continue tokens that go back further than now are told 410.
    ///
    /// Watches that are open have heard of everything and go on; end them to have their clients come back too late.
    pub fn forget_history(&self) {
        self.cluster.store.write(State::compact);
    }

    /// Lets the status of the objects that a target names stand still: writes are not made and not refused. Of the
    /// target, only group, resource, namespace and name are looked at.
    pub fn freeze_status(&self, target: Target, writers: Writers) -> FreezeId {
        let id = self.next();
        self.cluster.store.write(|state| state.frozen.add(id, target, writers));
        FreezeId(id)
    }

    /// Lets them move again, and has every controller look at them: each object is written once as it is.
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

    /// Silences a node's kubelet: the node is Ready `Unknown`, its pods are not Ready, and none of them ever ends.
    ///
    /// # Errors
    /// 404 for a node that is not there.
    pub fn silence_node(&self, name: &str) -> Result<(), StatusError> {
        unreachable_node::begin(&self.cluster, name)
    }

    /// Lets it speak again: the node is Ready, and what was due there is done.
    ///
    /// # Errors
    /// 404 for a node that is not there.
    pub fn revive_node(&self, name: &str) -> Result<(), StatusError> {
        unreachable_node::end(&self.cluster, name)
    }

    /// What is in store for a request; counts it.
    pub(crate) fn meet(&self, entry: &Entry) -> Plan {
        let mut plan = Plan::default();
        for (_, rule) in &mut *self.rules() {
            let Some(action) = rule.meet(entry) else {
                continue;
            };
            let (end, moment) = match action {
                Action::Delay(delay) => {
                    plan.delay += *delay;
                    continue;
                }
                Action::DelayAnswer(delay) => {
                    plan.answer_delay += *delay;
                    continue;
                }
                Action::EndWatch { after } => {
                    if plan.allowance == WatchBudget::Everything {
                        plan.allowance = WatchBudget::Events(*after);
                    }
                    continue;
                }
                Action::Fail(failure, moment) => (End::Refused(failure.refusal(entry)), *moment),
                Action::Disconnect(moment) => (End::Disconnected, *moment),
            };
            plan.end.get_or_insert((end, moment));
        }
        plan
    }

    /// A watch begins.
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
