//! Recordings: the messages that the dashboard receives from a cluster, with their times, in a file.
//!
//! A recording is NDJSON: a [`Header`](format::Header), and then a line for each message. [`format`] has the lines,
//! [`recorder`] writes them, [`recording_file`] reads them, and [`unattended`] records without a dashboard.

pub mod error;
pub(crate) mod format;
pub(crate) mod headless_recording;
mod pod_json;
pub(crate) mod recorded_nodes;
pub(crate) mod recorder;
pub(crate) mod recording_file;

#[cfg(test)]
mod format_tests;
#[cfg(test)]
mod recorder_tests;
#[cfg(test)]
mod recording_file_tests;
