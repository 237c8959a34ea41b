//! Shell completion.
//!
//! Shells request it in two ways. kubectl runs `kubectl_complete-nm` with the words after `kubectl nm`, the last of which is
//! incomplete, and reads candidates and a directive in the format of cobra. The scripts of `kubectl nm completion` run
//! `kubectl-nm` with a variable that names their shell. In both cases clap computes the candidates, and `names` looks up
//! names in the kubeconfig and the cluster.
//!
//! The definition of the command line is passed in, because commands depend on this module.

mod names;
mod partial_line;

use std::ffi::OsString;
use std::iter;
use std::path::Path;
use std::sync::Arc;

use clap_complete::engine::{self, ArgValueCandidates, CompletionCandidate};
use clap_complete::env::Shells;
use nm_core::terminal::text::harmless;

use crate::completion::names::NameKind;
use crate::completion::partial_line::{CommandFn, PartialLine};

/// The program that kubectl runs for completions of the plugin, which is a link to this one.
const LINK: &str = "kubectl_complete-nm";

/// The variable in which the scripts name the shell.
pub(crate) const SHELL_VARIABLE: &str = "KUBECTL_NM_COMPLETE";

/// The commands for nodes that are not in maintenance yet. All others are for nodes in maintenance.
const COMMANDS_BEFORE_MAINTENANCE: [&str; 2] = ["start", "plan"];

/// cobra's `ShellCompDirective`: no space after the candidate, because the word continues.
const NO_SPACE: u8 = 2;
/// cobra's `ShellCompDirective`: no file names if there are no candidates.
const NO_FILES: u8 = 4;

/// The response to a completion request; `None` if the program is not called by a shell's completion.
pub(crate) fn respond(arguments: &[OsString], command: CommandFn) -> Option<String> {
    let (program, words) = arguments.split_first()?;
    if Path::new(program).file_stem().is_some_and(|name| name == LINK) {
        return Some(respond_to_kubectl(words, command));
    }
    let shell = std::env::var(SHELL_VARIABLE).ok()?;
    let start = words.iter().position(|word| word == "--")? + 1;
    Some(respond_to_script(&shell, &words[start..], command).unwrap_or_default())
}

fn respond_to_kubectl(words: &[OsString], command: CommandFn) -> String {
    let (current, before) =
        words.split_last().map_or((OsString::new(), words), |(last, before)| (last.clone(), before));
    let program = iter::once(OsString::from("kubectl-nm"));
    let line: Vec<OsString> = program.chain(before.iter().cloned()).chain([current.clone()]).collect();
    let (index, folder) = (line.len() - 1, std::env::current_dir().ok());
    let mut command = with_names(command, before);
    let candidates = engine::complete(&mut command, line, index, folder.as_deref()).unwrap_or_default();
    let candidates = candidates.iter().map(|candidate| {
        let help = candidate.get_help().map(ToString::to_string).unwrap_or_default();
        (candidate.get_value().to_string_lossy().into_owned(), help)
    });
    as_cobra(&current.to_string_lossy(), candidates)
}

/// The response to a script, in the format of its shell. The first word is the program.
fn respond_to_script(shell: &str, words: &[OsString], command: CommandFn) -> Option<String> {
    let (_, before) = words.split_last()?;
    let mut response = Vec::new();
    let shells = Shells::builtins();
    let folder = std::env::current_dir().ok();
    let mut command = with_names(command, before.get(1..).unwrap_or_default());
    shells
        .completer(shell)?
        .write_complete(&mut command, words.to_vec(), folder.as_deref(), &mut response)
        .ok()?;
    String::from_utf8(response).ok()
}

/// Candidates with their help in the format of cobra: one per line, the help after a tab, then the directive.
///
/// `current` is the incomplete word. As in kubectl, flags are offered only if it starts with `-`. kubectl adds the part
/// before an equals sign itself.
fn as_cobra(current: &str, candidates: impl Iterator<Item = (String, String)>) -> String {
    let is_flag = current.starts_with('-');
    let flag = if is_flag { current.find('=').map_or("", |equals| &current[..=equals]) } else { "" };
    let mut directive = NO_FILES;
    let mut response = String::new();
    for (value, help) in candidates.filter(|(value, _)| is_flag || !value.starts_with('-')) {
        let value = value.strip_prefix(flag).unwrap_or(&value);
        if value.ends_with(['/', '=']) {
            directive |= NO_SPACE;
        }
        response.push_str(&harmless(value));
        if let Some(summary) = help.lines().next().filter(|line| !line.is_empty()) {
            response.push('\t');
            response.push_str(&harmless(summary));
        }
        response.push('\n');
    }
    response + &format!(":{directive}\n")
}

