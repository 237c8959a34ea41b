//! What disruption budgets promise while pods come and go.

use serde_json::json;

use crate::registry::Effect;
use crate::resource::BUDGETS;
use crate::store::{Key, State};

use crate::controllers::test_bed::{Bed, pods, web};

fn budget_allows(state: &State, allowed: i64) -> bool {
    let budget = state.get(&BUDGETS, &Key::new("ns", "web"));
    budget.is_some_and(|budget| budget["status"]["disruptionsAllowed"] == allowed)
}

#[tokio::test(start_paused = true)]
async fn a_budget_frees_when_a_replacement_is_ready() {
    let bed = Bed::new(2);
    bed.run(web().replicas(2).budget(json!({"maxUnavailable": 1}))).await;
    bed.until("the budget allows one", |state| budget_allows(state, 1)).await;
    let pods = bed.read(pods);
    bed.evict(&pods[0]).unwrap();
    let refusal = bed.evict(&pods[1]).unwrap_err();
    assert_eq!(refusal.code, 429);
    bed.until("the budget allows one again", |state| budget_allows(state, 1)).await;
    bed.evict(&pods[1]).unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_charge_for_a_pod_that_does_not_go_runs_out_after_two_minutes() {
    let bed = Bed::new(1);
    bed.run(web().replicas(2).budget(json!({"minAvailable": 1}))).await;
    bed.until("the budget allows one", |state| budget_allows(state, 1)).await;
    let pod = bed.read(|state| pods(state).remove(0));
    let foreign = json!({"preconditions": {"uid": "another"}});
    let refusal = bed.evict_with(&pod, &foreign, Effect::Real).unwrap_err();
    assert_eq!(refusal.code, 409);
    bed.until("the charge is noticed", |state| budget_allows(state, 0)).await;
    let before = bed.cluster.clock.now();
    bed.until("the budget is whole again", |state| budget_allows(state, 1)).await;
    assert!(bed.cluster.clock.now().duration_since(before).as_secs() >= 118);
}
