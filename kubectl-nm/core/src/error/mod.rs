//! Errors: what failed and on which object, and what to do about it.
//!
//! [`Error`] is the error of every command. Its message has no prefix: [`Error::print`] adds `error:` and prints the hint.
//! Parts of messages come from the API, so they are printed as a [`Line`], which escapes control characters.

pub mod exit;
pub(crate) mod from_client;
pub(crate) mod hint;

use std::any::Any;
use std::io;
use std::time::Duration;

use kube::core::Status;
use nm_connection::UnsupportedCertificate;

use crate::args::duration;
use crate::connection::ConnectionError;
use crate::error::exit::Exit;
use crate::terminal::output::{Output, StdoutError};
use crate::terminal::text::Line;

/// The resource as RBAC and `kubectl get` name it.
pub(crate) const RESOURCE: &str = "nodemaintenances.nodemaintenance.medik8s.io";

/// The reason that kube sets if the body of a refusal is not a Status, for example because a proxy sent it.
pub(crate) const UNPARSED_REASON: &str = "Failed to parse error data";

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error(transparent)]
    Connection(#[from] ConnectionError),

    #[error("cannot write {path}: {source}")]
    Unwritable { path: String, source: io::Error },
    /// What failed in a layer above this crate.
    #[error("{0}")]
    Above(Box<dyn Failure>),

    #[error("{}", server_message(.status))]
    Server {
        /// The request as RBAC words it: `create nodemaintenances…`.
        asked: String,
        status: Box<Status>,
    },

    #[error("the cluster at {server} does not serve NodeMaintenance ({RESOURCE})")]
    NotInstalled { server: String },

    #[error("the cluster at {server} does not serve this request: {asked}")]
    NotServed { server: String, asked: String },

    #[error("{server} does not respond like an API server: {response}")]
    NoApiServer {
        server: String,
        /// The HTTP status code, or 0 if that was good but the body cannot be parsed.
        code: u16,
        /// The response in short, with the code.
        response: String,
    },

    #[error("The connection to the server {server} was refused - did you specify the right host or port?")]
    Refused { server: String },

    #[error("Unable to connect to the server {server}: {cause}")]
    Unreachable { server: String, cause: UnreachableCause },

    #[error("the server {server} did not respond within {}", duration::show(*.after))]
    NoAnswer { server: String, after: Duration },

    #[error("Error from server (NotFound): {}", no_such_nodes(.names, .meant))]
    UnknownNodes {
        names: Vec<String>,
        /// Similar names that exist.
        meant: Vec<String>,
    },

    #[error("no node has labels that match \"{0}\"")]
    NothingSelected(String),

    #[error("invalid label selector \"{selector}\": {why}")]
    Selector { selector: String, why: String },

    #[error("cannot read nodes from {file}: {problem}")]
    NodeFile { file: String, problem: NodeFileProblem },

    #[error("this needs confirmation: run it on a terminal, or pass --yes")]
    Unconfirmed,

    #[error("not confirmed, nothing was changed")]
    Declined,

    #[error("node \"{0}\" is returning to service: its maintenance is being deleted")]
    Ending(String),

    #[error("node \"{node}\" is part of roll \"{roll}\"")]
    InRoll { node: String, roll: String },

    #[error("a NodeMaintenance \"{name}\" exists already, and it is for node \"{other}\"")]
    NameTaken {
        /// Name of the object, and of the node that it is not for.
        name: String,
        other: String,
    },

    #[error("node \"{node}\" is already in maintenance, but {differences}")]
    Differs { node: String, differences: String, remedy: String },

    #[error("{}", not_in_maintenance(.0))]
    NotInMaintenance(Vec<String>),

    #[error("node \"{node}\" is in maintenance by {resource}, an older API group without spec.suspend")]
    OlderGroup { node: String, resource: String },

    #[error("the NodeMaintenance definition of this cluster has no spec.suspend, so nothing was suspended")]
    SuspendPruned,

    #[error("the NodeMaintenance definition of this cluster has no {}", .0.join(", "))]
    DrainPruned(Vec<String>),

    #[error(
        "the maintenance of node \"{0}\" belongs to the medik8s node-maintenance-operator, which ignores spec.suspend"
    )]
    SuspendIgnored(String),

    #[error("cannot determine which pods would be evicted: {0}")]
    Unplannable(String),

    #[error("cannot convert the object: {0}")]
    Unshowable(String),

    #[error("cannot use the terminal: {0}")]
    Screen(#[source] io::Error),

    #[error("cannot start: {0}")]
    Runtime(#[source] io::Error),

    #[error(transparent)]
    Stdout(#[from] StdoutError),
}

/// An error of a layer above this crate: each has an enum of its own, and all become an [`Error`].
pub trait Failure: std::error::Error + Any + Send + Sync {
    /// What to do about it, as [`Error::hint`].
    fn hint(&self) -> Option<String>;

    /// The exit code of the command.
    fn exit(&self) -> Exit {
        Exit::Error
    }
}

impl<F: Failure> From<F> for Error {
    fn from(failure: F) -> Self {
        Self::Above(Box::new(failure))
    }
}

/// Why there is no connection to a server.
#[derive(Debug, thiserror::Error)]
pub enum UnreachableCause {
    #[error("it does not respond")]
    NoResponse,
    #[error("the connection is silent")]
    Silent,
    /// The certificate of the server is not trusted, in the words of the TLS library.
    #[error("{0}")]
    Certificate(String),
    /// The certificate is one that the TLS library cannot verify.
    #[error("{0}")]
    Unsupported(UnsupportedCertificate),
    /// In the words of the library that failed.
    #[error("{0}")]
    Other(String),
}

#[derive(Debug, thiserror::Error)]
pub enum NodeFileProblem {
    #[error(transparent)]
    Unreadable(#[from] io::Error),
    #[error("line {line}, \"{text}\": {why}")]
    InvalidName { line: usize, text: String, why: String },
    #[error("it names no node")]
    Empty,
}

impl Error {
    pub fn exit(&self) -> Exit {
        match self {
            Self::Unconfirmed | Self::Declined => Exit::Usage,
            Self::Above(failure) => failure.exit(),
            _ => Exit::Error,
        }
    }

    pub fn print(&self, out: &mut Output) {
        out.message(&Line::new(self.headline()));
        if let Some(hint) = self.hint() {
            out.hint(&hint);
        }
    }

    /// Prints what failed for each node, and then each distinct hint once.
    pub fn print_all(failures: &[(String, Self)], out: &mut Output) {
        let mut hints = Vec::new();
        for (node, error) in failures {
            let headline = error.headline();
            let is_named = headline.contains(&format!("\"{node}\""));
            out.message(&Line::new(if is_named { headline } else { format!("{headline} (node/{node})") }));
            hints.extend(error.hint().filter(|hint| !hints.contains(hint)));
        }
        for hint in hints {
            out.hint(&hint);
        }
    }

    /// The message with its prefix. As in kubectl, refusals and connection errors have a wording of their own.
    fn headline(&self) -> String {
        match self {
            Self::Server { status, .. } if status.reason != "Unauthorized" => self.to_string(),
            Self::Refused { .. } | Self::Unreachable { .. } | Self::UnknownNodes { .. } => self.to_string(),
            _ => format!("error: {self}"),
        }
    }

    pub fn is_transient(&self) -> bool {
        match self {
            Self::Refused { .. } | Self::Unreachable { .. } | Self::NoAnswer { .. } => true,
            // The credential program may fail only for a while, or the user may log in.
            Self::Connection(error) => error.is_about_credentials(),
            Self::NoApiServer { code, .. } => !(400..500).contains(code),
            Self::Server { status, .. } => status.code >= 500 || matches!(status.code, 0 | 408 | 410 | 429),
            _ => false,
        }
    }

    /// Whether the request succeeds once somebody has logged in.
    pub fn needs_login(&self) -> bool {
        match self {
            Self::Connection(error) => error.is_about_credentials(),
            _ => self.status().is_some_and(|status| status.code == 401),
        }
    }

    pub fn is_not_found(&self) -> bool {
        self.status().is_some_and(Status::is_not_found)
    }

    /// Whether the user has no permission for the request.
    pub fn is_forbidden(&self) -> bool {
        self.status().is_some_and(Status::is_forbidden)
    }

    pub fn is_unserved(&self) -> bool {
        matches!(self, Self::NotInstalled { .. } | Self::NotServed { .. })
    }

    /// The error of a layer above, if it is one of this kind.
    pub fn above<F: Failure>(&self) -> Option<&F> {
        match self {
            Self::Above(failure) => (&**failure as &dyn Any).downcast_ref(),
            _ => None,
        }
    }

    pub fn status(&self) -> Option<&Status> {
        match self {
            Self::Server { status, .. } => Some(status),
            _ => None,
        }
    }
}

fn server_message(status: &Status) -> String {
    match status.reason.as_str() {
        "Unauthorized" => format!("You must be logged in to the server ({})", status.message),
        "" | UNPARSED_REASON => format!("Error from server: {}", status.message),
        reason => format!("Error from server ({reason}): {}", status.message),
    }
}

pub fn no_such_nodes(names: &[String], meant: &[String]) -> String {
    let missing = format!("nodes \"{}\" not found", names.join("\", \""));
    match meant {
        [] => missing,
        meant => format!("{missing}; did you mean {}?", meant.join(" or ")),
    }
}

fn not_in_maintenance(names: &[String]) -> String {
    match names {
        [name] => format!("node \"{name}\" is not in maintenance"),
        names => format!("nodes \"{}\" are not in maintenance", names.join("\", \"")),
    }
}

#[cfg(test)]
#[path = "error_tests.rs"]
mod tests;
