//! Who asks, and may they: the one place where the API server decides either.
//!
//! For now there is one administrator, and everybody else may look at health, the version and nothing more.

use std::collections::HashMap;

use http::HeaderMap;
use serde_json::json;
use uuid::Uuid;

use crate::refusal::{Refusal, qualified};

/// Somebody.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct User {
    /// As in `system:serviceaccount:NAMESPACE:NAME`.
    pub(crate) name: String,
    /// Groups.
    pub(crate) groups: Vec<String>,
}

/// What somebody wants to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Attributes<'a> {
    /// Something with objects.
    Resource {
        verb: &'a str,
        group: &'a str,
        plural: &'a str,
        subresource: &'a str,
        namespace: &'a str,
        name: &'a str,
    },
    /// Reading a path that is no resource.
    Path { verb: &'a str, path: &'a str },
}

/// The tokens that are known.
#[derive(Debug)]
pub(crate) struct Access {
    tokens: HashMap<String, User>,
    admin_token: String,
}

impl Access {
    /// One administrator with a token of its own.
    pub(crate) fn new() -> Self {
        let admin_token = Uuid::new_v4().to_string();
        let admin = User {
            name: "kubernetes-admin".into(),
            groups: vec!["system:masters".into(), "system:authenticated".into()],
        };
        let tokens = HashMap::from([(admin_token.clone(), admin)]);
        Self { tokens, admin_token }
    }

    /// The administrator's bearer token.
    pub(crate) fn admin_token(&self) -> &str {
        &self.admin_token
    }

    /// Who asks; an administrator may ask as somebody else.
    ///
    /// # Errors
    /// 401 for a token that is not known, 403 for an impersonation that is not allowed.
    pub(crate) fn authenticate(&self, headers: &HeaderMap) -> Result<User, Refusal> {
        let header = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
        let user = match header("authorization") {
            None => User { name: "system:anonymous".into(), groups: vec!["system:unauthenticated".into()] },
            Some(value) => value
                .strip_prefix("Bearer ")
                .and_then(|token| self.tokens.get(token.trim()))
                .cloned()
                .ok_or_else(|| Refusal::new(401, "Unauthorized", "Unauthorized"))?,
        };
        let Some(name) = header("impersonate-user") else {
            return Ok(user);
        };
        let attributes = Attributes::Resource {
            verb: "impersonate",
            group: "",
            plural: "users",
            subresource: "",
            namespace: "",
            name,
        };
        self.authorize(&user, attributes)?;
        let groups = headers.get_all("impersonate-group");
        let groups = groups.iter().filter_map(|group| group.to_str().ok());
        Ok(User {
            name: name.to_owned(),
            groups: groups.chain(["system:authenticated"]).map(str::to_owned).collect(),
        })
    }

    /// Whether the user may do it: every decision about rights is made here.
    #[expect(clippy::unused_self, reason = "roles and their bindings will be read from here")]
    pub(crate) fn allows(&self, user: &User, attributes: Attributes<'_>) -> bool {
        let is = |group: &str| user.groups.iter().any(|known| known == group);
        match attributes {
            _ if is("system:masters") => true,
            Attributes::Path { verb: "get", path } => {
                let public = ["/healthz", "/livez", "/readyz", "/version"];
                let discovery = ["/api", "/apis", "/openapi"];
                let below = |root: &&str| {
                    path.strip_prefix(*root).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
                };
                public.iter().any(below) || (is("system:authenticated") && discovery.iter().any(below))
            }
            // Whoever is known may ask what they may do.
            Attributes::Resource { verb: "create", group: "authorization.k8s.io", plural, .. } => {
                is("system:authenticated") && plural.starts_with("selfsubject")
            }
            Attributes::Resource { verb: "create", group: "authentication.k8s.io", plural, .. } => {
                is("system:authenticated") && plural == "selfsubjectreviews"
            }
            _ => false,
        }
    }

    /// The same, as an answer.
    ///
    /// # Errors
    /// 403 that names the user, the verb and the resource.
    pub(crate) fn authorize(&self, user: &User, attributes: Attributes<'_>) -> Result<(), Refusal> {
        if self.allows(user, attributes) {
            return Ok(());
        }
        let who = &user.name;
        Err(match attributes {
            Attributes::Path { verb, path } => {
                let message = format!("forbidden: User {who:?} cannot {verb} path {path:?}");
                Refusal::new(403, "Forbidden", message).with_details(json!({}))
            }
            Attributes::Resource { verb, group, plural, subresource, namespace, name } => {
                let wanted = if subresource.is_empty() {
                    plural.to_owned()
                } else {
                    format!("{plural}/{subresource}")
                };
                let place = if namespace.is_empty() {
                    "at the cluster scope".to_owned()
                } else {
                    format!("in the namespace {namespace:?}")
                };
                let because =
                    format!("User {who:?} cannot {verb} resource {wanted:?} in API group {group:?} {place}");
                nameless_forbidden(group, plural, name, &because)
            }
        })
    }
}

fn nameless_forbidden(group: &str, plural: &str, name: &str, because: &str) -> Refusal {
    if !name.is_empty() {
        return Refusal::forbidden(group, plural, name, because);
    }
    let mut details = json!({"kind": plural});
    if !group.is_empty() {
        details["group"] = json!(group);
    }
    let resource = qualified(group, plural);
    Refusal::new(403, "Forbidden", format!("{resource} is forbidden: {because}")).with_details(details)
}
