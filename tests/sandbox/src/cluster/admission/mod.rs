//! Validating admission: webhooks and policies.
//!
//! [`Admission`] (`chain`) reads the `ValidatingWebhookConfiguration`s, selects the webhooks that match a request
//! (`webhook`, with its `rule`s, selectors and `match_condition`s), calls them concurrently (`call`, over a
//! `connection`, or in this process through `services`), and turns their responses (`review_response`) into warnings
//! or an error in the API server's words. [`ReviewRequest`] is what they receive.
//!
//! `ValidatingAdmissionPolicy`s (`policy`) are evaluated first.
//!
//! Mutating webhooks are not called. Webhooks always receive `AdmissionReview` `v1`.

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
pub use crate::cluster::admission::match_condition::cel;
pub(crate) use crate::cluster::admission::review_request::{ReviewRequest, View};
pub use crate::cluster::admission::services::{Reviewer, Services};
