//! `AdmissionReview` v1, as the API server posts it and as it wants it answered.
//!
//! What is posted may come from anybody who reaches the port, so nothing about it is taken for granted: what is no
//! review is told so, and what cannot be understood is refused, never allowed.

use kube::Resource as _;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::admission::AdmissionDecision;
use crate::api::maintenance::NodeMaintenance;
use crate::api::names::GROUP;

/// The only version that is spoken.
const API_VERSION: &str = "admission.k8s.io/v1";

/// What the API server asks.
#[derive(Debug, Clone, PartialEq)]
pub struct ReviewRequest {
    /// Returned with the answer.
    pub uid: String,
    /// Whether nothing will be stored, whatever the answer.
    pub dry_run: bool,
    /// What somebody wants to do.
    pub asked: RequestedChange,
}

/// What somebody wants to do.
#[derive(Debug, Clone, PartialEq)]
pub enum RequestedChange {
    /// To create this.
    Create(Box<NodeMaintenance>),
    /// To change one into the other.
    Update(Box<(NodeMaintenance, NodeMaintenance)>),
    /// What is nobody's business: to delete one, or to write its status.
    Other,
}

/// Why a body is no question.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InvalidReview {
    /// It cannot be answered in the form of a review.
    #[error("not an AdmissionReview of {API_VERSION}: {0}")]
    NoReview(String),
    /// It is a review, but about something else or of something that is none.
    #[error("{reason}")]
    NoMaintenance {
        /// Returned with the answer.
        uid: String,
        /// What is wrong with it.
        reason: String,
    },
}

