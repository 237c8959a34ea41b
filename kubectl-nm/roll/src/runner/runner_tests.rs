//! What a program that runs a roll requests from a fake server.

use std::sync::atomic::{AtomicUsize, Ordering};

use futures::future::LocalBoxFuture;
use futures::{FutureExt, future};
use jiff::SignedDuration;
use nm_core::testing::fake_server::{NEVER, cluster, failure, list, reading_cluster};
use serde_json::{Value, json};

use super::*;
use crate::observed::NodeView;
use crate::record::Runner;
use crate::record::{DisturbedKind, DisturbedObject, LABEL, NODE, SETTINGS, STATE, annotation};
use crate::settings::NodeAction;

/// Nobody looks at it.
struct Silent;

impl RollReporter for Silent {
    fn show(&mut self, _: &RollView) -> Result<(), Error> {
        Ok(())
    }

    fn output(&mut self, _: &NodeOutputLine) -> Result<(), Error> {
        Ok(())
    }

    fn ask(&mut self, _: &str) -> Result<(), Error> {
        Ok(())
    }

    fn show_error(&mut self, _: &Error) {}

    fn next_input(&mut self) -> LocalBoxFuture<'_, Result<RollInput, Error>> {
        future::pending().boxed_local()
    }
}

/// A roll of one planned node, whose runner has last written this long ago.
fn planned(since_heartbeat: SignedDuration) -> (NodeMaintenance, RollRecord) {
    let now = Timestamp::now();
    let runner = Some(Runner {
        id: "me".into(),
        who: "me@here".into(),
        at: now - since_heartbeat,
        in_cluster: false,
        node: None,
    });
    let record = RollRecord { revision: 1, runner, ..RollRecord::default() };
    let settings = json!({"waves": [1], "maxUnavailable": 1, "minReadySeconds": 30, "actionTimeoutSeconds": 1,
        "returnTimeoutSeconds": 1, "recoveryTimeoutSeconds": 1});
    let node = json!({"wave": 0, "position": 0, "step": "Planned", "since": now});
    let object = json!({
        "apiVersion": "nodemaintenance.medik8s.io/v1beta1", "kind": "NodeMaintenance",
        "metadata": {"name": "n0", "uid": "uid-n0", "resourceVersion": "5", "labels": {LABEL: "r"}, "annotations":
            {SETTINGS: settings.to_string(), NODE: node.to_string(), STATE: annotation(&record)}},
        "spec": {"nodeName": "n0", "suspend": true},
    });
    (serde_json::from_value(object).unwrap(), record)
}

/// A roll of two nodes, the first at this step and with a healthy StatefulSet in its baseline.
fn two_nodes(step: Step) -> Roll {
    let (first, _) = planned(SignedDuration::ZERO);
    let mut second = first.clone();
    (second.metadata.name, second.metadata.uid) = (Some("n1".into()), Some("uid-n1".into()));
    second.spec.node_name = "n1".into();
    let mut roll = Roll::find("r", &[Arc::new(first), Arc::new(second)]).unwrap().unwrap();
    roll.nodes[0].record.step = step;
    if step > Step::Planned {
        roll.nodes[0].record.baseline.healthy = vec![DisturbedObject {
            kind: DisturbedKind::StatefulSet,
            namespace: "shop".into(),
            name: "db".into(),
        }];
    }
    roll
}

