//! Server-side apply.

use std::fmt::Write;
use std::ops::Bound;

use serde_json::{Value, json};

use crate::http::patch::managers::{self, FieldPath, Manager, PathElement, Writer};
use crate::http::patch::shapes::{ListKind, Shapes, identity};
use crate::model::status_error::StatusError;

/// The result of an apply to `current`, which is empty if the object does not exist.
///
/// # Errors
/// 409 if another manager has set a field to another value and `force` is not set.
pub(crate) fn apply(
    current: &Value,
    applied: &Value,
    writer: &Writer<'_>,
    force: bool,
) -> Result<Value, StatusError> {
    let shapes = Shapes::of(writer.resource);
    let mut own = Manager::new(writer, true);
    own.fields = managers::fields(applied, shapes);
    // Status and main part are managed through their own paths.
    let status = writer.resource.status;
    let shared = writer.resource.metadata_of_status();
    own.fields.retain(|path| match (path.as_slice(), writer.subresource) {
        ([PathElement::Field(first), PathElement::Field(second), ..], "status") if first == "metadata" => {
            shared.contains(&second.as_str())
        }
        ([PathElement::Field(first), ..], "status") => first == "status",
        ([PathElement::Field(first), ..], _) => !(status && first == "status"),
        _ => true,
    });
    let mut managers = managers::read(current);
    // Of an item that is merged, only the fields can differ.
    let is_merged_item = |path: &FieldPath| {
        let below = (Bound::Excluded(path), Bound::Unbounded);
        matches!(path.last(), Some(PathElement::Item(_)))
            && own.fields.range::<FieldPath, _>(below).next().is_some_and(|next| next.starts_with(path))
    };
    let differs = |path: &FieldPath| {
        !is_merged_item(path) && managers::at(current, path) != managers::at(applied, path)
    };
    let mut conflicts = Vec::new();
    for other in managers.iter().filter(|other| !other.is(&own)) {
        let disputed = other.fields.intersection(&own.fields).filter(|path| differs(path));
        conflicts.extend(disputed.map(|path| (other.clone(), path.clone())));
    }
    if !conflicts.is_empty() && !force {
        return Err(refused(&conflicts));
    }
    for manager in managers.iter_mut().filter(|other| !other.is(&own)) {
        manager.fields.retain(|path| !conflicts.iter().any(|(_, disputed)| disputed == path));
    }
    let mut next = current.clone();
    merge(&mut next, applied, "", shapes);
    if let Some(before) = managers.iter().find(|manager| manager.is(&own)) {
        let dropped = before.fields.difference(&own.fields);
        let unclaimed = dropped
            .filter(|path| managers.iter().all(|other| other.is(&own) || !other.fields.contains(*path)));
        for path in unclaimed {
            remove(&mut next, path);
        }
    }
    settle(&mut next, managers, own);
    Ok(next)
}

/// Writes the managed fields. An apply without changes keeps its time, so that nothing is written.
fn settle(next: &mut Value, mut managers: Vec<Manager>, own: Manager) {
    match managers.iter_mut().find(|manager| manager.is(&own)) {
        Some(known) if known.fields == own.fields => {}
        Some(known) => *known = own,
        None => managers.push(own),
    }
    managers::write(next, managers);
}

fn merge(target: &mut Value, applied: &Value, name: &str, shapes: Shapes<'_>) {
    match applied {
        Value::Object(fields) if !shapes.is_atomic_map(name) => {
            if !target.is_object() {
                *target = json!({});
            }
            for (name, value) in fields {
                if name == "managedFields" {
                    continue;
                }
                merge(&mut target[name], value, name, shapes.field(name));
            }
        }
        Value::Array(items) => {
            let kind = shapes.list(name);
            if kind == ListKind::Atomic || !target.is_array() {
                *target = applied.clone();
                return;
            }
            let Some(list) = target.as_array_mut() else {
                return;
            };
            for item in items {
                let known = match &kind {
                    ListKind::Map(keys) => {
                        let wanted = identity(item, keys);
                        list.iter_mut().find(|known| identity(known, keys) == wanted)
                    }
                    _ => list.iter_mut().find(|known| *known == item),
                };
                match known {
                    Some(known) if shapes.has_atomic_items(name) => known.clone_from(item),
                    Some(known) => merge(known, item, "", shapes.items()),
                    None => list.push(item.clone()),
                }
            }
        }
        other => *target = other.clone(),
    }
}

