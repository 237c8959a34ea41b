//! Parsing of paths and queries.

use crate::model::percent_encoding::decode;

/// A parsed path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Path {
    /// `/api`
    CoreVersions,
    /// `/apis`
    Groups,
    /// `/apis/GROUP`
    Group(String),
    /// `/api/v1` or `/apis/GROUP/VERSION`
    GroupVersion {
        /// Group, empty for the core group.
        group: String,
        /// Version.
        version: String,
    },
    /// A resource in a version.
    Resource(ResourcePath),
    /// An API path with an empty segment.
    Nowhere,
    /// Any other path: health, version, `OpenAPI`, or unknown.
    Other(String),
}

/// The path of a collection or an object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ResourcePath {
    pub(crate) group: String,
    pub(crate) version: String,
    pub(crate) plural: String,
    pub(crate) namespace: Option<String>,
    pub(crate) name: Option<String>,
    pub(crate) subresource: Option<String>,
}

/// Parses a path.
pub(crate) fn parse(path: &str) -> Path {
    let inside = path.strip_prefix('/').unwrap_or(path);
    // One trailing slash is ignored.
    let inside = inside.strip_suffix('/').unwrap_or(inside);
    let parts: Vec<String> = inside.split('/').map(|part| decode(part, false)).collect();
    let parts: Vec<&str> = parts.iter().map(String::as_str).collect();
    let (group, version, rest) = match parts.as_slice() {
        ["api"] => return Path::CoreVersions,
        ["apis"] => return Path::Groups,
        ["api" | "apis", ""] => return Path::Other(path.to_owned()),
        ["apis", group] => return Path::Group((*group).to_owned()),
        ["api", version, rest @ ..] => ("", *version, rest),
        ["apis", group, version, rest @ ..] => (*group, *version, rest),
        _ => return Path::Other(path.to_owned()),
    };
    let is_empty = |part: &&str| part.is_empty();
    if version.is_empty() || (parts[0] == "apis" && group.is_empty()) {
        return Path::Nowhere;
    }
    let (group, version) = (group.to_owned(), version.to_owned());
    // Subresources of a namespace look like resources in it.
    let (namespace, rest) = match rest {
        ["namespaces", _, "status" | "finalize"] => (None, rest),
        // Without a namespace, all namespaces.
        ["namespaces", "", inside @ ..] if !inside.is_empty() => (None, inside),
        ["namespaces", namespace, inside @ ..] if !inside.is_empty() => {
            (Some((*namespace).to_owned()), inside)
        }
        _ => (None, rest),
    };
    if rest.iter().any(is_empty) {
        return Path::Nowhere;
    }
    let (plural, name, subresource) = match rest {
        [] => return Path::GroupVersion { group, version },
        [plural] => (*plural, None, None),
        [plural, name] => (*plural, Some(*name), None),
        [plural, name, subresource @ ..] => (*plural, Some(*name), Some(subresource.join("/"))),
    };
    Path::Resource(ResourcePath {
        group,
        version,
        plural: plural.to_owned(),
        namespace,
        name: name.map(str::to_owned),
        subresource,
    })
}

/// Query parameters.
#[derive(Debug, Clone, Default)]
pub(crate) struct Query(Vec<(String, String)>);

impl Query {
    /// Parses the query.
    pub(crate) fn parse(text: &str) -> Self {
        let pairs = text.split('&').filter(|pair| !pair.is_empty());
        Self(
            pairs
                .map(|pair| {
                    let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
                    (decode(name, true), decode(value, true))
                })
                .collect(),
        )
    }

    /// The same query of a list at exactly this revision, unless it continues one or wants another revision.
    pub(crate) fn at_revision(mut self, revision: u64) -> Self {
        let is_free =
            self.get("continue").is_none() && self.get("resourceVersion").is_none_or(|any| any == "0");
        if is_free {
            self.0.retain(|(name, _)| name != "resourceVersion" && name != "resourceVersionMatch");
            self.0.push(("resourceVersion".to_owned(), revision.to_string()));
            self.0.push(("resourceVersionMatch".to_owned(), "Exact".to_owned()));
        }
        self
    }