/// What the baseline of the second node has, if both nodes begin that are planned. The StatefulSet has all of its replicas
/// until a node begins, or none if not even then.
async fn second_baseline(step: Step, is_healthy: bool) -> Vec<String> {
    let roll = two_nodes(step);
    let begins = roll.nodes.iter().filter(|node| node.record.step == Step::Planned);
    let begins: Vec<_> =
        begins.map(|node| RollChange::Begin(node.node().to_owned(), node.record.clone())).collect();
    // The first node has no pods, so that its baseline is read first.
    let without_pods = AtomicUsize::new(begins.len() - 1);
    let nodes = ["n0", "n1"].map(|name| (name.to_owned(), NodeView::default()));
    let object = planned(SignedDuration::ZERO).0;
    let has_begun = std::sync::atomic::AtomicBool::new(step > Step::Planned);
    let written = Arc::new(std::sync::Mutex::new(Vec::new()));
    let log = Arc::clone(&written);
    let cluster = reading_cluster(move |method, path, body| {
        let pod = json!({"metadata": {"namespace": "shop", "name": "db-0", "ownerReferences": [{"apiVersion": "apps/v1",
            "kind": "StatefulSet", "name": "db", "uid": "u", "controller": true}]},
            "spec": {"containers": []}, "status": {"phase": "Running"}});
        let is_first = |left: &AtomicUsize| {
            left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1)).is_ok()
        };
        match (method, path.rsplit('/').next().unwrap()) {
            ("PATCH", name) => {
                has_begun.store(true, Ordering::Relaxed);
                if name == "n1" {
                    let text = body.pointer("/metadata/annotations").unwrap()[NODE].as_str().unwrap();
                    let record: NodeRecord = serde_json::from_str(text).unwrap();
                    log.lock().unwrap().extend(record.baseline.healthy.into_iter().map(|one| one.name));
                }
                (200, json!(object))
            }
            (_, "pods") => {
                let pods = if is_first(&without_pods) { Vec::new() } else { vec![pod] };
                (200, json!({"kind": "PodList", "apiVersion": "v1", "metadata": {}, "items": pods}))
            }
            (_, "db") => {
                let ready = if is_healthy && !has_begun.load(Ordering::Relaxed) { 3 } else { 2 };
                (
                    200,
                    json!({"apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": {"name": "db"},
                    "spec": {"replicas": 3}, "status": {"readyReplicas": ready}}),
                )
            }
            _ => (200, json!({"kind": "List", "apiVersion": "v1", "metadata": {}, "items": []})),
        }
    });
    let applied = apply(&cluster, roll, begins, BTreeMap::from(nodes), &Workloads::default(), false).await;
    assert!(applied.outcomes.iter().all(|(_, outcome)| outcome.is_ok()), "{:?}", applied.outcomes);
    written.lock().unwrap().clone()
}

#[tokio::test]
async fn what_the_drain_of_another_node_disturbs_counts_as_healthy_for_a_node_that_begins() {
    for (step, is_healthy, expected) in [
        (Step::Draining, true, &["db"][..]),
        (Step::Recovering, true, &["db"]),
        // Both begin, and the first is written first.
        (Step::Planned, true, &["db"]),
        (Step::Planned, false, &[]),
    ] {
        assert_eq!(second_baseline(step, is_healthy).await, expected, "{step:?}");
    }
}

/// What is known of the action of a node whose maintenance or Job is answered like this.
async fn acted(maintenance: u16, job: u16) -> Option<ActionState> {
    let (object, record) = planned(SignedDuration::ZERO);
    let mut roll = Roll::find("r", &[Arc::new(object.clone())]).unwrap().unwrap();
    roll.settings.action = Some(NodeAction::Job(json!({"apiVersion": "batch/v1", "kind": "Job",
        "metadata": {"namespace": "gone"}, "spec": {"template": {"spec": {"containers": []}}}})));
    let node = NodeRecord { step: Step::Acting, ..roll.nodes[0].record.clone() };
    let (cluster, _) = cluster(move |method, _| match (method, maintenance) {
        ("POST", _) => failure(job, "NotFound", "namespaces \"gone\" not found"),
        (_, 200) => (200, json!(object)),
        (_, code) => failure(code, "NotFound", "n0"),
    });
    let mut runner = RollRunner::new(&cluster, &roll, record, None, None);
    let act = RollChange::Act("n0".into(), node);
    runner
        .take_applied(apply(&cluster, roll, vec![act], BTreeMap::new(), &Workloads::default(), false).await);
    runner.observed.actions.get(&("n0".into(), Step::Acting)).cloned()
}

#[tokio::test]
async fn an_action_has_not_started_if_its_job_cannot_be_created_but_not_if_its_maintenance_has_changed() {
    let Some(ActionState::NotStarted(why)) = acted(200, 404).await else { panic!("its namespace is gone") };
    assert!(why.contains("namespaces \"gone\" not found"), "{why}");
    for (maintenance, job) in [(404, 404), (409, 404), (200, 500)] {
        assert_eq!(acted(maintenance, job).await, None, "{maintenance} {job}: it is tried again");
    }
}

