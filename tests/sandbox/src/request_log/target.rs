//! Patterns that match requests or objects.

use crate::request_log::Entry;
use crate::request_log::glob;

/// Matches requests by their fields in the request log. Patterns may contain `*` and `?`. A field without a pattern
/// matches everything, so [`Target::any`] matches every request.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Target {
    verbs: Vec<String>,
    group: Option<String>,
    resource: Option<String>,
    subresource: Option<String>,
    namespace: Option<String>,
    name: Option<String>,
    user_agent: Option<String>,
}

impl Target {
    /// Every request.
    pub fn any() -> Self {
        Self::default()
    }

    /// Requests with this verb: `get`, `list`, `watch`, `create`, `patch`. A second call adds another verb.
    #[must_use]
    pub fn verb(mut self, verb: &str) -> Self {
        self.verbs.push(verb.to_owned());
        self
    }

    /// Requests to this API group, empty for the core group.
    #[must_use]
    pub fn group(mut self, pattern: &str) -> Self {
        self.group = Some(pattern.to_owned());
        self
    }

    /// Requests to this resource and its subresources, or to this non-resource path.
    #[must_use]
    pub fn resource(mut self, pattern: &str) -> Self {
        self.resource = Some(pattern.to_owned());
        self
    }

    /// Requests to this subresource; empty for requests to the object itself.
    #[must_use]
    pub fn subresource(mut self, pattern: &str) -> Self {
        self.subresource = Some(pattern.to_owned());
        self
    }

    /// Requests in this namespace; empty for cluster-scoped requests.
    #[must_use]
    pub fn namespace(mut self, pattern: &str) -> Self {
        self.namespace = Some(pattern.to_owned());
        self
    }

    /// Requests for objects with this name; empty for requests to collections.
    #[must_use]
    pub fn name(mut self, pattern: &str) -> Self {
        self.name = Some(pattern.to_owned());
        self
    }

    /// Requests of this client, such as `kubectl/*`.
    #[must_use]
    pub fn user_agent(mut self, pattern: &str) -> Self {
        self.user_agent = Some(pattern.to_owned());
        self
    }

    /// Whether it matches a request.
    pub(crate) fn matches(&self, entry: &Entry) -> bool {
        (self.verbs.is_empty() || self.verbs.iter().any(|verb| verb == entry.verb))
            && agrees(self.subresource.as_deref(), &entry.subresource)
            && agrees(self.user_agent.as_deref(), &entry.user_agent)
            && self.covers(&entry.group, &entry.resource, &entry.namespace, &entry.name)
    }

    /// Whether it matches an object; verbs, subresource and client do not count.
    pub(crate) fn covers(&self, group: &str, resource: &str, namespace: &str, name: &str) -> bool {
        agrees(self.group.as_deref(), group)
            && agrees(self.resource.as_deref(), resource)
            && agrees(self.namespace.as_deref(), namespace)
            && agrees(self.name.as_deref(), name)
    }
}

fn agrees(pattern: Option<&str>, text: &str) -> bool {
    pattern.is_none_or(|pattern| glob::matches(pattern, text))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn eviction() -> Entry {
        Entry {
            verb: "create",
            resource: "pods".into(),
            subresource: "eviction".into(),
            namespace: "shop".into(),
            name: "web-7f".into(),
            user_agent: "my-operator/0.1.0".into(),
            ..Entry::default()
        }
    }

    #[test]
    fn a_target_matches_what_it_names_and_nothing_else() {
        for (target, expected) in [
            (Target::any(), true),
            (Target::any().verb("create"), true),
            (Target::any().verb("get"), false),
            (Target::any().verb("get").verb("create"), true),
            (Target::any().group(""), true),
            (Target::any().group("policy"), false),
            (Target::any().resource("pods"), true),
            (Target::any().resource("nodes"), false),
            (Target::any().resource("pods").subresource("eviction"), true),
            (Target::any().resource("pods").subresource(""), false),
            (Target::any().namespace("sh*"), true),
            (Target::any().namespace(""), false),
            (Target::any().name("web-*"), true),
            (Target::any().name("api-*"), false),
            (Target::any().user_agent("my-operator/*"), true),
            (Target::any().user_agent("kubectl/*"), false),
            (Target::any().verb("create").resource("pods").name("api-*"), false),
        ] {
            assert_eq!(target.matches(&eviction()), expected, "{target:?}");
        }
    }
}
