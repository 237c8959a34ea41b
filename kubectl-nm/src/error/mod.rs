//! What can go wrong, in the words of kubectl, with what to do about it.
//!
//! A message says what failed and on what; a hint says what to do. Both go through [`Line`], because
//! much of them comes from the API.

pub(crate) mod completion_link;
pub(crate) mod doc_links;
pub(crate) mod exit;
pub(crate) mod setup_error;

use std::io;
use std::time::Duration;

use kube::core::Status;

use crate::args::duration;
use crate::connection::ConnectionError;
use crate::error::completion_link::LinkError;
use crate::error::exit::Exit;
use crate::error::setup_error::SetupError;
use crate::terminal::output::{Closed, Output};
use crate::terminal::text::Line;

/// The resource by the name that RBAC and `kubectl get` know it by.
pub(crate) const RESOURCE: &str = "nodemaintenances.nodemaintenance.medik8s.io";

/// What kube gives as the reason where the body of a refusal is no Status, as a proxy in between sends it.
pub(crate) const UNWORDED: &str = "Failed to parse error data";

/// Why a command came to nothing.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    /// There is no way to a cluster.
    #[error(transparent)]
    Connection(#[from] ConnectionError),

    /// kubectl cannot be told how to complete our commands.
    #[error(transparent)]
    Link(#[from] LinkError),

    /// A file or folder cannot be written.
    #[error("error: cannot write {path}: {source}")]
    Unwritable {
        /// Where it is.
        path: String,
        /// Why.
        source: io::Error,
    },
    /// nm-reconciler cannot be installed, removed or looked at.
    #[error(transparent)]
    Setup(#[from] SetupError),

    /// The API server refuses.
    #[error("{}", server_says(.status))]
    Server {
        /// What was asked for, as RBAC words it: `create nodemaintenances…`.
        asked: String,
        /// Its answer.
        status: Box<Status>,
    },

    /// The cluster does not know `NodeMaintenance`.
    #[error("error: the cluster at {server} does not know NodeMaintenance ({RESOURCE})")]
    NotInstalled {
        /// The address of the server.
        server: String,
    },

    /// The cluster does not serve something else that was asked for.
    #[error("error: the cluster at {server} does not know what it was asked to: {asked}")]
    NotServed {
        /// The address of the server.
        server: String,
        /// What was asked for, as RBAC words it.
        asked: String,
    },

    /// What answers is no API server, or something in between answers in its place.
    #[error("error: {server} does not answer as an API server does: {said}")]
    NoApiServer {
        /// The address of the server.
        server: String,
        /// The HTTP code, or 0 where the answer had a good one and made no sense.
        code: u16,
        /// What it says, with the code.
        said: String,
    },

    /// Nobody listens at the server's address.
    #[error("The connection to the server {server} was refused - did you specify the right host or port?")]
    Refused {
        /// The address of the server.
        server: String,
    },

    /// The server cannot be reached, or breaks off.
    #[error("Unable to connect to the server {server}: {cause}")]
    Unreachable {
        /// The address of the server.
        server: String,
        /// Why.
        cause: String,
    },

    /// `--request-timeout` ran out.
    #[error("error: the server {server} did not answer within {}", duration::show(*.after))]
    NoAnswer {
        /// The address of the server.
        server: String,
        /// What the request timeout is.
        after: Duration,
    },

    /// Nodes that do not exist.
    #[error("Error from server (NotFound): {}", no_such_nodes(.names, .meant))]
    UnknownNodes {
        /// Their names.
        names: Vec<String>,
        /// Names that may have been meant.
        meant: Vec<String>,
    },

    /// No node has labels like that.
    #[error("error: no node has labels that match \"{0}\"")]
    NothingSelected(String),

    /// The labels cannot be understood by which nodes are chosen.
    #[error("error: cannot choose nodes by \"{selector}\": {why}")]
    Selector {
        /// As given.
        selector: String,
        /// What the server says of it.
        why: String,
    },

    /// The file that names nodes cannot be used.
    #[error("error: cannot take nodes from {file}: {why}")]
    NodeFile {
        /// The file.
        file: String,
        /// What is wrong with it.
        why: String,
    },

    /// So many nodes are concerned, which nobody has confirmed.
    #[error("error: {0} nodes are concerned, and there is no terminal to ask on: -y confirms")]
    Unconfirmed(usize),

    /// Somebody was asked and said no.
    #[error("error: not confirmed, nothing was changed")]
    Declined,

    /// The node is just being given back.
    #[error("error: node \"{0}\" is just being given back: its maintenance is being deleted")]
    Ending(String),

    /// Another node's maintenance has the name that this node's would get.
    #[error("error: there is a NodeMaintenance \"{name}\" already, and it is for node \"{other}\"")]
    NameTaken {
        /// Name of the object, and of the node that it is not for.
        name: String,
        /// The node that it is for.
        other: String,
    },

    /// The node is in maintenance, but not as it was asked for.
    #[error("error: node \"{node}\" is in maintenance already, but {differences}")]
    Differs {
        /// The node.
        node: String,
        /// What is not as it was asked for.
        differences: String,
        /// The command that would change it.
        remedy: String,
    },

    /// A node that is not in maintenance, although the command is about its maintenance.
    #[error("error: {}", not_in_maintenance(.0))]
    NotInMaintenance(Vec<String>),

    /// A maintenance selects pods by something that is no selector.
    #[error("error: cannot tell which pods would go: {0}")]
    Unplannable(String),

    /// An object cannot be written as JSON or YAML.
    #[error("error: cannot show the objects: {0}")]
    Unshowable(String),

    /// A template asks for what there is not.
    #[error("error: error executing jsonpath \"{template}\": {why}")]
    Template {
        /// The template.
        template: String,
        /// Why it came to nothing.
        why: String,
    },

    /// The terminal does not do as it is told.
    #[error("error: cannot use the terminal: {0}")]
    Screen(#[source] io::Error),

    /// The program cannot even begin.
    #[error("error: cannot start: {0}")]
    Runtime(#[source] io::Error),

    /// Nobody reads what we print.
    #[error("error: {0}")]
    Closed(#[from] Closed),
}

impl Error {
    /// How a command ends that came to nothing by it.
    pub(crate) fn exit(&self) -> Exit {
        match self {
            Self::Unconfirmed(_) | Self::Declined | Self::Setup(SetupError::Unconfirmed) => Exit::Usage,
            Self::Setup(SetupError::NotReady { .. } | SetupError::NotGone { .. }) => Exit::TimedOut,
            _ => Exit::Error,
        }
    }

    /// Prints what went wrong and what to do about it.
    pub(crate) fn tell(&self, out: &mut Output) {
        out.talk(&Line::new(self.to_string()));
        if let Some(hint) = self.hint() {
            out.hint(&hint);
        }
    }

    /// Prints what went wrong with each of these nodes, and then, each once, what to do about it.
    pub(crate) fn tell_all(failures: &[(String, Self)], out: &mut Output) {
        let mut hints = Vec::new();
        for (node, error) in failures {
            let said = error.to_string();
            let is_named = said.contains(&format!("\"{node}\""));
            out.talk(&Line::new(if is_named { said } else { format!("{said} (node/{node})") }));
            hints.extend(error.hint().filter(|hint| !hints.contains(hint)));
        }
        for hint in hints {
            out.hint(&hint);
        }
    }

    /// Whether asking again later may help, as it does when a server restarts or is busy.
    pub(crate) fn is_passing(&self) -> bool {
        match self {
            Self::Refused { .. } | Self::Unreachable { .. } | Self::NoAnswer { .. } => true,
            // The program may have its bad moments too; and somebody may log in meanwhile.
            Self::Connection(error) => error.is_about_credentials(),
            Self::NoApiServer { code, .. } => !(400..500).contains(code),
            Self::Server { status, .. } => status.code >= 500 || matches!(status.code, 0 | 408 | 410 | 429),
            _ => false,
        }
    }

    /// Whether the cluster does not serve what was asked for at all.
    pub(crate) fn is_unserved(&self) -> bool {
        matches!(self, Self::NotInstalled { .. } | Self::NotServed { .. })
    }

    /// The status with which the server refused, if it did.
    pub(crate) fn status(&self) -> Option<&Status> {
        match self {
            Self::Server { status, .. } => Some(status),
            _ => None,
        }
    }
}

/// The server's answer as kubectl words it.
fn server_says(status: &Status) -> String {
    match status.reason.as_str() {
        "Unauthorized" => format!("error: You must be logged in to the server ({})", status.message),
        "" | UNWORDED => format!("Error from server: {}", status.message),
        reason => format!("Error from server ({reason}): {}", status.message),
    }
}

/// That nodes do not exist, with what may have been meant.
pub(crate) fn no_such_nodes(names: &[String], meant: &[String]) -> String {
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
