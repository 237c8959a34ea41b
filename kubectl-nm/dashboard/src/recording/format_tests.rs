use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::api::events::v1::Event;
use nm_core::client::watch_stream::WatchChange;
use nm_core::maintenance::creator::creator;
use nm_shared::cluster::pod::DrainPod;
use serde_json::{Value, json};

use super::format::{Header, RECORDING_VERSION, RecordedLine, RecordedMessage};
use crate::message::{CommandError, Message};
use crate::objects::listed_node::ListedNode;
use crate::objects::node_pod::NodePod;
use crate::objects::replacement_pod::WatchedReplica;
use crate::objects::replacements::ReplacementChange;
use crate::objects::replacements::ReplacementScope;
use crate::objects::watch_state::{PodCountError, WatchKind, WatchState};
use crate::objects::workload::{ReadyPods, Workload, WorkloadKind};
use crate::tests::scenes::{events, maintenances, node_messages, pods, whole_nodes};

fn at() -> Timestamp {
    "2026-01-02T03:10:00.25Z".parse().unwrap()
}

/// A message as it is written.
fn written(message: &Message) -> Option<String> {
    let message = RecordedMessage::of(message)?;
    Some(serde_json::to_string(&RecordedLine { time: at(), message }).unwrap())
}

/// A message after it was written and read.
fn read(message: &Message) -> Message {
    let line: RecordedLine = serde_json::from_str(&written(message).unwrap()).unwrap();
    assert_eq!(line.time, at());
    line.message.into_message().unwrap()
}

#[test]
fn what_is_read_is_what_was_received() {
    let node = || String::from("worker-07");
    let replica = json!({"metadata": {"name": "cart-0", "namespace": "shop", "uid": "u",
        "creationTimestamp": "2026-01-02T03:04:05Z", "ownerReferences": [
        {"apiVersion": "apps/v1", "kind": "StatefulSet", "name": "cart", "uid": "s", "controller": true}]},
        "spec": {"nodeName": "n2"}, "status": {"phase": "Pending", "conditions": []}});
    let replica = serde_json::from_value::<WatchedReplica>(replica).unwrap().into_replica().unwrap();
    let scope = |kind| ReplacementScope { namespace: String::from("shop"), kind };
    let workload = Workload { name: String::from("cart"), readiness: ReadyPods { ready: 1, wanted: 3 } };
    let watch = |state| Message::Watch { kind: WatchKind::Pods, node: Some(node()), state };
    let messages = [
        Message::Maintenances(WatchChange::Listed(maintenances().into_iter().map(Arc::new).collect())),
        Message::Maintenances(WatchChange::Deleted(Arc::new(maintenances().remove(0)))),
        Message::Nodes(WatchChange::Listed(whole_nodes())),
        Message::Pods { node: node(), change: WatchChange::Listed(pods()) },
        Message::Pods { node: node(), change: WatchChange::Applied(pods().remove(3)) },
        Message::Events { node: node(), change: WatchChange::Listed(events()) },
        Message::Replacements {
            node: node(),
            scope: scope(None),
            change: ReplacementChange::Replicas(WatchChange::Applied(Arc::new(replica))),
        },
        Message::Replacements {
            node: node(),
            scope: scope(Some(WorkloadKind::StatefulSet)),
            change: ReplacementChange::Workloads(
                WorkloadKind::StatefulSet,
                WatchChange::Listed(vec![Arc::new(workload)]),
            ),
        },
        Message::Replacements {
            node: node(),
            scope: scope(Some(WorkloadKind::Deployment)),
            change: ReplacementChange::State(WatchState::Live),
        },
        watch(WatchState::Live),
        watch(WatchState::Connecting),
        Message::PodCounts { counts: vec![(node(), 5)], error: Some(PodCountError::Forbidden) },
        Message::NodeClosed(node()),
    ];
    for message in messages {
        assert_eq!(format!("{:?}", read(&message)), format!("{message:?}"));
    }
}

