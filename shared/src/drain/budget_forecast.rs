//! What disruption budgets would say, so that they are not asked in vain.
//!
//! The API server stays the judge: what is read here is a moment old, and only decides whether asking is worth while.
//! A stale view costs a refusal; a view that says no is tried anyway now and then (`queue`), so nothing waits on it
//! for ever.

use std::collections::HashMap;
use std::sync::Arc;

use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;

use crate::cluster::disruption_budget::{Budget, BudgetKey, BudgetVersion};
use crate::cluster::pod;
use crate::drain::steady_time::SteadyTime;

/// What an eviction that a budget guards takes off what the budget is seen to allow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Charge<'a> {
    /// It is under way.
    InFlight,
    /// It was accepted: one disruption is spent.
    Accepted,
    /// It was refused, with this sentence: whatever the budget's status says, it has none left.
    Refused(&'a str),
}

/// What an eviction spends: one of the disruptions that a budget allowed when the eviction was decided.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Allowance {
    /// The budget as it was.
    pub guard: BudgetVersion,
    /// How many disruptions it allowed then, whoever has asked for them.
    pub allowed: i32,
}

impl Allowance {
    /// Whether `charges` of the budget, each with the version that it was decided on, leave nothing of it. Nodes decide
    /// beside each other: what was free when one of them looked may be another's when it asks.
    pub fn is_spent<'a>(&self, charges: impl IntoIterator<Item = (&'a str, Charge<'a>)>) -> bool {
        take_off(self.allowed, &self.guard.version, charges).0 <= 0
    }
}

/// What the budgets say of one more eviction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum BudgetPrediction {
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

/// A budget, and what is left of it.
#[derive(Debug, Clone)]
pub struct RemainingBudget {
    budget: Arc<Budget>,
    /// Disruptions that it allows and that nobody has asked for yet.
    allowed: i32,
    /// What the API server said last, if the budget has not been seen to change since: it knows better.
    answer: Option<String>,
    /// When it was last asked.
    asked: Option<SteadyTime>,
}

impl RemainingBudget {
    /// What `charges`, each with the version that it was decided on, leave of a budget that was last asked at `asked`.
    pub fn of<'a>(
        budget: Arc<Budget>,
        asked: Option<SteadyTime>,
        charges: impl IntoIterator<Item = (&'a str, Charge<'a>)>,
    ) -> Self {
        let (allowed, answer) = take_off(budget.allowed(), &budget.seen().version, charges);
        Self { allowed, answer: answer.map(str::to_owned), asked, budget }
    }

    fn refusal(&self) -> String {
        self.answer.clone().unwrap_or_else(|| self.budget.refusal())
    }
}

/// The budgets of some namespaces, and what is left of them while a decision is made.
#[derive(Debug, Clone, Default)]
pub struct Budgets {
    /// By namespace: a pod has nothing to do with those of others.
    near: HashMap<String, Vec<RemainingBudget>>,
}

impl FromIterator<RemainingBudget> for Budgets {
    fn from_iter<T: IntoIterator<Item = RemainingBudget>>(budgets: T) -> Self {
        let mut near: HashMap<String, Vec<RemainingBudget>> = HashMap::new();
        for left in budgets {
            let namespace = &left.budget.seen().key.namespace;
            match near.get_mut(namespace) {
                Some(others) => others.push(left),
                None => {
                    near.insert(namespace.clone(), vec![left]);
                }
            }
        }
        Self { near }
    }
}

