//! The API groups from before the operator moved to medik8s: their definitions and their maintenances.

use std::path::Path;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::{Api, Client, ResourceExt};
use nm_shared::{Group, GroupedMaintenance, Phase};
use serde_json::json;

use crate::wait::wait_until;

/// The groups.
pub const OLDER: [Group; 2] = [Group::NodeMaintenanceKubevirt, Group::Kubevirt];

/// The maintenances of a group.
pub fn maintenances(client: &Client, group: Group) -> Api<GroupedMaintenance> {
    Api::all_with(client.clone(), &group)
}

/// Installs the definition of a group, and waits until its maintenances are served.
pub async fn install(client: &Client, group: Group) {
    let file = format!("definitions/{}.yaml", group.name());
    let text = std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(file)).unwrap();
    let definition: CustomResourceDefinition = serde_saphyr::from_str(&text).unwrap();
    let definitions = definitions(client);
    definitions.create(&PostParams::default(), &definition).await.unwrap();
    wait_until(&definitions, &group.definition(), "established", |found| {
        found.is_some_and(|found| group.is_served_by(found))
    })
    .await;
}

/// Deletes the definition of a group, and waits until it is gone with the last of its maintenances.
pub async fn remove(client: &Client, group: Group) {
    definitions(client).delete(&group.definition(), &DeleteParams::default()).await.unwrap();
    wait_until(&definitions(client), &group.definition(), "gone", |found| found.is_none()).await;
}

/// Removes the definitions that earlier tests, even failed ones, left on a shared cluster.
pub async fn clean_up(client: &Client) {
    for group in OLDER {
        if definitions(client).get_opt(&group.definition()).await.unwrap().is_none() {
            continue;
        }
        for maintenance in maintenances(client, group).list(&ListParams::default()).await.unwrap() {
            let without_finalizers = Patch::Merge(json!({"metadata": {"finalizers": null}}));
            let name = maintenance.name_any();
            let _ =
                maintenances(client, group).patch(&name, &PatchParams::default(), &without_finalizers).await;
        }
        remove(client, group).await;
    }
}

fn definitions(client: &Client) -> Api<CustomResourceDefinition> {
    Api::all(client.clone())
}

/// Creates a maintenance of a group.
pub async fn start_in_group(client: &Client, group: Group, name: &str, node: &str) {
    let maintenance = json!({
        "apiVersion": format!("{}/{}", group.name(), group.version()), "kind": "NodeMaintenance",
        "metadata": {"name": name}, "spec": {"nodeName": node, "reason": "e2e"},
    });
    let params = PatchParams::apply("nm-tests");
    maintenances(client, group).patch(name, &params, &Patch::Apply(maintenance)).await.unwrap();
}

/// A maintenance of a group, once it is in this phase.
pub async fn until_phase_in_group(
    client: &Client,
    group: Group,
    name: &str,
    phase: Phase,
) -> GroupedMaintenance {
    let is_in_phase = |found: Option<&GroupedMaintenance>| {
        found.and_then(|found| found.status.as_ref()).is_some_and(|status| status.phase == Some(phase))
    };
    wait_until(&maintenances(client, group), name, phase.as_str(), is_in_phase).await.unwrap()
}

/// Deletes a maintenance of a group and waits until it is gone.
pub async fn stop_in_group(client: &Client, group: Group, name: &str) {
    let api = maintenances(client, group);
    api.delete(name, &DeleteParams::default()).await.unwrap();
    wait_until(&api, name, "gone", |found| found.is_none()).await;
}
