//! Validating webhooks: whoever is configured to be asked is asked before something is written.
//!
//! [`Admission`] (`chain`) reads the `ValidatingWebhookConfiguration`s, finds the webhooks that a request concerns
//! (`webhook`, by its `rule`s, its selectors and its `condition`s), asks them all at once (`call`, over `wire`, or in
//! this process through `services`), and makes of their answers (`verdict`) warnings or a refusal, in the API server's
//! own words. What is asked is a [`ReviewRequest`].
//!
//! Before them, what is written is held to `ValidatingAdmissionPolicy`s (`policy`).
//!
//! Mutating webhooks are not called. Webhooks are always asked in version `v1` of `AdmissionReview`.

mod call;
mod chain;
pub(crate) mod configuration;
mod connection;
mod match_condition;
mod policy;
mod review_request;
mod review_response;
mod rule;
mod services;
mod webhook;

pub use crate::cluster::admission::chain::Admission;
pub(crate) use crate::cluster::admission::chain::is_idle;
pub(crate) use crate::cluster::admission::review_request::{ReviewRequest, View};
pub use crate::cluster::admission::services::{Reviewer, Services};
