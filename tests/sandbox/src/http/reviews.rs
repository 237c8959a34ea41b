//! Questions about rights and identity: asked by creating a review, of which nothing is stored.

use bytes::Bytes;
use http::Method;
use serde_json::{Value, json};

use super::path::ResourcePath;
use super::{Answer, Api, answer, intake, not_allowed};
use crate::access::{Attributes, User};

/// The reviews that are answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Review {
    /// May I?
    SelfAccess,
    /// May they?
    Access,
    /// What may I do in a namespace?
    SelfRules,
    /// Who am I?
    SelfSubject,
}

impl Review {
    /// The review at a path, if it is one.
    pub(super) fn at(path: &ResourcePath) -> Option<Self> {
        match (path.group.as_str(), path.version.as_str(), path.plural.as_str()) {
            ("authorization.k8s.io", "v1", "selfsubjectaccessreviews") => Some(Self::SelfAccess),
            ("authorization.k8s.io", "v1", "subjectaccessreviews" | "localsubjectaccessreviews") => {
                Some(Self::Access)
            }
            ("authorization.k8s.io", "v1", "selfsubjectrulesreviews") => Some(Self::SelfRules),
            ("authentication.k8s.io", "v1", "selfsubjectreviews") => Some(Self::SelfSubject),
            _ => None,
        }
    }

    fn plural(self) -> (&'static str, &'static str) {
        match self {
            Self::SelfAccess => ("authorization.k8s.io", "selfsubjectaccessreviews"),
            Self::Access => ("authorization.k8s.io", "subjectaccessreviews"),
            Self::SelfRules => ("authorization.k8s.io", "selfsubjectrulesreviews"),
            Self::SelfSubject => ("authentication.k8s.io", "selfsubjectreviews"),
        }
    }

    /// Answers it.
    pub(super) fn answer(
        self,
        api: &Api,
        method: &Method,
        content_type: &str,
        body: &Bytes,
        user: &User,
    ) -> Answer {
        let (group, plural) = self.plural();
        let attributes =
            Attributes::Resource { verb: "create", group, plural, subresource: "", namespace: "", name: "" };
        api.access.authorize(user, attributes)?;
        if method != Method::POST {
            return Err(not_allowed());
        }
        let mut review = intake::read(content_type, body, plural)?;
        if !review["metadata"].is_object() {
            review["metadata"] = json!({});
        }
        // As written by the API server: without what is empty.
        if let Some(asked) = review["spec"].get_mut("resourceAttributes").and_then(Value::as_object_mut) {
            asked.retain(|_, value| value != "");
        }
        review["status"] = match self {
            Self::SelfAccess => json!({"allowed": api.access.allows(user, asked(&review["spec"]))}),
            Self::Access => {
                let groups = review["spec"]["groups"].as_array().into_iter().flatten();
                let them = User {
                    name: text(&review["spec"]["user"]).to_owned(),
                    groups: groups.filter_map(Value::as_str).map(str::to_owned).collect(),
                };
                json!({"allowed": api.access.allows(&them, asked(&review["spec"]))})
            }
            Self::SelfRules => rules(api, user),
            Self::SelfSubject => json!({"userInfo": {"username": user.name, "groups": user.groups}}),
        };
        Ok(answer::json(201, &review))
    }
}

fn asked(spec: &Value) -> Attributes<'_> {
    let resource = &spec["resourceAttributes"];
    if resource.is_object() {
        return Attributes::Resource {
            verb: text(&resource["verb"]),
            group: text(&resource["group"]),
            plural: text(&resource["resource"]),
            subresource: text(&resource["subresource"]),
            namespace: text(&resource["namespace"]),
            name: text(&resource["name"]),
        };
    }
    let path = &spec["nonResourceAttributes"];
    Attributes::Path { verb: text(&path["verb"]), path: text(&path["path"]) }
}

/// All or nothing, as rights are here.
fn rules(api: &Api, user: &User) -> Value {
    let anything =
        Attributes::Resource { verb: "*", group: "*", plural: "*", subresource: "", namespace: "", name: "" };
    let (resources, paths) = if api.access.allows(user, anything) {
        (
            json!([{"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}]),
            json!([{"verbs": ["*"], "nonResourceURLs": ["*"]}]),
        )
    } else {
        (json!([]), json!([]))
    };
    json!({"resourceRules": resources, "nonResourceRules": paths, "incomplete": false})
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}
