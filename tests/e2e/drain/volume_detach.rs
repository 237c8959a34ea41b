//! `spec.drain.waitForVolumeDetach`: a node is drained once the volumes of its pods are detached.

use kube::api::ListParams;
use kube_sandbox::controllers::volume::{DETACH_DELAY, DETACH_ERROR, NEVER};
use kube_sandbox::request_log::Entry;
use nm_shared::api::condition::{ConditionType, find, is_true};
use nm_shared::{NodeMaintenanceStatus, Phase};
use nm_tests::cluster::Cluster;
use nm_tests::events::until_event;
use nm_tests::maintenance::{
    patch_drain, start, start_with_drain, stop, until_drained, until_drained_without_errors, until_phase,
    until_status,
};
use nm_tests::programs::plugin;
use nm_tests::reconciler::Reconciler;
use nm_tests::requests::{is_by_reconciler, until_watched};
use nm_tests::volumes::{DRIVER, Volumes, uses};
use nm_tests::workload::Workload;
use serde_json::json;

const WHY: &str = "only a sandbox has a driver that detaches volumes on demand, and logs requests";

/// The names of the volumes that the maintenance waits for.
fn attached(status: &NodeMaintenanceStatus) -> Vec<&str> {
    let volumes = status.attached_volumes.iter().flatten();
    volumes.filter_map(|volume| volume.persistent_volume.as_deref()).collect()
}

