//! The controllers that own pods.

pub(crate) mod daemonset;
pub(crate) mod deployment;
pub(crate) mod job;
pub(crate) mod owned_pods;
pub(crate) mod pod_summary;
pub(crate) mod pod_template;
pub(crate) mod replicaset;
pub(crate) mod rolling_update;
pub(crate) mod rollout_progress;
pub(crate) mod statefulset;
pub(crate) mod template_hash;
