//! The last write of an object, until the watch has caught up with it.
//!
//! A watch delivers our own write a moment after the API server answered it. A decision made in between from the older
//! object would write again, so the newer of the two is used.

use std::sync::Arc;

use kube::{Resource, ResourceExt};

/// The API server's answer to the last write of an object.
#[derive(Debug)]
pub(crate) struct LastWrite<K> {
    answer: Option<Arc<K>>,
    /// The newest version that the watch has delivered. An answer that arrives later and is older shows nothing new: the object
    /// may even be gone by now.
    delivered: u64,
}

impl<K> Default for LastWrite<K> {
    fn default() -> Self {
        Self { answer: None, delivered: 0 }
    }
}

impl<K: Resource> LastWrite<K> {
    /// Remembers an object as the API server returned it, unless the watch has delivered it already, or a newer one was returned
    /// to another request. Returns whether it does.
    pub(crate) fn remember(&mut self, object: K) -> bool {
        let is_new = !self.is_newer_than(&object) && version(&object) > self.delivered;
        if is_new {
            self.answer = Some(Arc::new(object));
        }
        is_new
    }

    /// Forgets the last write, after another one that failed.
    pub(crate) fn forget(&mut self) {
        self.answer = None;
    }

    /// The newer of `received` and the last write. Once the watch has caught up, the write is forgotten.
    pub(crate) fn latest(&mut self, received: Arc<K>) -> Arc<K> {
        self.forget_up_to(&received);
        self.newest(received)
    }

    /// The newer of the last write and `other`, which the watch has not necessarily delivered.
    pub(crate) fn newest(&self, other: Arc<K>) -> Arc<K> {
        self.answer.clone().filter(|_| self.is_newer_than(&other)).unwrap_or(other)
    }

    /// Forgets the last write unless it is newer than `received`.
    pub(crate) fn forget_up_to(&mut self, received: &K) {
        self.delivered = self.delivered.max(version(received));
        if !self.is_newer_than(received) {
            self.answer = None;
        }
    }

    /// The last write, if the watch has not caught up with it.
    pub(crate) fn get(&self) -> Option<Arc<K>> {
        self.answer.clone()
    }

    fn is_newer_than(&self, object: &K) -> bool {
        self.answer.as_ref().is_some_and(|own| version(own.as_ref()) > version(object))
    }
}

/// The resourceVersions of one resource are numbers that grow, also across objects of the same name. One that is not a
/// number is never newer.
fn version<K: Resource>(object: &K) -> u64 {
    object.resource_version().and_then(|version| version.parse().ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::api::core::v1::Node;

    fn node(version: &str) -> Node {
        let mut node = Node::default();
        node.metadata.resource_version = Some(version.to_owned());
        node
    }

    // Defect openshift/machine-config-operator#3264: An outdated cache shows the node as uncordoned, and it stays
    // cordoned.
    #[test]
    fn a_write_is_used_until_the_watch_has_caught_up() {
        let mut write = LastWrite::default();
        let latest = |write: &mut LastWrite<Node>, received: &str| {
            write.latest(Arc::new(node(received))).resource_version().unwrap_or_default()
        };
        assert_eq!(latest(&mut write, "9"), "9");
        write.remember(node("10"));
        write.remember(node("8"));
        assert_eq!(latest(&mut write, "9"), "10");
        assert_eq!(latest(&mut write, "11"), "11");
        assert_eq!(latest(&mut write, "9"), "9", "the write is forgotten");
    }
}
