//! Who created a maintenance: a roll, or a program.
//!
//! The API does not record who created an object, but `managedFields` has the program that set `spec.nodeName`, which never
//! changes afterwards.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ManagedFieldsEntry;
use nm_shared::NodeMaintenance;

use crate::maintenance::roll_name;

/// `roll NAME`, or the program, such as `kubectl-nm`; none if that is not known.
pub fn creator(maintenance: &NodeMaintenance) -> Option<String> {
    let roll = roll_name(maintenance).map(|roll| format!("roll {roll}"));
    roll.or_else(|| entry(maintenance)?.manager.clone())
}

/// Drops the `managedFields`, except for what names the creator: they are most of an object, and change with every status.
pub fn keep_creator(maintenance: &mut NodeMaintenance) {
    maintenance.metadata.managed_fields = creator_fields(maintenance);
}

/// Of the `managedFields`, what names the creator.
pub fn creator_fields(maintenance: &NodeMaintenance) -> Option<Vec<ManagedFieldsEntry>> {
    let manager = entry(maintenance)?.manager.clone();
    Some(vec![ManagedFieldsEntry { manager, ..ManagedFieldsEntry::default() }])
}

fn entry(maintenance: &NodeMaintenance) -> Option<&ManagedFieldsEntry> {
    let entries = maintenance.metadata.managed_fields.as_deref()?;
    let sets_node = |entry: &&ManagedFieldsEntry| {
        entry.fields_v1.as_ref().is_some_and(|fields| fields.0["f:spec"].get("f:nodeName").is_some())
    };
    // What was kept has no fields.
    let kept = || entries.first().filter(|entry| entries.len() == 1 && entry.fields_v1.is_none());
    entries.iter().find(sets_node).or_else(kept)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::testing::objects::requested;

    fn with(metadata: &Value) -> NodeMaintenance {
        let mut object = serde_json::to_value(requested("a")).unwrap();
        for (key, value) in metadata.as_object().unwrap() {
            object["metadata"][key] = value.clone();
        }
        serde_json::from_value(object).unwrap()
    }

    #[test]
    fn the_creator_is_the_roll_or_the_program_that_set_the_node() {
        // Whoever changes the object later has a later time, also the creator.
        let fields = json!([
            {"manager": "nm-reconciler", "operation": "Update", "time": "2026-01-01T00:00:01Z",
                "fieldsV1": {"f:metadata": {"f:finalizers": {}}}},
            {"manager": "argocd-controller", "operation": "Apply", "time": "2026-01-01T00:00:09Z",
                "fieldsV1": {"f:spec": {"f:nodeName": {}, "f:reason": {}}}},
            {"manager": "kubectl-edit", "operation": "Update", "time": "2026-01-01T00:00:00Z",
                "fieldsV1": {"f:spec": {"f:suspend": {}}}},
        ]);
        let mut object = with(&json!({"managedFields": fields}));
        assert_eq!(creator(&object).as_deref(), Some("argocd-controller"));
        keep_creator(&mut object);
        assert_eq!(creator(&object).as_deref(), Some("argocd-controller"));
        assert_eq!(
            serde_json::to_value(&object.metadata.managed_fields).unwrap(),
            json!([{"manager": "argocd-controller"}])
        );
        let of_roll = with(&json!({"managedFields": fields, "labels": {"kubectl-nm.dev/roll": "blue"}}));
        assert_eq!(creator(&of_roll).as_deref(), Some("roll blue"));
        let mut unknown = with(&json!({}));
        keep_creator(&mut unknown);
        assert_eq!((creator(&unknown), &unknown.metadata.managed_fields), (None, &None));
    }
}
