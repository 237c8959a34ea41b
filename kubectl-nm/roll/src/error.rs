//! Why a roll cannot begin, continue or be read, and what to do about it.

use std::path::PathBuf;

use nm_core::error::Failure;
use nm_core::error::exit::Exit;
use nm_core::error::roll_hint::of_roll;
use nm_core::maintenance::roll::RollStanding;
use nm_core::terminal::command_context::shell_quoted;
use nm_core::terminal::text::are;

use crate::in_cluster::runner_job::{self, NAMESPACE};

/// Why a roll cannot start, continue or be read.
#[derive(Debug, thiserror::Error)]
pub enum RollError {
    /// No maintenance belongs to a roll of this name.
    #[error("there is no roll \"{0}\"")]
    Unknown(String),

    /// No maintenance belongs to a roll of this name, and no history of one could be read.
    #[error("there is no roll \"{0}\", and no history of one")]
    Forgotten(String),

    /// A new roll has the name of an existing one.
    #[error("a roll \"{name}\" exists already")]
    Exists {
        /// Name of both rolls.
        name: String,
        /// What the existing roll does; none if that is not known.
        standing: Option<RollStanding>,
    },

    /// The maintenances of this roll do not all contain the requested settings.
    #[error(
        "the maintenances of roll \"{0}\" contain different settings: another program is starting a roll with this \
         name, or has changed the settings"
    )]
    OtherSettings(String),

    /// Some maintenances of the roll do not exist, and none has its state.
    #[error(
        "roll \"{name}\" has only {created} of its {all} maintenances, and none of them stores its state: they were not all created, \
         or somebody deleted the others"
    )]
    Incomplete {
        /// Name of the roll.
        name: String,
        /// Number of maintenances that exist.
        created: usize,
        /// Number of nodes in the roll.
        all: usize,
    },

    /// Another program runs the roll.
    #[error("{who} runs roll \"{name}\"")]
    Running {
        /// Name of the roll.
        name: String,
        /// User and machine that run it.
        who: String,
        /// The nodes that were to be skipped.
        skip: Vec<String>,
    },

    /// A node would have to be Ready for longer than it may take to be healthy.
    #[error(
        "--recovery-timeout {recovery} is not longer than --min-ready {min_ready}: no node could be healthy in time"
    )]
    ShortRecovery {
        /// The time limit.
        recovery: String,
        /// How long a node has to be Ready.
        min_ready: String,
    },

    /// These nodes are already in maintenance, outside of the roll.
    #[error("{} in maintenance: {}", are(.0.len()), .0.join(", "))]
    InMaintenance(Vec<String>),

    /// A maintenance of the roll lacks an annotation.
    #[error("annotation {annotation} of the NodeMaintenance \"{maintenance}\" is missing")]
    NoRecord {
        /// Name of the roll.
        roll: String,
        /// Name of the maintenance.
        maintenance: String,
        /// Key of the annotation.
        annotation: &'static str,
    },

    /// An annotation of a maintenance cannot be parsed.
    #[error("annotation {annotation} of the NodeMaintenance \"{maintenance}\" is not valid: {source}")]
    InvalidRecord {
        /// Name of the roll.
        roll: String,
        /// Name of the maintenance.
        maintenance: String,
        /// Key of the annotation.
        annotation: &'static str,
        /// The error of the parser.
        source: serde_json::Error,
    },

    /// A maintenance is for a name that no node can have.
    #[error(
        "the NodeMaintenance \"{maintenance}\" of the roll is for \"{node}\", which no node can be named"
    )]
    InvalidNode {
        /// Name of the roll.
        roll: String,
        /// Name of the maintenance.
        maintenance: String,
        /// The invalid name.
        node: String,
    },

    /// The roll cannot use the Job of `--job`.
    #[error("cannot use the Job in {}: {problem}", file.display())]
    Job {
        /// Path of the file.
        file: PathBuf,
        /// What is wrong with it.
        problem: Box<JobProblem>,
    },

    /// A node that is to be skipped is not in the roll.
    #[error("node \"{node}\" is not part of roll \"{name}\", or is done")]
    NotInRoll {
        /// Name of the roll.
        name: String,
        /// Name of the node.
        node: String,
    },

    /// A node that is to be skipped has started its action meanwhile.
    #[error("the command or the Job of node \"{0}\" has just started")]
    HasBegun(String),

    /// The user has to confirm the action of the roll, and there is no terminal to ask on.
    #[error("the action of roll \"{name}\" for each node must be confirmed: {action}")]
    UnconfirmedAction {
        /// Name of the roll.
        name: String,
        /// The action as it is shown to the user.
        action: String,
        /// Whether the roll is paused, and stays so.
        is_paused: bool,
        /// The command that confirms the action.
        command: String,
    },

    /// The user has not confirmed that a paused roll continues.
    #[error("not confirmed, roll \"{0}\" stays paused")]
    StaysPaused(String),

    /// The given action is not the one that the roll stores.
    #[error("roll \"{name}\" runs a different action for each node: {action}")]
    OtherAction {
        /// Name of the roll.
        name: String,
        /// The stored action as it is shown to the user.
        action: String,
    },

    /// The roll needs confirmation of each node, and there is no terminal to ask on.
    #[error("the confirmation of each node, which --confirm asks for, needs a terminal")]
    NoTerminal,

    /// The same for a roll that is resumed.
    #[error("roll \"{0}\" asks for a confirmation of each node, which needs a terminal")]
    ResumeNeedsTerminal(String),

    /// A roll in the cluster cannot use this flag.
    #[error("{}", needs_computer(.0))]
    NeedsComputer(&'static str),

    /// The Job of a roll in the cluster is for another namespace.
    #[error(
        "a roll in the cluster creates its Jobs in namespace {ours}, and the Job in the file is for namespace {0}",
        ours = NAMESPACE
    )]
    OtherJobNamespace(String),

    /// The cluster has no namespace for rolls.
    #[error("this cluster is not set up to run rolls: namespace {NAMESPACE} does not exist")]
    NotGranted,

    /// No image with the plugin is known.
    #[error("the image for the Job that runs the roll is unknown: nm-reconciler is not installed")]
    NoRunnerImage,

    /// What the roll has done cannot be stored.
    #[error("the history of the roll cannot be written: {0}")]
    NoHistory(String),

    /// No Job runs a roll of this name.
    #[error("there is no Job {NAMESPACE}/{job}, which would run roll \"{0}\" in the cluster", job = runner_job::name(.0))]
    NoRunnerJob(String),

    /// The settings are not those that were confirmed when the Job was created.
    #[error(
        "the settings in the maintenances of roll \"{0}\" differ from those for which this Job was created: another \
         user has changed them, or another version of kubectl-nm wrote them"
    )]
    UnconfirmedSettings(String),

    /// Another user paused this roll before it was resumed.
    #[error("another user has paused roll \"{0}\" in the meantime")]
    PausedMeanwhile(String),

    /// The roll halted again before it was resumed.
    #[error("roll \"{name}\" has halted in the meantime: {message}")]
    HaltedMeanwhile {
        /// Name of the roll.
        name: String,
        /// Why it halted.
        message: String,
    },

    /// Another user aborted the roll before it was resumed.
    #[error("{who} has aborted roll \"{name}\" in the meantime")]
    AbortedMeanwhile {
        /// Name of the roll.
        name: String,
        /// User who aborted it.
        who: String,
    },

    /// Other programs wrote to the roll at each of several attempts.
    #[error("the state of the roll changed during every attempt to write it")]
    Contended,
}

