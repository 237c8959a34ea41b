//! What the controllers of workloads promise.

use std::time::Duration;

use serde_json::json;

use crate::cluster::catalog::resource::{
    BUDGETS, DAEMON_SETS, DEPLOYMENTS, JOBS, NODES, PODS, REPLICA_SETS, STATEFUL_SETS,
};
use crate::cluster::registry::{self, DeleteOptions, Effect, Part};
use crate::cluster::store::{Key, State};
use crate::controllers::engine::test_cluster::{TestCluster, pods, ready, web};
use crate::controllers::nodes::kubelet::annotations;
use crate::model::{condition, pod};
use crate::workload::{App, Kind, node_name};

#[tokio::test(start_paused = true)]
async fn a_deployment_runs_spread_over_the_nodes() {
    let test = TestCluster::new(3);
    test.run(web().replicas(6)).await;
    let on = |node: usize| test.read(|state| state.on_node(&PODS, &node_name(node, 3)).count());
    assert_eq!([on(1), on(2), on(3)], [2, 2, 2]);
    test.until("the deployment says that it is available", |state| {
        let deployment = state.get(&DEPLOYMENTS, &Key::new("ns", "web")).unwrap();
        deployment["status"]["availableReplicas"] == 6
            && condition::is_true(&deployment["status"], "Available")
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_pod_whose_template_assigns_it_to_a_node_shows_that_its_controller_did() {
    let test = TestCluster::new(2);
    let apps = [(Kind::Deployment, "web"), (Kind::StatefulSet, "db"), (Kind::Job, "batch")];
    for (kind, name) in apps {
        test.run(App::new(kind, "ns", name).node_name("node-02")).await;
    }
    test.run(App::new(Kind::Deployment, "ns", "free")).await;
    test.until("all have pods", |state| pods(state).len() == 4).await;
    let all = test.read(pods);
    for pod in all {
        let managers = &pod["metadata"]["managedFields"];
        if pod::name(&pod).starts_with("free") {
            assert!(managers.is_null(), "the scheduler assigned it: {managers}");
            continue;
        }
        let created = &pod["metadata"]["creationTimestamp"];
        let expected = json!([{"manager": "kube-controller-manager", "operation": "Update", "apiVersion": "v1",
            "time": created, "fieldsType": "FieldsV1", "fieldsV1": {"f:spec": {"f:nodeName": {}}}}]);
        assert_eq!(*managers, expected, "{}", pod::name(&pod));
    }
}

#[tokio::test(start_paused = true)]
async fn a_smaller_deployment_keeps_fewer_pods_and_a_new_template_replaces_them() {
    let test = TestCluster::new(2);
    test.run(web().replicas(4)).await;
    let key = Key::new("ns", "web");
    test.edit(&DEPLOYMENTS, &key, Part::Main, |deployment| {
        deployment["spec"]["replicas"] = json!(2);
    });
    test.until("two are left", |state| pods(state).len() == 2).await;
    test.edit(&DEPLOYMENTS, &key, Part::Main, |deployment| {
        deployment["spec"]["template"]["metadata"]["labels"]["version"] = json!("2");
    });
    test.until("both are of the new template", |state| {
        let pods = pods(state);
        pods.len() == 2
            && pods.iter().all(|pod| pod["metadata"]["labels"]["version"] == "2" && pod::is_ready(pod))
    })
    .await;
    assert_eq!(test.read(|state| state.list(&REPLICA_SETS, Some("ns")).count()), 2);
}

#[tokio::test(start_paused = true)]
async fn daemonset_pods_tolerate_a_cordon_and_come_back_on_their_node() {
    let test = TestCluster::new(3);
    test.cordon("node-02");
    test.run(App::new(Kind::DaemonSet, "ns", "agent")).await;
    let on_second = |state: &State| state.on_node(&PODS, "node-02").collect::<Vec<_>>();
    let pod = test.read(on_second).remove(0);
    test.delete(&PODS, &Key::of(&pod), &DeleteOptions::default());
    test.until("another runs there", |state| {
        let pods = on_second(state);
        pods.len() == 1 && pod::is_ready(&pods[0]) && pod::uid(&pods[0]) != pod::uid(&pod)
    })
    .await;
    test.until("all are counted", |state| {
        let set = state.get(&DAEMON_SETS, &Key::new("ns", "agent")).unwrap();
        set["status"]["desiredNumberScheduled"] == 3 && set["status"]["numberReady"] == 3
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_daemonset_stays_away_from_a_foreign_taint_but_not_for_it() {
    let test = TestCluster::new(2);
    test.run(App::new(Kind::DaemonSet, "ns", "agent")).await;
    test.edit(&NODES, &Key::cluster("node-02"), Part::Main, |node| {
        node["spec"]["taints"] = json!([{"key": "medik8s.io/drain", "effect": "NoSchedule"}]);
    });
    test.pass(Duration::from_secs(5)).await;
    let pod = test.read(|state| state.on_node(&PODS, "node-02").next()).unwrap();
    test.delete(&PODS, &Key::of(&pod), &DeleteOptions::default());
    test.until("the pod is gone", |state| pods(state).len() == 1).await;
    test.pass(Duration::from_secs(5)).await;
    assert_eq!(test.read(|state| pods(state).len()), 1);
}

#[tokio::test(start_paused = true)]
async fn a_statefulset_starts_its_pods_one_after_another() {
    let test = TestCluster::new(3);
    let before = test.cluster.clock.now();
    test.run(App::new(Kind::StatefulSet, "ns", "db").replicas(3)).await;
    let took = test.cluster.clock.now().duration_since(before);
    assert!(took.as_millis() >= 3 * 200, "{took}");
    let names: Vec<String> = test.read(|state| pods(state).iter().map(|pod| pod::name(pod).into()).collect());
    assert_eq!(names, ["db-0", "db-1", "db-2"]);
}

#[tokio::test(start_paused = true)]
async fn a_statefulset_pod_returns_under_its_name_only_after_the_old_one_is_gone() {
    let test = TestCluster::new(2);
    test.run(App::new(Kind::StatefulSet, "ns", "db").replicas(2)).await;
    let key = Key::new("ns", "db-0");
    let old = test.get(&PODS, &key).unwrap();
    let before = test.cluster.clock.now();
    test.cordon(pod::node(&old).unwrap());
    test.evict(&old).unwrap();
    test.until("another bears the name", |state| {
        state.get(&PODS, &key).is_some_and(|pod| pod::uid(&pod) != pod::uid(&old))
    })
    .await;
    let took = test.cluster.clock.now().duration_since(before);
    assert!(took.as_millis() >= 1_000, "{took}");
    test.until("it is ready elsewhere", |state| {
        let pod = state.get(&PODS, &key).unwrap();
        pod::is_ready(&pod) && pod::node(&pod) != pod::node(&old)
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_smaller_statefulset_loses_its_last_pod_first() {
    let test = TestCluster::new(1);
    test.run(App::new(Kind::StatefulSet, "ns", "db").replicas(3)).await;
    test.edit(&STATEFUL_SETS, &Key::new("ns", "db"), Part::Main, |set| {
        set["spec"]["replicas"] = json!(1);
    });
    test.until("the last is gone", |state| pods(state).len() == 2).await;
    assert_eq!(test.read(|state| pod::name(&pods(state)[1]).to_owned()), "db-1");
    test.until("one is left", |state| pods(state).len() == 1).await;
}

#[tokio::test(start_paused = true)]
async fn a_job_replaces_a_pod_that_is_evicted_and_completes() {
    let test = TestCluster::new(2);
    let job = App::new(Kind::Job, "ns", "import").replicas(2).annotation(annotations::RUN_FOR, "10s");
    test.run(job).await;
    let pod = test.read(|state| pods(state).remove(0));
    for name in ["job-name", "batch.kubernetes.io/job-name"] {
        assert_eq!(pod["metadata"]["labels"][name], "import");
    }
    test.evict(&pod).unwrap();
    test.until("the job is complete", |state| {
        let job = state.get(&JOBS, &Key::new("ns", "import")).unwrap();
        condition::is_true(&job["status"], "Complete") && job["status"]["succeeded"] == 2
    })
    .await;
    let job = test.get(&JOBS, &Key::new("ns", "import")).unwrap();
    assert_eq!(job["status"]["failed"], 1, "the one that was evicted");
    test.until("its pods have finished", |state| {
        pods(state).len() == 2 && pods(state).iter().all(|pod| pod::phase(pod) == "Succeeded")
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_job_waits_longer_before_each_pod_that_replaces_a_failed_one() {
    let test = TestCluster::new(2);
    test.run(App::new(Kind::Job, "ns", "import")).await;
    for wait in [10, 20, 40] {
        let evicted = test.read(|state| pods(state).remove(0));
        test.evict(&evicted).unwrap();
        let now = test.cluster.clock.now();
        let replaces = |state: &State| pods(state).iter().any(|pod| pod::uid(pod) != pod::uid(&evicted));
        test.until("it is replaced", replaces).await;
        let waited = test.cluster.clock.now().duration_since(now).as_secs();
        assert_eq!(waited, wait);
        test.until("it runs", |state| ready(state).len() == 1 && pods(state).len() == 1).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_job_fails_when_more_pods_are_deleted_than_it_may_lose_but_not_by_those_it_lets_go() {
    let test = TestCluster::new(2);
    test.run(App::new(Kind::Job, "ns", "import").replicas(3).annotation(annotations::RUN_FOR, "1h")).await;
    let key = Key::new("ns", "import");
    test.edit(&JOBS, &key, Part::Main, |job| {
        job["spec"]["backoffLimit"] = json!(1);
        job["spec"]["parallelism"] = json!(2);
    });
    test.until("two are left", |state| pods(state).len() == 2).await;
    assert_eq!(test.get(&JOBS, &key).unwrap()["status"]["failed"], 0);
    let at_once = DeleteOptions { grace_period_seconds: Some(0), ..DeleteOptions::default() };
    let failed = |state: &State| state.get(&JOBS, &key).unwrap()["status"]["failed"].clone();
    for deleted in 1..=2 {
        let pod = test.read(|state| pods(state).remove(0));
        test.delete(&PODS, &Key::of(&pod), &at_once);
        test.until("it is counted", |state| failed(state).as_i64() >= Some(deleted)).await;
    }
    test.until("the job has failed", |state| {
        condition::is_true(&state.get(&JOBS, &key).unwrap()["status"], "Failed") && pods(state).is_empty()
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_large_statefulset_grows_and_shrinks_without_keeping_others_from_the_state() {
    let test = TestCluster::new(3);
    let mut set = App::new(Kind::StatefulSet, "ns", "db").replicas(300).objects().remove(0).1;
    set["spec"]["podManagementPolicy"] = json!("Parallel");
    let seen = std::sync::Mutex::new(std::collections::BTreeSet::new());
    test.create(&STATEFUL_SETS, set);
    test.until("all are there", |state| {
        let there = pods(state).len();
        seen.lock().unwrap().insert(there);
        there == 300
    })
    .await;
    test.edit(&STATEFUL_SETS, &Key::new("ns", "db"), Part::Main, |set| set["spec"]["replicas"] = json!(10));
    test.until("ten are left", |state| pods(state).len() == 10).await;
    let seen = seen.into_inner().unwrap();
    assert!(seen.iter().any(|there| (1..300).contains(there)), "others had a turn midway: {seen:?}");
}

#[tokio::test(start_paused = true)]
async fn controllers_carry_on_when_history_is_lost() {
    let test = TestCluster::new(2);
    test.run(web().replicas(3).budget(json!({"minAvailable": 3}))).await;
    test.run(App::new(Kind::DaemonSet, "ns", "agent")).await;
    let resource = test.cluster.catalog.of(&PODS).unwrap();
    let now = DeleteOptions { grace_period_seconds: Some(0), ..DeleteOptions::default() };
    let time = test.cluster.clock.now();
    test.cluster.store.write(|state| {
        for pod in pods(state).iter().step_by(2) {
            registry::delete(state, &resource, &Key::of(pod), &now, time, Effect::Real).unwrap();
        }
        state.compact();
    });
    test.until("all are there again", |state| ready(state).len() == 5).await;
    test.pass(Duration::from_secs(5)).await;
    assert_eq!(test.read(|state| pods(state).len()), 5);
    let budget = test.get(&BUDGETS, &Key::new("ns", "web")).unwrap();
    assert_eq!(budget["status"]["currentHealthy"], 3);
}