/// Removes a field, and parents that become empty.
fn remove(object: &mut Value, path: &[PathElement]) {
    let Some((first, rest)) = path.split_first() else {
        return;
    };
    match first {
        PathElement::Field(name) => {
            let Some(fields) = object.as_object_mut() else {
                return;
            };
            if rest.is_empty() {
                fields.remove(name);
            } else if let Some(below) = fields.get_mut(name) {
                remove(below, rest);
                let empty = below.as_object().is_some_and(serde_json::Map::is_empty)
                    || below.as_array().is_some_and(Vec::is_empty);
                if empty {
                    fields.remove(name);
                }
            }
        }
        PathElement::Item(keys) => {
            let Some(items) = object.as_array_mut() else {
                return;
            };
            match items.iter().position(|item| managers::has_identity(item, keys)) {
                Some(at) if rest.is_empty() => _ = items.remove(at),
                Some(at) => remove(&mut items[at], rest),
                None => {}
            }
        }
        PathElement::Member(member) => {
            if let Some(items) = object.as_array_mut() {
                let gone: Value = serde_json::from_str(member).unwrap_or_default();
                items.retain(|item| *item != gone);
            }
        }
    }
}

fn refused(conflicts: &[(Manager, FieldPath)]) -> StatusError {
    let causes: Vec<Value> = conflicts
        .iter()
        .map(|(manager, path)| {
            json!({"reason": "FieldManagerConflict", "message": format!("conflict with {}", shown(manager)),
                "field": dotted(path)})
        })
        .collect();
    let message = match conflicts {
        [(manager, path)] => {
            format!("Apply failed with 1 conflict: conflict with {}: {}", shown(manager), dotted(path))
        }
        many => {
            let mut text = format!("Apply failed with {} conflicts: ", many.len());
            let mut last = None;
            for (manager, path) in many {
                if last.is_none_or(|last: &Manager| !last.is(manager)) {
                    let line = if last.is_some() { "\n" } else { "" };
                    let _ = write!(text, "{line}conflicts with {}:", shown(manager));
                }
                let _ = write!(text, "\n- {}", dotted(path));
                last = Some(manager);
            }
            text
        }
    };
    StatusError::new(409, "Conflict", message).with_details(json!({"causes": causes}))
}

fn shown(manager: &Manager) -> String {
    let mut text = format!("{:?}", manager.name);
    if !manager.subresource.is_empty() {
        let _ = write!(text, " with subresource {:?}", manager.subresource);
    }
    if !manager.applies {
        let _ = write!(text, " using {}", manager.api_version);
    }
    text
}

