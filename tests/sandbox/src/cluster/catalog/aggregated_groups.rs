//! API groups of aggregated API servers, as discovery reports them.
//!
//! A real API server proxies their requests to an `APIService`. Here such a group is served in this process.

use std::sync::{PoisonError, RwLock};

use serde_json::{Value, json};

/// The aggregated groups.
#[derive(Debug, Default)]
pub struct AggregatedGroups {
    groups: RwLock<Vec<AggregatedGroup>>,
}

/// A group with subresources only, which have neither kinds nor verbs, as KubeVirt lists them.
#[derive(Debug, Clone)]
struct AggregatedGroup {
    group: String,
    version: String,
    subresources: Vec<String>,
}

impl AggregatedGroups {
    /// Sets the subresources of a group version, each as `PLURAL/SUBRESOURCE` of a namespaced resource.
    pub fn offer(&self, group: &str, version: &str, subresources: &[&str]) {
        let mut groups = self.groups.write().unwrap_or_else(PoisonError::into_inner);
        groups.retain(|offer| (&*offer.group, &*offer.version) != (group, version));
        let subresources = subresources.iter().map(|name| (*name).to_owned()).collect();
        groups.push(AggregatedGroup { group: group.to_owned(), version: version.to_owned(), subresources });
    }

    /// Whether it has this subresource.
    pub fn offers(&self, group: &str, version: &str, subresource: &str) -> bool {
        self.find(group, version)
            .is_some_and(|offer| offer.subresources.iter().any(|known| known == subresource))
    }

    /// The groups and their versions.
    pub(crate) fn named(&self) -> Vec<(String, Vec<String>)> {
        let groups = self.groups.read().unwrap_or_else(PoisonError::into_inner);
        groups.iter().map(|offer| (offer.group.clone(), vec![offer.version.clone()])).collect()
    }

    /// The entries of a version in discovery.
    pub(crate) fn listed(&self, group: &str, version: &str) -> Option<Vec<Value>> {
        let entry = |name: &String| json!({"name": name, "singularName": "", "namespaced": true, "kind": "", "verbs": null});
        Some(self.find(group, version)?.subresources.iter().map(entry).collect())
    }

    /// The entries of a version in aggregated discovery, nested below their resources.
    pub(crate) fn nested(&self, group: &str, version: &str) -> Option<Vec<Value>> {
        let mut resources: Vec<Value> = Vec::new();
        let kind = json!({"group": "", "version": "", "kind": ""});
        for name in self.find(group, version)?.subresources {
            let (plural, below) = name.split_once('/').unwrap_or((&name, ""));
            let below = json!({"subresource": below, "responseKind": kind, "verbs": null});
            let known = resources.iter_mut().find(|resource| resource["resource"] == plural);
            match known.and_then(|resource| resource["subresources"].as_array_mut()) {
                Some(subresources) => subresources.push(below),
                None => resources.push(json!({
                    "resource": plural, "responseKind": kind, "scope": "Namespaced", "singularResource": "",
                    "verbs": null, "subresources": [below],
                })),
            }
        }
        Some(resources)
    }

    fn find(&self, group: &str, version: &str) -> Option<AggregatedGroup> {
        let groups = self.groups.read().unwrap_or_else(PoisonError::into_inner);
        groups.iter().find(|offer| (&*offer.group, &*offer.version) == (group, version)).cloned()
    }
}
