//! What webhooks are asked: the `request` of an `AdmissionReview`.

use serde_json::{Map, Value, json};

use crate::cluster::catalog::resource::Resource;
use crate::model::status_error::StatusError;

/// A request as a webhook may see it: in the version that was asked for, or in one that means the same.
#[derive(Debug, Clone)]
pub(crate) struct View {
    /// API group of the resource.
    pub(crate) group: String,
    /// Its version.
    pub(crate) version: String,
    /// Its plural name.
    pub(crate) plural: String,
    /// The kind of what is sent, as in `{"group": "policy", "version": "v1", "kind": "Eviction"}`.
    pub(crate) kind: Value,
    /// What would be written; null for a delete.
    pub(crate) object: Value,
    /// What is there; null for a create.
    pub(crate) old: Value,
}

impl View {
    /// Objects of a resource, of its own kind.
    pub(crate) fn of(resource: &Resource, object: Value, old: Value) -> Self {
        let (group, version) = (resource.group().to_owned(), resource.version.to_string());
        let kind = json!({"group": group, "version": version, "kind": resource.kind});
        Self { group, version, plural: resource.plural().to_owned(), kind, object, old }
    }
}

/// What webhooks are asked.
#[derive(Debug, Clone)]
pub(crate) struct ReviewRequest {
    /// `CREATE`, `UPDATE` or `DELETE`.
    pub(crate) operation: &'static str,
    /// As in `eviction`, or empty.
    pub(crate) subresource: String,
    /// The object's name; a delete of many has none.
    pub(crate) name: String,
    /// The object's namespace. That of a namespace is itself.
    pub(crate) namespace: String,
    /// Who asks, as in `{"username": …, "groups": […]}`.
    pub(crate) user: Value,
    /// `CreateOptions`, `UpdateOptions` or `DeleteOptions`.
    pub(crate) options: Value,
    /// Whether nothing will be written.
    pub(crate) dry_run: bool,
    /// As it was asked.
    pub(crate) asked: View,
    /// As it could have been asked as well.
    pub(crate) equivalents: Vec<View>,
}

impl ReviewRequest {
    /// Whether the resource lives in namespaces; namespaces themselves do not.
    pub(crate) fn is_namespaced(&self) -> bool {
        !self.namespace.is_empty() && !self.is_about_namespaces()
    }

    /// Whether the object is a namespace.
    pub(crate) fn is_about_namespaces(&self) -> bool {
        self.asked.group.is_empty() && self.asked.plural == "namespaces"
    }

    /// The `request` of a review.
    pub(crate) fn request(&self, uid: &str, view: &View) -> Value {
        let resource =
            |view: &View| json!({"group": view.group, "version": view.version, "resource": view.plural});
        let mut request = Map::new();
        let mut put = |name: &str, value: Value| {
            if value != "" {
                request.insert(name.to_owned(), value);
            }
        };
        put("uid", json!(uid));
        put("kind", view.kind.clone());
        put("resource", resource(view));
        put("subResource", json!(self.subresource));
        put("requestKind", self.asked.kind.clone());
        put("requestResource", resource(&self.asked));
        put("requestSubResource", json!(self.subresource));
        put("name", json!(self.name));
        put("namespace", json!(self.namespace));
        put("operation", json!(self.operation));
        put("userInfo", self.user.clone());
        put("object", view.object.clone());
        put("oldObject", view.old.clone());
        put("dryRun", json!(self.dry_run));
        put("options", self.options.clone());
        Value::Object(request)
    }

    /// 403 about the object in question.
    pub(crate) fn forbidden(&self, because: &str) -> StatusError {
        StatusError::forbidden(&self.asked.group, &self.asked.plural, &self.name, because)
    }
}
