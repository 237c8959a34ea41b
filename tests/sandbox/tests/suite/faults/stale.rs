//! Statuses that stand still.

use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kube::api::{DeleteParams, EvictParams, ListParams, Patch, PatchParams};
use kube::{Api, ResourceExt};
use kube_sandbox::faults::{Target, Writers};
use kube_sandbox::sandbox::Sandbox;
use kube_sandbox::workload::{App, Kind};
use serde_json::json;

use super::{cluster, run, status, until};

fn allows(budget: Option<&PodDisruptionBudget>, count: i32) -> bool {
    budget.and_then(|budget| budget.status.as_ref()).is_some_and(|status| status.disruptions_allowed == count)
}

/// A cluster with two pods of which one may go, which the budget's status says.
async fn with_budget() -> (Sandbox, Api<PodDisruptionBudget>, Api<Pod>) {
    let (sandbox, client) = cluster(1).await;
    run(
        &sandbox,
        &App::new(Kind::Deployment, "default", "web").replicas(2).budget(json!({"maxUnavailable": 1})),
    );
    let budgets: Api<PodDisruptionBudget> = Api::namespaced(client.clone(), "default");
    until(&budgets, "web", |budget| allows(budget, 1)).await;
    (sandbox, budgets, Api::namespaced(client, "default"))
}

#[tokio::test(start_paused = true)]
async fn a_budget_that_nobody_keeps_goes_stale_and_is_kept_again_when_let_go() {
    let (sandbox, budgets, pods) = with_budget().await;
    let stale = Target::any().group("policy").resource("poddisruptionbudgets").name("web");
    let freeze = sandbox.faults().freeze_status(stale, Writers::Controllers);
    let names: Vec<String> =
        pods.list(&ListParams::default()).await.unwrap().iter().map(ResourceExt::name_any).collect();
    // The eviction itself writes the budget's status, and no controller gives the disruption back.
    pods.evict(&names[0], &EvictParams::default()).await.unwrap();
    until(&pods, &names[0], |pod| pod.is_none()).await;
    tokio::time::sleep(std::time::Duration::from_secs(600)).await;
    assert!(allows(budgets.get_opt("web").await.unwrap().as_ref(), 0));
    assert_eq!(status(pods.evict(&names[1], &EvictParams::default()).await).code, 429);
    sandbox.faults().thaw_status(freeze);
    until(&budgets, "web", |budget| allows(budget, 1)).await;
    pods.evict(&names[1], &EvictParams::default()).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_status_that_is_frozen_for_everybody_is_not_written_by_requests_either() {
    let (sandbox, budgets, pods) = with_budget().await;
    let before = budgets.get("web").await.unwrap();
    sandbox.faults().freeze_status(Target::any().resource("poddisruptionbudgets"), Writers::Everybody);
    let patch = json!({"status": {"disruptionsAllowed": 5}});
    budgets.patch_status("web", &PatchParams::default(), &Patch::Merge(&patch)).await.unwrap();
    pods.delete_collection(&DeleteParams::default(), &ListParams::default()).await.unwrap();
    tokio::time::sleep(std::time::Duration::from_secs(60)).await;
    assert_eq!(budgets.get("web").await.unwrap(), before);
    let label = json!({"metadata": {"labels": {"other": "fields"}}});
    let after = budgets.patch("web", &PatchParams::default(), &Patch::Merge(&label)).await.unwrap();
    assert_eq!(after.labels()["other"], "fields");
}
