//! What Deployments promise while their pods are replaced.

use std::collections::BTreeSet;
use std::time::Duration;

use serde_json::{Value, json};

use crate::cluster::catalog::resource::{
    BUDGETS, DEPLOYMENTS, ENDPOINT_SLICES, NODES, PODS, QUOTAS, REPLICA_SETS, SERVICES,
};
use crate::cluster::registry::{DeleteOptions, Part};
use crate::cluster::store::{Key, State};
use crate::controllers::engine::test_cluster::{TestCluster, pods, ready, web};
use crate::model::{condition, pod};

fn key() -> Key {
    Key::new("ns", "web")
}

fn restart(test: &TestCluster, at: &str) {
    test.edit(&DEPLOYMENTS, &key(), Part::Main, |deployment| {
        deployment["spec"]["template"]["metadata"]["annotations"]["kubectl.kubernetes.io/restartedAt"] =
            json!(at);
    });
}

fn deployment(state: &State) -> Value {
    Value::clone(&state.get(&DEPLOYMENTS, &key()).unwrap())
}

/// Whether all pods are of the current template, as `kubectl rollout status` decides.
fn is_rolled_out(state: &State) -> bool {
    let deployment = deployment(state);
    let (spec, status) = (&deployment["spec"], &deployment["status"]);
    let all = &spec["replicas"];
    status["observedGeneration"] == deployment["metadata"]["generation"]
        && [&status["updatedReplicas"], &status["replicas"], &status["availableReplicas"]]
            .into_iter()
            .all(|n| n == all)
}

/// The endpoints that are ready, in all slices of the Service.
fn ready_endpoints(state: &State) -> usize {
    let slices: Vec<_> = state.list(&ENDPOINT_SLICES, Some("ns")).collect();
    let endpoints = slices.iter().flat_map(|slice| slice["endpoints"].as_array().into_iter().flatten());
    endpoints.filter(|endpoint| endpoint["conditions"]["ready"] == true).count()
}

fn serve(test: &TestCluster) {
    test.create(
        &SERVICES,
        json!({"metadata": {"namespace": "ns", "name": "web"},
            "spec": {"selector": {"app": "web"}, "ports": [{"port": 80}]}}),
    );
}

#[tokio::test(start_paused = true)]
async fn a_restart_of_one_pod_never_leaves_its_service_without_a_ready_endpoint() {
    let test = TestCluster::new(2);
    test.run(web().replicas(1).budget(json!({"minAvailable": 1}))).await;
    serve(&test);
    test.until("it has an endpoint", |state| ready_endpoints(state) == 1).await;
    let old = test.read(|state| pod::uid(&pods(state)[0]).to_owned());
    restart(&test, "now");
    test.until("the pod is replaced", |state| {
        assert!(ready_endpoints(state) > 0);
        is_rolled_out(state) && pods(state).len() == 1 && pod::uid(&pods(state)[0]) != old
    })
    .await;
    let annotations = test.read(deployment)["metadata"]["annotations"].clone();
    assert_eq!(annotations["deployment.kubernetes.io/revision"], "2");
}

#[tokio::test(start_paused = true)]
async fn an_old_pod_stays_until_the_new_one_was_ready_for_min_ready_seconds() {
    let test = TestCluster::new(2);
    test.run(web().replicas(1)).await;
    test.edit(&DEPLOYMENTS, &key(), Part::Main, |deployment| {
        deployment["spec"]["minReadySeconds"] = json!(30);
    });
    restart(&test, "now");
    test.until("both are Ready", |state| ready(state).len() == 2).await;
    test.pass(Duration::from_secs(25)).await;
    let counts = |status: &Value| [&status["readyReplicas"], &status["availableReplicas"]].map(Value::clone);
    assert_eq!(test.read(|state| ready(state).len()), 2);
    assert_eq!(counts(&test.read(deployment)["status"]), [json!(2), json!(1)]);
    test.until("the old one is gone", |state| is_rolled_out(state) && pods(state).len() == 1).await;
}

#[tokio::test(start_paused = true)]
async fn a_template_that_returns_makes_its_set_current_again() {
    let test = TestCluster::new(2);
    test.run(web().replicas(2)).await;
    restart(&test, "now");
    test.until("the pods are replaced", |state| is_rolled_out(state) && pods(state).len() == 2).await;
    test.edit(&DEPLOYMENTS, &key(), Part::Main, |deployment| {
        deployment["spec"]["template"]["metadata"].as_object_mut().unwrap().remove("annotations");
    });
    test.until("the old template is back", |state| {
        is_rolled_out(state)
            && deployment(state)["metadata"]["annotations"]["deployment.kubernetes.io/revision"] == "3"
    })
    .await;
    let mut sets: Vec<_> = test.read(|state| state.list(&REPLICA_SETS, Some("ns")).collect());
    sets.sort_by_key(|set| pod::annotation(set, "deployment.kubernetes.io/revision").unwrap().to_owned());
    let [old, current] = &*sets else { panic!("{sets:?}") };
    assert_eq!((&old["spec"]["replicas"], &current["spec"]["replicas"]), (&json!(0), &json!(2)));
    assert_eq!(pod::annotation(current, "deployment.kubernetes.io/revision-history"), Some("1"));
}

