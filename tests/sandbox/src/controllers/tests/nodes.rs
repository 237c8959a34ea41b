//! What kubelets, the scheduler and the node lifecycle promise.

use std::time::Duration;

use serde_json::{Value, json};

use crate::cluster::catalog::resource::{JOBS, NODES, PODS};
use crate::cluster::registry::{DeleteOptions, Part};
use crate::cluster::store::{Key, State};
use crate::controllers::engine::test_cluster::{TestCluster, pods, ready, web};
use crate::controllers::nodes::kubelet::annotations;
use crate::model::{condition, pod};
use crate::workload::{App, Kind, node_name};

#[tokio::test(start_paused = true)]
async fn a_replacement_goes_elsewhere_when_its_node_is_cordoned() {
    let test = TestCluster::new(2);
    test.run(web()).await;
    let pod = test.read(|state| pods(state).remove(0));
    let node = pod::node(&pod).unwrap();
    test.cordon(node);
    test.evict(&pod).unwrap();
    test.until("the pod is gone and another is ready", |state| {
        let pods = pods(state);
        pods.len() == 1 && pod::is_ready(&pods[0]) && pod::uid(&pods[0]) != pod::uid(&pod)
    })
    .await;
    assert_ne!(test.read(|state| pod::node(&pods(state)[0]).map(str::to_owned)).as_deref(), Some(node));
}

#[tokio::test(start_paused = true)]
async fn a_cordon_has_its_taint_and_an_uncordon_takes_it_away() {
    let test = TestCluster::new(1);
    let key = Key::cluster("node-01");
    let taints = |state: &State| state.get(&NODES, &key).unwrap()["spec"]["taints"].clone();
    test.cordon("node-01");
    test.until("the taint is there", |state| taints(state)[0]["key"] == "node.kubernetes.io/unschedulable")
        .await;
    test.edit(&NODES, &key, Part::Main, |node| {
        node["spec"].as_object_mut().unwrap().remove("unschedulable");
    });
    test.until("the taint is gone", |state| taints(state).is_null()).await;
}

