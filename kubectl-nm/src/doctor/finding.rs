//! The finding of one check, and what to do about it.

use serde::Serialize;

use crate::error::Error;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum CheckResult {
    Ok,
    /// It works, with a risk or a limitation.
    Warn,
    Unknown,
    Fail,
}

#[derive(Debug, PartialEq, Serialize)]
pub(crate) struct Finding {
    pub(crate) check: &'static str,
    pub(crate) result: CheckResult,
    pub(crate) message: String,
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