/// How many writes a roll of one node sends in almost a minute, if each is answered like this.
async fn writes(since_heartbeat: SignedDuration, code: u16, message: &'static str) -> usize {
    let (object, record) = planned(since_heartbeat);
    let roll = Roll::find("r", &[Arc::new(object.clone())]).unwrap().unwrap();
    let written = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&written);
    let (cluster, _) = cluster(move |method, path| match (method, path.rsplit('/').next().unwrap()) {
        (_, "watch") => (NEVER, Value::Null),
        ("GET", "nodemaintenances") => list(std::slice::from_ref(&object)),
        ("GET", "nodes") => {
            let node = json!({"metadata": {"name": "n0"}, "status": {"conditions": [{"type": "Ready", "status": "True"}]}});
            (200, json!({"kind": "NodeList", "apiVersion": "v1", "metadata": {}, "items": [node]}))
        }
        ("GET", _) => (200, json!({"kind": "List", "apiVersion": "v1", "metadata": {}, "items": []})),
        // Without a delay between writes, time would never pass.
        _ if count.fetch_add(1, Ordering::Relaxed) >= 1_000 => (NEVER, Value::Null),
        _ => failure(code, if code == 409 { "Conflict" } else { "x" }, message),
    });
    let mut runner = RollRunner::new(&cluster, &roll, record, None, None);
    let mut reporter = Silent;
    let running = runner.run(&mut reporter);
    let ended = tokio::time::timeout(Duration::from_secs(55), running).await;
    assert!(ended.is_err(), "{message}: {ended:?}");
    written.load(Ordering::Relaxed)
}

#[tokio::test(start_paused = true)]
async fn changes_that_fail_are_made_again_less_and_less_often() {
    let (fresh, due) = (SignedDuration::ZERO, SignedDuration::from_mins(5));
    for (since_heartbeat, code, message) in [
        // A node begins, and the webhook refuses it or does not answer.
        (fresh, 403, "admission webhook \"nm\" denied the request"),
        (fresh, 500, "failed calling webhook"),
        // A heartbeat is due.
        (due, 500, "etcdserver: request timed out"),
        (due, 409, "the object has been modified"),
        // A login has expired.
        (fresh, 401, "Unauthorized"),
        (due, 401, "Unauthorized"),
    ] {
        let written = writes(since_heartbeat, code, message).await;
        assert!((4..=8).contains(&written), "{message}: {written}");
    }
}

#[tokio::test]
async fn every_change_is_made_only_to_the_object_that_the_decision_has_read() {
    let (object, record) = planned(SignedDuration::ZERO);
    let roll = Roll::find("r", &[Arc::new(object.clone())]).unwrap().unwrap();
    let (name, node) = (String::from("n0"), roll.nodes[0].record.clone());
    let nodes = BTreeMap::from([(name.clone(), NodeView::default())]);
    for change in [
        RollChange::Record(Box::new(record)),
        RollChange::Begin(name.clone(), node.clone()),
        RollChange::Write(name.clone(), node.clone()),
        RollChange::Pause(name.clone()),
        RollChange::Act(name.clone(), node),
        RollChange::Delete(name.clone()),
        RollChange::Release(name),
    ] {
        let object = object.clone();
        let cluster = reading_cluster(move |method, _, body| {
            let read = ["/metadata/resourceVersion", "/preconditions/resourceVersion"];
            match method {
                "GET" => (200, json!({"kind": "List", "apiVersion": "v1", "metadata": {}, "items": []})),
                _ if read.iter().any(|field| body.pointer(field) == Some(&json!("5"))) => {
                    (200, json!(object))
                }
                _ => failure(409, "Conflict", "n0"),
            }
        });
        let applied =
            apply(&cluster, roll.clone(), vec![change], nodes.clone(), &Workloads::default(), false).await;
        let [(change, outcome)] = applied.outcomes.as_slice() else { panic!("one change has one outcome") };
        assert!(outcome.is_ok(), "{change:?}: {outcome:?}");
    }
}

/// What the roll waits for.
#[derive(Default)]
struct Waits(Vec<String>);

impl RollReporter for Waits {
    fn show(&mut self, view: &RollView) -> Result<(), Error> {
        if let RollState::Waiting(why) = view.state
            && self.0.last() != Some(why)
        {
            self.0.push(why.clone());
        }
        Ok(())
    }

    fn output(&mut self, _: &NodeOutputLine) -> Result<(), Error> {
        Ok(())
    }

    fn ask(&mut self, _: &str) -> Result<(), Error> {
        Ok(())
    }

    fn show_error(&mut self, _: &Error) {}

    fn next_input(&mut self) -> LocalBoxFuture<'_, Result<RollInput, Error>> {
        future::pending().boxed_local()
    }
}

