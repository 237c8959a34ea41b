//! The commands, one file each: its arguments, its decisions and its requests.

pub(crate) mod completion;
pub(crate) mod doctor;
pub(crate) mod explain;
pub(crate) mod explain_common;
pub(crate) mod explain_rolls;
pub(crate) mod gather;
pub(crate) mod install;
pub(crate) mod options;
mod outages;
pub(crate) mod pause;
pub(crate) mod plan;
pub(crate) mod replay;
pub(crate) mod roll;
pub(crate) mod start;
pub(crate) mod status;
pub(crate) mod stop;
mod stop_warnings;
pub(crate) mod uninstall;
pub(crate) mod version;
pub(crate) mod watch;
mod watch_lines;
