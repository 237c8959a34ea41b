//! Validation of query parameters.
//!
//! Selectors and tokens are parsed later.

use serde_json::json;

use crate::http::request::path::Query;
use crate::model::status_error::{FieldError, StatusError};

/// The maximum length of a field manager.
const LONGEST_MANAGER: usize = 128;

/// Validates `ListOptions`.
///
/// # Errors
/// 400 for an invalid number, 422 for options that contradict each other.
pub(crate) fn check_list(query: &Query) -> Result<(), StatusError> {
    for name in ["timeoutSeconds", "limit"] {
        number(query, name)?;
    }
    refuse("ListOptions", &if query.flag("watch") { watch(query) } else { list(query) })
}

/// A whole number, if it is given.
///
/// # Errors
/// 400 if it is invalid.
pub(crate) fn number(query: &Query, name: &str) -> Result<Option<i64>, StatusError> {
    let Some(text) = query.given(name) else {
        return Ok(None);
    };
    let digits = text.strip_prefix(['+', '-']).unwrap_or(text);
    let whole = !digits.is_empty() && digits.bytes().all(|digit| digit.is_ascii_digit());
    let because = if whole { "value out of range" } else { "invalid syntax" };
    let refusal = || StatusError::bad_request(format!("strconv.ParseInt: parsing {text:?}: {because}"));
    text.parse().map(Some).map_err(|_| refusal())
}

/// A resource version.
///
/// # Errors
/// When it is not a number.
pub(crate) fn revision(text: &str) -> Result<u64, String> {
    text.parse().map_err(|_| {
        format!(
            "resourceVersion: Invalid value: {text:?}: strconv.ParseUint: parsing {text:?}: invalid syntax"
        )
    })
}

/// Validates `CreateOptions`, `UpdateOptions` or `PatchOptions`.
///
/// # Errors
/// 422 for invalid options.
pub(crate) fn check_write(query: &Query, kind: &str) -> Result<(), StatusError> {
    refuse(kind, &write(query))
}

/// Validates `PatchOptions`.
///
/// # Errors
/// 422 for invalid options.
pub(crate) fn check_patch(query: &Query, is_apply: bool) -> Result<(), StatusError> {
    let mut errors = Vec::new();
    if !is_apply && query.given("force").is_some() {
        errors.push(FieldError::forbidden("force", "may not be specified for non-apply patch"));
    }
    if is_apply && query.get("fieldManager").is_none() {
        errors.push(FieldError::required_because("fieldManager", "is required for apply patch"));
    }
    errors.extend(write(query));
    refuse("PatchOptions", &errors)
}

/// The error of an invalid `dryRun`.
pub(crate) fn dry_run(said: &[&str]) -> Option<FieldError> {
    let fits = said.iter().all(|word| *word == "All");
    (!fits).then(|| FieldError::unsupported("dryRun", &json!(said), &["All"]))
}

/// Fails if there are errors.
///
/// # Errors
/// 422 with the errors.
pub(crate) fn refuse(kind: &str, errors: &[FieldError]) -> Result<(), StatusError> {
    if errors.is_empty() { Ok(()) } else { Err(StatusError::invalid("meta.k8s.io", kind, "", errors)) }
}

const MATCH: &str = "resourceVersionMatch";

fn list(query: &Query) -> Vec<FieldError> {
    let mut errors = Vec::new();
    if let Some(said) = query.get(MATCH) {
        if query.get("resourceVersion").is_none() {
            let because = "resourceVersionMatch is forbidden unless resourceVersion is provided";
            errors.push(FieldError::forbidden(MATCH, because));
        }
        if query.get("continue").is_some() {
            let because = "resourceVersionMatch is forbidden when continue is provided";
            errors.push(FieldError::forbidden(MATCH, because));
        }
        if !matches!(said, "Exact" | "NotOlderThan") {
            errors.push(FieldError::unsupported(MATCH, &json!(said), &["Exact", "NotOlderThan", ""]));
        }
        if said == "Exact" && query.get("resourceVersion") == Some("0") {
            let because = "resourceVersionMatch \"exact\" is forbidden for resourceVersion \"0\"";
            errors.push(FieldError::forbidden(MATCH, because));
        }
    }
    if query.given("sendInitialEvents").is_some() {
        errors.push(FieldError::forbidden("sendInitialEvents", "sendInitialEvents is forbidden for list"));
    }
    errors
}

fn watch(query: &Query) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let said = query.get(MATCH);
    let streams = query.given("sendInitialEvents").is_some();
    if streams && said != Some("NotOlderThan") {
        let because = "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan";
        errors.push(FieldError::forbidden(MATCH, because));
    }
    if let Some(said) = said {
        if !streams {
            let because = "resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided";
            errors.push(FieldError::forbidden(MATCH, because));
        }
        if said != "NotOlderThan" {
            errors.push(FieldError::unsupported(MATCH, &json!(said), &["NotOlderThan"]));
        }
    }
    if query.get("continue").is_some() {
        let because = "resourceVersionMatch is forbidden when continue is provided";
        errors.push(FieldError::forbidden(MATCH, because));
    }
    errors
}

