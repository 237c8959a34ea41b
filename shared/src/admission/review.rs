//! `AdmissionReview` v1: reading the API server's requests and writing the responses.
//!
//! A request may come from anyone who reaches the port, so nothing about it is trusted. A body that is no review is
//! reported as such, and a review that is not understood is refused, never allowed.

use kube::Resource as _;
use kube::core::admission::{
    AdmissionRequest, AdmissionResponse, AdmissionReview, META_API_VERSION_V1, META_KIND, Operation,
};
use kube::core::response::StatusSummary;
use kube::core::{DynamicObject, Status};
use serde_json::{Value, json};

use crate::admission::AdmissionDecision;
use crate::api::maintenance::NodeMaintenance;
use crate::api::names::{GROUP, PROBE_NODE};

/// A request for a review.
#[derive(Debug, Clone, PartialEq)]
pub struct ReviewRequest {
    /// Identifies the request in the response.
    pub uid: String,
    /// Whether the object will not be stored, whatever the response.
    pub dry_run: bool,
    /// The change under review.
    pub change: RequestedChange,
}

impl ReviewRequest {
    /// Whether it tests if the webhook works: its refusal is expected.
    pub fn is_probe(&self) -> bool {
        let RequestedChange::Create(maintenance) = &self.change else { return false };
        self.dry_run && maintenance.spec.node_name == PROBE_NODE
    }
}

/// The change under review.
#[derive(Debug, Clone, PartialEq)]
pub enum RequestedChange {
    /// A maintenance is created.
    Create(Box<NodeMaintenance>),
    /// A maintenance is changed, from the first to the second.
    Update(Box<(NodeMaintenance, NodeMaintenance)>),
    /// A change that is not reviewed: a deletion, or one of the status.
    Other,
}

/// Why a body is not a request for a review of a maintenance.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InvalidReview {
    /// The request cannot be answered with a review.
    #[error("not an AdmissionReview of {META_API_VERSION_V1}: {0}")]
    NoReview(String),
    /// The request is a review, but not of a valid maintenance.
    #[error("{reason}")]
    NoMaintenance {
        /// Identifies the request in the response.
        uid: String,
        /// What is wrong with it.
        reason: InvalidChange,
    },
}

/// Why a review is not one of a valid maintenance.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InvalidChange {
    /// The review is about another kind of object.
    #[error("this webhook reviews {}.{GROUP}, not {resource:?} of {group:?}", NodeMaintenance::plural(&()))]
    OtherKind {
        /// The API group of the object.
        group: String,
        /// Its resource.
        resource: String,
    },
    /// The operation has no object that could be reviewed.
    #[error("the operation CONNECT is not reviewed")]
    Connect,
    /// The request lacks this field.
    #[error("{0} is missing")]
    Missing(&'static str),
    /// The object in this field does not have the fields of a maintenance.
    #[error("{field} is not a NodeMaintenance: {why}")]
    NoMaintenance {
        /// The field of the request.
        field: &'static str,
        /// The parser's message, which names the field of the object.
        why: String,
    },
}

/// The result of a review.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ReviewAnswer {
    /// The decision.
    Reviewed(AdmissionDecision),
    /// No decision was possible, because the cluster could not be read.
    Unknown(String),
    /// The request is invalid.
    Invalid(String),
}

/// Reads a request.
///
/// # Errors
/// When the body is not a review of a maintenance.
pub fn read(body: &[u8]) -> Result<ReviewRequest, InvalidReview> {
    let no_review = |why: String| InvalidReview::NoReview(why);
    let mut body: Value = serde_json::from_slice(body).map_err(|error| no_review(error.to_string()))?;
    // Nothing here depends on the user, and Go writes an empty list in `extra` as null, which the type does not accept.
    if let Some(user) = body.pointer_mut("/request/userInfo") {
        *user = json!({});
    }
    let review: AdmissionReview<DynamicObject> =
        serde_json::from_value(body).map_err(|error| no_review(error.to_string()))?;
    if review.types.api_version != META_API_VERSION_V1 || review.types.kind != META_KIND {
        return Err(no_review(format!("it is a {:?} of {:?}", review.types.kind, review.types.api_version)));
    }
    let request = review.request.ok_or_else(|| no_review("request is missing".to_owned()))?;
    if request.uid.is_empty() {
        return Err(no_review("request.uid is empty".to_owned()));
    }
    let (uid, dry_run) = (request.uid.clone(), request.dry_run);
    match change(request) {
        Ok(change) => Ok(ReviewRequest { uid, dry_run, change }),
        Err(reason) => Err(InvalidReview::NoMaintenance { uid, reason }),
    }
}

