//! Parts of the transcripts that are not compared, each with its reason.
//!
//! All of it is discovery: kinds and subresources that the sandbox does not serve. Every request is replayed, and of
//! what the sandbox does serve nothing is left out.

use serde_json::Value;

/// Groups, resources and subresources that are left out for one reason.
pub(crate) struct LeftOut {
    /// As in `nodes/proxy`; a group stands for everything in it.
    pub(crate) names: &'static [&'static str],
    /// Why.
    pub(crate) reason: &'static str,
}

/// Everything that is left out: ten entries at most.
pub(crate) const LEFT_OUT: [LeftOut; 8] = [
    LeftOut {
        names: &[
            "nodes/proxy",
            "pods/attach",
            "pods/exec",
            "pods/portforward",
            "pods/proxy",
            "services/proxy",
        ],
        reason: "no container runs, so there is nothing to speak to",
    },
    LeftOut {
        names: &["pods/ephemeralcontainers", "pods/resize"],
        reason: "no container runs, so there is none to add to a pod or to give more to",
    },
    LeftOut {
        names: &["bindings"],
        reason: "pods are bound through pods/binding, of which this is the form that nobody uses any more",
    },
    LeftOut {
        names: &["componentstatuses"],
        reason: "tells of processes beside the API server; the sandbox is one process",
    },
    LeftOut { names: &["apiregistration.k8s.io"], reason: "no other API servers stand behind this one" },
    LeftOut { names: &["autoscaling"], reason: "nothing uses resources, so there is nothing to scale by" },
    LeftOut { names: &["certificates.k8s.io"], reason: "nobody approves or signs certificates" },
    LeftOut { names: &["resource.k8s.io"], reason: "nodes have no devices to claim" },
];

/// Every name that is left out.
pub(crate) fn names() -> Vec<&'static str> {
    LEFT_OUT.iter().flat_map(|entry| entry.names.iter().copied()).collect()
}

/// A page of discovery without what is left out; all else as it is, in its order.
pub(crate) fn without(names: &[&str], page: &Value) -> Value {
    let mut page = page.clone();
    if page["kind"].as_str().is_none_or(|kind| !kind.starts_with("API")) {
        return page;
    }
    for list in ["groups", "resources", "items"] {
        retain(&mut page, list, |entry| !is_left_out(names, "", entry));
    }
    for group in entries(&mut page, "items") {
        for version in entries(group, "versions") {
            retain(version, "resources", |entry| !is_left_out(names, "", entry));
            for resource in entries(version, "resources") {
                let parent = resource["resource"].as_str().unwrap_or_default().to_owned();
                retain(resource, "subresources", |entry| !is_left_out(names, &parent, entry));
            }
        }
    }
    page
}

fn is_left_out(names: &[&str], parent: &str, entry: &Value) -> bool {
    let name = ["name", "resource", "subresource"].iter().find_map(|field| entry[*field].as_str());
    let name = name.or_else(|| entry["metadata"]["name"].as_str()).unwrap_or_default();
    let full = if parent.is_empty() { name.to_owned() } else { format!("{parent}/{name}") };
    names.contains(&full.as_str())
}

fn retain(page: &mut Value, list: &str, keep: impl Fn(&Value) -> bool) {
    let Some(entries) = page.get_mut(list).and_then(Value::as_array_mut) else { return };
    entries.retain(keep);
    // As in a page that never had any.
    if entries.is_empty()
        && let Some(page) = page.as_object_mut()
    {
        page.remove(list);
    }
}

fn entries<'a>(page: &'a mut Value, list: &str) -> impl Iterator<Item = &'a mut Value> + use<'a> {
    page.get_mut(list).and_then(Value::as_array_mut).into_iter().flatten()
}