#[test]
fn the_program_that_created_a_maintenance_is_recorded_and_nothing_else_about_its_writers() {
    let mut object = serde_json::to_value(maintenances().remove(0)).unwrap();
    object["metadata"]["managedFields"] = json!([
        {"manager": "s3cr3t", "operation": "Update", "fieldsV1": {"f:spec": {"f:reason": {}}}},
        {"manager": "argocd-controller", "operation": "Apply", "fieldsV1": {"f:spec": {"f:nodeName": {}, "f:s3cr3t": {}}}},
    ]);
    let message =
        Message::Maintenances(WatchChange::Applied(Arc::new(serde_json::from_value(object).unwrap())));
    let text = written(&message).unwrap();
    assert!(text.contains("\"managedFields\":[{\"manager\":\"argocd-controller\"}]"), "{text}");
    assert!(!text.contains("s3cr3t"), "{text}");
    let Message::Maintenances(WatchChange::Applied(object)) = read(&message) else { panic!("{text}") };
    assert_eq!(creator(&object).as_deref(), Some("argocd-controller"));
}

#[test]
fn every_fact_about_a_pod_that_decisions_read_is_recorded() {
    let hosts = |path: &str| json!([{"name": "r", "hostPath": {"path": path}}]);
    for (metadata, spec, status) in [
        (json!({}), json!({}), json!({})),
        (
            json!({"labels": {"a": "b"}, "finalizers": ["f"]}),
            json!({"nodeName": "n", "priority": -5}),
            json!({"phase": "Failed"}),
        ),
        (
            json!({"annotations": {"kubernetes.io/config.mirror": "x"}, "deletionTimestamp": "2026-01-02T03:04:05Z",
                "deletionGracePeriodSeconds": 30}),
            json!({"volumes": [{"name": "a", "emptyDir": {}}, {"name": "b", "persistentVolumeClaim": {"claimName": "c"}},
                {"name": "e", "ephemeral": {}}]}),
            json!({"phase": "Pending", "conditions": [{"type": "Ready", "status": "Unknown"}]}),
        ),
        (
            json!({}),
            json!({"volumes": [{"name": "c", "csi": {"driver": "d"}}]}),
            json!({"conditions": [{"type": "Ready", "status": "True"}]}),
        ),
        (
            json!({}),
            json!({"volumes": hosts("/var/lib/kubelet/plugins_registry/")}),
            json!({"phase": "Running"}),
        ),
        (
            json!({}),
            json!({"tolerations": [{"operator": "Exists"}, {"key": "k", "effect": "NoSchedule"}]}),
            json!({}),
        ),
    ] {
        let mut pod = json!({"metadata": {"name": "p", "namespace": "n", "uid": "u", "resourceVersion": "5"},
            "spec": spec, "status": status});
        pod["metadata"].as_object_mut().unwrap().extend(metadata.as_object().unwrap().clone());
        let pod: DrainPod = serde_json::from_value(pod).unwrap();
        let change = WatchChange::Applied(Arc::new(NodePod::from(pod.clone())));
        let message = Message::Pods { node: String::from("n"), change };
        let Message::Pods { change: WatchChange::Applied(read), .. } = read(&message) else { panic!() };
        // The value of the annotation does not matter.
        let mut read = read.pod.clone();
        if read.domain.is_some() {
            read.domain.clone_from(&pod.domain);
        }
        assert_eq!(read, pod);
    }
}

#[test]
fn a_lost_connection_is_recorded_without_the_words_of_the_error() {
    let state = WatchState::Lost { since: at(), error: String::from("SECRET") };
    let message = Message::Watch { kind: WatchKind::Maintenances, node: None, state };
    let Message::Watch { state: WatchState::Lost { since, error }, .. } = read(&message) else { panic!() };
    assert_eq!((since, error.contains("SECRET")), (at(), false));
}

