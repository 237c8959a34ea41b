//! The built programs, run as anyone would run them. The reconciler, which runs beside them, has a file of its own.

use std::ffi::OsStr;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;

use tokio::io::{AsyncBufReadExt, BufReader, Lines};
use tokio::process::{Child, ChildStdout};

use crate::cluster::Cluster;
use crate::until::PATIENCE;

/// The path of a program of this workspace, built in the profile that the tests were built in.
///
/// Cargo builds no binaries of other packages for a test; so they are built here, once, with the very features that
/// the tests were built with: nothing is compiled twice.
pub fn program(name: &str) -> PathBuf {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    BUILT.get_or_init(|| build(&["--workspace", "--bins", "--tests"])).join(name)
}

/// The same for a benchmark of this package, for which Cargo chose features by this package alone. Of all programs only
/// this one is built: linking an optimized one takes minutes.
pub fn program_of_benchmark(name: &str) -> PathBuf {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    BUILT.get_or_init(|| build(&["-p", env!("CARGO_PKG_NAME"), "-p", name, "--bin", name])).join(name)
}

/// Builds what `selection` names, and returns the folder that it is in.
fn build(selection: &[&str]) -> PathBuf {
    let this = std::env::current_exe().unwrap();
    let folder = this.ancestors().nth(2).unwrap().to_owned();
    let profile = match folder.file_name().and_then(OsStr::to_str) {
        Some("debug") | None => "dev",
        Some(other) => other,
    };
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut build = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    // What Cargo told this test of its package would make it build some dependencies anew.
    for (name, _) in std::env::vars_os() {
        let text = name.to_string_lossy();
        if text.starts_with("CARGO_PKG_") || text.starts_with("CARGO_MANIFEST_") {
            build.env_remove(&name);
        }
    }
    build.arg("build").args(selection).args(["--quiet", "--profile", profile]);
    assert!(build.current_dir(root).status().unwrap().success(), "the programs do not build");
    folder
}

/// What a command said and how it ended.
#[derive(Debug)]
pub struct Outcome {
    /// Exit code.
    pub code: Option<i32>,
    /// Standard output.
    pub stdout: String,
    /// Standard error.
    pub stderr: String,
}

impl Outcome {
    /// The same, if it ended well.
    ///
    /// # Panics
    /// If it did not.
    #[must_use]
    pub fn ok(self) -> Self {
        assert_eq!(self.code, Some(0), "{self:?}");
        self
    }

    /// Holds all that it said, and its exit code, to what they are to be.
    ///
    /// # Panics
    /// If anything differs.
    #[track_caller]
    pub fn expect(&self, code: i32, stdout: &str, stderr: &str) {
        assert_eq!((self.code, self.stdout.as_str(), self.stderr.as_str()), (Some(code), stdout, stderr));
    }
}

/// Runs the plugin against `cluster`, without a terminal.
pub async fn plugin(cluster: &Cluster, args: &[&str]) -> Outcome {
    plugin_of(cluster.kubeconfig(), args).await
}

/// Runs the plugin as whoever a kubeconfig is of, without a terminal.
pub async fn plugin_of(kubeconfig: &Path, args: &[&str]) -> Outcome {
    run(program("kubectl-nm"), kubeconfig, args).await
}

/// Runs kubectl against `cluster`; none where there is no kubectl, which is said.
pub async fn kubectl(cluster: &Cluster, args: &[&str]) -> Option<Outcome> {
    if !has_kubectl() {
        return None;
    }
    Some(run("kubectl".into(), cluster.kubeconfig(), args).await)
}

/// Runs kubectl with a kubeconfig of its own. Ask [`has_kubectl`] first.
pub async fn kubectl_at(kubeconfig: &Path, args: &[&str]) -> Outcome {
    run("kubectl".into(), kubeconfig, args).await
}

/// A command that talks for as long as it runs. It is killed when dropped.
pub struct Talk {
    child: Child,
    lines: Lines<BufReader<ChildStdout>>,
}

impl Talk {
    /// Starts `program` against `cluster`, without a terminal.
    pub fn begin(program: impl AsRef<OsStr>, cluster: &Cluster, args: &[&str]) -> Self {
        let mut command = tokio::process::Command::new(program);
        Self::hear(command.args(args).env("KUBECONFIG", cluster.kubeconfig()))
    }

    /// Starts a sandbox in a process of its own, which tells by its first line how to find it.
    pub fn sandbox(flags: &[&str]) -> Self {
        let mut command = tokio::process::Command::new(program("nm-sandbox"));
        Self::hear(command.arg("up").args(flags).stderr(Stdio::null()))
    }

    fn hear(command: &mut tokio::process::Command) -> Self {
        let command = command.stdin(Stdio::null()).stdout(Stdio::piped()).kill_on_drop(true);
        let mut child = command.spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        Self { child, lines }
    }

    /// Sends a signal, by its name.
    pub fn signal(&self, name: &str) {
        signal(self.child.id().unwrap(), name);
    }

    /// The next line of its output; none when that has ended.
    pub async fn line(&mut self) -> Option<String> {
        let line = tokio::time::timeout(PATIENCE, self.lines.next_line());
        line.await.expect("the command goes on talking").unwrap()
    }

    /// Waits for its end and returns its exit code.
    pub async fn exit_code(&mut self) -> Option<i32> {
        exit_code(&mut self.child).await
    }
}

/// Sends a process a signal, by its name.
pub(crate) fn signal(process: u32, name: &str) {
    assert!(Command::new("kill").args(["-s", name, &process.to_string()]).status().unwrap().success());
}

/// The exit code of a program that is about to end.
pub(crate) async fn exit_code(child: &mut Child) -> Option<i32> {
    let ended = tokio::time::timeout(PATIENCE, child.wait());
    ended.await.expect("the program ends").unwrap().code()
}

/// Says that a test is skipped, past the test runner's capturing: a skipped case must not look like a passed one.
pub fn skipped(why: &str) {
    let thread = std::thread::current();
    let _ = writeln!(std::io::stderr(), "SKIPPED {}: {why}", thread.name().unwrap_or_default());
}

/// Whether there is a kubectl to test with.
pub fn has_kubectl() -> bool {
    let found = Command::new("kubectl")
        .args(["version", "--client"])
        .output()
        .is_ok_and(|output| output.status.success());
    if !found {
        skipped("no kubectl on PATH");
    }
    found
}

async fn run(program: PathBuf, kubeconfig: &Path, args: &[&str]) -> Outcome {
    let mut command = tokio::process::Command::new(program);
    outcome(command.args(args).env("KUBECONFIG", kubeconfig).env_remove("NO_COLOR")).await
}

/// What a command comes to, without a terminal.
pub(crate) async fn outcome(command: &mut tokio::process::Command) -> Outcome {
    let output = command.stdin(Stdio::null()).kill_on_drop(true).output();
    let output = tokio::time::timeout(PATIENCE, output).await.expect("the command ends").unwrap();
    Outcome {
        code: output.status.code(),
        stdout: String::from_utf8(output.stdout).unwrap(),
        stderr: String::from_utf8(output.stderr).unwrap(),
    }
}
