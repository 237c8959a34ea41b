//! Why a roll cannot begin, continue or be read, and what to do about it.

use std::path::PathBuf;

use nm_core::error::Failure;
use nm_core::error::exit::Exit;
use nm_core::terminal::text::are;

#[derive(Debug, thiserror::Error)]
pub enum RollError {
    #[error("there is no roll \"{0}\"")]
    Unknown(String),

    #[error("a roll \"{0}\" exists already")]
    Exists(String),

    #[error(
        "the maintenances of roll \"{0}\" have other settings: somebody else begins it, or has changed them"
    )]
    OtherSettings(String),

    #[error("the maintenances of roll \"{name}\" were not all created: {created} of {all}")]
    Incomplete { name: String, created: usize, all: usize },

    #[error("roll \"{name}\" has other nodes too: {}", nodes.join(", "))]
    OtherNodes { name: String, nodes: Vec<String> },

    #[error("{who} runs roll \"{name}\"")]
    Running { name: String, who: String },

    #[error("{} in maintenance: {}", are(.0.len()), .0.join(", "))]
    InMaintenance(Vec<String>),

    #[error("annotation {annotation} of the NodeMaintenance \"{maintenance}\" is missing")]
    NoRecord { roll: String, maintenance: String, annotation: &'static str },

    #[error("annotation {annotation} of the NodeMaintenance \"{maintenance}\" is not valid: {source}")]
    InvalidRecord { roll: String, maintenance: String, annotation: &'static str, source: serde_json::Error },

    #[error(
        "the NodeMaintenance \"{maintenance}\" of the roll is for \"{node}\", which no node can be named"
    )]
    InvalidNode { roll: String, maintenance: String, node: String },

    #[error("cannot use the Job in {}: {problem}", file.display())]
    Job { file: PathBuf, problem: Box<JobProblem> },

    #[error("node \"{node}\" is not part of roll \"{name}\", or is done")]
    NotInRoll { name: String, node: String },

    #[error("the command or the Job of node \"{0}\" has just begun")]
    HasBegun(String),

    #[error("what roll \"{name}\" does with each drained node has to be confirmed: {action}")]
    UnconfirmedAction { name: String, action: String },

    #[error("roll \"{name}\" does something else with each drained node: {action}")]
    OtherAction { name: String, action: String },

    #[error("--confirm and the confirmation by this roll need a terminal")]
    NoTerminal,

    #[error("somebody has paused roll \"{0}\" meanwhile")]
    PausedMeanwhile(String),

    #[error("roll \"{name}\" has halted meanwhile: {message}")]
    HaltedMeanwhile { name: String, message: String },

    #[error("{who} has aborted roll \"{name}\" meanwhile")]
    AbortedMeanwhile { name: String, who: String },

    #[error("the roll changed too often to write to it")]
    Contended,
}

/// Why a file is not the Job of a roll.
#[derive(Debug, thiserror::Error)]
pub enum JobProblem {
    #[error(transparent)]
    Unreadable(#[from] std::io::Error),
    #[error("it is not valid YAML: {0}")]
    Yaml(#[from] serde_saphyr::Error),
    #[error("it is not a Job of batch/v1")]
    OtherKind,
    #[error("it is not valid: {0}")]
    Invalid(#[from] serde_json::Error),
    #[error("its pod template has no containers")]
    NoContainers,
    #[error("it has {length} bytes, and at most {most} are allowed, because every maintenance stores a copy")]
    TooLarge { length: usize, most: usize },
}

impl RollError {
    /// Whether what a roll has stored in its maintenances cannot be read.
    pub fn is_about_records(&self) -> bool {
        matches!(self, Self::NoRecord { .. } | Self::InvalidRecord { .. } | Self::InvalidNode { .. })
    }
}

impl Failure for RollError {
    fn hint(&self) -> Option<String> {
        Some(match self {
            Self::Unknown(_) => String::from(
                "a roll is gone when its last node is done; `kubectl nm roll status` lists the rolls that are left",
            ),
            Self::NotInRoll { .. } => {
                String::from("`kubectl nm roll status` lists the rolls and their nodes")
            }
            Self::Exists(name) => format!(
                "`kubectl nm roll resume {name}` continues it; --name chooses another name for a new one"
            ),
            Self::OtherSettings(name) => format!(
                "`kubectl nm roll status {name} -o yaml` shows them; --name chooses another name for a new roll"
            ),
            Self::Incomplete { name, .. } => format!(
                "run the roll again with --name {name} to create the others, or `kubectl nm roll abort {name}` to delete them \
                 all"
            ),
            Self::OtherNodes { name, .. } => format!(
                "run the roll again with all of its nodes, or `kubectl nm roll abort {name}` to delete their maintenances"
            ),
            Self::Running { name, .. } => format!(
                "`kubectl nm roll pause {name}` pauses it; `kubectl nm roll resume {name} --take-over` takes it over"
            ),
            Self::InMaintenance(nodes) => {
                format!("leave them out, or run `kubectl nm stop {}` first", nodes.join(" "))
            }
            Self::NoRecord { roll, maintenance, .. }
            | Self::InvalidRecord { roll, maintenance, .. }
            | Self::InvalidNode { roll, maintenance, .. } => {
                format!(
                    "`kubectl delete nm {maintenance}` takes it out of the roll; if it stays, remove its finalizer kubectl-nm.dev/roll \
                     with `kubectl edit nm {maintenance}`. `kubectl nm roll abort {roll} --return` ends the roll, and returns all \
                     of its nodes to service"
                )
            }
            Self::PausedMeanwhile(name) | Self::HaltedMeanwhile { name, .. } => {
                format!("`kubectl nm roll resume {name}` continues it")
            }
            Self::AbortedMeanwhile { name, .. } => {
                format!("`kubectl nm roll resume {name}` finishes the nodes that are left")
            }
            Self::HasBegun(node) => format!(
                "wait for its end, or run this again: --skip {node} then ends it and returns the node to service"
            ),
            Self::UnconfirmedAction { .. } => String::from(
                "run it on a terminal, or pass --run with the same command, --job with the same file, or --yes",
            ),
            Self::OtherAction { .. } => String::from(
                "the action of a roll cannot be changed: abort the roll (`kubectl nm roll abort`) and start a new one",
            ),
            Self::NoTerminal => String::from("run it on a terminal, or without --confirm"),
            Self::Contended => String::from("try again"),
            Self::Job { .. } => return None,
        })
    }

    fn exit(&self) -> Exit {
        match self {
            Self::NoTerminal | Self::UnconfirmedAction { .. } | Self::OtherAction { .. } => Exit::Usage,
            _ => Exit::Error,
        }
    }
}
