//! What a roll does with each of its nodes. Every maintenance of the roll has these settings in an annotation, so that
//! anybody can continue the roll from anywhere.

use std::fmt;
use std::time::Duration;

use k8s_openapi::api::batch::v1::Job;
use nm_core::maintenance::roll::Step;
use nm_core::maintenance::roll_window::Windows;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::{Value, json};

/// The settings of a roll. Durations are in seconds.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RollSettings {
    /// How many nodes each wave has.
    pub waves: Vec<usize>,
    /// How many nodes may be under way at once.
    pub max_unavailable: usize,
    /// What to do for each cordoned node before its first eviction; `None` for nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub before: Option<NodeAction>,
    /// What to do with each drained node; `None` for nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub action: Option<NodeAction>,
    /// What to do for each Ready node before it returns to service; `None` for nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after: Option<NodeAction>,
    /// Whether somebody has to confirm after each drain.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub confirm: bool,
    /// Whether each node has to reboot before it returns to service.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub expect_reboot: bool,
    /// Minimum time for which a node must be Ready before it returns to service.
    pub min_ready_seconds: u64,
    /// How long the roll waits after a node has returned to service and what the drain disturbed has recovered.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub soak_seconds: u64,
    /// Time limit of each command or Job of a node.
    pub action_timeout_seconds: u64,
    /// Time limit to start the drain, to become Ready, and to return to service. If it expires, the roll halts.
    pub return_timeout_seconds: u64,
    /// Time limit for a node, and the workloads that its drain disturbed, to be healthy. If it expires, the roll halts.
    pub recovery_timeout_seconds: u64,
    /// The roll halts if a pod blocks a drain for longer than this; `None` for no limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub halt_on_blocked_seconds: Option<u64>,
    /// Whether a Job in the cluster runs the roll.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub in_cluster: bool,
    /// Who started the roll, for people; empty if unknown.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub started_by: String,
    /// When nodes may start; at any time if there are no windows.
    #[serde(default, skip_serializing_if = "Windows::is_empty")]
    pub windows: Windows,
}

/// What is done with a node.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum NodeAction {
    /// A command on the machine of the person who runs the roll.
    Run(String),
    /// A Job that runs on the node.
    Job(#[serde(deserialize_with = "deserialize_job")] Value),
}

impl fmt::Display for NodeAction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Run(command) => write!(f, "on this machine, run {command}"),
            Self::Job(job) => write!(f, "create {job}"),
        }
    }
}

impl RollSettings {
    /// How many nodes can be under way at once: those of a wave at most.
    pub fn at_once(&self) -> usize {
        self.max_unavailable.min(self.waves.iter().copied().max().unwrap_or(1))
    }

    /// Number of nodes in all waves.
    pub fn nodes(&self) -> usize {
        self.waves.iter().fold(0, |nodes, wave| nodes.saturating_add(*wave))
    }

    /// A digest of the settings as `sha256:…`. Whoever lets the cluster run the roll confirms it: the settings are in objects
    /// that others may write.
    pub fn digest(&self) -> String {
        // Maps with text keys and finite numbers are always valid JSON.
        let text = serde_json::to_vec(self).unwrap_or_default();
        let digest = ring::digest::digest(&ring::digest::SHA256, &text);
        digest.as_ref().iter().fold(String::from("sha256:"), |text, byte| format!("{text}{byte:02x}"))
    }

    /// What is done with a node in this step.
    pub fn action_of(&self, step: Step) -> Option<&NodeAction> {
        match step {
            Step::Preparing => self.before.as_ref(),
            Step::Acting => self.action.as_ref(),
            Step::Finishing => self.after.as_ref(),
            _ => None,
        }
    }

    /// What is done with each node, in the order of the steps.
    pub fn actions(&self) -> impl Iterator<Item = (Step, &NodeAction)> {
        let steps = [Step::Preparing, Step::Acting, Step::Finishing].into_iter();
        steps.filter_map(|step| Some((step, self.action_of(step)?)))
    }

    /// Whether a command runs on this machine in this step.
    pub fn runs_command(&self, step: Step) -> bool {
        matches!(self.action_of(step), Some(NodeAction::Run(_)))
    }

    /// `a command before the first eviction and a Job once the node is drained`: the kinds of what is done with each node, and when;
    /// `None` if nothing is.
    pub(crate) fn outline_actions(&self) -> Option<String> {
        let words = self.actions().map(|(step, action)| {
            let when = match step {
                Step::Preparing => "before the first eviction",
                Step::Finishing => "before the return to service",
                _ => "once the node is drained",
            };
            match action {
                NodeAction::Run(_) => format!("a command {when}"),
                NodeAction::Job(_) => format!("a Job {when}"),
            }
        });
        let words: Vec<String> = words.collect();
        let (last, others) = words.split_last()?;
        Some(if others.is_empty() { last.clone() } else { format!("{} and {last}", others.join(", ")) })
    }

    /// All that is done with each node, for people; `None` if that is nothing.
    pub fn describe_actions(&self) -> Option<String> {
        let words = self.actions().map(|(step, action)| match step {
            Step::Preparing => format!("before the first eviction, {action}"),
            Step::Finishing => format!("before the return to service, {action}"),
            _ => action.to_string(),
        });
        Some(words.collect::<Vec<_>>().join("; ")).filter(|words| !words.is_empty())
    }

    pub(crate) fn action_timeout(&self) -> Duration {
        Duration::from_secs(self.action_timeout_seconds)
    }
}

/// Checks the types of the fields of a Job, so that the roll can set some of them.
pub(crate) fn check_job(job: &Value) -> Result<(), serde_json::Error> {
    Job::deserialize(job).map(drop)
}

fn deserialize_job<'de, D: Deserializer<'de>>(from: D) -> Result<Value, D::Error> {
    let mut job = Value::deserialize(from)?;
    // Of the annotation, which others may write, only a Job is created or deleted.
    if let Some(fields) = job.as_object_mut() {
        fields.extend([("apiVersion".to_owned(), json!("batch/v1")), ("kind".to_owned(), json!("Job"))]);
    }
    check_job(&job).map_err(serde::de::Error::custom)?;
    Ok(job)
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_zero(seconds: &u64) -> bool {
    *seconds == 0
}
