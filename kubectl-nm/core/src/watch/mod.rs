//! Watching maintenances from the command line: until a goal is reached, as lines of text, or as NDJSON.
//!
//! [`event_loop`] turns the watch, the clock and Ctrl-C into events; [`goal_tracker`] decides when the watch is over;
//! [`wait_reporter`] and [`ndjson`] show what happens.

pub mod deleted_nodes;
pub mod event_loop;
pub mod exit_summary;
pub mod goal_tracker;
pub mod ndjson;
pub mod outage_change;
mod stall;
pub mod wait_reporter;
