//! What a roll creates, and who may run it.

use std::sync::Arc;

use nm_core::terminal::output::captured::output;
use nm_core::testing::fake_server::{cluster, failure};
use serde_json::json;

use super::*;

/// Settings that run this command.
fn settings(command: &str) -> RollSettings {
    serde_json::from_value(json!({
        "waves": [2], "maxUnavailable": 1, "action": {"run": command}, "minReadySeconds": 30,
        "actionTimeoutSeconds": 1, "returnTimeoutSeconds": 1, "recoveryTimeoutSeconds": 1,
    }))
    .unwrap()
}

/// A roll of two nodes, as its objects describe it: their commands, and who runs it.
fn roll(commands: [&str; 2], runner: Option<&Runner>) -> Roll {
    let objects = ["n0", "n1"].iter().zip(commands).enumerate().map(|(position, (node, command))| {
        let record =
            json!({"wave": 0, "position": position, "step": "Planned", "since": Timestamp::UNIX_EPOCH});
        let object = json!({
            "apiVersion": "nodemaintenance.medik8s.io/v1beta1", "kind": "NodeMaintenance",
            "metadata": {"name": node, "labels": {LABEL: "r"},
                "annotations": {SETTINGS: record::annotation(&settings(command)), NODE: record.to_string()}},
            "spec": {"nodeName": node},
        });
        Arc::new(serde_json::from_value(object).unwrap())
    });
    let objects: Vec<Arc<NodeMaintenance>> = objects.collect();
    let record = runner.map(|runner| RollRecord { runner: Some(runner.clone()), ..RollRecord::default() });
    Roll { record, ..Roll::find("r", &objects).unwrap().unwrap() }
}

#[test]
fn a_roll_begins_only_with_its_own_settings_in_every_object_and_if_nobody_else_runs_it() {
    let (me, other) = (this_runner(), Runner { id: "other".into(), ..this_runner() });
    let begin = |roll: &Roll| claim(roll, RollRecord::default(), &settings("mine"), &me);
    assert_eq!(begin(&roll(["mine"; 2], None)).unwrap().runner, Some(me.clone()));
    for commands in [["theirs", "mine"], ["mine", "theirs"], ["theirs"; 2]] {
        let refused = begin(&roll(commands, None));
        assert!(matches!(refused, Err(RollError::OtherSettings(_))), "{commands:?}: {refused:?}");
    }
    let refused = begin(&roll(["mine"; 2], Some(&other)));
    assert!(matches!(refused, Err(RollError::Exists(_))), "{refused:?}");
}

/// The maintenance that a roll creates for a node at this position.
fn planned(position: usize, step: Step) -> NodeMaintenance {
    let mut object = nm_core::testing::objects::requested("n1");
    object.spec.suspend = true;
    let record = NodeRecord {
        wave: position,
        position,
        step,
        since: Timestamp::UNIX_EPOCH,
        began: None,
        began_millis: 0,
        boot_id: String::new(),
        action: None,
        baseline: record::Baseline::default(),
    };
    object.labels_mut().insert(LABEL.into(), "r".into());
    object.annotations_mut().insert(NODE.into(), record::annotation(&record));
    object
}

/// The requests that change something while the maintenance is created at position 0, and exists like this.
async fn writes(existing: NodeMaintenance) -> Vec<String> {
    let (cluster, requests) = cluster(move |method, _| match method {
        "POST" => failure(409, "AlreadyExists", "n1"),
        _ => (200, json!(existing)),
    });
    create(&[planned(0, Step::Planned)], "r", &cluster, &mut output().0).await.unwrap();
    let requests = requests.lock().unwrap();
    let writes = requests.iter().filter_map(|request| request.split(' ').next()).filter(|one| *one != "GET");
    writes.map(str::to_owned).collect()
}

#[tokio::test]
async fn a_creation_that_is_completed_gives_each_node_the_place_in_the_new_order() {
    assert_eq!(writes(planned(0, Step::Planned)).await, ["POST"]);
    assert_eq!(writes(planned(1, Step::Planned)).await, ["POST", "PATCH"]);
    assert_eq!(writes(planned(1, Step::Draining)).await, ["POST"], "somebody runs the roll");
}
