//! The command line, the environment the program runs in, and the log format.

pub(crate) mod environment;
pub(crate) mod flags;
pub(crate) mod logging;
