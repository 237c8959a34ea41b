//! The `NodeMaintenance` object: its owner reference, defaults and validation.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{Patch, PatchParams, PostParams};
use kube::{Api, ResourceExt};
use nm_shared::api::names::FINALIZER;
use nm_shared::{NodeMaintenance, NodeMaintenanceSpec};
use nm_tests::cluster::{Cluster, may_own_maintenances};
use nm_tests::maintenance::{start, stop, until_drained, until_observed};
use nm_tests::programs::plugin;
use nm_tests::reconciler::Reconciler;
use nm_tests::wait::in_time;
use nm_tests::workload::parse;
use serde_json::{Value, json};

// Case 15.
#[tokio::test(flavor = "multi_thread")]
async fn a_maintenance_has_exactly_one_owner_reference_to_its_node() {
    if !may_own_maintenances() {
        return;
    }
    let cluster = Cluster::start(1).await;
    let node = &cluster.nodes().await[0];
    let reconciler = Reconciler::start(&cluster);
    start(&cluster, "e2e-owner", node).await;
    let owned = until_drained(&cluster, "e2e-owner").await;
    reconciler.crash().await;

    let _next = Reconciler::start(&cluster);
    let touch = Patch::Merge(json!({"spec": {"reason": "another reason"}}));
    cluster.maintenances().patch("e2e-owner", &PatchParams::default(), &touch).await.unwrap();
    until_observed(&cluster, "e2e-owner", 2).await;
    let again = cluster.maintenances().get("e2e-owner").await.unwrap();
    for object in [owned, again] {
        let owners = object.owner_references();
        assert_eq!(owners.len(), 1);
        assert_eq!((owners[0].kind.as_str(), &owners[0].name), ("Node", node));
        assert_eq!(Some(&owners[0].uid), cluster.node(node).await.metadata.uid.as_ref());
        assert_eq!(object.finalizers(), [FINALIZER.to_owned()]);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_node_name_is_required_and_immutable() {
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
async fn the_schema_sets_the_defaults_of_the_drain_and_refuses_invalid_values() {
    let cluster = Cluster::start(1).await;
    let object: NodeMaintenance = parse(json!({
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
        ("waitForVolumeDetach.timeoutSeconds", json!(-1)),
        ("waitForVolumeDetach.onTimeout", json!("Sometimes")),
    ] {
        let drain = match field.split_once('.') {
            Some((object, field)) => json!({object: {field: value}}),
            None => json!({field: value}),
        };
        let drain = Patch::Merge(json!({"spec": {"drain": drain}}));
        let answer = cluster.maintenances().patch("e2e-defaults", &PatchParams::default(), &drain).await;
        let Err(kube::Error::Api(status)) = answer else { panic!("{field} may be {value}") };
        assert_eq!(status.code, 422, "{status:?}");
        assert!(status.message.contains(&format!("spec.drain.{field}: ")), "{}", status.message);
    }
}

/// A maintenance with a reason of this many characters.
fn with_reason(name: &str, node: &str, length: usize) -> NodeMaintenance {
    let reason = Some("\u{e9}".repeat(length));
    let spec = NodeMaintenanceSpec { node_name: node.to_owned(), reason, ..NodeMaintenanceSpec::default() };
    NodeMaintenance::new(name, spec)
}

/// Sets or removes the limit of reasons in the definition, and waits until the API server applies it.
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
    let applied = async {
        let probe = with_reason("e2e-probe", "n", 1025);
        while cluster.maintenances().create(&dry, &probe).await.is_ok() == limit.is_some() {}
    };
    in_time("the changed definition is served", applied).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reason_has_at_most_1024_characters() {
    let cluster = Cluster::start(1).await;
    let node = &cluster.nodes().await[0];
    let create = async |length| {
        cluster.maintenances().create(&PostParams::default(), &with_reason("e2e-reason", node, length)).await
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
async fn a_maintenance_with_a_reason_from_before_the_limit_still_works() {
    let cluster = Cluster::start(1).await;
    let node = &cluster.nodes().await[0];
    limit_reasons(&cluster, None).await;
    let old = with_reason("e2e-wordy", node, 5000);
    let old = cluster.maintenances().create(&PostParams::default(), &old).await.unwrap();
    limit_reasons(&cluster, Some(1024)).await;
    let _reconciler = Reconciler::start(&cluster);
    let served = until_drained(&cluster, "e2e-wordy").await;
    assert_eq!(served.spec.reason, old.spec.reason);
    let patch = async |spec: Value| {
        let patch = Patch::Merge(json!({"spec": spec}));
        cluster.maintenances().patch("e2e-wordy", &PatchParams::default(), &patch).await
    };
    patch(json!({"drain": {"force": false}})).await.expect("other fields can be changed");
    let Err(kube::Error::Api(status)) = patch(json!({"reason": "x".repeat(4999)})).await else {
        panic!("a new reason is limited")
    };
    assert_eq!(status.code, 422, "{status:?}");
    stop(&cluster, "e2e-wordy").await;
}
