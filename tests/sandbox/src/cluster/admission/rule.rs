//! `rules` of a webhook: operations, groups, versions, resources and scope.

use serde_json::Value;

use crate::cluster::admission::review_request::{ReviewRequest, View};

/// One rule.
#[derive(Debug, Clone)]
pub(crate) struct WebhookRule {
    operations: Vec<String>,
    groups: Vec<String>,
    versions: Vec<String>,
    resources: Vec<String>,
    scope: String,
}

impl WebhookRule {
    /// Reads a rule.
    pub(crate) fn parse(rule: &Value) -> Self {
        let list = |field: &str| {
            let entries = rule[field].as_array().into_iter().flatten();
            entries.filter_map(Value::as_str).map(str::to_owned).collect()
        };
        Self {
            operations: list("operations"),
            groups: list("apiGroups"),
            versions: list("apiVersions"),
            resources: list("resources"),
            scope: rule["scope"].as_str().unwrap_or("*").to_owned(),
        }
    }

    /// Whether the rule matches a view of the request.
    pub(crate) fn covers(&self, question: &ReviewRequest, view: &View) -> bool {
        let scope = match self.scope.as_str() {
            "Namespaced" => question.is_namespaced(),
            "Cluster" => !question.is_namespaced(),
            _ => true,
        };
        scope
            && lists(&self.operations, question.operation)
            && lists(&self.groups, &view.group)
            && lists(&self.versions, &view.version)
            && self.resources.iter().any(|entry| names(entry, &view.plural, &question.subresource))
    }
}

fn lists(entries: &[String], wanted: &str) -> bool {
    entries.iter().any(|entry| entry == "*" || entry == wanted)
}

/// `pods`, `pods/eviction`, `pods/*`, `*/status`, `*` for everything except subresources, `*/*` for everything.
fn names(entry: &str, plural: &str, subresource: &str) -> bool {
    let (resource, below) = entry.split_once('/').unwrap_or((entry, ""));
    (resource == "*" || resource == plural) && (below == "*" || below == subresource)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_resource_is_named_with_its_subresources_or_without() {
        for (entry, plural, subresource, expected) in [
            ("pods", "pods", "", true),
            ("pods", "pods", "eviction", false),
            ("pods/eviction", "pods", "eviction", true),
            ("pods/eviction", "pods", "", false),
            ("pods/*", "pods", "", true),
            ("pods/*", "pods", "status", true),
            ("pods/*", "nodes", "status", false),
            ("*", "nodes", "", true),
            ("*", "nodes", "status", false),
            ("*/status", "nodes", "status", true),
            ("*/*", "nodes", "", true),
            ("*/*", "nodes", "status", true),
        ] {
            assert_eq!(names(entry, plural, subresource), expected, "{entry} and {plural}/{subresource}");
        }
    }
}
