use std::sync::Arc;
use std::sync::atomic::Ordering;

use futures::future::join_all;
use nm_core::client::cluster::Cluster;
use nm_core::testing::fake_server::{cluster, failure, slow_cluster};
use serde_json::{Value, json};

use super::*;
use crate::health_round::Workloads;
use crate::record::{LABEL, NODE, SETTINGS, STATE};

const AGENT: &str = "/apis/apps/v1/namespaces/ops/daemonsets/agent";

fn disturbed(kind: DisturbedKind, name: &str) -> DisturbedObject {
    DisturbedObject { kind, namespace: String::from("ops"), name: name.to_owned() }
}

/// A pod of a controller on the node.
fn pod(name: &str, owner: (&str, &str), is_ready: bool) -> Value {
    json!({
        "metadata": {"namespace": "ops", "name": name, "labels": {"app": owner.1}, "ownerReferences": [{
            "apiVersion": "apps/v1", "kind": owner.0, "name": owner.1, "uid": "u", "controller": true}]},
        "spec": {"nodeName": "n1", "containers": []},
        "status": {"phase": "Running", "conditions": [
            {"type": "Ready", "status": if is_ready { "True" } else { "False" }}]},
    })
}

fn list(kind: &str, items: &[Value]) -> (u16, Value) {
    (200, json!({"kind": format!("{kind}List"), "apiVersion": "v1", "metadata": {}, "items": items}))
}

fn object(kind: &str, name: &str, fields: &Value) -> Value {
    let mut object =
        json!({"apiVersion": "apps/v1", "kind": kind, "metadata": {"namespace": "ops", "name": name}});
    object.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
    object
}

/// Whether the node passes the gate with these pods, and with this answer for the DaemonSet.
async fn checked(pods: Vec<Value>, set: (u16, Value)) -> Health {
    let (cluster, _) = cluster(move |_, path| match path {
        AGENT => set.clone(),
        _ => list("Pod", &pods),
    });
    let round = Round::new(&cluster, &Workloads::default());
    daemon_sets(&round, "n1", &[disturbed(DisturbedKind::DaemonSet, "agent")]).await.unwrap().health
}

fn daemon_set_with(wanted: i64, scheduled: i64) -> (u16, Value) {
    let status = json!({"status": {"desiredNumberScheduled": wanted, "currentNumberScheduled": scheduled}});
    (200, object("DaemonSet", "agent", &status))
}

#[tokio::test]
async fn a_daemon_set_has_to_have_a_ready_pod_on_the_node_again() {
    let agent = |is_ready| pod("agent-1", ("DaemonSet", "agent"), is_ready);
    assert_eq!(checked(vec![agent(true)], daemon_set_with(3, 3)).await, Health::Healthy);
    let waiting = Health::Waiting(String::from("the pod of DaemonSet ops/agent is not Ready"));
    assert_eq!(checked(vec![agent(false)], daemon_set_with(3, 3)).await, waiting);
    assert_eq!(checked(vec![], daemon_set_with(3, 2)).await, waiting);
    let other = pod("other-1", ("DaemonSet", "other"), true);
    assert_eq!(checked(vec![other], daemon_set_with(3, 2)).await, waiting);
    let mut leaving = agent(true);
    leaving["metadata"]["deletionTimestamp"] = json!("2026-01-02T03:04:05Z");
    assert_eq!(checked(vec![leaving], daemon_set_with(3, 3)).await, waiting);
    // Whether the set still wants a pod there is not known.
    assert_eq!(checked(vec![], failure(403, "Forbidden", "agent")).await, waiting);
    let mut changed = daemon_set_with(2, 2);
    changed.1["metadata"]["generation"] = json!(2);
    changed.1["status"]["observedGeneration"] = json!(1);
    assert_eq!(checked(vec![], changed).await, waiting, "the status is of before a change");
}

#[tokio::test]
async fn a_daemon_set_that_was_deleted_or_no_longer_selects_the_node_is_not_waited_for() {
    assert_eq!(checked(vec![], failure(404, "NotFound", "agent")).await, Health::Healthy);
    assert_eq!(checked(vec![], daemon_set_with(2, 2)).await, Health::Healthy);
}

