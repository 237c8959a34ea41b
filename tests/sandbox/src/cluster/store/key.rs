//! The key of an object: its collection, namespace and name.

use std::borrow::Cow;
use std::sync::Arc;

use serde_json::Value;

/// The objects of one resource in all its versions.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Collection {
    /// API group; empty for the core group.
    pub group: Cow<'static, str>,
    /// Plural name, as in paths.
    pub plural: Cow<'static, str>,
}

impl Collection {
    /// The collection of a built-in resource.
    pub const fn fixed(group: &'static str, plural: &'static str) -> Self {
        Self { group: Cow::Borrowed(group), plural: Cow::Borrowed(plural) }
    }

    /// The collection of a custom resource.
    pub fn named(group: impl Into<String>, plural: impl Into<String>) -> Self {
        Self { group: Cow::Owned(group.into()), plural: Cow::Owned(plural.into()) }
    }
}

/// Namespace and name of an object; the namespace is empty for cluster-scoped objects.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Key {
    /// Namespace, or empty.
    pub namespace: String,
    /// Name.
    pub name: String,
}

impl Key {
    /// The key of a namespaced object.
    pub fn new(namespace: impl Into<String>, name: impl Into<String>) -> Self {
        Self { namespace: namespace.into(), name: name.into() }
    }

    /// The key of a cluster-scoped object.
    pub fn cluster(name: impl Into<String>) -> Self {
        Self::new("", name)
    }

    /// The key in an object's metadata.
    pub fn of(object: &Value) -> Self {
        let field = |name: &str| object["metadata"][name].as_str().unwrap_or_default().to_owned();
        Self { namespace: field("namespace"), name: field("name") }
    }
}

/// Which objects of a collection to list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ListScope<'a> {
    /// All of them.
    Everything,
    /// Those of one namespace.
    Namespace(&'a str),
    /// Those with this `spec.nodeName`.
    Node(&'a str),
}

impl ListScope<'_> {
    /// Whether it includes an object with this key on this node.
    pub(crate) fn has(self, key: &Key, node: Option<&Arc<str>>) -> bool {
        match self {
            Self::Everything => true,
            Self::Namespace(namespace) => key.namespace == namespace,
            Self::Node(wanted) => node.is_some_and(|node| **node == *wanted),
        }
    }
}
