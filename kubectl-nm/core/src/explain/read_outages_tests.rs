//! Workloads that lack pods since a drain, in small clusters.

use serde_json::{Value, json};

use super::*;
use crate::explain::outage_causes::lost_by_preemption;
use crate::maintenance::{ROLL_FINALIZER, ROLL_LABEL};
use crate::testing::fake_server::{cluster, failure};
use crate::testing::objects::{running, with_status};

fn list_of(items: &Value, more: &str) -> (u16, Value) {
    (200, json!({"kind": "List", "metadata": {"continue": more}, "items": items}))
}

#[tokio::test]
async fn the_warnings_from_shortly_before_a_pod_was_stopped_show_since_when_it_had_been_failing() {
    let warning = |pod: &str, reason: &str, minutes: [u32; 2], count: i32| {
        let [first, last] = minutes.map(|minute| format!("2026-01-02T03:{minute:02}:00Z"));
        json!({"metadata": {"name": "w"}, "type": "Warning", "reason": reason, "firstTimestamp": first, "lastTimestamp": last,
            "count": count,
            "involvedObject": {"kind": "Pod", "namespace": "shop", "name": pod, "uid": pod}})
    };
    let warnings = json!([
        warning("crashes", "BackOff", [10, 29], 20),
        warning("crashes", "Unhealthy", [5, 29], 20),
        warning("crashes-again", "BackOff", [5, 29], 3),
        warning("crashes-now", "BackOff", [29, 29], 1),
        warning("probes", "Unhealthy", [5, 29], 20),
        warning("recovered", "BackOff", [5, 15], 20),
        warning("fails-since", "BackOff", [31, 32], 5),
    ]);
    let (cluster, _) = cluster(move |_, _| list_of(&warnings, ""));
    let names = ["crashes", "crashes-again", "crashes-now", "probes", "recovered", "fails-since", "serves"];
    let stopped = names.map(|name| StoppedPod {
        pod: nm_shared::PodReference { namespace: "shop".into(), name: name.into() },
        uid: name.into(),
        node: "n1".into(),
        at: "2026-01-02T03:30:00Z".parse().unwrap(),
    });
    let (warned, is_cut) = warned_before(&cluster, "shop", &stopped).await;
    let at = |time: &str| time.parse().ok();
    let expected = [
        ("crashes", at("2026-01-02T03:10:00Z")),
        ("crashes-again", None),
        ("crashes-now", at("2026-01-02T03:29:00Z")),
        ("probes", None),
    ];
    assert_eq!(warned, expected.map(|(pod, crashes)| (pod.to_owned(), Unready { crashes })).into());
    assert!(!is_cut);
}