impl Budgets {
    /// The budgets as they are seen, of which nobody has asked anything.
    pub fn from_objects<'a>(budgets: impl IntoIterator<Item = &'a PodDisruptionBudget>) -> Self {
        budgets.into_iter().map(|budget| RemainingBudget::of(Arc::new(budget.into()), None, [])).collect()
    }

    /// The budgets that guard `pod`.
    pub fn guarding(&self, pod: &Pod) -> Vec<BudgetVersion> {
        self.of(pod).map(|left| left.budget.seen().clone()).collect()
    }

    /// What the budgets that guard `pod` would say, sorted by name.
    pub fn sentences(&self, pod: &Pod) -> Vec<String> {
        let mut sentences: Vec<String> = self.of(pod).map(RemainingBudget::refusal).collect();
        sentences.sort();
        sentences
    }

    /// How many disruptions the budget allows at once when all pods that it expects are healthy.
    pub fn at_most(&self, budget: &BudgetKey) -> usize {
        self.find(budget).map_or(0, |left| left.budget.at_most())
    }

    /// When the budget was last asked.
    pub fn asked(&self, budget: &BudgetKey) -> Option<SteadyTime> {
        self.find(budget).and_then(|left| left.asked)
    }

    /// Notes that the budget is asked, whatever is left of it.
    pub fn note_asked(&mut self, budget: &BudgetKey, now: SteadyTime) {
        let mut near = self.near.get_mut(&budget.namespace).into_iter().flatten();
        if let Some(left) = near.find(|left| left.budget.seen().key.name == budget.name) {
            left.asked = Some(now);
        }
    }

    /// What the budgets say of `pod`; where they let it go, that is one disruption less for the next.
    ///
    /// A pod that several budgets guard is free: the API server refuses it whatever they allow, and says so.
    pub fn charge(&mut self, pod: &Pod) -> BudgetPrediction {
        let near = self.near.get_mut(pod::names(pod).namespace).into_iter().flatten();
        let mut guards = near.filter(|left| left.budget.guards(pod));
        let (Some(left), None) = (guards.next(), guards.next()) else { return BudgetPrediction::Free };
        if left.budget.lets_pass(pod) {
            return BudgetPrediction::Free;
        }
        let seen = left.budget.seen();
        if left.allowed <= 0 {
            return BudgetPrediction::Exhausted { budget: seen.key.clone(), message: left.refusal() };
        }
        left.allowed -= 1;
        BudgetPrediction::Allowed(Allowance { guard: seen.clone(), allowed: left.budget.allowed() })
    }

    fn of(&self, pod: &Pod) -> impl Iterator<Item = &RemainingBudget> {
        let near = self.near.get(pod::names(pod).namespace).into_iter().flatten();
        near.filter(|left| left.budget.guards(pod))
    }

    fn find(&self, budget: &BudgetKey) -> Option<&RemainingBudget> {
        self.near.get(&budget.namespace)?.iter().find(|left| left.budget.seen().key.name == budget.name)
    }
}

