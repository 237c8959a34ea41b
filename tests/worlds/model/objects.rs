//! API objects as the model stores them: interned JSON without resourceVersions.
//!
//! A state of the model has only the hashes of its objects, so that states are small, and quick to compare. Each object is
//! parsed once into the types that decisions read.

use std::any::Any;
use std::collections::HashMap;
use std::fmt;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::{Arc, LazyLock, Mutex, OnceLock, PoisonError};

use serde::de::DeserializeOwned;
use serde_json::Value;

/// An object; equal contents are equal objects.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Object(u64);

struct Interned {
    json: Value,
    parsed: OnceLock<Arc<dyn Any + Send + Sync>>,
}

static OBJECTS: LazyLock<Mutex<HashMap<u64, Arc<Interned>>>> = LazyLock::new(Mutex::default);

impl Object {
    pub(crate) fn new(json: Value) -> Self {
        let id = hash(&json);
        let mut objects = OBJECTS.lock().unwrap_or_else(PoisonError::into_inner);
        objects.entry(id).or_insert_with(|| Arc::new(Interned { json, parsed: OnceLock::new() }));
        Self(id)
    }

    fn interned(self) -> Arc<Interned> {
        OBJECTS.lock().unwrap_or_else(PoisonError::into_inner)[&self.0].clone()
    }

    /// Its JSON.
    pub(crate) fn json(self) -> Value {
        self.interned().json.clone()
    }

    /// The value at a JSON pointer; null if there is none.
    pub(crate) fn at(self, pointer: &str) -> Value {
        self.interned().json.pointer(pointer).cloned().unwrap_or_default()
    }

    /// The object as its type, with a resourceVersion. An object has only one type.
    pub(crate) fn parse<T: DeserializeOwned + Send + Sync + 'static>(self) -> Arc<T> {
        let interned = self.interned();
        let parsed = interned.parsed.get_or_init(|| {
            let mut json = interned.json.clone();
            json["metadata"]["resourceVersion"] = "1".into();
            Arc::new(serde_json::from_value::<T>(json).expect("the model has valid objects"))
        });
        parsed.clone().downcast().expect("an object has one type")
    }

    /// The object with a merge patch applied.
    pub(crate) fn merged(self, patch: &Value) -> Self {
        let mut json = self.json();
        merge(&mut json, patch);
        if let Some(metadata) = json.get_mut("metadata").and_then(Value::as_object_mut) {
            metadata.remove("resourceVersion");
        }
        Self::new(json)
    }
}

impl fmt::Debug for Object {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.interned().json)
    }
}

/// A hash that is the same in every run.
pub(crate) fn hash(value: &impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    value.hash(&mut hasher);
    hasher.finish()
}

/// RFC 7396. Empty maps are kept, as the API server keeps them.
fn merge(target: &mut Value, patch: &Value) {
    let Value::Object(patch) = patch else {
        *target = patch.clone();
        return;
    };
    if !target.is_object() {
        *target = Value::Object(serde_json::Map::new());
    }
    if let Value::Object(target) = target {
        for (key, value) in patch {
            if value.is_null() {
                target.remove(key);
            } else {
                merge(target.entry(key.clone()).or_insert(Value::Null), value);
            }
        }
    }
}
