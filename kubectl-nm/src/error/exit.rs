//! Exit codes: what a script learns from the plugin.

use std::process::ExitCode;

/// How a command ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Exit {
    /// The goal is reached, or there was nothing to do.
    Done,
    /// Something went wrong.
    Error,
    /// The command line makes no sense.
    Usage,
    /// A maintenance failed or is stuck, or something would block one.
    Failed,
    /// A maintenance was deleted or replaced while it was waited for.
    Lost,
    /// The time given ran out.
    TimedOut,
    /// Ctrl-C, or a request to terminate.
    Interrupted,
}

impl Exit {
    /// The number that the shell sees. 124 is that of timeout(1), 130 that of a shell after Ctrl-C.
    pub(crate) fn number(self) -> u8 {
        match self {
            Self::Done => 0,
            Self::Error => 1,
            Self::Usage => 2,
            Self::Failed => 3,
            Self::Lost => 4,
            Self::TimedOut => 124,
            Self::Interrupted => 130,
        }
    }
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit.number())
    }
}
