//! Claims, volumes and their attachments.

use std::time::Duration;

use serde_json::{Value, json};

use crate::cluster::catalog::resource::{ATTACHMENTS, CLAIMS, PODS, VOLUMES};
use crate::cluster::registry::{DeleteOptions, Part};
use crate::cluster::store::{Key, Object};
use crate::controllers::engine::test_cluster::TestCluster;
use crate::model::{pod, volume};

fn volume(name: &str, annotations: &Value) -> Value {
    json!({"metadata": {"name": name, "annotations": annotations}, "spec": {
        "capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"],
        "csi": {"driver": "disks.example.com", "volumeHandle": name}}})
}

fn claim(name: &str, volume: &str) -> Value {
    json!({"metadata": {"namespace": "ns", "name": name}, "spec": {
        "accessModes": ["ReadWriteOnce"], "volumeName": volume, "resources": {"requests": {"storage": "1Gi"}}}})
}

fn pod(name: &str, claim: &str) -> Value {
    json!({"metadata": {"namespace": "ns", "name": name}, "spec": {"containers": [{"name": "c", "image": "i"}],
        "volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": claim}}]}})
}

fn attachments(test: &TestCluster) -> Vec<Object> {
    test.read(|state| state.list(&ATTACHMENTS, None).collect())
}

/// A cluster with a running pod `p` that uses a volume `pv`, which is attached.
async fn attached(annotations: &Value) -> TestCluster {
    let test = TestCluster::new(1);
    test.create(&CLAIMS, claim("data", "pv"));
    test.create(&VOLUMES, volume("pv", annotations));
    test.create(&PODS, pod("p", "data"));
    test.until("the volume is attached", |state| {
        state.list(&ATTACHMENTS, None).any(|attachment| attachment["status"]["attached"] == true)
    })
    .await;
    test
}

fn delete_pod(test: &TestCluster) {
    test.delete(&PODS, &Key::new("ns", "p"), &DeleteOptions::default());
}

#[tokio::test(start_paused = true)]
async fn a_claim_is_bound_to_its_volume_and_both_are_protected_while_they_are_in_use() {
    let test = attached(&json!({})).await;
    let bound = test.get(&VOLUMES, &Key::cluster("pv")).unwrap();
    let own = test.get(&CLAIMS, &Key::new("ns", "data")).unwrap();
    assert_eq!((&bound["status"]["phase"], &own["status"]["phase"]), (&json!("Bound"), &json!("Bound")));
    assert_eq!(bound["spec"]["claimRef"]["uid"], own["metadata"]["uid"]);
    assert_eq!(own["status"]["capacity"], json!({"storage": "1Gi"}));
    test.delete(&CLAIMS, &Key::new("ns", "data"), &DeleteOptions::default());
    test.pass(Duration::from_secs(5)).await;
    assert!(test.get(&CLAIMS, &Key::new("ns", "data")).is_some(), "the pod uses it");
    delete_pod(&test);
    test.until("the claim is gone", |state| state.list(&CLAIMS, None).next().is_none()).await;
    test.until("the volume is released", |state| {
        state.get(&VOLUMES, &Key::cluster("pv")).is_some_and(|volume| volume["status"]["phase"] == "Released")
    })
    .await;
    test.delete(&VOLUMES, &Key::cluster("pv"), &DeleteOptions::default());
    test.until("the volume is gone", |state| state.list(&VOLUMES, None).next().is_none()).await;
}

