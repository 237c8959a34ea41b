//! Why a recording of the dashboard cannot be written or replayed, and what to do about it.

use std::io;

use nm_core::error::Failure;
use nm_core::terminal::command_context::shell_quoted;

#[derive(Debug, thiserror::Error)]
pub enum RecordingError {
    #[error("the file {path} exists already")]
    Exists { path: String },

    #[error("cannot write the recording {path}: {source}")]
    Unwritable { path: String, source: io::Error },

    #[error("the recording {path} is not complete: its disk is too slow")]
    TooSlow { path: String },

    #[error("cannot read the recording {path}: {source}")]
    Unreadable { path: String, source: io::Error },

    #[error("{path} is not a recording of `kubectl nm watch --record`: {why}")]
    NotARecording { path: String, why: String },

    #[error(
        "the recording {path} has format {format}, by kubectl nm {program}; this program reads format {known}"
    )]
    Newer { path: String, format: u64, program: String, known: u64 },

    #[error("the API server did not answer when this was recorded")]
    ConnectionLost,

    #[error("line {line} of the recording {path} is not valid: {why}")]
    InvalidLine { path: String, line: u64, why: String },
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
