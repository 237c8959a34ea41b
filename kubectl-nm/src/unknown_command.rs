//! Suggestions for unknown commands and flags, and what the errors about them repeat.
//!
//! clap's own suggestions would be dangerous: for `list` it suggests `install`, which changes the cluster.

use std::ffi::OsString;

use clap::CommandFactory;
use clap::error::{ContextKind, ContextValue, ErrorKind};
use nm_core::args::names::closest;
use nm_core::terminal::command_context::shell_quoted;
use nm_core::terminal::shortened::beginning;

use crate::cli::Cli;

/// Commands of other programs: the words, the corresponding command, and what that does.
const COMMANDS_OF_OTHERS: &[(&[&str], &str, &str)] = &[
    (&["drain", "cordon"], "start", "cordons nodes and evicts their pods"),
    (&["uncordon"], "stop", "returns nodes to service"),
    (&["suspend", "hold"], "pause", "evicts no more pods of a node and keeps it cordoned"),
    (&["continue", "unpause"], "resume", "continues maintenances that are paused"),
    (&["get", "list", "ls"], "status", "shows the nodes in maintenance"),
    (&["top"], "watch", "shows the progress of maintenances"),
    (&["describe"], "explain", "shows why a maintenance is blocked"),
];

/// Flags of `kubectl drain` that this program does not have, and what to do instead.
const FLAGS_OF_DRAIN: &[(&str, &str)] = &[
    ("--ignore-daemonsets", "omit it: pods of DaemonSets always stay"),
    (
        "--delete-local-data",
        "omit it: pods with emptyDir volumes are evicted unless --delete-emptydir-data=false",
    ),
    ("--disable-eviction", "to delete pods regardless of budgets after 10 minutes, use --delete-after 10m"),
    (
        "--skip-wait-for-delete-timeout",
        "omit it; a NodeMaintenance has spec.drain.skipWaitForDeleteTimeoutSeconds",
    ),
    ("--chunk-size", "omit it: it has no effect here"),
];

/// Flags of `kubectl get` that this program does not have, and what to do instead.
const FLAGS_OF_GET: &[(&str, &str)] = &[
    ("-w", "`kubectl nm watch` shows changes"),
    ("--watch", "`kubectl nm watch` shows changes"),
    ("--no-headers", "for scripts, use -o json or -o name"),
    ("--sort-by", "the maintenances are sorted by node; use -o json for another order"),
];

/// The hint about an unknown command or flag, which replaces clap's suggestions.
pub(crate) fn hint(error: &mut clap::Error, arguments: &[OsString]) -> Option<String> {
    match error.kind() {
        ErrorKind::InvalidSubcommand => {}
        ErrorKind::MissingRequiredArgument => return roll_hint(arguments),
        ErrorKind::UnknownArgument => return flag_hint(error),
        ErrorKind::ValueValidation => return separate_value_hint(error, arguments),
        _ => return None,
    }
    for suggestion in [ContextKind::SuggestedSubcommand, ContextKind::Suggested] {
        error.remove(suggestion);
    }
    match error.get(ContextKind::InvalidSubcommand) {
        Some(ContextValue::String(wrong)) => command_hint(wrong),
        _ => None,
    }
}

/// Cuts what an error repeats of the command line, which may be the content of a file.
pub(crate) fn shorten_values(error: &mut clap::Error) {
    for kind in [ContextKind::InvalidValue, ContextKind::InvalidArg, ContextKind::InvalidSubcommand] {
        if let Some(ContextValue::String(text)) = error.get(kind) {
            let short = beginning(text);
            error.insert(kind, ContextValue::String(short));
        }
    }
}

fn flag_hint(error: &mut clap::Error) -> Option<String> {
    let Some(ContextValue::String(wrong)) = error.get(ContextKind::InvalidArg) else { return None };
    let wrong = wrong.split('=').next().unwrap_or_default().to_owned();
    let of = |flags: &'static [(&str, &str)], origin: &'static str| {
        flags.iter().find(|(flag, _)| *flag == wrong).map(|(flag, instead)| (flag, origin, instead))
    };
    let known = of(FLAGS_OF_DRAIN, "kubectl drain").or_else(|| of(FLAGS_OF_GET, "kubectl get"));
    // clap also suggests flags that have little in common with the wrong one, in its usage too, and without any that the
    // flag is meant as the name of a node.
    let is_near = match error.get(ContextKind::SuggestedArg) {
        Some(ContextValue::String(near)) => !closest(&wrong, [near.as_str()]).is_empty(),
        _ => false,
    };
    if known.is_some() || !is_near {
        let suggests = error.get(ContextKind::SuggestedArg).is_some();
        for suggestion in [ContextKind::SuggestedArg, ContextKind::SuggestedValue, ContextKind::Suggested] {
            error.remove(suggestion);
        }
        if suggests {
            error.remove(ContextKind::Usage);
        }
    }
    known.map(|(flag, origin, instead)| format!("{flag} is a flag of {origin}; {instead}"))
}