#[tokio::test]
async fn what_was_not_healthy_before_the_drain_need_not_be_healthy_afterwards() {
    let pods = [
        pod("web-1", ("Deployment", "web"), true),
        pod("ill-1", ("Deployment", "ill"), true),
        pod("db-0", ("StatefulSet", "db"), true),
        pod("agent-1", ("DaemonSet", "agent"), true),
        pod("broken-1", ("DaemonSet", "broken"), false),
    ];
    let budget = |name: &str, healthy: i64| {
        json!({"metadata": {"namespace": "ops", "name": name},
            "spec": {"selector": {"matchLabels": {"app": "web"}}},
            "status": {"currentHealthy": healthy, "desiredHealthy": 2, "disruptionsAllowed": 0, "expectedPods": 3}})
    };
    let (cluster, _) = cluster(move |_, path| match path.rsplit('/').next().unwrap() {
        "pods" => list("Pod", &pods),
        "poddisruptionbudgets" => list("PodDisruptionBudget", &[budget("calm", 2), budget("tight", 1)]),
        "calm" => (200, object("PodDisruptionBudget", "calm", &budget("calm", 2))),
        "tight" => (200, object("PodDisruptionBudget", "tight", &budget("tight", 1))),
        "web" => (
            200,
            object(
                "Deployment",
                "web",
                &json!({"spec": {"replicas": 2}, "status": {"availableReplicas": 2}}),
            ),
        ),
        "ill" => (
            200,
            object(
                "Deployment",
                "ill",
                &json!({"spec": {"replicas": 2}, "status": {"availableReplicas": 1}}),
            ),
        ),
        "db" => (
            200,
            object("StatefulSet", "db", &json!({"spec": {"replicas": 3}, "status": {"readyReplicas": 3}})),
        ),
        other => failure(404, "NotFound", other),
    });
    let pressure = BTreeSet::from([String::from("DiskPressure")]);
    let round = Round::new(&cluster, &Workloads::default());
    let view = NodeView { pressure, ..NodeView::default() };
    let before = baseline(&round, "n1", &view, &BTreeSet::new()).await.unwrap();
    assert_eq!(before.pressure, ["DiskPressure"]);
    let names: Vec<&str> = before.healthy.iter().map(|one| one.name.as_str()).collect();
    assert_eq!(names, ["web", "db", "agent", "calm"]);
    let unchecked: Vec<String> = before.unchecked.iter().map(ToString::to_string).collect();
    assert_eq!(unchecked, ["Deployment ops/ill", "PodDisruptionBudget ops/tight", "DaemonSet ops/broken"]);
}

#[tokio::test]
async fn a_workload_of_another_api_group_is_not_read_as_one_of_apps() {
    let mut foreign = pod("db-0", ("StatefulSet", "db"), true);
    foreign["metadata"]["ownerReferences"][0]["apiVersion"] = json!("apps.kruise.io/v1beta1");
    let (cluster, requests) = cluster(move |_, path| match path.rsplit('/').next().unwrap() {
        "pods" => list("Pod", std::slice::from_ref(&foreign)),
        "poddisruptionbudgets" => list("PodDisruptionBudget", &[]),
        other => failure(404, "NotFound", other),
    });
    let round = Round::new(&cluster, &Workloads::default());
    let before = baseline(&round, "n1", &NodeView::default(), &BTreeSet::new()).await.unwrap();
    assert_eq!(before.healthy, []);
    let requests = requests.lock().unwrap();
    assert!(!requests.iter().any(|request| request.contains("statefulsets")), "{requests:?}");
}

async fn recovered(cluster: &Cluster, one: DisturbedObject) -> Health {
    recovery(&Round::new(cluster, &Workloads::default()), &[one], &[]).await.unwrap().health
}

