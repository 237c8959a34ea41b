//! The plugin as kubectl finds it: a file `kubectl-nm` in a folder of `PATH`.

use std::path::{Path, PathBuf};

use tempfile::TempDir;

use crate::programs::{Outcome, outcome, program};

/// A plugin in a folder of its own.
pub struct InstalledPlugin {
    files: TempDir,
    folder: PathBuf,
}

impl InstalledPlugin {
    /// The built plugin.
    pub fn built() -> Self {
        let files = tempfile::tempdir().unwrap();
        std::os::unix::fs::symlink(program("kubectl-nm"), files.path().join("kubectl-nm")).unwrap();
        let folder = files.path().to_owned();
        Self { files, folder }
    }

    /// The plugin in `folder`, which is below `files`.
    pub fn at(files: TempDir, folder: PathBuf) -> Self {
        Self { files, folder }
    }

    /// The folder that [`InstalledPlugin::run`] adds to `PATH`.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// A folder for files of the test; it is deleted with the plugin.
    pub fn files(&self) -> &Path {
        self.files.path()
    }

    /// Runs a program with the plugin on its `PATH`.
    pub async fn run(&self, program: &str, kubeconfig: &Path, args: &[&str]) -> Outcome {
        let others = std::env::var_os("PATH").unwrap_or_default();
        let path = std::iter::once(self.folder.clone()).chain(std::env::split_paths(&others));
        let path = std::env::join_paths(path).unwrap();
        // The program itself is looked up on the `PATH` of this process, which lacks the folder.
        let own = self.folder.join(program);
        let program = if own.exists() { own.as_os_str() } else { program.as_ref() };
        let mut command = tokio::process::Command::new(program);
        outcome(command.args(args).env("PATH", path).env("KUBECONFIG", kubeconfig)).await
    }

    /// kubectl's completions of the last of these words after `kubectl nm`.
    pub async fn completions(&self, kubeconfig: &Path, words: &[&str]) -> Vec<String> {
        let words = [&["__completeNoDesc", "nm"], words].concat();
        let answer = self.run("kubectl", kubeconfig, &words).await.ok();
        let mut lines: Vec<String> = answer.stdout.lines().map(str::to_owned).collect();
        assert_eq!(lines.pop().as_deref(), Some(":4"), "no completion by file names: {answer:?}");
        lines
    }
}
