//! One revision of an object, as the store keeps it: open as a tree, or folded into text.
//!
//! A pod's tree takes about ten times the memory of its text, and a large cluster has few pods that anybody is looking
//! at. So only what was written lately stays open. What is folded is opened for whoever asks, and shared with whoever
//! else asks for as long as somebody holds it.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use serde_json::Value;

/// An object as it was at one revision. Cheap to clone, never changed.
pub type Object = Arc<Value>;

/// A handle on one revision of an object; cheap to clone, and to hold for a long time.
#[derive(Debug, Clone)]
pub(crate) struct StoredObject(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    node: Option<Arc<str>>,
    form: Mutex<StoredForm>,
}

#[derive(Debug)]
enum StoredForm {
    Open(Object),
    Folded { text: Box<[u8]>, held: Weak<Value> },
}

impl StoredObject {
    /// An open object, on this node if it is on any.
    pub(crate) fn new(object: Object, node: Option<Arc<str>>) -> Self {
        Self(Arc::new(Inner { node, form: Mutex::new(StoredForm::Open(object)) }))
    }

    /// Its `spec.nodeName`, which is known without opening it.
    pub(crate) fn node(&self) -> Option<&Arc<str>> {
        self.0.node.as_ref()
    }

    /// The object itself.
    pub(crate) fn open(&self) -> Object {
        match &mut *self.form() {
            StoredForm::Open(object) => object.clone(),
            StoredForm::Folded { text, held } => held.upgrade().unwrap_or_else(|| {
                // It was a tree when it was written, so it can be read as one.
                let object = Object::new(serde_json::from_slice(text).unwrap_or_default());
                *held = Arc::downgrade(&object);
                object
            }),
        }
    }

    /// Makes it small. Nothing is lost by it.
    pub(crate) fn fold(&self) {
        // If nobody else has a handle on it, it goes as a whole in a moment.
        if Arc::strong_count(&self.0) == 1 {
            return;
        }
        let mut form = self.form();
        if let StoredForm::Open(object) = &*form {
            let text = serde_json::to_vec(&**object).unwrap_or_default().into_boxed_slice();
            let held = Arc::downgrade(object);
            *form = StoredForm::Folded { text, held };
        }
    }

    /// Keeps it open if somebody has just opened it; says whether it was folded before.
    pub(crate) fn unfold(&self) -> bool {
        let mut form = self.form();
        let StoredForm::Folded { held, .. } = &*form else {
            return false;
        };
        let Some(object) = held.upgrade() else {
            return false;
        };
        *form = StoredForm::Open(object);
        true
    }

    fn form(&self) -> MutexGuard<'_, StoredForm> {
        // Nothing in here panics half way.
        self.0.form.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_folded_object_reads_as_it_was_written() {
        let object = Object::new(json!({"a": [1, "two", null, {"b": true}], "c": "ü\n"}));
        let stored = StoredObject::new(object.clone(), None);
        let other_handle = stored.clone();
        stored.fold();
        assert!(Arc::ptr_eq(&other_handle.open(), &object), "whoever holds it shares it");
        let copy = Value::clone(&object);
        drop(object);
        let opened = stored.open();
        assert_eq!(*opened, copy);
        assert!(Arc::ptr_eq(&other_handle.open(), &opened));
    }
}