#[tokio::test]
async fn each_object_is_read_once_in_a_round_and_the_workload_of_a_replica_set_once_in_a_roll() {
    let pods = ["web-1", "web-2", "web-3"].map(|name| pod(name, ("ReplicaSet", "web-7"), true));
    let mut set = object("ReplicaSet", "web-7", &json!({}));
    set["metadata"]["ownerReferences"] = json!([{"apiVersion": "apps/v1", "kind": "Deployment", "name": "web", "uid": "d", "controller": true}]);
    let budget = json!({"metadata": {"namespace": "ops", "name": "web"},
        "spec": {"selector": {"matchLabels": {"app": "web-7"}}},
        "status": {"currentHealthy": 3, "desiredHealthy": 2, "disruptionsAllowed": 1, "expectedPods": 3}});
    let web = json!({"spec": {"replicas": 3}, "status": {"availableReplicas": 3}});
    let (cluster, requests) = cluster(move |_, path| match path {
        _ if path.ends_with("pods") => list("Pod", &pods),
        _ if path.ends_with("replicasets/web-7") => (200, set.clone()),
        _ if path.ends_with("poddisruptionbudgets") => {
            list("PodDisruptionBudget", std::slice::from_ref(&budget))
        }
        _ if path.ends_with("poddisruptionbudgets/web") => (200, budget.clone()),
        _ => (200, object("Deployment", "web", &web)),
    });
    let workloads = Workloads::default();
    let count = |what: &str| {
        let requests = requests.lock().unwrap();
        requests.iter().filter(|request| request.contains(what)).count()
    };
    let none = BTreeSet::new();
    for rounds in 1..3 {
        let (round, view) = (Round::new(&cluster, &workloads), NodeView::default());
        let read = ["n1", "n2"].map(|node| baseline(&round, node, &view, &none));
        for before in join_all(read).await {
            assert_eq!(before.unwrap().healthy.len(), 2, "the Deployment and the budget");
        }
        assert_eq!(count("/replicasets/web-7"), 1);
        assert_eq!((count("/deployments/web"), count("/poddisruptionbudgets")), (rounds, rounds));
    }
}

#[tokio::test]
async fn what_was_not_healthy_is_read_alone_until_it_is_and_then_everything_is_read() {
    use DisturbedKind::{Deployment, StatefulSet};
    let both = [disturbed(Deployment, "web"), disturbed(StatefulSet, "db")];
    let check = async |available: i64, ill: &[DisturbedObject], reads: usize| {
        let status =
            json!({"spec": {"replicas": 2}, "status": {"availableReplicas": available, "readyReplicas": 2}});
        let (cluster, requests) = cluster(move |_, _| (200, object("Deployment", "web", &status)));
        let round = Round::new(&cluster, &Workloads::default());
        let NodeCheck { health, ill, .. } = recovery(&round, &both, ill).await.unwrap();
        assert_eq!(requests.lock().unwrap().len(), reads);
        (health == Health::Healthy, ill)
    };
    let web = [disturbed(Deployment, "web")];
    assert_eq!(check(1, &[], 2).await, (false, web.to_vec()));
    assert_eq!(check(1, &web, 1).await, (false, web.to_vec()));
    assert_eq!(check(2, &web, 2).await, (true, Vec::new()));
}

#[tokio::test]
async fn workloads_and_budgets_recover_when_their_numbers_are_back() {
    use DisturbedKind::{Deployment, PodDisruptionBudget, ReplicaSet, StatefulSet};
    let replicas = |ready: &str, number: i64| json!({"spec": {"replicas": 3}, "status": {(ready): number}});
    let healthy = |number: i64| json!({"status": {"currentHealthy": number, "desiredHealthy": 3}});
    for (kind, fields, problem) in [
        (Deployment, replicas("availableReplicas", 3), None),
        (
            Deployment,
            replicas("availableReplicas", 2),
            Some("Deployment ops/x has 2 of 3 replicas available"),
        ),
        (Deployment, json!({"status": {}}), Some("Deployment ops/x has 0 of 1 replicas available")),
        (
            ReplicaSet,
            replicas("availableReplicas", 1),
            Some("ReplicaSet ops/x has 1 of 3 replicas available"),
        ),
        (StatefulSet, replicas("readyReplicas", 3), None),
        (StatefulSet, replicas("readyReplicas", 0), Some("StatefulSet ops/x has 0 of 3 replicas ready")),
        (PodDisruptionBudget, healthy(3), None),
        (PodDisruptionBudget, healthy(2), Some("PodDisruptionBudget ops/x has 2 of 3 pods healthy")),
    ] {
        let found = object(kind.word(), "x", &fields);
        let (cluster, _) = cluster(move |_, _| (200, found.clone()));
        let expected = problem.map_or(Health::Healthy, |why| Health::Waiting(why.to_owned()));
        assert_eq!(recovered(&cluster, disturbed(kind, "x")).await, expected, "{fields}");
    }
    // Its status is of before a change.
    let mut old = object("Deployment", "x", &replicas("availableReplicas", 3));
    (old["metadata"]["generation"], old["status"]["observedGeneration"]) = (json!(2), json!(1));
    for (answer, is_healthy) in
        [((200, old), false), (failure(404, "NotFound", "x"), true), (failure(403, "Forbidden", "x"), true)]
    {
        let (cluster, _) = cluster(move |_, _| answer.clone());
        let health = recovered(&cluster, disturbed(Deployment, "x")).await;
        assert_eq!(health == Health::Healthy, is_healthy, "{health:?}");
    }
}

