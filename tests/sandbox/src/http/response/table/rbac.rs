//! `kubectl get` of roles and bindings.

use jiff::Timestamp;
use serde_json::{Value, json};

use crate::http::response::table::cell::{Table, age, text, wide};

pub(crate) static ROLES: Table = Table {
    name_last: false,
    columns: &[("Created At", "date", false)],
    cells: |role, _| vec![role["metadata"]["creationTimestamp"].clone()],
};

pub(crate) static BINDINGS: Table = Table {
    name_last: false,
    columns: &[text("Role"), text("Age"), wide("Users"), wide("Groups"), wide("ServiceAccounts")],
    cells: binding,
};

fn binding(binding: &Value, now: Timestamp) -> Vec<Value> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let role = &binding["roleRef"];
    let of_kind = |kind: &str| {
        let subjects = binding["subjects"].as_array().into_iter().flatten();
        let names = subjects.filter(|subject| subject["kind"] == kind).map(|subject| match kind {
            "ServiceAccount" => format!("{}/{}", text(&subject["namespace"]), text(&subject["name"])),
            _ => text(&subject["name"]),
        });
        json!(names.collect::<Vec<_>>().join(", "))
    };
    vec![
        json!(format!("{}/{}", text(&role["kind"]), text(&role["name"]))),
        age(binding, now),
        of_kind("User"),
        of_kind("Group"),
        of_kind("ServiceAccount"),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_binding_shows_its_role_and_everybody_by_kind() {
        let object = json!({"roleRef": {"kind": "ClusterRole", "name": "view"}, "subjects": [
            {"kind": "User", "name": "a"}, {"kind": "User", "name": "b"},
            {"kind": "ServiceAccount", "namespace": "ns", "name": "robot"}]});
        let cells = binding(&object, Timestamp::UNIX_EPOCH);
        assert_eq!(
            cells,
            [json!("ClusterRole/view"), json!("<unknown>"), json!("a, b"), json!(""), json!("ns/robot")]
        );
    }
}
