//! The namespace controller: it deletes the content of a terminating namespace, then the namespace.

use std::collections::BTreeSet;

use serde_json::json;

use crate::cluster::catalog::resource::NAMESPACES;
use crate::cluster::registry::Propagation;
use crate::cluster::store::{Change, Collection, Key, Object};
use crate::model::pod;

use crate::controllers::engine::context::ReconcileContext;
use crate::controllers::engine::controller::{Controller, Requeue, Watches};

/// The namespace controller.
#[derive(Debug, Default)]
pub(crate) struct Namespaces {
    terminating: BTreeSet<Key>,
}

/// Deletes the content of a namespace. Returns whether it is empty.
fn empty(ctx: &mut ReconcileContext<'_>, namespace: &str) -> bool {
    let mut empty = true;
    for resource in ctx.catalog.all() {
        let left: Vec<Object> = ctx.state.list(&resource.collection, Some(namespace)).collect();
        for object in left {
            empty = false;
            if ctx.is_full() {
                return false;
            }
            if !pod::is_terminating(&object) {
                ctx.delete(&resource.collection, &object, None, Propagation::Background);
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

    /// Every change triggers a reconcile, so a terminating namespace is checked whenever an object may have left it.
    fn sync(&mut self, ctx: &mut ReconcileContext<'_>) -> Requeue {
        for key in &self.terminating {
            // Checked again, since what was just deleted may be gone at once.
            if !empty(ctx, &key.name) && !empty(ctx, &key.name) {
                continue;
            }
            if let Some(namespace) = ctx.get(&NAMESPACES, key) {
                ctx.edit(&NAMESPACES, &namespace, |namespace| {
                    namespace["spec"]["finalizers"] = json!([]);
                });
            }
        }
        Requeue::now_if(ctx.is_full())
    }
}