/// Why a file is not the Job of a roll.
#[derive(Debug, thiserror::Error)]
pub enum JobProblem {
    /// The system cannot read the file.
    #[error(transparent)]
    Unreadable(#[from] std::io::Error),
    /// The text is not YAML.
    #[error("it is not valid YAML: {0}")]
    Yaml(#[from] serde_saphyr::Error),
    /// The file contains more than the Job.
    #[error("it contains {0} documents, and has to contain one Job")]
    SeveralDocuments(usize),
    /// The object has another kind or API version.
    #[error("it is not a Job of batch/v1")]
    OtherKind,
    /// A field of the Job has the wrong type.
    #[error("it is not valid: {0}")]
    Invalid(#[from] serde_json::Error),
    /// The Job would run nothing.
    #[error("its pod template has no containers")]
    NoContainers,
    /// The Job is too large for an annotation.
    #[error("it has {length} bytes, and at most {most} are allowed, because every maintenance stores a copy")]
    TooLarge {
        /// Size of the Job as JSON, in bytes.
        length: usize,
        /// Largest allowed size, in bytes.
        most: usize,
    },
}

impl RollError {
    /// Whether what a roll has stored in its maintenances cannot be read.
    pub fn is_about_records(&self) -> bool {
        matches!(self, Self::NoRecord { .. } | Self::InvalidRecord { .. } | Self::InvalidNode { .. })
    }
}

/// What a flag does that a roll in the cluster cannot do.
fn needs_computer(flag: &str) -> String {
    let what = match flag {
        "--confirm" => "asks you on a terminal, and a roll in the cluster has none",
        _ => "runs a command on your computer, and --in-cluster runs the roll without it",
    };
    format!("{flag} {what}")
}

/// What to do about a maintenance whose record cannot be read.
fn unreadable(roll: &str, maintenance: &str) -> String {
    format!(
        "`kubectl delete nm {maintenance}` takes it out of the roll, and returns its node to service even if a Job runs for it; if it \
         stays, remove its finalizer kubectl-nm.dev/roll with `kubectl edit nm {maintenance}`. `kubectl nm roll abort {roll} \
         --return` ends the roll, and returns all of its nodes to service"
    )
}

impl Failure for RollError {
    fn hint(&self) -> Option<String> {
        Some(match self {
            Self::Unknown(name) => format!(
                "a roll is gone when its last node is done; `kubectl nm roll status {name}` shows what a roll in the cluster has \
                 done, `kubectl nm roll status` lists the remaining rolls"
            ),
            Self::Forgotten(_) => String::from(
                "`kubectl nm roll status` lists the rolls that are left; a roll is gone when its last node is done, and only one \
                 in the cluster leaves a history, for a week",
            ),
            Self::NotInRoll { name, .. } => format!("`kubectl nm roll status {name}` shows its nodes"),
            Self::Exists { name, standing } => {
                format!("{}; --name chooses another name for a new one", of_roll(name, standing.as_ref()))
            }
            Self::OtherSettings(name) => format!(
                "`kubectl nm roll status {name} -o yaml` shows them; --name chooses another name for a new roll"
            ),
            Self::Incomplete { name, .. } => {
                format!(
                    "unless a program is just starting it, `kubectl nm roll abort {name}` deletes those that exist; then run the roll \
                     again"
                )
            }
            Self::Running { name, skip, .. } if skip.is_empty() => format!(
                "`kubectl nm roll pause {name}` pauses it; `kubectl nm roll resume {name} --take-over` takes it over"
            ),
            Self::Running { name, skip, .. } => {
                let flags: Vec<String> =
                    skip.iter().map(|node| format!("--skip {}", shell_quoted(node))).collect();
                let flags = flags.join(" ");
                format!(
                    "`kubectl nm roll pause {name} && kubectl nm roll resume {name} {flags}` pauses it, and continues it without \
                     {}; `kubectl nm roll resume {name} {flags} --take-over` takes it over",
                    if skip.len() == 1 { "the node" } else { "the nodes" }
                )
            }
            Self::InMaintenance(nodes) => {
                format!("leave them out, or run `kubectl nm stop {}` first", nodes.join(" "))
            }
            Self::NoRecord { roll, maintenance, .. } => unreadable(roll, maintenance),
            Self::InvalidRecord { roll, maintenance, .. } | Self::InvalidNode { roll, maintenance, .. } => {
                format!(
                    "if a newer kubectl-nm runs the roll, use that version; otherwise, {}",
                    unreadable(roll, maintenance)
                )
            }
            Self::StaysPaused(name) | Self::PausedMeanwhile(name) | Self::HaltedMeanwhile { name, .. } => {
                format!("`kubectl nm roll resume {name}` continues it")
            }
            Self::AbortedMeanwhile { name, .. } => {
                format!("`kubectl nm roll resume {name}` finishes the nodes that are left")
            }
            Self::HasBegun(node) => format!(
                "wait until it has finished, or run this command again: --skip {node} then terminates it and \
                 returns the node to service"
            ),
            Self::UnconfirmedAction { name, is_paused, command, .. } => {
                let stays = if *is_paused {
                    format!("roll {name} is paused, and stays paused until it is resumed; ")
                } else {
                    String::new()
                };
                format!(
                    "{stays}`{command}` confirms the action, and so do its flags (--run with the same command, --job with the \
                     same file); on a terminal, you are asked"
                )
            }
            Self::OtherAction { name, .. } => format!(
                "the action of a roll cannot be changed: abort the roll (`kubectl nm roll abort {name}`) and start a new one"
            ),
            Self::NoTerminal => String::from("run it on a terminal, or without --confirm"),
            Self::ResumeNeedsTerminal(name) => format!(
                "resume it on a terminal; or `kubectl nm roll abort {name} --return` ends the roll and returns its nodes to service"
            ),
            Self::NeedsComputer("--confirm") => String::from(
                "run it without --in-cluster, or without --confirm; `kubectl nm roll pause NAME` pauses it",
            ),
            Self::NeedsComputer(flag) => format!(
                "in the cluster, use {} FILE; `kubectl nm roll job-template` prints a Job to start from",
                if *flag == "--run" { String::from("--job") } else { format!("{flag}-job") }
            ),
            Self::OtherJobNamespace(_) => String::from("remove metadata.namespace from the file"),
            Self::NotGranted => String::from("`kubectl nm install --grant roll` sets it up"),
            Self::NoRunnerImage => {
                String::from("name an image that contains /kubectl-nm with --runner-image")
            }
            Self::NoHistory(_) => String::from("`kubectl nm install --grant roll` sets the permissions up"),
            Self::NoRunnerJob(_) => String::from(
                "`kubectl nm roll status` lists the remaining rolls. A roll on a computer prints its lines there, \
                 and the \
                 Job of a roll is deleted seven days after its end",
            ),
            Self::UnconfirmedSettings(name) => {
                format!("`kubectl nm roll abort {name}` ends the roll; then start a new one")
            }
            Self::ShortRecovery { .. } => String::from("raise --recovery-timeout, or lower --min-ready"),
            Self::Contended => String::from("try again"),
            Self::Job { .. } => return None,
        })
    }

    fn exit(&self) -> Exit {
        match self {
            Self::NoTerminal
            | Self::ResumeNeedsTerminal(_)
            | Self::UnconfirmedAction { .. }
            | Self::StaysPaused(_)
            | Self::OtherAction { .. }
            | Self::NeedsComputer(_)
            | Self::OtherJobNamespace(_)
            | Self::ShortRecovery { .. } => Exit::Usage,
            _ => Exit::Error,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_for_one_roll_names_it() {
        let [name, node] = ["kernel", "n9"].map(String::from);
        let hint = |error: &RollError| error.hint().unwrap_or_default();
        assert_eq!(
            hint(&RollError::NotInRoll { name, node }),
            "`kubectl nm roll status kernel` shows its nodes"
        );
        assert_eq!(
            hint(&RollError::NeedsComputer("--confirm")),
            "run it without --in-cluster, or without --confirm; `kubectl nm roll pause NAME` pauses it"
        );
    }
}
