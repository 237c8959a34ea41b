//! Namespaces that are deleted: what is in them goes first, then they do.

use std::collections::BTreeSet;

use serde_json::json;

use crate::pod;
use crate::registry::Propagation;
use crate::resource::NAMESPACES;
use crate::store::{Change, Collection, Key, Object};

use super::controller::{Controller, Next, Watches};
use super::desk::Desk;

/// The namespace controller.
#[derive(Debug, Default)]
pub(crate) struct Namespaces {
    terminating: BTreeSet<Key>,
}

/// Deletes what is left in a namespace; says whether nothing was.
fn empty(desk: &mut Desk<'_>, namespace: &str) -> bool {
    let mut empty = true;
    for resource in desk.catalog.all() {
        let left: Vec<Object> = desk.state.list(&resource.collection, Some(namespace)).collect();
        for object in left {
            empty = false;
            if desk.is_full() {
                return false;
            }
            if !pod::is_terminating(&object) {
                desk.delete(&resource.collection, &object, None, Propagation::Background);
            }
        }
    }
    empty
}

impl Controller for Namespaces {
    fn watches(&self) -> Watches {
        const WATCHED: &[Collection] = &[NAMESPACES];
        Watches::These(WATCHED)
    }

    fn forget(&mut self, _: &Collection) {
        self.terminating.clear();
    }

    fn observe(&mut self, _: &Collection, change: &Change) {
        let Some(namespace) = change.after.as_ref().or(change.before.as_ref()) else {
            return;
        };
        if change.after.is_some() && pod::is_terminating(namespace) {
            self.terminating.insert(Key::of(namespace));
        } else {
            self.terminating.remove(&Key::of(namespace));
        }
    }

    /// Every change of anything gives a turn, so a terminating namespace is looked at whenever something may have
    /// left it.
    fn act(&mut self, desk: &mut Desk<'_>) -> Next {
        for key in &self.terminating {
            // A second look, since what the first one deleted may be gone at once.
            if !empty(desk, &key.name) && !empty(desk, &key.name) {
                continue;
            }
            if let Some(namespace) = desk.get(&NAMESPACES, key) {
                desk.edit(&NAMESPACES, &namespace, |namespace| {
                    namespace["spec"]["finalizers"] = json!([]);
                });
            }
        }
        Next::now_if(desk.is_full())
    }
}
