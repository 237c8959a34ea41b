//! The finding of one check, and what to do about it.

use nm_core::error::Error;
use serde::Serialize;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum CheckResult {
    Ok,
    /// It works, with a risk or a limitation.
    Warn,
    Unknown,
    Fail,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
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

/// What a check is based on, or why it cannot be made.
pub(crate) fn read<T>(fetched: &Fetched<T>) -> Fetched<&T> {
    fetched.as_ref().map_err(Clone::clone)
}

#[expect(clippy::unnecessary_wraps, reason = "checks return it")]
pub(crate) fn ok(message: impl Into<String>) -> Fetched<Finding> {
    Ok(Finding { check: "", result: CheckResult::Ok, message: message.into(), remedy: None })
}

#[expect(clippy::unnecessary_wraps, reason = "checks return it")]
pub(crate) fn warn(message: impl Into<String>, remedy: impl Into<String>) -> Fetched<Finding> {
    Ok(Finding { check: "", result: CheckResult::Warn, message: message.into(), remedy: Some(remedy.into()) })
}

pub(crate) fn fail(message: impl Into<String>, remedy: impl Into<String>) -> Fetched<Finding> {
    warn(message, remedy).map(|finding| Finding { result: CheckResult::Fail, ..finding })
}

/// The finding of the check with this name, even if it cannot be made.
pub(crate) fn named(check: &'static str, found: Fetched<Finding>) -> Finding {
    match found {
        Ok(finding) => Finding { check, ..finding },
        Err(why) => Finding {
            check,
            result: CheckResult::Unknown,
            message: format!("cannot be checked: {why}"),
            remedy: None,
        },
    }
}
