//! The object as the API server keeps it.

use kube::ResourceExt;
use kube::api::{Patch, PatchParams, PostParams};
use nm_shared::NodeMaintenance;
use nm_shared::names::FINALIZER;
use nm_tests::cluster::Cluster;
use nm_tests::reconciler::Reconciler;
use nm_tests::until::until;
use serde_json::json;

use crate::{drained, start};

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
    let empty = NodeMaintenance::new("e2e-empty", nm_shared::NodeMaintenanceSpec::default());
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
