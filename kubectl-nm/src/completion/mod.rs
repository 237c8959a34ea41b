//! What may stand next on a line that is being typed, for the shell that asks.
//!
//! Shells ask in two ways. kubectl runs `kubectl_complete-nm` with the words after `kubectl nm`, the last of which is being
//! typed, and reads candidates and a directive, as programs made with cobra answer. The scripts of
//! `kubectl nm completion` run `kubectl-nm` with a variable that names their shell. Either way clap finds what may stand
//! there, in [`command`], which has `names` looked up where a name is due.

mod names;
mod typed;

use std::ffi::OsString;
use std::iter;
use std::path::Path;
use std::sync::Arc;

use clap::CommandFactory;
use clap_complete::engine::{self, ArgValueCandidates, CompletionCandidate};
use clap_complete::env::Shells;

use self::names::Kind;
use self::typed::Typed;
use crate::cli::Cli;
use crate::commands::completion::ASKING;
use crate::error::completion_link;
use crate::terminal::text::harmless;

/// The verbs that are about nodes before their maintenance; all others are about those in maintenance.
const BEFORE: [&str; 2] = ["start", "plan"];

/// cobra's `ShellCompDirective`: no space after the candidate, because more is to come.
const NO_SPACE: u8 = 2;
/// The same: no files instead, where there are no candidates.
const NO_FILES: u8 = 4;

/// What to answer, if it is a shell that asks.
pub(crate) fn answer(arguments: &[OsString]) -> Option<String> {
    let (program, words) = arguments.split_first()?;
    if Path::new(program).file_stem().is_some_and(|name| name == completion_link::NAME) {
        return Some(for_kubectl(words));
    }
    let shell = std::env::var(ASKING).ok()?;
    let begin = words.iter().position(|word| word == "--")? + 1;
    Some(for_script(&shell, &words[begin..]).unwrap_or_default())
}

/// Answers kubectl, which passes it on to the shell.
fn for_kubectl(words: &[OsString]) -> String {
    let (current, before) =
        words.split_last().map_or((OsString::new(), words), |(last, before)| (last.clone(), before));
    let program = iter::once(OsString::from("kubectl-nm"));
    let line: Vec<OsString> = program.chain(before.iter().cloned()).chain([current.clone()]).collect();
    let (at, here) = (line.len() - 1, std::env::current_dir().ok());
    let candidates = engine::complete(&mut command(before), line, at, here.as_deref()).unwrap_or_default();
    let candidates = candidates.iter().map(|candidate| {
        let help = candidate.get_help().map(ToString::to_string).unwrap_or_default();
        (candidate.get_value().to_string_lossy().into_owned(), help)
    });
    as_cobra(&current.to_string_lossy(), candidates)
}

/// Answers one of our scripts, in the way of its shell. The first word is the program.
fn for_script(shell: &str, words: &[OsString]) -> Option<String> {
    let (_, before) = words.split_last()?;
    let mut answer = Vec::new();
    let shells = Shells::builtins();
    let here = std::env::current_dir().ok();
    let mut command = command(before.get(1..).unwrap_or_default());
    shells
        .completer(shell)?
        .write_complete(&mut command, words.to_vec(), here.as_deref(), &mut answer)
        .ok()?;
    String::from_utf8(answer).ok()
}

/// Candidates and their meanings as cobra prints them: one a line, the meaning after a tab, then the directive.
/// `current` is the word so far: flags are offered only where one is begun, as kubectl does, and what stands before an
/// equals sign is put back by kubectl.
fn as_cobra(current: &str, candidates: impl Iterator<Item = (String, String)>) -> String {
    let is_flag = current.starts_with('-');
    let flag = if is_flag { current.find('=').map_or("", |equals| &current[..=equals]) } else { "" };
    let mut directive = NO_FILES;
    let mut answer = String::new();
    for (value, help) in candidates.filter(|(value, _)| is_flag || !value.starts_with('-')) {
        let value = value.strip_prefix(flag).unwrap_or(&value);
        if value.ends_with(['/', '=']) {
            directive |= NO_SPACE;
        }
        answer.push_str(&harmless(value));
        if let Some(meaning) = help.lines().next().filter(|meaning| !meaning.is_empty()) {
            answer.push('\t');
            answer.push_str(&harmless(meaning));
        }
        answer.push('\n');
    }
    answer + &format!(":{directive}\n")
}

