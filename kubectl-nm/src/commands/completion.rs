//! `kubectl nm completion`: prints scripts that set up shell completion.
//!
//! The scripts only call this program, so they stay valid when it is upgraded.

use std::io;

use clap::{Args, ValueEnum};
use clap_complete::env::Shells;
use nm_core::error::Error;
use nm_core::error::exit::Exit;
use nm_core::terminal::output::Output;

use crate::completion::SHELL_VARIABLE;

const EXAMPLES: &str = "\
Examples:
  # Complete `kubectl nm` wherever kubectl completion is set up
  ln -s kubectl-nm \"$(dirname \"$(command -v kubectl-nm)\")/kubectl_complete-nm\"

  # Complete `kubectl-nm`, when you call it by this name, in the current bash
  source <(kubectl nm completion bash)";

const EXIT_CODES: &str = "\
Exit codes: 0 printed, 1 failed, 2 usage error.";

/// Print a completion script for a shell
#[derive(Args, Debug)]
#[command(before_help = EXAMPLES, after_help = EXIT_CODES)]
pub(crate) struct CompletionArgs {
    /// The shell
    #[arg(value_name = "SHELL")]
    shell: Shell,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Shell {
    Bash,
    Zsh,
    Fish,
    Powershell,
}

pub(crate) fn run(args: &CompletionArgs, out: &mut Output) -> Result<Exit, Error> {
    let name = args.shell.to_possible_value().map(|shell| shell.get_name().to_owned()).unwrap_or_default();
    let unwritable = |source| Error::Unwritable { path: format!("the script for {name}"), source };
    let shells = Shells::builtins();
    let shell = shells.completer(&name).ok_or(io::ErrorKind::Unsupported.into()).map_err(unwritable)?;
    let mut script = Vec::new();
    let program = "kubectl-nm";
    shell.write_registration(SHELL_VARIABLE, program, program, program, &mut script).map_err(unwritable)?;
    out.text(&String::from_utf8(script).map_err(|error| unwritable(io::Error::other(error)))?)?;
    Ok(Exit::Done)
}