    /// The first value of a parameter, if it is not empty.
    pub(crate) fn get(&self, name: &str) -> Option<&str> {
        self.given(name).filter(|value| !value.is_empty())
    }

    /// The first value of a parameter, even if it is empty.
    pub(crate) fn given(&self, name: &str) -> Option<&str> {
        let (_, value) = self.0.iter().find(|(known, _)| known == name)?;
        Some(value)
    }

    /// All values of a parameter.
    pub(crate) fn all<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a str> {
        self.0.iter().filter(move |(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    /// Whether a flag is set. Every value except a false one sets it.
    pub(crate) fn flag(&self, name: &str) -> bool {
        self.given(name).is_some_and(|value| value != "0" && !value.eq_ignore_ascii_case("false"))
    }

    /// A number, if it is valid.
    pub(crate) fn number<T: std::str::FromStr>(&self, name: &str) -> Option<T> {
        self.get(name)?.parse().ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn taken_apart(path: &str) -> String {
        match parse(path) {
            Path::Resource(path) => format!(
                "{}|{}|{}|{}|{}|{}",
                path.group,
                path.version,
                path.namespace.unwrap_or_default(),
                path.plural,
                path.name.unwrap_or_default(),
                path.subresource.unwrap_or_default()
            ),
            other => format!("{other:?}"),
        }
    }

    #[test]
    fn paths_name_what_they_name() {
        for (path, expected) in [
            ("/api/v1/nodes", "|v1||nodes||"),
            ("/api/v1/nodes/n/status", "|v1||nodes|n|status"),
            ("/api/v1/namespaces/a", "|v1||namespaces|a|"),
            ("/api/v1/namespaces/a/finalize", "|v1||namespaces|a|finalize"),
            ("/api/v1/namespaces/a/pods/p/eviction", "|v1|a|pods|p|eviction"),
            ("/apis/apps/v1/deployments", "apps|v1||deployments||"),
            ("/apis/r/v1/clusterroles/system%3Anode", "r|v1||clusterroles|system:node|"),
        ] {
            assert_eq!(taken_apart(path), expected);
        }
        assert_eq!(parse("/apis/apps"), Path::Group("apps".into()));
        assert_eq!(parse("/readyz"), Path::Other("/readyz".into()));
        assert_eq!(parse("/"), Path::Other("/".into()));
    }

    #[test]
    fn an_empty_part_leads_nowhere_but_at_the_end() {
        for path in ["//api/v1/nodes", "//", "/apis//", "/healthz/"] {
            assert_eq!(parse(path), Path::Other(path.into()));
        }
        for path in [
            "/api//v1/nodes",
            "/api/v1//nodes",
            "/api/v1/nodes//n",
            "/api/v1/nodes/n//status",
            "/api/v1/nodes//",
            "/apis//apps/v1/deployments",
            "/apis/apps//v1/deployments",
        ] {
            assert_eq!(parse(path), Path::Nowhere, "{path}");
        }
        for (path, same) in [
            ("/api/v1/nodes/", "/api/v1/nodes"),
            ("/api/v1/", "/api/v1"),
            ("/apis/", "/apis"),
            ("/api/v1/namespaces//pods", "/api/v1/pods"),
        ] {
            assert_eq!(parse(path), parse(same), "{path}");
        }
    }

    #[test]
    fn queries_are_decoded() {
        let query = Query::parse("labelSelector=zone+in+%28a%2Cb%29&watch=1&limit=5&empty=");
        assert_eq!(query.get("labelSelector"), Some("zone in (a,b)"));
        assert!(query.flag("watch") && query.get("empty").is_none() && query.given("empty") == Some(""));
        assert!(!Query::parse("watch=False").flag("watch") && Query::parse("watch=yes").flag("watch"));
        assert_eq!(query.number::<usize>("limit"), Some(5));
    }
}
