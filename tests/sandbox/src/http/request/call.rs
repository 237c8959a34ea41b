//! A request for a resource, with everything that its handler needs.

use bytes::Bytes;
use http::HeaderMap;

use crate::access::User;
use crate::cluster::Catalog;
use crate::cluster::catalog::resource::{EVENTS, NEW_EVENTS, Resource};
use crate::cluster::registry::{Effect, Part};
use crate::cluster::store::Key;
use crate::http::request::negotiate::ResponseFormat;
use crate::http::request::path::{Query, ResourcePath};
use crate::http::selector::Selection;
use crate::model::status_error::StatusError;

/// A request for a resource.
#[derive(Debug)]
pub(crate) struct Call {
    /// The requested resource, as it appears in responses.
    pub(crate) resource: Resource,
    /// The stored resource, which the registry writes.
    pub(crate) stored: Resource,
    /// Namespace, name and subresource.
    pub(crate) path: ResourcePath,
    /// Parameters.
    pub(crate) query: Query,
    /// The format of the response.
    pub(crate) form: ResponseFormat,
    /// `Content-Type` without parameters.
    pub(crate) content_type: String,
    /// The body.
    pub(crate) body: Bytes,
    /// The field manager: `fieldManager`, or the first word of the user agent.
    pub(crate) manager: String,
    /// The user.
    pub(crate) user: User,
    /// Whether the user may change owner references.
    pub(crate) may_set_owners: bool,
}

impl Call {
    /// Assembles a call; none if the resource is not served.
    pub(crate) fn new(
        catalog: &Catalog,
        path: ResourcePath,
        query: Query,
        headers: &HeaderMap,
        body: Bytes,
        user: User,
    ) -> Result<Option<Self>, StatusError> {
        let Some(resource) = catalog.find(&path.group, &path.version, &path.plural) else {
            return Ok(None);
        };
        if path.namespace.is_some() && !resource.namespaced {
            return Ok(None);
        }
        let core_events = if resource.collection == NEW_EVENTS { catalog.of(&EVENTS) } else { None };
        let stored = core_events.unwrap_or_else(|| resource.clone());
        let header = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
        let form = crate::http::request::negotiate::form(header("accept"))?;
        let content_type = header("content-type").unwrap_or_default();
        let content_type = content_type.split(';').next().unwrap_or_default().trim().to_owned();
        let agent = header("user-agent").unwrap_or("unknown");
        let manager = query
            .get("fieldManager")
            .unwrap_or_else(|| agent.split(['/', ' ']).next().unwrap_or(agent))
            .to_owned();
        Ok(Some(Self {
            resource,
            stored,
            path,
            query,
            form,
            content_type,
            body,
            manager,
            user,
            may_set_owners: true,
        }))
    }

    /// The namespace; empty at cluster scope.
    pub(crate) fn namespace(&self) -> &str {
        self.path.namespace.as_deref().unwrap_or_default()
    }

    /// The name; empty for collections.
    pub(crate) fn name(&self) -> &str {
        self.path.name.as_deref().unwrap_or_default()
    }

    /// The subresource, or empty.
    pub(crate) fn subresource(&self) -> &str {
        self.path.subresource.as_deref().unwrap_or_default()
    }

    /// The key of the object.
    pub(crate) fn key(&self) -> Key {
        Key::new(self.namespace(), self.name())
    }

    /// The part of the object that the path refers to.
    pub(crate) fn part(&self) -> Part {
        match self.subresource() {
            "status" => Part::Status,
            _ => Part::Main,
        }
    }

    /// Whether it is a dry run. Invalid values of `dryRun` were rejected before.
    pub(crate) fn effect(&self) -> Effect {
        if self.query.given("dryRun").is_some() { Effect::DryRun } else { Effect::Real }
    }

    /// The selectors of a list, a watch or a delete of a collection.
    ///
    /// # Errors
    /// 400 for an invalid selector.
    pub(crate) fn selection(&self) -> Result<Selection, StatusError> {
        Selection::parse(
            &self.resource,
            self.path.namespace.as_deref(),
            self.query.get("labelSelector"),
            self.query.get("fieldSelector"),
        )
    }

    /// 404 for the object of the path.
    pub(crate) fn not_found(&self) -> StatusError {
        StatusError::not_found(self.resource.group(), self.resource.plural(), self.name())
    }
}
