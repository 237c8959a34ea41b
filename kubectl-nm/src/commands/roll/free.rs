//! Whether a roll can begin: its name is free, and none of its nodes is in maintenance.

use std::sync::Arc;

use jiff::Timestamp;
use nm_core::error::Error;
use nm_core::maintenance::roll::RollRunners;
use nm_core::maintenance::start::Existing;
use nm_roll::error::RollError;
use nm_roll::record::{Roll, roll_name};
use nm_shared::NodeMaintenance;

/// Checks that the name of the roll is free, and that no node is in maintenance. `all` are the maintenances of the cluster.
pub(super) fn check_free(
    name: &str,
    names: &[String],
    all: &[NodeMaintenance],
    now: Timestamp,
) -> Result<(), Error> {
    let objects: Vec<_> = all.iter().cloned().map(Arc::new).collect();
    let rolls = RollRunners::of(all);
    if let Some(roll) = Roll::find(name, &objects)? {
        roll.complete_record()?;
        return Err(RollError::Exists { name: name.to_owned(), standing: rolls.standing(name, now) }.into());
    }
    let mut busy = Vec::new();
    for node in names {
        match Existing::find(node, all) {
            Existing::Nothing => {}
            Existing::Maintenance(object) => match roll_name(&object) {
                Some(roll) => return Err(rolls.refusal(node, roll, now)),
                None => busy.push(node.clone()),
            },
            other => {
                return Err(other
                    .refusal(node, &rolls, now)
                    .unwrap_or_else(|| RollError::InMaintenance(vec![node.clone()]).into()));
            }
        }
    }
    if busy.is_empty() { Ok(()) } else { Err(RollError::InMaintenance(busy).into()) }
}

#[cfg(test)]
mod tests {
    use nm_roll::record::{LABEL, NODE, SETTINGS, STATE};
    use serde_json::json;

    use super::*;

    #[test]
    fn a_roll_beside_one_that_runs_is_not_told_to_resume_it() {
        let now: Timestamp = "2026-01-02T03:04:05Z".parse().unwrap();
        let settings = json!({"waves": [1], "maxUnavailable": 1, "minReadySeconds": 30, "actionTimeoutSeconds": 1,
            "returnTimeoutSeconds": 1, "recoveryTimeoutSeconds": 1});
        let node = json!({"wave": 0, "position": 0, "step": "Planned", "since": now});
        let state = json!({"revision": 1, "runner": {"id": "x", "who": "ada@vm", "at": now}});
        let mut object =
            NodeMaintenance::new("n1", serde_json::from_value(json!({"nodeName": "n1"})).unwrap());
        object.metadata.labels = Some([(LABEL.to_owned(), "kernel".to_owned())].into());
        let annotations = [(SETTINGS, settings), (NODE, node), (STATE, state)];
        object.metadata.annotations =
            Some(annotations.map(|(key, value)| (key.to_owned(), value.to_string())).into());
        let all = [object];
        let refused = |name: &str, node: &str| {
            let error = check_free(name, &[node.to_owned()], &all, now).unwrap_err();
            (error.to_string(), error.hint().unwrap())
        };
        let (error, hint) = refused("kernel", "n2");
        assert_eq!(error, "a roll \"kernel\" exists already");
        let watch = "ada@vm runs the roll: `kubectl nm roll watch kernel` shows the progress";
        assert_eq!(hint, format!("{watch}; --name chooses another name for a new one"));
        let (error, hint) = refused("other", "n1");
        assert_eq!(error, "node \"n1\" is part of roll \"kernel\"");
        assert!(hint.starts_with(&format!("{watch}; `kubectl nm roll pause kernel && ")), "{hint}");
    }
}
