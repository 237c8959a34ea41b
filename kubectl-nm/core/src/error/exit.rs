//! Exit codes.

use std::process::ExitCode;

/// Exit code of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    /// The goal is reached, or there was nothing to do.
    Done,
    /// The command failed.
    Error,
    /// The command line is invalid, or the user did not confirm.
    Usage,
    /// A maintenance is failed or blocked, or would be.
    Failed,
    /// A maintenance was deleted or replaced during the wait.
    Lost,
    /// The timeout expired before the goal was reached.
    TimedOut,
    /// Ctrl-C, or a request to terminate.
    Interrupted,
}

impl Exit {
    /// The exit code. 124 is that of timeout(1), 130 that of a shell after Ctrl-C.
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
