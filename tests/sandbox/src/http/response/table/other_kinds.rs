//! `kubectl get` of everything else.

use jiff::Timestamp;
use serde_json::{Value, json};

use crate::http::response::table::cell::{Table, age, count, number, or, since, text, wide};

/// Name and age, for kinds without a table of their own.
pub(crate) static PLAIN: Table =
    Table { name_last: false, columns: &[text("Age")], cells: |object, now| vec![age(object, now)] };

pub(crate) static NAMESPACES: Table = Table {
    name_last: false,
    columns: &[text("Status"), text("Age")],
    cells: |object, now| vec![or(&object["status"]["phase"], ""), age(object, now)],
};

pub(crate) static CONFIG_MAPS: Table = Table {
    name_last: false,
    columns: &[count("Data"), text("Age")],
    cells: |object, now| vec![json!(size(object, "data") + size(object, "binaryData")), age(object, now)],
};

pub(crate) static SECRETS: Table = Table {
    name_last: false,
    columns: &[text("Type"), count("Data"), text("Age")],
    cells: |object, now| vec![or(&object["type"], ""), json!(size(object, "data")), age(object, now)],
};

fn size(object: &Value, field: &str) -> usize {
    object[field].as_object().map_or(0, serde_json::Map::len)
}

pub(crate) static LEASES: Table = Table {
    name_last: false,
    columns: &[text("Holder"), text("Age")],
    cells: |object, now| vec![or(&object["spec"]["holderIdentity"], ""), age(object, now)],
};

pub(crate) static DEFINITIONS: Table = Table {
    name_last: false,
    columns: &[text("Created At")],
    cells: |object, _| vec![object["metadata"]["creationTimestamp"].clone()],
};

pub(crate) static PRIORITY_CLASSES: Table = Table {
    name_last: false,
    columns: &[count("Value"), text("Global-Default"), text("Age")],
    cells: |object, now| {
        vec![number(&object["value"]), json!(object["globalDefault"] == true), age(object, now)]
    },
};

pub(crate) static SERVICES: Table = Table {
    name_last: false,
    columns: &[text("Type"), text("Cluster-IP"), text("External-IP"), text("Port(s)"), text("Age")],
    cells: |object, now| {
        let spec = &object["spec"];
        let ports = spec["ports"].as_array().into_iter().flatten();
        let ports: Vec<String> = ports
            .map(|port| format!("{}/{}", port["port"], port["protocol"].as_str().unwrap_or("TCP")))
            .collect();
        let ports = if ports.is_empty() { "<none>".into() } else { ports.join(",") };
        vec![
            or(&spec["type"], ""),
            or(&spec["clusterIP"], "<none>"),
            json!("<none>"),
            json!(ports),
            age(object, now),
        ]
    },
};

const EVENT_COLUMNS: &[crate::http::response::table::cell::Heading] = &[
    text("Last Seen"),
    text("Type"),
    text("Reason"),
    text("Object"),
    wide("Subobject"),
    wide("Source"),
    text("Message"),
    wide("First Seen"),
    wide("Count"),
];

pub(crate) static EVENTS: Table = Table { name_last: true, columns: EVENT_COLUMNS, cells: event };

pub(crate) static NEW_EVENTS: Table = Table {
    name_last: true,
    columns: EVENT_COLUMNS,
    cells: |object, now| event(&crate::model::event_versions::to_core(object), now),
};

fn event(object: &Value, now: Timestamp) -> Vec<Value> {
    let series = &object["series"];
    let first_of = |fields: &[&Value]| {
        let found = fields.iter().find_map(|field| field.as_str());
        found.map_or_else(|| "<unknown>".to_owned(), |time| since(time, now))
    };
    let last = first_of(&[&series["lastObservedTime"], &object["lastTimestamp"], &object["eventTime"]]);
    let first = first_of(&[&object["firstTimestamp"], &object["eventTime"]]);
    let about = &object["involvedObject"];
    let kind = about["kind"].as_str().unwrap_or_default().to_lowercase();
    let name = about["name"].as_str().unwrap_or_default();
    let source = object["source"]["component"].as_str().or(object["reportingComponent"].as_str());
    let times = series["count"].as_i64().or(object["count"].as_i64()).unwrap_or(1);
    vec![
        json!(last),
        or(&object["type"], ""),
        or(&object["reason"], ""),
        json!(if name.is_empty() { kind } else { format!("{kind}/{name}") }),
        or(&about["fieldPath"], ""),
        json!(source.unwrap_or_default()),
        json!(object["message"].as_str().unwrap_or_default().trim()),
        json!(first),
        json!(times.to_string()),
    ]
}
