//! What disruption budgets would say, so that they are not asked in vain.
//!
//! The API server stays the judge: what is read here is a moment old, and only decides whether asking is worth while.
//! A stale view costs a refusal; a view that says no is tried anyway now and then (`queue`), so nothing waits on it
//! for ever.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::policy::v1::{PodDisruptionBudget, PodDisruptionBudgetStatus};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::core::{Selector, SelectorExt};

use crate::pod;
use crate::status::PodReference;

/// Which budget: its namespace and name.
pub type BudgetKey = PodReference;

/// A budget as it was at some resourceVersion.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct BudgetVersion {
    /// Which budget.
    pub key: BudgetKey,
    /// Its resourceVersion.
    pub version: String,
}

/// An eviction that a budget guards, and that the budget as it is seen may not reflect yet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Charge {
    /// It is under way.
    InFlight,
    /// It was accepted: one disruption is spent.
    Accepted,
    /// It was refused, with this sentence: whatever the budget's status says, it has none left.
    Refused(String),
}

/// The evictions that budgets guard, with the versions that they were decided on.
pub type Charges = Vec<(BudgetVersion, Charge)>;

/// What an eviction spends: one of the disruptions that a budget allowed when the eviction was decided.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Allowance {
    /// The budget as it was.
    pub guard: BudgetVersion,
    /// How many disruptions it allowed then, whoever has asked for them.
    pub allowed: i32,
}

impl Allowance {
    /// Whether `charges` leave nothing of it. Nodes decide beside each other: what was free when one of them looked may
    /// be another's when it asks.
    pub fn is_spent(&self, charges: &Charges) -> bool {
        let own = charges.iter().filter(|(guard, _)| guard.key == self.guard.key);
        let own = own.map(|(guard, charge)| (guard.version.as_str(), charge));
        take_off(self.allowed, &self.guard.version, own).0 <= 0
    }
}

/// What the budgets say of one more eviction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Opinion {
    /// None stands in its way.
    Free,
    /// One lets it go, and has one disruption less for the next.
    Allowed(Allowance),
    /// One allows no more disruptions now.
    Exhausted {
        /// Which one.
        budget: BudgetKey,
        /// Why, as the API server words it: its numbers as a rule.
        message: String,
    },
}

#[derive(Debug, Clone)]
struct Budget {
    object: Arc<PodDisruptionBudget>,
    /// None where it selects nothing, as `selector: null` does. Shared, for a decision begins with a copy of all budgets.
    selector: Option<Arc<Selector>>,
    /// Disruptions that it allows and that nobody has asked for yet.
    allowed: i32,
    /// What the API server said last, if the budget has not been seen to change since: it knows better.
    answer: Option<String>,
}

/// The budgets of some namespaces, and what is left of them while a decision is made.
#[derive(Debug, Clone, Default)]
pub struct Budgets {
    /// By namespace: a pod has nothing to do with those of others.
    budgets: HashMap<String, Vec<Budget>>,
}

impl Budgets {
    /// Reads the budgets as they are seen, less what is spent already.
    pub fn new(budgets: impl IntoIterator<Item = Arc<PodDisruptionBudget>>, charges: &Charges) -> Self {
        let mut spent: HashMap<&BudgetKey, Vec<(&str, &Charge)>> = HashMap::new();
        for (guard, charge) in charges {
            spent.entry(&guard.key).or_default().push((&guard.version, charge));
        }
        let mut known: HashMap<String, Vec<Budget>> = HashMap::new();
        for object in budgets {
            let selector = object.spec.as_ref().and_then(|spec| spec.selector.clone());
            let selector = selector.and_then(|selector| Selector::try_from(selector).ok()).map(Arc::new);
            let key = key(&object);
            let charges = spent.get(&key).into_iter().flatten().copied();
            let (allowed, answer) = take_off(allowed_by(&object), resource_version(&object), charges);
            known.entry(key.namespace).or_default().push(Budget { object, selector, allowed, answer });
        }
        Self { budgets: known }
    }

    /// The budgets that guard `pod`.
    pub fn guarding(&self, pod: &Pod) -> Vec<BudgetVersion> {
        self.of(pod).map(Budget::version).collect()
    }

