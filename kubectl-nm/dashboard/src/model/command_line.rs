//! The command line, which `:` opens: the name of an action, and for some an argument.

use crate::config::action_table::{ACTIONS, Action};
use crate::config::appearance::ThemeName;
use crate::config::config_file::theme_name;
use crate::model::Model;
use crate::model::lists::listing::Sort;
use clap::ValueEnum;

/// How many names a node completes to at most.
const MAX_NODES: usize = 50;

/// What a command line asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct TypedCommand {
    pub(crate) action: Action,
    /// What follows the name, without blanks around it.
    pub(crate) argument: String,
}

/// What is wrong with a command line.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum CommandLineError {
    #[error("there is no command \"{name}\"{}", .meant.map_or_else(String::new, |name| format!("; did you mean {name}?")))]
    Unknown { name: String, meant: Option<&'static str> },
    #[error("{0} takes no argument")]
    Argument(String),
    #[error("there is no order \"{0}\"")]
    Order(String),
}

impl Model {
    /// The names that can complete the last word before the end of a command line, in order.
    pub(crate) fn completions(&self, line: &str) -> Vec<String> {
        let (words, last) = line.rsplit_once(' ').unwrap_or(("", line));
        let fitting = |words: Vec<String>| -> Vec<String> {
            words.into_iter().filter(|word| word.starts_with(last)).collect()
        };
        if words.trim().is_empty() {
            return fitting(self.commands());
        }
        // Only a single word after the name is completed.
        if words.trim().contains(' ') {
            return Vec::new();
        }
        fitting(match action_named(words.trim()) {
            Some(Action::Sort) => self.rows().sorts().iter().map(|sort| sort.word().to_owned()).collect(),
            Some(Action::Theme) => {
                ThemeName::value_variants().iter().copied().filter_map(theme_name).collect()
            }
            Some(Action::Open) => {
                let known = self.fleet.node_names().filter(|name| name.starts_with(last));
                known.take(MAX_NODES).map(str::to_owned).collect()
            }
            Some(Action::Filter) => {
                let keys = ["ns:", "state:", "node:", "phase:", "reason:", "object:", "workload:"];
                keys.map(String::from).to_vec()
            }
            _ => Vec::new(),
        })
    }

    /// What completes the last word, as far as there is only one continuation.
    pub(crate) fn completion(&self, line: &str) -> Option<String> {
        let last = line.rsplit(' ').next().unwrap_or_default();
        let candidates = self.completions(line);
        let mut common = candidates.first()?.clone();
        for candidate in &candidates {
            let same = common.chars().zip(candidate.chars()).take_while(|(a, b)| a == b);
            common = same.map(|(c, _)| c).collect();
        }
        let mut rest = common.strip_prefix(last)?.to_owned();
        if candidates.len() == 1 && !common.ends_with(':') {
            rest.push(' ');
        }
        (!rest.is_empty()).then_some(rest)
    }

    /// The names of the actions that the view offers.
    fn commands(&self) -> Vec<String> {
        let view = self.view();
        let offered = ACTIONS.iter().filter(|entry| {
            let is_offered = entry.views.contains(&view) && self.options.offers(entry);
            is_offered && entry.action != Action::Command
        });
        let mut names: Vec<String> = offered.map(|entry| entry.name.to_owned()).collect();
        names.sort();
        names
    }
}

impl TypedCommand {
    /// # Errors
    ///
    /// What is wrong with the line.
    pub(crate) fn parse(line: &str) -> Result<Self, CommandLineError> {
        let line = line.trim();
        let (name, argument) = line.split_once(' ').unwrap_or((line, ""));
        let action = action_named(name).ok_or_else(|| {
            let nearest = ACTIONS.iter().map(|entry| (strsim::jaro_winkler(name, entry.name), entry.name));
            let nearest = nearest.max_by(|(a, _), (b, _)| a.total_cmp(b)).filter(|(near, _)| *near > 0.8);
            CommandLineError::Unknown { name: name.to_owned(), meant: nearest.map(|(_, known)| known) }
        })?;
        let argument = argument.trim().to_owned();
        let takes_one = matches!(action, Action::Sort | Action::Theme | Action::Open | Action::Filter);
        if !argument.is_empty() && !takes_one {
            return Err(CommandLineError::Argument(name.to_owned()));
        }
        if action == Action::Sort && !argument.is_empty() && Sort::named(&argument).is_none() {
            return Err(CommandLineError::Order(argument));
        }
        Ok(Self { action, argument })
    }
}

fn action_named(name: &str) -> Option<Action> {
    ACTIONS.iter().find(|entry| entry.name == name).map(|entry| entry.action)
}