#[test]
fn secrets_in_whatever_place_are_not_recorded() {
    let metadata = |more: Value| {
        let mut metadata = json!({"name": "a", "namespace": "n", "uid": "u", "managedFields": [{"manager": "SECRET"}],
            "annotations": {"kubectl.kubernetes.io/last-applied-configuration": "{\"env\": \"SECRET\"}", "vault": "SECRET"}});
        metadata.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        metadata
    };
    let owner = json!([{"apiVersion": "apps/v1", "kind": "StatefulSet", "name": "cart", "uid": "s", "controller": true}]);
    let container = json!({"name": "main", "image": "cart:1", "command": ["SECRET"], "args": ["SECRET"],
        "env": [{"name": "A", "value": "SECRET"}], "envFrom": [{"secretRef": {"name": "SECRET"}}],
        "livenessProbe": {"httpGet": {"httpHeaders": [{"name": "a", "value": "SECRET"}]}}});
    let waiting = json!({"waiting": {"reason": "CrashLoopBackOff", "message": "SECRET"}});
    let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": metadata(json!({"ownerReferences": owner})),
        "spec": {"nodeName": "n1", "containers": [container], "initContainers": [container],
            "volumes": [{"name": "SECRET", "secret": {"secretName": "SECRET"}},
                {"name": "h", "hostPath": {"path": "/SECRET/plugins_registry"}},
                {"name": "c", "csi": {"driver": "d", "volumeAttributes": {"token": "SECRET"}}}]},
        "status": {"phase": "Pending", "podIP": "SECRET", "message": "SECRET", "containerStatuses": [
            {"name": "main", "ready": false, "state": waiting, "lastState": {"terminated": {"message": "SECRET"}}}]}});
    let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": metadata(json!({})),
        "spec": {"providerID": "SECRET"}, "status": {"addresses": [{"address": "SECRET"}], "images": [{"names": ["SECRET"]}]}});
    let event = json!({"apiVersion": "events.k8s.io/v1", "kind": "Event", "metadata": metadata(json!({})),
        "reason": "R", "note": "n", "deprecatedSource": {"host": "SECRET"}});
    // Only the name of the program that created it is recorded.
    let writers = json!([{"manager": "SECRET"}, {"manager": "kubectl-nm", "operation": "SECRET", "apiVersion": "SECRET",
        "subresource": "SECRET", "fieldsV1": {"f:spec": {"f:nodeName": {}, "f:SECRET": {}}}}]);
    let maintenance = json!({"apiVersion": "nodemaintenance.medik8s.io/v1beta1", "kind": "NodeMaintenance",
        "metadata": metadata(json!({"managedFields": writers})), "spec": {"nodeName": "n1"}});
    let drain_pod = || Arc::new(NodePod::from(serde_json::from_value::<DrainPod>(pod.clone()).unwrap()));
    let replica =
        || Arc::new(serde_json::from_value::<WatchedReplica>(pod.clone()).unwrap().into_replica().unwrap());
    let event = || Arc::new(serde_json::from_value::<Event>(event.clone()).unwrap());
    let shown = || Arc::new(serde_json::from_value::<ListedNode>(node.clone()).unwrap().shown());
    let name = || String::from("n1");
    let scope = ReplacementScope { namespace: name(), kind: None };
    let lost = || WatchState::Lost { since: at(), error: String::from("exec plugin: SECRET") };
    let forbidden = || WatchState::Forbidden(String::from("SECRET"));
    let objects = serde_json::from_value(maintenance).unwrap();
    let mut messages = vec![
        Message::Maintenances(WatchChange::Applied(Arc::new(objects))),
        Message::Nodes(WatchChange::Applied(shown())),
        Message::Pods { node: name(), change: WatchChange::Listed(vec![drain_pod()]) },
        Message::Pods { node: name(), change: WatchChange::Deleted(drain_pod()) },
        Message::Events { node: name(), change: WatchChange::Listed(vec![event()]) },
        Message::Watch { kind: WatchKind::Nodes, node: None, state: lost() },
        Message::Watch { kind: WatchKind::Nodes, node: None, state: forbidden() },
        Message::ProgramOutput(String::from("SECRET")),
        Message::RecordingFailed(String::from("SECRET")),
        Message::Answered { id: 1, outcome: Ok(String::from("SECRET")) },
        Message::Answered {
            id: 1,
            outcome: Err(CommandError::NoAnswer { flags: String::from(" --token SECRET") }),
        },
    ];
    messages.extend(
        [
            ReplacementChange::Replicas(WatchChange::Applied(replica())),
            ReplacementChange::Replicas(WatchChange::Listed(vec![replica()])),
            ReplacementChange::State(lost()),
        ]
        .map(|change| Message::Replacements { node: name(), scope: scope.clone(), change }),
    );
    for message in messages {
        let line = written(&message).unwrap_or_default();
        assert!(!line.contains("SECRET"), "{line}");
    }
}

#[test]
fn the_lines_have_this_form() {
    let header = Header {
        recording: RECORDING_VERSION,
        program: String::from("0.1.0"),
        started: at(),
        context: String::from("prod"),
        nodes: vec![String::from("n1")],
        all_nodes: false,
    };
    let mut lines = vec![serde_json::to_string(&header).unwrap()];
    lines.extend(node_messages().iter().take(4).filter_map(written));
    insta::assert_snapshot!("lines", lines.join("\n"));
}
