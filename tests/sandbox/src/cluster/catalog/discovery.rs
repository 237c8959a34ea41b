//! Discovery: groups, versions and resources, in the legacy and in the aggregated format.

use std::borrow::Cow;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use serde_json::{Value, json};

use crate::cluster::Catalog;
use crate::cluster::catalog::resource::Resource;

const ALL_VERBS: &[&str] =
    &["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"];

/// The same of custom resources, in their order.
const CUSTOM_VERBS: &[&str] =
    &["delete", "deletecollection", "get", "list", "patch", "create", "update", "watch"];

const REVIEWS: [(&str, &str); 2] = [("authentication.k8s.io", "v1"), ("authorization.k8s.io", "v1")];

/// `/version`
pub(crate) fn server_version() -> Value {
    json!({
        "major": "1", "minor": "36", "emulationMajor": "1", "emulationMinor": "36", "minCompatibilityMajor": "1",
        "minCompatibilityMinor": "35", "gitVersion": "v1.36.2", "gitCommit": "$Format:%H$", "gitTreeState": "",
        "buildDate": "1970-01-01T00:00:00Z", "goVersion": "go1.26.6", "compiler": "gc", "platform": "linux/amd64",
    })
}

/// `/api`
pub(crate) fn core(address: &str) -> Value {
    json!({"kind": "APIVersions", "versions": ["v1"],
        "serverAddressByClientCIDRs": [{"clientCIDR": "0.0.0.0/0", "serverAddress": address}]})
}

/// `/apis`
pub(crate) fn groups(catalog: &Catalog) -> Value {
    let groups: Vec<Value> =
        all_groups(catalog).into_iter().map(|(group, versions)| group_of(&group, &versions)).collect();
    json!({"kind": "APIGroupList", "apiVersion": "v1", "groups": groups})
}

/// `/apis/GROUP`
pub(crate) fn group(catalog: &Catalog, wanted: &str) -> Option<Value> {
    let (group, versions) = all_groups(catalog).into_iter().find(|(group, _)| group == wanted)?;
    let mut found = group_of(&group, &versions);
    found["kind"] = json!("APIGroup");
    found["apiVersion"] = json!("v1");
    Some(found)
}

/// `/api/v1` or `/apis/GROUP/VERSION`
pub(crate) fn version(catalog: &Catalog, group: &str, version: &str) -> Option<Value> {
    let resources = catalog.aggregated.listed(group, version).or_else(|| {
        let own: Vec<Value> =
            entries(catalog, group, version).iter().flat_map(DiscoveryEntry::listed).collect();
        Some(own).filter(|own| !own.is_empty())
    })?;
    let mut list = json!({"kind": "APIResourceList", "groupVersion": api_version(group, version),
        "resources": resources});
    if !group.is_empty() {
        list["apiVersion"] = json!("v1");
    }
    Some(list)
}

/// `/api`, aggregated.
pub(crate) fn aggregated_core(catalog: &Catalog) -> Value {
    aggregated(catalog, &[(String::new(), vec!["v1".to_owned()])])
}

/// `/apis`, aggregated.
pub(crate) fn aggregated_groups(catalog: &Catalog) -> Value {
    aggregated(catalog, &all_groups(catalog))
}

/// Every named group, aggregated ones last.
fn all_groups(catalog: &Catalog) -> Vec<(String, Vec<String>)> {
    let mut groups = named_groups(catalog);
    groups.extend(catalog.aggregated.named());
    groups
}

/// Every named group that is served here, with its versions, the preferred one first.
pub(crate) fn named_groups(catalog: &Catalog) -> Vec<(String, Vec<String>)> {
    let mut groups: Vec<(String, Vec<String>)> = Vec::new();
    let known = catalog.all();
    for (group, version) in known.iter().flat_map(|resource| {
        // Reviews are not stored, but their groups have a position.
        let reviews: &[_] = if resource.group() == "events.k8s.io" { &REVIEWS } else { &[] };
        std::iter::once((resource.group(), resource.version.as_ref())).chain(reviews.iter().copied())
    }) {
        if group.is_empty() {
            continue;
        }
        let at = groups.iter().position(|(known, _)| known == group).unwrap_or_else(|| {
            groups.push((group.to_owned(), Vec::new()));
            groups.len() - 1
        });
        if groups[at].1.iter().all(|known| known != version) {
            groups[at].1.push(version.to_owned());
        }
    }
    groups
}

