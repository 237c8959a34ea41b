//! A Kubernetes cluster in one process: for trying kubectl-nm, and for its suites.

pub mod binding;
pub mod clock;
pub mod cluster;
mod condition;
pub mod controllers;
pub mod eviction;
mod label_selector;
mod pod;
pub mod refusal;
pub mod registry;
pub mod resource;
pub mod span;
pub mod store;
pub mod workload;