    /// What the budgets that guard `pod` would say, sorted by name.
    pub fn sentences(&self, pod: &Pod) -> Vec<String> {
        let mut sentences: Vec<String> = self.of(pod).map(Budget::refusal).collect();
        sentences.sort();
        sentences
    }

    /// How many disruptions the budget allows at once when all pods that it expects are healthy.
    pub fn at_most(&self, budget: &BudgetKey) -> usize {
        let mut near = self.budgets.get(&budget.namespace).into_iter().flatten();
        let found = near.find(|known| key(&known.object) == *budget).map(Budget::status);
        let spare = found.map_or(0, |status| status.expected_pods - status.desired_healthy);
        usize::try_from(spare).unwrap_or(0)
    }

    /// What the budgets say of `pod`; where they let it go, that is one disruption less for the next.
    ///
    /// A pod that several budgets guard is free: the API server refuses it whatever they allow, and says so.
    pub fn charge(&mut self, pod: &Pod) -> Opinion {
        let near = self.budgets.get_mut(pod::names(pod).namespace).into_iter().flatten();
        let mut guards = near.filter(|budget| budget.guards(pod));
        let (Some(budget), None) = (guards.next(), guards.next()) else { return Opinion::Free };
        if budget.lets_pass(pod) {
            return Opinion::Free;
        }
        if budget.allowed <= 0 {
            return Opinion::Exhausted { budget: key(&budget.object), message: budget.refusal() };
        }
        budget.allowed -= 1;
        Opinion::Allowed(Allowance { guard: budget.version(), allowed: allowed_by(&budget.object) })
    }

    fn of(&self, pod: &Pod) -> impl Iterator<Item = &Budget> {
        let near = self.budgets.get(pod::names(pod).namespace).into_iter().flatten();
        near.filter(|budget| budget.guards(pod))
    }
}

impl Budget {
    /// Whether it guards a pod of its namespace.
    fn guards(&self, pod: &Pod) -> bool {
        let matches = |selector: &Arc<Selector>| match &pod.metadata.labels {
            Some(labels) => selector.matches(labels),
            None => selector.matches(&BTreeMap::new()),
        };
        self.selector.as_ref().is_some_and(matches)
    }

    fn version(&self) -> BudgetVersion {
        BudgetVersion { key: key(&self.object), version: resource_version(&self.object).to_owned() }
    }

    /// Pods whose end is no disruption: those that do not run, and unhealthy ones where the policy says so.
    fn lets_pass(&self, pod: &Pod) -> bool {
        if pod::is_pending(pod) || pod::is_finished(pod) {
            return true;
        }
        if pod::is_ready(pod) {
            return false;
        }
        let policy = self.object.spec.as_ref().and_then(|spec| spec.unhealthy_pod_eviction_policy.as_deref());
        let status = self.status();
        policy == Some("AlwaysAllow")
            || (status.current_healthy >= status.desired_healthy && status.desired_healthy > 0)
    }

    /// The sentence by which the API server refuses (`pkg/registry/core/pod/storage/eviction.go` in kubernetes).
    fn refusal(&self) -> String {
        if let Some(answer) = &self.answer {
            return answer.clone();
        }
        let status = self.status();
        let name = self.object.metadata.name.as_deref().unwrap_or_default();
        if is_unprocessed(&self.object) {
            return format!("The disruption budget {name} is still being processed by the server.");
        }
        let failed = status.conditions.iter().flatten().find(|condition| {
            (condition.type_.as_str(), condition.status.as_str(), condition.reason.as_str())
                == ("DisruptionAllowed", "False", "SyncFailed")
        });
        if let Some(Condition { message, .. }) = failed {
            return format!(
                "The disruption budget {name} does not allow evicting pods currently because it failed sync: {message}"
            );
        }
        let (desired, current) = (status.desired_healthy, status.current_healthy);
        format!("The disruption budget {name} needs {desired} healthy pods and has {current} currently")
    }

    fn status(&self) -> PodDisruptionBudgetStatus {
        self.object.status.clone().unwrap_or_default()
    }
}

