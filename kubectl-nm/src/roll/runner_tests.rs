//! What a program that runs a roll requests from a fake server.

use std::sync::atomic::{AtomicUsize, Ordering};

use futures::future::LocalBoxFuture;
use futures::{FutureExt, future};
use jiff::SignedDuration;
use serde_json::{Value, json};

use super::*;
use crate::client::cluster::tests::{NEVER, cluster, failure, list, reading_cluster};
use crate::roll::observed::NodeView;
use crate::roll::record::{LABEL, NODE, SETTINGS, annotation};

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
    let runner = Some(Runner { id: "me".into(), who: "me@here".into(), at: now - since_heartbeat });
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
        RollChange::Record(record),
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
        let applied = apply(&cluster, roll.clone(), vec![change], nodes.clone(), false).await;
        let [(change, outcome)] = applied.outcomes.as_slice() else { panic!("one change has one outcome") };
        assert!(outcome.is_ok(), "{change:?}: {outcome:?}");
    }
}