/// What is to be said.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ReviewAnswer {
    /// What was decided.
    Reviewed(AdmissionDecision),
    /// Nothing could be decided, for want of knowledge.
    Unknown(String),
    /// The question made no sense.
    Nonsense(String),
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Posted {
    api_version: String,
    kind: String,
    request: Request,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Request {
    uid: String,
    operation: String,
    resource: Resource,
    #[serde(default)]
    sub_resource: Option<String>,
    #[serde(default)]
    dry_run: Option<bool>,
    #[serde(default)]
    object: Value,
    #[serde(default)]
    old_object: Value,
}

#[derive(Deserialize)]
struct Resource {
    group: String,
    resource: String,
}

/// Reads what was posted.
///
/// # Errors
/// When it is no question about a maintenance.
pub fn read(body: &[u8]) -> Result<ReviewRequest, InvalidReview> {
    let no_review = |why: String| InvalidReview::NoReview(why);
    let posted: Posted = serde_json::from_slice(body).map_err(|error| no_review(error.to_string()))?;
    if posted.api_version != API_VERSION || posted.kind != "AdmissionReview" {
        return Err(no_review(format!("it says {:?} of {:?}", posted.kind, posted.api_version)));
    }
    let request = posted.request;
    if request.uid.is_empty() {
        return Err(no_review("request.uid is empty".to_owned()));
    }
    let no_maintenance = |reason: String| InvalidReview::NoMaintenance { uid: request.uid.clone(), reason };
    let Resource { group, resource } = &request.resource;
    let plural = NodeMaintenance::plural(&());
    if group != GROUP || *resource != plural {
        let ours = format!("{plural}.{GROUP} are reviewed here");
        return Err(no_maintenance(format!("{ours}, not {resource:?} of {group:?}")));
    }
    let asked = match request.operation.as_str() {
        _ if request.sub_resource.as_deref().is_some_and(|part| !part.is_empty()) => RequestedChange::Other,
        "CREATE" => RequestedChange::Create(parse("object", &request.object).map_err(no_maintenance)?),
        "UPDATE" => RequestedChange::Update(Box::new((
            *parse("oldObject", &request.old_object).map_err(no_maintenance)?,
            *parse("object", &request.object).map_err(no_maintenance)?,
        ))),
        "DELETE" => RequestedChange::Other,
        other => return Err(no_maintenance(format!("there is no operation {other:?} to review"))),
    };
    Ok(ReviewRequest { uid: request.uid, dry_run: request.dry_run.unwrap_or_default(), asked })
}

fn parse<K: DeserializeOwned>(field: &str, object: &Value) -> Result<Box<K>, String> {
    K::deserialize(object).map(Box::new).map_err(|error| format!("{field} is no NodeMaintenance: {error}"))
}

/// The review that answers the question with this uid.
pub fn answer(uid: &str, answer: &ReviewAnswer) -> Value {
    let denied = |code: u16, reason: &str, message: &str| {
        json!({
            "uid": uid, "allowed": false,
            "status": {"status": "Failure", "code": code, "reason": reason, "message": plain(message)},
        })
    };
    let mut response = match answer {
        ReviewAnswer::Reviewed(AdmissionDecision { refusal: Some(refusal), .. }) => {
            denied(403, "Forbidden", refusal)
        }
        ReviewAnswer::Reviewed(AdmissionDecision { refusal: None, .. }) => {
            json!({"uid": uid, "allowed": true})
        }
        ReviewAnswer::Unknown(what) => denied(503, "ServiceUnavailable", &format!("{what}; try again")),
        ReviewAnswer::Nonsense(what) => denied(400, "BadRequest", what),
    };
    if let ReviewAnswer::Reviewed(review) = answer
        && !review.warnings.is_empty()
    {
        response["warnings"] = review.warnings.iter().map(|warning| plain(warning)).collect();
    }
    json!({"apiVersion": API_VERSION, "kind": "AdmissionReview", "response": response})
}

/// A name in an object may be anything, and what is answered ends on somebody's terminal.
fn plain(text: &str) -> String {
    let shown = |c: char| if c.is_control() { c.escape_default().to_string() } else { c.to_string() };
    text.chars().map(shown).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn posted(operation: &str, object: &Value, old: &Value) -> Value {
        json!({"apiVersion": API_VERSION, "kind": "AdmissionReview", "request": {
            "uid": "u", "operation": operation, "object": object, "oldObject": old,
            "resource": {"group": GROUP, "version": "v1beta1", "resource": "nodemaintenances"},
        }})
    }

    fn maintenance(node: &str) -> Value {
        json!({"apiVersion": "nodemaintenance.medik8s.io/v1beta1", "kind": "NodeMaintenance",
            "metadata": {"name": "m"}, "spec": {"nodeName": node}})
    }

    fn read_value(value: &Value) -> Result<ReviewRequest, InvalidReview> {
        read(value.to_string().as_bytes())
    }

    #[test]
    fn what_is_asked_is_understood() {
        let (one, two) = (maintenance("n1"), maintenance("n2"));
        let created = read_value(&posted("CREATE", &one, &Value::Null)).unwrap();
        let RequestedChange::Create(new) = &created.asked else { panic!("{created:?}") };
        assert_eq!((created.uid.as_str(), created.dry_run, new.spec.node_name.as_str()), ("u", false, "n1"));
        let RequestedChange::Update(both) = read_value(&posted("UPDATE", &two, &one)).unwrap().asked else {
            panic!()
        };
        assert_eq!((both.0.spec.node_name.as_str(), both.1.spec.node_name.as_str()), ("n1", "n2"));
        assert_eq!(read_value(&posted("DELETE", &Value::Null, &one)).unwrap().asked, RequestedChange::Other);
        let mut status = posted("UPDATE", &two, &one);
        status["request"]["subResource"] = json!("status");
        assert_eq!(read_value(&status).unwrap().asked, RequestedChange::Other);
        let mut dry = posted("CREATE", &one, &Value::Null);
        dry["request"]["dryRun"] = json!(true);
        assert!(read_value(&dry).unwrap().dry_run);
    }

    #[test]
    fn what_is_no_review_is_told_so() {
        let changed = |pointer: &str, value: Value| {
            let mut review = posted("CREATE", &maintenance("n1"), &Value::Null);
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
            json!({"apiVersion": API_VERSION, "kind": "AdmissionReview"}).to_string(),
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
    fn what_is_no_maintenance_is_refused_under_its_uid() {
        let with = |operation: &str, object: Value| posted(operation, &object, &Value::Null);
        let mut pods = with("CREATE", maintenance("n1"));
        pods["request"]["resource"] = json!({"group": "", "resource": "pods"});
        for review in [
            pods,
            with("CREATE", Value::Null),
            with("CREATE", json!({"spec": {"nodeName": 7}})),
            with("UPDATE", maintenance("n1")),
            with("CONNECT", maintenance("n1")),
        ] {
            let Err(InvalidReview::NoMaintenance { uid, .. }) = read_value(&review) else {
                panic!("{review}")
            };
            assert_eq!(uid, "u");
        }
    }

    #[test]
    fn answers_are_in_the_servers_form_and_cannot_steer_a_terminal() {
        let review = |refusal: Option<&str>, warnings: &[&str]| {
            let warnings = warnings.iter().map(|&warning| warning.to_owned()).collect();
            answer(
                "u",
                &ReviewAnswer::Reviewed(AdmissionDecision { refusal: refusal.map(str::to_owned), warnings }),
            )
        };
        let allowed = json!({"apiVersion": API_VERSION, "kind": "AdmissionReview",
            "response": {"uid": "u", "allowed": true}});
        assert_eq!(review(None, &[]), allowed);
        assert_eq!(review(None, &["a\nb"])["response"]["warnings"], json!(["a\\nb"]));
        let refused = &review(Some("no node \u{1b}[31m"), &[])["response"];
        assert_eq!((&refused["allowed"], &refused["status"]["code"]), (&json!(false), &json!(403)));
        assert_eq!(refused["status"]["message"], "no node \\u{1b}[31m");
        let unknown =
            &answer("u", &ReviewAnswer::Unknown("cannot read nodes".to_owned()))["response"]["status"];
        assert_eq!(
            (&unknown["code"], &unknown["message"]),
            (&json!(503), &json!("cannot read nodes; try again"))
        );
        assert_eq!(answer("u", &ReviewAnswer::Nonsense("x".to_owned()))["response"]["status"]["code"], 400);
    }
}
