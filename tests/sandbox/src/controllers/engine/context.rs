//! What a controller works with during a reconcile: exclusive access to the state, the time, and writes through the
//! registry.
//!
//! Writes that the API server would reject fail here too, for example because a namespace is terminating. They are
//! logged; the change that caused the failure triggers another reconcile.

use std::collections::HashMap;
use std::sync::LazyLock;

use jiff::Timestamp;
use serde_json::{Value, json};

use crate::cluster::Catalog;
use crate::cluster::catalog::resource::{EVENTS, PODS, Resource, built_in};
use crate::cluster::registry::{self, DeleteOptions, Deleted, Effect, Part, Propagation, binding};
use crate::cluster::store::{Collection, Key, Object, State};
use crate::controllers::event::{self, Event};
use crate::model::clock::metav1_time;
use crate::model::pod;
use crate::model::status_error::StatusError;

/// After so many writes a controller releases the state, so that others can use it.
const BATCH: usize = 250;

static BUILT_IN: LazyLock<HashMap<Collection, Resource>> = LazyLock::new(|| {
    let resources = built_in().into_iter();
    resources.map(|resource| (resource.collection.clone(), resource)).collect()
});

/// The state during one reconcile.
pub(crate) struct ReconcileContext<'a> {
    /// All objects.
    pub(crate) state: &'a mut State,
    /// The resources that are served.
    pub(crate) catalog: &'a Catalog,
    /// The time.
    pub(crate) now: Timestamp,
    writes: usize,
}

impl<'a> ReconcileContext<'a> {
    /// A context for one reconcile.
    pub(crate) fn new(state: &'a mut State, catalog: &'a Catalog, now: Timestamp) -> Self {
        Self { state, catalog, now, writes: 0 }
    }

    /// Whether this reconcile has used up its writes. The rest waits for the next one.
    pub(crate) fn is_full(&self) -> bool {
        self.writes >= BATCH
    }

    /// Reads an object.
    pub(crate) fn get(&self, collection: &Collection, key: &Key) -> Option<Object> {
        self.state.get(collection, key)
    }

    /// Creates an object. A generated name that is taken is replaced by another.
    pub(crate) fn create(&mut self, collection: &Collection, object: Value) -> Option<Object> {
        self.try_create(collection, object).ok()
    }

    /// Creates an object like [`Self::create`].
    ///
    /// # Errors
    /// Why the API server would reject it.
    pub(crate) fn try_create(
        &mut self,
        collection: &Collection,
        mut object: Value,
    ) -> Result<Object, StatusError> {
        if let (None, Some(prefix)) = (object["metadata"]["name"].as_str(), generated(&object)) {
            let name = loop {
                let name = format!("{prefix}{}", registry::suffix());
                if self.state.find(collection, &Key::new(pod::namespace(&object), &*name)).is_none() {
                    break name;
                }
            };
            object["metadata"]["name"] = json!(name);
        }
        if *collection == PODS && object["spec"]["nodeName"].is_string() {
            object["metadata"]["managedFields"] = assigned_by_controller(self.now);
        }
        self.try_write(collection, |state, resource, now| {
            registry::create(state, resource, object, now, Effect::Real)
        })
    }

    /// Changes everything but the status of an object.
    pub(crate) fn edit(
        &mut self,
        collection: &Collection,
        object: &Object,
        change: impl FnOnce(&mut Value),
    ) -> Option<Object> {
        self.update(collection, object, Part::Main, change)
    }

    /// Changes the status of an object; `change` gets the whole object.
    pub(crate) fn edit_status(
        &mut self,
        collection: &Collection,
        object: &Object,
        change: impl FnOnce(&mut Value),
    ) -> Option<Object> {
        self.update(collection, object, Part::Status, change)
    }

