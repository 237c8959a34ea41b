//! What the words before the one that is being completed say, as far as they make sense yet.

use std::ffi::OsString;

use clap::{CommandFactory, FromArgMatches};

use crate::cli::Cli;
use crate::connection::ConnectionFlags;

/// What is typed already.
#[derive(Debug, Default)]
pub(super) struct Typed {
    /// Which cluster it is about.
    pub(super) connection: ConnectionFlags,
    /// The nodes that are named already.
    pub(super) nodes: Vec<String>,
    /// Whether the nodes are chosen by a flag beside which none may be named.
    pub(super) are_chosen: bool,
}

impl Typed {
    /// Reads the words after the program's name.
    pub(super) fn of(words: &[OsString]) -> Self {
        let line = std::iter::once(OsString::from("kubectl-nm")).chain(words.iter().cloned());
        let Ok(matches) = Cli::command().ignore_errors(true).try_get_matches_from(line) else {
            return Self::default();
        };
        let named = |(_, verb): (&str, &clap::ArgMatches)| -> Option<Vec<String>> {
            Some(verb.try_get_many::<String>("nodes").ok()??.cloned().collect())
        };
        let are_chosen = |(_, verb): (&str, &clap::ArgMatches)| {
            let by_labels = matches!(verb.try_get_one::<String>("selector"), Ok(Some(_)));
            by_labels || matches!(verb.try_get_one::<bool>("all"), Ok(Some(true)))
        };
        Self {
            are_chosen: matches.subcommand().is_some_and(are_chosen),
            connection: ConnectionFlags::from_arg_matches(&matches).unwrap_or_default(),
            nodes: matches.subcommand().and_then(named).unwrap_or_default(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn half_a_line_says_what_it_can() {
        for (line, context, nodes) in [
            ("", None, vec![]),
            ("start", None, vec![]),
            ("--context a stop n1 node/n2", Some("a"), vec!["n1", "n2"]),
            ("start n1 --context=b --reason", Some("b"), vec!["n1"]),
            ("stop n1 --context b --no-such-flag", Some("b"), vec!["n1"]),
            ("frobnicate --context b", None, vec![]),
            ("start --help", None, vec![]),
        ] {
            let words: Vec<OsString> = line.split_whitespace().map(Into::into).collect();
            let typed = Typed::of(&words);
            assert_eq!(typed.connection.context.as_deref(), context, "{line}");
            assert_eq!(typed.nodes, nodes, "{line}");
        }
    }

    #[test]
    fn nodes_that_a_flag_chooses_are_not_to_be_named() {
        for (line, are_chosen) in [
            ("start -l a=b", true),
            ("stop --selector=a=b -y", true),
            ("stop --all", true),
            ("start", false),
            ("start -f nodes", false),
            ("stop n1 --wait", false),
            ("status", false),
        ] {
            let words: Vec<OsString> = line.split_whitespace().map(Into::into).collect();
            assert_eq!(Typed::of(&words).are_chosen, are_chosen, "{line}");
        }
    }
}
