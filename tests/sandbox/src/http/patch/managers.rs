//! `metadata.managedFields`, updated by every write through the API.
//!
//! A field is a path of names and of the keys of list items. A field that an update changes belongs to its writer
//! only. Managers that apply the same value share a field (`apply`).

use std::collections::BTreeSet;

use serde_json::{Value, json};

use crate::cluster::catalog::resource::Resource;
use crate::http::patch::shapes::{ListKind, Shapes, identity};

/// One element of a path. The last two contain JSON with sorted keys.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum PathElement {
    /// A field of an object.
    Field(String),
    /// The item of a list with these keys.
    Item(String),
    /// The item of a set.
    Member(String),
}

/// A path from the root of an object.
pub(crate) type FieldPath = Vec<PathElement>;

/// Fields: every scalar, every atomic list or map, and every item of a list of items.
pub(crate) type FieldSet = BTreeSet<FieldPath>;

/// The writer of a write.
#[derive(Debug, Clone)]
pub(crate) struct Writer<'a> {
    /// Name of the manager.
    pub(crate) manager: &'a str,
    /// Subresource, or empty.
    pub(crate) subresource: &'a str,
    /// The resource as stored.
    pub(crate) resource: &'a Resource,
    /// The version of the write.
    pub(crate) api_version: String,
    /// The time of the write.
    pub(crate) now: &'a str,
}

/// One manager's fields.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Manager {
    pub(crate) name: String,
    /// `Apply` or `Update`.
    pub(crate) applies: bool,
    pub(crate) subresource: String,
    pub(crate) api_version: String,
    pub(crate) time: String,
    pub(crate) fields: FieldSet,
}

impl Manager {
    /// The manager of a writer.
    pub(crate) fn new(writer: &Writer<'_>, applies: bool) -> Self {
        Self {
            name: writer.manager.to_owned(),
            applies,
            subresource: writer.subresource.to_owned(),
            api_version: writer.api_version.clone(),
            time: writer.now.to_owned(),
            fields: FieldSet::new(),
        }
    }

    /// Whether it is the same manager, ignoring its fields.
    pub(crate) fn is(&self, other: &Self) -> bool {
        self.name == other.name && self.applies == other.applies && self.subresource == other.subresource
    }
}

/// Moves the fields that an update changed to its writer. An update without changes keeps all managers.
pub(crate) fn after_update(old: &Value, new: &mut Value, writer: &Writer<'_>) {
    let shapes = Shapes::of(writer.resource);
    let (before, after) = (fields(old, shapes), fields(new, shapes));
    let changed: FieldSet = after
        .iter()
        .filter(|path| !before.contains(*path) || at(old, path) != at(new, path))
        .cloned()
        .collect();
    if changed.is_empty() && before.is_subset(&after) {
        return;
    }
    let mut managers = read(old);
    for manager in &mut managers {
        manager.fields.retain(|path| after.contains(path) && !changed.contains(path));
    }
    let mut own = Manager::new(writer, false);
    own.fields = changed;
    match managers.iter_mut().find(|manager| manager.is(&own)) {
        Some(known) => {
            known.fields.append(&mut own.fields);
            known.time = own.time;
        }
        None => managers.push(own),
    }
    write(new, managers);
}

/// The managers of an object.
pub(crate) fn read(object: &Value) -> Vec<Manager> {
    let entries = object["metadata"]["managedFields"].as_array().into_iter().flatten();
    entries
        .map(|entry| {
            let text = |field: &str| entry[field].as_str().unwrap_or_default().to_owned();
            let mut fields = FieldSet::new();
            from_json(&entry["fieldsV1"], &mut Vec::new(), &mut fields);
            Manager {
                name: text("manager"),
                applies: entry["operation"] == "Apply",
                subresource: text("subresource"),
                api_version: text("apiVersion"),
                time: text("time"),
                fields,
            }
        })
        .collect()
}

/// Writes the managers; those without fields are dropped.
pub(crate) fn write(object: &mut Value, managers: Vec<Manager>) {
    let kept = managers.into_iter().filter(|manager| !manager.fields.is_empty());
    let entries: Vec<Value> = kept
        .map(|manager| {
            let mut entry = json!({"manager": manager.name,
                "operation": if manager.applies { "Apply" } else { "Update" }, "apiVersion": manager.api_version,
                "time": manager.time, "fieldsType": "FieldsV1", "fieldsV1": to_json(&manager.fields)});
            if !manager.subresource.is_empty() {
                entry["subresource"] = json!(manager.subresource);
            }
            entry
        })
        .collect();
    if !entries.is_empty() {
        object["metadata"]["managedFields"] = json!(entries);
    } else if let Some(metadata) = object["metadata"].as_object_mut() {
        metadata.remove("managedFields");
    }
}