    /// Deletes this object, but not another one of the same name. `grace` is for pods.
    pub(crate) fn delete(
        &mut self,
        collection: &Collection,
        object: &Value,
        grace: Option<i64>,
        propagation: Propagation,
    ) -> Option<Deleted> {
        let options = DeleteOptions {
            grace_period_seconds: grace,
            uid: Some(pod::uid(object).to_owned()),
            propagation,
            ..DeleteOptions::default()
        };
        let key = Key::of(object);
        self.write(collection, |state, resource, now| {
            registry::delete(state, resource, &key, &options, now, Effect::Real)
        })
    }

    /// Binds a pod to a node.
    pub(crate) fn bind(&mut self, pod: &Key, node: &str) -> bool {
        self.writes += 1;
        binding::bind(self.state, &pod.namespace, &pod.name, node, self.now).is_ok()
    }

    /// Writes an event. A failure is ignored, and the write does not count.
    pub(crate) fn record(&mut self, event: &Event<'_>) {
        if self.state.event_log.is_closed() {
            return;
        }
        let gist = event.gist();
        let (now, writes) = (self.now, self.writes);
        let earlier = self.state.event_log.find(&gist).filter(|_| !event.is_new_style());
        if let Some(earlier) = earlier.cloned().and_then(|key| self.get(&EVENTS, &key)) {
            self.edit(&EVENTS, &earlier, |earlier| event::repeat(earlier, now));
        } else {
            let object = event.object(self.state.event_log.stamp(now), now);
            if let Some(written) = self.create(&EVENTS, object)
                && let Some(oldest) = self.state.event_log.keep(gist, Key::of(&written))
            {
                self.state.remove(&EVENTS, &oldest);
            }
        }
        self.writes = writes;
    }

    fn update(
        &mut self,
        collection: &Collection,
        object: &Object,
        part: Part,
        change: impl FnOnce(&mut Value),
    ) -> Option<Object> {
        let mut next = Value::clone(object);
        change(&mut next);
        if next == **object || (part == Part::Status && self.is_frozen(collection, object)) {
            return Some(object.clone());
        }
        self.write(collection, |state, resource, _| {
            registry::update(state, resource, &next, part, Effect::Real)
        })
    }

    /// Whether the object's status is frozen for controllers.
    fn is_frozen(&self, collection: &Collection, object: &Value) -> bool {
        let (namespace, name) = (pod::namespace(object), pod::name(object));
        self.state.frozen.for_controllers(&collection.group, &collection.plural, namespace, name)
    }

    fn write<T>(
        &mut self,
        collection: &Collection,
        act: impl FnOnce(&mut State, &Resource, Timestamp) -> Result<T, StatusError>,
    ) -> Option<T> {
        self.try_write(collection, act).ok()
    }

    fn try_write<T>(
        &mut self,
        collection: &Collection,
        act: impl FnOnce(&mut State, &Resource, Timestamp) -> Result<T, StatusError>,
    ) -> Result<T, StatusError> {
        self.writes += 1;
        let custom;
        let resource = if let Some(resource) = BUILT_IN.get(collection) {
            resource
        } else {
            let (group, plural) = (&collection.group, &collection.plural);
            custom = self.catalog.of(collection).ok_or_else(|| StatusError::not_found(group, plural, ""))?;
            &custom
        };
        act(self.state, resource, self.now).inspect_err(|refusal| {
            tracing::debug!(code = refusal.code, message = refusal.message, "a controller was refused");
        })
    }
}

/// The managed fields of a pod that a controller assigned to a node. A real API server records every other field of the pod, too, which
/// would take memory with thousands of pods.
fn assigned_by_controller(now: Timestamp) -> Value {
    json!([{
        "manager": "kube-controller-manager", "operation": "Update", "apiVersion": "v1", "time": metav1_time(now),
        "fieldsType": "FieldsV1", "fieldsV1": {"f:spec": {"f:nodeName": {}}},
    }])
}

fn generated(object: &Value) -> Option<&str> {
    object["metadata"]["generateName"].as_str()
}
