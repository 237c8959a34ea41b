//! Errors of the API server: a `metav1.Status` with code, reason and causes.
//!
//! The messages are those of the API server, since programs match on them. The transcripts verify them.

use std::borrow::Cow;

use serde_json::{Value, json};

/// An error response.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[error("{message}")]
pub struct StatusError {
    /// HTTP status code.
    pub code: u16,
    /// `reason`; some internal errors have none.
    pub reason: Option<Cow<'static, str>>,
    /// `message`.
    pub message: String,
    /// `details`.
    pub details: Option<Value>,
    /// Seconds in the `Retry-After` header.
    pub retry_after: Option<u32>,
    /// `Warning` headers.
    pub warnings: Vec<String>,
}

impl StatusError {
    /// An error without details.
    pub fn new(code: u16, reason: &'static str, message: impl Into<String>) -> Self {
        Self {
            code,
            reason: Some(Cow::Borrowed(reason)),
            message: message.into(),
            details: None,
            retry_after: None,
            warnings: Vec::new(),
        }
    }

    /// Adds `details`.
    #[must_use]
    pub fn with_details(mut self, details: Value) -> Self {
        self.details = Some(details);
        self
    }

    /// Adds warnings before the existing ones.
    #[must_use]
    pub fn with_warnings(mut self, warnings: &[String]) -> Self {
        self.warnings.splice(0..0, warnings.iter().cloned());
        self
    }

    /// 400 `BadRequest`.
    pub fn bad_request(message: impl Into<String>) -> Self {
        Self::new(400, "BadRequest", message)
    }

    /// 500 without a reason, as for unexpected errors.
    pub fn internal(message: impl Into<String>) -> Self {
        Self { reason: None, ..Self::new(500, "", message) }
    }

    /// 404 for an object; its group qualifies `plural`, as in `leases.coordination.k8s.io`.
    pub fn not_found(group: &str, plural: &str, name: &str) -> Self {
        let resource = qualified(group, plural);
        Self::new(404, "NotFound", format!("{resource} {name:?} not found"))
            .with_details(details(group, plural, name))
    }

    /// 409 for an object that exists.
    pub fn already_exists(group: &str, plural: &str, name: &str, terminating: bool) -> Self {
        let resource = qualified(group, plural);
        let prefix = if terminating { "object is being deleted: " } else { "" };
        Self::new(409, "AlreadyExists", format!("{prefix}{resource} {name:?} already exists"))
            .with_details(details(group, plural, name))
    }

    /// 409 for a write with an old resourceVersion or another uid.
    pub fn conflict(group: &str, plural: &str, name: &str, because: &str) -> Self {
        let resource = qualified(group, plural);
        Self::new(409, "Conflict", format!("Operation cannot be fulfilled on {resource} {name:?}: {because}"))
            .with_details(details(group, plural, name))
    }

    /// 403; `because` follows `pods "x" is forbidden: `.
    pub fn forbidden(group: &str, plural: &str, name: &str, because: &str) -> Self {
        let resource = qualified(group, plural);
        Self::new(403, "Forbidden", format!("{resource} {name:?} is forbidden: {because}"))
            .with_details(details(group, plural, name))
    }

    /// 410: the history does not go back to the requested revision.
    pub fn expired(message: impl Into<String>) -> Self {
        Self::new(410, "Expired", message)
    }

    /// 422 with one cause for each field.
    pub fn invalid(group: &str, kind: &str, name: &str, causes: &[FieldError]) -> Self {
        let mut sentences: Vec<String> = Vec::new();
        for sentence in causes.iter().map(|c| format!("{}: {}", c.field, c.message)) {
            if !sentences.contains(&sentence) {
                sentences.push(sentence);
            }
        }
        let listed = match sentences.as_slice() {
            [only] => only.clone(),
            many => format!("[{}]", many.join(", ")),
        };
        let mut body = details(group, kind, name);
        body["causes"] = causes
            .iter()
            .map(|c| json!({"reason": c.reason, "message": c.message, "field": c.field}))
            .collect();
        Self::new(422, "Invalid", format!("{} {name:?} is invalid: {listed}", qualified(group, kind)))
            .with_details(body)
    }

    /// The body of the response.
    pub fn to_status(&self) -> Value {
        let mut status = json!({
            "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
            "message": self.message, "code": self.code,
        });
        if let Some(reason) = &self.reason {
            status["reason"] = json!(reason);
        }
        if let Some(details) = &self.details {
            status["details"] = details.clone();
        }
        status
    }
}

/// One cause of a 422.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FieldError {
    /// `FieldValueRequired`, `FieldValueInvalid`, …
    pub reason: &'static str,
    /// Path of the field, as in `spec.nodeName`.
    pub field: String,
    /// The message.
    pub message: String,
}

impl FieldError {
    /// `Required value`.
    pub fn required(field: impl Into<String>) -> Self {
        Self { reason: "FieldValueRequired", field: field.into(), message: "Required value".into() }
    }

    /// `Invalid value: …`; `value` is shown as JSON.
    pub fn invalid(field: impl Into<String>, value: &Value, because: &str) -> Self {
        let message = format!("Invalid value: {value}: {because}");
        Self { reason: "FieldValueInvalid", field: field.into(), message }
    }

    /// `Required value: …`.
    pub fn required_because(field: impl Into<String>, because: &str) -> Self {
        Self { message: format!("Required value: {because}"), ..Self::required(field) }
    }

    /// `Unsupported value: …`; `value` is shown as JSON.
    pub fn unsupported(field: impl Into<String>, value: &Value, known: &[&str]) -> Self {
        let known: Vec<String> = known.iter().map(|known| format!("{known:?}")).collect();
        let message = format!("Unsupported value: {value}: supported values: {}", known.join(", "));
        Self { reason: "FieldValueNotSupported", field: field.into(), message }
    }

    /// `Duplicate value: …`; `value` is shown as JSON.
    pub fn duplicate(field: impl Into<String>, value: &Value) -> Self {
        let message = format!("Duplicate value: {value}");
        Self { reason: "FieldValueDuplicate", field: field.into(), message }
    }

    /// `Too long: …`.
    pub fn too_long(field: impl Into<String>, most: usize) -> Self {
        let message = format!("Too long: may not be more than {most} bytes");
        Self { reason: "FieldValueTooLong", field: field.into(), message }
    }

    /// `Forbidden: …`.
    pub fn forbidden(field: impl Into<String>, because: &str) -> Self {
        Self { reason: "FieldValueForbidden", field: field.into(), message: format!("Forbidden: {because}") }
    }
}

/// `plural.group`, or `plural` alone in the core group.
pub fn qualified(group: &str, plural: &str) -> String {
    if group.is_empty() { plural.to_owned() } else { format!("{plural}.{group}") }
}

fn details(group: &str, kind: &str, name: &str) -> Value {
    let fields = [("name", name), ("group", group), ("kind", kind)];
    fields
        .into_iter()
        .filter(|(_, text)| !text.is_empty())
        .map(|(field, text)| (field, json!(text)))
        .collect()
}
