//! Workloads that lack pods, by events about stopped pods.

use serde_json::{Value, json};

use super::*;
use crate::explain::obstacle::PodWarning;

fn parse<K: serde::de::DeserializeOwned>(value: Value) -> K {
    serde_json::from_value(value).unwrap()
}

fn time(minute: u32) -> Timestamp {
    format!("2026-01-02T03:{minute:02}:00Z").parse().unwrap()
}

fn deployment(wanted: i32, ready: i32, unavailable_minute: u32) -> Workload {
    let condition =
        json!({"type": "Available", "status": "False", "lastTransitionTime": time(unavailable_minute)});
    let object = json!({"metadata": {"name": "web", "namespace": "shop"},
        "spec": {"replicas": wanted, "selector": {}, "template": {}},
        "status": {"readyReplicas": ready, "conditions": [condition]}});
    Workload::from(&parse::<Deployment>(object))
}

fn set() -> Workload {
    let object = json!({"metadata": {"name": "cart", "namespace": "shop"},
        "spec": {"replicas": 1, "selector": {}, "serviceName": "", "template": {}}, "status": {"replicas": 1}});
    Workload::from(&parse::<StatefulSet>(object))
}

fn killing(name: &str, node: &str, minute: u32, message: &str) -> Option<StoppedPod> {
    let event = json!({"metadata": {"name": "e", "namespace": "shop"}, "reason": "Killing", "message": message,
        "involvedObject": {"namespace": "shop", "name": name, "uid": format!("uid-{name}")},
        "source": {"component": "kubelet", "host": node}, "lastTimestamp": time(minute)});
    StoppedPod::of(&parse(event))
}

fn stopped(name: &str, node: &str, minute: u32) -> StoppedPod {
    killing(name, node, minute, "Stopping container app").unwrap()
}

#[test]
fn a_pod_whose_container_is_restarted_has_not_left() {
    let message = "Container app failed liveness probe, will be restarted";
    assert_eq!(killing("web-1", "n1", 5, message).map(|pod| pod.uid), None);
}

#[test]
fn a_pod_that_is_stopped_on_a_node_that_is_off_still_terminates() {
    let pod = json!({"metadata": {"namespace": "shop", "name": "cart-0", "uid": "uid-cart-0",
        "deletionTimestamp": time(6)}});
    let found = |pods: &[Value]| {
        let pods: Vec<Pod> = pods.iter().cloned().map(parse).collect();
        let outage =
            set().outage("n1", time(4), &[stopped("cart-0", "n1", 5)], &[], &pods, |_| None).unwrap();
        (outage.left.len(), outage.terminating)
    };
    assert_eq!((found(&[pod]), found(&[])), ((1, 1), (1, 0)));
}

fn left(workload: Workload, stopped: &[StoppedPod], pods: &[Value], was_unready: bool) -> Option<usize> {
    let pods: Vec<Pod> = pods.iter().cloned().map(parse).collect();
    let outage =
        workload.outage("n1", time(4), stopped, &[], &pods, |_| was_unready.then(Unready::default))?;
    Some(outage.left.len())
}

#[test]
fn a_workload_is_down_by_the_drain_only_if_its_pods_left_the_node_and_it_was_available_before() {
    let both = [stopped("web-6c4-bcdfg", "n1", 5), stopped("web-6c4-bcdfh", "n1", 5)];
    assert_eq!(left(deployment(2, 0, 5), &both, &[], false), Some(2));
    assert_eq!(left(deployment(2, 1, 5), &both, &[], false), Some(2), "it lacks one");
    assert_eq!(left(deployment(2, 2, 5), &both, &[], false), None, "all are Ready");
    assert_eq!(left(deployment(0, 0, 5), &both, &[], false), None, "it is scaled to 0");
    assert_eq!(left(deployment(2, 0, 3), &both, &[], false), None, "it was unavailable before");
    for (other, why) in [
        (stopped("web-6c4-bcdfg", "n2", 5), "another node"),
        (stopped("web-6c4-bcdfg", "n1", 3), "before the drain"),
        (stopped("web-api-6c4-bcdfg", "n1", 5), "another Deployment"),
        (stopped("web-0", "n1", 5), "a StatefulSet"),
    ] {
        assert_eq!(left(deployment(2, 0, 5), &[other], &[], false), None, "{why}");
    }
}

