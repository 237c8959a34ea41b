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
mod elapsed;
#[cfg(feature = "testing")]
mod headless;
mod layout;
mod message;
mod model;
mod objects;
pub mod recording;
mod replay;
mod roll;
mod run;
mod screen;
mod tasks;
mod update;
mod view;
mod watches;
mod wrapping;

pub use config::appearance::AppearanceFlags;
pub use config::config_file::Config;
#[cfg(feature = "testing")]
pub use headless::{Received, filter_words, is_selected, roll_screens, screens};
pub use model::{Options, RecordingMode};
pub use recording::format::{Header, RECORDING_VERSION};
pub use recording::headless_recording::HeadlessRecording;
pub use recording::recorder::{NewRecording, Recorder};
pub use recording::recording_file::RecordingFile;
#[cfg(feature = "testing")]
pub use replay::headless::replay_screens;
pub use replay::pace::{Pace, parse_speed};
pub use replay::player::Player;
pub use replay::printing::print as print_recording;
pub use replay::run::run as replay;
pub use roll::RollDashboard;
pub use run::{DashboardExit, EndReason, run, summaries};

#[cfg(test)]
mod tests;