/// clap takes the word after a flag whose value follows an equals sign for the name of a node.
fn separate_value_hint(error: &clap::Error, arguments: &[OsString]) -> Option<String> {
    let Some(ContextValue::String(value)) = error.get(ContextKind::InvalidValue) else { return None };
    let is_value = |pair: &&[OsString]| pair[1].to_str() == Some(value);
    let flag = arguments.windows(2).find(is_value)?[0].to_str()?;
    let name = flag.strip_prefix("--")?;
    let command = Cli::command();
    let mut known = command.get_subcommands().flat_map(clap::Command::get_arguments);
    let needs_equals = known.any(|known| known.get_long() == Some(name) && known.is_require_equals_set());
    // After the first equals sign, another one needs no quotes.
    let bare = value.replace('=', "");
    let quoted = if shell_quoted(&bare) == bare { value.into() } else { shell_quoted(value) };
    needs_equals.then(|| format!("the value follows an equals sign: {flag}={quoted}"))
}

/// clap takes a misspelt command of `roll` for the name of a node, and then misses what a roll of that node needs.
fn roll_hint(arguments: &[OsString]) -> Option<String> {
    let mut words = arguments.iter().filter_map(|word| word.to_str()).skip_while(|word| *word != "roll");
    let (roll, wrong) = (words.next()?, words.next()?);
    let known = Cli::command();
    let known: Vec<&str> =
        known.find_subcommand(roll)?.get_subcommands().map(clap::Command::get_name).collect();
    // What misses an argument is the command itself.
    if known.contains(&wrong) {
        return None;
    }
    let near: Vec<String> =
        closest(wrong, known).iter().map(|name| format!("`kubectl nm {roll} {name}`")).collect();
    (!near.is_empty()).then(|| format!("did you mean {}?", near.join(" or ")))
}

