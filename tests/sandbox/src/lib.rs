//! A Kubernetes cluster in one process: for trying kubectl-nm, and for its suites.

pub mod clock;
pub mod cluster;
pub mod refusal;
pub mod registry;
pub mod resource;
pub mod store;