/// What is left of the disruptions that a budget allowed at `version`, and what the API server said if it knows better.
fn take_off<'a>(
    mut allowed: i32,
    version: &str,
    charges: impl Iterator<Item = (&'a str, &'a Charge)>,
) -> (i32, Option<String>) {
    let mut answer = None;
    for (decided_on, charge) in charges {
        match charge {
            Charge::InFlight => allowed -= 1,
            // A budget that has changed since tells the rest itself.
            _ if decided_on != version => {}
            Charge::Accepted => allowed -= 1,
            Charge::Refused(sentence) => (allowed, answer) = (0, Some(sentence.clone())),
        }
    }
    (allowed, answer)
}

/// Disruptions that the budget allows; none while its controller has not seen its latest spec, as the API server has it.
fn allowed_by(budget: &PodDisruptionBudget) -> i32 {
    if is_unprocessed(budget) {
        return 0;
    }
    budget.status.as_ref().map_or(0, |status| status.disruptions_allowed)
}

fn is_unprocessed(budget: &PodDisruptionBudget) -> bool {
    let observed = budget.status.as_ref().and_then(|status| status.observed_generation).unwrap_or(0);
    observed < budget.metadata.generation.unwrap_or(0)
}

fn key(budget: &PodDisruptionBudget) -> BudgetKey {
    BudgetKey {
        namespace: budget.metadata.namespace.clone().unwrap_or_default(),
        name: budget.metadata.name.clone().unwrap_or_default(),
    }
}

