//! Tables, as `kubectl get` shows them.

mod cell;
mod nodes;
mod other_kinds;
mod pods;
mod rbac;
mod storage;
mod workloads;

use jiff::Timestamp;
use serde_json::{Value, json};

use crate::cluster::catalog::resource::Resource;
use crate::cluster::crd;
use crate::http::response::table::cell::{Table, since};

/// `columnDefinitions`
pub(crate) fn columns(resource: &Resource) -> Value {
    let name = |priority: i32| json!({"name": "Name", "type": "string", "format": "name", "description": "", "priority": priority});
    let mut columns = vec![name(0)];
    if let Some(definition) = &resource.definition {
        columns.extend(definition.columns.iter().map(|column| {
            json!({"name": column.name, "type": column.kind, "format": column.format,
                "description": column.description, "priority": column.priority})
        }));
    } else {
        columns.extend(built_in(resource).columns.iter().map(|(name, kind, wide)| {
            // The only one of these columns that is said to be a name.
            let format = if *name == "Attacher" { "name" } else { "" };
            // kubectl shows no descriptions.
            json!({"name": name, "type": kind, "format": format, "description": "",
                "priority": i32::from(*wide)})
        }));
    }
    if has_name_last(resource) {
        columns.remove(0);
        columns.push(name(1));
    }
    Value::Array(columns)
}

/// The cells of one object.
pub(crate) fn cells(resource: &Resource, object: &Value, now: Timestamp) -> Vec<Value> {
    let mut cells = vec![object["metadata"]["name"].clone()];
    match &resource.definition {
        Some(definition) => cells.extend(definition.columns.iter().map(|column| {
            let value = crd::cell(column, object);
            match (column.kind.as_str(), value.as_str()) {
                ("date", Some(time)) => json!(since(time, now)),
                _ => value,
            }
        })),
        None => cells.extend((built_in(resource).cells)(object, now)),
    }
    if has_name_last(resource) {
        cells.rotate_left(1);
    }
    cells
}

fn has_name_last(resource: &Resource) -> bool {
    resource.definition.is_none() && built_in(resource).name_last
}

fn built_in(resource: &Resource) -> &'static Table {
    match (resource.group(), resource.plural()) {
        ("", "nodes") => &nodes::NODES,
        ("", "pods") => &pods::PODS,
        ("", "namespaces") => &other_kinds::NAMESPACES,
        ("", "events") => &other_kinds::EVENTS,
        ("events.k8s.io", "events") => &other_kinds::NEW_EVENTS,
        ("", "services") => &other_kinds::SERVICES,
        ("", "configmaps") => &other_kinds::CONFIG_MAPS,
        ("", "secrets") => &other_kinds::SECRETS,
        ("apps", "deployments") => &workloads::DEPLOYMENTS,
        ("apps", "replicasets") => &workloads::REPLICA_SETS,
        ("apps", "statefulsets") => &workloads::STATEFUL_SETS,
        ("apps", "daemonsets") => &workloads::DAEMON_SETS,
        ("batch", "jobs") => &workloads::JOBS,
        ("policy", "poddisruptionbudgets") => &workloads::BUDGETS,
        ("coordination.k8s.io", "leases") => &other_kinds::LEASES,
        ("apiextensions.k8s.io", "customresourcedefinitions") => &other_kinds::DEFINITIONS,
        ("rbac.authorization.k8s.io", "roles" | "clusterroles") => &rbac::ROLES,
        ("rbac.authorization.k8s.io", _) => &rbac::BINDINGS,
        ("scheduling.k8s.io", "priorityclasses") => &other_kinds::PRIORITY_CLASSES,
        ("", "persistentvolumes") => &storage::VOLUMES,
        ("", "persistentvolumeclaims") => &storage::CLAIMS,
        ("storage.k8s.io", "volumeattachments") => &storage::ATTACHMENTS,
        _ => &other_kinds::PLAIN,
    }
}
