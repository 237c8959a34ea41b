//! Impersonation with `Impersonate-` headers.

use std::collections::BTreeMap;

use http::HeaderMap;

use crate::access::attributes::Attributes;
use crate::access::user::{
    ANONYMOUS, AUTHENTICATED, UNAUTHENTICATED, User, account_groups, as_service_account,
};
use crate::model::percent_encoding;
use crate::model::status_error::StatusError;

const AUTHENTICATION: &str = "authentication.k8s.io";
const EXTRA: &str = "impersonate-extra-";

/// The user to impersonate, if the headers name one.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Impersonation {
    name: String,
    uid: String,
    groups: Vec<String>,
    extra: BTreeMap<String, Vec<String>>,
}

impl Impersonation {
    /// Reads the headers.
    ///
    /// # Errors
    /// 400 if groups or extras are given without a user.
    pub(crate) fn read(headers: &HeaderMap) -> Result<Option<Self>, StatusError> {
        let all = |name: &str| -> Vec<String> {
            let values = headers.get_all(name).iter().filter_map(|value| value.to_str().ok());
            values.map(str::to_owned).collect()
        };
        let first = |name: &str| all(name).into_iter().next().unwrap_or_default();
        let extra = headers.keys().filter_map(|header| {
            let key = header.as_str().strip_prefix(EXTRA)?;
            Some((percent_encoding::decode(key, false), all(header.as_str())))
        });
        let asked = Self {
            name: first("impersonate-user"),
            uid: first("impersonate-uid"),
            groups: all("impersonate-group"),
            extra: extra.collect(),
        };
        if !asked.name.is_empty() {
            return Ok(Some(asked));
        }
        if asked.uid.is_empty() && asked.groups.is_empty() && asked.extra.is_empty() {
            return Ok(None);
        }
        let message = format!("requested {} without impersonating a user name", asked.in_go());
        Err(StatusError::bad_request(message))
    }

    /// The permissions that the impersonation needs.
    pub(crate) fn needs(&self) -> Vec<Attributes<'_>> {
        let right = |group, plural, subresource, namespace, name| Attributes::Resource {
            verb: "impersonate",
            group,
            plural,
            subresource,
            namespace,
            name,
        };
        let mut needs = vec![match as_service_account(&self.name) {
            Some((namespace, name)) => right("", "serviceaccounts", "", namespace, name),
            None => right("", "users", "", "", &self.name),
        }];
        needs.extend(self.groups.iter().map(|group| right("", "groups", "", "", group)));
        for (key, values) in &self.extra {
            needs.extend(values.iter().map(|value| right(AUTHENTICATION, "userextras", key, "", value)));
        }
        if !self.uid.is_empty() {
            needs.push(right(AUTHENTICATION, "uids", "", "", &self.uid));
        }
        needs
    }

    /// The impersonated user.
    pub(crate) fn into_user(self) -> User {
        let mut groups = self.groups;
        if let (true, Some((namespace, _))) = (groups.is_empty(), as_service_account(&self.name)) {
            groups.extend(account_groups(namespace));
        }
        let of_all = if self.name == ANONYMOUS { UNAUTHENTICATED } else { AUTHENTICATED };
        if groups.iter().all(|group| group != AUTHENTICATED && group != UNAUTHENTICATED) {
            groups.push(of_all.to_owned());
        }
        User { name: self.name, uid: self.uid, groups, extra: self.extra }
    }

    /// As Go prints the value, which is how the API server reports it.
    fn in_go(&self) -> String {
        let list = |items: &[String]| {
            if items.is_empty() {
                return "[]string(nil)".to_owned();
            }
            let items: Vec<String> = items.iter().map(|item| format!("{item:?}")).collect();
            format!("[]string{{{}}}", items.join(", "))
        };
        let extra: Vec<String> =
            self.extra.iter().map(|(key, values)| format!("{key:?}:{}", list(values))).collect();
        let extra = if extra.is_empty() { "(nil)".to_owned() } else { format!("{{{}}}", extra.join(", ")) };
        let groups = list(&self.groups);
        format!(
            "&user.DefaultInfo{{Name:\"\", UID:{:?}, Groups:{groups}, Extra:map[string][]string{extra}}}",
            self.uid
        )
    }
}
