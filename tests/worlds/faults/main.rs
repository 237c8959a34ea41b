//! Nothing is lost, whatever breaks: lives of maintenances, each disturbed at every request that it makes.
//!
//! A life is a script of what people do, from the start of a maintenance until nothing is left of it. It runs once without
//! faults, and the sandbox's request log shows every kind of request in every step. Then it runs again for each of them
//! with each fault, and the invariants of [`nm_tests::invariants`] are checked over all that happened. So a kind of request
//! that somebody adds later is covered by itself.
//!
//! Sandbox and reconciler run in this process on paused time, so that a life takes milliseconds.

#![allow(clippy::unwrap_used, clippy::print_stderr)]

mod budget_lives;
mod completion_lives;
mod cordon_lives;
mod election;
mod evacuation_lives;
mod history;
mod hold_lives;
mod lives;
mod paused;
mod person;
mod point;
mod replica;
mod runs;
mod sample;
mod soak;
mod surge_lives;
mod view;
mod volume_lives;
mod world;
