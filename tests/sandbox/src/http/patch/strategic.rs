//! Strategic merge patches of built-in resources: some lists are merged item by item.

use serde_json::{Map, Value};

use crate::http::patch::shapes::{ListKind, Shapes, identity};

const DIRECTIVE: &str = "$patch";
const RETAIN: &str = "$retainKeys";
const ORDER: &str = "$setElementOrder/";
const DELETE: &str = "$deleteFromPrimitiveList/";

/// The part of a patch that contradicts itself, which is an error.
///
/// A part without a counterpart in `target` is taken without its directives.
pub(crate) fn nonsense<'a>(target: &Value, patch: &'a Value) -> Option<&'a Value> {
    let (fields, changes) = (target.as_object()?, patch.as_object()?);
    match changes.get(DIRECTIVE) {
        Some(directive) if directive == "replace" || directive == "delete" => None,
        Some(_) => Some(patch),
        None => changes.iter().find_map(|(name, change)| nonsense(fields.get(name)?, change)),
    }
}

/// Merges `patch` into `target`.
pub(crate) fn merge(target: &mut Value, patch: &Value, shapes: &Shapes<'_>) {
    let Some(changes) = patch.as_object() else {
        *target = patch.clone();
        return;
    };
    if changes.get(DIRECTIVE).is_some_and(|directive| directive == "replace") {
        *target = plain(patch);
        return;
    }
    if !target.is_object() {
        *target = Value::Object(Map::new());
    }
    let Some(fields) = target.as_object_mut() else {
        return;
    };
    for (name, change) in changes {
        if name.starts_with('$') {
            continue;
        }
        let below = shapes.field(name);
        match change {
            Value::Null => _ = fields.remove(name),
            Value::Object(inner) if inner.get(DIRECTIVE).is_some_and(|directive| directive == "delete") => {
                fields.remove(name);
            }
            Value::Object(_) => merge(fields.entry(name.clone()).or_insert(Value::Null), change, &below),
            Value::Array(items) => {
                let list = fields.entry(name.clone()).or_insert(Value::Null);
                merge_list(list, items, &below.list(name), &below);
            }
            scalar => _ = fields.insert(name.clone(), scalar.clone()),
        }
    }
    directives(fields, changes, shapes);
}

/// The directives for whole lists and for keys to retain.
fn directives(fields: &mut Map<String, Value>, changes: &Map<String, Value>, shapes: &Shapes<'_>) {
    for (name, change) in changes {
        let listed = change.as_array().map(Vec::as_slice).unwrap_or_default();
        if let Some(name) = name.strip_prefix(DELETE)
            && let Some(items) = fields.get_mut(name).and_then(Value::as_array_mut)
        {
            items.retain(|item| !listed.contains(item));
        } else if let Some(name) = name.strip_prefix(ORDER)
            && let Some(items) = fields.get_mut(name).and_then(Value::as_array_mut)
        {
            order(items, listed, &shapes.field(name).list(name));
        } else if name == RETAIN {
            fields.retain(|name, _| listed.iter().any(|kept| kept == name));
        }
    }
}

fn merge_list(list: &mut Value, patch: &[Value], kind: &ListKind, shapes: &Shapes<'_>) {
    let replaces = |item: &Value| item[DIRECTIVE] == "replace";
    if *kind == ListKind::Atomic || !list.is_array() || patch.iter().any(replaces) {
        let kept = patch.iter().filter(|item| !replaces(item));
        *list = match kind {
            ListKind::Atomic => kept.map(literal).collect(),
            _ => kept.filter(|item| item[DIRECTIVE] != "delete").map(plain).collect(),
        };
        return;
    }
    let Some(items) = list.as_array_mut() else {
        return;
    };
    for change in patch {
        let ListKind::Map(keys) = kind else {
            if !items.contains(change) {
                items.push(change.clone());
            }
            continue;
        };
        let wanted = identity(change, keys);
        let at = items.iter().position(|item| identity(item, keys) == wanted);
        match (at, change[DIRECTIVE] == "delete") {
            (Some(at), true) => _ = items.remove(at),
            (None, true) => {}
            (Some(at), false) => merge(&mut items[at], change, &shapes.items()),
            (None, false) => items.push(plain(change)),
        }
    }
}

