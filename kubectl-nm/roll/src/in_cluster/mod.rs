//! Rolls that a Job in the cluster runs, with the same decisions as on a computer.

pub mod history;
pub mod history_writer;
pub mod runner_job;
pub mod standby;
pub mod starting;
