//! The manifests, how they are applied, and whether the installation is healthy.

pub(crate) mod certificate;
pub(crate) mod difference;
pub(crate) mod installed;
pub(crate) mod leader_clock;
pub(crate) mod leadership;
pub(crate) mod manifests;
pub(crate) mod namespace_content;
pub(crate) mod preflight;
pub(crate) mod readiness;
pub(crate) mod rollout;
pub(crate) mod versions;
