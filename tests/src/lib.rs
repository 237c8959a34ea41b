//! What the end-to-end suites stand on: a cluster, the built programs, workloads, and ways to wait for events.
//!
//! The cluster is a sandbox of the test's own, or the one that `NM_E2E_KUBECONFIG` names; then the tests take turns.
//! Nothing here or in the suites sleeps: a wait ends with the event that it is for, or fails at a generous bound.

// Suites panic where an expectation does not hold; so does what they stand on.
#![allow(
    clippy::missing_panics_doc,
    clippy::unwrap_used,
    clippy::print_stderr,
    clippy::manual_assert,
    clippy::match_wild_err_arm
)]

pub mod bundle;
mod bundle_webhooks;
pub mod cluster;
pub mod elf;
pub mod events;
pub mod installed;
pub mod manifests;
pub mod older_groups;
pub mod programs;
pub mod reconciler;
pub mod terminal;
pub mod until;
pub mod webhook;
pub mod workload;
