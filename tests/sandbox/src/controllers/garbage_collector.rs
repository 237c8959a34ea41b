//! The garbage collector: it deletes objects whose owners are all gone.
//!
//! It keeps an index of objects by the uids of their owners. It checks an object when its owners change and when one
//! of them is removed. It checks an owner that is deleted in the foreground, or that orphans its dependents, until
//! that is done.

use std::collections::{BTreeSet, HashMap};

use serde_json::{Value, json};

use crate::cluster::Catalog;
use crate::cluster::registry::{Propagation, finalizers};
use crate::cluster::store::{Change, Collection, Key, Object};
use crate::model::pod;

use crate::controllers::engine::context::ReconcileContext;
use crate::controllers::engine::controller::{Controller, Requeue, Watches};

const FOREGROUND: &str = "foregroundDeletion";
const ORPHAN: &str = "orphan";

type Id = (Collection, Key);

/// The state of an owner.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Owner {
    /// It exists, or its kind is not served.
    There,
    /// It exists and waits for its dependents to be deleted.
    Waiting,
    /// It is gone.
    Gone,
}

/// The garbage collector.
#[derive(Debug, Default)]
pub(crate) struct GarbageCollector {
    dependents: HashMap<String, BTreeSet<Id>>,
    /// Owners that wait for their dependents, by uid.
    waiting: HashMap<String, Id>,
    orphaned: BTreeSet<Id>,
    owners_due: BTreeSet<Id>,
}

impl GarbageCollector {
    /// Deletes an object whose owners are gone, or removes the references to those that are.
    fn check(&self, ctx: &mut ReconcileContext<'_>, kinds: &Kinds, (collection, key): &Id) {
        let Some(object) = ctx.get(collection, key) else {
            return;
        };
        let owners: Vec<(Owner, &Value)> =
            pod::owners(&object).map(|owner| (kinds.find(ctx, key, owner), owner)).collect();
        if owners.is_empty() || owners.iter().all(|(owner, _)| *owner == Owner::There) {
            return;
        }
        if owners.iter().any(|(owner, _)| *owner == Owner::There) {
            let gone: Vec<&str> = owners
                .iter()
                .filter(|(owner, _)| *owner != Owner::There)
                .filter_map(|(_, reference)| reference["uid"].as_str())
                .collect();
            ctx.edit(collection, &object, |object| disown(object, &gone));
            return;
        }
        if pod::is_terminating(&object) {
            return;
        }
        let waited_for = owners.iter().any(|(owner, _)| *owner == Owner::Waiting);
        let has_dependents =
            self.dependents.get(pod::uid(&object)).is_some_and(|dependents| !dependents.is_empty());
        let propagation =
            if waited_for && has_dependents { Propagation::Foreground } else { Propagation::Background };
        ctx.delete(collection, &object, None, propagation);
    }

    /// Removes the finalizer of an owner whose dependents are gone, or orphans the dependents.
    fn release(&mut self, ctx: &mut ReconcileContext<'_>, kinds: &Kinds, id: &Id) {
        let Some(owner) = ctx.get(&id.0, &id.1) else {
            return;
        };
        let dependents: Vec<Id> =
            self.dependents.get(pod::uid(&owner)).into_iter().flatten().cloned().collect();
        if finalizers(&owner).contains(&ORPHAN) {
            for (collection, key) in &dependents {
                if let Some(dependent) = ctx.get(collection, key) {
                    let uid = pod::uid(&owner);
                    ctx.edit(collection, &dependent, |object| disown(object, &[uid]));
                }
            }
            remove_finalizer(ctx, &id.0, &owner, ORPHAN);
        } else if finalizers(&owner).contains(&FOREGROUND) {
            for dependent in &dependents {
                self.check(ctx, kinds, dependent);
            }
            let blocked = dependents.iter().any(|(collection, key)| {
                let dependent = ctx.get(collection, key);
                dependent.is_some_and(|dependent| blocks(&dependent, &owner))
            });
            if !blocked {
                remove_finalizer(ctx, &id.0, &owner, FOREGROUND);
            }
        }
    }
}

fn blocks(dependent: &Value, owner: &Value) -> bool {
    pod::owners(dependent)
        .any(|reference| reference["uid"] == pod::uid(owner) && reference["blockOwnerDeletion"] == true)
}

fn disown(object: &mut Value, uids: &[&str]) {
    let Some(owners) = object["metadata"]["ownerReferences"].as_array_mut() else {
        return;
    };
    owners.retain(|owner| !owner["uid"].as_str().is_some_and(|uid| uids.contains(&uid)));
    if owners.is_empty()
        && let Some(metadata) = object["metadata"].as_object_mut()
    {
        metadata.remove("ownerReferences");
    }
}