fn change(request: AdmissionRequest<DynamicObject>) -> Result<RequestedChange, InvalidChange> {
    let (group, resource) = (request.resource.group, request.resource.resource);
    if group != GROUP || resource != NodeMaintenance::plural(&()) {
        return Err(InvalidChange::OtherKind { group, resource });
    }
    match request.operation {
        _ if request.sub_resource.is_some_and(|part| !part.is_empty()) => Ok(RequestedChange::Other),
        Operation::Create => Ok(RequestedChange::Create(Box::new(maintenance("object", request.object)?))),
        Operation::Update => {
            let before = maintenance("oldObject", request.old_object)?;
            Ok(RequestedChange::Update(Box::new((before, maintenance("object", request.object)?))))
        }
        Operation::Delete => Ok(RequestedChange::Other),
        Operation::Connect => Err(InvalidChange::Connect),
    }
}

fn maintenance(field: &'static str, object: Option<DynamicObject>) -> Result<NodeMaintenance, InvalidChange> {
    let object = object.ok_or(InvalidChange::Missing(field))?;
    object.try_parse().map_err(|error| InvalidChange::NoMaintenance { field, why: error.to_string() })
}

/// The response to the request with this uid.
pub fn answer(uid: &str, answer: &ReviewAnswer) -> AdmissionReview<DynamicObject> {
    let mut response = match answer {
        ReviewAnswer::Reviewed(AdmissionDecision { refusal: None, .. }) => allowed(),
        ReviewAnswer::Reviewed(AdmissionDecision { refusal: Some(refusal), .. }) => {
            denied(403, "Forbidden", refusal)
        }
        ReviewAnswer::Unknown(what) => denied(503, "ServiceUnavailable", &format!("{what}; try again")),
        ReviewAnswer::Invalid(what) => denied(400, "BadRequest", what),
    };
    uid.clone_into(&mut response.uid);
    if let ReviewAnswer::Reviewed(decision) = answer
        && !decision.warnings.is_empty()
    {
        response.warnings = Some(decision.warnings.iter().map(|warning| printable(warning)).collect());
    }
    response.into_review()
}

fn allowed() -> AdmissionResponse {
    let mut response = AdmissionResponse::invalid("");
    (response.allowed, response.result) = (true, Status::default());
    response
}

fn denied(code: u16, reason: &str, message: &str) -> AdmissionResponse {
    let mut response = AdmissionResponse::invalid("");
    response.result = Status {
        status: Some(StatusSummary::Failure),
        code,
        reason: reason.to_owned(),
        message: printable(message),
        ..Status::default()
    };
    response
}

