//! The commands, one file each: what it takes on the command line, what it decides, and the few requests it makes.

pub(crate) mod completion;
pub(crate) mod explain;
pub(crate) mod man;
pub(crate) mod plan;
pub(crate) mod start;
pub(crate) mod status;
pub(crate) mod stop;
pub(crate) mod watch;