/// All fields of an object that can be managed.
pub(crate) fn fields(object: &Value, shapes: Shapes<'_>) -> FieldSet {
    let mut found = FieldSet::new();
    for (name, value) in object.as_object().into_iter().flatten() {
        match name.as_str() {
            "apiVersion" | "kind" => {}
            "metadata" => {
                for (name, value) in value.as_object().into_iter().flatten() {
                    if matches!(name.as_str(), "labels" | "annotations" | "finalizers" | "ownerReferences") {
                        let mut path =
                            vec![PathElement::Field("metadata".into()), PathElement::Field(name.clone())];
                        collect(value, name, Shapes::BuiltIn, &mut path, &mut found);
                    }
                }
            }
            _ => collect(
                value,
                name,
                shapes.field(name),
                &mut vec![PathElement::Field(name.clone())],
                &mut found,
            ),
        }
    }
    found
}

fn collect(value: &Value, name: &str, shapes: Shapes<'_>, path: &mut FieldPath, found: &mut FieldSet) {
    match value {
        Value::Object(fields) if !fields.is_empty() && !shapes.is_atomic_map(name) => {
            for (name, value) in fields {
                path.push(PathElement::Field(name.clone()));
                collect(value, name, shapes.field(name), path, found);
                path.pop();
            }
        }
        Value::Array(items) => match shapes.list(name) {
            ListKind::Atomic => _ = found.insert(path.clone()),
            ListKind::Set => {
                for item in items {
                    path.push(PathElement::Member(item.to_string()));
                    found.insert(path.clone());
                    path.pop();
                }
            }
            ListKind::Map(keys) => {
                for item in items {
                    path.push(PathElement::Item(identity(item, &keys).to_string()));
                    found.insert(path.clone());
                    if !shapes.has_atomic_items(name) {
                        collect(item, "", shapes.items(), path, found);
                    }
                    path.pop();
                }
            }
        },
        _ => _ = found.insert(path.clone()),
    }
}

/// The value at a path, if there is one.
pub(crate) fn at<'a>(object: &'a Value, path: &[PathElement]) -> Option<&'a Value> {
    path.iter().try_fold(object, |value, step| match step {
        PathElement::Field(name) => value.get(name),
        PathElement::Item(keys) => value.as_array()?.iter().find(|item| has_identity(item, keys)),
        PathElement::Member(member) => value.as_array()?.iter().find(|item| item.to_string() == *member),
    })
}

/// Whether an item of a list has these keys.
pub(crate) fn has_identity(item: &Value, keys: &str) -> bool {
    let keys: Value = serde_json::from_str(keys).unwrap_or_default();
    let Some(keys) = keys.as_object() else {
        return false;
    };
    keys.iter().all(|(key, value)| item[key] == *value || (key == "protocol" && item[key].is_null()))
}

fn to_json(fields: &FieldSet) -> Value {
    let mut root = json!({});
    for path in fields {
        let mut place = &mut root;
        for step in path {
            let key = match step {
                PathElement::Field(name) => format!("f:{name}"),
                PathElement::Item(keys) => format!("k:{keys}"),
                PathElement::Member(value) => format!("v:{value}"),
            };
            place = &mut place[key];
            if place.is_null() {
                *place = json!({});
            }
        }
        if matches!(path.last(), Some(PathElement::Item(_))) {
            place["."] = json!({});
        }
    }
    root
}

fn from_json(value: &Value, path: &mut FieldPath, found: &mut FieldSet) {
    let Some(entries) = value.as_object() else {
        return;
    };
    if entries.is_empty() && !path.is_empty() {
        found.insert(path.clone());
    }
    for (key, below) in entries {
        let step = match key.split_at_checked(2) {
            Some(("f:", name)) => PathElement::Field(name.to_owned()),
            Some(("k:", keys)) => PathElement::Item(keys.to_owned()),
            Some(("v:", value)) => PathElement::Member(value.to_owned()),
            _ => {
                found.insert(path.clone());
                continue;
            }
        };
        path.push(step);
        from_json(below, path, found);
        path.pop();
    }
}
