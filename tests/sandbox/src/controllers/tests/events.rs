//! What a cluster says of what it does, as the events of a real one were seen to be.

use std::time::Duration;

use serde_json::{Value, json};

use crate::cluster::catalog::resource::{DEPLOYMENTS, EVENTS, NODES, PODS};
use crate::cluster::registry::{DeleteOptions, Part};
use crate::cluster::store::event_log::KEPT;
use crate::cluster::store::{Key, State};
use crate::controllers::engine::test_cluster::{TestCluster, pods, web};
use crate::model::pod;
use crate::workload::{App, Kind};

/// The events about objects of a kind: reason, message and author, in the order of their names.
fn reported(state: &State, kind: &str) -> Vec<[String; 3]> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let events = state.list(&EVENTS, Some("ns"));
    let about = events.filter(|event| event["involvedObject"]["kind"] == kind);
    about.map(|event| [&event["reason"], &event["message"], &event["reportingComponent"]].map(text)).collect()
}

#[tokio::test(start_paused = true)]
async fn the_life_of_a_deployment_is_recorded_in_events() {
    let test = TestCluster::new(1);
    test.run(web()).await;
    let pod = test.read(|state| pods(state).remove(0));
    let (name, set) = (pod::name(&pod), pod["metadata"]["ownerReferences"][0]["name"].as_str().unwrap());
    test.edit(&DEPLOYMENTS, &Key::new("ns", "web"), Part::Main, |deployment| {
        deployment["spec"]["replicas"] = json!(0);
    });
    test.until("the pod is gone", |state| pods(state).is_empty()).await;
    let of = |kind: &str| test.read(|state| reported(state, kind));
    let expected = |lines: &[(&str, String, &str)]| -> Vec<[String; 3]> {
        lines.iter().map(|(reason, message, by)| [(*reason).into(), message.clone(), (*by).into()]).collect()
    };
    assert_eq!(
        of("Deployment"),
        expected(&[
            (
                "ScalingReplicaSet",
                format!("Scaled up replica set {set} from 0 to 1"),
                "deployment-controller"
            ),
            (
                "ScalingReplicaSet",
                format!("Scaled down replica set {set} from 1 to 0"),
                "deployment-controller"
            ),
        ])
    );
    assert_eq!(
        of("ReplicaSet"),
        expected(&[
            ("SuccessfulCreate", format!("Created pod: {name}"), "replicaset-controller"),
            ("SuccessfulDelete", format!("Deleted pod: {name}"), "replicaset-controller"),
        ])
    );
    assert_eq!(
        of("Pod"),
        expected(&[
            ("Scheduled", format!("Successfully assigned ns/{name} to node-01"), "default-scheduler"),
            ("Started", "Container started".into(), "kubelet"),
            ("Killing", "Stopping container app".into(), "kubelet"),
        ])
    );
}

#[tokio::test(start_paused = true)]
async fn events_have_the_shapes_of_a_real_cluster() {
    let test = TestCluster::new(1);
    test.run(App::new(Kind::Job, "ns", "import")).await;
    let pod = test.read(|state| pods(state).remove(0));
    let find = |reason: &str| {
        let found =
            test.read(|state| state.list(&EVENTS, Some("ns")).find(|event| event["reason"] == reason));
        let mut event = Value::clone(&found.unwrap());
        let (metadata, about) = (event["metadata"].take(), &mut event["involvedObject"]);
        let name = metadata["name"].as_str().unwrap();
        let stem = format!("{}.", about["name"].as_str().unwrap());
        let stamp = name.strip_prefix(&stem).unwrap();
        assert!(stamp.len() == 16 && i64::from_str_radix(stamp, 16).is_ok(), "{name}");
        assert!(about["uid"].is_string() && about["resourceVersion"].is_string(), "{about}");
        for field in ["uid", "resourceVersion", "name"] {
            about.as_object_mut().unwrap().remove(field);
        }
        for field in ["metadata", "message"] {
            event.as_object_mut().unwrap().remove(field);
        }
        event
    };
    let mut scheduled = find("Scheduled");
    let time = scheduled["eventTime"].take();
    assert_eq!(time.as_str().map(str::len), Some("2026-01-01T00:00:00.000000Z".len()), "{time}");
    assert_eq!(
        scheduled,
        json!({"apiVersion": "v1", "kind": "Event", "type": "Normal", "reason": "Scheduled", "action": "Binding",
            "involvedObject": {"apiVersion": "v1", "kind": "Pod", "namespace": "ns"}, "source": {},
            "eventTime": null, "firstTimestamp": null, "lastTimestamp": null,
            "reportingComponent": "default-scheduler", "reportingInstance": "default-scheduler-sandbox"})
    );
    let born = pod["metadata"]["creationTimestamp"].clone();
    assert_eq!(
        find("SuccessfulCreate"),
        json!({"apiVersion": "v1", "kind": "Event", "type": "Normal", "reason": "SuccessfulCreate", "count": 1,
            "involvedObject": {"apiVersion": "batch/v1", "kind": "Job", "namespace": "ns"},
            "source": {"component": "job-controller"},
            "eventTime": null, "firstTimestamp": born, "lastTimestamp": born,
            "reportingComponent": "job-controller", "reportingInstance": ""})
    );
    let started = find("Started");
    assert_eq!(started["involvedObject"]["fieldPath"], "spec.containers{app}");
    assert_eq!(started["source"], json!({"component": "kubelet", "host": "node-01"}));
    assert_eq!(started["reportingInstance"], "node-01");
}

