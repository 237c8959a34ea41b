//! Rolls that a Job in the cluster runs, with the same decisions as on a computer.

pub mod runner_job;
pub mod standby;
