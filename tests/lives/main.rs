//! Random lives: long random sequences of everything that people, controllers and machines do. Then harm stops, and
//! everything has to settle.
//!
//! A life runs in the world of `tests/faults`: sandbox and reconciler in this process, on paused time. It has to satisfy
//! the invariants of [`nm_tests::invariants`]. A violation is shrunk to a short life, and printed with the command that
//! replays it.

#![allow(clippy::unwrap_used, clippy::print_stderr)]

mod act;
mod judge;
mod life;
mod search;

#[allow(dead_code, reason = "tests/faults uses the rest")]
#[path = "../faults/history.rs"]
mod history;
#[path = "../faults/paused.rs"]
mod paused;
#[allow(dead_code, reason = "tests/faults uses the rest")]
#[path = "../faults/person.rs"]
mod person;
#[allow(dead_code, reason = "tests/faults uses the rest")]
#[path = "../faults/point.rs"]
mod point;
#[path = "../faults/replica.rs"]
mod replica;
#[allow(dead_code, reason = "tests/faults uses the rest")]
#[path = "../faults/view.rs"]
mod view;
#[allow(dead_code, reason = "tests/faults uses the rest")]
#[path = "../faults/world.rs"]
mod world;
