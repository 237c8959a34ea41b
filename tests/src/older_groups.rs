//! The definitions of the groups from before the operator moved to medik8s, for tests to install and remove.

use std::path::Path;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::{Api, Client, ResourceExt};
use nm_shared::{Group, Grouped};
use serde_json::json;

use crate::until::until;

/// The groups.
pub const OLDER: [Group; 2] = [Group::NodeMaintenanceKubevirt, Group::Kubevirt];

/// The maintenances of a group.
pub fn maintenances(client: &Client, group: Group) -> Api<Grouped> {
    Api::all_with(client.clone(), &group)
}

/// Installs the definition of a group, and waits until its maintenances are served.
pub async fn install(client: &Client, group: Group) {
    let file = format!("definitions/{}.yaml", group.name());
    let text = std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(file)).unwrap();
    let definition: CustomResourceDefinition = serde_saphyr::from_str(&text).unwrap();
    let definitions = definitions(client);
    definitions.create(&PostParams::default(), &definition).await.unwrap();
    until(&definitions, &group.definition(), "established", |found| {
        found.is_some_and(|found| group.is_served_by(found))
    })
    .await;
}

/// Deletes the definition of a group, and waits until it is gone with the last of its maintenances.
pub async fn remove(client: &Client, group: Group) {
    definitions(client).delete(&group.definition(), &DeleteParams::default()).await.unwrap();
    until(&definitions(client), &group.definition(), "gone", |found| found.is_none()).await;
}

/// Removes what an earlier test, which may have failed anywhere, left of the groups.
pub async fn tidy(client: &Client) {
    for group in OLDER {
        if definitions(client).get_opt(&group.definition()).await.unwrap().is_none() {
            continue;
        }
        for maintenance in maintenances(client, group).list(&ListParams::default()).await.unwrap() {
            let free = Patch::Merge(json!({"metadata": {"finalizers": null}}));
            let name = maintenance.name_any();
            let _ = maintenances(client, group).patch(&name, &PatchParams::default(), &free).await;
        }
        remove(client, group).await;
    }
}

fn definitions(client: &Client) -> Api<CustomResourceDefinition> {
    Api::all(client.clone())
}
