//! Time on a node, and nodes that do not report.

use std::time::Duration;

use k8s_openapi::api::core::v1::{Node, Pod};
use kube::Api;
use kube::api::{DeleteParams, EvictParams};
use kube_sandbox::controllers::kubelet::annotations;
use kube_sandbox::workload::{App, Kind};
use tokio::time::Instant;

use super::{cluster, nodes, run, status, until};

fn condition<'a>(node: Option<&'a Node>, kind: &str) -> Option<&'a str> {
    let conditions = node?.status.as_ref()?.conditions.as_deref()?;
    conditions.iter().find(|condition| condition.type_ == kind).map(|condition| condition.status.as_str())
}

fn pod_is_ready(pod: Option<&Pod>) -> bool {
    let conditions = pod.and_then(|pod| pod.status.as_ref()?.conditions.as_deref()).unwrap_or_default();
    conditions.iter().any(|condition| condition.type_ == "Ready" && condition.status == "True")
}

#[tokio::test(start_paused = true)]
async fn a_pod_with_a_grace_of_thirty_seconds_ends_after_exactly_thirty_seconds() {
    let (sandbox, client) = cluster(1).await;
    let pods: Api<Pod> = Api::namespaced(client, "default");
    let deaf =
        App::new(Kind::Pod, "default", "deaf").grace(30).annotation(annotations::IGNORE_TERMINATION, "true");
    run(&sandbox, &deaf);
    until(&pods, "deaf", pod_is_ready).await;
    let began = Instant::now();
    pods.evict("deaf", &EvictParams::default()).await.unwrap();
    assert!(pods.get("deaf").await.unwrap().metadata.deletion_timestamp.is_some());
    until(&pods, "deaf", |pod| pod.is_none()).await;
    assert_eq!(began.elapsed(), Duration::from_secs(30));
}

#[tokio::test(start_paused = true)]
async fn pods_of_a_silent_node_never_end_until_it_speaks_again() {
    let (sandbox, client) = cluster(1).await;
    let pods: Api<Pod> = Api::namespaced(client.clone(), "default");
    run(&sandbox, &App::new(Kind::Pod, "default", "web"));
    until(&pods, "web", pod_is_ready).await;
    sandbox.faults().silence_node("node-01").unwrap();
    assert_eq!(condition(Some(&nodes(&client).get("node-01").await.unwrap()), "Ready"), Some("Unknown"));
    assert!(!pod_is_ready(pods.get_opt("web").await.unwrap().as_ref()));
    let tainted = |node: Option<&Node>| {
        let taints = node.and_then(|node| node.spec.as_ref()?.taints.as_deref()).unwrap_or_default();
        taints.iter().any(|taint| taint.key == "node.kubernetes.io/unreachable")
    };
    until(&nodes(&client), "node-01", tainted).await;
    pods.delete("web", &DeleteParams::default()).await.unwrap();
    tokio::time::sleep(Duration::from_secs(3_600)).await;
    assert!(pods.get("web").await.unwrap().metadata.deletion_timestamp.is_some());
    sandbox.faults().revive_node("node-01").unwrap();
    until(&pods, "web", |pod| pod.is_none()).await;
    let well = |node: Option<&Node>| condition(node, "Ready") == Some("True") && !tainted(node);
    until(&nodes(&client), "node-01", well).await;
}

#[tokio::test(start_paused = true)]
async fn a_forced_delete_removes_a_running_pod_at_once() {
    let (sandbox, client) = cluster(1).await;
    let pods: Api<Pod> = Api::namespaced(client, "default");
    let app =
        App::new(Kind::StatefulSet, "default", "db").annotation(annotations::IGNORE_TERMINATION, "true");
    run(&sandbox, &app.grace(3_600));
    let mut last = until(&pods, "db-0", pod_is_ready).await.unwrap();
    // The second time its end has begun, and its node cannot even be asked.
    for silent in [false, true] {
        if silent {
            pods.delete("db-0", &DeleteParams::default()).await.unwrap();
            assert!(pods.get("db-0").await.unwrap().metadata.deletion_timestamp.is_some());
            sandbox.faults().silence_node("node-01").unwrap();
        }
        let began = Instant::now();
        let deleted = pods.delete("db-0", &DeleteParams::default().grace_period(0)).await.unwrap();
        let deleted = deleted.left().expect("the pod as it was at its end");
        assert_eq!(deleted.metadata.uid, last.metadata.uid);
        assert_eq!(deleted.metadata.deletion_grace_period_seconds, Some(0));
        let another = |pod: Option<&Pod>| pod.is_some_and(|pod| pod.metadata.uid != last.metadata.uid);
        until(&pods, "db-0", another).await;
        assert_eq!(began.elapsed(), Duration::ZERO);
        if !silent {
            let is_new = |pod: Option<&Pod>| another(pod) && pod_is_ready(pod);
            last = until(&pods, "db-0", is_new).await.unwrap();
        }
    }
}

#[tokio::test(start_paused = true)]
async fn pods_of_a_node_that_speaks_again_are_ready_again() {
    let (sandbox, client) = cluster(1).await;
    let pods: Api<Pod> = Api::namespaced(client, "default");
    run(&sandbox, &App::new(Kind::Pod, "default", "web"));
    until(&pods, "web", pod_is_ready).await;
    sandbox.faults().silence_node("node-01").unwrap();
    until(&pods, "web", |pod| !pod_is_ready(pod)).await;
    sandbox.faults().revive_node("node-01").unwrap();
    until(&pods, "web", pod_is_ready).await;
}

#[tokio::test(start_paused = true)]
async fn a_node_that_is_not_there_cannot_be_silenced() {
    let (sandbox, client) = cluster(1).await;
    assert_eq!(sandbox.faults().silence_node("node-99").unwrap_err().code, 404);
    assert_eq!(status(nodes(&client).get("node-99").await).code, 404);
}

#[tokio::test(start_paused = true)]
async fn a_node_reboots_on_demand_and_one_that_never_returns_can_be_revived() {
    let (sandbox, client) = cluster(1).await;
    let boot_id = |node: Option<&Node>| -> Option<String> {
        Some(node?.status.as_ref()?.node_info.as_ref()?.boot_id.clone())
    };
    let first = boot_id(Some(&nodes(&client).get("node-01").await.unwrap()));
    let began = Instant::now();
    sandbox.faults().reboot_node("node-01", Some(Duration::from_secs(30))).unwrap();
    until(&nodes(&client), "node-01", |node| condition(node, "Ready") == Some("Unknown")).await;
    let again = |node: Option<&Node>, last: &Option<String>| {
        condition(node, "Ready") == Some("True") && boot_id(node) != *last
    };
    let node = until(&nodes(&client), "node-01", |node| again(node, &first)).await;
    assert_eq!(began.elapsed().as_secs(), 30);
    let second = boot_id(node.as_ref());
    sandbox.faults().reboot_node("node-01", None).unwrap();
    tokio::time::sleep(Duration::from_secs(3_600)).await;
    assert_eq!(condition(Some(&nodes(&client).get("node-01").await.unwrap()), "Ready"), Some("Unknown"));
    sandbox.faults().revive_node("node-01").unwrap();
    until(&nodes(&client), "node-01", |node| again(node, &second)).await;
    assert_eq!(sandbox.faults().reboot_node("node-99", None).unwrap_err().code, 404);
}