/// Escapes control characters: names in an object are arbitrary, and messages are printed to a terminal.
fn printable(text: &str) -> String {
    let escape = |c: char| if c.is_control() { c.escape_default().to_string() } else { c.to_string() };
    text.chars().map(escape).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use kube::ResourceExt as _;

    fn posted(operation: &str, object: &Value, old: &Value) -> Value {
        json!({"apiVersion": META_API_VERSION_V1, "kind": META_KIND, "request": {
            "uid": "u", "operation": operation, "object": object, "oldObject": old, "userInfo": {},
            "kind": {"group": GROUP, "version": "v1beta1", "kind": "NodeMaintenance"},
            "resource": {"group": GROUP, "version": "v1beta1", "resource": "nodemaintenances"},
        }})
    }

    fn object(node: &str) -> Value {
        json!({"apiVersion": "nodemaintenance.medik8s.io/v1beta1", "kind": "NodeMaintenance",
            "metadata": {"name": "m"}, "spec": {"nodeName": node}})
    }

    fn read_value(value: &Value) -> Result<ReviewRequest, InvalidReview> {
        read(value.to_string().as_bytes())
    }

    #[test]
    fn a_request_is_read_with_its_change() {
        let (one, two) = (object("n1"), object("n2"));
        let created = read_value(&posted("CREATE", &one, &Value::Null)).unwrap();
        let RequestedChange::Create(new) = &created.change else { panic!("{created:?}") };
        assert_eq!((created.uid.as_str(), created.dry_run, new.spec.node_name.as_str()), ("u", false, "n1"));
        assert_eq!(new.name_any(), "m");
        let RequestedChange::Update(both) = read_value(&posted("UPDATE", &two, &one)).unwrap().change else {
            panic!()
        };
        assert_eq!((both.0.spec.node_name.as_str(), both.1.spec.node_name.as_str()), ("n1", "n2"));
        let deleted = read_value(&posted("DELETE", &Value::Null, &one)).unwrap();
        assert_eq!(deleted.change, RequestedChange::Other);
        let mut status = posted("UPDATE", &two, &one);
        status["request"]["subResource"] = json!("status");
        assert_eq!(read_value(&status).unwrap().change, RequestedChange::Other);
        let mut by_go = posted("CREATE", &one, &Value::Null);
        by_go["request"]["userInfo"] = json!({"username": "u", "extra": {"scopes": null}});
        assert!(read_value(&by_go).is_ok(), "Go writes an empty list as null");
        let mut dry = posted("CREATE", &one, &Value::Null);
        dry["request"]["dryRun"] = json!(true);
        assert!(read_value(&dry).unwrap().dry_run);
    }

    #[test]
    fn a_body_that_is_no_review_is_reported_as_such() {
        let changed = |pointer: &str, value: Value| {
            let mut review = posted("CREATE", &object("n1"), &Value::Null);
            *review.pointer_mut(pointer).unwrap() = value;
            review.to_string()
        };
        for body in [
            String::new(),
            "{".to_owned(),
            "null".to_owned(),
            "[]".repeat(3),
            "[".repeat(100_000),
            "\u{0}\u{ffff}".to_owned(),
            json!({"apiVersion": META_API_VERSION_V1, "kind": META_KIND}).to_string(),
            changed("/apiVersion", json!("admission.k8s.io/v1beta1")),
            changed("/kind", json!("Pod")),
            changed("/request", json!(7)),
            changed("/request/uid", json!("")),
            changed("/request/uid", json!(null)),
            changed("/request/operation", json!({})),
            changed("/request/resource", json!(null)),
        ] {
            assert!(matches!(read(body.as_bytes()), Err(InvalidReview::NoReview(_))), "{body:.60}");
        }
        assert!(matches!(read(b"\xff\xfe"), Err(InvalidReview::NoReview(_))));
    }

    #[test]
    fn an_object_that_is_no_maintenance_is_refused_under_its_uid() {
        let with = |operation: &str, object: Value| posted(operation, &object, &Value::Null);
        let mut pods = with("CREATE", object("n1"));
        pods["request"]["resource"] = json!({"group": "", "version": "v1", "resource": "pods"});
        for review in [
            pods,
            with("CREATE", Value::Null),
            with("CREATE", json!({"spec": {"nodeName": 7}})),
            with("UPDATE", object("n1")),
            with("CONNECT", object("n1")),
        ] {
            let Err(InvalidReview::NoMaintenance { uid, .. }) = read_value(&review) else {
                panic!("{review}")
            };
            assert_eq!(uid, "u");
        }
    }

    #[test]
    fn responses_have_the_form_of_the_api_and_no_control_characters() {
        let answer = |given: &ReviewAnswer| json!(answer("u", given));
        let review = |refusal: Option<&str>, warnings: &[&str]| {
            let warnings = warnings.iter().map(|&warning| warning.to_owned()).collect();
            answer(&ReviewAnswer::Reviewed(AdmissionDecision {
                refusal: refusal.map(str::to_owned),
                warnings,
            }))
        };
        let allowed = json!({"apiVersion": META_API_VERSION_V1, "kind": META_KIND,
            "response": {"uid": "u", "allowed": true, "status": {}}});
        assert_eq!(review(None, &[]), allowed);
        assert_eq!(review(None, &["a\nb"])["response"]["warnings"], json!(["a\\nb"]));
        let refused = &review(Some("no node \u{1b}[31m"), &[])["response"];
        assert_eq!((&refused["allowed"], &refused["status"]["code"]), (&json!(false), &json!(403)));
        assert_eq!(refused["status"]["message"], "no node \\u{1b}[31m");
        let unknown = &answer(&ReviewAnswer::Unknown("cannot read nodes".to_owned()))["response"]["status"];
        assert_eq!(
            (&unknown["code"], &unknown["message"]),
            (&json!(503), &json!("cannot read nodes; try again"))
        );
        assert_eq!(answer(&ReviewAnswer::Invalid("x".to_owned()))["response"]["status"]["code"], 400);
    }
}
