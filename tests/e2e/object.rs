//! The object as the API server keeps it.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{Patch, PatchParams, PostParams};
use kube::{Api, ResourceExt};
use nm_shared::api::names::FINALIZER;
use nm_shared::{NodeMaintenance, NodeMaintenanceSpec};
use nm_tests::cluster::Cluster;
use nm_tests::programs::plugin;
use nm_tests::reconciler::Reconciler;
use nm_tests::until::{PATIENCE, until};
use serde_json::{Value, json};

use crate::{drained, start, stop};

// Case 15.
#[tokio::test(flavor = "multi_thread")]
async fn the_object_belongs_to_its_node_by_one_persisted_owner_reference() {
    let cluster = Cluster::start(1).await;
    let node = &cluster.nodes().await[0];
    let reconciler = Reconciler::start(&cluster);
    start(&cluster, "e2e-owner", node).await;
    let owned = drained(&cluster, "e2e-owner").await;
    reconciler.crash().await;

    let _next = Reconciler::start(&cluster);
    let touch = Patch::Merge(json!({"spec": {"reason": "another look"}}));
    cluster.maintenances().patch("e2e-owner", &PatchParams::default(), &touch).await.unwrap();
    let seen = |found: Option<&NodeMaintenance>| {
        let status = found.and_then(|found| found.status.as_ref());
        status.is_some_and(|status| status.conditions.iter().all(|c| c.observed_generation == Some(2)))
    };
    let again = until(&cluster.maintenances(), "e2e-owner", "seen by the next", seen).await.unwrap();
    for object in [owned, again] {
        let owners = object.owner_references();
        assert_eq!(owners.len(), 1);
        assert_eq!((owners[0].kind.as_str(), &owners[0].name), ("Node", node));
        assert_eq!(Some(&owners[0].uid), cluster.node(node).await.metadata.uid.as_ref());
        assert_eq!(object.finalizers(), [FINALIZER.to_owned()]);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_node_of_a_maintenance_is_required_and_cannot_be_changed() {
    let cluster = Cluster::start(1).await;
    let maintenances = cluster.maintenances();
    start(&cluster, "e2e-fixed", "some-node").await;
    let other = Patch::Merge(json!({"spec": {"nodeName": "other-node"}}));
    let refused = maintenances.patch("e2e-fixed", &PatchParams::default(), &other).await.unwrap_err();
    let kube::Error::Api(status) = refused else { panic!("{refused}") };
    assert_eq!(status.code, 422);
    assert!(status.message.contains("updating spec.nodeName isn't allowed"), "{}", status.message);
    let empty = NodeMaintenance::new("e2e-empty", NodeMaintenanceSpec::default());
    let refused = maintenances.create(&PostParams::default(), &empty).await.unwrap_err();
    assert!(matches!(refused, kube::Error::Api(status) if status.code == 422));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_drain_spec_is_completed_with_the_defaults_of_the_schema_which_refuses_what_makes_no_sense() {
    let cluster = Cluster::start(1).await;
    let object: NodeMaintenance = nm_tests::workload::parse(json!({
        "apiVersion": "nodemaintenance.medik8s.io/v1beta1", "kind": "NodeMaintenance",
        "metadata": {"name": "e2e-defaults"}, "spec": {"nodeName": "n", "drain": {}},
    }));
    let made = cluster.maintenances().create(&PostParams::default(), &object).await.unwrap();
    assert_eq!(made.spec.drain, Some(nm_shared::DrainSpec::default()));
    for (field, value) in [
        ("gracePeriodSeconds", json!(-2)),
        ("timeoutSeconds", json!(-1)),
        ("skipWaitForDeleteTimeoutSeconds", json!(-1)),
        ("deleteAfterSeconds", json!(-1)),
        ("order", json!("Sideways")),
    ] {
        let drain = Patch::Merge(json!({"spec": {"drain": {field: value}}}));
        let answer = cluster.maintenances().patch("e2e-defaults", &PatchParams::default(), &drain).await;
        let Err(kube::Error::Api(status)) = answer else { panic!("{field} may be {value}") };
        assert_eq!(status.code, 422, "{status:?}");
        assert!(status.message.contains(&format!("spec.drain.{field}: ")), "{}", status.message);
    }
}

/// A maintenance whose reason has so many characters.
fn because(name: &str, node: &str, length: usize) -> NodeMaintenance {
    let reason = Some("\u{e9}".repeat(length));
    let spec = NodeMaintenanceSpec { node_name: node.to_owned(), reason, ..NodeMaintenanceSpec::default() };
    NodeMaintenance::new(name, spec)
}

/// Has the API server hold reasons to a limit, or to none, and waits until it does.
async fn limit_reasons(cluster: &Cluster, limit: Option<usize>) {
    let definitions: Api<CustomResourceDefinition> = Api::all(cluster.client.clone());
    let field = "/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties/reason/maxLength";
    let change = match limit {
        Some(limit) => json!([{"op": "add", "path": field, "value": limit}]),
        None => json!([{"op": "remove", "path": field}]),
    };
    let patch = Patch::<()>::Json(serde_json::from_value(change).unwrap());
    definitions.patch(&nm_shared::api::crd::crd().name_any(), &PatchParams::default(), &patch).await.unwrap();
    let dry = PostParams { dry_run: true, ..PostParams::default() };
    let served = async {
        let probe = because("e2e-probe", "n", 1025);
        while cluster.maintenances().create(&dry, &probe).await.is_ok() == limit.is_some() {}
    };
    tokio::time::timeout(PATIENCE, served).await.expect("the changed definition is served");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reason_has_1024_characters_at_most() {
    let cluster = Cluster::start(1).await;
    let node = &cluster.nodes().await[0];
    let create = async |length| {
        cluster.maintenances().create(&PostParams::default(), &because("e2e-reason", node, length)).await
    };
    let Err(kube::Error::Api(status)) = create(1025).await else { panic!("it is too long") };
    assert_eq!(status.code, 422, "{status:?}");
    assert!(status.message.contains("spec.reason: Too long"), "{}", status.message);
    create(1024).await.unwrap();
    let refused = plugin(&cluster, &["start", node, "--reason", &"x".repeat(1025)]).await;
    assert_eq!(refused.code, Some(2), "{refused:?}");
    let said = "a reason has at most 1024 characters, and this one has 1025";
    assert!(refused.stderr.contains(said), "{}", refused.stderr);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_maintenance_whose_reason_is_older_than_its_limit_is_served_to_its_end() {
    let cluster = Cluster::start(1).await;
    let node = &cluster.nodes().await[0];
    limit_reasons(&cluster, None).await;
    let old = because("e2e-wordy", node, 5000);
    let old = cluster.maintenances().create(&PostParams::default(), &old).await.unwrap();
    limit_reasons(&cluster, Some(1024)).await;
    let _reconciler = Reconciler::start(&cluster);
    let served = drained(&cluster, "e2e-wordy").await;
    assert_eq!(served.spec.reason, old.spec.reason);
    let patch = async |spec: Value| {
        let patch = Patch::Merge(json!({"spec": spec}));
        cluster.maintenances().patch("e2e-wordy", &PatchParams::default(), &patch).await
    };
    patch(json!({"drain": {"force": false}})).await.expect("something else may be changed");
    let Err(kube::Error::Api(status)) = patch(json!({"reason": "x".repeat(4999)})).await else {
        panic!("a new reason is held to the limit")
    };
    assert_eq!(status.code, 422, "{status:?}");
    stop(&cluster, "e2e-wordy").await;
}