#[tokio::test]
async fn who_looks_at_a_halted_roll_reads_the_health_of_its_nodes_as_far_as_that_is_permitted() {
    let halted = json!({"revision": 2, "halt": {"node": "n1", "message": "m", "at": "2026-01-02T03:04:05Z"}});
    let now: Timestamp = "2026-01-02T03:07:25Z".parse().unwrap();
    let run = json!({"revision": 2, "runner": {"id": "x", "who": "ada", "at": now}});
    let deployment = |ready: i64| {
        let fields = json!({"spec": {"replicas": 1}, "status": {"availableReplicas": ready}});
        (200, object("Deployment", "web", &fields))
    };
    let waiting = Health::Waiting(String::from("Deployment ops/web has 0 of 1 replicas available"));
    for (record, step, answer, expected) in [
        (&halted, "Recovering", deployment(0), Some(waiting)),
        (&halted, "Recovering", deployment(1), Some(Health::Healthy)),
        (&halted, "Recovering", failure(403, "Forbidden", "no"), None),
        (&halted, "Soaking", deployment(1), None),
        (&run, "Recovering", deployment(0), None),
    ] {
        let roll = roll_with(record, step);
        let (cluster, _) = cluster(move |_, _| answer.clone());
        let found: Vec<Health> =
            probe(&cluster, &roll, None, now).await.into_iter().map(|one| one.health).collect();
        assert_eq!(found, expected.into_iter().collect::<Vec<_>>(), "{step}");
    }
}

#[tokio::test]
async fn a_probe_reads_each_object_once_and_reports_what_it_has_found_even_if_other_reads_are_forbidden() {
    let now: Timestamp = "2026-01-02T03:07:25Z".parse().unwrap();
    let workload = |kind: &str, name: &str| json!({"kind": kind, "namespace": "ops", "name": name});
    let (web, db) = (workload("Deployment", "web"), workload("StatefulSet", "db"));
    let (seen, hidden) = (workload("DaemonSet", "agent"), workload("DaemonSet", "hidden"));
    let (cluster, requests) = cluster(|_, path| match path.rsplit('/').next().unwrap() {
        "web" => (200, object("Deployment", "web", &json!({"spec": {"replicas": 1}, "status": {}}))),
        "pods" => list("Pod", &[pod("agent-1", ("DaemonSet", "agent"), false)]),
        other => failure(403, "Forbidden", other),
    });
    let nodes = [
        ("n1", "Recovering", json!([web])),
        ("n2", "Recovering", json!([db, web])),
        ("n3", "Recovering", json!([db])),
        ("n4", "Checking", json!([hidden, seen])),
        ("n5", "Checking", json!([hidden])),
    ];
    let halted = json!({"revision": 2, "halt": {"node": "n1", "message": "m", "at": "2026-01-02T03:04:05Z"}});
    let roll = roll_of(&halted, &nodes);
    let why = |problem: &str| Health::Waiting(problem.to_owned());
    let deployment = why("Deployment ops/web has 0 of 1 replicas available");
    let expected = [
        ("n1", deployment.clone()),
        ("n2", deployment),
        // Whether the other DaemonSet still has to have a pod there is not known.
        ("n4", why("the pod of DaemonSet ops/agent is not Ready")),
    ];
    let found = async |only: Option<&str>| {
        let found = probe(&cluster, &roll, only, now).await;
        found.into_iter().map(|one| (one.node, one.health)).collect::<Vec<_>>()
    };
    let expected = expected.map(|(node, health)| (node.to_owned(), health));
    assert_eq!(found(None).await, expected);
    let reads = |name: &str| {
        let requests = requests.lock().unwrap();
        requests.iter().filter(|request| request.contains(&format!("/{name}"))).count()
    };
    assert_eq!((reads("web"), reads("db"), reads("hidden")), (1, 1, 1));
    requests.lock().unwrap().clear();
    assert_eq!(found(Some("n1")).await, expected[..1]);
    assert_eq!((reads("web"), reads("db"), reads("hidden")), (1, 0, 0));
}

