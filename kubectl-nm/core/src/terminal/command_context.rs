//! Commands in messages, which people copy and paste: they act on the same cluster.
//!
//! Messages put commands in backticks, without connection flags. The flags are inserted where the message is printed, so
//! no message can forget them.

use std::borrow::Cow;
use std::ffi::OsString;

/// A word as a POSIX shell reads it back, quoted only if necessary.
pub fn shell_quoted(word: &str) -> Cow<'_, str> {
    // Only a NUL cannot be quoted, and no argument of a program has one.
    shlex::try_quote(word).unwrap_or(Cow::Borrowed("''"))
}

/// The command line of this plugin, whose first argument is the program, without the values of credentials.
pub fn command_line(arguments: &[OsString]) -> String {
    const SECRETS: [&str; 2] = ["--token", "--password"];
    let mut line = String::from("kubectl nm");
    let mut is_secret = false;
    for word in arguments.iter().skip(1).map(|word| word.to_string_lossy()) {
        let shown = match word.split_once('=') {
            _ if is_secret => Cow::Borrowed("***"),
            Some((flag, _)) if SECRETS.contains(&flag) => Cow::Owned(format!("{flag}=***")),
            _ => Cow::Owned(shell_quoted(&word).into_owned()),
        };
        is_secret = !is_secret && SECRETS.contains(&&*word);
        line.push(' ');
        line.push_str(&shown);
    }
    line
}

/// A command of this plugin: `nm` and the rest of it. `kubectl` is kubectl with the connection flags, which a plugin takes
/// after its name.
pub fn nm_command(kubectl: &str, rest: &str) -> String {
    let (program, flags) = kubectl.split_at(kubectl.find(' ').unwrap_or(kubectl.len()));
    format!("{program} nm {rest}{flags}")
}

/// The commands that continue a roll without a node. A program that runs it lets others resume it only once it is paused.
pub fn skip_command(kubectl: &str, roll: &str, node: &str, is_running: bool) -> String {
    let (roll, node) = (shell_quoted(roll), shell_quoted(node));
    let skip = nm_command(kubectl, &format!("roll resume {roll} --skip {node}"));
    if is_running {
        format!("{} && {skip}", nm_command(kubectl, &format!("roll pause {roll}")))
    } else {
        skip
    }
}

/// The message with connection flags inserted into its commands. `flags` starts with a blank; a command that has the flags
/// already stays as it is.
pub fn with_flags(message: &str, flags: &str) -> String {
    if flags.is_empty() {
        return message.to_owned();
    }
    let insert = |(at, part): (usize, &str)| {
        if at % 2 == 1 {
            each_command(part, |command| command_with_flags(command, flags))
        } else {
            part.to_owned()
        }
    };
    message.split('`').enumerate().map(insert).collect::<Vec<_>>().join("`")
}

/// The message for those who cannot be asked, because they have no terminal: its commands that would ask are confirmed.
pub fn with_confirmation(message: &str) -> String {
    let confirm = |(at, part): (usize, &str)| if at % 2 == 1 { confirmed(part) } else { part.to_owned() };
    message.split('`').enumerate().map(confirm).collect::<Vec<_>>().join("`")
}

/// The command that explains these nodes, or all if there are none.
pub fn explain_command<'a>(nodes: impl IntoIterator<Item = &'a str>, flags: &str) -> String {
    let command = std::iter::once(String::from("kubectl nm explain"));
    let words: Vec<String> =
        command.chain(nodes.into_iter().map(|node| shell_quoted(node).to_string())).collect();
    words.join(" ") + flags
}

/// The commands with `--yes`, where they ask a question. `roll resume` is left as it is: who confirms it confirms the commands and Jobs
/// of the roll, which somebody else may have written, so they have to be repeated.
pub fn confirmed(commands: &str) -> String {
    each_command(commands, confirmed_command)
}

fn confirmed_command(command: &str) -> String {
    let words = shlex::split(command).unwrap_or_default();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let is_flag = |word: &&str| word.starts_with('-');
    // The value of a flag may be a word of its own.
    let is_value = |at: usize| at > 0 && is_flag(&words[at - 1]) && !words[at - 1].contains('=');
    let names: Vec<&str> = words
        .iter()
        .enumerate()
        .skip(2)
        .filter(|(at, word)| !is_flag(word) && !is_value(*at))
        .map(|(_, word)| *word)
        .collect();
    let asks = matches!(
        (words.as_slice(), names.as_slice()),
        (["kubectl", "nm", ..], ["roll", "abort", _, ..] | ["stop", _, _, ..])
    );
    if asks && !words.contains(&"--yes") { format!("{command} --yes") } else { command.to_owned() }
}