#[tokio::test]
async fn a_workload_whose_pods_the_replacements_of_a_drain_have_preempted_is_an_outage_of_the_drain() {
    let event = |reason: &str, pod: &str, time: &str, more: Value| {
        let mut event = json!({"metadata": {"name": "e"}, "reason": reason,
            "involvedObject": {"kind": "Pod", "namespace": "shop", "name": pod, "uid": format!("uid-{pod}")}});
        event["source"] = more["source"].clone();
        event["message"] = more["message"].clone();
        event[if reason == "Killing" { "lastTimestamp" } else { "eventTime" }] = json!(time);
        event
    };
    let killing =
        |pod: &str, node: &str, time: &str| event("Killing", pod, time, json!({"source": {"host": node}}));
    let preempted = |by: &str| {
        let by = json!({"message": format!("Preempted by pod uid-{by} on node n2")});
        event("Preempted", "low-6c4-bcdfg", "2026-01-02T03:04:20.000000Z", by)
    };
    let with_preemptor = |preemptor: &str| {
        let events = json!([
            killing("high-6c4-bcdfh", "n1", "2026-01-02T03:04:10Z"),
            killing("low-6c4-bcdfg", "n2", "2026-01-02T03:04:21Z"),
            preempted(preemptor),
        ]);
        let low = json!({"metadata": {"name": "low", "namespace": "shop"}, "spec": {"replicas": 1},
            "status": {"replicas": 1, "readyReplicas": 0, "conditions": [{"type": "Available", "status": "False",
                "lastTransitionTime": "2026-01-02T03:04:21Z"}]}});
        let pod =
            json!({"metadata": {"name": preemptor, "namespace": "shop", "uid": format!("uid-{preemptor}")}});
        let (cluster, _) = cluster(move |_, path| match path {
            "/api/v1/events" => list_of(&events, ""),
            "/apis/apps/v1/namespaces/shop/deployments" => list_of(&json!([low]), ""),
            "/api/v1/namespaces/shop/pods" => list_of(&json!([pod]), ""),
            _ => list_of(&json!([]), ""),
        });
        cluster
    };
    let began = "2026-01-02T03:04:05Z";
    let facts_of = async |preemptor: &str, gone: i32| {
        let mut status = running(1, &[]);
        status["podCounts"] = json!({"gone": gone});
        status["conditions"] = json!([{"type": "Cordoned", "status": "True", "reason": "Cordoned",
            "message": "", "lastTransitionTime": began}]);
        let mut facts = ClusterFacts::default();
        let (object, cluster) = (with_status("n1", status), with_preemptor(preemptor));
        Box::pin(add_seen(&mut facts, [&object], &cluster)).await;
        facts
    };
    let outages = async |preemptor: &str| {
        let outages = facts_of(preemptor, 1).await.outages.remove("n1").unwrap_or_default();
        outages.iter().map(|outage| outage.workload.reference()).collect::<Vec<_>>()
    };
    assert_eq!(outages("high-6c4-xyz12").await, ["shop/deploy/low"]);
    assert_eq!(outages("other-6c4-xyz12").await, [""; 0], "no pod like it left the node");
    let partly_seen = [facts_of("high-6c4-xyz12", 1).await, facts_of("high-6c4-xyz12", 2).await];
    assert_eq!(partly_seen.map(|facts| facts.partly_seen.contains("n1")), [false, true]);
    let after_a_roll = async |nodes: &[&str], preemptor: &str| {
        let nodes = nodes.iter().copied();
        let lost = preempted_since(nodes, began.parse().unwrap(), &with_preemptor(preemptor)).await;
        lost.iter().map(|(workload, lost)| lost_by_preemption(workload, lost)).collect::<Vec<_>>()
    };
    assert_eq!(
        after_a_roll(&["n1", "n3"], "high-6c4-xyz12").await,
        ["shop/deploy/low is down: its 1 pod is not ready; 1 pod of it was preempted by shop/high-6c4-xyz12"]
    );
    assert_eq!(after_a_roll(&["n3"], "high-6c4-xyz12").await, [""; 0], "not a node of the roll");
}

#[tokio::test]
async fn too_many_pods_are_a_gap_only_where_a_workload_is_down() {
    let gaps = async |ready: i32| {
        let killing = json!([{"metadata": {"name": "a"}, "reason": "Killing", "source": {"host": "n1"},
            "involvedObject": {"kind": "Pod", "namespace": "shop", "name": "web-6c4-bcdfg", "uid": "u"},
            "lastTimestamp": "2026-01-02T03:04:10Z"}]);
        let web = json!({"metadata": {"name": "web", "namespace": "shop"}, "spec": {"replicas": 2},
            "status": {"replicas": 2, "readyReplicas": ready}});
        let (cluster, _) = cluster(move |_, path| match path {
            "/api/v1/events" => list_of(&killing, ""),
            "/apis/apps/v1/namespaces/shop/deployments" => list_of(&json!([web]), ""),
            "/api/v1/namespaces/shop/pods" => list_of(&json!([]), "token"),
            _ => list_of(&json!([]), ""),
        });
        let mut status = running(1, &[]);
        status["phase"] = json!("Succeeded");
        status["podCounts"] = json!({"gone": 1});
        let condition = |type_: &str| {
            json!({"type": type_, "status": "True", "reason": type_, "message": "",
            "lastTransitionTime": "2026-01-02T03:04:05Z"})
        };
        status["conditions"] = json!([condition("Cordoned"), condition("Drained")]);
        let mut facts = ClusterFacts::default();
        let now = "2026-01-02T03:05:00Z".parse().unwrap();
        Box::pin(add(&mut facts, [&with_status("n1", status)], &cluster, now)).await;
        facts.outage_gaps.remove("n1").unwrap_or_default()
    };
    assert_eq!(gaps(1).await, [].into(), "it may be scaling up");
    let more = Unseen::Failed("list pods".into(), format!("there are more than {MAX_PODS}"));
    assert_eq!(gaps(0).await, [OutageGap::Unseen(more)].into());
}

