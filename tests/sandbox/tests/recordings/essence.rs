//! What two clusters agree on.

use std::sync::LazyLock;

use regex::Regex;
use serde_json::{Value, json};

/// Groups and resources that the sandbox does not serve.
const UNSERVED: &[&str] = &[
    "apiregistration.k8s.io",
    "autoscaling",
    "certificates.k8s.io",
    "discovery.k8s.io",
    "flowcontrol.apiserver.k8s.io",
    "networking.k8s.io",
    "node.k8s.io",
    "resource.k8s.io",
    "bindings",
    "componentstatuses",
    "limitranges",
    "nodes/proxy",
    "pods/attach",
    "pods/ephemeralcontainers",
    "pods/exec",
    "pods/log",
    "pods/portforward",
    "pods/proxy",
    "pods/resize",
    "podtemplates",
    "replicationcontrollers",
    "resourcequotas",
    "services/proxy",
];

/// An object or an answer without what is one cluster's own.
pub(crate) fn essence(value: &Value) -> Value {
    match value {
        Value::Object(fields) => {
            let mut kept = json!({});
            for (name, value) in fields {
                match name.as_str() {
                    "uid"
                    | "resourceVersion"
                    | "creationTimestamp"
                    | "managedFields"
                    | "storageVersionHash"
                    | "serverAddress"
                    | "node.alpha.kubernetes.io/ttl"
                    | "description" => {}
                    "continue" => kept[name] = json!(value != ""),
                    "verbs" => kept[name] = sorted(value),
                    "cells" => kept[name] = value.as_array().into_iter().flatten().map(cell).collect(),
                    _ if value.as_str().is_some_and(is_time) => kept[name] = json!("<time>"),
                    _ => kept[name] = essence(value),
                }
            }
            node_or_crd(&mut kept);
            kept
        }
        Value::Array(items) => {
            let not_ready = "node.kubernetes.io/not-ready";
            items.iter().filter(|item| item["key"] != not_ready).map(essence).collect()
        }
        Value::String(text) => json!(nameless(text)),
        other => other.clone(),
    }
}

/// A page of discovery without what the sandbox does not serve; all else as it is, in its order.
pub(crate) fn without_unserved(page: &Value) -> Value {
    let mut page = page.clone();
    let unserved = |entry: &Value, parent: &str| {
        let name = ["name", "resource", "subresource"].iter().find_map(|field| entry[*field].as_str());
        let name = name.or_else(|| entry["metadata"]["name"].as_str()).unwrap_or_default();
        let full = if parent.is_empty() { name.to_owned() } else { format!("{parent}/{name}") };
        UNSERVED.iter().any(|known| {
            full.strip_prefix(known).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        })
    };
    for list in ["groups", "resources", "items"] {
        let is_discovery = page["kind"].as_str().is_some_and(|kind| kind.starts_with("API"));
        if let Some(entries) = page.get_mut(list).and_then(Value::as_array_mut).filter(|_| is_discovery) {
            entries.retain(|entry| !unserved(entry, ""));
        }
    }
    let groups = page.get_mut("items").and_then(Value::as_array_mut).into_iter().flatten();
    let versions = groups.filter_map(|group| group.get_mut("versions").and_then(Value::as_array_mut));
    for version in versions.flatten() {
        let Some(resources) = version.get_mut("resources").and_then(Value::as_array_mut) else { continue };
        resources.retain(|resource| !unserved(resource, ""));
        for resource in resources {
            let name = resource["resource"].as_str().unwrap_or_default().to_owned();
            let Some(below) = resource.get_mut("subresources").and_then(Value::as_array_mut) else {
                continue;
            };
            below.retain(|entry| !unserved(entry, &name));
            if below.is_empty() {
                resource.as_object_mut().unwrap().remove("subresources");
            }
        }
    }
    page
}

/// A node's status is its kubelet's, and a CRD's comes a moment later in a real cluster.
fn node_or_crd(object: &mut Value) {
    let is = |kind: &str| object["kind"] == kind;
    let listed_node = object["metadata"]["labels"]["kubernetes.io/hostname"].is_string();
    if (is("CustomResourceDefinition") || is("Node") || listed_node)
        && let Some(fields) = object.as_object_mut()
    {
        fields.remove("status");
    }
    for name in ["annotations", "taints"] {
        let nothing = object[name].as_object().is_some_and(serde_json::Map::is_empty)
            || object[name].as_array().is_some_and(Vec::is_empty);
        if (nothing || object[name].is_null())
            && let Some(fields) = object.as_object_mut()
        {
            fields.remove(name);
        }
    }
}

fn sorted(list: &Value) -> Value {
    let mut items: Vec<&str> = list.as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    items.sort_unstable();
    json!(items)
}

/// A cell, with ages alike.
fn cell(value: &Value) -> Value {
    let age = |text: &str| text.ends_with('s') && text[..text.len() - 1].bytes().all(|b| b.is_ascii_digit());
    match value.as_str() {
        Some(text) if age(text) => json!("<age>"),
        _ => value.clone(),
    }
}

fn is_time(text: &str) -> bool {
    text.parse::<jiff::Timestamp>().is_ok()
}

/// A text without uids, without the ends of generated names, and without the whole object that a complaint quotes.
fn nameless(text: &str) -> String {
    static OWN: LazyLock<[(Regex, &str); 3]> = LazyLock::new(|| {
        [
            (Regex::new("[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}").unwrap(), "<uid>"),
            (Regex::new("\\bnm-[a-z0-9]{5}\\b").unwrap(), "nm-<suffix>"),
            (Regex::new("Invalid value: \"\\{.*\\}\": ").unwrap(), "Invalid value: \"<object>\": "),
        ]
    });
    OWN.iter().fold(text.to_owned(), |text, (own, name)| own.replace_all(&text, *name).into_owned())
}
