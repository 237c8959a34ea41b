//! The finding of one check, and what to do about it.

use serde::Serialize;

use crate::error::Error;

/// The result of a check.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum CheckResult {
    /// It works.
    Ok,
    /// It works, with a risk or a limitation.
    Warn,
    /// It could not be checked.
    Unknown,
    /// It does not work.
    Fail,
}

/// The finding of one check.
#[derive(Debug, PartialEq, Serialize)]
pub(crate) struct Finding {
    /// The name of the check.
    pub(crate) check: &'static str,
    /// Its result.
    pub(crate) result: CheckResult,
    /// What was found.
    pub(crate) message: String,
    /// What to do about it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) remedy: Option<String>,
}

/// Why something could not be read from the cluster.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub(crate) struct Unavailable(pub(crate) String);

impl From<Error> for Unavailable {
    fn from(error: Error) -> Self {
        Self(error.to_string())
    }
}

/// Something read from the cluster, or why it could not be read.
pub(crate) type Fetched<T> = Result<T, Unavailable>;

pub(crate) fn ok(check: &'static str, message: impl Into<String>) -> Finding {
    Finding { check, result: CheckResult::Ok, message: message.into(), remedy: None }
}

pub(crate) fn warn(check: &'static str, message: impl Into<String>, remedy: impl Into<String>) -> Finding {
    Finding { check, result: CheckResult::Warn, message: message.into(), remedy: Some(remedy.into()) }
}

pub(crate) fn fail(check: &'static str, message: impl Into<String>, remedy: impl Into<String>) -> Finding {
    Finding { result: CheckResult::Fail, ..warn(check, message, remedy) }
}

pub(crate) fn unknown(check: &'static str, why: &Unavailable) -> Finding {
    Finding {
        check,
        result: CheckResult::Unknown,
        message: format!("cannot be checked: {why}"),
        remedy: None,
    }
}
