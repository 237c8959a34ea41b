//! The command line, the environment in which the program runs, and the log format.

pub(crate) mod environment;
pub(crate) mod flags;
pub(crate) mod logging;
