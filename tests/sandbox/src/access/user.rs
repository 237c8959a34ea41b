//! Users: people, service accounts, and the anonymous user.

use std::collections::BTreeMap;

use serde_json::{Value, json};

/// The group of all authenticated users.
pub(crate) const AUTHENTICATED: &str = "system:authenticated";
/// The group of unauthenticated users.
pub(crate) const UNAUTHENTICATED: &str = "system:unauthenticated";
/// The name of the anonymous user.
pub(crate) const ANONYMOUS: &str = "system:anonymous";
/// The group that may do anything, whatever its roles are.
pub(crate) const MASTERS: &str = "system:masters";

const ACCOUNT_PREFIX: &str = "system:serviceaccount:";

/// The user of a request.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct User {
    /// The name, such as `system:serviceaccount:NAMESPACE:NAME`.
    pub(crate) name: String,
    /// The uid, or empty.
    pub(crate) uid: String,
    /// Groups.
    pub(crate) groups: Vec<String>,
    /// Extra attributes.
    pub(crate) extra: BTreeMap<String, Vec<String>>,
}

impl User {
    /// An authenticated user.
    pub(crate) fn new(name: &str, groups: &[&str]) -> Self {
        let groups = groups.iter().chain([&AUTHENTICATED]).map(|&group| group.to_owned()).collect();
        Self { name: name.to_owned(), groups, ..Self::default() }
    }

    /// The anonymous user.
    pub(crate) fn anonymous() -> Self {
        Self { name: ANONYMOUS.into(), groups: vec![UNAUTHENTICATED.into()], ..Self::default() }
    }

    /// A service account.
    pub(crate) fn service_account(namespace: &str, name: &str, uid: &str) -> Self {
        let groups = account_groups(namespace);
        let groups: Vec<&str> = groups.iter().map(String::as_str).collect();
        let user = Self::new(&format!("{ACCOUNT_PREFIX}{namespace}:{name}"), &groups);
        Self { uid: uid.to_owned(), ..user }
    }

    /// Whether the user is in a group.
    pub(crate) fn is_in(&self, group: &str) -> bool {
        self.groups.iter().any(|known| known == group)
    }

    /// `authentication.k8s.io/v1` `UserInfo`.
    pub(crate) fn to_info(&self) -> Value {
        let mut info = json!({"username": self.name});
        if !self.uid.is_empty() {
            info["uid"] = json!(self.uid);
        }
        if !self.groups.is_empty() {
            info["groups"] = json!(self.groups);
        }
        if !self.extra.is_empty() {
            info["extra"] = json!(self.extra);
        }
        info
    }
}

/// The namespace and the name in the user name of a service account.
pub(crate) fn as_service_account(user: &str) -> Option<(&str, &str)> {
    let (namespace, name) = user.strip_prefix(ACCOUNT_PREFIX)?.split_once(':')?;
    (!namespace.is_empty() && !name.is_empty() && !name.contains(':')).then_some((namespace, name))
}

/// The groups of every service account of a namespace.
pub(crate) fn account_groups(namespace: &str) -> [String; 2] {
    ["system:serviceaccounts".to_owned(), format!("system:serviceaccounts:{namespace}")]
}
