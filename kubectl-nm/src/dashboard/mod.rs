//! The dashboards: `kubectl nm watch` on a terminal, and in [`roll`] that of `kubectl nm roll`.
//!
//! A model, the messages that change it, a pure `update` that returns effects, and a `view` that draws the model:
//!
//! ```text
//!  terminal ──┐                                      ┌──► watches: open a node, reconnect
//!  watches ───┼─► Message ─► update(Model) ─► Effect ─┼──► actions: start, stop
//!  clock ─────┘                  │                    └──► terminal: copy, suspend, quit
//!                                └─► view(Model) ─► screen, when something changed
//! ```
//!
//! `update` and `view` do no I/O and read no clock: the time comes as a message. Watches and actions run in tasks of
//! their own, so that a slow server never delays a key.

mod action_table;
mod actions;
mod appearance;
mod editor;
mod key_name;
mod kubectl;
mod layout;
mod listed_node;
mod message;
mod model;
mod node_metadata;
mod node_pod;
mod offscreen;
mod pending_commands;
mod pod_count;
mod pod_requests;
mod redraw;
mod replacement_scope;
mod replica;
mod roll;
mod run;
mod signals;
mod start_plans;
#[cfg(unix)]
mod streams;
mod terminal;
mod update;
mod view;
mod watches;
mod workload;
mod wrapping;

pub(crate) use appearance::AppearanceFlags;
pub(crate) use model::Options;
pub(crate) use model::filter::is_selected;
pub use offscreen::Received;
pub(crate) use offscreen::{roll_screens, screens};
pub(crate) use roll::RollDashboard;
pub(crate) use run::{DashboardExit, EndReason, run};

#[cfg(test)]
mod tests;
