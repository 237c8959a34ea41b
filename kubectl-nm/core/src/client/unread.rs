//! What could not be read, for a plan or for who leads.

use std::fmt;

use crate::error::Error;

/// A part of the cluster that is not known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unread {
    /// What is not known, such as `the disruption budgets`.
    pub what: String,
    /// Why.
    pub why: UnreadReason,
}

/// Why a part of the cluster is not known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum UnreadReason {
    /// The user lacks this permission, such as `list pods`.
    Forbidden(String),
    /// It did not arrive in time.
    TooLate(String),
    /// Anything else.
    Other(String),
}

impl Unread {
    pub(crate) fn forbidden(what: &str, permission: &str) -> Self {
        Self { what: what.to_owned(), why: UnreadReason::Forbidden(permission.to_owned()) }
    }

    pub(crate) fn too_late(what: impl Into<String>, why: impl Into<String>) -> Self {
        Self { what: what.into(), why: UnreadReason::TooLate(why.into()) }
    }

    pub(crate) fn other(what: impl Into<String>, why: impl Into<String>) -> Self {
        Self { what: what.into(), why: UnreadReason::Other(why.into()) }
    }

    /// Why a request did not return `what`.
    pub(crate) fn failed(what: &str, error: &Error) -> Self {
        match error {
            Error::Server { asked, status } if status.is_forbidden() => Self::forbidden(what, asked),
            error => Self::other(what, error.to_string()),
        }
    }

    /// All of `unread` in one sentence: what is not known, and then why.
    pub fn sentence(unread: &[Self]) -> Option<String> {
        let (mut what, mut permissions, mut others) = (Vec::new(), Vec::new(), Vec::new());
        let add = |to: &mut Vec<String>, text: &str| {
            if !to.iter().any(|known| known == text) {
                to.push(text.to_owned());
            }
        };
        for part in unread {
            add(&mut what, &part.what);
            match &part.why {
                UnreadReason::Forbidden(permission) => add(&mut permissions, permission),
                UnreadReason::TooLate(why) | UnreadReason::Other(why) => add(&mut others, why),
            }
        }
        if !permissions.is_empty() {
            others.insert(0, format!("you may not {}", permissions.join(", ")));
        }
        (!unread.is_empty()).then(|| format!("{}: {}", what.join(", "), others.join("; ")))
    }
}

impl fmt::Display for Unread {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.why {
            UnreadReason::Forbidden(permission) => write!(f, "{}: you may not {permission}", self.what),
            UnreadReason::TooLate(why) | UnreadReason::Other(why) => write!(f, "{}: {why}", self.what),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_known_is_one_sentence() {
        let pods = Unread::forbidden("the pods", "list pods");
        let budgets = Unread::forbidden("the budgets", "list budgets");
        let late = Unread::too_late("the answers to 3 evictions", "the plan took longer than 2s");
        assert_eq!(Unread::sentence(&[]), None);
        assert_eq!(Unread::sentence(std::slice::from_ref(&pods)), Some(pods.to_string()));
        assert_eq!(
            Unread::sentence(&[pods.clone(), late, budgets, pods]).unwrap(),
            "the pods, the answers to 3 evictions, the budgets: you may not list pods, list budgets; the plan took \
             longer than 2s"
        );
    }
}
