//! What somebody may have meant who typed a command that there is not.
//!
//! Here clap's own guesses would be dangerous: it takes `list` for `install`, which changes the cluster.

use clap::CommandFactory;
use clap::error::{ContextKind, ContextValue, ErrorKind};

use crate::args::suggestion::closest;
use crate::cli::Cli;

/// Other programs' words for what our commands do: what is typed, the command, and what that does.
const KNOWN_ELSEWHERE: &[(&[&str], &str, &str)] = &[
    (&["drain", "cordon"], "start", "cordons nodes and moves their pods away"),
    (&["uncordon"], "stop", "gives nodes back"),
    (&["get", "list", "ls"], "status", "shows the nodes in maintenance"),
    (&["top"], "watch", "shows how maintenances get on"),
    (&["describe"], "explain", "says why a maintenance is stuck"),
];

/// Flags of `kubectl drain` that there are not here, and what to do without them.
const FLAGS_OF_DRAIN: &[(&str, &str)] = &[
    ("--ignore-daemonsets", "leave it out: pods of DaemonSets always stay"),
    (
        "--delete-local-data",
        "leave it out: pods with emptyDir volumes are evicted unless --delete-emptydir-data=false",
    ),
    (
        "--disable-eviction",
        "--delete-after 10m deletes pods past their budgets, after they were refused for so long",
    ),
    (
        "--skip-wait-for-delete-timeout",
        "leave it out; in a NodeMaintenance it is spec.drain.skipWaitForDeleteTimeoutSeconds",
    ),
    ("--chunk-size", "leave it out: it has no meaning here"),
];

/// What to do about it, if that is what is wrong with the command line; it takes the place of what clap would say.
pub(crate) fn hint(said: &mut clap::Error) -> Option<String> {
    match said.kind() {
        ErrorKind::InvalidSubcommand => {}
        ErrorKind::UnknownArgument => return flag_of_drain(said),
        _ => return None,
    }
    for theirs in [ContextKind::SuggestedSubcommand, ContextKind::Suggested] {
        said.remove(theirs);
    }
    match said.get(ContextKind::InvalidSubcommand) {
        Some(ContextValue::String(wrong)) => meant(wrong),
        _ => None,
    }
}

fn flag_of_drain(said: &mut clap::Error) -> Option<String> {
    let Some(ContextValue::String(wrong)) = said.get(ContextKind::InvalidArg) else { return None };
    let wrong = wrong.split('=').next().unwrap_or_default();
    let (flag, instead) = FLAGS_OF_DRAIN.iter().find(|(flag, _)| *flag == wrong)?;
    for theirs in [ContextKind::SuggestedArg, ContextKind::SuggestedValue, ContextKind::Suggested] {
        said.remove(theirs);
    }
    Some(format!("{flag} is a flag of kubectl drain; {instead}"))
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
            ("top", Some("`kubectl nm watch` shows how maintenances get on")),
            ("frobnicate", None),
            ("mam", None),
        ] {
            assert_eq!(meant(wrong).as_deref(), expected, "{wrong}");
        }
    }

    #[test]
    fn no_command_of_kubectl_is_taken_for_one_that_changes_something() {
        const KUBECTL: &str = "annotate api-resources api-versions apply attach auth autoscale certificate cluster-info \
            config cordon cp create debug delete describe diff drain edit events exec explain expose get kustomize label \
            logs options patch plugin port-forward proxy replace rollout run scale set taint top uncordon version wait";
        for word in KUBECTL.split_whitespace().filter(|word| !["cordon", "drain", "uncordon"].contains(word))
        {
            let meant = meant(word).unwrap_or_default();
            for changing in ["start", "stop", "install", "uninstall"] {
                assert!(!meant.contains(&format!("nm {changing}`")), "{word}: {meant}");
            }
        }
    }

    #[test]
    fn flags_of_kubectl_drain_are_told_what_takes_their_place() {
        for command in ["start", "plan"] {
            for (flag, instead) in FLAGS_OF_DRAIN {
                for line in [(*flag).to_owned(), format!("{flag}=true")] {
                    let mut said = Cli::try_parse_from(["kubectl-nm", command, "n1", &line]).unwrap_err();
                    let hint = hint(&mut said).unwrap();
                    assert_eq!(hint, format!("{flag} is a flag of kubectl drain; {instead}"));
                    assert!(!said.to_string().contains("tip: "), "{said}");
                }
            }
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
