//! What one check of an installation found, and what to do about it.

use serde::Serialize;

/// How a check came out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Grade {
    /// As it should be.
    Ok,
    /// It works, but not for long or not for all.
    Warn,
    /// Nobody can tell.
    Unknown,
    /// It does not work.
    Fail,
}

/// What one check found.
#[derive(Debug, PartialEq, Serialize)]
pub(crate) struct Finding {
    /// What was looked at.
    pub(crate) check: &'static str,
    /// How it is.
    pub(crate) result: Grade,
    /// What was found.
    pub(crate) message: String,
    /// What to do about it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) remedy: Option<String>,
}

/// What is known, or why it is not.
pub(crate) type Known<T> = Result<T, String>;

pub(crate) fn ok(check: &'static str, message: impl Into<String>) -> Finding {
    Finding { check, result: Grade::Ok, message: message.into(), remedy: None }
}

pub(crate) fn warn(check: &'static str, message: impl Into<String>, remedy: impl Into<String>) -> Finding {
    Finding { check, result: Grade::Warn, message: message.into(), remedy: Some(remedy.into()) }
}

pub(crate) fn fail(check: &'static str, message: impl Into<String>, remedy: impl Into<String>) -> Finding {
    Finding { result: Grade::Fail, ..warn(check, message, remedy) }
}

pub(crate) fn unknown(check: &'static str, why: &str) -> Finding {
    Finding { check, result: Grade::Unknown, message: format!("nobody can tell: {why}"), remedy: None }
}
