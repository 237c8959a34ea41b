//! The plugin as kubectl finds it: in a folder of the search path, under its name.

use std::path::{Path, PathBuf};

use tempfile::TempDir;

use crate::programs::{Outcome, outcome, program};

/// A plugin on a search path of its own.
pub struct Installed {
    files: TempDir,
    folder: PathBuf,
}

impl Installed {
    /// The built plugin, linked by its name.
    pub fn built() -> Self {
        let files = tempfile::tempdir().unwrap();
        std::os::unix::fs::symlink(program("kubectl-nm"), files.path().join("kubectl-nm")).unwrap();
        let folder = files.path().to_owned();
        Self { files, folder }
    }

    /// Whatever is in `folder`, which is below `files`.
    pub fn at(files: TempDir, folder: PathBuf) -> Self {
        Self { files, folder }
    }

    /// The folder that is on the search path.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// A place for files of the test, which go with it.
    pub fn files(&self) -> &Path {
        self.files.path()
    }

    /// Runs a program with the plugin on its search path.
    pub async fn run(&self, program: &str, kubeconfig: &Path, args: &[&str]) -> Outcome {
        let others = std::env::var_os("PATH").unwrap_or_default();
        let path = std::iter::once(self.folder.clone()).chain(std::env::split_paths(&others));
        let path = std::env::join_paths(path).unwrap();
        // The system looks for a program on our search path, not on that which it will have.
        let own = self.folder.join(program);
        let program = if own.exists() { own.as_os_str() } else { program.as_ref() };
        let mut command = tokio::process::Command::new(program);
        outcome(command.args(args).env("PATH", path).env("KUBECONFIG", kubeconfig)).await
    }

    /// What kubectl offers for the last of these words after `kubectl nm`.
    pub async fn offered(&self, kubeconfig: &Path, words: &[&str]) -> Vec<String> {
        let words = [&["__completeNoDesc", "nm"], words].concat();
        let answer = self.run("kubectl", kubeconfig, &words).await.ok();
        let mut lines: Vec<String> = answer.stdout.lines().map(str::to_owned).collect();
        assert_eq!(lines.pop().as_deref(), Some(":4"), "no files instead: {answer:?}");
        lines
    }
}