fn aggregated(catalog: &Catalog, groups: &[(String, Vec<String>)]) -> Value {
    let items: Vec<Value> = groups
        .iter()
        .map(|(group, versions)| {
            let metadata = if group.is_empty() { json!({}) } else { json!({"name": group}) };
            let versions: Vec<Value> = versions
                .iter()
                .map(|version| {
                    let own = || entries(catalog, group, version);
                    let resources = catalog.aggregated.nested(group, version).unwrap_or_else(|| {
                        own().iter().map(|entry| entry.aggregated(group, version)).collect()
                    });
                    json!({"version": version, "resources": resources, "freshness": "Current"})
                })
                .collect();
            json!({"metadata": metadata, "versions": versions})
        })
        .collect();
    json!({"kind": "APIGroupDiscoveryList", "apiVersion": "apidiscovery.k8s.io/v2", "metadata": {}, "items": items})
}

/// The start of the hash of the version and kind in which objects are stored.
fn storage_hash(resource: &Resource) -> String {
    // The SHA-256 of the TLS library avoids another dependency.
    let rustls::SupportedCipherSuite::Tls13(suite) =
        rustls::crypto::ring::cipher_suite::TLS13_AES_128_GCM_SHA256
    else {
        return String::new();
    };
    let stored = format!("{}/{}/{}", resource.storage().group, resource.version, resource.kind);
    let hash = suite.common.hash_provider.hash(stored.as_bytes());
    BASE64_STANDARD.encode(&hash.as_ref()[..8])
}

fn group_of(group: &str, versions: &[String]) -> Value {
    let versions: Vec<Value> = versions
        .iter()
        .map(|version| json!({"groupVersion": api_version(group, version), "version": version}))
        .collect();
    json!({"name": group, "versions": versions, "preferredVersion": versions[0]})
}

fn api_version(group: &str, version: &str) -> String {
    if group.is_empty() { version.to_owned() } else { format!("{group}/{version}") }
}

/// A resource in discovery.
struct DiscoveryEntry {
    name: String,
    singular: String,
    kind: String,
    namespaced: bool,
    /// Whether a CRD defines it.
    custom: bool,
    verbs: Vec<&'static str>,
    short_names: Vec<Cow<'static, str>>,
    categories: Vec<Cow<'static, str>>,
    below: Vec<Below>,
    /// `storageVersionHash`, which changes with the stored version.
    storage_hash: Option<String>,
}

