//! Following maintenances from the command line: waits, goals, live lines and NDJSON.

pub(crate) mod exit_summary;
pub(crate) mod follow;
pub(crate) mod goal_tracker;
pub(crate) mod live_lines;
pub(crate) mod ndjson;
pub(crate) mod wait;
pub(crate) mod wait_reporter;
