//! What kubelets, the scheduler and the node lifecycle promise.

use std::time::Duration;

use serde_json::{Value, json};

use crate::condition;
use crate::pod;
use crate::registry::{DeleteOptions, Part};
use crate::resource::{NODES, PODS};
use crate::store::{Key, State};
use crate::workload::{App, Kind, node_name};

use crate::controllers::kubelet::annotations;
use crate::controllers::test_bed::{Bed, pods, ready, web};

#[tokio::test(start_paused = true)]
async fn a_replacement_goes_elsewhere_when_its_node_is_cordoned() {
    let bed = Bed::new(2);
    bed.run(web()).await;
    let pod = bed.read(|state| pods(state).remove(0));
    let node = pod::node(&pod).unwrap();
    bed.cordon(node);
    bed.evict(&pod).unwrap();
    bed.until("the pod is gone and another is ready", |state| {
        let pods = pods(state);
        pods.len() == 1 && pod::is_ready(&pods[0]) && pod::uid(&pods[0]) != pod::uid(&pod)
    })
    .await;
    assert_ne!(bed.read(|state| pod::node(&pods(state)[0]).map(str::to_owned)).as_deref(), Some(node));
}

#[tokio::test(start_paused = true)]
async fn a_cordon_has_its_taint_and_an_uncordon_takes_it_away() {
    let bed = Bed::new(1);
    let key = Key::cluster("node-01");
    let taints = |state: &State| state.get(&NODES, &key).unwrap()["spec"]["taints"].clone();
    bed.cordon("node-01");
    bed.until("the taint is there", |state| taints(state)[0]["key"] == "node.kubernetes.io/unschedulable")
        .await;
    bed.edit(&NODES, &key, Part::Main, |node| {
        node["spec"].as_object_mut().unwrap().remove("unschedulable");
    });
    bed.until("the taint is gone", |state| taints(state).is_null()).await;
}

#[tokio::test(start_paused = true)]
async fn a_pod_takes_its_time_to_end_but_never_more_than_its_grace() {
    let bed = Bed::new(1);
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
        bed.run(app).await;
        let pod = bed.read(|state| pods(state).remove(0));
        let before = bed.cluster.clock.now();
        bed.evict(&pod).unwrap();
        bed.until("the pod is gone", |state| pods(state).is_empty()).await;
        let took = bed.cluster.clock.now().duration_since(before);
        assert!((expected..=expected + 1).contains(&took.as_secs()), "{name} took {took}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_finalizer_keeps_a_pod_that_has_ended() {
    let bed = Bed::new(1);
    bed.run(App::new(Kind::Pod, "ns", "held")).await;
    let key = Key::new("ns", "held");
    bed.edit(&PODS, &key, Part::Main, |pod| {
        pod["metadata"]["finalizers"] = json!(["example.com/hold"]);
    });
    bed.delete(&PODS, &key, &DeleteOptions::default());
    bed.until("its end is confirmed", |state| {
        state.get(&PODS, &key).unwrap()["metadata"]["deletionGracePeriodSeconds"] == 0
    })
    .await;
    bed.pass(Duration::from_secs(60)).await;
    assert!(bed.get(&PODS, &key).is_some());
    bed.edit(&PODS, &key, Part::Main, |pod| {
        pod["metadata"]["finalizers"] = json!([]);
    });
    assert!(bed.get(&PODS, &key).is_none());
}

#[tokio::test(start_paused = true)]
async fn a_node_that_is_not_ready_confirms_nothing_until_it_is() {
    let bed = Bed::new(1);
    bed.run(App::new(Kind::Pod, "ns", "lost")).await;
    let key = Key::new("ns", "lost");
    bed.set_ready("node-01", "Unknown");
    bed.delete(&PODS, &key, &DeleteOptions::default());
    bed.pass(Duration::from_secs(300)).await;
    assert!(bed.get(&PODS, &key).is_some_and(|pod| pod::is_terminating(&pod)));
    bed.set_ready("node-01", "True");
    bed.until("the pod is gone", |state| pods(state).is_empty()).await;
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_fits_nowhere_says_why_and_runs_when_a_node_changes() {
    let bed = Bed::new(1);
    bed.cordon("node-01");
    web().create(&bed.cluster).unwrap();
    let unschedulable = |pod: &Value| {
        let condition = condition::find(&pod["status"], "PodScheduled")?;
        (condition["reason"] == "Unschedulable").then(|| condition["message"].as_str().map(str::to_owned))?
    };
    bed.until("a pod cannot be scheduled", |state| {
        pods(state).first().is_some_and(|pod| unschedulable(pod).is_some())
    })
    .await;
    let message = bed.read(|state| unschedulable(&pods(state)[0]));
    assert_eq!(message.as_deref(), Some("0/1 nodes are available: 1 node(s) were unschedulable."));
    bed.edit(&NODES, &Key::cluster("node-01"), Part::Main, |node| {
        node["spec"] = json!({});
    });
    bed.until("it runs", |state| ready(state).len() == 1).await;
}

#[tokio::test(start_paused = true)]
async fn a_full_node_takes_no_more_pods() {
    let bed = Bed::new(2);
    for number in 1..=2 {
        bed.edit(&NODES, &Key::cluster(node_name(number, 2)), Part::Status, |node| {
            node["status"]["allocatable"]["pods"] = json!("2");
        });
    }
    web().replicas(5).create(&bed.cluster).unwrap();
    bed.until("four run", |state| ready(state).len() == 4).await;
    bed.pass(Duration::from_secs(5)).await;
    assert_eq!(bed.read(|state| ready(state).len()), 4);
    let pod = bed.read(|state| ready(state).remove(0));
    bed.delete(&PODS, &Key::of(&pod), &DeleteOptions::default());
    bed.until("the freed place is taken", |state| {
        ready(state).len() == 4 && !ready(state).iter().any(|ready| pod::uid(ready) == pod::uid(&pod))
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_is_never_ready_runs_and_is_not_ready_until_told() {
    let bed = Bed::new(1);
    let key = Key::new("ns", "sick");
    let app = App::new(Kind::Pod, "ns", "sick").annotation(annotations::NEVER_READY, "true");
    app.create(&bed.cluster).unwrap();
    bed.until("it runs", |state| state.get(&PODS, &key).is_some_and(|pod| pod::phase(&pod) == "Running"))
        .await;
    bed.pass(Duration::from_secs(5)).await;
    assert!(!pod::is_ready(&bed.get(&PODS, &key).unwrap()));
    bed.edit(&PODS, &key, Part::Main, |pod| {
        pod["metadata"]["annotations"] = json!({});
    });
    bed.until("it is ready", |state| ready(state).len() == 1).await;
}
