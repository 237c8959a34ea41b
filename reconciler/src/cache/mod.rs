//! What the process remembers of the cluster between events, and how a change wakes the reconciles it concerns.

pub(crate) mod maintenances;
pub(crate) mod pdb_index;
pub(crate) mod read_your_writes;
pub(crate) mod triggers;
