//! Access and authentication reviews: created, answered, not stored.

use bytes::Bytes;
use http::Method;
use serde_json::{Value, json};

use crate::access::{Attributes, PolicyRule, User, joined};
use crate::http::api::Api;
use crate::http::decode::object;
use crate::http::handlers::token_request::AUDIENCE;
use crate::http::handlers::write_checks;
use crate::http::request::path::ResourcePath;
use crate::http::response::answer::{self, HandlerResult, not_allowed};
use crate::model::status_error::{FieldError, StatusError};

/// The supported reviews.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Review {
    /// `SelfSubjectAccessReview`.
    SelfAccess,
    /// `SubjectAccessReview`.
    Access,
    /// `LocalSubjectAccessReview`.
    LocalAccess,
    /// `SelfSubjectRulesReview`.
    SelfRules,
    /// `SelfSubjectReview`.
    SelfSubject,
    /// `TokenReview`.
    Token,
}

impl Review {
    /// The review at a path, if it is one.
    pub(crate) fn at(path: &ResourcePath) -> Option<Self> {
        match (path.group.as_str(), path.version.as_str(), path.plural.as_str()) {
            ("authorization.k8s.io", "v1", "selfsubjectaccessreviews") => Some(Self::SelfAccess),
            ("authorization.k8s.io", "v1", "subjectaccessreviews") => Some(Self::Access),
            ("authorization.k8s.io", "v1", "localsubjectaccessreviews") => Some(Self::LocalAccess),
            ("authorization.k8s.io", "v1", "selfsubjectrulesreviews") => Some(Self::SelfRules),
            ("authentication.k8s.io", "v1", "selfsubjectreviews") => Some(Self::SelfSubject),
            ("authentication.k8s.io", "v1", "tokenreviews") => Some(Self::Token),
            _ => None,
        }
    }

    /// Answers a review.
    ///
    /// # Errors
    /// 405, 415 and 400 for an invalid review, 422 for an empty one.
    pub(crate) fn answer(
        self,
        api: &Api,
        method: &Method,
        content_type: &str,
        path: &ResourcePath,
        body: &Bytes,
        user: &User,
    ) -> HandlerResult {
        if method != Method::POST || path.name.is_some() {
            return Err(not_allowed());
        }
        let kind = (path.group.as_str(), path.version.as_str(), self.kind());
        let mut review = write_checks::read(content_type, body, self.kind())?;
        write_checks::of_kind(body, &mut review, kind)?;
        let warnings = object::warnings_of(kind, &mut review)?;
        if !review["metadata"].is_object() {
            review["metadata"] = json!({});
        }
        if let Some(namespace) = &path.namespace {
            review["metadata"]["namespace"] = json!(namespace);
        }
        if self == Self::SelfSubject {
            review["metadata"]["creationTimestamp"] = json!(api.cluster().clock.now_string());
            review["status"] = json!({"userInfo": user.to_info()});
            return Ok(answer::warn(answer::json(201, &review), &warnings));
        }
        let spec = &mut review["spec"];
        match self {
            // This review has no spec.
            Self::SelfSubject => {}
            Self::SelfRules => {
                review["status"] = rules(api, user, text(&spec["namespace"]))?;
                review["spec"] = json!({});
            }
            Self::Token => review["status"] = token(api, text(&spec["token"]))?,
            Self::SelfAccess => {
                check(spec)?;
                review["status"] = access(api, user, spec);
            }
            Self::Access | Self::LocalAccess => {
                check(spec)?;
                let them = someone(spec);
                if them.name.is_empty() && them.groups.is_empty() {
                    let because = "at least one of user or group must be specified";
                    return Err(invalid("spec.user", &json!(""), because));
                }
                let asked = &spec["resourceAttributes"]["namespace"];
                if self == Self::LocalAccess && path.namespace.as_deref() != asked.as_str() {
                    let field = "spec.resourceAttributes.namespace";
                    return Err(invalid(field, &json!(text(asked)), "must match metadata.namespace"));
                }
                review["status"] = access(api, &them, spec);
            }
        }
        Ok(answer::warn(answer::json(201, &review), &warnings))
    }

