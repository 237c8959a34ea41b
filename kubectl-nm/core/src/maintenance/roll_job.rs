//! The Job of a roll in the cluster that nobody runs yet, and what repairs one that cannot start.

use nm_shared::PodReference;
use nm_shared::api::names::ROLL_RUNNER_LABEL;

use crate::maintenance::fields::ROLLS_NAMESPACE;
use crate::terminal::command_context::{nm_command, shell_quoted};

/// A Job that a roll runs for a node, and whose pod does not start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnstartedJob {
    /// Namespace and name of the Job.
    pub job: PodReference,
    /// Why its pod does not start: `pod p: ErrImagePull`.
    pub words: String,
}

impl UnstartedJob {
    /// The command that deletes the Job.
    pub fn deletion(&self, kubectl: &str) -> String {
        let (namespace, name) = (shell_quoted(&self.job.namespace), shell_quoted(&self.job.name));
        format!("{kubectl} -n {namespace} delete job {name}")
    }
}

/// What the Job of a roll shows while no program runs the roll.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RollJob {
    /// Its pod is about to start.
    Starting(String),
    /// Its pod does not start by itself, as far as its status shows that.
    Stuck {
        /// The Job and why its pod does not start.
        words: String,
        /// Whether the image is why.
        is_image: bool,
    },
    /// The Job cannot be read, for this reason.
    Unread(String),
}

impl RollJob {
    /// The state of the Job; none if it cannot be read.
    pub fn words(&self) -> Option<&str> {
        match self {
            Self::Starting(words) | Self::Stuck { words, .. } => Some(words),
            Self::Unread(_) => None,
        }
    }

    /// What to do about a Job that cannot start, before the command of [`Self::repair`].
    pub fn advice(&self) -> &'static str {
        match self {
            Self::Stuck { is_image: true, .. } => {
                "Run the roll with an image that can be pulled and contains /kubectl-nm"
            }
            _ => "See what its pod waits for; the roll continues once the pod starts",
        }
    }

    /// The command that lets a Job start that cannot, or shows more about it; none if it starts. A plain resume leaves a Job that
    /// has not ended as it is.
    pub fn repair(&self, roll: &str, kubectl: &str) -> Option<String> {
        match self {
            Self::Stuck { is_image: true, .. } => {
                let resume = format!("roll resume {} --runner-image IMAGE", shell_quoted(roll));
                Some(nm_command(kubectl, &resume))
            }
            Self::Stuck { .. } => Some(describe_pods(roll, kubectl)),
            Self::Starting(_) | Self::Unread(_) => None,
        }
    }
}

/// The command that shows what the pods of the Job of a roll wait for.
pub fn describe_pods(roll: &str, kubectl: &str) -> String {
    format!("{kubectl} describe pods -n {ROLLS_NAMESPACE} -l {ROLL_RUNNER_LABEL}={}", shell_quoted(roll))
}
