//! `kubectl get` of volumes, claims and attachments.

use serde_json::{Value, json};

use crate::http::response::table::cell::{Heading, Table, age, or, text, wide};
use crate::model::pod;
use crate::model::volume::access_modes;

pub(crate) static VOLUMES: Table = Table {
    name_last: false,
    columns: &[
        text("Capacity"),
        text("Access Modes"),
        text("Reclaim Policy"),
        text("Status"),
        text("Claim"),
        text("StorageClass"),
        text("VolumeAttributesClass"),
        text("Reason"),
        text("Age"),
        wide("VolumeMode"),
    ],
    cells: |object, now| {
        let (spec, status) = (&object["spec"], &object["status"]);
        let claim = &spec["claimRef"];
        let phase = if pod::is_terminating(object) { json!("Terminating") } else { or(&status["phase"], "") };
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let claim = if claim.is_object() {
            format!("{}/{}", text(&claim["namespace"]), text(&claim["name"]))
        } else {
            String::new()
        };
        vec![
            or(&spec["capacity"]["storage"], ""),
            json!(access_modes(&spec["accessModes"])),
            or(&spec["persistentVolumeReclaimPolicy"], ""),
            phase,
            json!(claim),
            or(&spec["storageClassName"], ""),
            or(&spec["volumeAttributesClassName"], "<unset>"),
            or(&status["reason"], ""),
            age(object, now),
            or(&spec["volumeMode"], "<unset>"),
        ]
    },
};

pub(crate) static CLAIMS: Table = Table {
    name_last: false,
    columns: &[
        text("Status"),
        text("Volume"),
        text("Capacity"),
        text("Access Modes"),
        text("StorageClass"),
        text("VolumeAttributesClass"),
        text("Age"),
        wide("VolumeMode"),
    ],
    cells: |object, now| {
        let (spec, status) = (&object["spec"], &object["status"]);
        let phase = if pod::is_terminating(object) { json!("Terminating") } else { or(&status["phase"], "") };
        let is_bound = spec["volumeName"].as_str().is_some_and(|name| !name.is_empty());
        let (modes, capacity) = if is_bound {
            (access_modes(&status["accessModes"]), or(&status["capacity"]["storage"], ""))
        } else {
            (String::new(), json!(""))
        };
        vec![
            phase,
            or(&spec["volumeName"], ""),
            capacity,
            json!(modes),
            or(&spec["storageClassName"], ""),
            or(&spec["volumeAttributesClassName"], "<unset>"),
            age(object, now),
            or(&spec["volumeMode"], "<unset>"),
        ]
    },
};

/// A truth.
const ATTACHED: Heading = ("Attached", "boolean", false);

pub(crate) static ATTACHMENTS: Table = Table {
    name_last: false,
    columns: &[text("Attacher"), text("PV"), text("Node"), ATTACHED, text("Age")],
    cells: |object, now| {
        let spec = &object["spec"];
        vec![
            or(&spec["attacher"], ""),
            or(&spec["source"]["persistentVolumeName"], ""),
            or(&spec["nodeName"], ""),
            json!(object["status"]["attached"] == true),
            age(object, now),
        ]
    },
};
