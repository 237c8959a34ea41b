//! One revision of an object in the store: unfolded as a tree, or folded into text.
//!
//! A pod's tree takes about ten times the memory of its text, and in a large cluster few pods are in use. Only
//! recently written objects stay unfolded. A folded object is parsed when it is read, and readers share the result.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use serde_json::Value;

/// An object at one revision. Cheap to clone, never changed.
pub type Object = Arc<Value>;

/// A handle on one revision of an object. Cheap to clone and to keep.
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
    /// An unfolded object, with its node.
    pub(crate) fn new(object: Object, node: Option<Arc<str>>) -> Self {
        Self(Arc::new(Inner { node, form: Mutex::new(StoredForm::Open(object)) }))
    }

    /// `spec.nodeName`, without unfolding.
    pub(crate) fn node(&self) -> Option<&Arc<str>> {
        self.0.node.as_ref()
    }

    /// The object itself.
    pub(crate) fn open(&self) -> Object {
        match &mut *self.form() {
            StoredForm::Open(object) => object.clone(),
            StoredForm::Folded { text, held } => held.upgrade().unwrap_or_else(|| {
                // It was serialized from a tree, so it can be parsed.
                let object = Object::new(serde_json::from_slice(text).unwrap_or_default());
                *held = Arc::downgrade(&object);
                object
            }),
        }
    }

    /// Folds it, without loss.
    pub(crate) fn fold(&self) {
        // If there is no other handle, it is about to be dropped.
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

    /// Unfolds it if somebody still holds the tree. Returns whether it was folded.
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
        // Nothing panics while the lock is held.
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