/// Changes each of the commands that are joined by `&&`, which may also occur in a quoted word.
fn each_command(commands: &str, change: impl Fn(&str) -> String) -> String {
    let mut changed: Vec<String> = Vec::new();
    let mut command = String::new();
    for part in commands.split(" && ") {
        command.push_str(part);
        if shlex::split(&command).is_some() {
            changed.push(change(&std::mem::take(&mut command)));
        } else {
            // A quote is still open.
            command.push_str(" && ");
        }
    }
    // A quote that is never closed: this is no command.
    changed.extend(command.strip_suffix(" && ").map(str::to_owned));
    changed.join(" && ")
}

/// kubectl accepts no flags before the name of a plugin; the plugin accepts them anywhere.
fn command_with_flags(command: &str, flags: &str) -> String {
    match command.strip_prefix("kubectl ") {
        Some(_) if command.contains(flags) => command.to_owned(),
        Some(rest) if rest.starts_with("nm ") => format!("{command}{flags}"),
        Some(rest) => format!("kubectl{flags} {rest}"),
        None => command.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_quoted_for_a_shell() {
        assert_eq!(shell_quoted("https://c.example:6443"), "https://c.example:6443");
        for word in ["", "prod eu's", "$(reboot)", "`id`", "a\nb", "-x=*", "{\"a\":\"it's\"}"] {
            assert_eq!(shlex::split(&shell_quoted(word)).unwrap(), [word]);
        }
    }

    #[test]
    fn a_command_line_is_shown_without_credentials() {
        let line = |words: &[&str]| command_line(&words.iter().map(OsString::from).collect::<Vec<_>>());
        assert_eq!(
            line(&["/bin/kubectl-nm", "start", "n1", "--reason", "new kernel"]),
            "kubectl nm start n1 --reason 'new kernel'"
        );
        assert_eq!(
            line(&["kubectl-nm", "--token", "s3", "stop", "--password=p", "--all"]),
            "kubectl nm --token *** stop --password=*** --all"
        );
    }

    #[test]
    fn who_cannot_be_asked_gets_commands_that_do_not_ask() {
        for (command, is_confirmed) in [
            ("kubectl nm roll resume r", false),
            ("kubectl nm roll abort r --return", true),
            ("kubectl nm stop n1 n2", true),
            ("kubectl nm stop n1", false),
            ("kubectl nm stop n1 --context blue", false),
            ("kubectl nm roll abort", false),
            ("kubectl nm roll status r", false),
            ("kubectl nm roll abort r --yes", false),
            ("kubectl get pods a b", false),
            ("kubectl nm stop n1 && kubectl uncordon n1", false),
            ("kubectl nm roll pause r && kubectl nm roll abort r --return", true),
        ] {
            let expected = format!("{command}{}", if is_confirmed { " --yes" } else { "" });
            assert_eq!(confirmed(command), expected);
            assert_eq!(with_confirmation(&format!("a `{command}` b")), format!("a `{expected}` b"));
        }
    }

    #[test]
    fn commands_in_backticks_get_the_flags_and_other_words_do_not() {
        for (message, expected) in [
            ("kubectl nm is a plugin", "kubectl nm is a plugin"),
            ("`kubectl nm stop n1` ends it", "`kubectl nm stop n1 --context=c` ends it"),
            ("see `kubectl get nodes`", "see `kubectl --context=c get nodes`"),
            (
                "`kubectl uncordon n1 && kubectl annotate node n1 a-`",
                "`kubectl --context=c uncordon n1 && kubectl --context=c annotate node n1 a-`",
            ),
            (
                "`kubectl nm status`, then `kubectl nm stop n1 --context=c`",
                "`kubectl nm status --context=c`, then `kubectl nm stop n1 --context=c`",
            ),
            ("`spec.drain` is a field", "`spec.drain` is a field"),
            (
                "`kubectl nm start n1 --reason 'a && kubectl b' && kubectl get pods`",
                "`kubectl nm start n1 --reason 'a && kubectl b' --context=c && kubectl --context=c get pods`",
            ),
        ] {
            assert_eq!(with_flags(message, " --context=c"), expected);
            assert_eq!(with_flags(message, ""), message);
        }
    }
}