#[test]
fn of_a_workload_that_lacks_pods_those_count_that_were_created_since_the_drain_began() {
    let pod = |name: &str, created: u32, ready: &str| {
        parse::<Pod>(
            json!({"metadata": {"name": name, "namespace": "shop", "uid": name, "creationTimestamp": time(created),
            "ownerReferences": [{"apiVersion": "apps/v1", "kind": "StatefulSet", "name": "cart", "uid": "u",
                "controller": true}]},
            "status": {"conditions": [{"type": "Ready", "status": ready}]}}),
        )
    };
    let cart = Workload { wanted: 3, ready: 1, ..set() };
    let pods = [pod("cart-0", 5, "False"), pod("cart-1", 2, "False"), pod("cart-2", 2, "True")];
    let outage = cart.outage("n1", time(4), &[stopped("cart-0", "n1", 5)], &[], &pods, |_| None).unwrap();
    let names: Vec<Option<&str>> = outage.pods.iter().map(|read| read.pod.metadata.name.as_deref()).collect();
    assert_eq!(names, [Some("cart-0")]);
}

#[test]
fn pods_that_a_workload_could_not_create_before_the_drain_either_are_not_what_it_has_lost() {
    let failure = json!({"type": "ReplicaFailure", "status": "True", "message": "exceeded quota"});
    let object = json!({"metadata": {"name": "web", "namespace": "shop"},
        "spec": {"replicas": 4, "selector": {}, "template": {}},
        "status": {"replicas": 2, "readyReplicas": 2, "conditions": [failure]}});
    let web = Workload::from(&parse::<Deployment>(object));
    let pod = |name: &str, created: u32| {
        parse::<Pod>(
            json!({"metadata": {"name": name, "namespace": "shop", "uid": name, "creationTimestamp": time(created),
            "labels": {"pod-template-hash": "6c4"}, "ownerReferences": [{"apiVersion": "apps/v1", "kind": "ReplicaSet",
                "name": "web-6c4", "uid": "u", "controller": true}]},
            "status": {"conditions": [{"type": "Ready", "status": "True"}]}}),
        )
    };
    let lacks = |created: u32| {
        let pods = [pod("web-6c4-a", 2), pod("web-6c4-b", created)];
        let left = [stopped("web-6c4-bcdfg", "n1", 5)];
        web.clone().outage("n1", time(4), &left, &[], &pods, |_| None).unwrap().workload.incomplete.is_some()
    };
    assert!(lacks(2), "the pod that left has no replacement");
    assert!(!lacks(5), "it has one");
}

#[test]
fn a_workload_whose_pods_crashed_before_the_drain_was_down_before() {
    let both = [stopped("web-6c4-bcdfg", "n1", 5), stopped("web-6c4-bcdfh", "n1", 5)];
    let outage = |crashes: [Option<u32>; 2]| {
        let warned = |pod: &StoppedPod| {
            let minute = crashes[usize::from(pod.uid.ends_with('h'))]?;
            Some(Unready { crashes: Some(time(minute)) })
        };
        let outage = deployment(2, 0, 6).outage("n1", time(4), &both, &[], &[], warned).unwrap();
        (outage.failing_since, outage.since())
    };
    assert_eq!(
        outage([Some(1), Some(2)]),
        (Some(time(1)), time(1)),
        "its condition is that of the last crash"
    );
    assert_eq!(outage([Some(1), None]), (None, time(6)), "one of them served");
    assert_eq!(outage([Some(1), Some(4)]), (None, time(6)), "one has failed since the drain started");
}

fn since(pods: &[(Value, Vec<PodWarning>)]) -> Timestamp {
    let read = |(pod, warnings): &(Value, Vec<PodWarning>)| ReadPod {
        pod: parse(pod.clone()),
        warnings: warnings.clone(),
    };
    let left = vec![stopped("web-6c4-bcdfg", "n1", 5)];
    let pods = pods.iter().map(read).collect();
    let workload = deployment(1, 0, 30);
    let (preempted, last_stopped) = (Vec::new(), time(5));
    Outage { workload, left, preempted, terminating: 0, last_stopped, failing_since: None, pods }.since()
}

