//! What disruption budgets promise while pods come and go.

use serde_json::json;

use crate::cluster::catalog::resource::BUDGETS;
use crate::cluster::registry::Effect;
use crate::cluster::store::{Key, State};

use crate::controllers::engine::test_cluster::{TestCluster, pods, web};

fn budget_allows(state: &State, allowed: i64) -> bool {
    let budget = state.get(&BUDGETS, &Key::new("ns", "web"));
    budget.is_some_and(|budget| budget["status"]["disruptionsAllowed"] == allowed)
}

#[tokio::test(start_paused = true)]
async fn a_budget_frees_when_a_replacement_is_ready() {
    let test = TestCluster::new(2);
    test.run(web().replicas(2).budget(json!({"maxUnavailable": 1}))).await;
    test.until("the budget allows one", |state| budget_allows(state, 1)).await;
    let pods = test.read(pods);
    test.evict(&pods[0]).unwrap();
    let refusal = test.evict(&pods[1]).unwrap_err();
    assert_eq!(refusal.code, 429);
    test.until("the budget allows one again", |state| budget_allows(state, 1)).await;
    test.evict(&pods[1]).unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_charge_for_a_pod_that_does_not_go_runs_out_after_two_minutes() {
    let test = TestCluster::new(1);
    test.run(web().replicas(2).budget(json!({"minAvailable": 1}))).await;
    test.until("the budget allows one", |state| budget_allows(state, 1)).await;
    let pod = test.read(|state| pods(state).remove(0));
    let foreign = json!({"preconditions": {"uid": "another"}});
    let refusal = test.evict_with(&pod, &foreign, Effect::Real).unwrap_err();
    assert_eq!(refusal.code, 409);
    test.until("the charge is noticed", |state| budget_allows(state, 0)).await;
    let before = test.cluster.clock.now();
    test.until("the budget is whole again", |state| budget_allows(state, 1)).await;
    assert!(test.cluster.clock.now().duration_since(before).as_secs() >= 118);
}