/// A subresource: its name, kind, verbs, and the group and version of the kind if they differ.
type Below = (&'static str, String, &'static [&'static str], Option<(&'static str, &'static str)>);

fn entries(catalog: &Catalog, group: &str, version: &str) -> Vec<DiscoveryEntry> {
    let review = |plural: &str, kind: &str, namespaced| DiscoveryEntry {
        name: plural.to_owned(),
        singular: kind.to_lowercase(),
        kind: kind.to_owned(),
        namespaced,
        custom: false,
        verbs: vec!["create"],
        short_names: Vec::new(),
        categories: Vec::new(),
        below: Vec::new(),
        storage_hash: None,
    };
    match (group, version) {
        ("authentication.k8s.io", "v1") => vec![
            review("selfsubjectreviews", "SelfSubjectReview", false),
            review("tokenreviews", "TokenReview", false),
        ],
        ("authorization.k8s.io", "v1") => vec![
            review("localsubjectaccessreviews", "LocalSubjectAccessReview", true),
            review("selfsubjectaccessreviews", "SelfSubjectAccessReview", false),
            review("selfsubjectrulesreviews", "SelfSubjectRulesReview", false),
            review("subjectaccessreviews", "SubjectAccessReview", false),
        ],
        _ => catalog
            .all()
            .iter()
            .filter(|resource| resource.group() == group && resource.version == version)
            .map(DiscoveryEntry::of)
            .collect(),
    }
}

impl DiscoveryEntry {
    fn of(resource: &Resource) -> Self {
        let kind = || resource.kind.to_string();
        let mut below: Vec<Below> = Vec::new();
        match (resource.group(), resource.plural()) {
            ("", "pods") => {
                below.push(("binding", "Binding".into(), &["create"], None));
                below.push(("eviction", "Eviction".into(), &["create"], Some(("policy", "v1"))));
                below.push(("log", kind(), &["get"], None));
            }
            ("", "serviceaccounts") => {
                let token = Some(("authentication.k8s.io", "v1"));
                below.push(("token", "TokenRequest".into(), &["create"], token));
            }
            ("", "namespaces") => below.push(("finalize", kind(), &["update"], None)),
            ("apps", "deployments" | "replicasets" | "statefulsets") | ("", "replicationcontrollers") => {
                let scale = Some(("autoscaling", "v1"));
                below.push(("scale", "Scale".into(), &["get", "patch", "update"], scale));
            }
            _ => {}
        }
        if resource.status {
            below.push(("status", kind(), &["get", "patch", "update"], None));
        }
        let no_collection = (resource.group(), resource.plural()) == ("", "namespaces");
        let verbs = if resource.definition.is_some() { CUSTOM_VERBS } else { ALL_VERBS }
            .iter()
            .filter(|verb| !(no_collection && **verb == "deletecollection"));
        Self {
            name: resource.plural().to_owned(),
            singular: resource.singular.to_string(),
            kind: kind(),
            namespaced: resource.namespaced,
            custom: resource.definition.is_some(),
            verbs: verbs.copied().collect(),
            short_names: resource.short_names.clone(),
            categories: resource.categories.clone(),
            below,
            storage_hash: Some(storage_hash(resource)),
        }
    }

    fn listed(&self) -> Vec<Value> {
        let mut own = json!({"name": self.name, "singularName": self.singular, "namespaced": self.namespaced,
            "kind": self.kind, "verbs": self.verbs});
        self.name_it(&mut own);
        if let Some(hash) = &self.storage_hash {
            own["storageVersionHash"] = json!(hash);
        }
        let below = self.below.iter().map(|(name, kind, verbs, own_version)| {
            let mut entry = json!({"name": format!("{}/{name}", self.name), "singularName": "",
                "namespaced": self.namespaced, "kind": kind, "verbs": verbs});
            if let Some((group, version)) = own_version {
                entry["group"] = json!(group);
                entry["version"] = json!(version);
            }
            entry
        });
        std::iter::once(own).chain(below).collect()
    }

    fn aggregated(&self, group: &str, version: &str) -> Value {
        let kind = |kind: &str, (group, version): (&str, &str)| json!({"group": group, "version": version, "kind": kind});
        // Built-in kinds omit the group and version of the page.
        let own = if self.custom { (group, version) } else { ("", "") };
        let mut entry = json!({"resource": self.name, "responseKind": kind(&self.kind, own),
            "scope": if self.namespaced { "Namespaced" } else { "Cluster" }, "singularResource": self.singular,
            "verbs": self.verbs});
        self.name_it(&mut entry);
        if !self.below.is_empty() {
            let below = self.below.iter().map(|(name, what, verbs, other)| {
                json!({"subresource": name, "responseKind": kind(what, other.unwrap_or(own)), "verbs": verbs})
            });
            entry["subresources"] = below.collect();
        }
        entry
    }

    fn name_it(&self, entry: &mut Value) {
        if !self.short_names.is_empty() {
            entry["shortNames"] = json!(self.short_names);
        }
        if !self.categories.is_empty() {
            entry["categories"] = json!(self.categories);
        }
    }
}
