//! Promises that the controllers keep together.

use std::time::Duration;

use serde_json::{Value, json};

use crate::condition;
use crate::pod;
use crate::registry::Propagation;
use crate::registry::{DeleteOptions, Part};
use crate::resource::{BUDGETS, DAEMON_SETS, DEPLOYMENTS, LEASES, NAMESPACES, NODES, PODS, REPLICA_SETS};
use crate::store::{Key, State};
use crate::workload::{App, Kind, node_name};

use super::kubelet::annotations;
use super::test_bed::{Bed, pods, ready};

fn web() -> App {
    App::new(Kind::Deployment, "ns", "web")
}

fn budget_allows(state: &State, allowed: i64) -> bool {
    let budget = state.get(&BUDGETS, &Key::new("ns", "web"));
    budget.is_some_and(|budget| budget["status"]["disruptionsAllowed"] == allowed)
}

#[tokio::test(start_paused = true)]
async fn a_deployment_runs_spread_over_the_nodes() {
    let bed = Bed::new(3);
    bed.run(web().replicas(6)).await;
    let on = |node: usize| bed.read(|state| state.on_node(&PODS, &node_name(node, 3)).count());
    assert_eq!([on(1), on(2), on(3)], [2, 2, 2]);
    bed.until("the deployment says that it is available", |state| {
        let deployment = state.get(&DEPLOYMENTS, &Key::new("ns", "web")).unwrap();
        deployment["status"]["availableReplicas"] == 6
            && condition::is_true(&deployment["status"], "Available")
    })
    .await;
}

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
async fn a_budget_frees_when_a_replacement_is_ready() {
    let bed = Bed::new(2);
    bed.run(web().replicas(2).budget(json!({"maxUnavailable": 1}))).await;
    bed.until("the budget allows one", |state| budget_allows(state, 1)).await;
    let pods = bed.read(pods);
    bed.evict(&pods[0]).unwrap();
    let refusal = bed.evict(&pods[1]).unwrap_err();
    assert_eq!(refusal.code, 429);
    bed.until("the budget allows one again", |state| budget_allows(state, 1)).await;
    bed.evict(&pods[1]).unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_charge_for_a_pod_that_does_not_go_runs_out_after_two_minutes() {
    let bed = Bed::new(1);
    bed.run(web().replicas(2).budget(json!({"minAvailable": 1}))).await;
    bed.until("the budget allows one", |state| budget_allows(state, 1)).await;
    let pod = bed.read(|state| pods(state).remove(0));
    let foreign = json!({"preconditions": {"uid": "another"}});
    let refusal = bed.evict_with(&pod, &foreign, crate::registry::Effect::Real).unwrap_err();
    assert_eq!(refusal.code, 409);
    bed.until("the charge is noticed", |state| budget_allows(state, 0)).await;
    let before = bed.cluster.clock.now();
    bed.until("the budget is whole again", |state| budget_allows(state, 1)).await;
    assert!(bed.cluster.clock.now().duration_since(before).as_secs() >= 118);
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

#[tokio::test(start_paused = true)]
async fn a_smaller_deployment_keeps_fewer_pods_and_a_new_template_replaces_them() {
    let bed = Bed::new(2);
    bed.run(web().replicas(4)).await;
    let key = Key::new("ns", "web");
    bed.edit(&DEPLOYMENTS, &key, Part::Main, |deployment| {
        deployment["spec"]["replicas"] = json!(2);
    });
    bed.until("two are left", |state| pods(state).len() == 2).await;
    bed.edit(&DEPLOYMENTS, &key, Part::Main, |deployment| {
        deployment["spec"]["template"]["metadata"]["labels"]["version"] = json!("2");
    });
    bed.until("both are of the new template", |state| {
        let pods = pods(state);
        pods.len() == 2
            && pods.iter().all(|pod| pod["metadata"]["labels"]["version"] == "2" && pod::is_ready(pod))
    })
    .await;
    assert_eq!(bed.read(|state| state.list(&REPLICA_SETS, Some("ns")).count()), 2);
}

fn propagated(propagation: Propagation) -> DeleteOptions {
    DeleteOptions { propagation, ..DeleteOptions::default() }
}

#[tokio::test(start_paused = true)]
async fn daemonset_pods_tolerate_a_cordon_and_come_back_on_their_node() {
    let bed = Bed::new(3);
    bed.cordon("node-02");
    bed.run(App::new(Kind::DaemonSet, "ns", "agent")).await;
    let on_second = |state: &State| state.on_node(&PODS, "node-02").cloned().collect::<Vec<_>>();
    let pod = bed.read(on_second).remove(0);
    bed.delete(&PODS, &Key::of(&pod), &DeleteOptions::default());
    bed.until("another runs there", |state| {
        let pods = on_second(state);
        pods.len() == 1 && pod::is_ready(&pods[0]) && pod::uid(&pods[0]) != pod::uid(&pod)
    })
    .await;
    bed.until("all are counted", |state| {
        let set = state.get(&DAEMON_SETS, &Key::new("ns", "agent")).unwrap();
        set["status"]["desiredNumberScheduled"] == 3 && set["status"]["numberReady"] == 3
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_daemonset_stays_away_from_a_foreign_taint_but_not_for_it() {
    let bed = Bed::new(2);
    bed.run(App::new(Kind::DaemonSet, "ns", "agent")).await;
    bed.edit(&NODES, &Key::cluster("node-02"), Part::Main, |node| {
        node["spec"]["taints"] = json!([{"key": "medik8s.io/drain", "effect": "NoSchedule"}]);
    });
    bed.pass(Duration::from_secs(5)).await;
    let pod = bed.read(|state| state.on_node(&PODS, "node-02").next().cloned()).unwrap();
    bed.delete(&PODS, &Key::of(&pod), &DeleteOptions::default());
    bed.until("the pod is gone", |state| pods(state).len() == 1).await;
    bed.pass(Duration::from_secs(5)).await;
    assert_eq!(bed.read(|state| pods(state).len()), 1);
}

#[tokio::test(start_paused = true)]
async fn dependents_follow_their_owner_in_the_background() {
    let bed = Bed::new(1);
    bed.run(web().replicas(3)).await;
    bed.delete(&DEPLOYMENTS, &Key::new("ns", "web"), &DeleteOptions::default());
    assert!(bed.get(&DEPLOYMENTS, &Key::new("ns", "web")).is_none());
    bed.until("all is gone", |state| {
        pods(state).is_empty() && state.list(&REPLICA_SETS, Some("ns")).next().is_none()
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn an_owner_deleted_in_the_foreground_goes_last() {
    let bed = Bed::new(1);
    bed.run(web().replicas(3)).await;
    let key = Key::new("ns", "web");
    bed.delete(&DEPLOYMENTS, &key, &propagated(Propagation::Foreground));
    bed.until("the pods are gone", |state| {
        let gone = pods(state).is_empty();
        assert!(gone || state.get(&DEPLOYMENTS, &key).is_some());
        gone
    })
    .await;
    bed.until("the deployment is gone", |state| state.get(&DEPLOYMENTS, &key).is_none()).await;
}

#[tokio::test(start_paused = true)]
async fn orphans_stay_and_lose_their_owner() {
    let bed = Bed::new(1);
    bed.run(web().replicas(2)).await;
    let set = bed.read(|state| state.list(&REPLICA_SETS, Some("ns")).next().cloned()).unwrap();
    bed.delete(&DEPLOYMENTS, &Key::new("ns", "web"), &propagated(Propagation::Orphan));
    bed.until("the deployment is gone", |state| state.list(&DEPLOYMENTS, Some("ns")).next().is_none()).await;
    bed.pass(Duration::from_secs(5)).await;
    let set = bed.get(&REPLICA_SETS, &Key::of(&set)).unwrap();
    assert_eq!(pod::owners(&set).count(), 0);
    assert_eq!(bed.read(|state| ready(state).len()), 2);
}

#[tokio::test(start_paused = true)]
async fn an_object_whose_owner_never_was_is_collected() {
    let bed = Bed::new(1);
    let owned_by = |uid: &str| {
        json!({"metadata": {"namespace": "ns", "name": format!("of-{}", &uid[..4]), "ownerReferences": [
            {"apiVersion": "v1", "kind": "Node", "name": "node-01", "uid": uid}]}})
    };
    let node = bed.get(&NODES, &Key::cluster("node-01")).unwrap();
    let kept = bed.create(&LEASES, owned_by(pod::uid(&node)));
    let stale = bed.create(&LEASES, owned_by("an uid of a node of long ago"));
    bed.until("the stale one is gone", |state| state.get(&LEASES, &Key::of(&stale)).is_none()).await;
    bed.pass(Duration::from_secs(5)).await;
    assert!(bed.get(&LEASES, &Key::of(&kept)).is_some());
    bed.delete(&NODES, &Key::cluster("node-01"), &DeleteOptions::default());
    bed.until("the node's lease follows it", |state| state.get(&LEASES, &Key::of(&kept)).is_none()).await;
}

#[tokio::test(start_paused = true)]
async fn a_namespace_goes_after_what_is_in_it() {
    let bed = Bed::new(1);
    bed.run(web().replicas(2).budget(json!({"minAvailable": 2}))).await;
    bed.terminate_namespace("ns");
    let key = Key::cluster("ns");
    bed.until("the namespace is gone", |state| {
        let there = state.get(&NAMESPACES, &key).is_some();
        assert!(there || pods(state).is_empty());
        !there
    })
    .await;
    assert!(bed.read(|state| state.list(&BUDGETS, Some("ns")).next().is_none()));
}

#[tokio::test(start_paused = true)]
async fn pods_of_a_node_that_is_gone_go_after_a_quarantine() {
    let bed = Bed::new(2);
    bed.run(web().replicas(2)).await;
    bed.delete(&NODES, &Key::cluster("node-02"), &DeleteOptions::default());
    bed.pass(Duration::from_secs(39)).await;
    assert_eq!(bed.read(|state| state.on_node(&PODS, "node-02").count()), 1);
    bed.until("both run on the other node", |state| {
        ready(state).len() == 2 && state.on_node(&PODS, "node-01").count() == 2
    })
    .await;
}
