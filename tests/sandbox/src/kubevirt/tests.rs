//! Evacuations from the first eviction to the machine's new node, on a paused clock.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::Request;
use http_body_util::BodyExt;
use serde_json::{Value, json};

use crate::cluster::catalog::resource::{BUDGETS, PODS};
use crate::cluster::registry::DeleteOptions;
use crate::cluster::store::{Key, Object};
use crate::controllers::engine::test_cluster::TestCluster;
use crate::http::Api;
use crate::kubevirt::{MIGRATIONS, NAMESPACE, SERVICE, VMIS, Vmi, hotplug_pod, install, withdraw_cancel};
use crate::model::pod;

const MIGRATION: Duration = Duration::from_secs(5);

struct Virt {
    test: TestCluster,
    api: Arc<Api>,
}

impl Virt {
    /// A cluster of three nodes with one machine that runs.
    async fn with(vmi: Vmi) -> Self {
        let mut test = TestCluster::new(3);
        install(&test.cluster.clone(), &mut test.controllers, MIGRATION).unwrap();
        let api = Api::new(test.cluster.clone());
        vmi.create(&test.cluster).unwrap();
        let virt = Self { test, api };
        virt.until("it runs", |vmi| vmi["status"]["phase"] == "Running").await;
        virt
    }

    fn vmi(&self) -> Object {
        self.test.get(&VMIS, &Key::new("ns", "vm")).unwrap()
    }

    async fn until(&self, what: &str, holds: impl Fn(&Value) -> bool) {
        let key = Key::new("ns", "vm");
        self.test.until(what, |state| holds(&state.get(&VMIS, &key).unwrap())).await;
    }

    fn pods(&self) -> Vec<Object> {
        self.test.read(|state| state.list(&PODS, Some("ns")).collect())
    }

    async fn post(&self, method: &str, path: &str, body: &Value) -> (u16, String) {
        let request = Request::builder()
            .method(method)
            .uri(path)
            .header("authorization", format!("Bearer {}", self.api.admin_token()))
            .header("content-type", "application/json")
            .body(Bytes::from(body.to_string()));
        let (head, body) = self.api.answer(request.unwrap()).await.into_parts();
        let body = body.collect().await.unwrap().to_bytes();
        let body: Value = serde_json::from_slice(&body).unwrap_or_default();
        (head.status.as_u16(), body["message"].as_str().unwrap_or_default().to_owned())
    }

    /// Calls the evacuation off, and returns the code of the answer, which has no body if that is done.
    async fn cancel(&self, options: &Value) -> u16 {
        let path =
            "/apis/subresources.kubevirt.io/v1/namespaces/ns/virtualmachineinstances/vm/evacuate/cancel";
        self.post("PUT", path, options).await.0
    }

    async fn evict(&self, pod: &Value, query: &str) -> (u16, String) {
        let name = pod::name(pod);
        let path = format!("/api/v1/namespaces/ns/pods/{name}/eviction{query}");
        self.post("POST", &path, &json!({"metadata": {"name": name, "namespace": "ns"}})).await
    }
}

/// As KubeVirt refuses.
fn refused(message: &str) -> (u16, String) {
    refused_by("virt-launcher-eviction-interceptor.kubevirt.io", message)
}

fn refused_by(webhook: &str, message: &str) -> (u16, String) {
    (429, format!("admission webhook \"{webhook}\" denied the request: {message}"))
}

#[tokio::test(start_paused = true)]
async fn an_evicted_machine_is_migrated_and_its_pod_then_ends() {
    let virt = Virt::with(Vmi::new("ns", "vm")).await;
    let source = virt.pods().remove(0);
    let node = pod::node(&source).unwrap().to_owned();
    assert_eq!(virt.vmi()["status"]["nodeName"], node);
    assert_eq!(pod::annotation(&source, "kubevirt.io/domain"), Some("vm"));

    let triggered = "Eviction triggered evacuation of VMI \"ns/vm\"";
    assert_eq!(virt.evict(&source, "?dryRun=All").await, refused(triggered));
    assert!(virt.vmi()["status"]["evacuationNodeName"].is_null());
    assert_eq!(virt.evict(&source, "").await, refused(triggered));
    assert_eq!(virt.vmi()["status"]["evacuationNodeName"], node);
    assert_eq!(virt.evict(&source, "").await, refused(&format!("Evacuation in progress: {triggered}")));

    virt.until("it migrates", |vmi| vmi["status"]["migrationState"].is_object()).await;
    let state = virt.vmi()["status"]["migrationState"].clone();
    assert_eq!((&state["sourceNode"], &state["completed"]), (&json!(node), &json!(false)));
    assert_eq!(state["sourcePod"], pod::name(&source));
    assert!(state["targetNode"] != node && state["targetPod"].is_string(), "{state}");
    let target = virt.test.get(&PODS, &Key::new("ns", state["targetPod"].as_str().unwrap())).unwrap();
    assert!(virt.evict(&target, "").await.1.contains("Evacuation in progress"));

    virt.until("it is elsewhere", |vmi| vmi["status"]["nodeName"] == state["targetNode"]).await;
    let vmi = virt.vmi();
    assert!(vmi["status"]["evacuationNodeName"].is_null());
    assert_eq!(vmi["status"]["migrationState"]["completed"], true);
    assert!(vmi["status"]["migrationState"]["endTimestamp"].is_string());
    let ended = virt.test.get(&PODS, &Key::of(&source)).unwrap();
    assert_eq!(pod::phase(&ended), "Succeeded");
    let jobs: Vec<Object> = virt.test.read(|state| state.list(&MIGRATIONS, None).collect());
    assert_eq!(jobs.iter().map(|job| job["status"]["phase"].clone()).collect::<Vec<_>>(), ["Succeeded"]);
    // What has ended may go.
    assert_eq!(virt.evict(&ended, "").await.0, 201);
}

