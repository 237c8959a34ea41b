//! `kubectl nm completion`: sets up shell completion.
//!
//! The scripts only call this program, so they stay valid when it is upgraded.

use std::io;

use clap::{Args, ValueEnum};
use clap_complete::env::Shells;

use crate::completion::SHELL_VARIABLE;
use crate::completion::link;
use crate::error::Error;
use crate::error::exit::Exit;
use crate::terminal::output::Output;
use crate::terminal::text::Line;

const EXAMPLES: &str = "\
Examples:
  # Complete `kubectl nm` wherever kubectl completion is set up
  kubectl nm completion install

  # Complete `kubectl-nm`, when you call it by this name, in the current bash
  source <(kubectl nm completion bash)

Exit codes: 0 set up, 1 the link cannot be created, 2 usage error.";

/// Set up shell completion of commands, flags and names
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct CompletionArgs {
    /// What to set up
    #[arg(value_name = "SHELL")]
    target: CompletionTarget,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum CompletionTarget {
    /// Print a script for bash
    Bash,
    /// Print a script for zsh
    Zsh,
    /// Print a script for fish
    Fish,
    /// Print a script for PowerShell
    Powershell,
    /// Create the link kubectl_complete-nm next to the plugin, for the completion of kubectl
    Install,
}

pub(crate) fn run(args: &CompletionArgs, out: &mut Output) -> Result<Exit, Error> {
    match args.target {
        CompletionTarget::Bash => out.text(&script("bash")?)?,
        CompletionTarget::Zsh => out.text(&script("zsh")?)?,
        CompletionTarget::Fish => out.text(&script("fish")?)?,
        CompletionTarget::Powershell => out.text(&script("powershell")?)?,
        CompletionTarget::Install => return install(out),
    }
    Ok(Exit::Done)
}

fn script(shell: &str) -> Result<String, Error> {
    let unwritable = |source| Error::Unwritable { path: format!("the script for {shell}"), source };
    let shells = Shells::builtins();
    let shell = shells.completer(shell).ok_or(io::ErrorKind::Unsupported.into()).map_err(unwritable)?;
    let mut script = Vec::new();
    let program = "kubectl-nm";
    shell.write_registration(SHELL_VARIABLE, program, program, program, &mut script).map_err(unwritable)?;
    String::from_utf8(script).map_err(|error| unwritable(io::Error::other(error)))
}

fn install(out: &mut Output) -> Result<Exit, Error> {
    let program = std::env::current_exe()
        .map_err(|source| Error::Unwritable { path: link::NAME.to_owned(), source })?;
    let search_path = std::env::var_os("PATH").unwrap_or_default();
    let link = match link::install(&program, &search_path) {
        Ok(link) => link,
        Err(error) => {
            out.error(&error);
            out.hint(&error.hint());
            return Ok(Exit::Error);
        }
    };
    let result = if link.is_new { "created" } else { "exists already" };
    out.data(&Line::new(format!("{} {result}", link.path.display())))?;
    if link.is_new {
        out.talk(&Line::new(
            "kubectl now completes `kubectl nm`, if the completion of kubectl is set up: `kubectl completion --help`",
        ));
    }
    Ok(Exit::Done)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scripts_call_the_plugin_on_the_search_path() {
        for shell in ["bash", "zsh", "fish", "powershell"] {
            let script = script(shell).unwrap();
            assert!(script.contains(SHELL_VARIABLE) && script.contains("kubectl-nm"), "{shell}: {script}");
            assert!(!script.contains("/kubectl-nm"), "{shell} contains a path: {script}");
        }
    }
}
