//! `kubectl nm completion`: what shells need to complete our commands.
//!
//! The scripts only call this program back, which answers in `completion`; so they stay right when it is upgraded.

use std::io;

use clap::{Args, ValueEnum};
use clap_complete::env::Shells;

use crate::error::Error;
use crate::error::completion_link;
use crate::error::exit::Exit;
use crate::terminal::output::Output;
use crate::terminal::text::Line;

/// The variable by which the scripts say which shell asks.
pub(crate) const ASKING: &str = "KUBECTL_NM_COMPLETE";

const EXAMPLES: &str = "\
Examples:
  # Have kubectl's own completion know `kubectl nm`, in every shell
  kubectl nm completion install

  # Complete `kubectl-nm`, called by this name, in this bash
  source <(kubectl nm completion bash)

Exit codes: 0 done, or done before, 1 the link cannot be made, 2 usage.";

/// Set up shells to complete commands, flags and names
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct CompletionArgs {
    /// What to set up
    #[arg(value_name = "SHELL")]
    what: What,
}

/// What is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum What {
    /// Print a script for bash
    Bash,
    /// Print a script for zsh
    Zsh,
    /// Print a script for fish
    Fish,
    /// Print a script for PowerShell
    Powershell,
    /// Link kubectl_complete-nm beside the plugin, for kubectl's own completion
    Install,
}

/// Runs the command.
///
/// # Errors
///
/// When the link cannot be made, or nobody reads the script.
pub(crate) fn run(args: &CompletionArgs, out: &mut Output) -> Result<Exit, Error> {
    match args.what {
        What::Bash => out.text(&script("bash")?)?,
        What::Zsh => out.text(&script("zsh")?)?,
        What::Fish => out.text(&script("fish")?)?,
        What::Powershell => out.text(&script("powershell")?)?,
        What::Install => install(out)?,
    }
    Ok(Exit::Done)
}

fn script(shell: &str) -> Result<String, Error> {
    let unwritable = |source| Error::Unwritable { path: format!("the script for {shell}"), source };
    let shells = Shells::builtins();
    let shell = shells.completer(shell).ok_or(io::ErrorKind::Unsupported.into()).map_err(unwritable)?;
    let mut script = Vec::new();
    let program = "kubectl-nm";
    shell.write_registration(ASKING, program, program, program, &mut script).map_err(unwritable)?;
    String::from_utf8(script).map_err(|error| unwritable(io::Error::other(error)))
}

fn install(out: &mut Output) -> Result<(), Error> {
    let program = std::env::current_exe()
        .map_err(|source| Error::Unwritable { path: completion_link::NAME.to_owned(), source })?;
    let search_path = std::env::var_os("PATH").unwrap_or_default();
    let link = completion_link::install(&program, &search_path)?;
    let what = if link.is_new { "linked" } else { "is linked already" };
    out.data(&Line::new(format!("{} {what}", link.path.display())))?;
    if link.is_new {
        out.talk(&Line::new(
            "kubectl completes `kubectl nm` from now on, where its own completion is set up: `kubectl completion --help`",
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scripts_call_the_plugin_on_the_path_back() {
        for shell in ["bash", "zsh", "fish", "powershell"] {
            let script = script(shell).unwrap();
            assert!(script.contains(ASKING) && script.contains("kubectl-nm"), "{shell}: {script}");
            assert!(!script.contains("/kubectl-nm"), "{shell} fixes a path: {script}");
        }
    }
}