/// A path as in conflict messages: `.spec.containers[name="c"].image`.
fn dotted(path: &[PathElement]) -> String {
    let mut text = String::new();
    for step in path {
        let _ = match step {
            PathElement::Field(name) => write!(text, ".{name}"),
            PathElement::Member(value) => write!(text, "[={value}]"),
            PathElement::Item(keys) => {
                let keys: Value = serde_json::from_str(keys).unwrap_or_default();
                let pairs = keys.as_object().into_iter().flatten();
                let pairs: Vec<String> = pairs.map(|(key, value)| format!("{key}={value}")).collect();
                write!(text, "[{}]", pairs.join(","))
            }
        };
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::catalog::resource::{Resource, built_in};

    fn pods() -> Resource {
        built_in().into_iter().find(|resource| resource.plural() == "pods").unwrap()
    }

    fn applied(current: &Value, manager: &str, wanted: &Value, force: bool) -> Result<Value, StatusError> {
        let resource = pods();
        let writer = Writer {
            manager,
            subresource: "",
            resource: &resource,
            api_version: "v1".into(),
            now: "2026-01-01T00:00:00Z",
        };
        apply(current, wanted, &writer, force)
    }

    #[test]
    fn a_field_that_is_no_longer_applied_is_removed_unless_another_manager_has_it() {
        let both = json!({"metadata": {"labels": {"a": "1", "b": "1"}}});
        let only_a = json!({"metadata": {"labels": {"a": "1"}}});
        let first = applied(&json!({}), "x", &both, false).unwrap();
        let shared = applied(&first, "y", &both, false).unwrap();
        let kept = applied(&shared, "x", &only_a, false).unwrap();
        assert_eq!(kept["metadata"]["labels"], json!({"a": "1", "b": "1"}));
        let gone = applied(&kept, "y", &only_a, false).unwrap();
        assert_eq!(gone["metadata"]["labels"], json!({"a": "1"}));
    }

    #[test]
    fn a_field_that_another_manager_set_otherwise_is_a_conflict_until_forced() {
        let label = |value: &str| json!({"metadata": {"labels": {"x": value}}});
        let first = applied(&json!({}), "nm-a", &label("1"), false).unwrap();
        let refusal = applied(&first, "nm-b", &label("2"), false).unwrap_err();
        assert_eq!(
            refusal.message,
            "Apply failed with 1 conflict: conflict with \"nm-a\": .metadata.labels.x"
        );
        let taken = applied(&first, "nm-b", &label("2"), true).unwrap();
        assert_eq!(managers::read(&taken).len(), 1);
        assert!(applied(&taken, "nm-a", &label("1"), false).is_err());
    }

    /// Selectors, references and some items of lists are one value: who leaves out a default of the API server has another
    /// one.
    #[test]
    fn a_default_that_is_left_out_of_one_value_is_a_conflict() {
        let owner = |extra: Value| {
            let mut owner = json!({"uid": "u", "name": "n"});
            json_patch::merge(&mut owner, &extra);
            json!({"metadata": {"ownerReferences": [owner]}})
        };
        let variable = |reference: Value| json!({"spec": {"containers": [{"name": "c", "env": [{"name": "N", "valueFrom": {"fieldRef": reference}}]}]}});
        for (written, other, field) in [
            (
                variable(json!({"apiVersion": "v1", "fieldPath": "metadata.name"})),
                variable(json!({"fieldPath": "metadata.name"})),
                ".spec.containers[name=\"c\"].env[name=\"N\"].valueFrom.fieldRef",
            ),
            (owner(json!({"controller": true})), owner(json!({})), ".metadata.ownerReferences[uid=\"u\"]"),
        ] {
            let first = applied(&json!({}), "x", &written, false).unwrap();
            assert!(applied(&first, "y", &written, false).is_ok());
            let refusal = applied(&first, "y", &other, false).unwrap_err();
            assert_eq!(
                refusal.message,
                format!("Apply failed with 1 conflict: conflict with \"x\": {field}")
            );
        }
    }

    #[test]
    fn applying_the_same_again_changes_nothing() {
        let wanted =
            json!({"spec": {"containers": [{"name": "c", "image": "i", "ports": [{"containerPort": 80}]}]}});
        let first = applied(&json!({}), "x", &wanted, false).unwrap();
        assert_eq!(applied(&first, "x", &wanted, false).unwrap(), first);
    }

    #[test]
    fn an_update_takes_what_it_changes() {
        let resource = pods();
        let first =
            applied(&json!({}), "x", &json!({"metadata": {"labels": {"a": "1", "b": "1"}}}), false).unwrap();
        let mut changed = first.clone();
        changed["metadata"]["labels"]["a"] = json!("2");
        let writer = Writer {
            manager: "kubectl",
            subresource: "",
            resource: &resource,
            api_version: "v1".into(),
            now: "t",
        };
        managers::after_update(&first, &mut changed, &writer);
        let refusal = applied(&changed, "x", &json!({"metadata": {"labels": {"a": "1", "b": "1"}}}), false)
            .unwrap_err();
        assert!(
            refusal.message.contains("conflict with \"kubectl\" using v1: .metadata.labels.a"),
            "{}",
            refusal.message
        );
    }
}
