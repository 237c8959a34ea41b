//! What the process remembers of the cluster between events, and how a change triggers the reconciles it concerns.

pub(crate) mod gate_index;
pub(crate) mod leader_state;
pub(crate) mod node_index;
pub(crate) mod pdb_index;
pub(crate) mod read_your_writes;
pub(crate) mod triggers;
