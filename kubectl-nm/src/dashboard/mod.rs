//! The dashboard: `kubectl nm watch` on a terminal.
//!
//! A model, the messages that change it, a pure `update` that answers with effects, and a `view` that draws it:
//!
//! ```text
//!  terminal ──┐                                      ┌──► feed: open a node, reconnect
//!  feed ──────┼─► Message ─► update(Model) ─► Effect ─┼──► actions: start, stop
//!  clock ─────┘                  │                    └──► terminal: copy, suspend, quit
//!                                └─► view(Model) ─► screen, when something changed
//! ```
//!
//! `update` and `view` do no I/O and read no clock: what the time is comes as a message. The feed's watches and the
//! actions run in tasks of their own, so that a slow server never holds up a key.

mod actions;
mod effect;
mod feed;
mod geometry;
mod message;
mod model;
mod options;
mod pending_commands;
mod pod_facts;
mod redraw;
mod run;
mod signals;
mod streams;
mod terminal;
mod update;
mod view;
mod workload;

pub(crate) use options::ThemeName;
pub(crate) use run::{Ended, Left, Look, run};

pub use workload::Workload;

#[cfg(test)]
mod tests;
