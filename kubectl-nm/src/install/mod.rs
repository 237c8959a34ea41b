//! The installation of nm-reconciler: its manifests, whether it can be applied, whether it is ready, which replica leads.

pub(crate) mod difference;
pub(crate) mod error;
pub(crate) mod installation;
pub(crate) mod leadership;
pub(crate) mod manifests;
pub(crate) mod preflight;
pub(crate) mod readiness;