fn resource_version(budget: &PodDisruptionBudget) -> &str {
    budget.metadata.resource_version.as_deref().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn budget(name: &str, selector: &Value, allowed: i32) -> Arc<PodDisruptionBudget> {
        let budget = json!({
            "metadata": {"namespace": "shop", "name": name, "resourceVersion": "7"},
            "spec": {"selector": selector},
            "status": {"currentHealthy": 3, "desiredHealthy": 2, "disruptionsAllowed": allowed, "expectedPods": 3},
        });
        Arc::new(serde_json::from_value(budget).unwrap())
    }

    fn cart() -> Value {
        json!({"matchLabels": {"app": "cart"}})
    }

    fn pod_in(namespace: &str, app: &str, status: &Value) -> Pod {
        let metadata = json!({"namespace": namespace, "name": "p", "labels": {"app": app}});
        serde_json::from_value(json!({"metadata": metadata, "status": status})).unwrap()
    }

    fn pod(namespace: &str, app: &str) -> Pod {
        pod_in(
            namespace,
            app,
            &json!({"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}),
        )
    }

    fn is_free(budgets: &mut Budgets, pod: &Pod) -> bool {
        !matches!(budgets.charge(pod), Opinion::Exhausted { .. })
    }

    #[test]
    fn a_budget_guards_by_selector_within_its_namespace() {
        let all = [budget("cart", &cart(), 1), budget("all", &json!({}), 1), budget("none", &Value::Null, 0)];
        let budgets = Budgets::new(all, &Charges::new());
        let guards = |pod: &Pod| -> Vec<String> {
            budgets.guarding(pod).into_iter().map(|guard| guard.key.name).collect()
        };
        assert_eq!(guards(&pod("shop", "cart")), ["cart", "all"]);
        assert_eq!(guards(&pod("shop", "web")), ["all"]);
        assert!(guards(&pod("elsewhere", "cart")).is_empty());
    }

    #[test]
    fn no_more_is_asked_for_than_a_budget_allows() {
        let mut budgets = Budgets::new([budget("cart", &cart(), 2)], &Charges::new());
        let asked: Vec<bool> = (0..3).map(|_| is_free(&mut budgets, &pod("shop", "cart"))).collect();
        assert_eq!(asked, [true, true, false]);
        assert!(is_free(&mut budgets, &pod("shop", "web")), "nothing guards it");
        let Opinion::Exhausted { budget, message } = budgets.charge(&pod("shop", "cart")) else { panic!() };
        assert_eq!(budget.to_string(), "shop/cart");
        assert_eq!(message, "The disruption budget cart needs 2 healthy pods and has 3 currently");
    }

    #[test]
    fn what_was_free_when_it_was_decided_may_be_spent_when_it_is_asked() {
        let mut budgets = Budgets::new([budget("cart", &cart(), 2)], &Charges::new());
        let Opinion::Allowed(allowance) = budgets.charge(&pod("shop", "cart")) else { panic!() };
        let on = |version: &str, name: &str, charge: Charge| {
            let key = BudgetKey { namespace: "shop".to_owned(), name: name.to_owned() };
            (BudgetVersion { key, version: version.to_owned() }, charge)
        };
        let check = |charges: &[(BudgetVersion, Charge)], spent: bool| {
            assert_eq!(allowance.is_spent(&charges.to_vec()), spent, "{charges:?}");
        };
        check(&[], false);
        check(&[on("7", "cart", Charge::InFlight)], false);
        check(&[on("7", "cart", Charge::InFlight), on("7", "web", Charge::InFlight)], false);
        check(&[on("7", "cart", Charge::InFlight), on("7", "cart", Charge::Accepted)], true);
        check(&[on("7", "cart", Charge::InFlight), on("6", "cart", Charge::InFlight)], true);
        check(&[on("7", "cart", Charge::Refused("no".to_owned()))], true);
    }

    #[test]
    fn what_is_under_way_or_answered_since_is_taken_off() {
        let check = |allowed: i32, version: &str, charge: &Charge, free: bool| {
            let key = BudgetKey { namespace: "shop".to_owned(), name: "cart".to_owned() };
            let charges = vec![(BudgetVersion { key, version: version.to_owned() }, charge.clone())];
            let mut budgets = Budgets::new([budget("cart", &cart(), allowed)], &charges);
            assert_eq!(is_free(&mut budgets, &pod("shop", "cart")), free, "{allowed} {version} {charge:?}");
        };
        let refused = Charge::Refused("the server knows better".to_owned());
        check(1, "6", &Charge::InFlight, false);
        check(2, "6", &Charge::InFlight, true);
        check(1, "7", &Charge::Accepted, false);
        check(1, "6", &Charge::Accepted, true);
        check(5, "7", &refused, false);
        check(5, "6", &refused, true);
    }

    #[test]
    fn a_refusal_is_told_for_all_pods_until_the_budget_is_seen_to_change() {
        let check = |version: &str, expected: &str| {
            let key = BudgetKey { namespace: "shop".to_owned(), name: "cart".to_owned() };
            let refused = Charge::Refused("the server knows better".to_owned());
            let charges = vec![(BudgetVersion { key, version: version.to_owned() }, refused)];
            let mut budgets = Budgets::new([budget("cart", &cart(), 0)], &charges);
            let Opinion::Exhausted { message, .. } = budgets.charge(&pod("shop", "cart")) else { panic!() };
            assert_eq!(message, expected);
        };
        check("7", "the server knows better");
        check("6", "The disruption budget cart needs 2 healthy pods and has 3 currently");
    }

    #[test]
    fn a_budget_whose_spec_is_still_being_processed_allows_nothing() {
        let mut stale = PodDisruptionBudget::clone(&budget("cart", &cart(), 5));
        stale.metadata.generation = Some(2);
        refuses_because(stale, "is still being processed by the server.");
    }

    #[test]
    fn a_budget_that_cannot_count_its_pods_says_why() {
        let mut failed = PodDisruptionBudget::clone(&budget("cart", &cart(), 0));
        let condition = json!({"type": "DisruptionAllowed", "status": "False", "reason": "SyncFailed",
            "message": "no scale", "lastTransitionTime": "2026-01-01T00:00:00Z"});
        failed.status.as_mut().unwrap().conditions = Some(vec![serde_json::from_value(condition).unwrap()]);
        refuses_because(failed, "does not allow evicting pods currently because it failed sync: no scale");
    }

    fn refuses_because(budget: PodDisruptionBudget, reason: &str) {
        let opinion = Budgets::new([Arc::new(budget)], &Charges::new()).charge(&pod("shop", "cart"));
        let Opinion::Exhausted { message, .. } = opinion else { panic!("{opinion:?}") };
        assert_eq!(message, format!("The disruption budget cart {reason}"));
    }

    #[test]
    fn pods_whose_end_is_no_disruption_pass_an_exhausted_budget() {
        let mut budgets = Budgets::new([budget("cart", &cart(), 0)], &Charges::new());
        for status in
            [json!({"phase": "Pending"}), json!({"phase": "Succeeded"}), json!({"phase": "Running"})]
        {
            assert!(is_free(&mut budgets, &pod_in("shop", "cart", &status)), "{status}");
        }
        assert!(!is_free(&mut budgets, &pod("shop", "cart")));
    }
}
