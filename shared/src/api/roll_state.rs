//! The record of a roll as a whole, as programs read it that do not run the roll. `kubectl nm roll` writes it, with more fields, to
//! an annotation of one of its maintenances.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::api::maintenance::NodeMaintenance;
use crate::api::names::ROLL_STATE_ANNOTATION;

/// Who runs a roll.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Runner {
    /// Distinguishes the programs.
    pub id: String,
    /// The user and the machine, for people.
    pub who: String,
    /// When the program last wrote this.
    pub at: Timestamp,
    /// Whether it is the Job of a roll in the cluster. Unlike a program on a computer, it stays while the roll is halted.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub in_cluster: bool,
    /// The node of the pod in which it runs; none of a program on a computer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<String>,
}

/// Who has paused a roll, and when.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pause {
    /// The user and the machine, for people.
    pub by: String,
    /// When.
    pub at: Timestamp,
}

/// Why a roll halted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Halt {
    /// The node because of which it halted; empty if it is about the roll as a whole.
    pub node: String,
    /// The cause, for people.
    pub message: String,
    /// When it halted.
    pub at: Timestamp,
    /// What of the node it was, if it may be over before somebody continues the roll.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cause: Option<HaltCause>,
}

/// What halted a roll, as far as a program that only looks can see that it is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum HaltCause {
    /// The drain of the node failed, or pods blocked it for too long.
    Drain,
    /// The drain timed out, and cannot continue without more time.
    DrainTimedOut,
    /// The node did not reboot, or was not Ready, after its command or Job.
    NotBack,
    /// The node, or the workloads affected by its drain, were not healthy in time.
    Unhealthy,
    /// One that this version does not know.
    #[serde(other)]
    Unknown,
}

/// Of the record of a roll, what those who only look have to know.
#[derive(Clone, Debug, Deserialize, Default, PartialEq, Eq)]
#[serde(default)]
pub struct SeenRoll {
    /// The highest revision counts.
    pub revision: u64,
    /// The program that runs the roll; none if it has ended properly.
    pub runner: Option<Runner>,
    /// Whether somebody paused the roll.
    pub paused: bool,
    /// Who paused it, and when; none if it is not paused, or if that is unknown.
    pub pause: Option<Pause>,
    /// Why the roll halted, even if it was aborted since: see [`Self::halt`].
    halt: Option<Halt>,
    /// Who aborted the roll.
    pub aborted: Option<String>,
    /// What the program that runs the roll has found when it last probed its nodes.
    health: Vec<SeenHealth>,
    /// What is known of the nodes that are done.
    pub done: SeenDone,
}

/// How long the nodes that are done took.
#[derive(Clone, Debug, Deserialize, Default, PartialEq, Eq)]
#[serde(default, rename_all = "camelCase")]
pub struct SeenDone {
    /// How long the slowest one took, in seconds.
    pub slowest_seconds: i64,
}

/// What was found of a node in a step of the roll.
#[derive(Clone, Debug, Deserialize, Default, PartialEq, Eq)]
#[serde(default)]
struct SeenHealth {
    node: String,
    step: String,
    health: Value,
}

/// What a roll does with its nodes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RollStanding {
    /// This user runs it: nodes start when their turn comes.
    Running(String),
    /// It is paused, and no node starts until somebody resumes it.
    Paused,
    /// It has halted, and no node starts until somebody resumes it.
    Halted,
    /// Nobody runs it.
    Abandoned,
    /// It was aborted, and this user finishes the nodes whose command or Job has started.
    Ending(String),
    /// It was aborted, and nobody finishes its nodes.
    Over,
}

impl SeenRoll {
    /// The record that a maintenance has; none if it has none, or one that cannot be read.
    pub fn of(maintenance: &NodeMaintenance) -> Option<Self> {
        let annotations = maintenance.metadata.annotations.as_ref()?;
        serde_json::from_str(annotations.get(ROLL_STATE_ANNOTATION)?).ok()
    }

    /// What is not healthy yet of a node that is in this step, or of the workloads affected by its drain.
    pub fn unhealthy(&self, node: &str, step: &str) -> Option<&str> {
        let mut probed = self.health.iter();
        probed
            .find(|probed| (probed.node.as_str(), probed.step.as_str()) == (node, step))?
            .health
            .get("waiting")?
            .as_str()
    }

    /// Why the roll has halted; none if it was aborted: nobody has to continue it.
    pub fn halt(&self) -> Option<&Halt> {
        self.halt.as_ref().filter(|_| self.aborted.is_none())
    }

    /// Whether the roll waits for nothing but the end of a pause.
    pub fn is_paused(&self) -> bool {
        self.paused && self.halt.is_none() && self.aborted.is_none()
    }

    /// What the roll does with its nodes. `runner` is the program that runs it, if its last heartbeat is recent.
    pub fn standing(&self, runner: Option<&Runner>) -> RollStanding {
        let who = runner.map(|runner| runner.who.clone());
        match who {
            // A roll that had halted before it was aborted finishes no node.
            Some(who) if self.aborted.is_some() && self.halt.is_none() => RollStanding::Ending(who),
            _ if self.aborted.is_some() => RollStanding::Over,
            _ if self.halt.is_some() => RollStanding::Halted,
            _ if self.paused => RollStanding::Paused,
            Some(who) => RollStanding::Running(who),
            None => RollStanding::Abandoned,
        }
    }

    /// Whether nodes begin when their turn comes, if somebody runs the roll.
    pub fn begins_nodes(&self) -> bool {
        !self.paused && self.halt.is_none()
    }
}