#[test]
fn an_outage_begins_when_its_last_pod_was_lost_whenever_a_replacement_has_failed_last() {
    let crashing = |created: u32, restarts: i32, ended: u32| {
        json!({"metadata": {"creationTimestamp": time(created)}, "status": {"containerStatuses": [{"name": "c",
            "image": "i", "imageID": "", "ready": false, "restartCount": restarts,
            "state": {"waiting": {"reason": "CrashLoopBackOff"}},
            "lastState": {"terminated": {"exitCode": 7, "finishedAt": time(ended)}}}]}})
    };
    let back_off = |minute: u32| PodWarning {
        reason: "BackOff".into(),
        first: Some(time(minute)),
        ..PodWarning::default()
    };
    let pending = json!({"metadata": {"creationTimestamp": time(5)}, "status": {"phase": "Pending"}});
    let unready = json!({"metadata": {"creationTimestamp": time(5)}, "status": {"containerStatuses": [{"name": "c",
        "image": "i", "imageID": "", "ready": false, "restartCount": 0, "state": {"running": {}}}]}});
    assert_eq!(since(&[(crashing(5, 5, 29), vec![back_off(6)])]), time(5));
    assert_eq!(since(&[(crashing(5, 5, 29), vec![])]), time(5), "its events may not be read");
    assert_eq!(since(&[(pending.clone(), vec![])]), time(5));
    assert_eq!(since(&[(crashing(5, 5, 29), vec![back_off(20)])]), time(20), "it had served");
    assert_eq!(since(&[(crashing(5, 1, 29), vec![])]), time(30), "it had run for long");
    assert_eq!(
        since(&[(unready.clone(), vec![]), (pending.clone(), vec![])]),
        time(30),
        "it may have served"
    );
    let since_ready = |changed: u32| {
        let mut pod = unready.clone();
        pod["status"]["startTime"] = json!(time(5));
        pod["status"]["conditions"] =
            json!([{"type": "Ready", "status": "False", "lastTransitionTime": time(changed)}]);
        since(&[(pod, vec![]), (pending.clone(), vec![])])
    };
    assert_eq!(since_ready(5), time(5), "it has never been Ready");
    assert_eq!(since_ready(40), time(40), "it had been Ready, although there were too few");
    assert_eq!(since(&[]), time(30));
}

#[test]
fn a_workload_whose_pod_moved_to_another_node_is_down_since_it_was_stopped_there() {
    let stopped = [stopped("cart-0", "n1", 5), stopped("cart-0", "n2", 9)];
    let outage = set().outage("n1", time(4), &stopped, &[], &[], |_| None).unwrap();
    assert_eq!((outage.left.len(), outage.since()), (1, time(9)));
}

#[test]
fn a_container_that_was_only_restarted_is_no_pod_that_left() {
    let pod = |deleted: Value| {
        json!({"metadata": {"name": "web-6c4-bcdfg", "namespace": "shop", "uid": "uid-web-6c4-bcdfg",
            "deletionTimestamp": deleted}})
    };
    let one = [stopped("web-6c4-bcdfg", "n1", 5), stopped("web-6c4-bcdfg", "n1", 6)];
    assert_eq!(left(deployment(1, 0, 5), &one, &[pod(Value::Null)], false), None);
    assert_eq!(left(deployment(1, 0, 5), &one, &[pod(json!(time(7)))], false), Some(1), "it is terminating");
}

#[test]
fn a_workload_is_not_down_while_a_pod_that_terminates_is_ready() {
    let pod = |name: &str, ready: &str| {
        json!({"metadata": {"name": name, "namespace": "shop", "uid": format!("uid-{name}"),
            "deletionTimestamp": time(7), "ownerReferences": [{"apiVersion": "apps/v1", "kind": "StatefulSet",
                "name": "cart", "uid": "u", "controller": true}]},
            "status": {"conditions": [{"type": "Ready", "status": ready}]}})
    };
    let one = [stopped("cart-0", "n1", 5)];
    assert_eq!(left(set(), &one, &[pod("cart-0", "True")], false), None);
    assert_eq!(left(set(), &one, &[pod("cart-0", "False")], false), Some(1));
    let terminating = [parse(pod("cart-0", "False"))];
    let outage = set().outage("n1", time(4), &one, &[], &terminating, |_| None).unwrap();
    assert_eq!(outage.pods.len(), 1, "the StatefulSet waits for it");
}

#[test]
fn where_no_condition_shows_since_when_the_pods_that_left_must_have_run_without_a_warning() {
    assert_eq!(left(set(), &[stopped("cart-0", "n1", 5)], &[], false), Some(1));
    assert_eq!(left(set(), &[stopped("cart-0", "n1", 5)], &[], true), None);
    assert_eq!(left(set(), &[stopped("cart-x", "n1", 5)], &[], false), None);
}