#[tokio::test(start_paused = true)]
async fn a_roll_waits_for_a_login_and_says_so() {
    let (object, record) = planned(SignedDuration::ZERO);
    let roll = Roll::find("r", &[Arc::new(object.clone())]).unwrap().unwrap();
    let (cluster, _) = cluster(move |method, path| match (method, path.rsplit('/').next().unwrap()) {
        ("GET", "nodemaintenances") => list(std::slice::from_ref(&object)),
        ("GET", "nodes") => {
            (200, json!({"kind": "NodeList", "apiVersion": "v1", "metadata": {}, "items": []}))
        }
        // The login has expired when the watches begin.
        _ => failure(401, "Unauthorized", "Unauthorized"),
    });
    let mut runner = RollRunner::new(&cluster, &roll, record, None, None);
    let mut reporter = Waits::default();
    let ended = tokio::time::timeout(Duration::from_secs(2 * 3600), runner.run(&mut reporter)).await;
    assert!(ended.is_err(), "{ended:?}");
    let wait = "log in again to continue: You must be logged in to the server (";
    assert!(reporter.0.last().is_some_and(|last| last.starts_with(wait)), "{:?}", reporter.0);
}

/// The events that a roll publishes whose node fails, or that had halted before its program continues it. Its API server accepts
/// events or refuses them.
async fn events(halted_before: bool, code: u16) -> Vec<Value> {
    let (object, mut record) = planned(SignedDuration::ZERO);
    let mut object = json!(object);
    let now = Timestamp::now();
    let node = json!({"wave": 0, "position": 0, "step": "Draining", "since": now, "began": now});
    object["metadata"]["annotations"][NODE] = json!(node.to_string());
    object["spec"]["suspend"] = json!(false);
    if halted_before {
        let at = now - SignedDuration::from_mins(5);
        record.halt = Some(Halt { node: "n0".into(), message: "before".into(), at, cause: None });
    }
    object["metadata"]["annotations"][STATE] = json!(annotation(&record));
    let object: NodeMaintenance = serde_json::from_value(object).unwrap();
    let roll = Roll::find("r", &[Arc::new(object.clone())]).unwrap().unwrap();
    let published = Arc::new(std::sync::Mutex::new(Vec::new()));
    let (log, stored) = (Arc::clone(&published), std::sync::Mutex::new(object));
    let cluster = reading_cluster(move |method, path, body| {
        match (method, path.rsplit('/').next().unwrap()) {
            (_, "watch") => (NEVER, Value::Null),
            ("POST", "events") => {
                log.lock().unwrap().push(body.clone());
                if code == 200 {
                    (201, body.clone())
                } else {
                    failure(code, "Forbidden", "events is forbidden")
                }
            }
            ("GET", "nodemaintenances") => list(std::slice::from_ref(&*stored.lock().unwrap())),
            ("GET", "nodes") => {
                let node = json!({"metadata": {"name": "n0"}, "status": {"conditions": [{"type": "Ready", "status": "True"}]}});
                (200, json!({"kind": "NodeList", "apiVersion": "v1", "metadata": {}, "items": [node]}))
            }
            _ => {
                let mut stored = stored.lock().unwrap();
                let annotations = body.pointer("/metadata/annotations").and_then(Value::as_object);
                for (key, value) in annotations.into_iter().flatten() {
                    stored.annotations_mut().insert(key.clone(), value.as_str().unwrap().to_owned());
                }
                let version = stored.resource_version().unwrap().parse::<u64>().unwrap();
                stored.metadata.resource_version = Some((version + 1).to_string());
                (200, json!(*stored))
            }
        }
    });
    let mut runner = RollRunner::new(&cluster, &roll, record, None, None);
    runner.fail("n0", &format!("node n0 failed: {}", "x".repeat(2_000)));
    let ended = runner.run(&mut Silent).await.unwrap();
    assert!(matches!(ended, RollEnd::Halted(..)), "{ended:?}");
    published.lock().unwrap().clone()
}

#[tokio::test]
async fn a_roll_that_halts_leaves_an_event_on_the_maintenance_of_its_node_if_it_may() {
    let events_of = events(false, 200).await;
    let [event] = events_of.as_slice() else { panic!("{events_of:?}") };
    assert_eq!((&event["reason"], &event["type"]), (&json!("RollHalted"), &json!("Warning")));
    assert_eq!(
        (&event["regarding"]["kind"], &event["regarding"]["uid"]),
        (&json!("NodeMaintenance"), &json!("uid-n0"))
    );
    let note = event["note"].as_str().unwrap();
    assert!(note.starts_with("roll r halted: node n0 failed: xxx") && note.len() == 1024, "{note}");
    assert_eq!(events(false, 403).await.len(), 1, "the roll halts nevertheless");
    assert_eq!(events(true, 200).await, Vec::<Value>::new());
}
