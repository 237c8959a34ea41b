//! `kubectl get` of workloads and budgets.

use jiff::Timestamp;
use serde_json::{Value, json};

use crate::http::response::table::cell::{Table, age, containers, count, number, selector, text, wide};

pub(crate) static DEPLOYMENTS: Table = Table {
    name_last: false,
    columns: &[
        text("Ready"),
        count("Up-to-date"),
        count("Available"),
        text("Age"),
        wide("Containers"),
        wide("Images"),
        wide("Selector"),
    ],
    cells: |object, now| {
        let status = &object["status"];
        let mut cells = vec![
            ready(object),
            number(&status["updatedReplicas"]),
            number(&status["availableReplicas"]),
            age(object, now),
        ];
        cells.extend(template(object));
        cells
    },
};

pub(crate) static REPLICA_SETS: Table = Table {
    name_last: false,
    columns: &[
        count("Desired"),
        count("Current"),
        count("Ready"),
        text("Age"),
        wide("Containers"),
        wide("Images"),
        wide("Selector"),
    ],
    cells: |object, now| {
        let status = &object["status"];
        let mut cells = vec![
            number(&object["spec"]["replicas"]),
            number(&status["replicas"]),
            number(&status["readyReplicas"]),
            age(object, now),
        ];
        cells.extend(template(object));
        cells
    },
};

pub(crate) static STATEFUL_SETS: Table = Table {
    name_last: false,
    columns: &[text("Ready"), text("Age"), wide("Containers"), wide("Images")],
    cells: |object, now| {
        let (names, images) = containers(&object["spec"]["template"]);
        vec![ready(object), age(object, now), names, images]
    },
};

pub(crate) static DAEMON_SETS: Table = Table {
    name_last: false,
    columns: &[
        count("Desired"),
        count("Current"),
        count("Ready"),
        count("Up-to-date"),
        count("Available"),
        text("Node Selector"),
        text("Age"),
        wide("Containers"),
        wide("Images"),
        wide("Selector"),
    ],
    cells: |object, now| {
        let status = &object["status"];
        let node_selector = json!({"matchLabels": object["spec"]["template"]["spec"]["nodeSelector"]});
        let mut cells = vec![
            number(&status["desiredNumberScheduled"]),
            number(&status["currentNumberScheduled"]),
            number(&status["numberReady"]),
            number(&status["updatedNumberScheduled"]),
            number(&status["numberAvailable"]),
            selector(&node_selector),
            age(object, now),
        ];
        cells.extend(template(object));
        cells
    },
};

pub(crate) static JOBS: Table = Table {
    name_last: false,
    columns: &[text("Status"), text("Completions"), text("Duration"), text("Age")],
    cells: job,
};

pub(crate) static BUDGETS: Table = Table {
    name_last: false,
    columns: &[text("Min Available"), text("Max Unavailable"), count("Allowed Disruptions"), text("Age")],
    cells: |object, now| {
        let spec = &object["spec"];
        let amount = |value: &Value| match value {
            Value::Null => json!("N/A"),
            Value::String(text) => json!(text),
            other => json!(other.to_string()),
        };
        vec![
            amount(&spec["minAvailable"]),
            amount(&spec["maxUnavailable"]),
            number(&object["status"]["disruptionsAllowed"]),
            age(object, now),
        ]
    },
};

fn job(object: &Value, now: Timestamp) -> Vec<Value> {
    let (spec, status) = (&object["spec"], &object["status"]);
    let conditions = || status["conditions"].as_array().into_iter().flatten();
    let has =
        |kind: &str| conditions().any(|condition| condition["type"] == kind && condition["status"] == "True");
    let state = if has("Complete") {
        "Complete"
    } else if has("Failed") {
        "Failed"
    } else {
        "Running"
    };
    let done = status["succeeded"].as_i64().unwrap_or_default();
    let wanted = spec["completions"].as_i64().unwrap_or(1);
    let until = status["completionTime"].as_str().and_then(|time| time.parse().ok()).unwrap_or(now);
    let took = status["startTime"]
        .as_str()
        .map(|time| crate::http::response::table::cell::since(time, until))
        .unwrap_or_default();
    vec![json!(state), json!(format!("{done}/{wanted}")), json!(took), age(object, now)]
}

fn ready(object: &Value) -> Value {
    let ready = object["status"]["readyReplicas"].as_i64().unwrap_or_default();
    let wanted = object["spec"]["replicas"].as_i64().unwrap_or_default();
    json!(format!("{ready}/{wanted}"))
}

fn template(object: &Value) -> [Value; 3] {
    let (names, images) = containers(&object["spec"]["template"]);
    [names, images, selector(&object["spec"]["selector"])]
}