fn reason(status: &NodeMaintenanceStatus, type_: ConditionType) -> (&str, &str) {
    let condition = find(&status.conditions, type_).unwrap();
    (&condition.status, &condition.reason)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_is_drained_once_the_attachments_of_its_volumes_are_gone() {
    let cluster = Cluster::start(2).await;
    cluster.grant("volume_detach").await;
    let node = &cluster.nodes().await[0];
    let workload = Workload::new(&cluster, "detach").await;
    let volumes = Volumes::new(&cluster).await;
    volumes.create(&workload, "e2e-detach", json!({})).await;
    volumes.attach("e2e-detach", "e2e-detach", node).await;
    workload.pod_on(node, "web", json!({})).await;
    let _reconciler = Reconciler::start(&cluster);
    start_with_drain(&cluster, "e2e-detach", node, json!({"waitForVolumeDetach": {}})).await;
    let waits = |status: &NodeMaintenanceStatus| attached(status) == ["e2e-detach"];
    let status = until_status(&cluster, "e2e-detach", "it waits for the volume", waits).await;
    assert_eq!((status.phase, status.drain_progress), (Some(Phase::Running), 100));
    assert_eq!(reason(&status, ConditionType::Drained), ("False", "DetachingVolumes"));
    assert_eq!(reason(&status, ConditionType::VolumesDetached), ("False", "DetachingVolumes"));
    let named = |status: &NodeMaintenanceStatus| {
        status.attached_volumes.iter().flatten().any(|volume| volume.claim.is_some())
    };
    let status = until_status(&cluster, "e2e-detach", "the claim is known", named).await;
    let volume = &status.attached_volumes.as_ref().unwrap()[0];
    assert_eq!((volume.attachment.as_str(), volume.driver.as_str()), ("e2e-detach", DRIVER));
    let claim = format!("{}/e2e-detach", workload.namespace());
    assert_eq!((volume.claim.as_ref().unwrap().to_string(), &volume.error), (claim.clone(), &None));
    let explained = plugin(&cluster, &["explain", node]).await;
    assert_eq!(explained.code, Some(0), "a driver that takes its time is not stuck: {explained:?}");

    volumes.fail_to_detach("e2e-detach", "the disk is busy").await;
    let failed = |status: &NodeMaintenanceStatus| {
        status.attached_volumes.iter().flatten().any(|volume| volume.error.is_some())
    };
    until_status(&cluster, "e2e-detach", "the error is reported", failed).await;
    let explained = plugin(&cluster, &["explain", node]).await;
    assert_eq!(explained.code, Some(3), "{explained:?}");
    let line = format!("Volume e2e-detach (claim {claim}) of {DRIVER} cannot be detached: the disk is busy.");
    assert!(explained.stdout.contains(&line), "{explained:?}");
    assert!(explained.stdout.contains("describe volumeattachment e2e-detach"), "{explained:?}");
    let shown = plugin(&cluster, &["status", node]).await.ok();
    assert!(
        shown.stderr.contains(&format!("attached e2e-detach (claim {claim}) by {DRIVER} since ")),
        "{shown:?}"
    );
    assert!(shown.stderr.contains(": the disk is busy"), "{shown:?}");
    volumes.detach("e2e-detach").await;
    until_drained_without_errors(&cluster, "e2e-detach").await;
    stop(&cluster, "e2e-detach").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn after_the_timeout_it_succeeds_with_a_warning_or_fails_as_the_spec_says() {
    let cluster = Cluster::start(2).await;
    cluster.grant("volume_detach").await;
    let node = &cluster.nodes().await[0];
    let workload = Workload::new(&cluster, "overdue").await;
    let volumes = Volumes::new(&cluster).await;
    volumes.create(&workload, "e2e-overdue", json!({})).await;
    volumes.attach("e2e-overdue", "e2e-overdue", node).await;
    let _reconciler = Reconciler::start(&cluster);
    let drain = json!({"waitForVolumeDetach": {"timeoutSeconds": 1, "onTimeout": "Fail"}});
    start_with_drain(&cluster, "e2e-overdue", node, drain).await;
    let status = until_phase(&cluster, "e2e-overdue", Phase::Failed).await;
    assert_eq!(reason(&status, ConditionType::Drained), ("False", "DetachTimedOut"));
    let error = &status.last_error;
    assert!(
        error.starts_with("1 volume is still attached 1 s after the last pod was gone: e2e-overdue"),
        "{error}"
    );

    patch_drain(&cluster, "e2e-overdue", json!({"waitForVolumeDetach": {"onTimeout": "Succeed"}})).await;
    let drained = until_drained(&cluster, "e2e-overdue").await;
    let status = drained.status.as_ref().unwrap();
    assert_eq!(reason(status, ConditionType::Drained), ("True", "DetachTimedOut"));
    assert_eq!(reason(status, ConditionType::Degraded), ("True", "DetachTimedOut"));
    assert_eq!((status.last_error.as_str(), attached(status)), ("", vec!["e2e-overdue"]));
    until_event(&cluster, &drained, "DetachTimedOut").await;
    let waited = plugin(&cluster, &["status", node]).await.ok();
    assert!(waited.stderr.contains("attached e2e-overdue"), "{waited:?}");

    volumes.detach("e2e-overdue").await;
    let is_fine = |status: &NodeMaintenanceStatus| !is_true(&status.conditions, ConditionType::Degraded);
    let status = until_status(&cluster, "e2e-overdue", "the warning is gone", is_fine).await;
    assert_eq!(reason(&status, ConditionType::VolumesDetached), ("True", "AsExpected"));
    stop(&cluster, "e2e-overdue").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn volumes_of_pods_that_stay_are_not_waited_for() {
    let cluster = Cluster::start(2).await;
    cluster.grant("volume_detach").await;
    let node = &cluster.nodes().await[0];
    let workload = Workload::new(&cluster, "staying").await;
    let volumes = Volumes::new(&cluster).await;
    for name in ["e2e-moves", "e2e-stays"] {
        volumes.create(&workload, name, json!({})).await;
        volumes.attach(name, name, node).await;
    }
    // No driver serves its volume, so on a real cluster the pod does not start.
    workload.create_pod(node, "stays", uses("e2e-stays")).await;
    let _reconciler = Reconciler::start(&cluster);
    let selector = json!({"matchExpressions": [{"key": "app", "operator": "NotIn", "values": ["stays"]}]});
    let drain = json!({"podSelector": selector, "waitForVolumeDetach": {}});
    start_with_drain(&cluster, "e2e-staying", node, drain).await;
    let waits = |status: &NodeMaintenanceStatus| attached(status) == ["e2e-moves"];
    until_status(&cluster, "e2e-staying", "it waits for the other volume", waits).await;
    volumes.detach("e2e-moves").await;
    until_drained_without_errors(&cluster, "e2e-staying").await;
    assert!(volumes.attachments().get_opt("e2e-stays").await.unwrap().is_some());
    stop(&cluster, "e2e-staying").await;
    volumes.detach("e2e-stays").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn missing_permission_is_reported_and_the_drain_waits_until_it_is_granted() {
    let cluster = Cluster::start(2).await;
    let node = &cluster.nodes().await[0];
    let workload = Workload::new(&cluster, "unread").await;
    workload.pod_on(node, "web", json!({})).await;
    let _reconciler = Reconciler::start(&cluster);
    start_with_drain(&cluster, "e2e-unread", node, json!({"waitForVolumeDetach": {}})).await;
    let waits = |status: &NodeMaintenanceStatus| {
        status.forbidden.is_some() && find(&status.conditions, ConditionType::VolumesDetached).is_some()
    };
    let status = until_status(&cluster, "e2e-unread", "the missing permission is reported", waits).await;
    assert_eq!((status.phase, status.drain_progress), (Some(Phase::Running), 100));
    assert_eq!(status.forbidden.as_ref().unwrap().resource, "volumeattachments");
    assert_eq!(reason(&status, ConditionType::Degraded), ("True", "MissingAccess"));
    let message = &find(&status.conditions, ConditionType::Degraded).unwrap().message;
    for part in ["\"volumeattachments\"", "--grant volume-detach", "components/volume_detach"] {
        assert!(message.contains(part), "{part} in {message}");
    }
    let explained = plugin(&cluster, &["explain", node]).await;
    assert!(explained.stdout.contains("kubectl nm install --grant volume-detach"), "{explained:?}");
    cluster.grant("volume_detach").await;
    until_drained_without_errors(&cluster, "e2e-unread").await;
    stop(&cluster, "e2e-unread").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_wait_survives_a_crash_and_ends_when_the_driver_has_detached_everything() {
    let Some(cluster) = Cluster::sandbox_or_skip(2, WHY).await else { return };
    cluster.grant("volume_detach").await;
    let node = &cluster.nodes().await[0];
    let workload = Workload::new(&cluster, "driver").await;
    let volumes = Volumes::new(&cluster).await;
    let slow = json!({DETACH_DELAY: NEVER});
    let broken = json!({DETACH_ERROR: "the disk is busy"});
    for (name, annotations) in [("e2e-fast", json!({})), ("e2e-slow", slow), ("e2e-broken", broken)] {
        volumes.create(&workload, name, annotations).await;
        workload.pod_on(node, name, uses(name)).await;
    }
    let reconciler = Reconciler::start(&cluster);
    let _ = plugin(&cluster, &["start", node, "--wait-for-volume-detach=10m"]).await.ok();
    let waits = |status: &NodeMaintenanceStatus| {
        attached(status) == ["e2e-broken", "e2e-slow"]
            && status.attached_volumes.iter().flatten().all(|volume| volume.claim.is_some())
            && status.attached_volumes.as_ref().unwrap()[0].error.is_some()
    };
    let before = until_status(&cluster, node, "two volumes remain", waits).await;
    reconciler.crash().await;
    let _reconciler = Reconciler::start(&cluster);
    volumes.annotate("e2e-broken", json!({DETACH_ERROR: null})).await;
    let waits = |status: &NodeMaintenanceStatus| attached(status) == ["e2e-slow"];
    let after = until_status(&cluster, node, "one volume remains", waits).await;
    let since = |status: &NodeMaintenanceStatus| status.attached_volumes.as_ref().unwrap()[0].since.clone();
    assert_eq!(since(&before), since(&after), "the wait does not begin again");
    volumes.annotate("e2e-slow", json!({DETACH_DELAY: null})).await;
    until_drained_without_errors(&cluster, node).await;
    assert!(volumes.attachments().list(&ListParams::default()).await.unwrap().items.is_empty());
    stop(&cluster, node).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn attachments_are_watched_only_while_a_maintenance_waits_for_volumes() {
    let Some(cluster) = Cluster::sandbox_or_skip(2, WHY).await else { return };
    cluster.grant("volume_detach").await;
    let nodes = cluster.nodes().await;
    let _reconciler = Reconciler::start(&cluster);
    start(&cluster, "e2e-plain", &nodes[0]).await;
    until_drained(&cluster, "e2e-plain").await;
    let sandbox = cluster.sandbox().unwrap();
    let is_about_volumes = |entry: &Entry| is_by_reconciler(entry) && entry.resource == "volumeattachments";
    assert_eq!(sandbox.requests().count(is_about_volumes), 0);
    start_with_drain(&cluster, "e2e-waits", &nodes[1], json!({"waitForVolumeDetach": {}})).await;
    until_watched(sandbox, "volumeattachments").await;
    until_drained(&cluster, "e2e-waits").await;
    stop(&cluster, "e2e-waits").await;
    let watched = sandbox.requests().count(is_about_volumes);
    stop(&cluster, "e2e-plain").await;
    assert_eq!(sandbox.requests().count(is_about_volumes), watched);
}
