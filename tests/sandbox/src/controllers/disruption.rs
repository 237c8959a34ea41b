//! The disruption controller: it updates the status of disruption budgets.
//!
//! For each budget it keeps the pods that match its selector, so that a change of a pod concerns only its budgets. An
//! eviction is recorded in the budget's `disruptedPods` before the pod is gone; a pod that is still there
//! [`DELETION_TIMEOUT`] later counts as staying.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use jiff::{SignedDuration, Timestamp};
use serde_json::{Map, Value, json};

use crate::cluster::catalog::resource::{BUDGETS, DEPLOYMENTS, PODS, REPLICA_SETS, STATEFUL_SETS};
use crate::cluster::store::{Change, Collection, Key, Object};
use crate::model::condition;
use crate::model::label_selector::LabelSelector;
use crate::model::pod;

use crate::controllers::budget_math;
use crate::controllers::budget_math::BudgetNumbers;
use crate::controllers::engine::context::ReconcileContext;
use crate::controllers::engine::controller::{Controller, Requeue, Watches};
use crate::controllers::workloads::pod_summary::PodSummary;

/// After this time an eviction whose pod is still there no longer counts.
const DELETION_TIMEOUT: SignedDuration = SignedDuration::from_mins(2);

#[derive(Debug)]
struct Members {
    selector: LabelSelector,
    pods: BTreeMap<String, PodSummary>,
}

/// The disruption controller.
#[derive(Debug, Default)]
pub(crate) struct Disruption {
    /// The budgets of each namespace, by name.
    budgets: HashMap<String, BTreeMap<String, Members>>,
    /// Budgets whose selector has changed.
    unread: BTreeSet<Key>,
    dirty: BTreeSet<Key>,
    rechecks: BTreeSet<(Timestamp, Key)>,
}

impl Disruption {
    fn observe_budget(&mut self, change: &Change) {
        let Some(budget) = &change.after else {
            if let Some(budget) = &change.before {
                let key = Key::of(budget);
                if let Some(budgets) = self.budgets.get_mut(&key.namespace) {
                    budgets.remove(&key.name);
                }
            }
            return;
        };
        let key = Key::of(budget);
        let selector = LabelSelector::parse(&budget["spec"]["selector"]);
        let budgets = self.budgets.entry(key.namespace.clone()).or_default();
        if budgets.get(&key.name).is_none_or(|members| members.selector != selector) {
            let pods = BTreeMap::new();
            budgets.insert(key.name.clone(), Members { selector, pods });
            self.unread.insert(key.clone());
        }
        self.dirty.insert(key);
    }

    fn observe_pod(&mut self, change: &Change) {
        let Some(object) = change.after.as_ref().or(change.before.as_ref()) else {
            return;
        };
        let key = Key::of(object);
        let Some(budgets) = self.budgets.get_mut(&key.namespace) else {
            return;
        };
        for (name, members) in budgets {
            let selected =
                change.after.as_ref().filter(|pod| members.selector.matches(&pod["metadata"]["labels"]));
            let had = match selected {
                Some(pod) => {
                    let brief = PodSummary::of(pod, members.pods.values().next());
                    members.pods.insert(key.name.clone(), brief);
                    true
                }
                None => members.pods.remove(&key.name).is_some(),
            };
            if had {
                self.dirty.insert(Key::new(&*key.namespace, &**name));
            }
        }
    }

    /// Percentages refer to a controller's scale.
    fn observe_scale(&mut self, change: &Change) {
        let (Some(before), Some(after)) = (&change.before, &change.after) else {
            return;
        };
        if before["spec"]["replicas"] != after["spec"]["replicas"] {
            let namespace = pod::namespace(after);
            let names = self.budgets.get(namespace).into_iter().flatten();
            self.dirty.extend(names.map(|(name, _)| Key::new(namespace, &**name)));
        }
    }

    fn find_members(&mut self, ctx: &ReconcileContext<'_>) {
        for key in std::mem::take(&mut self.unread) {
            let budgets = self.budgets.get_mut(&key.namespace);
            let Some(members) = budgets.and_then(|budgets| budgets.get_mut(&key.name)) else {
                continue;
            };
            for pod in ctx.state.list(&PODS, Some(&key.namespace)) {
                if members.selector.matches(&pod["metadata"]["labels"]) {
                    let brief = PodSummary::of(&pod, members.pods.values().next());
                    members.pods.insert(pod::name(&pod).to_owned(), brief);
                }
            }
        }
    }

