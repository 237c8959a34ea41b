//! Leader election: one replica reconciles, the others stand by.

pub(crate) mod election;
pub(crate) mod lease_watch;
pub(crate) mod running_leader_check;
