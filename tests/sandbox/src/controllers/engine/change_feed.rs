//! Delivers changes to a controller: every change in the collections it watches, once and in order, or all objects
//! again if the history is lost.

use std::collections::HashMap;

use crate::cluster::Catalog;
use crate::cluster::store::{Change, Collection, State};
use crate::controllers::engine::controller::{Controller, Watches};

/// The last revision that a controller has seen, by collection.
#[derive(Debug, Default)]
pub(crate) struct ChangeFeed {
    seen: HashMap<Collection, u64>,
}

impl ChangeFeed {
    /// Delivers every change since the last call.
    pub(crate) fn read(&mut self, state: &State, catalog: &Catalog, controller: &mut impl Controller) {
        match controller.watches() {
            Watches::These(collections) => {
                for collection in collections {
                    self.read_one(state, collection, controller);
                }
            }
            Watches::Everything => {
                for resource in catalog.all() {
                    self.read_one(state, &resource.collection, controller);
                }
            }
        }
    }

    fn read_one(&mut self, state: &State, collection: &Collection, controller: &mut impl Controller) {
        let revision = state.revision();
        // A later revision is from before a restore.
        let seen = self.seen.get(collection).copied().filter(|seen| *seen <= revision);
        if seen == Some(revision) {
            return;
        }
        let changes = seen.and_then(|seen| state.changes_since(collection, seen));
        if let Some(changes) = changes {
            for change in changes {
                controller.observe(collection, &change);
            }
        } else {
            controller.forget(collection);
            for object in state.list(collection, None) {
                let change = Change { revision, before: None, after: Some(object), last: None };
                controller.observe(collection, &change);
            }
        }
        match self.seen.get_mut(collection) {
            Some(seen) => *seen = revision,
            None => drop(self.seen.insert(collection.clone(), revision)),
        }
    }
}
