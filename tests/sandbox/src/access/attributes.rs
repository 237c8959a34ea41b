//! What somebody wants to do, and the words in which it is refused.

use serde_json::json;

use crate::access::user::User;
use crate::model::status_error::{StatusError, qualified};

/// What somebody wants to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Attributes<'a> {
    /// Something with objects. What does not apply is empty.
    Resource {
        verb: &'a str,
        group: &'a str,
        plural: &'a str,
        subresource: &'a str,
        namespace: &'a str,
        name: &'a str,
    },
    /// Something with a path that is no resource; the verb is the method's.
    Path { verb: &'a str, path: &'a str },
}

impl Attributes<'_> {
    /// The namespace in which it is to happen; empty for what is not in one.
    pub(crate) fn namespace(&self) -> &str {
        match self {
            Self::Resource { namespace, .. } => namespace,
            Self::Path { .. } => "",
        }
    }

    /// 403 that names the user, the verb and the resource, and says why if there is something to say.
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
