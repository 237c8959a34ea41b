//! `kubectl nm man`: writes the help of every command as man pages, for packages of the plugin.

use std::path::PathBuf;

use clap::Args;

use crate::error::Error;
use crate::error::exit::Exit;
use crate::terminal::output::Output;
use crate::terminal::text::Line;

const EXAMPLES: &str = "\
Examples:
  # Write the pages to a folder that man searches
  kubectl nm man ~/.local/share/man/man1 && man kubectl-nm-start

Exit codes: 0 written, 1 failed, 2 usage error.";

/// Write a man page for each command
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct ManArgs {
    /// The folder to write to, which is created if it does not exist
    #[arg(value_name = "FOLDER", value_hint = clap::ValueHint::DirPath)]
    folder: PathBuf,
}

pub(crate) fn run(args: &ManArgs, command: clap::Command, out: &mut Output) -> Result<Exit, Error> {
    std::fs::create_dir_all(&args.folder)
        .and_then(|()| clap_mangen::generate_to(with_all_flags(command), &args.folder))
        .map_err(|source| Error::Unwritable { path: args.folder.display().to_string(), source })?;
    out.data(&Line::new(format!("man pages written to {}", args.folder.display())))?;
    Ok(Exit::Done)
}

/// The command with all flags visible: man pages contain the flags of the short help only.
fn with_all_flags(command: clap::Command) -> clap::Command {
    command.mut_args(|arg| arg.hide_short_help(false)).mut_subcommands(with_all_flags)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::terminal::output::captured::output;

    #[test]
    fn each_command_has_a_page_with_its_flags_and_examples() {
        let folder = tempfile::tempdir().unwrap();
        let args = ManArgs { folder: folder.path().join("man1") };
        let wait = clap::Arg::new("wait").long("wait").help("As long as it takes").hide_short_help(true);
        let start = clap::Command::new("start").arg(wait).after_help("Examples:");
        let command = clap::Command::new("kubectl-nm").bin_name("kubectl nm").subcommand(start);
        run(&args, command, &mut output().0).unwrap();
        let page = std::fs::read_to_string(args.folder.join("kubectl-nm-start.1")).unwrap();
        for part in ["\\-\\-wait", "As long as it takes", "Examples:"] {
            assert!(page.contains(part), "{part} in {page}");
        }
        assert!(args.folder.join("kubectl-nm.1").exists());
    }

    #[test]
    fn a_folder_that_cannot_be_created_is_named() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let args = ManArgs { folder: file.path().join("man1") };
        let error = run(&args, clap::Command::new("kubectl-nm"), &mut output().0).unwrap_err().to_string();
        assert!(error.contains(args.folder.to_str().unwrap()), "{error}");
    }
}