#[tokio::test(start_paused = true)]
async fn a_repeated_event_is_counted() {
    let test = TestCluster::new(1);
    test.run(App::new(Kind::StatefulSet, "ns", "db")).await;
    let old = test.read(|state| pods(state).remove(0));
    test.evict(&old).unwrap();
    test.until("another is ready", |state| {
        pods(state).iter().any(|pod| pod::is_ready(pod) && pod::uid(pod) != pod::uid(&old))
    })
    .await;
    let events = test.read(|state| state.list(&EVENTS, Some("ns")).collect::<Vec<_>>());
    let about: Vec<_> = events.iter().filter(|it| it["involvedObject"]["kind"] == "StatefulSet").collect();
    let [event] = about.as_slice() else { panic!("{about:?}") };
    assert_eq!(
        (&event["count"], &event["message"]),
        (&json!(2), &json!("Create Pod db-0 in StatefulSet db successful"))
    );
    assert_ne!(event["firstTimestamp"], event["lastTimestamp"]);
}

#[tokio::test(start_paused = true)]
async fn an_unreachable_node_reports_a_killed_pod_when_it_is_reachable_again() {
    let test = TestCluster::new(1);
    test.run(web()).await;
    let killings =
        |state: &State| reported(state, "Pod").iter().filter(|reported| reported[0] == "Killing").count();
    test.set_ready("node-01", "Unknown");
    test.evict(&test.read(|state| pods(state).remove(0))).unwrap();
    test.pass(Duration::from_secs(60)).await;
    assert_eq!(test.read(killings), 0);
    test.set_ready("node-01", "True");
    test.until("it is reported", |state| killings(state) == 1).await;
    assert!(test.get(&NODES, &Key::cluster("node-01")).is_some());
}

#[tokio::test(start_paused = true)]
async fn events_do_not_block_the_termination_of_a_namespace() {
    let test = TestCluster::new(1);
    test.run(web().replicas(3)).await;
    test.terminate_namespace("ns");
    test.until("it is gone, with its events", |state| {
        state.get(&crate::cluster::catalog::resource::NAMESPACES, &Key::cluster("ns")).is_none()
            && state.list(&EVENTS, Some("ns")).next().is_none()
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn events_are_written_when_the_log_is_open_and_their_number_is_limited() {
    let test = TestCluster::new(1);
    test.cluster.store.write(|state| state.event_log.close());
    test.run(web()).await;
    assert_eq!(test.read(|state| state.list(&EVENTS, None).count()), 0);
    test.cluster.store.write(|state| {
        state.event_log.open();
        for number in 0..KEPT {
            state.event_log.keep(number.to_string(), Key::new("ns", number.to_string()));
        }
        state.put(&EVENTS, json!({"metadata": {"namespace": "ns", "name": "0"}}));
    });
    let pod = test.read(|state| pods(state).remove(0));
    test.delete(&PODS, &Key::of(&pod), &DeleteOptions::default());
    test.until("the pod's end is reported", |state| {
        reported(state, "Pod").iter().any(|reported| reported[0] == "Killing")
    })
    .await;
    assert!(test.get(&EVENTS, &Key::new("ns", "0")).is_none(), "the oldest went for it");
}