#[tokio::test]
async fn a_workload_that_lacks_pods_is_found_while_a_roll_checks_a_node_that_is_back_in_service() {
    let killing = json!([{"metadata": {"name": "a"}, "reason": "Killing", "source": {"host": "n1"},
        "involvedObject": {"kind": "Pod", "namespace": "shop", "name": "web-6c4-bcdfg", "uid": "u"},
        "lastTimestamp": "2026-01-02T03:04:10Z"}]);
    let web = json!({"metadata": {"name": "web", "namespace": "shop"}, "spec": {"replicas": 3},
        "status": {"replicas": 3, "readyReplicas": 2}});
    let owner = json!([{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web-6c4", "uid": "rs", "controller": true}]);
    let unready = json!([{"metadata": {"name": "web-6c4-xyz12", "namespace": "shop", "uid": "x", "ownerReferences": owner,
        "labels": {"pod-template-hash": "6c4"}, "creationTimestamp": "2026-01-02T03:04:11Z"}, "spec": {"nodeName": "n3"},
        "status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "False"}]}}]);
    let (cluster, _) = cluster(move |_, path| match path {
        "/api/v1/events" => list_of(&killing, ""),
        "/apis/apps/v1/namespaces/shop/deployments" => list_of(&json!([web]), ""),
        "/api/v1/namespaces/shop/pods" => list_of(&unready, ""),
        _ => list_of(&json!([]), ""),
    });
    let mut status = running(1, &[]);
    (status["phase"], status["podCounts"]) = (json!("Succeeded"), json!({"gone": 1}));
    status["conditions"] = json!([{"type": "Cordoned", "status": "True", "reason": "Cordoned", "message": "",
        "lastTransitionTime": "2026-01-02T03:04:05Z"}]);
    let mut object = with_status("n1", status);
    object.metadata.labels = Some([(ROLL_LABEL.to_owned(), "kernel".to_owned())].into());
    object.metadata.finalizers = Some(vec![ROLL_FINALIZER.to_owned()]);
    object.metadata.deletion_timestamp = serde_json::from_value(json!("2026-01-02T03:04:30Z")).unwrap();
    let mut facts = ClusterFacts::default();
    Box::pin(add(&mut facts, [&object], &cluster, "2026-01-02T03:06:00Z".parse().unwrap())).await;
    let lacking = facts.lacking.remove("n1").unwrap_or_default();
    let names: Vec<String> = lacking.iter().map(|outage| outage.workload.reference()).collect();
    assert_eq!(names, ["shop/deploy/web"]);
}

#[tokio::test]
async fn the_nodes_are_read_if_a_replacement_should_have_terminated_by_now() {
    let is_silent = async |grace_ends: &str| {
        let killing = json!([{"metadata": {"name": "a"}, "reason": "Killing", "source": {"host": "n1"},
            "involvedObject": {"kind": "Pod", "namespace": "shop", "name": "db-0", "uid": "u"},
            "lastTimestamp": "2026-01-02T03:04:10Z"}]);
        let db = json!({"metadata": {"name": "db", "namespace": "shop"}, "spec": {"replicas": 1},
            "status": {"replicas": 1, "readyReplicas": 0}});
        let owner = json!([{"apiVersion": "apps/v1", "kind": "StatefulSet", "name": "db", "uid": "o", "controller": true}]);
        let replacement = json!({"metadata": {"namespace": "shop", "name": "db-0", "uid": "v", "ownerReferences": owner,
            "deletionTimestamp": grace_ends}, "spec": {"nodeName": "n3"}});
        let off = json!({"metadata": {"name": "n3"}, "status": {"conditions": [{"type": "Ready", "status": "Unknown"}]}});
        let (cluster, _) = cluster(move |_, path| match path {
            "/api/v1/events" => list_of(&killing, ""),
            "/apis/apps/v1/namespaces/shop/statefulsets" => list_of(&json!([db]), ""),
            "/api/v1/namespaces/shop/pods" => list_of(&json!([replacement]), ""),
            "/api/v1/nodes" => list_of(&json!([off]), ""),
            _ => list_of(&json!([]), ""),
        });
        let mut status = running(1, &[]);
        status["podCounts"] = json!({"gone": 1});
        status["conditions"] = json!([{"type": "Cordoned", "status": "True", "reason": "Cordoned",
            "message": "", "lastTransitionTime": "2026-01-02T03:04:05Z"}]);
        let mut facts = ClusterFacts::default();
        let now = "2026-01-02T03:05:00Z".parse().unwrap();
        Box::pin(add(&mut facts, [&with_status("n1", status)], &cluster, now)).await;
        assert_eq!(facts.outages["n1"].len(), 1);
        facts.is_silent("n3")
    };
    assert!(is_silent("2026-01-02T03:04:50Z").await, "nobody confirms that it has terminated");
    assert!(!is_silent("2026-01-02T03:05:30Z").await, "it has time left");
}

#[tokio::test]
async fn jobs_that_were_not_read_are_a_gap_where_a_drain_evicted_pods_of_jobs() {
    let gaps = async |jobs: (u16, Value), of_jobs: i32| {
        let killing = json!([{"metadata": {"name": "a"}, "reason": "Killing", "source": {"host": "n1"},
            "involvedObject": {"kind": "Pod", "namespace": "shop", "name": "batch-x7k2p", "uid": "u"},
            "lastTimestamp": "2026-01-02T03:04:10Z"}]);
        let (cluster, _) = cluster(move |_, path| match path {
            "/api/v1/events" => list_of(&killing, ""),
            "/apis/batch/v1/namespaces/shop/jobs" => jobs.clone(),
            _ => list_of(&json!([]), ""),
        });
        let mut status = running(1, &[]);
        status["podCounts"] = json!({"gone": 1});
        status["departedPods"] = json!({"ofJobs": of_jobs});
        status["conditions"] = json!([{"type": "Cordoned", "status": "True", "reason": "Cordoned",
            "message": "", "lastTransitionTime": "2026-01-02T03:04:05Z"}]);
        let mut facts = ClusterFacts::default();
        let now = "2026-01-02T03:05:00Z".parse().unwrap();
        Box::pin(add(&mut facts, [&with_status("n1", status)], &cluster, now)).await;
        facts.outage_gaps.remove("n1").unwrap_or_default()
    };
    let denied = || failure(403, "Forbidden", "no");
    let forbidden = OutageGap::Unseen(Unseen::Forbidden("list jobs.batch".into()));
    assert_eq!(gaps(denied(), 1).await, [forbidden].into());
    assert_eq!(gaps(denied(), 0).await, [].into(), "no pod of a Job left");
    let more = OutageGap::MoreJobs { namespace: "shop".into(), limit: MAX_JOBS };
    assert_eq!(gaps(list_of(&json!([]), "token"), 1).await, [more].into());
    assert_eq!(gaps(list_of(&json!([]), ""), 1).await, [].into());
}
