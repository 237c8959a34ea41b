//! The controller: observe a maintenance, let `nm-shared` decide, apply the decision.

pub(crate) mod apply;
pub(crate) mod context;
pub(crate) mod event_recorder;
pub(crate) mod node_conditions;
pub(crate) mod observe;
pub(crate) mod reconcile;
