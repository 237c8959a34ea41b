//! What the end-to-end suites share: clusters, the built programs, workloads, and waits for events.
//!
//! A test gets a sandbox of its own, or takes turns with the other tests on the cluster that `NM_E2E_KUBECONFIG` names.

// A test panics where an expectation is not met; so do its helpers.
#![allow(
    clippy::missing_panics_doc,
    clippy::unwrap_used,
    clippy::print_stderr,
    clippy::manual_assert,
    clippy::match_wild_err_arm
)]

pub mod cluster;
pub mod contention;
pub mod elf;
pub mod endpoints;
pub mod events;
pub mod eviction_webhook;
pub mod fault_proxy;
pub mod files;
pub mod in_pod;
pub mod installed_plugin;
pub mod invariants;
pub mod kubelet_reports;
pub mod kubevirt;
pub mod leader_election;
pub mod maintenance;
pub mod manifests;
pub mod nodes;
pub mod older_groups;
pub mod olm_bundle;
mod olm_webhooks;
pub mod pool_census;
pub mod pool_roll;
pub mod ports;
pub mod probes;
pub mod programs;
pub mod rbac;
pub mod reconciler;
pub mod relay;
pub mod requests;
pub mod runner_pods;
pub mod skip;
pub mod suspended;
pub mod terminal;
pub mod volumes;
pub mod wait;
pub mod webhook;
pub mod workload;
