//! A cause as people see it.

use std::collections::BTreeSet;

use jiff::Timestamp;
use nm_shared::{BlockReason, PodReference};

use crate::explain::cluster_facts::Unseen;
use crate::explain::first_cause::FirstCause;
use crate::terminal::text::counted;

const MAX_EXAMPLES: usize = 5;

/// What to consider before a node returns to service that was drained for somebody.
pub(super) const UNLESS_WORKED_ON: &str = ", unless its machine is being worked on";

/// One cause why a maintenance makes no progress.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Cause {
    /// What it is, with names and numbers: usually one sentence, several if pods are blocked by similar things.
    pub what: Vec<String>,
    /// The pods that it is about: those that it blocks, that the drain waits for, or that stay.
    pub pods: Vec<String>,
    /// When it started; for pods, workloads or nodes that it concerns since different times, the earliest. `None` if unknown.
    pub since: Option<Timestamp>,
    /// The latest of these times.
    pub latest: Option<Timestamp>,
    /// Total number of refused evictions of its pods: at least so many, because the status has the count once a minute.
    pub refusals: i32,
    /// What could not be read, and therefore is not known; sentences.
    pub unseen: Vec<String>,
    /// What to do, as a sentence without its full stop.
    pub advice: String,
    /// Commands to paste into a shell, with connection flags; none if nothing has to be done.
    pub commands: Vec<String>,
    /// The commands like these that are left out, because there are many.
    pub left_out: Vec<String>,
    /// The sentences like the first ones that are only counted, in the last of these.
    pub alike: Vec<String>,
    /// What becomes of it if nobody does anything.
    pub outlook: Outlook,
    /// Whether it is harm that the drain does to a workload, and keeps nothing from going on.
    pub is_outage: bool,
    /// The workloads that are down, each with its namespace. The first sentence names them.
    pub down: Vec<String>,
    /// What makes the causes of several nodes one; none if only their words do.
    pub common: Option<CommonGround>,
}

/// What becomes of a cause if nobody does anything.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Outlook {
    /// It blocks the maintenance.
    #[default]
    Blocks,
    /// It will block the maintenance: the status does not count its pods as blocked yet.
    WillBlock,
    /// It is temporary or intended.
    Passes,
    /// It is temporary, but the drain does not continue: its pods stay until then. What continues the drain is another cause.
    AwaitsDrain,
    /// Its pods stay, and the drain does not wait for them.
    Stays,
}

impl Outlook {
    /// The outlook of a cause that passes, or else blocks.
    pub(super) fn of(passes: bool) -> Self {
        if passes { Self::Passes } else { Self::Blocks }
    }
}

/// What causes of several nodes have in common, whatever the pods and the numbers of the budgets that their words name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CommonGround {
    /// The end of the chain behind budgets.
    FirstCause(Box<FirstCause>),
    /// What blocks pods.
    Blocker(BlockReason, String),
    /// The workload that is down, with its namespace.
    Outage(String),
    /// Why the replacements of workloads that are down are not Ready.
    Outages(Vec<FirstCause>),
    /// Why the replacements of workloads that lack some pods are not Ready.
    Lacking(Vec<FirstCause>),
    /// The roll whose Jobs for the nodes do not start.
    RollJobs(String),
    /// The roll in which the turn of the nodes has not come.
    Turn(String),
}

impl Cause {
    /// Whether the maintenance does not count as blocked by it.
    pub fn passes(&self) -> bool {
        self.outlook != Outlook::Blocks
    }

    /// Adds times since when it concerns something.
    pub fn add_times(&mut self, times: impl IntoIterator<Item = Timestamp>) {
        let known = self.since.into_iter().chain(self.latest);
        let all: Vec<Timestamp> = known.chain(times).collect();
        (self.since, self.latest) = (all.iter().min().copied(), all.iter().max().copied());
    }

    /// Whether it is why a pod does not leave; a pod that stays has no such cause.
    pub fn keeps(&self, pod: &PodReference) -> bool {
        self.outlook != Outlook::Stays && self.pods.contains(&pod.to_string())
    }

    /// Leaves the remedy to another cause.
    pub fn clear_remedy(&mut self) {
        (self.advice, self.commands, self.left_out) = (String::new(), Vec::new(), Vec::new());
    }

    /// A cause of which only these times are known.
    pub(super) fn of_times(times: impl IntoIterator<Item = Timestamp>) -> Self {
        let mut cause = Self::default();
        cause.add_times(times);
        cause
    }
}

impl Unseen {
    /// `Not known, because you have no permission to list pods.`
    pub(super) fn sentence(&self) -> String {
        format!("Not known, because {}.", self.why())
    }

    /// `you have no permission to list pods`.
    pub(super) fn why(&self) -> String {
        match self {
            Self::Forbidden(access) => format!("you have no permission to {access}"),
            Self::Failed(request, error) => {
                format!("the request to {request} failed: {}", error.trim_end_matches('.'))
            }
        }
    }
}

/// The first few distinct texts.
pub(super) fn few(texts: impl IntoIterator<Item = String>) -> Vec<String> {
    few_of(texts).0
}

/// The first few distinct texts, and those that are left out.
pub(super) fn few_of(texts: impl IntoIterator<Item = String>) -> (Vec<String>, Vec<String>) {
    let mut seen = BTreeSet::new();
    let mut few: Vec<String> = texts.into_iter().filter(|text| seen.insert(text.clone())).collect();
    // One more is no longer than to say that there is one.
    let most = if few.len() > MAX_EXAMPLES + 1 { MAX_EXAMPLES } else { few.len() };
    let left_out = few.split_off(most);
    (few, left_out)
}

/// `2 more commands are left out here`.
pub fn left_out_words(count: usize, what: &str) -> String {
    let are = if count == 1 { "is" } else { "are" };
    format!("{} {are} left out here", counted(count, &format!("more {what}")))
}

/// `5 more budgets are alike.`
pub fn alike_words(count: usize) -> String {
    format!("{} are alike.", counted(count, "more budget"))
}

/// The sentence with a full stop, and with a capital letter unless it begins with a name. One that was cut stays so.
pub fn sentence(text: &str) -> String {
    let text = text.trim_end();
    let end = if text.ends_with("...") { "..." } else { "." };
    capitalized(&format!("{}{end}", text.trim_end_matches('.')))
}

/// The text with a capital letter, unless it begins with a name: a first word that is not of letters alone.
pub fn capitalized(text: &str) -> String {
    let first = text.split(' ').next().unwrap_or_default();
    if first.is_empty() || !first.bytes().all(|byte| byte.is_ascii_lowercase()) {
        return text.to_owned();
    }
    let (initial, rest) = text.split_at(1);
    format!("{}{rest}", initial.to_ascii_uppercase())
}

/// A sentence that begins with a verb, inside of another sentence.
pub(super) fn continued(text: &str) -> String {
    let mut chars = text.chars();
    chars.next().map_or_else(String::new, |initial| initial.to_lowercase().chain(chars).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sentence_begins_with_a_capital_letter_unless_that_would_change_a_name() {
        for (text, expected) in [
            ("position 1 of 2 in the queue", "Position 1 of 2 in the queue."),
            ("shop/web-2 is starting..", "shop/web-2 is starting."),
            (
                "nm-reconciler has not started the maintenance yet.",
                "nm-reconciler has not started the maintenance yet.",
            ),
            ("PDB shop/cart needs 3", "PDB shop/cart needs 3."),
            ("1 Preemption is ...", "1 Preemption is ..."),
            ("", "."),
        ] {
            assert_eq!(sentence(text), expected);
        }
    }
}
