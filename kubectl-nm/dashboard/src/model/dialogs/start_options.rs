//! The options of the start dialog: the flags of `kubectl nm start` that control how a node is drained, typed as there.

use clap::{Arg, CommandFactory, Parser};
use nm_core::args::drain_flags::DrainFlags;
use nm_core::terminal::command_context::shell_quoted;
use nm_shared::DrainSpec;

#[derive(Parser, Clone, Debug, Default)]
#[command(no_binary_name = true, disable_help_flag = true)]
pub(crate) struct StartOptions {
    /// Plan the maintenance for later: the scheduler prefers other nodes until the maintenance is resumed
    #[arg(long)]
    pub(crate) suspend: bool,

    #[command(flatten)]
    pub(crate) drain: DrainFlags,
}

/// A flag, with its value as the help shows it, and what it does.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct OfferedOption {
    pub(crate) flag: String,
    pub(crate) help: String,
}

/// Why a text has no valid options.
#[derive(Debug, thiserror::Error)]
pub(crate) enum StartOptionsError {
    #[error("options: a quote is not closed")]
    UnclosedQuote,
    #[error("{}", first_paragraph(.0))]
    Invalid(clap::Error),
}

impl StartOptions {
    /// Parses flags as a shell would.
    pub(crate) fn parse(text: &str) -> Result<Self, StartOptionsError> {
        let words = shlex::split(text).ok_or(StartOptionsError::UnclosedQuote)?;
        Self::try_parse_from(words).map_err(StartOptionsError::Invalid)
    }

    pub(crate) fn spec(&self) -> Option<DrainSpec> {
        self.drain.spec()
    }
}

/// What clap reports about an option, in one line. What follows is about the command line.
fn first_paragraph(error: &clap::Error) -> String {
    let message = error.to_string();
    let first = message.split("\n\n").next().unwrap_or_default();
    let words: Vec<&str> = first.split_whitespace().collect();
    let words = words.join(" ");
    words.strip_prefix("error: ").unwrap_or(&words).to_owned()
}

/// The options as they are typed in a shell, each with a blank before it.
pub(crate) fn quoted(text: &str) -> String {
    let words = shlex::split(text).unwrap_or_default();
    words.iter().fold(String::new(), |text, word| text + " " + &shell_quoted(word))
}

/// The options that begin like the last word, if that is an incomplete flag; otherwise all.
pub(crate) fn offered(text: &str) -> Vec<OfferedOption> {
    let word = incomplete_flag(text).unwrap_or_default();
    let command = StartOptions::command();
    let fitting = command.get_arguments().filter(|arg| long(arg).is_some_and(|long| long.starts_with(word)));
    fitting.map(OfferedOption::from).collect()
}

/// What is missing at the end of the last word, as far as only one continuation is possible.
pub(crate) fn completion(text: &str) -> Option<String> {
    let word = incomplete_flag(text)?;
    let command = StartOptions::command();
    let fitting: Vec<&Arg> =
        command.get_arguments().filter(|arg| long(arg).is_some_and(|long| long.starts_with(word))).collect();
    let mut names = fitting.iter().filter_map(|arg| long(arg));
    let mut common = names.next()?;
    for name in names {
        let same = common.bytes().zip(name.bytes()).take_while(|(a, b)| a == b).count();
        common = &common[..same];
    }
    let mut rest = common[word.len()..].to_owned();
    if let [only] = &fitting[..]
        && !only.is_require_equals_set()
    {
        rest.push(' ');
    }
    (!rest.is_empty()).then_some(rest)
}

impl From<&Arg> for OfferedOption {
    fn from(arg: &Arg) -> Self {
        let value =
            arg.get_value_names().and_then(|names| names.first()).filter(|_| arg.get_action().takes_values());
        let value = match value {
            None => String::new(),
            Some(value) if arg.is_require_equals_set() => format!("[={value}]"),
            Some(value) => format!(" {value}"),
        };
        let help = arg.get_help().map(ToString::to_string).unwrap_or_default();
        let first = help.split(". ").next().unwrap_or_default();
        Self { flag: format!("--{}{value}", long(arg).unwrap_or_default()), help: first.to_owned() }
    }
}

fn long(arg: &Arg) -> Option<&str> {
    arg.get_long()
}

/// The last word without its dashes, if it is a flag without a value that may go on.
fn incomplete_flag(text: &str) -> Option<&str> {
    let last = text.rsplit(char::is_whitespace).next()?;
    let word = last.strip_prefix("--").or_else(|| last.strip_prefix('-'))?;
    (!word.contains('=')).then_some(word)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_those_of_start() {
        let options =
            StartOptions::parse("--timeout 10m --surge --pod-selector 'app in (a, b)' --suspend").unwrap();
        let spec = options.spec().unwrap();
        assert_eq!((options.suspend, spec.timeout_seconds), (true, 600));
        assert!(spec.pod_selector.is_some());
        let none = StartOptions::parse("  ").unwrap();
        assert_eq!((none.suspend, none.spec()), (false, None));
    }

    #[test]
    fn an_error_is_one_sentence_about_the_option() {
        for (text, expected) in [
            ("--timeout 'a", "a quote is not closed"),
            ("--timeout soon", "invalid value 'soon' for '--timeout <DURATION>'"),
            ("--tim", "unexpected argument '--tim' found"),
            ("nonsense", "unexpected argument 'nonsense' found"),
            ("--timeout", "a value is required for '--timeout <DURATION>'"),
            ("--completion-timeout 1h", "--wait-for-completion"),
            ("--help", "unexpected argument '--help' found"),
        ] {
            let error = StartOptions::parse(text).unwrap_err().to_string();
            assert!(error.contains(expected) && !error.contains('\n'), "{text}: {error}");
            assert!(!error.starts_with("error"), "{error}");
        }
    }

    #[test]
    fn options_are_offered_and_completed() {
        let flags = |text: &str| -> Vec<String> { offered(text).into_iter().map(|of| of.flag).collect() };
        assert!(flags("").len() > 10 && flags("--timeout 5m ").len() > 10);
        assert_eq!(
            flags("--wait"),
            ["--wait-for-volume-detach[=DURATION]", "--wait-for-completion[=SELECTOR]"]
        );
        assert_eq!(flags("--surge --ti"), ["--timeout DURATION"]);
        assert_eq!(flags("--timeout=1"), flags(""), "a value is typed");
        for (text, rest) in [
            ("--ti", Some("meout ")),
            ("--wai", Some("t-for-")),
            ("--wait-for-", None),
            ("--wait-for-c", Some("ompletion")),
            ("--sus", Some("pend ")),
            ("--surge --for", Some("ce")),
            ("--force", None),
            ("", None),
            ("x", None),
            ("--nothing", None),
        ] {
            assert_eq!(completion(text).as_deref(), rest, "{text}");
        }
        let timeout = offered("--timeout").remove(0);
        assert!(timeout.help.starts_with("Time limit of the drain"), "{timeout:?}");
    }

    #[test]
    fn options_are_quoted_for_a_shell() {
        assert_eq!(quoted(" --pod-selector  'a in (b)' --surge"), " --pod-selector 'a in (b)' --surge");
        assert_eq!(quoted(""), "");
    }
}
