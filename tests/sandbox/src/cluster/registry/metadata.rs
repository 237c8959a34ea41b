//! `metadata` and generations: replaces one part of an object and keeps the rest.

use serde_json::{Value, json};
use uuid::Uuid;

use crate::cluster::catalog::resource::Resource;
use crate::cluster::registry::defaults;

/// The part of an object that a write changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Part {
    /// Everything but the status, if the resource has a status subresource.
    Main,
    /// The status.
    Status,
}

/// The result of a write to one part of `current`: system metadata and the other part stay.
pub(crate) fn merged(resource: &Resource, current: &Value, object: &Value, part: Part) -> Value {
    let mut next = match (part, resource.status) {
        (Part::Status, _) => {
            let mut next = with_part_of(current, object, "status");
            for field in resource.metadata_of_status() {
                copy(&mut next["metadata"], &object["metadata"], field);
            }
            take_managers(&mut next, object);
            tidy(&mut next["metadata"]);
            return next;
        }
        (Part::Main, true) => with_part_of(object, current, "status"),
        (Part::Main, false) => object.clone(),
    };
    let system = [
        "uid",
        "creationTimestamp",
        "generation",
        "deletionTimestamp",
        "deletionGracePeriodSeconds",
        "resourceVersion",
        "generateName",
    ];
    for field in system {
        copy(&mut next["metadata"], &current["metadata"], field);
    }
    // A write without managed fields keeps them.
    if next["metadata"]["managedFields"].as_array().is_none_or(Vec::is_empty) {
        copy(&mut next["metadata"], &current["metadata"], "managedFields");
    }
    tidy(&mut next["metadata"]);
    copy(&mut next, current, "apiVersion");
    copy(&mut next, current, "kind");
    defaults::tidy(resource, &mut next);
    if resource.generation && counted(&next).ne(counted(current)) {
        bump_generation(&mut next);
    }
    next
}

/// A copy of an object with one field of another, without copying that field twice.
fn with_part_of(object: &Value, other: &Value, field: &str) -> Value {
    let own = object.as_object().into_iter().flatten().filter(|(name, _)| *name != field);
    let part = other.as_object().and_then(|fields| fields.get_key_value(field));
    own.chain(part).map(|(name, value)| (name.clone(), value.clone())).collect()
}

fn take_managers(next: &mut Value, object: &Value) {
    if object["metadata"]["managedFields"].as_array().is_some_and(|managers| !managers.is_empty()) {
        copy(&mut next["metadata"], &object["metadata"], "managedFields");
    }
}

pub(crate) fn bump_generation(object: &mut Value) {
    let generation = object["metadata"]["generation"].as_i64().unwrap_or(0) + 1;
    object["metadata"]["generation"] = json!(generation);
}

pub(crate) fn add_finalizer(object: &mut Value, name: &str) {
    let mut names: Vec<String> = finalizers(object).into_iter().map(str::to_owned).collect();
    if names.iter().all(|existing| existing != name) {
        names.push(name.to_owned());
    }
    object["metadata"]["finalizers"] = json!(names);
}

/// `metadata.finalizers`.
pub fn finalizers(object: &Value) -> Vec<&str> {
    object["metadata"]["finalizers"].as_array().into_iter().flatten().filter_map(Value::as_str).collect()
}

/// The fields that the generation counts.
fn counted(object: &Value) -> impl Iterator<Item = (&String, &Value)> {
    let fields = object.as_object().into_iter().flatten();
    fields.filter(|(name, _)| !matches!(name.as_str(), "metadata" | "status"))
}

/// Removes empty lists and maps of metadata.
pub(crate) fn tidy(metadata: &mut Value) {
    if let Some(fields) = metadata.as_object_mut() {
        fields.retain(|_, value| match value {
            Value::Null => false,
            Value::Array(items) => !items.is_empty(),
            Value::Object(entries) => !entries.is_empty(),
            _ => true,
        });
    }
}

fn copy(to: &mut Value, from: &Value, field: &str) {
    match from.get(field) {
        Some(value) => to[field] = value.clone(),
        None => strip(to, &[field]),
    }
}

pub(crate) fn strip(object: &mut Value, fields: &[&str]) {
    if let Some(map) = object.as_object_mut() {
        for field in fields {
            map.remove(*field);
        }
    }
}

/// Five random characters of the alphabet for generated names.
pub(crate) fn suffix() -> String {
    const ALPHABET: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";
    let random = Uuid::new_v4();
    random
        .as_bytes()
        .iter()
        .take(5)
        .map(|byte| char::from(ALPHABET[usize::from(*byte) % ALPHABET.len()]))
        .collect()
}