fn write(query: &Query) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let manager = query.given("fieldManager").unwrap_or_default();
    if manager.len() > LONGEST_MANAGER {
        errors.push(FieldError::too_long("fieldManager", LONGEST_MANAGER));
    }
    if let Some((at, bad)) = manager.char_indices().find(|(_, letter)| letter.is_control()) {
        let shown: String = manager.chars().map(quoted).collect();
        let message = format!(
            "Invalid value: \"{shown}\": invalid character U+{:04X} (at position {at})",
            u32::from(bad)
        );
        let field = "fieldManager".to_owned();
        errors.push(FieldError { reason: "FieldValueInvalid", field, message });
    }
    errors.extend(dry_run(&query.all("dryRun").collect::<Vec<_>>()));
    let known = ["", "Ignore", "Strict", "Warn"];
    let validation = query.given("fieldValidation").unwrap_or_default();
    if !known.contains(&validation) {
        errors.push(FieldError::unsupported("fieldValidation", &json!(validation), &known));
    }
    errors
}

/// A character as Go's `%q` prints it.
fn quoted(letter: char) -> String {
    match letter {
        '"' | '\\' => format!("\\{letter}"),
        '\n' => "\\n".into(),
        '\r' => "\\r".into(),
        '\t' => "\\t".into(),
        letter if letter.is_ascii_control() => format!("\\x{:02x}", u32::from(letter)),
        letter => letter.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reported(check: Result<(), StatusError>) -> String {
        check.err().map_or_else(String::new, |refusal| format!("{} {}", refusal.code, refusal.message))
    }

    #[test]
    fn unsupported_options_of_a_list_are_rejected() {
        let unprovided = "resourceVersionMatch: Forbidden: resourceVersionMatch is forbidden unless resourceVersion is provided";
        let invalid = "422 ListOptions.meta.k8s.io \"\" is invalid:";
        for (query, expected) in [
            ("limit=-1&timeoutSeconds=-1&resourceVersion=0", String::new()),
            ("limit=x", "400 strconv.ParseInt: parsing \"x\": invalid syntax".into()),
            ("limit=", "400 strconv.ParseInt: parsing \"\": invalid syntax".into()),
            ("limit=5.5", "400 strconv.ParseInt: parsing \"5.5\": invalid syntax".into()),
            (
                "limit=99999999999999999999",
                "400 strconv.ParseInt: parsing \"99999999999999999999\": value out of range".into(),
            ),
            ("watch=1&timeoutSeconds=x", "400 strconv.ParseInt: parsing \"x\": invalid syntax".into()),
            ("resourceVersionMatch=Exact", format!("{invalid} {unprovided}")),
            (
                "resourceVersionMatch=bogus",
                format!(
                    "{invalid} [{unprovided}, resourceVersionMatch: Unsupported value: \"bogus\": supported values: \
                     \"Exact\", \"NotOlderThan\", \"\"]"
                ),
            ),
            (
                "resourceVersionMatch=Exact&resourceVersion=0",
                format!(
                    "{invalid} resourceVersionMatch: Forbidden: resourceVersionMatch \"exact\" is forbidden for \
                     resourceVersion \"0\""
                ),
            ),
            (
                "sendInitialEvents=true",
                format!("{invalid} sendInitialEvents: Forbidden: sendInitialEvents is forbidden for list"),
            ),
            ("watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan", String::new()),
            (
                "watch=1&sendInitialEvents=false",
                format!(
                    "{invalid} resourceVersionMatch: Forbidden: sendInitialEvents requires setting \
                     resourceVersionMatch to NotOlderThan"
                ),
            ),
            (
                "watch=1&resourceVersionMatch=Exact",
                format!(
                    "{invalid} [resourceVersionMatch: Forbidden: resourceVersionMatch is forbidden for watch unless \
                     sendInitialEvents is provided, resourceVersionMatch: Unsupported value: \"Exact\": supported \
                     values: \"NotOlderThan\"]"
                ),
            ),
        ] {
            assert_eq!(reported(check_list(&Query::parse(query))), expected, "{query}");
        }
    }

    #[test]
    fn unsupported_options_of_a_write_are_rejected() {
        let long = format!("fieldManager={}", "x".repeat(129));
        for (query, expected) in [
            ("dryRun=All&fieldManager=m&fieldValidation=Strict", ""),
            (long.as_str(), "fieldManager: Too long: may not be more than 128 bytes"),
            (
                "fieldManager=a%01b",
                "fieldManager: Invalid value: \"a\\x01b\": invalid character U+0001 (at position 1)",
            ),
            ("dryRun=maybe", "dryRun: Unsupported value: [\"maybe\"]: supported values: \"All\""),
            ("dryRun=All&dryRun=", "dryRun: Unsupported value: [\"All\",\"\"]: supported values: \"All\""),
            (
                "fieldValidation=strict",
                "fieldValidation: Unsupported value: \"strict\": supported values: \"\", \"Ignore\", \"Strict\", \
                 \"Warn\"",
            ),
        ] {
            let message = reported(check_write(&Query::parse(query), "CreateOptions"));
            let reported =
                message.strip_prefix("422 CreateOptions.meta.k8s.io \"\" is invalid: ").unwrap_or_default();
            assert_eq!(reported, expected, "{query}");
        }
    }

    #[test]
    fn force_and_field_managers_belong_to_applies() {
        let is_apply = true;
        assert_eq!(
            reported(check_patch(&Query::parse("dryRun=x"), is_apply)),
            "422 PatchOptions.meta.k8s.io \"\" is invalid: [fieldManager: Required value: is required for apply patch, \
             dryRun: Unsupported value: [\"x\"]: supported values: \"All\"]"
        );
        assert_eq!(reported(check_patch(&Query::parse("fieldManager=m&force=true"), is_apply)), "");
        assert_eq!(
            reported(check_patch(&Query::parse("force=false"), !is_apply)),
            "422 PatchOptions.meta.k8s.io \"\" is invalid: force: Forbidden: may not be specified for non-apply patch"
        );
    }
}