#[tokio::test]
async fn a_daemon_set_is_not_said_to_lack_a_pod_on_a_node_whose_pods_are_hidden() {
    let (cluster, _) = cluster(|_, path| match path {
        AGENT => daemon_set_with(3, 2),
        _ => failure(403, "Forbidden", "pods"),
    });
    let round = Round::new(&cluster, &Workloads::default());
    let sets = [disturbed(DisturbedKind::DaemonSet, "agent")];
    let NodeCheck { health, seen, .. } = daemon_sets(&round, "n1", &sets).await.unwrap();
    // The roll does not continue without it.
    assert_eq!((health != Health::Healthy, seen), (true, None));
}

#[tokio::test(start_paused = true)]
async fn a_probe_reads_few_of_many_nodes_at_a_time() {
    let names: Vec<String> = (0..20).map(|number| format!("n{number}")).collect();
    let workload = |name: &String| json!([{"kind": "Deployment", "namespace": "ops", "name": name}]);
    let nodes: Vec<_> = names.iter().map(|name| (name.as_str(), "Recovering", workload(name))).collect();
    let halted = json!({"revision": 2, "halt": {"node": "n1", "message": "m", "at": "2026-01-02T03:04:05Z"}});
    let (cluster, most) = slow_cluster(|_, _| (200, object("Deployment", "x", &json!({"status": {}}))));
    let now: Timestamp = "2026-01-02T03:07:25Z".parse().unwrap();
    assert_eq!(probe(&cluster, &roll_of(&halted, &nodes), None, now).await.len(), 20);
    assert_eq!(most.load(Ordering::Relaxed), MAX_CONCURRENT_NODES);
}

/// A roll with this record, and a node at this step, whose drain has disturbed a Deployment.
fn roll_with(record: &Value, step: &str) -> Roll {
    let web = json!([{"kind": "Deployment", "namespace": "ops", "name": "web"}]);
    roll_of(record, &[("n1", step, web)])
}

/// A roll with this record, and nodes, each with its step, and what was healthy before its drain.
fn roll_of(record: &Value, nodes: &[(&str, &str, Value)]) -> Roll {
    let settings = json!({"waves": [1], "maxUnavailable": 1, "minReadySeconds": 30, "actionTimeoutSeconds": 1,
        "returnTimeoutSeconds": 1, "recoveryTimeoutSeconds": 1});
    let objects = nodes.iter().enumerate().map(|(position, (name, step, healthy))| {
        let node = json!({"wave": 0, "position": position, "step": step, "since": "2026-01-02T03:04:05Z",
            "baseline": {"healthy": healthy}});
        let mut object = nm_core::testing::objects::requested(name);
        object.metadata.labels = Some([(LABEL.to_owned(), "r".to_owned())].into());
        let annotations = [(SETTINGS, &settings), (NODE, &node), (STATE, record)];
        let annotations = annotations.map(|(name, value)| (name.to_owned(), value.to_string()));
        object.metadata.annotations = Some(annotations.into());
        Arc::new(object)
    });
    Roll::find("r", &objects.collect::<Vec<_>>()).unwrap().unwrap()
}
