//! Errors: what failed and on which object, and what to do about it.
//!
//! [`Error`] is the error of every command. Its message has no prefix: [`Error::print`] adds `error:` and prints the hint.
//! Parts of messages come from the API, so they are printed as a [`Line`], which escapes control characters.

pub mod exit;
pub(crate) mod from_client;
pub(crate) mod hint;
pub mod roll_hint;

use std::any::Any;
use std::io;
use std::time::Duration;

use jiff::Timestamp;
use kube::core::Status;
use nm_connection::UnsupportedCertificate;
use nm_shared::api::roll_state::RollStanding;
use nm_shared::cluster::admission_webhook;

use crate::args::duration;
use crate::connection::ConnectionError;
use crate::error::exit::Exit;
use crate::terminal::output::{Output, StdoutError};
use crate::terminal::text::Line;

/// The resource as RBAC and `kubectl get` name it.
pub(crate) const RESOURCE: &str = "nodemaintenances.nodemaintenance.medik8s.io";

/// The suffix of the names of nm-reconciler's webhooks.
const OWN_WEBHOOKS: &str = ".nodemaintenance.medik8s.io";

/// The reason that kube sets if the body of a refusal is not a Status, for example because a proxy sent it.
pub(crate) const UNPARSED_REASON: &str = "Failed to parse error data";

/// What changes if a maintenance gets other settings.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Change {
    /// The reason alone.
    Reason,
    /// Settings.
    Settings,
    /// Settings of a drain that has failed by its time limit, and continues with them until the new limit ends; none without one.
    FailedDrain(Option<Timestamp>),
}

