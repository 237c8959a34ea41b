//! What effects do outside of the model: requests to the API server, and kubectl. Each runs in a task and sends messages.

pub(crate) mod actions;
pub(crate) mod kubectl;
pub(crate) mod latest_task;
pub(crate) mod leader;
pub(crate) mod pending_commands;
pub(crate) mod pod_count;
pub(crate) mod pod_requests;
pub(crate) mod requests;
pub(crate) mod start_plans;
