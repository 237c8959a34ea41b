//! The causes of several nodes, each once.

use std::collections::BTreeSet;

use nm_core::explain::cause::{Cause, alike_words, left_out_words};
use nm_core::explain::outage_causes::are_down;
use nm_core::terminal::text::first_names;

/// How many commands of a cause of several nodes are printed, and sentences about what is not known.
const MAX_COMMANDS: usize = 5;

/// How many sentences of a cause of several nodes are printed.
const MAX_SENTENCES: usize = 8;

/// How to see what is left out of a cause of several nodes.
pub(super) const ONE_BY_ONE: &str = "explain the nodes one by one to see more";

/// A cause of one or more nodes.
pub(super) struct CommonCause {
    pub(super) cause: Cause,
    pub(super) nodes: Vec<String>,
    /// What it is, each sentence with the nodes of which it is true, apart from the sentence that names workloads.
    what: Vec<(String, Vec<String>)>,
    /// The sentences that are left out.
    left_out: BTreeSet<String>,
}

impl CommonCause {
    /// Adds a cause of a node to those that are known.
    pub(super) fn add(all: &mut Vec<Self>, cause: Cause, node: &str) {
        let is_alike = |known: &&mut Self| {
            let known = &known.cause;
            let is_common = known.common.is_some() && known.common == cause.common;
            (known.what == cause.what || is_common)
                && (&known.advice, known.outlook) == (&cause.advice, cause.outlook)
        };
        let sentences = cause.what.iter().skip(usize::from(!cause.down.is_empty())).cloned();
        let Some(Self { cause: known, nodes, what, left_out }) = all.iter_mut().find(is_alike) else {
            let what = sentences.map(|text| (text, vec![node.to_owned()])).collect();
            all.push(Self { cause, nodes: vec![node.to_owned()], what, left_out: BTreeSet::new() });
            return;
        };
        // What each of them counts is counted together.
        let [of_known, of_new] = [&known.alike, &cause.alike].map(|alike| alike_words(alike.len()));
        what.retain(|(text, _)| known.alike.is_empty() || *text != of_known);
        let sentences = sentences.filter(|text| cause.alike.is_empty() || *text != of_new);
        left_out.extend(std::mem::take(&mut known.alike));
        if !nodes.iter().any(|known| known == node) {
            nodes.push(node.to_owned());
        }
        left_out.extend(add_sentences(what, sentences.collect(), node));
        left_out.extend(cause.alike);
        let down: Vec<String> = cause.down.into_iter().filter(|name| !known.down.contains(name)).collect();
        known.down.extend(down);
        known.pods.extend(cause.pods);
        known.add_times(cause.since.into_iter().chain(cause.latest));
        known.refusals = known.refusals.saturating_add(cause.refusals);
        let unseen: Vec<String> =
            cause.unseen.into_iter().filter(|text| !known.unseen.contains(text)).collect();
        known.unseen.extend(unseen);
        known.unseen.truncate(MAX_COMMANDS);
        known.commands.extend(cause.commands);
        known.left_out.extend(cause.left_out);
    }

    /// Leaves out all but the first commands of several nodes.
    pub(super) fn shorten_commands(&mut self) {
        let Cause { commands, left_out, .. } = &mut self.cause;
        let mut seen = BTreeSet::new();
        commands.retain(|command| seen.insert(command.clone()));
        left_out.retain(|command| seen.insert(command.clone()));
        if self.nodes.len() < 2 {
            return;
        }
        commands.append(left_out);
        // One more is no longer than to say that there is one.
        if commands.len() > MAX_COMMANDS + 1 {
            *left_out = commands.split_off(MAX_COMMANDS);
        }
    }

    /// What it is. A sentence that is not true of all nodes names those that it is about.
    pub(super) fn sentences(&self) -> Vec<String> {
        let of = |(text, nodes): &(String, Vec<String>)| {
            let is_about_all = nodes.len() == self.nodes.len();
            if is_about_all { text.clone() } else { format!("{}: {text}", first_names(nodes)) }
        };
        let is_down = match self.cause.down.as_slice() {
            [] => None,
            [_] => self.cause.what.first().cloned(),
            down => Some(are_down(down)),
        };
        let is_shown = |text: &&String| self.what.iter().any(|(shown, _)| shown == *text);
        let more = self.left_out.iter().filter(|text| !is_shown(text)).count();
        let left_out = (more > 0).then(|| format!("{}: {ONE_BY_ONE}.", left_out_words(more, "detail")));
        is_down.into_iter().chain(self.what.iter().map(of)).chain(left_out).collect()
    }
}

/// Adds the sentences that are new, before the last one if both end with it: the cause follows the numbers of its budgets. Returns
/// those that are too many.
fn add_sentences(known: &mut Vec<(String, Vec<String>)>, more: Vec<String>, node: &str) -> Vec<String> {
    let ends_alike = known.last().map(|(text, _)| text) == more.last();
    let end = known.len() - usize::from(ends_alike);
    let mut left = MAX_SENTENCES.saturating_sub(known.len());
    let (mut new, mut left_out) = (Vec::new(), Vec::new());
    for text in more {
        match known.iter_mut().find(|(known, _)| *known == text) {
            Some((_, nodes)) if nodes.iter().any(|known| known == node) => {}
            Some((_, nodes)) => nodes.push(node.to_owned()),
            None if left > 0 => {
                left -= 1;
                new.push((text, vec![node.to_owned()]));
            }
            None => left_out.push(text),
        }
    }
    known.splice(end..end, new);
    left_out
}