    fn reconcile(&mut self, ctx: &mut ReconcileContext<'_>, key: Key) {
        let budgets = self.budgets.get(&key.namespace);
        let members = budgets.and_then(|budgets| budgets.get(&key.name));
        let Some((budget, members)) = ctx.get(&BUDGETS, &key).zip(members) else {
            return;
        };
        let (disrupted, recheck) = still_disrupted(&budget, &members.pods, ctx.now);
        let scales = budget_math::Scales::of(ctx.state, &key.namespace, &members.pods);
        match budget_math::numbers(&budget, &members.pods, &scales, &disrupted) {
            Ok(numbers) => report(ctx, &budget, &numbers, disrupted),
            Err(because) => report_failure(ctx, &budget, &because),
        }
        if let Some(at) = recheck {
            self.rechecks.insert((at, key));
        }
    }
}

/// The recorded evictions whose pods are not yet gone, and when the first of them expires.
fn still_disrupted(
    budget: &Value,
    pods: &BTreeMap<String, PodSummary>,
    now: Timestamp,
) -> (Map<String, Value>, Option<Timestamp>) {
    let charged = budget["status"]["disruptedPods"].as_object();
    let mut still = Map::new();
    let mut recheck: Option<Timestamp> = None;
    for (name, since) in charged.into_iter().flatten() {
        let stays = pods.get(name).is_some_and(|pod| !pod.terminating);
        let since_time: Option<Timestamp> = since.as_str().and_then(|since| since.parse().ok());
        let Some(expires) = since_time.and_then(|since| since.checked_add(DELETION_TIMEOUT).ok()) else {
            continue;
        };
        if stays && expires > now {
            still.insert(name.clone(), since.clone());
            recheck = Some(recheck.map_or(expires, |recheck| recheck.min(expires)));
        }
    }
    (still, recheck)
}

fn report(
    ctx: &mut ReconcileContext<'_>,
    budget: &Object,
    numbers: &BudgetNumbers,
    disrupted: Map<String, Value>,
) {
    let allowed = numbers.allowed();
    let generation = &budget["metadata"]["generation"];
    let (holds, reason) =
        if allowed > 0 { ("True", "SufficientPods") } else { ("False", "InsufficientPods") };
    let mut status = json!({
        "observedGeneration": generation, "disruptionsAllowed": allowed, "currentHealthy": numbers.healthy,
        "desiredHealthy": numbers.desired, "expectedPods": numbers.expected,
        "conditions": budget["status"]["conditions"],
    });
    if !disrupted.is_empty() {
        status["disruptedPods"] = Value::Object(disrupted);
    }
    let condition = json!({
        "type": "DisruptionAllowed", "status": holds, "observedGeneration": generation, "reason": reason,
        "message": "",
    });
    condition::set(&mut status, condition, ctx.now);
    ctx.edit_status(&BUDGETS, budget, |budget| budget["status"] = status);
}

/// A budget that cannot be computed allows nothing; its condition says why.
fn report_failure(ctx: &mut ReconcileContext<'_>, budget: &Object, because: &str) {
    let condition = json!({
        "type": "DisruptionAllowed", "status": "False", "reason": "SyncFailed", "message": because,
        "observedGeneration": budget["status"]["observedGeneration"].as_i64().unwrap_or(0),
    });
    let now = ctx.now;
    ctx.edit_status(&BUDGETS, budget, |budget| {
        let status = &mut budget["status"];
        for field in ["disruptionsAllowed", "currentHealthy", "desiredHealthy", "expectedPods"] {
            if field == "disruptionsAllowed" || status[field].is_null() {
                status[field] = json!(0);
            }
        }
        condition::set(status, condition, now);
    });
}

impl Controller for Disruption {
    fn watches(&self) -> Watches {
        const WATCHED: &[Collection] = &[BUDGETS, PODS, REPLICA_SETS, DEPLOYMENTS, STATEFUL_SETS];
        Watches::These(WATCHED)
    }

    fn forget(&mut self, collection: &Collection) {
        if *collection == BUDGETS {
            self.budgets.clear();
        } else if *collection == PODS {
            for (namespace, budgets) in &mut self.budgets {
                for (name, members) in budgets {
                    members.pods.clear();
                    self.dirty.insert(Key::new(&**namespace, &**name));
                }
            }
        }
    }

    fn observe(&mut self, collection: &Collection, change: &Change) {
        if *collection == BUDGETS {
            self.observe_budget(change);
        } else if *collection == PODS {
            self.observe_pod(change);
        } else {
            self.observe_scale(change);
        }
    }

    fn sync(&mut self, ctx: &mut ReconcileContext<'_>) -> Requeue {
        self.find_members(ctx);
        while self.rechecks.first().is_some_and(|(at, _)| *at <= ctx.now) {
            let due = self.rechecks.pop_first();
            self.dirty.extend(due.map(|(_, key)| key));
        }
        while !ctx.is_full() {
            let Some(key) = self.dirty.pop_first() else {
                return Requeue::at(self.rechecks.first().map(|(at, _)| *at));
            };
            self.reconcile(ctx, key);
        }
        Requeue::now_if(!self.dirty.is_empty())
    }
}