#[tokio::test(start_paused = true)]
async fn a_pod_takes_its_time_to_end_but_never_more_than_its_grace() {
    let test = TestCluster::new(1);
    for (name, grace, annotation, expected) in [
        ("quick", 30, None, 1),
        ("short", 30, Some((annotations::STOP_DELAY, "300ms")), 0),
        ("hurried", 2, Some((annotations::STOP_DELAY, "5s")), 2),
        ("deaf", 30, Some((annotations::IGNORE_TERMINATION, "true")), 29),
    ] {
        let mut app = App::new(Kind::Pod, "ns", name).grace(grace);
        if let Some((annotation, value)) = annotation {
            app = app.annotation(annotation, value);
        }
        test.run(app).await;
        let pod = test.read(|state| pods(state).remove(0));
        let before = test.cluster.clock.now();
        test.evict(&pod).unwrap();
        test.until("the pod is gone", |state| pods(state).is_empty()).await;
        let took = test.cluster.clock.now().duration_since(before);
        assert!((expected..=expected + 1).contains(&took.as_secs()), "{name} took {took}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_finalizer_keeps_a_pod_that_has_ended() {
    let test = TestCluster::new(1);
    test.run(App::new(Kind::Pod, "ns", "held")).await;
    let key = Key::new("ns", "held");
    test.edit(&PODS, &key, Part::Main, |pod| {
        pod["metadata"]["finalizers"] = json!(["example.com/hold"]);
    });
    test.delete(&PODS, &key, &DeleteOptions::default());
    test.until("its end is confirmed", |state| {
        state.get(&PODS, &key).unwrap()["metadata"]["deletionGracePeriodSeconds"] == 0
    })
    .await;
    test.pass(Duration::from_secs(60)).await;
    assert!(test.get(&PODS, &key).is_some());
    test.edit(&PODS, &key, Part::Main, |pod| {
        pod["metadata"]["finalizers"] = json!([]);
    });
    assert!(test.get(&PODS, &key).is_none());
}

#[tokio::test(start_paused = true)]
async fn a_node_that_is_not_ready_confirms_nothing_until_it_is() {
    let test = TestCluster::new(1);
    test.run(App::new(Kind::Pod, "ns", "lost")).await;
    let key = Key::new("ns", "lost");
    test.set_ready("node-01", "Unknown");
    test.delete(&PODS, &key, &DeleteOptions::default());
    test.pass(Duration::from_secs(300)).await;
    assert!(test.get(&PODS, &key).is_some_and(|pod| pod::is_terminating(&pod)));
    test.set_ready("node-01", "True");
    test.until("the pod is gone", |state| pods(state).is_empty()).await;
}

#[tokio::test(start_paused = true)]
async fn an_unschedulable_pod_reports_why_and_runs_when_a_node_changes() {
    let test = TestCluster::new(1);
    test.cordon("node-01");
    web().create(&test.cluster).unwrap();
    let unschedulable = |pod: &Value| {
        let condition = condition::find(&pod["status"], "PodScheduled")?;
        (condition["reason"] == "Unschedulable").then(|| condition["message"].as_str().map(str::to_owned))?
    };
    test.until("a pod cannot be scheduled", |state| {
        pods(state).first().is_some_and(|pod| unschedulable(pod).is_some())
    })
    .await;
    let message = test.read(|state| unschedulable(&pods(state)[0]));
    assert_eq!(message.as_deref(), Some("0/1 nodes are available: 1 node(s) were unschedulable."));
    test.edit(&NODES, &Key::cluster("node-01"), Part::Main, |node| {
        node["spec"] = json!({});
    });
    test.until("it runs", |state| ready(state).len() == 1).await;
}

#[tokio::test(start_paused = true)]
async fn a_full_node_takes_no_more_pods() {
    let test = TestCluster::new(2);
    for number in 1..=2 {
        test.edit(&NODES, &Key::cluster(node_name(number, 2)), Part::Status, |node| {
            node["status"]["allocatable"]["pods"] = json!("2");
        });
    }
    web().replicas(5).create(&test.cluster).unwrap();
    test.until("four run", |state| ready(state).len() == 4).await;
    test.pass(Duration::from_secs(5)).await;
    assert_eq!(test.read(|state| ready(state).len()), 4);
    let pod = test.read(|state| ready(state).remove(0));
    test.delete(&PODS, &Key::of(&pod), &DeleteOptions::default());
    test.until("the freed place is taken", |state| {
        ready(state).len() == 4 && !ready(state).iter().any(|ready| pod::uid(ready) == pod::uid(&pod))
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_never_ready_pod_becomes_ready_when_the_annotation_is_removed() {
    let test = TestCluster::new(1);
    let key = Key::new("ns", "sick");
    let app = App::new(Kind::Pod, "ns", "sick").annotation(annotations::NEVER_READY, "true");
    app.create(&test.cluster).unwrap();
    test.until("it runs", |state| state.get(&PODS, &key).is_some_and(|pod| pod::phase(&pod) == "Running"))
        .await;
    test.pass(Duration::from_secs(5)).await;
    assert!(!pod::is_ready(&test.get(&PODS, &key).unwrap()));
    test.edit(&PODS, &key, Part::Main, |pod| {
        pod["metadata"]["annotations"] = json!({});
    });
    test.until("it is ready", |state| ready(state).len() == 1).await;
}

#[tokio::test(start_paused = true)]
async fn a_pod_whose_containers_do_not_run_shows_why_until_the_annotation_is_removed() {
    for (annotation, value, phase, reason) in [
        (annotations::IMAGE_MISSING, "true", "Pending", "ImagePullBackOff"),
        (annotations::EXIT_CODE, "3", "Running", "CrashLoopBackOff"),
    ] {
        let test = TestCluster::new(1);
        let key = Key::new("ns", "sick");
        App::new(Kind::Pod, "ns", "sick").annotation(annotation, value).create(&test.cluster).unwrap();
        let container = |pod: &Value| pod["status"]["containerStatuses"][0].clone();
        test.until("it fails", |state| {
            let pod = state.get(&PODS, &key);
            pod.is_some_and(|pod| container(&pod)["state"]["waiting"]["reason"] == reason)
        })
        .await;
        let pod = test.get(&PODS, &key).unwrap();
        assert_eq!((pod::phase(&pod), pod::is_ready(&pod)), (phase, false));
        let code = &container(&pod)["lastState"]["terminated"]["exitCode"];
        assert_eq!(code.as_i64(), (reason == "CrashLoopBackOff").then_some(3));
        test.edit(&PODS, &key, Part::Main, |pod| {
            pod["metadata"]["annotations"] = json!({});
        });
        test.until("it is ready", |state| ready(state).len() == 1).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_exits_is_over_unless_its_restart_policy_starts_it_again() {
    for (policy, code, phase) in [
        ("Never", "3", "Failed"),
        ("Never", "0", "Succeeded"),
        ("OnFailure", "3", "Running"),
        ("OnFailure", "0", "Succeeded"),
        ("Always", "0", "Running"),
    ] {
        let test = TestCluster::new(1);
        let app = App::new(Kind::Pod, "ns", "sick").annotation(annotations::EXIT_CODE, code);
        app.pod("restartPolicy", json!(policy)).create(&test.cluster).unwrap();
        test.pass(Duration::from_secs(30)).await;
        let pod = test.get(&PODS, &Key::new("ns", "sick")).unwrap();
        assert_eq!((pod::phase(&pod), pod::is_ready(&pod)), (phase, false), "{policy} {code}");
        let container = &pod["status"]["containerStatuses"][0];
        let field = if phase == "Running" { "lastState" } else { "state" };
        let exit_code = &container[field]["terminated"]["exitCode"];
        assert_eq!(exit_code.as_i64(), code.parse().ok(), "{policy} {code}: {container}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_job_whose_pods_fail_has_failed_after_its_limit() {
    let test = TestCluster::new(1);
    let job = App::new(Kind::Job, "ns", "broken").annotation(annotations::EXIT_CODE, "1");
    job.create(&test.cluster).unwrap();
    let key = Key::new("ns", "broken");
    test.edit(&JOBS, &key, Part::Main, |job| job["spec"]["backoffLimit"] = json!(1));
    test.until("the Job has failed", |state| {
        let job = state.get(&JOBS, &key).unwrap();
        let conditions = job["status"]["conditions"].as_array().cloned().unwrap_or_default();
        conditions.iter().any(|condition| condition["type"] == "Failed" && condition["status"] == "True")
    })
    .await;
    assert_eq!(test.get(&JOBS, &key).unwrap()["status"]["failed"], 2);
}