fn remove_finalizer(ctx: &mut ReconcileContext<'_>, collection: &Collection, object: &Object, name: &str) {
    ctx.edit(collection, object, |next| {
        let left: Vec<&str> = finalizers(object).into_iter().filter(|finalizer| *finalizer != name).collect();
        next["metadata"]["finalizers"] = json!(left);
    });
}

/// The collections of the kinds in owner references.
struct Kinds(HashMap<(String, String), (Collection, bool)>);

impl Kinds {
    fn of(catalog: &Catalog) -> Self {
        let resources = catalog.all().into_iter();
        let kinds = resources.map(|resource| {
            let kind = (resource.group().to_owned(), resource.kind.to_string());
            (kind, (resource.collection, resource.namespaced))
        });
        Self(kinds.collect())
    }

    fn find(&self, ctx: &ReconcileContext<'_>, dependent: &Key, reference: &Value) -> Owner {
        let text = |field: &str| reference[field].as_str().unwrap_or_default().to_owned();
        let version = text("apiVersion");
        let group = version.split_once('/').map_or("", |(group, _)| group);
        let Some((collection, namespaced)) = self.0.get(&(group.to_owned(), text("kind"))) else {
            return Owner::There;
        };
        let namespace = if *namespaced { &*dependent.namespace } else { "" };
        let owner = ctx.get(collection, &Key::new(namespace, text("name")));
        match owner.filter(|owner| pod::uid(owner) == text("uid")) {
            Some(owner) if is_waiting(&owner) => Owner::Waiting,
            Some(_) => Owner::There,
            None => Owner::Gone,
        }
    }
}

fn is_waiting(owner: &Value) -> bool {
    pod::is_terminating(owner) && finalizers(owner).contains(&FOREGROUND)
}

impl Controller for GarbageCollector {
    fn watches(&self) -> Watches {
        Watches::Everything
    }

    fn forget(&mut self, collection: &Collection) {
        // The index may still contain objects that were removed meanwhile.
        let lost: Vec<BTreeSet<Id>> = self.dependents.values().cloned().collect();
        self.orphaned.extend(lost.into_iter().flatten().filter(|(of, _)| of == collection));
    }

    fn observe(&mut self, collection: &Collection, change: &Change) {
        let Some(object) = change.after.as_ref().or(change.before.as_ref()) else {
            return;
        };
        let id = || (collection.clone(), Key::of(object));
        let owners = |object: &Option<Object>| -> Vec<String> {
            let owners = object.iter().flat_map(|object| pod::owners(object));
            owners.filter_map(|owner| owner["uid"].as_str().map(str::to_owned)).collect()
        };
        let (before, after) = (owners(&change.before), owners(&change.after));
        for uid in before.iter().filter(|uid| !after.contains(uid)) {
            if let Some(dependents) = self.dependents.get_mut(uid) {
                dependents.remove(&id());
                if dependents.is_empty() {
                    self.dependents.remove(uid);
                }
            }
            self.owners_due.extend(self.waiting.get(uid).cloned());
        }
        for uid in after.iter().filter(|uid| !before.contains(uid)) {
            self.dependents.entry(uid.clone()).or_default().insert(id());
            self.orphaned.insert(id());
            self.owners_due.extend(self.waiting.get(uid).cloned());
        }
        let uid = pod::uid(object);
        if change.after.is_none() {
            self.waiting.remove(uid);
            let dependents = self.dependents.get(uid).into_iter().flatten();
            self.orphaned.extend(dependents.cloned());
        } else if pod::is_terminating(object)
            && finalizers(object).iter().any(|name| [FOREGROUND, ORPHAN].contains(name))
        {
            self.waiting.insert(uid.to_owned(), id());
            self.owners_due.insert(id());
        }
    }

    fn sync(&mut self, ctx: &mut ReconcileContext<'_>) -> Requeue {
        if self.orphaned.is_empty() && self.owners_due.is_empty() {
            return Requeue::Change;
        }
        let kinds = Kinds::of(ctx.catalog);
        while !ctx.is_full() {
            if let Some(owner) = self.owners_due.pop_first() {
                self.release(ctx, &kinds, &owner);
            } else if let Some(dependent) = self.orphaned.pop_first() {
                self.check(ctx, &kinds, &dependent);
            } else {
                return Requeue::Change;
            }
        }
        Requeue::now_if(!(self.orphaned.is_empty() && self.owners_due.is_empty()))
    }
}
