//! One rule of a role.

use serde_json::{Value, json};

use crate::access::attributes::Attributes;

/// A `PolicyRule`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct PolicyRule {
    verbs: Vec<String>,
    groups: Vec<String>,
    resources: Vec<String>,
    names: Vec<String>,
    urls: Vec<String>,
}

impl PolicyRule {
    /// Reads the rules of a role.
    pub(crate) fn all_of(role: &Value) -> Vec<Self> {
        role["rules"].as_array().into_iter().flatten().map(Self::read).collect()
    }

    fn read(rule: &Value) -> Self {
        let list = |field: &str| {
            let items = rule[field].as_array().into_iter().flatten();
            items.filter_map(Value::as_str).map(str::to_owned).collect()
        };
        Self {
            verbs: list("verbs"),
            groups: list("apiGroups"),
            resources: list("resources"),
            names: list("resourceNames"),
            urls: list("nonResourceURLs"),
        }
    }

    /// Whether the rule covers a request. The binding decides about the namespace.
    pub(crate) fn covers(&self, wanted: Attributes<'_>) -> bool {
        match wanted {
            Attributes::Resource { verb, group, plural, subresource, name, .. } => {
                has(&self.verbs, verb)
                    && has(&self.groups, group)
                    && self.resources.iter().any(|rule| is_resource(rule, plural, subresource))
                    && (self.names.is_empty() || self.names.iter().any(|known| known == name))
            }
            Attributes::Path { verb, path } => {
                has(&self.verbs, verb) && self.urls.iter().any(|rule| is_url(rule, path))
            }
        }
    }

    /// The rule as `SelfSubjectRulesReview` reports it, and whether it is about resources.
    pub(crate) fn to_review(&self) -> (bool, Value) {
        if self.resources.is_empty() {
            return (false, json!({"verbs": self.verbs, "nonResourceURLs": self.urls}));
        }
        let mut reported =
            json!({"verbs": self.verbs, "apiGroups": self.groups, "resources": self.resources});
        if !self.names.is_empty() {
            reported["resourceNames"] = json!(self.names);
        }
        (true, reported)
    }
}

fn has(list: &[String], wanted: &str) -> bool {
    list.iter().any(|known| known == "*" || known == wanted)
}

/// `*` matches everything, `pods` only pods, `pods/status` only their status, `*/status` every status.
fn is_resource(rule: &str, plural: &str, subresource: &str) -> bool {
    if rule == "*" {
        return true;
    }
    match rule.split_once('/') {
        None => subresource.is_empty() && rule == plural,
        Some((of, below)) => !subresource.is_empty() && below == subresource && (of == "*" || of == plural),
    }
}

/// A star at the end matches any suffix.
fn is_url(rule: &str, path: &str) -> bool {
    rule == path || rule.strip_suffix('*').is_some_and(|start| path.starts_with(start.trim_end_matches('*')))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn covers(rule: &Value, wanted: [&str; 5]) -> bool {
        let [verb, group, plural, subresource, name] = wanted;
        PolicyRule::read(rule).covers(Attributes::Resource {
            verb,
            group,
            plural,
            subresource,
            namespace: "ns",
            name,
        })
    }

    #[test]
    fn a_rule_covers_only_what_it_names() {
        let rule = |groups: &[&str], resources: &[&str], verbs: &[&str]| json!({"apiGroups": groups, "resources": resources, "verbs": verbs});
        let pods = rule(&[""], &["pods"], &["get", "list"]);
        for (rule, wanted, expected) in [
            (&pods, ["get", "", "pods", "", "p"], true),
            (&pods, ["list", "", "pods", "", ""], true),
            (&pods, ["watch", "", "pods", "", ""], false),
            (&pods, ["deletecollection", "", "pods", "", ""], false),
            (&pods, ["get", "apps", "pods", "", "p"], false),
            (&pods, ["get", "", "pods", "status", "p"], false),
            (&rule(&[""], &["pods/eviction"], &["create"]), ["create", "", "pods", "eviction", "p"], true),
            (&rule(&[""], &["pods/eviction"], &["create"]), ["create", "", "pods", "", ""], false),
            (&rule(&["*"], &["*/status"], &["patch"]), ["patch", "apps", "daemonsets", "status", "d"], true),
            (&rule(&["*"], &["*/status"], &["patch"]), ["patch", "apps", "daemonsets", "", "d"], false),
            (&rule(&["*"], &["*"], &["*"]), ["evict", "x", "y", "z", ""], true),
        ] {
            assert_eq!(covers(rule, wanted), expected, "{rule} {wanted:?}");
        }
    }

    #[test]
    fn a_rule_with_names_covers_only_these() {
        let rule =
            json!({"apiGroups": [""], "resources": ["nodes"], "resourceNames": ["a", "b"], "verbs": ["*"]});
        for (name, expected) in [("a", true), ("b", true), ("c", false), ("", false)] {
            assert_eq!(covers(&rule, ["get", "", "nodes", "", name]), expected, "{name}");
        }
    }

    #[test]
    fn paths_are_covered_exactly_or_by_a_star_at_the_end() {
        let rule = json!({"nonResourceURLs": ["/version", "/api/*"], "verbs": ["get"]});
        for (verb, path, expected) in [
            ("get", "/version", true),
            ("get", "/version/", false),
            ("get", "/api/v1", true),
            ("get", "/api", false),
            ("post", "/api/v1", false),
        ] {
            assert_eq!(
                PolicyRule::read(&rule).covers(Attributes::Path { verb, path }),
                expected,
                "{verb} {path}"
            );
        }
    }
}
