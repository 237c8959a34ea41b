//! The programs that the demo shows, run from this one binary: each is this program again, under another name.

use std::ffi::{OsStr, OsString};
use std::io;
use std::path::Path;
use std::process::{ExitCode, Stdio};

use tokio::process::{Child, Command};

/// A first argument that no person types.
const RECONCILER: &str = "as:nm-reconciler";
const PLUGIN: &str = "as:kubectl-nm";

/// Runs as one of the programs, if that is what the arguments ask for.
pub(super) fn run(arguments: &[OsString]) -> Option<ExitCode> {
    let (program, rest) = arguments.get(1..)?.split_first()?;
    let named = |name: &str| std::iter::once(OsString::from(name)).chain(rest.iter().cloned());
    match program.to_str() {
        Some(RECONCILER) => Some(nm_reconciler::run(named("nm-reconciler"))),
        Some(PLUGIN) => Some(kubectl_nm::run(named("kubectl-nm"))),
        _ => None,
    }
}

/// A reconciler that speaks up only when something is wrong. It ends when dropped.
pub(super) fn reconciler(kubeconfig: &Path) -> io::Result<Child> {
    let quiet = ["--log-format", "text", "--log-level", "error"];
    let mut command = command(RECONCILER, kubeconfig)?;
    // They are not meant for it, and it refuses settings that it does not know.
    for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("NM_")) {
        command.env_remove(name);
    }
    command.args(quiet).stdin(Stdio::null()).kill_on_drop(true).spawn()
}

/// The plugin, on this terminal.
pub(super) fn plugin(kubeconfig: &Path, args: &[impl AsRef<OsStr>]) -> io::Result<Child> {
    command(PLUGIN, kubeconfig)?.args(args).kill_on_drop(true).spawn()
}

fn command(program: &str, kubeconfig: &Path) -> io::Result<Command> {
    let mut command = Command::new(std::env::current_exe()?);
    command.arg(program).env("KUBECONFIG", kubeconfig);
    Ok(command)
}
