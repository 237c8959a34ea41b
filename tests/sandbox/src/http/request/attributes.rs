//! The attributes of a request for authorization: verb, resource, namespace and name.

use http::Method;

use crate::access::Attributes;
use crate::http::request::path::{Query, ResourcePath};
use crate::http::selector::fields;

/// The attributes of a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct RequestAttributes {
    /// The verb in roles and in the request log.
    pub(crate) verb: &'static str,
    namespace: String,
    name: String,
}

impl RequestAttributes {
    /// The attributes of a request for a resource.
    pub(crate) fn of(path: &ResourcePath, query: &Query, method: &Method) -> Self {
        let verb = match (method.as_str(), &path.name) {
            ("GET" | "HEAD", None) if query.flag("watch") => "watch",
            ("GET" | "HEAD", None) => "list",
            ("GET" | "HEAD", Some(_)) => "get",
            ("POST", _) => "create",
            ("PUT", _) => "update",
            ("PATCH", _) => "patch",
            ("DELETE", Some(_)) => "delete",
            ("DELETE", None) => "deletecollection",
            _ => "",
        };
        let mut name = path.name.clone().unwrap_or_default();
        if matches!(verb, "list" | "watch")
            && let Some(only) = query.get("fieldSelector").and_then(fields::only_name)
        {
            only.clone_into(&mut name);
        }
        // A namespace belongs to itself.
        let is_namespace = path.group.is_empty() && path.plural == "namespaces";
        let namespace = if is_namespace { &path.name } else { &path.namespace };
        Self { verb, namespace: namespace.clone().unwrap_or_default(), name }
    }

    /// The same as attributes.
    pub(crate) fn attributes<'a>(&'a self, path: &'a ResourcePath) -> Attributes<'a> {
        Attributes::Resource {
            verb: self.verb,
            group: &path.group,
            plural: &path.plural,
            // Aggregated API servers interpret the rest of the path.
            subresource: path
                .subresource
                .as_deref()
                .unwrap_or_default()
                .split('/')
                .next()
                .unwrap_or_default(),
            namespace: &self.namespace,
            name: &self.name,
        }
    }

    /// Aggregated API servers authorize the whole path once more.
    pub(crate) fn whole<'a>(&'a self, path: &'a ResourcePath) -> Attributes<'a> {
        let whole = path.subresource.as_deref().unwrap_or_default();
        match self.attributes(path) {
            Attributes::Resource { verb, group, plural, namespace, name, .. } => {
                Attributes::Resource { verb, group, plural, subresource: whole, namespace, name }
            }
            other @ Attributes::Path { .. } => other,
        }
    }

    /// Who changes owner references may have to be allowed to delete the object.
    pub(crate) fn to_delete(&self) -> Self {
        Self { verb: "delete", ..self.clone() }
    }

    /// An apply to an object that does not exist needs `create` as well.
    pub(crate) fn to_create(&self) -> Self {
        Self { verb: "create", ..self.clone() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http::request::path::{Path, parse};

    fn right(method: &str, url: &str) -> String {
        let (path, query) = url.split_once('?').unwrap_or((url, ""));
        let Path::Resource(path) = parse(path) else { panic!("{path} is no resource") };
        let right = RequestAttributes::of(&path, &Query::parse(query), &Method::try_from(method).unwrap());
        format!("{} {}|{}", right.verb, right.namespace, right.name)
    }

    #[test]
    fn the_attributes_of_a_request_follow_from_its_path() {
        for (method, url, expected) in [
            ("GET", "/api/v1/nodes", "list |"),
            ("GET", "/api/v1/nodes?watch=1", "watch |"),
            ("GET", "/api/v1/nodes/n?watch=1", "get |n"),
            ("GET", "/api/v1/namespaces/a", "get a|a"),
            ("PUT", "/api/v1/namespaces/a/finalize", "update a|a"),
            ("GET", "/api/v1/namespaces/a/pods?fieldSelector=metadata.name%3Dp", "list a|p"),
            ("GET", "/api/v1/pods?fieldSelector=metadata.name!%3Dp", "list |"),
            ("POST", "/api/v1/namespaces/a/pods/p/eviction", "create a|p"),
            ("DELETE", "/api/v1/namespaces/a/pods", "deletecollection a|"),
            ("DELETE", "/api/v1/namespaces/a/pods/p", "delete a|p"),
            ("OPTIONS", "/api/v1/nodes", " |"),
        ] {
            assert_eq!(right(method, url), expected, "{method} {url}");
        }
    }
}