#[tokio::test(start_paused = true)]
async fn a_recreated_deployment_ends_its_pods_first_and_a_paused_one_keeps_them() {
    let test = TestCluster::new(2);
    test.run(web().replicas(2)).await;
    test.edit(&DEPLOYMENTS, &key(), Part::Main, |deployment| deployment["spec"]["paused"] = json!(true));
    restart(&test, "now");
    test.until("it is seen", |state| {
        let deployment = deployment(state);
        let progressing = condition::find(&deployment["status"], "Progressing").cloned().unwrap_or_default();
        deployment["status"]["observedGeneration"] == deployment["metadata"]["generation"]
            && progressing["reason"] == "DeploymentPaused"
    })
    .await;
    assert_eq!(test.read(|state| state.list(&REPLICA_SETS, Some("ns")).count()), 1);
    test.edit(&DEPLOYMENTS, &key(), Part::Main, |deployment| {
        deployment["spec"]["strategy"] = json!({"type": "Recreate"});
        deployment["spec"]["paused"] = json!(false);
    });
    let templates = |state: &State| {
        let hash = |pod: &Value| pod["metadata"]["labels"]["pod-template-hash"].to_string();
        pods(state).iter().map(|pod| hash(pod)).collect::<BTreeSet<_>>()
    };
    let old = test.read(templates);
    test.until("the pods are replaced", |state| {
        assert!(templates(state).len() < 2, "all have ended before the first is created");
        is_rolled_out(state) && pods(state).len() == 2 && templates(state) != old
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_rollout_that_does_not_progress_exceeds_its_deadline_and_may_still_end() {
    let test = TestCluster::new(2);
    test.run(web().replicas(1)).await;
    test.edit(&DEPLOYMENTS, &key(), Part::Main, |deployment| {
        deployment["spec"]["progressDeadlineSeconds"] = json!(60);
    });
    let set_schedulable = |schedulable: bool| {
        for node in test.read(|state| state.list(&NODES, None).map(|node| Key::of(&node)).collect::<Vec<_>>())
        {
            test.edit(&NODES, &node, Part::Main, |node| node["spec"]["unschedulable"] = json!(!schedulable));
        }
    };
    set_schedulable(false);
    restart(&test, "now");
    let progressing = |state: &State| {
        condition::find(&deployment(state)["status"], "Progressing").cloned().unwrap_or_default()
    };
    test.until("it goes on", |state| progressing(state)["reason"] == "ReplicaSetUpdated").await;
    let since = tokio::time::Instant::now();
    test.until("it exceeds its deadline", |state| progressing(state)["status"] == "False").await;
    assert!((58..=61).contains(&since.elapsed().as_secs()), "{:?}", since.elapsed());
    assert_eq!(test.read(progressing)["reason"], "ProgressDeadlineExceeded");
    set_schedulable(true);
    test.until("it ends", is_rolled_out).await;
    assert_eq!(test.read(progressing)["reason"], "NewReplicaSetAvailable");
}

#[tokio::test(start_paused = true)]
async fn a_quota_keeps_a_replacement_away_until_it_is_raised() {
    let test = TestCluster::new(2);
    test.run(web().replicas(1)).await;
    let quota = json!({"metadata": {"namespace": "ns", "name": "few"}, "spec": {"hard": {"pods": "1"}}});
    test.create(&QUOTAS, quota);
    restart(&test, "now");
    let failure = |state: &State| condition::find(&deployment(state)["status"], "ReplicaFailure").cloned();
    test.until("the deployment says why", |state| {
        let message = failure(state).unwrap_or_default()["message"].clone();
        message.to_string().contains("exceeded quota: few, requested: pods=1, used: pods=1, limited: pods=1")
    })
    .await;
    test.delete(&QUOTAS, &Key::new("ns", "few"), &DeleteOptions::default());
    test.until("the pod is replaced", |state| is_rolled_out(state) && failure(state).is_none()).await;
    assert!(test.read(|state| state.list(&PODS, Some("ns")).count()) >= 1);
    assert!(test.get(&BUDGETS, &key()).is_none());
}
