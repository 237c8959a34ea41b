//! The controller: observe a maintenance, ask `nm-shared` what to do, apply it.

pub(crate) mod apply;
pub(crate) mod backoff;
pub(crate) mod context;
pub(crate) mod event_recorder;
pub(crate) mod leader_term;
pub(crate) mod node_conditions;
pub(crate) mod observe;
pub(crate) mod reconcile;
