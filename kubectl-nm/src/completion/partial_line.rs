//! The part of the command line before the incomplete word.

use std::ffi::OsString;

use clap::FromArgMatches;
use nm_core::connection::ConnectionFlags;

pub(crate) type CommandFn = fn() -> clap::Command;

#[derive(Debug, Default)]
pub(super) struct PartialLine {
    pub(super) connection: ConnectionFlags,
    pub(super) nodes: Vec<String>,
    /// Whether a flag selects nodes, so that none can be named.
    pub(super) has_node_selector: bool,
}

impl PartialLine {
    pub(super) fn parse(words: &[OsString], command: CommandFn) -> Self {
        let line = std::iter::once(OsString::from("kubectl-nm")).chain(words.iter().cloned());
        let Ok(matches) = command().ignore_errors(true).try_get_matches_from(line) else {
            return Self::default();
        };
        let named = |(_, verb): (&str, &clap::ArgMatches)| -> Option<Vec<String>> {
            Some(verb.try_get_many::<String>("nodes").ok()??.cloned().collect())
        };
        let has_node_selector = |(_, verb): (&str, &clap::ArgMatches)| {
            let by_labels = matches!(verb.try_get_one::<String>("selector"), Ok(Some(_)));
            by_labels || matches!(verb.try_get_one::<bool>("all"), Ok(Some(true)))
        };
        Self {
            has_node_selector: matches.subcommand().is_some_and(has_node_selector),
            connection: ConnectionFlags::from_arg_matches(&matches).unwrap_or_default(),
            nodes: matches.subcommand().and_then(named).unwrap_or_default(),
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;
    use crate::cli::Cli;

    #[test]
    fn incomplete_lines_are_parsed_as_far_as_possible() {
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
            let typed = PartialLine::parse(&words, Cli::command);
            assert_eq!(typed.connection.context.as_deref(), context, "{line}");
            assert_eq!(typed.nodes, nodes, "{line}");
        }
    }

    #[test]
    fn flags_that_select_nodes_are_detected() {
        for (line, has_node_selector) in [
            ("start -l a=b", true),
            ("stop --selector=a=b -y", true),
            ("stop --all", true),
            ("start", false),
            ("start -f nodes", false),
            ("stop n1 --wait", false),
            ("status", false),
        ] {
            let words: Vec<OsString> = line.split_whitespace().map(Into::into).collect();
            assert_eq!(
                PartialLine::parse(&words, Cli::command).has_node_selector,
                has_node_selector,
                "{line}"
            );
        }
    }
}