#[tokio::test(start_paused = true)]
async fn a_volume_is_attached_while_a_pod_uses_it() {
    let test = attached(&json!({})).await;
    let [attachment] = attachments(&test).try_into().unwrap();
    assert_eq!(attachment["spec"]["nodeName"], "node-01");
    assert_eq!(attachment["metadata"]["finalizers"], json!(["external-attacher/disks-example-com"]));
    delete_pod(&test);
    test.until("the volume is detached", |state| {
        let detached = state.list(&ATTACHMENTS, None).next().is_none();
        assert!(!detached || state.list(&PODS, Some("ns")).next().is_none(), "not before the pod is gone");
        detached
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_volume_that_two_pods_use_stays_attached_until_both_are_gone() {
    let test = attached(&json!({})).await;
    test.create(&PODS, pod("q", "data"));
    test.until("both run", |state| {
        state.list(&PODS, Some("ns")).filter(|pod| pod::is_ready(pod)).count() == 2
    })
    .await;
    delete_pod(&test);
    test.pass(Duration::from_secs(10)).await;
    assert_eq!(attachments(&test).len(), 1);
    test.delete(&PODS, &Key::new("ns", "q"), &DeleteOptions::default());
    test.until("it is detached", |state| state.list(&ATTACHMENTS, None).next().is_none()).await;
}

#[tokio::test(start_paused = true)]
async fn a_volume_of_one_node_is_attached_to_another_once_it_is_detached() {
    let test = TestCluster::new(2);
    test.create(&CLAIMS, claim("data", "pv"));
    test.create(&VOLUMES, volume("pv", &json!({volume::DETACH_DELAY: "20s"})));
    let on = |name: &str, node: &str| {
        let mut pod = pod(name, "data");
        pod["spec"]["nodeName"] = json!(node);
        pod
    };
    test.create(&PODS, on("p", "node-01"));
    test.until("it is attached", |state| state.list(&ATTACHMENTS, None).next().is_some()).await;
    test.create(&PODS, on("q", "node-02"));
    delete_pod(&test);
    test.until("it is attached to the other node", |state| {
        let all: Vec<Object> = state.list(&ATTACHMENTS, None).collect();
        assert!(all.len() <= 1, "never to both");
        all.iter().any(|attachment| attachment["spec"]["nodeName"] == "node-02")
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_driver_takes_its_time_to_detach() {
    let test = attached(&json!({volume::DETACH_DELAY: "20s"})).await;
    delete_pod(&test);
    test.until("it is being detached", |state| {
        state.list(&ATTACHMENTS, None).all(|one| pod::is_terminating(&one))
    })
    .await;
    test.pass(Duration::from_secs(19)).await;
    assert_eq!(attachments(&test).len(), 1);
    test.pass(Duration::from_secs(2)).await;
    assert!(attachments(&test).is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_driver_that_fails_reports_its_error_until_the_annotation_is_removed() {
    let test = attached(&json!({volume::DETACH_ERROR: "busy"})).await;
    delete_pod(&test);
    test.until("the error is reported", |state| {
        state.list(&ATTACHMENTS, None).all(|one| one["status"]["detachError"]["message"] == "busy")
    })
    .await;
    test.pass(Duration::from_secs(600)).await;
    assert_eq!(attachments(&test).len(), 1);
    test.edit(&VOLUMES, &Key::cluster("pv"), Part::Main, |volume| {
        volume["metadata"]["annotations"] = json!({});
    });
    test.until("it is detached", |state| state.list(&ATTACHMENTS, None).next().is_none()).await;
}

#[tokio::test(start_paused = true)]
async fn attachments_that_others_created_are_left_alone() {
    let test = attached(&json!({})).await;
    let foreign = json!({"metadata": {"name": "foreign"}, "spec": {"attacher": "other.example.com",
        "nodeName": "node-01", "source": {"persistentVolumeName": "elsewhere"}}});
    test.create(&ATTACHMENTS, foreign);
    delete_pod(&test);
    test.until("the other is detached", |state| state.list(&ATTACHMENTS, None).count() == 1).await;
    test.pass(Duration::from_secs(60)).await;
    assert_eq!(pod::name(&attachments(&test)[0]), "foreign");
    test.delete(&ATTACHMENTS, &Key::cluster("foreign"), &DeleteOptions::default());
    test.until("it is gone", |state| state.list(&ATTACHMENTS, None).next().is_none()).await;
}