    fn kind(self) -> &'static str {
        match self {
            Self::SelfAccess => "SelfSubjectAccessReview",
            Self::Access => "SubjectAccessReview",
            Self::LocalAccess => "LocalSubjectAccessReview",
            Self::SelfRules => "SelfSubjectRulesReview",
            Self::SelfSubject => "SelfSubjectReview",
            Self::Token => "TokenReview",
        }
    }
}

/// The spec as the API server returns it, without empty fields.
fn check(spec: &mut Value) -> Result<(), StatusError> {
    match (spec["resourceAttributes"].is_object(), spec["nonResourceAttributes"].is_object()) {
        (false, false) => {
            let because = "exactly one of nonResourceAttributes or resourceAttributes must be specified";
            return Err(invalid("spec.resourceAttributes", &Value::Null, because));
        }
        (true, true) => {
            let path = &spec["nonResourceAttributes"];
            let shown = json!({"Path": text(&path["path"]), "Verb": text(&path["verb"])});
            let because = "cannot be specified in combination with resourceAttributes";
            return Err(invalid("spec.nonResourceAttributes", &shown, because));
        }
        _ => {}
    }
    if let Some(spec) = spec.as_object_mut() {
        spec.retain(|_, value| !value.is_null());
        for attributes in spec.values_mut().filter_map(Value::as_object_mut) {
            attributes.retain(|_, value| value != "");
        }
    }
    Ok(())
}

/// These messages do not contain the kind.
fn invalid(field: &str, value: &Value, because: &str) -> StatusError {
    let cause = FieldError::invalid(field, value, because);
    let mut refusal = StatusError::invalid("authorization.k8s.io", "", "", &[cause]);
    if let Some(details) = refusal.details.as_mut().and_then(Value::as_object_mut) {
        details.retain(|_, value| value != "");
    }
    refusal
}

fn access(api: &Api, user: &User, spec: &Value) -> Value {
    let resource = &spec["resourceAttributes"];
    let path = &spec["nonResourceAttributes"];
    let wanted = if resource.is_object() {
        Attributes::Resource {
            verb: text(&resource["verb"]),
            group: text(&resource["group"]),
            plural: text(&resource["resource"]),
            subresource: text(&resource["subresource"]),
            namespace: text(&resource["namespace"]),
            name: text(&resource["name"]),
        }
    } else {
        Attributes::Path { verb: text(&path["verb"]), path: text(&path["path"]) }
    };
    let verdict = api.access.decide(user, wanted);
    let mut status = json!({"allowed": verdict.allowed});
    if !verdict.reason.is_empty() {
        status["reason"] = json!(verdict.reason);
    }
    status
}

fn someone(spec: &Value) -> User {
    let groups = spec["groups"].as_array().into_iter().flatten();
    User {
        name: text(&spec["user"]).to_owned(),
        uid: text(&spec["uid"]).to_owned(),
        groups: groups.filter_map(Value::as_str).map(str::to_owned).collect(),
        ..User::default()
    }
}

fn rules(api: &Api, user: &User, namespace: &str) -> Result<Value, StatusError> {
    if namespace.is_empty() {
        return Err(StatusError::bad_request("no namespace on request"));
    }
    let granted = api.access.granted(user, namespace);
    let all = granted.rules.iter().flat_map(|rules| rules.iter());
    let (resources, paths): (Vec<_>, Vec<_>) =
        all.map(PolicyRule::to_review).partition(|(is_resource, _)| *is_resource);
    let reported = |rules: Vec<(bool, Value)>| -> Value { rules.into_iter().map(|(_, rule)| rule).collect() };
    let mut status = json!({"resourceRules": reported(resources), "nonResourceRules": reported(paths), "incomplete": false});
    if let Some(missing) = joined(granted.missing) {
        status["evaluationError"] = json!(missing);
    }
    Ok(status)
}

fn token(api: &Api, token: &str) -> Result<Value, StatusError> {
    if token.is_empty() {
        return Err(StatusError::bad_request("token is required for TokenReview in authentication"));
    }
    Ok(match api.access.owner(token) {
        Some(owner) => json!({"authenticated": true, "user": owner.to_info(), "audiences": [AUDIENCE]}),
        None => json!({"user": {}, "error": "invalid bearer token"}),
    })
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}