/// The command line, with names to be looked up where one is due. `before` is what is typed already.
fn command(before: &[OsString]) -> clap::Command {
    let typed = Arc::new(Typed::of(before));
    let offer = |kind| {
        let typed = typed.clone();
        ArgValueCandidates::new(move || {
            names::of(kind, &typed).into_iter().map(CompletionCandidate::new).collect()
        })
    };
    let flags = [
        ("context", Kind::Context),
        ("cluster", Kind::Cluster),
        ("user", Kind::User),
        ("namespace", Kind::Namespace),
    ];
    let command = flags
        .into_iter()
        .fold(Cli::command(), |command, (flag, kind)| command.mut_arg(flag, |arg| arg.add(offer(kind))));
    let of_nodes =
        |arg: &&clap::Arg| arg.get_value_names().is_some_and(|names| names.contains(&"NODE".into()));
    let verbs: Vec<(String, clap::Id)> = command
        .get_subcommands()
        .filter_map(|verb| {
            let nodes = verb.get_positionals().find(of_nodes)?;
            Some((verb.get_name().to_owned(), nodes.get_id().clone()))
        })
        .collect();
    verbs.into_iter().fold(command, |command, (verb, nodes)| {
        let kind = if BEFORE.contains(&verb.as_str()) { Kind::NodeAtWork } else { Kind::NodeInMaintenance };
        command.mut_subcommand(verb, |verb| verb.mut_arg(nodes, |arg| arg.add(offer(kind))))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What kubectl is told when this is typed and the last word is not finished.
    fn answer(line: &str) -> Vec<String> {
        let words: Vec<OsString> = line.split(' ').map(Into::into).collect();
        for_kubectl(&words).lines().map(str::to_owned).collect()
    }

    #[test]
    fn verbs_flags_and_their_values_are_offered() {
        let kubeconfig = tempfile::NamedTempFile::new().unwrap();
        let contexts = "contexts: [{name: blue}, {name: green}, {name: $(reboot)}]\nclusters: [{name: c}]\n";
        std::fs::write(kubeconfig.path(), contexts).unwrap();
        let formats = vec!["table", "wide", "json", "yaml", "name", "jsonpath=", "custom-columns=", ":6"];
        let in_kubeconfig = |rest: &str| format!("--kubeconfig {} {rest}", kubeconfig.path().display());
        for (line, expected) in [
            ("sta".to_owned(), vec!["start", "status", ":4"]),
            ("start --deletea".to_owned(), vec![":4"]),
            ("start --delete-a".to_owned(), vec!["--delete-after", ":4"]),
            ("start --order ".to_owned(), vec!["None", "PriorityAscending", ":4"]),
            ("start --order=P".to_owned(), vec!["PriorityAscending", ":4"]),
            ("completion f".to_owned(), vec!["fish", ":4"]),
            ("status -o y".to_owned(), vec!["yaml", ":4"]),
            ("start --output=".to_owned(), formats.clone()),
            ("status -o ".to_owned(), formats),
            ("plan -o ".to_owned(), vec!["table", "json", "yaml", "jsonpath=", "custom-columns=", ":6"]),
            ("doctor -o ".to_owned(), vec!["json", "yaml", "jsonpath=", ":6"]),
            ("version -o ".to_owned(), vec!["json", "yaml", "jsonpath=", ":6"]),
            ("install -o ".to_owned(), vec!["json", "yaml", "name", "jsonpath=", "custom-columns=", ":6"]),
            (in_kubeconfig("status --context "), vec!["blue", "green", ":4"]),
            (in_kubeconfig("status --context=g"), vec!["green", ":4"]),
            (in_kubeconfig("--cluster "), vec!["c", ":4"]),
        ] {
            let answers = answer(&line);
            let values: Vec<&str> =
                answers.iter().map(|line| line.split('\t').next().unwrap_or_default()).collect();
            assert_eq!(values, expected, "{line}");
        }
    }

    #[test]
    fn the_first_word_is_a_verb_with_what_it_does() {
        for line in ["", "s"] {
            let verbs = answer(line);
            assert!(verbs.iter().any(|verb| verb.starts_with("start\t")), "{verbs:?}");
            assert!(!verbs.iter().any(|verb| verb.starts_with(['-', 'm'])), "{verbs:?}");
        }
        assert_eq!(for_kubectl(&[]), for_kubectl(&[OsString::new()]));
    }

    #[test]
    fn answers_are_lines_that_kubectl_can_read() {
        let candidates = [("--a=dir/", "one\ntwo"), ("--a=x", ""), ("--a=\u{1b}[31m", "\u{7}")];
        let candidates = candidates.into_iter().map(|(value, help)| (value.to_owned(), help.to_owned()));
        assert_eq!(as_cobra("--a=", candidates), "dir/\tone\nx\n^[[31m\t^G\n:6\n");
        assert_eq!(as_cobra("", [("--flag".to_owned(), String::new())].into_iter()), ":4\n");
    }
}
