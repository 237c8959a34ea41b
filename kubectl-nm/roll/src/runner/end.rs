//! How a run of a roll ended.

use crate::record::{Halt, RollRecord, Runner};

/// How a run of a roll ended.
#[derive(Clone, Debug, PartialEq)]
pub enum RollEnd {
    /// With the record as it was at the end.
    Done(Box<RollRecord>),
    /// The nodes whose command or Job has started, and that `roll abort` leaves in maintenance.
    Halted(Halt, Vec<String>),
    /// Another program runs the roll now.
    TakenOver(Runner),
    /// Somebody aborted the roll; who, and the record as it was at the end.
    Aborted(String, Box<RollRecord>),
    /// The user left. The roll stays as it is.
    Left,
}
