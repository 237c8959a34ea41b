//! The plugin and the reconciler, run from this one binary: each is this program again, started under another name.

use std::ffi::{OsStr, OsString};
use std::io;
use std::path::Path;
use std::process::{ExitCode, Stdio};

use tokio::process::{Child, Command};

/// First arguments that select a program. They are not part of the command line that people use.
const RECONCILER: &str = "as:nm-reconciler";
const PLUGIN: &str = "as:kubectl-nm";

/// Runs as one of the programs if the arguments ask for it.
pub(crate) fn run(arguments: &[OsString]) -> Option<ExitCode> {
    let (program, rest) = arguments.get(1..)?.split_first()?;
    let named = |name: &str| std::iter::once(OsString::from(name)).chain(rest.iter().cloned());
    match program.to_str() {
        Some(RECONCILER) => Some(nm_reconciler::run(named("nm-reconciler"))),
        Some(PLUGIN) => Some(kubectl_nm::run(named("kubectl-nm"))),
        _ => None,
    }
}

/// Starts a reconciler that logs only errors. Dropping it kills it.
pub(crate) fn reconciler(kubeconfig: &Path) -> io::Result<Child> {
    let quiet = ["--log-format", "text", "--log-level", "error"];
    let mut command = command(RECONCILER, kubeconfig)?;
    // The reconciler rejects settings that it does not know, and these are meant for other programs.
    for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("NM_")) {
        command.env_remove(name);
    }
    command.args(quiet).stdin(Stdio::null()).kill_on_drop(true).spawn()
}

/// Starts the plugin on this terminal. A command that it runs finds this program as `nm-sandbox`, and what it keeps is
/// beside the kubeconfig.
pub(crate) fn plugin(kubeconfig: &Path, args: &[impl AsRef<OsStr>]) -> io::Result<Child> {
    let this = std::env::current_exe()?;
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders = this.parent().map(Path::to_owned).into_iter().chain(std::env::split_paths(&path));
    let mut command = command(PLUGIN, kubeconfig)?;
    command.env("PATH", std::env::join_paths(folders).map_err(io::Error::other)?);
    command.envs(kubeconfig.parent().map(|folder| ("XDG_STATE_HOME", folder)));
    command.args(args).kill_on_drop(true).spawn()
}

fn command(program: &str, kubeconfig: &Path) -> io::Result<Command> {
    let mut command = Command::new(std::env::current_exe()?);
    command.arg(program).env("KUBECONFIG", kubeconfig);
    Ok(command)
}
