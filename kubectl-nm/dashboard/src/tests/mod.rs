//! The dashboard as a whole, without a terminal or a cluster: what is on the screen, and what keys do.

mod acting;
mod benchmark;
mod cluster;
mod drain_options;
mod first_causes;
mod keys;
mod looks;
mod messages;
mod nodes;
mod opening;
pub(crate) mod painted;
mod panel;
mod reading;
mod reference;
mod replacements;
mod replay;
mod replay_benchmark;
mod roll;
mod roll_leaving;
pub(crate) mod scenes;
mod screens;
mod screenshots;
mod selection;
mod start_and_stop;
mod start_options;
mod tree_benchmark;
mod waits;