/// Sorts the listed items; others come after them.
fn order(items: &mut [Value], listed: &[Value], kind: &ListKind) {
    let rank = |value: &Value| {
        let found = match kind {
            ListKind::Map(keys) => {
                let wanted = identity(value, keys);
                listed.iter().position(|entry| identity(entry, keys) == wanted)
            }
            _ => listed.iter().position(|entry| entry == value),
        };
        found.unwrap_or(listed.len())
    };
    items.sort_by_cached_key(rank);
}

/// A value without directives and nulls, as when there is nothing to merge it with.
fn plain(value: &Value) -> Value {
    without(value, |name, value| name.starts_with('$') || value.is_null())
}

/// A value without nulls. Directives without meaning at their position are ordinary fields.
fn literal(value: &Value) -> Value {
    without(value, |_, value| value.is_null())
}

fn without(value: &Value, dropped: fn(&str, &Value) -> bool) -> Value {
    match value {
        Value::Object(fields) => fields
            .iter()
            .filter(|(name, value)| !dropped(name, value))
            .map(|(name, value)| (name.clone(), without(value, dropped)))
            .collect(),
        Value::Array(items) => items.iter().map(|item| without(item, dropped)).collect(),
        other => other.clone(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn merged(mut target: Value, patch: &Value) -> Value {
        merge(&mut target, patch, &Shapes::BuiltIn);
        target
    }

    #[test]
    fn directives_that_nobody_knows_matter_where_there_is_something_to_merge() {
        let target = json!({"metadata": {"name": "a"}, "spec": {"unschedulable": true}});
        let bogus = json!({"$patch": "bogus"});
        for (patch, expected) in [
            (bogus.clone(), Some(&bogus)),
            (json!({"spec": bogus}), Some(&bogus)),
            (json!({"metadata": {"labels": bogus}}), None),
            (json!({"metadata": {"ownerReferences": [bogus]}}), None),
            (json!({"spec": {"$patch": "replace"}}), None),
            (json!({"spec": {"$patch": "delete"}}), None),
        ] {
            assert_eq!(nonsense(&target, &patch), expected, "{patch}");
        }
        let unlabelled = merged(target, &json!({"metadata": {"labels": bogus}}));
        assert_eq!(unlabelled["metadata"]["labels"], json!({}));
    }

    #[test]
    fn lists_with_keys_are_merged_and_others_replaced() {
        for (target, patch, expected) in [
            (
                json!({"containers": [{"name": "a", "image": "1"}, {"name": "b"}]}),
                json!({"containers": [{"name": "a", "image": "2"}, {"name": "c"}]}),
                json!({"containers": [{"name": "a", "image": "2"}, {"name": "b"}, {"name": "c"}]}),
            ),
            (
                json!({"containers": [{"name": "a"}, {"name": "b"}]}),
                json!({"containers": [{"$patch": "delete", "name": "a"}]}),
                json!({"containers": [{"name": "b"}]}),
            ),
            (
                json!({"conditions": [{"type": "Ready", "status": "False"}]}),
                json!({"conditions": [{"type": "Ready", "status": "True"}]}),
                json!({"conditions": [{"type": "Ready", "status": "True"}]}),
            ),
            (
                json!({"taints": [{"key": "a"}]}),
                json!({"taints": [{"key": "b"}]}),
                json!({"taints": [{"key": "b"}]}),
            ),
            (json!({"finalizers": ["a"]}), json!({"finalizers": ["b"]}), json!({"finalizers": ["a", "b"]})),
            (
                json!({"finalizers": ["a", "b"]}),
                json!({"$deleteFromPrimitiveList/finalizers": ["a"]}),
                json!({"finalizers": ["b"]}),
            ),
            (
                json!({"env": [{"name": "a"}, {"name": "b"}]}),
                json!({"$setElementOrder/env": [{"name": "c"}, {"name": "b"}, {"name": "a"}], "env": [{"name": "c"}]}),
                json!({"env": [{"name": "c"}, {"name": "b"}, {"name": "a"}]}),
            ),
            (
                json!({"strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1}}}),
                json!({"strategy": {"$retainKeys": ["type"], "type": "Recreate"}}),
                json!({"strategy": {"type": "Recreate"}}),
            ),
            (
                json!({"labels": {"a": "1", "b": "2"}}),
                json!({"labels": {"a": null}}),
                json!({"labels": {"b": "2"}}),
            ),
            (
                json!({"spec": {"a": 1, "b": 2}}),
                json!({"spec": {"$patch": "replace", "c": 3}}),
                json!({"spec": {"c": 3}}),
            ),
        ] {
            assert_eq!(merged(target, &patch), expected, "{patch}");
        }
    }
}
