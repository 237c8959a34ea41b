//! What a roll creates, and who may run it.

use std::sync::Arc;

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
    let begin = |roll: &Roll| claim(roll, RollRecord::default(), &settings("mine"), Some(&me));
    assert_eq!(begin(&roll(["mine"; 2], None)).unwrap().runner, Some(me.clone()));
    for commands in [["theirs", "mine"], ["mine", "theirs"], ["theirs"; 2]] {
        let refused = begin(&roll(commands, None));
        assert!(matches!(refused, Err(RollError::OtherSettings(_))), "{commands:?}: {refused:?}");
    }
    let refused = begin(&roll(["mine"; 2], Some(&other)));
    assert!(matches!(refused, Err(RollError::Exists { .. })), "{refused:?}");
}
