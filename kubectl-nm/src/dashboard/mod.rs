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
//! In `recording`, messages of the cluster are recorded; in [`replay`], they come from a recording instead.
//!
//! `update` and `view` do no I/O and read no clock: the time comes as a message. Watches and actions run in tasks of
//! their own, so that a slow server never delays a key.

mod config;
mod headless;
mod layout;
mod message;
mod model;
mod objects;
mod recording;
mod replay;
mod roll;
mod run;
mod screen;
mod tasks;
mod update;
mod view;
mod watches;
mod wrapping;

pub(crate) use config::appearance::AppearanceFlags;
pub(crate) use config::config_file::Config;
pub use headless::Received;
pub(crate) use headless::{roll_screens, screens};
pub(crate) use model::lists::filter::{is_selected, words as filter_words};
pub(crate) use model::{Options, RecordingMode};
pub(crate) use recording::format::{Header, RECORDING_VERSION};
pub(crate) use recording::headless_recording::HeadlessRecording;
pub(crate) use recording::recorder::{NewRecording, Recorder};
pub(crate) use recording::recording_file::RecordingFile;
pub(crate) use replay::headless::replay_screens;
pub(crate) use replay::pace::{Pace, parse_speed};
pub(crate) use replay::player::Player;
pub(crate) use replay::printing::print as print_recording;
pub(crate) use replay::run::run as replay;
pub(crate) use roll::RollDashboard;
pub(crate) use run::{DashboardExit, EndReason, run, summaries};

#[cfg(test)]
mod tests;
