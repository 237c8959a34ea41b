//! What somebody may have meant who typed a command that there is not.
//!
//! Here clap's own guesses would be dangerous: it takes `list` for `install`, which changes the cluster.

use clap::CommandFactory;
use clap::error::{ContextKind, ContextValue, ErrorKind};

use crate::cli::Cli;
use crate::suggestion::closest;

/// Other programs' words for what our commands do: what is typed, the command, and what that does.
const KNOWN_ELSEWHERE: &[(&[&str], &str, &str)] = &[
    (&["drain", "cordon"], "start", "cordons nodes and moves their pods away"),
    (&["uncordon"], "stop", "gives nodes back"),
    (&["get", "list", "ls"], "status", "shows the nodes in maintenance"),
];

/// What to do about it, if that is what is wrong with the command line; it takes the place of what clap would say.
pub(crate) fn hint(said: &mut clap::Error) -> Option<String> {
    if said.kind() != ErrorKind::InvalidSubcommand {
        return None;
    }
    for theirs in [ContextKind::SuggestedSubcommand, ContextKind::Suggested] {
        said.remove(theirs);
    }
    match said.get(ContextKind::InvalidSubcommand) {
        Some(ContextValue::String(wrong)) => meant(wrong),
        _ => None,
    }
}

fn meant(wrong: &str) -> Option<String> {
    if let Some((_, command, does)) = KNOWN_ELSEWHERE.iter().find(|(words, ..)| words.contains(&wrong)) {
        return Some(format!("`kubectl nm {command}` {does}"));
    }
    let known = Cli::command();
    let known = known.get_subcommands().filter(|command| !command.is_hide_set()).map(clap::Command::get_name);
    let near: Vec<String> = closest(wrong, known).iter().map(|name| format!("`kubectl nm {name}`")).collect();
    (!near.is_empty()).then(|| format!("did you mean {}?", near.join(" or ")))
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[test]
    fn a_misspelt_command_is_told_the_right_one() {
        for (wrong, expected) in [
            ("wacth", Some("did you mean `kubectl nm watch`?")),
            ("strat", Some("did you mean `kubectl nm start`?")),
            ("statu", Some("did you mean `kubectl nm status`?")),
            ("list", Some("`kubectl nm status` shows the nodes in maintenance")),
            ("drain", Some("`kubectl nm start` cordons nodes and moves their pods away")),
            ("uncordon", Some("`kubectl nm stop` gives nodes back")),
            ("frobnicate", None),
            ("mam", None),
        ] {
            assert_eq!(meant(wrong).as_deref(), expected, "{wrong}");
        }
    }

    #[test]
    fn what_stands_for_another_word_is_a_command() {
        let command = Cli::command();
        for (words, ours, _) in KNOWN_ELSEWHERE {
            assert!(command.find_subcommand(ours).is_some(), "{ours}");
            assert!(words.iter().all(|word| command.find_subcommand(word).is_none()), "{words:?}");
        }
    }

    #[test]
    fn other_mistakes_are_left_to_others() {
        let mut said = Cli::try_parse_from(["kubectl-nm", "start", "--raeson", "x", "n1"]).unwrap_err();
        assert_eq!(hint(&mut said), None);
        assert!(said.to_string().contains("--reason"), "{said}");
    }
}