/// Why a command failed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The connection cannot be prepared, or its credentials cannot be renewed.
    #[error(transparent)]
    Connection(#[from] ConnectionError),

    /// A file cannot be written.
    #[error("cannot write {path}: {source}")]
    Unwritable {
        /// Path of the file, or what it is.
        path: String,
        /// The error of the system.
        source: io::Error,
    },
    /// What failed in a layer above this crate.
    #[error("{0}")]
    Above(Box<dyn Failure>),

    /// The API server refused a request.
    #[error("{}", server_message(.asked, .status))]
    Server {
        /// The request as RBAC words it: `create nodemaintenances…`.
        asked: String,
        /// Response of the API server.
        status: Box<Status>,
    },

    /// The NodeMaintenance definition is not installed.
    #[error("the cluster at {server} does not serve NodeMaintenance ({RESOURCE})")]
    NotInstalled {
        /// Address of the API server.
        server: String,
    },

    /// The cluster does not serve the API of a request.
    #[error("the cluster at {server} does not serve this request: {asked}")]
    NotServed {
        /// Address of the API server.
        server: String,
        /// The request as RBAC words it.
        asked: String,
    },

    /// The response is not one of an API server: a proxy may have sent it.
    #[error("{server} does not respond like an API server: {response}")]
    NoApiServer {
        /// Address that responded.
        server: String,
        /// The HTTP status code, or 0 if that was good but the body cannot be parsed.
        code: u16,
        /// The response in short, with the code.
        response: String,
    },

    /// Nothing accepts connections at the address of the server.
    #[error("The connection to the server {server} was refused - did you specify the right host or port?")]
    Refused {
        /// Address of the API server.
        server: String,
    },

    /// There is no connection to the server, or it was lost.
    #[error("Unable to connect to the server {server}: {cause}")]
    Unreachable {
        /// Address of the API server.
        server: String,
        /// Why there is no connection.
        cause: UnreachableCause,
    },

    /// A request timed out.
    #[error("the server {server} did not respond within {}", duration::show(*.after))]
    NoAnswer {
        /// Address of the API server.
        server: String,
        /// The timeout.
        after: Duration,
    },

    /// Nodes on the command line do not exist.
    #[error("Error from server (NotFound): {}", no_such_nodes(.names, .meant))]
    UnknownNodes {
        /// The names that do not exist.
        names: Vec<String>,
        /// Similar names that exist.
        meant: Vec<String>,
    },

    /// No node matches this label selector.
    #[error("no node has labels that match \"{0}\"")]
    NothingSelected(String),

    /// The API server does not accept a label selector.
    #[error("invalid label selector \"{selector}\": {why}")]
    Selector {
        /// The selector as it is given.
        selector: String,
        /// Message of the API server.
        why: String,
    },

    /// Node names cannot be read from a file.
    #[error("cannot read nodes from {file}: {problem}")]
    NodeFile {
        /// Path of the file, or `standard input`.
        file: String,
        /// What is wrong with it.
        problem: NodeFileProblem,
    },

    /// Confirmation is needed, and there is no terminal to ask on.
    #[error("this needs confirmation: run it on a terminal, or pass --yes")]
    Unconfirmed,

    /// The user did not confirm.
    #[error("not confirmed, nothing was changed")]
    Declined,

    /// No maintenance can start for this node until its previous one is deleted, which can be neither paused nor resumed.
    #[error("node \"{0}\" is returning to service: its maintenance is being deleted")]
    Ending(String),

    /// The same, and its previous maintenance waits before it returns the node.
    #[error(
        "the maintenance of node \"{node}\" is being deleted, and the node stays cordoned, waiting for {hold}"
    )]
    EndingHeld {
        /// Name of the node.
        node: String,
        /// What it waits for.
        hold: String,
    },

    /// A roll manages the maintenance of the node.
    #[error("node \"{node}\" is part of roll \"{roll}\"")]
    InRoll {
        /// Name of the node.
        node: String,
        /// Name of the roll.
        roll: String,
        /// What the roll does; none if that is not known.
        standing: Option<RollStanding>,
    },

    /// The maintenance of a node cannot be created, because its name is taken.
    #[error("a NodeMaintenance \"{name}\" for node \"{other}\" already exists")]
    NameTaken {
        /// Name of the object, and of the node that it is not for.
        name: String,
        /// The node that the existing object is for.
        other: String,
    },

    /// The node is in maintenance, with settings other than requested.
    #[error("node \"{node}\" is already in maintenance, but {differences}")]
    Differs {
        /// Name of the node.
        node: String,
        /// The fields, with their existing and requested values.
        differences: String,
        /// The command that changes them.
        remedy: String,
        /// What the command changes.
        change: Change,
        /// What else becomes of the drain then, in clauses.
        effects: Vec<String>,
    },

    /// These nodes are not in maintenance.
    #[error("{}", not_in_maintenance(.0))]
    NotInMaintenance(Vec<String>),

    /// A maintenance of an older API group cannot be suspended.
    #[error("node \"{node}\" is in maintenance by {resource}, an older API group without spec.suspend")]
    OlderGroup {
        /// Name of the node.
        node: String,
        /// The resource as `kubectl get` names it.
        resource: String,
    },

    /// The API server dropped `spec.suspend`, because the definition lacks it.
    #[error("the CRD of NodeMaintenance in this cluster has no spec.suspend, so nothing was suspended")]
    SuspendPruned,

    /// The API server dropped these fields, because the definition lacks them.
    #[error("the CRD of NodeMaintenance in this cluster has no {}", .0.join(", "))]
    DrainPruned(Vec<String>),

    /// The medik8s operator would ignore a pause of this node's maintenance.
    #[error(
        "the maintenance of node \"{0}\" belongs to the medik8s node-maintenance-operator, which ignores spec.suspend"
    )]
    SuspendIgnored(String),

    /// The medik8s operator uncordons the node in any case.
    #[error(
        "the maintenance of node \"{0}\" belongs to the medik8s node-maintenance-operator, which uncordons the node at its end"
    )]
    KeepCordonIgnored(String),

    /// The maintenance was stopped before, without `--keep-cordon`.
    #[error("the maintenance of node \"{0}\" is already stopping, and its node returns to service")]
    AlreadyStopping(String),

    /// A selector in `spec.drain` is not valid.
    #[error("cannot determine which pods would be evicted: {0}")]
    Unplannable(String),

    /// An object cannot be converted to or from JSON or YAML.
    #[error("cannot convert the object: {0}")]
    Unshowable(String),

    /// The terminal cannot show the dashboard.
    #[error("cannot use the terminal: {0}")]
    Screen(#[source] io::Error),

    /// The async runtime cannot start.
    #[error("cannot start: {0}")]
    Runtime(#[source] io::Error),

    /// Standard output cannot be written.
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
    /// Connecting, or the first response, took too long.
    #[error("it does not respond")]
    NoResponse,
    /// A watch received nothing until after its end was due.
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

/// Why no node names can be read from a file.
#[derive(Debug, thiserror::Error)]
pub enum NodeFileProblem {
    /// The system cannot read it.
    #[error(transparent)]
    Unreadable(#[from] io::Error),
    /// A line is not a node name.
    #[error("line {line}, \"{text}\": {why}")]
    InvalidName {
        /// Number of the line, from 1.
        line: usize,
        /// The line without its comment.
        text: String,
        /// What a node name looks like.
        why: String,
    },
    /// The given files contain no node name.
    #[error("it names no node")]
    Empty,
}

impl Error {
    /// Exit code of the command.
    pub fn exit(&self) -> Exit {
        match self {
            Self::Unconfirmed | Self::Declined | Self::Selector { .. } => Exit::Usage,
            Self::Above(failure) => failure.exit(),
            _ => Exit::Error,
        }
    }

    /// Prints the message, and a hint if there is one.
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
            Self::Server { status, .. } if silent_webhook(status).is_some() => format!("error: {self}"),
            Self::Server { status, .. } if status.reason != "Unauthorized" => self.to_string(),
            Self::Refused { .. } | Self::Unreachable { .. } | Self::UnknownNodes { .. } => self.to_string(),
            _ => format!("error: {self}"),
        }
    }

    /// Whether a retry of the request may succeed.
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

    /// Whether a program that runs for hours tries the request again: until the server is back, or somebody has logged in.
    pub fn is_waited_for(&self) -> bool {
        self.is_transient() || self.needs_login()
    }

    /// Whether the request succeeds once somebody has logged in.
    pub fn needs_login(&self) -> bool {
        match self {
            Self::Connection(error) => error.is_about_credentials(),
            _ => self.status().is_some_and(|status| status.code == 401),
        }
    }

    /// Whether the object of the request does not exist.
    pub fn is_not_found(&self) -> bool {
        self.status().is_some_and(Status::is_not_found)
    }

    /// Whether the user has no permission for the request.
    pub fn is_forbidden(&self) -> bool {
        self.status().is_some_and(Status::is_forbidden)
    }

    /// Whether the cluster does not serve the API of the request.
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

    /// Response of the API server, if it refused the request.
    pub fn status(&self) -> Option<&Status> {
        match self {
            Self::Server { status, .. } => Some(status),
            _ => None,
        }
    }
}

/// nm-reconciler's webhook that the API server could not call, and why.
pub(crate) fn silent_webhook(status: &Status) -> Option<(&str, &str)> {
    admission_webhook::failed_call(&status.message).filter(|(name, _)| is_own_webhook(name))
}

/// Whether a webhook of this name is nm-reconciler's.
pub(crate) fn is_own_webhook(name: &str) -> bool {
    name.ends_with(OWN_WEBHOOKS)
}

fn server_message(asked: &str, status: &Status) -> String {
    if silent_webhook(status).is_some() {
        return format!("cannot {asked}: the webhook of nm-reconciler does not respond");
    }
    match status.reason.as_str() {
        "Unauthorized" => format!("You must be logged in to the server ({})", status.message),
        "" | UNPARSED_REASON => format!("Error from server: {}", status.message),
        reason => format!("Error from server ({reason}): {}", status.message),
    }
}

/// `nodes "n1" not found; did you mean n2?`
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
