//! The attributes of a request that authorization decides on, and the messages of its errors.

use serde_json::json;

use crate::access::user::User;
use crate::model::status_error::{StatusError, qualified};

/// What a user wants to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Attributes<'a> {
    /// A request for a resource. Fields that do not apply are empty.
    Resource {
        verb: &'a str,
        group: &'a str,
        plural: &'a str,
        subresource: &'a str,
        namespace: &'a str,
        name: &'a str,
    },
    /// A request for a non-resource path; the verb is the HTTP method.
    Path { verb: &'a str, path: &'a str },
}

impl Attributes<'_> {
    /// The namespace of the request; empty if it has none.
    pub(crate) fn namespace(&self) -> &str {
        match self {
            Self::Resource { namespace, .. } => namespace,
            Self::Path { .. } => "",
        }
    }

    /// 403 that names the user, the verb and the resource, with a reason if there is one.
    pub(crate) fn forbidden(&self, user: &User, reason: &str) -> StatusError {
        let who = &user.name;
        let mut because = match self {
            Self::Path { verb, path } => format!("User {who:?} cannot {verb} path {path:?}"),
            Self::Resource { verb, group, plural, subresource, namespace, .. } => {
                let wanted = if subresource.is_empty() {
                    (*plural).to_owned()
                } else {
                    format!("{plural}/{subresource}")
                };
                let place = if namespace.is_empty() {
                    "at the cluster scope".to_owned()
                } else {
                    format!("in the namespace {namespace:?}")
                };
                format!("User {who:?} cannot {verb} resource {wanted:?} in API group {group:?} {place}")
            }
        };
        if !reason.is_empty() {
            because = format!("{because}: {reason}");
        }
        match self {
            Self::Path { .. } => {
                StatusError::new(403, "Forbidden", format!("forbidden: {because}")).with_details(json!({}))
            }
            Self::Resource { group, plural, name: "", .. } => {
                let mut details = json!({"kind": plural});
                if !group.is_empty() {
                    details["group"] = json!(group);
                }
                let resource = qualified(group, plural);
                StatusError::new(403, "Forbidden", format!("{resource} is forbidden: {because}"))
                    .with_details(details)
            }
            Self::Resource { group, plural, name, .. } => {
                StatusError::forbidden(group, plural, name, &because)
            }
        }
    }
}
