//! Who refused a request: access control, an admission policy, a webhook, a quota or another part of the API server.
//!
//! All of them answer with 403; policies and webhooks may use other codes, too. Only a denial by access control is fixed by
//! granting a permission. No field of a Status distinguishes them, so the sentences of the API server are read. They are
//! those of `staging/src/k8s.io/apiserver/pkg` in kubernetes/kubernetes: `endpoints/handlers/responsewriters/errors.go`
//! for access control, `admission/plugin` for the plugins.

use kube::core::Status;

use crate::api::status::{ForbiddenAccess, PolicyFacts};
use crate::cluster::admission_webhook;

/// The cause of `unable to create new content in namespace NAME because it is being terminated`.
const NAMESPACE_TERMINATING: &str = "NamespaceTerminating";

/// Who refused a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Refusal {
    /// Access control (RBAC): the user lacks a permission. The access is none if the request was not for a resource.
    AccessDenied(Option<ForbiddenAccess>),
    /// The credentials are missing, wrong or expired.
    Unauthenticated,
    /// An admission policy of the API server (`ValidatingAdmissionPolicy`, `MutatingAdmissionPolicy`).
    Policy(PolicyFacts),
    /// An admission webhook.
    Webhook {
        /// Its name.
        name: String,
    },
    /// An admission webhook that the API server could not call.
    UnreachableWebhook {
        /// Its name.
        name: String,
    },
    /// A quota of the namespace (`ResourceQuota`).
    Quota {
        /// Its name.
        name: String,
    },
    /// A quota of the namespace counts a resource of which the object sets no amount.
    QuotaWithoutAmount {
        /// Its name.
        name: String,
    },
    /// The namespace of the object is terminating.
    NamespaceTerminating,
    /// The admission plugin `OwnerReferencesPermissionEnforcement`: the user may set no owner reference here.
    OwnerReference,
    /// An admission plugin that is not ready, because the API server has just started. A later attempt can succeed.
    NotReady,
    /// Another part of the API server, such as another admission plugin or the validation of the object.
    Other,
}

impl From<&Status> for Refusal {
    fn from(status: &Status) -> Self {
        let message = status.message.as_str();
        let why = reason_given(message);
        if let Some(policy) = denying_policy(why) {
            return Self::Policy(policy);
        }
        if let Some(name) = admission_webhook::denied_by(message) {
            return Self::Webhook { name: name.to_owned() };
        }
        if let Some((name, _)) = admission_webhook::failed_call(message) {
            return Self::UnreachableWebhook { name: name.to_owned() };
        }
        let causes = status.details.iter().flat_map(|details| &details.causes);
        if causes.into_iter().any(|cause| cause.reason == NAMESPACE_TERMINATING) {
            return Self::NamespaceTerminating;
        }
        match status.code {
            401 => Self::Unauthenticated,
            403 if why.starts_with("User \"") && why.contains("\" cannot ") => {
                Self::AccessDenied(denied_access(why))
            }
            403 => refused_by_plugin(why),
            _ => Self::Other,
        }
    }
}

/// What follows the object in `pods "a" is forbidden: WHY`. Texts of policies and webhooks are within WHY.
fn reason_given(message: &str) -> &str {
    match message.split_once("forbidden: ") {
        Some((object, why)) if !object.contains(" denied ") => why,
        _ => message,
    }
}

/// The access in `User "u" cannot create resource "pods/eviction" in API group…`.
pub fn denied_access(message: &str) -> Option<ForbiddenAccess> {
    let (_, rest) = message.split_once("User \"")?;
    let (user, rest) = rest.split_once("\" cannot ")?;
    let (verb, rest) = rest.split_once(" resource \"")?;
    let (resource, _) = rest.split_once('"')?;
    let is_known = !user.is_empty() && !verb.is_empty() && !resource.is_empty();
    is_known.then(|| ForbiddenAccess {
        user: user.to_owned(),
        verb: verb.to_owned(),
        resource: resource.to_owned(),
    })
}

/// The policy in `ValidatingAdmissionPolicy 'NAME' with binding 'BINDING' denied request: …`. A `MutatingAdmissionPolicy`
/// is just `policy` there.
fn denying_policy(why: &str) -> Option<PolicyFacts> {
    let rest = why.strip_prefix("ValidatingAdmissionPolicy ").or_else(|| why.strip_prefix("policy "))?;
    let (name, rest) = quoted(rest)?;
    let (binding, rest) = match rest.strip_prefix(" with binding ") {
        Some(rest) => quoted(rest).map(|(binding, rest)| (Some(binding.to_owned()), rest))?,
        None => (None, rest),
    };
    let policy = PolicyFacts { name: name.to_owned(), binding };
    rest.starts_with(" denied request: ").then_some(policy)
}

/// The text in quotes at the beginning, and what follows.
fn quoted(text: &str) -> Option<(&str, &str)> {
    let quote = text.chars().next().filter(|quote| ['\'', '"'].contains(quote))?;
    text[1..].split_once(quote)
}

fn refused_by_plugin(why: &str) -> Refusal {
    let is_about_owners = ["cannot set an ownerRef ", "cannot set blockOwnerDeletion "];
    if is_about_owners.iter().any(|phrase| why.starts_with(phrase)) {
        return Refusal::OwnerReference;
    }
    if why == "not yet ready to handle request" {
        return Refusal::NotReady;
    }
    let of_quotas = ["exceeded quota: ", "failed quota: ", "status unknown for quota: "];
    match of_quotas.iter().find_map(|phrase| why.strip_prefix(phrase)) {
        Some(rest) => {
            let (name, rest) = rest.split_at(rest.find([',', ':']).unwrap_or(rest.len()));
            let name = name.to_owned();
            if rest.starts_with(": must specify ") {
                Refusal::QuotaWithoutAmount { name }
            } else {
                Refusal::Quota { name }
            }
        }
        None => Refusal::Other,
    }
}

#[cfg(test)]
#[path = "refusal_tests.rs"]
mod tests;