/// The command line with candidates for names. `before` are the words before the incomplete one.
fn with_names(command: CommandFn, before: &[OsString]) -> clap::Command {
    let line = Arc::new(PartialLine::parse(before, command));
    let offer = |kind| {
        let line = line.clone();
        ArgValueCandidates::new(move || {
            names::find(kind, &line).into_iter().map(CompletionCandidate::new).collect()
        })
    };
    let flags = [
        ("context", NameKind::Context),
        ("cluster", NameKind::Cluster),
        ("user", NameKind::User),
        ("namespace", NameKind::Namespace),
    ];
    let command = flags
        .into_iter()
        .fold(command(), |command, (flag, kind)| command.mut_arg(flag, |arg| arg.add(offer(kind))));
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
        let kind = if COMMANDS_BEFORE_MAINTENANCE.contains(&verb.as_str()) {
            NameKind::NodeInService
        } else {
            NameKind::NodeInMaintenance
        };
        command.mut_subcommand(verb, |verb| verb.mut_arg(nodes, |arg| arg.add(offer(kind))))
    })
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;
    use crate::cli::Cli;

    /// The response to kubectl for a line whose last word is incomplete.
    fn response(line: &str) -> Vec<String> {
        let words: Vec<OsString> = line.split(' ').map(Into::into).collect();
        respond_to_kubectl(&words, Cli::command).lines().map(str::to_owned).collect()
    }

    #[test]
    fn verbs_flags_and_their_values_are_offered() {
        let kubeconfig = tempfile::NamedTempFile::new().unwrap();
        let contexts = "contexts: [{name: blue}, {name: green}, {name: $(reboot)}]\nclusters: [{name: c}]\n";
        std::fs::write(kubeconfig.path(), contexts).unwrap();
        let formats = vec!["table", "wide", "json", "yaml", "name", ":4"];
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
            ("plan -o ".to_owned(), vec!["table", "json", "yaml", ":4"]),
            ("doctor -o ".to_owned(), vec!["json", "yaml", ":4"]),
            ("version -o ".to_owned(), vec!["json", "yaml", ":4"]),
            ("install -o ".to_owned(), vec!["json", "yaml", "name", ":4"]),
            (in_kubeconfig("status --context "), vec!["blue", "green", ":4"]),
            (in_kubeconfig("status --context=g"), vec!["green", ":4"]),
            (in_kubeconfig("--cluster "), vec!["c", ":4"]),
            ("status --as".to_owned(), vec!["--as", "--as-group", "--as-uid", "--as-user-extra", ":4"]),
        ] {
            let lines = response(&line);
            let values: Vec<&str> =
                lines.iter().map(|line| line.split('\t').next().unwrap_or_default()).collect();
            assert_eq!(values, expected, "{line}");
        }
    }

    #[test]
    fn the_first_word_is_a_command_with_its_help() {
        for line in ["", "s"] {
            let verbs = response(line);
            assert!(verbs.iter().any(|verb| verb.starts_with("start\t")), "{verbs:?}");
            assert!(!verbs.iter().any(|verb| verb.starts_with(['-', 'm'])), "{verbs:?}");
        }
        let empty = respond_to_kubectl(&[], Cli::command);
        assert_eq!(empty, respond_to_kubectl(&[OsString::new()], Cli::command));
    }

    #[test]
    fn responses_have_the_format_of_cobra() {
        let candidates = [("--a=dir/", "one\ntwo"), ("--a=x", ""), ("--a=\u{1b}[31m", "\u{7}")];
        let candidates = candidates.into_iter().map(|(value, help)| (value.to_owned(), help.to_owned()));
        assert_eq!(as_cobra("--a=", candidates), "dir/\tone\nx\n^[[31m\t^G\n:6\n");
        assert_eq!(as_cobra("", [("--flag".to_owned(), String::new())].into_iter()), ":4\n");
    }
}
