//! The `request` of an `AdmissionReview`.

use serde_json::{Map, Value, json};

use crate::cluster::catalog::resource::Resource;
use crate::model::status_error::StatusError;

/// A request in one version of its resource: the requested one or an equivalent one.
#[derive(Debug, Clone)]
pub(crate) struct View {
    /// API group of the resource.
    pub(crate) group: String,
    /// Its version.
    pub(crate) version: String,
    /// Its plural name.
    pub(crate) plural: String,
    /// The kind of the object, such as `{"group": "policy", "version": "v1", "kind": "Eviction"}`.
    pub(crate) kind: Value,
    /// The new object; null for a delete.
    pub(crate) object: Value,
    /// The old object; null for a create.
    pub(crate) old: Value,
}

impl View {
    /// A view with the resource's own kind.
    pub(crate) fn of(resource: &Resource, object: Value, old: Value) -> Self {
        let (group, version) = (resource.group().to_owned(), resource.version.to_string());
        let kind = json!({"group": group, "version": version, "kind": resource.kind});
        Self { group, version, plural: resource.plural().to_owned(), kind, object, old }
    }
}

/// A request for review.
#[derive(Debug, Clone)]
pub(crate) struct ReviewRequest {
    /// `CREATE`, `UPDATE` or `DELETE`.
    pub(crate) operation: &'static str,
    /// The subresource, such as `eviction`, or empty.
    pub(crate) subresource: String,
    /// The object's name; empty for a delete of a collection.
    pub(crate) name: String,
    /// The object's namespace; for a namespace, its own name.
    pub(crate) namespace: String,
    /// The user, as in `{"username": …, "groups": […]}`.
    pub(crate) user: Value,
    /// `CreateOptions`, `UpdateOptions` or `DeleteOptions`.
    pub(crate) options: Value,
    /// Whether it is a dry run.
    pub(crate) dry_run: bool,
    /// The request in its own version.
    pub(crate) asked: View,
    /// The request in equivalent versions.
    pub(crate) equivalents: Vec<View>,
}

impl ReviewRequest {
    /// Whether the resource is namespaced. Namespaces are not.
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

    /// 403 about the object.
    pub(crate) fn forbidden(&self, because: &str) -> StatusError {
        StatusError::forbidden(&self.asked.group, &self.asked.plural, &self.name, because)
    }
}
