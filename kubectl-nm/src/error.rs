//! What can go wrong, in the words of kubectl, with what to do about it.
//!
//! A message says what failed and on what; a hint says what to do. Both go through [`Line`], because
//! much of them comes from the API.

use std::error::Error as _;
use std::io;
use std::time::Duration;

use kube::core::Status;

use crate::completion_link::LinkError;
use crate::connection::ConnectionError;
use crate::duration;
use crate::exit::Exit;
use crate::output::{Closed, Output};
use crate::setup_error::SetupError;
use crate::text::Line;

/// The resource by the name that RBAC and `kubectl get` know it by.
pub(crate) const RESOURCE: &str = "nodemaintenances.nodemaintenance.medik8s.io";

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
    /// What an error of the client means. `asked` is what was asked for, as RBAC words it.
    pub(crate) fn from_client(error: kube::Error, asked: &str, server: &str) -> Self {
        let error = match ConnectionError::of_credentials(error, server) {
            Ok(error) => return Self::Connection(error),
            Err(error) => error,
        };
        let server = server.to_owned();
        match error {
            kube::Error::Api(status) if means_not_installed(&status) => Self::NotInstalled { server },
            kube::Error::Api(status) => Self::Server { asked: asked.to_owned(), status },
            other if is_refused(&other) => Self::Refused { server },
            other => Self::Unreachable { server, cause: innermost(&other) },
        }
    }

    /// What to do about it.
    pub(crate) fn hint(&self) -> Option<String> {
        Some(match self {
            Self::Connection(error) => return error.hint(),
            Self::Link(error) => error.hint(),
            Self::Setup(error) => return error.hint(),
            Self::Server { asked, status } if status.is_forbidden() && !is_from_webhook(status) => {
                format!(
                    "you need the right to {asked}; `kubectl auth can-i {asked}` tells whether you have it"
                )
            }
            Self::Server { status, .. } if status.code == 401 => String::from(
                "the credentials are missing, wrong or have expired; log in again, or choose others with --context",
            ),
            Self::NotInstalled { .. } => {
                String::from("`kubectl nm install` installs it; --context chooses another cluster")
            }
            Self::Refused { .. } | Self::NoAnswer { .. } => String::from(
                "is the cluster up, and is it the right one? `kubectl config get-contexts` lists them, --context chooses",
            ),
            Self::Unreachable { cause, .. } if cause.contains("certificate") => String::from(
                "the server's certificate is not trusted: check certificate-authority in the kubeconfig, or pass --certificate-authority",
            ),
            Self::Unreachable { .. } => String::from(
                "check the address of the server, the network and any proxy; `kubectl config view --minify` shows what is used",
            ),
            Self::UnknownNodes { .. } | Self::NothingSelected(_) => {
                String::from("`kubectl get nodes` lists the nodes of this cluster; --context chooses another")
            }
            Self::Ending(node) => {
                format!("`kubectl nm stop {node} --wait` returns when it is done; start the maintenance then")
            }
            Self::NameTaken { name, .. } => format!(
                "create one under another name, with spec.nodeName {name}, by `kubectl create -f`, or delete that one"
            ),
            Self::Differs { remedy, .. } => format!("`{remedy}` changes it"),
            Self::NotInMaintenance(nodes) => format!(
                "`kubectl nm status` lists the maintenances, `kubectl nm start {}` begins one",
                nodes.join(" ")
            ),
            Self::Screen(_) => String::from("`kubectl nm watch --output lines` does without the screen"),
            Self::Server { .. }
            | Self::NodeFile { .. }
            | Self::Unconfirmed(_)
            | Self::Declined
            | Self::Unplannable(_)
            | Self::Unshowable(_)
            | Self::Template { .. }
            | Self::Runtime(_)
            | Self::Unwritable { .. }
            | Self::Closed(_) => return None,
        })
    }

    /// How a command ends that came to nothing by it.
    pub(crate) fn exit(&self) -> Exit {
        match self {
            Self::Unconfirmed(_) | Self::Setup(SetupError::Unconfirmed) => Exit::Usage,
            Self::Setup(SetupError::NotReady { .. } | SetupError::NotGone { .. }) => Exit::TimedOut,
            _ => Exit::Error,
        }
    }

    /// Prints what went wrong and what to do about it.
    pub(crate) fn tell(&self, out: &mut Output) {
        out.talk(&Line::new(self.to_string()));
        if let Some(hint) = self.hint() {
            out.talk(&Line::new(format!("hint: {hint}")));
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
            out.talk(&Line::new(format!("hint: {hint}")));
        }
    }

    /// Whether asking again later may help, as it does when a server restarts or is busy.
    pub(crate) fn is_passing(&self) -> bool {
        match self {
            Self::Refused { .. } | Self::Unreachable { .. } | Self::NoAnswer { .. } => true,
            // The program may have its bad moments too; and somebody may log in meanwhile.
            Self::Connection(error) => error.is_about_credentials(),
            Self::Server { status, .. } => status.code >= 500 || matches!(status.code, 0 | 408 | 410 | 429),
            _ => false,
        }
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
        // kube's word for a body that is no Status, as a proxy in between sends.
        "" | "Failed to parse error data" if status.message.is_empty() => {
            format!("Error from server: HTTP status {}", status.code)
        }
        "" | "Failed to parse error data" => format!("Error from server: {}", status.message),
        reason => format!("Error from server ({reason}): {}", status.message),
    }
}

/// A 404 for an object names the object; one for a resource that is not served names nothing.
fn means_not_installed(status: &Status) -> bool {
    let names_an_object = status.details.as_ref().is_some_and(|details| !details.name.is_empty());
    status.code == 404 && !names_an_object
}

/// Whether an admission webhook refused, which no right of the user's would change.
fn is_from_webhook(status: &Status) -> bool {
    status.message.contains("admission webhook")
}

fn is_refused(error: &kube::Error) -> bool {
    causes(error).any(|cause| {
        cause
            .downcast_ref::<io::Error>()
            .is_some_and(|error| error.kind() == io::ErrorKind::ConnectionRefused)
    })
}

/// What is at the bottom of it; the layers above only say that a request failed.
fn innermost(error: &kube::Error) -> String {
    let timed_out = causes(error).any(|cause| {
        cause.downcast_ref::<io::Error>().is_some_and(|error| error.kind() == io::ErrorKind::TimedOut)
    });
    if timed_out {
        return String::from("it does not answer");
    }
    causes(error).last().map_or_else(|| error.to_string(), ToString::to_string)
}

/// An error's causes, the outermost first. I/O errors hide theirs behind `get_ref`.
fn causes(error: &kube::Error) -> impl Iterator<Item = &(dyn std::error::Error + 'static)> {
    std::iter::successors(error.source(), |&cause| {
        let wrapped = cause.downcast_ref::<io::Error>().and_then(io::Error::get_ref);
        wrapped.map(|inner| inner as &(dyn std::error::Error + 'static)).or_else(|| cause.source())
    })
}

fn no_such_nodes(names: &[String], meant: &[String]) -> String {
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