/// What is left of the disruptions that a budget allowed at `version`, and what the API server said if it knows better.
fn take_off<'a>(
    mut allowed: i32,
    version: &str,
    charges: impl IntoIterator<Item = (&'a str, Charge<'a>)>,
) -> (i32, Option<&'a str>) {
    let mut answer = None;
    for (decided_on, charge) in charges {
        match charge {
            Charge::InFlight => allowed -= 1,
            // A budget that has changed since tells the rest itself.
            _ if decided_on != version => {}
            Charge::Accepted => allowed -= 1,
            Charge::Refused(sentence) => (allowed, answer) = (0, Some(sentence)),
        }
    }
    (allowed, answer)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn object(name: &str, selector: &Value, allowed: i32) -> PodDisruptionBudget {
        let budget = json!({
            "metadata": {"namespace": "shop", "name": name, "resourceVersion": "7"},
            "spec": {"selector": selector},
            "status": {"currentHealthy": 3, "desiredHealthy": 2, "disruptionsAllowed": allowed, "expectedPods": 3},
        });
        serde_json::from_value(budget).unwrap()
    }

    fn carts(allowed: i32) -> Budgets {
        Budgets::from_objects(&[object("cart", &cart(), allowed)])
    }

    fn carts_after(allowed: i32, version: &str, charge: Charge) -> Budgets {
        let budget = Arc::new(Budget::from(&object("cart", &cart(), allowed)));
        Budgets::from_iter([RemainingBudget::of(budget, None, [(version, charge)])])
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
        !matches!(budgets.charge(pod), BudgetPrediction::Exhausted { .. })
    }

    #[test]
    fn a_budget_guards_by_selector_within_its_namespace() {
        let all = [object("cart", &cart(), 1), object("all", &json!({}), 1), object("none", &Value::Null, 0)];
        let budgets = Budgets::from_objects(&all);
        let guards = |pod: &Pod| -> Vec<String> {
            budgets.guarding(pod).into_iter().map(|guard| guard.key.name).collect()
        };
        assert_eq!(guards(&pod("shop", "cart")), ["cart", "all"]);
        assert_eq!(guards(&pod("shop", "web")), ["all"]);
        assert!(guards(&pod("elsewhere", "cart")).is_empty());
    }

    #[test]
    fn no_more_is_asked_for_than_a_budget_allows() {
        let mut budgets = carts(2);
        let asked: Vec<bool> = (0..3).map(|_| is_free(&mut budgets, &pod("shop", "cart"))).collect();
        assert_eq!(asked, [true, true, false]);
        assert!(is_free(&mut budgets, &pod("shop", "web")), "nothing guards it");
        let BudgetPrediction::Exhausted { budget, message } = budgets.charge(&pod("shop", "cart")) else {
            panic!()
        };
        assert_eq!(budget.to_string(), "shop/cart");
        assert_eq!(message, "The disruption budget cart needs 2 healthy pods and has 3 currently");
    }

    #[test]
    fn what_was_free_when_it_was_decided_may_be_spent_when_it_is_asked() {
        let mut budgets = carts(2);
        let BudgetPrediction::Allowed(allowance) = budgets.charge(&pod("shop", "cart")) else { panic!() };
        let check = |charges: &[(&str, Charge)], spent: bool| {
            assert_eq!(allowance.is_spent(charges.iter().copied()), spent, "{charges:?}");
        };
        check(&[], false);
        check(&[("7", Charge::InFlight)], false);
        check(&[("7", Charge::InFlight), ("6", Charge::Accepted)], false);
        check(&[("7", Charge::InFlight), ("7", Charge::Accepted)], true);
        check(&[("7", Charge::InFlight), ("6", Charge::InFlight)], true);
        check(&[("7", Charge::Refused("no"))], true);
    }

    #[test]
    fn what_is_under_way_or_answered_since_is_taken_off() {
        let check = |allowed: i32, version: &str, charge: Charge, free: bool| {
            let mut budgets = carts_after(allowed, version, charge);
            assert_eq!(is_free(&mut budgets, &pod("shop", "cart")), free, "{allowed} {version} {charge:?}");
        };
        let refused = Charge::Refused("the server knows better");
        check(1, "6", Charge::InFlight, false);
        check(2, "6", Charge::InFlight, true);
        check(1, "7", Charge::Accepted, false);
        check(1, "6", Charge::Accepted, true);
        check(5, "7", refused, false);
        check(5, "6", refused, true);
    }

    #[test]
    fn a_refusal_is_told_for_all_pods_until_the_budget_is_seen_to_change() {
        let check = |version: &str, expected: &str| {
            let refused = Charge::Refused("the server knows better");
            let mut budgets = carts_after(0, version, refused);
            let BudgetPrediction::Exhausted { message, .. } = budgets.charge(&pod("shop", "cart")) else {
                panic!()
            };
            assert_eq!(message, expected);
        };
        check("7", "the server knows better");
        check("6", "The disruption budget cart needs 2 healthy pods and has 3 currently");
    }

    #[test]
    fn a_budget_whose_spec_is_still_being_processed_allows_nothing() {
        let mut stale = object("cart", &cart(), 5);
        stale.metadata.generation = Some(2);
        refuses_because(&stale, "is still being processed by the server.");
    }

    #[test]
    fn a_budget_that_cannot_count_its_pods_says_why() {
        let mut failed = object("cart", &cart(), 0);
        let condition = json!({"type": "DisruptionAllowed", "status": "False", "reason": "SyncFailed",
            "message": "no scale", "lastTransitionTime": "2026-01-01T00:00:00Z"});
        failed.status.as_mut().unwrap().conditions = Some(vec![serde_json::from_value(condition).unwrap()]);
        refuses_because(&failed, "does not allow evicting pods currently because it failed sync: no scale");
    }

    fn refuses_because(budget: &PodDisruptionBudget, reason: &str) {
        let opinion = Budgets::from_objects([budget]).charge(&pod("shop", "cart"));
        let BudgetPrediction::Exhausted { message, .. } = opinion else { panic!("{opinion:?}") };
        assert_eq!(message, format!("The disruption budget cart {reason}"));
    }

    #[test]
    fn pods_whose_end_is_no_disruption_pass_an_exhausted_budget() {
        let mut budgets = carts(0);
        for status in
            [json!({"phase": "Pending"}), json!({"phase": "Succeeded"}), json!({"phase": "Running"})]
        {
            assert!(is_free(&mut budgets, &pod_in("shop", "cart", &status)), "{status}");
        }
        assert!(!is_free(&mut budgets, &pod("shop", "cart")));
    }
}
