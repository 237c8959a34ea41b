//! What this process wrote last, for as long as its watches have not caught up.
//!
//! A watch tells of our own write a moment after the API server answered it. A decision made in that moment from the
//! older object would write again; so the newer of the two is used.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use kube::{Resource, ResourceExt};

/// The last answer to a write, by the object's uid.
#[derive(Debug)]
pub(crate) struct OwnWrites<K> {
    written: Mutex<HashMap<String, Arc<K>>>,
}

impl<K> Default for OwnWrites<K> {
    fn default() -> Self {
        Self { written: Mutex::default() }
    }
}

impl<K: Resource> OwnWrites<K> {
    /// Remembers an object as the API server returned it, unless a newer one was returned to another request.
    pub(crate) fn remember(&self, object: K) {
        let Some(uid) = object.uid() else { return };
        let mut written = self.lock();
        if written.get(&uid).is_none_or(|own| version(own.as_ref()) < version(&object)) {
            written.insert(uid, Arc::new(object));
        }
    }

    /// The newer of `seen` and what was written. Once the watch has caught up, the write is forgotten.
    pub(crate) fn freshest(&self, seen: Arc<K>) -> Arc<K> {
        let mut written = self.lock();
        let Some(uid) = seen.uid() else { return seen };
        match written.get(&uid) {
            Some(own) if version(own.as_ref()) > version(seen.as_ref()) => own.clone(),
            Some(_) => {
                written.remove(&uid);
                seen
            }
            None => seen,
        }
    }

    /// Forgets all objects but those that `matters` names.
    pub(crate) fn retain(&self, matters: impl Fn(&K) -> bool) {
        self.lock().retain(|_, object| matters(object));
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<String, Arc<K>>> {
        self.written.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Kubernetes' resourceVersions of one resource are numbers that grow; one that is not a number never wins.
fn version<K: Resource>(object: &K) -> u64 {
    object.resource_version().and_then(|version| version.parse().ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::api::core::v1::Node;

    fn node(version: &str) -> Node {
        let mut node = Node::default();
        node.metadata.uid = Some("u".to_owned());
        node.metadata.resource_version = Some(version.to_owned());
        node
    }

    #[test]
    fn a_write_is_seen_until_the_watch_has_caught_up() {
        let writes = OwnWrites::default();
        let freshest =
            |seen: &str| writes.freshest(Arc::new(node(seen))).resource_version().unwrap_or_default();
        assert_eq!(freshest("9"), "9");
        writes.remember(node("10"));
        writes.remember(node("8"));
        assert_eq!(freshest("9"), "10");
        assert_eq!(freshest("11"), "11");
        assert_eq!(freshest("9"), "9", "the write was forgotten");
    }
}