fn command_hint(wrong: &str) -> Option<String> {
    if let Some((_, command, effect)) = COMMANDS_OF_OTHERS.iter().find(|(words, ..)| words.contains(&wrong)) {
        return Some(format!("`kubectl nm {command}` {effect}"));
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
    fn unknown_commands_get_a_suggestion() {
        for (wrong, expected) in [
            ("wacth", Some("did you mean `kubectl nm watch`?")),
            ("strat", Some("did you mean `kubectl nm start`?")),
            ("statu", Some("did you mean `kubectl nm status`?")),
            ("list", Some("`kubectl nm status` shows the nodes in maintenance")),
            ("drain", Some("`kubectl nm start` cordons nodes and evicts their pods")),
            ("uncordon", Some("`kubectl nm stop` returns nodes to service")),
            ("top", Some("`kubectl nm watch` shows the progress of maintenances")),
            ("frobnicate", None),
            ("mam", None),
        ] {
            assert_eq!(command_hint(wrong).as_deref(), expected, "{wrong}");
        }
    }

    #[test]
    fn commands_of_kubectl_suggest_no_command_that_changes_the_cluster() {
        const KUBECTL: &str = "annotate api-resources api-versions apply attach auth autoscale certificate cluster-info \
            config cordon cp create debug delete describe diff drain edit events exec explain expose get kustomize label \
            logs options patch plugin port-forward proxy replace rollout run scale set taint top uncordon version wait";
        for word in KUBECTL.split_whitespace().filter(|word| !["cordon", "drain", "uncordon"].contains(word))
        {
            let hint = command_hint(word).unwrap_or_default();
            for changing in ["start", "stop", "install", "uninstall"] {
                assert!(!hint.contains(&format!("nm {changing}`")), "{word}: {hint}");
            }
        }
    }

    #[test]
    fn flags_of_kubectl_drain_get_an_alternative() {
        for command in ["start", "plan"] {
            for (flag, instead) in FLAGS_OF_DRAIN {
                for line in [(*flag).to_owned(), format!("{flag}=true")] {
                    let mut error = Cli::try_parse_from(["kubectl-nm", command, "n1", &line]).unwrap_err();
                    let hint = hint(&mut error, &[]).unwrap();
                    assert_eq!(hint, format!("{flag} is a flag of kubectl drain; {instead}"));
                    assert!(!error.to_string().contains("tip: "), "{error}");
                }
            }
        }
    }

    #[test]
    fn flags_of_kubectl_get_get_an_alternative_and_far_ones_no_suggestion() {
        for (flag, instead) in FLAGS_OF_GET {
            let mut error = Cli::try_parse_from(["kubectl-nm", "status", flag]).unwrap_err();
            assert_eq!(hint(&mut error, &[]).unwrap(), format!("{flag} is a flag of kubectl get; {instead}"));
            assert!(!error.to_string().contains("tip: "), "{error}");
            assert!(!error.to_string().contains("--cache-dir"), "{error}");
        }
        for far in ["--no-cache", "--watch-only"] {
            let mut error = Cli::try_parse_from(["kubectl-nm", "status", far]).unwrap_err();
            assert_eq!(hint(&mut error, &[]), None);
            for suggestion in ["similar", "tip: ", "--cache-dir"] {
                assert!(!error.to_string().contains(suggestion), "{error}");
            }
        }
    }

    #[test]
    fn a_dry_run_without_a_value_is_one_of_the_client() {
        for line in [["start", "n1", "--dry-run"], ["plan", "n1", "--dry-run"]] {
            Cli::try_parse_from(std::iter::once("kubectl-nm").chain(line)).unwrap();
        }
        Cli::try_parse_from(["kubectl-nm", "install", "--dry-run"]).unwrap();
    }

    #[test]
    fn a_value_after_a_flag_that_takes_it_after_an_equals_sign_gets_the_right_form() {
        for (line, expected) in [
            (
                &["kubectl-nm", "start", "n3", "--wait-for-completion", "job-name=b"][..],
                Some("the value follows an equals sign: --wait-for-completion=job-name=b"),
            ),
            (&["kubectl-nm", "start", "--reason", "x", "a=b"], None),
            (&["kubectl-nm", "start", "--suspend", "a=b"], None),
        ] {
            let mut error = Cli::try_parse_from(line).unwrap_err();
            let arguments: Vec<OsString> = line.iter().map(Into::into).collect();
            assert_eq!(hint(&mut error, &arguments).as_deref(), expected, "{line:?}");
        }
    }

    #[test]
    fn a_misspelt_command_of_roll_gets_a_suggestion() {
        for (line, expected) in [
            (&["kubectl-nm", "roll", "statsu"][..], Some("did you mean `kubectl nm roll status`?")),
            (
                &["kubectl-nm", "--context", "prod", "roll", "resme"],
                Some("did you mean `kubectl nm roll resume`?"),
            ),
            (&["kubectl-nm", "roll", "node-1"], None),
            (&["kubectl-nm", "roll", "abort"], None),
            (&["kubectl-nm", "roll", "resume", "--skip", "n1"], None),
            (&["kubectl-nm", "roll", "history"], None),
            (&["kubectl-nm", "roll"], None),
        ] {
            let mut error = Cli::try_parse_from(line).unwrap_err();
            let arguments: Vec<OsString> = line.iter().map(Into::into).collect();
            assert_eq!(hint(&mut error, &arguments).as_deref(), expected, "{line:?}");
        }
    }

    #[test]
    fn values_that_are_too_long_are_repeated_in_short() {
        let long = "x".repeat(9_000);
        for line in [
            &["start", "n1", "--timeout", &long][..],
            &["start", &long.to_uppercase()],
            &["start", "n1", &format!("--{long}")],
            &["start", "n1", "--order", &long],
            &[&long],
            &["start", "n1", "--pod-selector", &format!("a={long}")],
        ] {
            let line = std::iter::once("kubectl-nm").chain(line.iter().copied());
            let mut error = Cli::try_parse_from(line).unwrap_err();
            hint(&mut error, &[]);
            shorten_values(&mut error);
            let said = error.to_string();
            assert!(said.len() < 900 && said.to_lowercase().contains("xxx ..."), "{said}");
        }
    }

    #[test]
    fn suggested_commands_exist() {
        let command = Cli::command();
        for (words, ours, _) in COMMANDS_OF_OTHERS {
            assert!(command.find_subcommand(ours).is_some(), "{ours}");
            assert!(words.iter().all(|word| command.find_subcommand(word).is_none()), "{words:?}");
        }
    }

    #[test]
    fn other_errors_keep_the_suggestions_of_clap() {
        let mut error = Cli::try_parse_from(["kubectl-nm", "start", "--raeson", "x", "n1"]).unwrap_err();
        assert_eq!(hint(&mut error, &[]), None);
        assert!(error.to_string().contains("--reason"), "{error}");
    }
}
