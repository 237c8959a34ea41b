//! Why a recording of the dashboard cannot be written or replayed, and what to do about it.

use std::io;

use nm_core::error::Failure;
use nm_core::terminal::command_context::shell_quoted;

/// Why a recording cannot be written or replayed.
#[derive(Debug, thiserror::Error)]
pub enum RecordingError {
    /// The file of a new recording exists already.
    #[error("the file {path} exists already")]
    Exists {
        /// Path of the file.
        path: String,
    },

    /// The system cannot write the file.
    #[error("cannot write the recording {path}: {source}")]
    Unwritable {
        /// Path of the file.
        path: String,
        /// The error of the system.
        source: io::Error,
    },

    /// Messages arrive faster than the disk writes them, so the recording ended early.
    #[error("the recording {path} is not complete: its disk is too slow")]
    TooSlow {
        /// Path of the file.
        path: String,
    },

    /// The system cannot read the file.
    #[error("cannot read the recording {path}: {source}")]
    Unreadable {
        /// Path of the file.
        path: String,
        /// The error of the system.
        source: io::Error,
    },

    /// The first line is not that of a recording.
    #[error("{path} is not a recording of `kubectl nm watch --record`: {why}")]
    NotARecording {
        /// Path of the file.
        path: String,
        /// What is wrong with the first line.
        why: String,
    },

    /// A newer version of the program has written the recording, in a format that this one cannot read.
    #[error(
        "the recording {path} has format {format}, by kubectl nm {program}; this program reads format {known}"
    )]
    Newer {
        /// Path of the file.
        path: String,
        /// Version of the recording's format.
        format: u64,
        /// Version of the program that recorded.
        program: String,
        /// Newest version of the format that this program reads.
        known: u64,
    },

    /// The recorded connection was lost at this time of the recording.
    #[error("the API server did not answer when this was recorded")]
    ConnectionLost,

    /// A line after the first one is not valid: the replay ends there.
    #[error("line {line} of the recording {path} is not valid: {why}")]
    InvalidLine {
        /// Path of the file.
        path: String,
        /// Number of the line, from 1.
        line: u64,
        /// What is wrong with the line.
        why: String,
    },
}

impl Failure for RecordingError {
    fn hint(&self) -> Option<String> {
        Some(match self {
            Self::Exists { path } => format!(
                "existing files are not overwritten: choose another one, or delete it with `rm {}`",
                shell_quoted(path)
            ),
            Self::Unwritable { .. } | Self::TooSlow { .. } => String::from(
                "check that the folder exists, is writable and has free space, or choose another one; \
                 what was recorded until then can be replayed",
            ),
            Self::Unreadable { .. } => String::from("check the name of the file, and that you may read it"),
            Self::NotARecording { .. } => String::from("`kubectl nm watch --record FILE` writes a recording"),
            Self::Newer { program, .. } => {
                format!("replay it with kubectl nm {program} or newer; `kubectl nm version` shows yours")
            }
            Self::ConnectionLost => {
                String::from("this error is part of the recording; your connection is unaffected")
            }
            Self::InvalidLine { line, .. } => {
                format!(
                    "`head -n {}` keeps the lines before it, which can be replayed",
                    line.saturating_sub(1)
                )
            }
        })
    }
}