#[tokio::test(start_paused = true)]
async fn a_vm_that_cannot_migrate_follows_its_eviction_strategy() {
    let stays = "VMI vm is configured with an eviction strategy but is not live-migratable";
    for (strategy, expected) in [
        ("LiveMigrate", refused(stays)),
        ("LiveMigrateIfPossible", (201, String::new())),
        ("None", (201, String::new())),
    ] {
        let virt = Virt::with(Vmi::new("ns", "vm").strategy(strategy).not_migratable()).await;
        let launcher = virt.pods().remove(0);
        assert_eq!(virt.evict(&launcher, "").await, expected, "{strategy}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_plugged_disk_stays_with_its_machine() {
    let virt = Virt::with(Vmi::new("ns", "vm")).await;
    let launcher = virt.pods().remove(0);
    let disk = virt.test.create(&PODS, hotplug_pod(&launcher));
    let name = pod::name(&disk);
    let message = format!("cannot evict hotplug pod: {name} associated with running vmi: vm in namespace ns");
    assert_eq!(
        virt.evict(&disk, "").await,
        refused_by("hotplug-pod-eviction-interceptor.kubevirt.io", &message)
    );
}

#[tokio::test(start_paused = true)]
async fn an_evacuation_that_is_called_off_does_not_begin_anew() {
    let virt = Virt::with(Vmi::new("ns", "vm")).await;
    let source = virt.pods().remove(0);
    let node = pod::node(&source).unwrap().to_owned();
    assert_eq!(virt.cancel(&json!({"evacuationNodeName": node})).await, 200, "there is nothing to call off");
    virt.evict(&source, "").await;
    virt.until("it migrates", |vmi| vmi["status"]["migrationState"].is_object()).await;
    assert_eq!(virt.cancel(&json!({"evacuationNodeName": "elsewhere"})).await, 500);
    assert_eq!(virt.cancel(&json!({})).await, 500);
    assert_eq!(virt.vmi()["status"]["evacuationNodeName"], node);
    assert_eq!(virt.cancel(&json!({"evacuationNodeName": node})).await, 200);
    assert!(virt.vmi()["status"]["evacuationNodeName"].is_null());
    let target = virt.vmi()["status"]["migrationState"]["targetPod"].as_str().unwrap().to_owned();
    virt.test.delete(&PODS, &Key::new("ns", target.as_str()), &DeleteOptions::default());
    virt.until("it fails", |vmi| vmi["status"]["migrationState"]["failed"] == true).await;
    virt.test.pass(MIGRATION * 2).await;
    assert_eq!(virt.vmi()["status"]["nodeName"], *pod::node(&source).unwrap());
    let active: Vec<Object> = virt.pods().into_iter().filter(|pod| pod::is_active(pod)).collect();
    assert_eq!(active.iter().map(|pod| pod::name(pod)).collect::<Vec<_>>(), [pod::name(&source)]);
}

#[tokio::test(start_paused = true)]
async fn discovery_tells_whether_an_evacuation_can_be_called_off() {
    let virt = Virt::with(Vmi::new("ns", "vm")).await;
    let listed = || {
        crate::cluster::catalog::discovery::version(
            &virt.test.cluster.catalog,
            "subresources.kubevirt.io",
            "v1",
        )
    };
    let groups = crate::cluster::catalog::discovery::groups(&virt.test.cluster.catalog).to_string();
    assert!(groups.contains("subresources.kubevirt.io/v1"), "{groups}");
    let resources = listed().unwrap()["resources"].clone();
    assert_eq!(resources[0]["name"], "virtualmachineinstances/evacuate/cancel");
    assert_eq!(virt.cancel(&json!({})).await, 200);
    withdraw_cancel(&virt.test.cluster);
    assert_eq!(listed().unwrap()["resources"], json!([]));
    assert_eq!(virt.cancel(&json!({})).await, 404);
}

#[tokio::test(start_paused = true)]
async fn while_the_webhooks_are_down_nothing_of_a_machine_is_evicted() {
    let virt = Virt::with(Vmi::new("ns", "vm")).await;
    let launcher = virt.pods().remove(0);
    virt.test.cluster.admission.services.withdraw(NAMESPACE, SERVICE);
    let (code, message) = virt.evict(&launcher, "").await;
    assert_eq!(code, 500);
    assert!(
        message.contains("failed calling webhook \"virt-launcher-eviction-interceptor.kubevirt.io\""),
        "{message}"
    );
    assert!(virt.vmi()["status"]["evacuationNodeName"].is_null());
    assert_eq!(virt.test.read(|state| state.list(&BUDGETS, None).count()), 0, "KubeVirt creates no budgets");
}
