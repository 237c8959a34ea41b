//! Runs the plugin, kubectl and the sandbox as commands. [`crate::reconciler`] runs the reconciler.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Mutex, OnceLock};
use std::time::Duration;

use tokio::io::{AsyncBufReadExt, BufReader, Lines};
use tokio::process::{Child, ChildStdout};

use crate::cluster::Cluster;
use crate::skip::has_kubectl;
use crate::wait::in_time;

/// The path of a program of this workspace, built in the profile of the tests.
///
/// Cargo does not build binaries of other packages for a test. They are built here, once, with the features that the
/// tests were built with, so that nothing is compiled twice.
pub fn program(name: &str) -> PathBuf {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    BUILT.get_or_init(|| build(&["--workspace", "--bins", "--tests"])).join(name)
}

/// Like [`program`] for a benchmark, for which Cargo chose features by this package alone. Only this program is built, once,
/// because linking an optimized program takes minutes.
pub fn program_of_benchmark(name: &str) -> PathBuf {
    static BUILT: Mutex<BTreeMap<String, PathBuf>> = Mutex::new(BTreeMap::new());
    let mut built = BUILT.lock().unwrap();
    let selection = ["-p", env!("CARGO_PKG_NAME"), "-p", name, "--bin", name];
    built.entry(name.to_owned()).or_insert_with(|| build(&selection).join(name)).clone()
}

/// Runs `cargo build` with these flags, and returns the folder of the built programs.
fn build(selection: &[&str]) -> PathBuf {
    let this = std::env::current_exe().unwrap();
    let folder = this.ancestors().nth(2).unwrap().to_owned();
    let profile = match folder.file_name().and_then(OsStr::to_str) {
        Some("debug") | None => "dev",
        Some(other) => other,
    };
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut build = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    // The variables that Cargo sets for this test would make it rebuild some dependencies.
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

/// The output and the exit code of a command.
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
    /// The same outcome, if the exit code is 0.
    ///
    /// # Panics
    /// If it is not.
    #[must_use]
    pub fn ok(self) -> Self {
        assert_eq!(self.code, Some(0), "{self:?}");
        self
    }

    /// The same outcome without what the plugin says if reading takes longer than a second, which depends on how busy the machine is.
    #[must_use]
    pub fn without_progress(mut self) -> Self {
        // `asking … ...`, later with the time since: `asking … ... (6s)`.
        let begins = |line: &str| ["reading ", "asking "].iter().any(|word| line.starts_with(word));
        let is_progress = |line: &str| begins(line) && line.contains(" ...");
        self.stderr = self.stderr.split_inclusive('\n').filter(|line| !is_progress(line)).collect();
        self
    }

    /// Compares the exit code and all output with the expected ones.
    ///
    /// # Panics
    /// If anything differs.
    #[track_caller]
    pub fn expect(&self, code: i32, stdout: &str, stderr: &str) {
        assert_eq!((self.code, self.stdout.as_str(), self.stderr.as_str()), (Some(code), stdout, stderr));
    }
}

/// Runs the plugin against `cluster`, without a terminal, and leaves out its progress.
pub async fn plugin(cluster: &Cluster, args: &[&str]) -> Outcome {
    plugin_of(cluster.kubeconfig(), args).await.without_progress()
}

/// Runs the plugin with a kubeconfig, without a terminal.
pub async fn plugin_of(kubeconfig: &Path, args: &[&str]) -> Outcome {
    run(program("kubectl-nm"), kubeconfig, args).await
}

/// Runs any build of the plugin against `cluster`, without a terminal.
pub async fn plugin_build(program: &Path, cluster: &Cluster, args: &[&str]) -> Outcome {
    run(program.to_owned(), cluster.kubeconfig(), args).await
}

/// Runs kubectl against `cluster`; `None` where there is no kubectl, and the test is reported as skipped.
pub async fn kubectl(cluster: &Cluster, args: &[&str]) -> Option<Outcome> {
    if !has_kubectl() {
        return None;
    }
    Some(run("kubectl".into(), cluster.kubeconfig(), args).await)
}

/// Runs kubectl with a kubeconfig. Call [`has_kubectl`] first.
pub async fn kubectl_at(kubeconfig: &Path, args: &[&str]) -> Outcome {
    run("kubectl".into(), kubeconfig, args).await
}

/// A running command whose output is read line by line. It is killed when dropped.
pub struct RunningCommand {
    child: Child,
    lines: Lines<BufReader<ChildStdout>>,
}

impl RunningCommand {
    /// Starts `program` against `cluster`, without a terminal.
    pub fn start(program: impl AsRef<OsStr>, cluster: &Cluster, args: &[&str]) -> Self {
        let mut command = tokio::process::Command::new(program);
        Self::spawn(command.args(args).env("KUBECONFIG", cluster.kubeconfig()))
    }

    /// Starts `program` against `cluster` with these environment variables, without a terminal.
    pub fn start_with_env(
        program: impl AsRef<OsStr>,
        cluster: &Cluster,
        args: &[&str],
        env: &[(&str, &Path)],
    ) -> Self {
        let mut command = tokio::process::Command::new(program);
        Self::spawn(command.args(args).env("KUBECONFIG", cluster.kubeconfig()).envs(env.iter().copied()))
    }

    /// Starts a sandbox in a process of its own. Its first line of output names its kubeconfig.
    pub fn sandbox(flags: &[&str]) -> Self {
        let mut command = tokio::process::Command::new(program("nm-sandbox"));
        Self::spawn(command.arg("up").args(flags).stderr(Stdio::null()))
    }

    fn spawn(command: &mut tokio::process::Command) -> Self {
        let command = command.stdin(Stdio::null()).stdout(Stdio::piped()).kill_on_drop(true);
        let mut child = command.spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        Self { child, lines }
    }

    /// Sends a signal, such as `TERM`.
    pub fn signal(&self, name: &str) {
        signal(self.child.id().unwrap(), name);
    }

    /// The next line of standard output; `None` at its end.
    pub async fn line(&mut self) -> Option<String> {
        in_time("the command prints a line", self.lines.next_line()).await.unwrap()
    }

    /// Kills the command with SIGKILL, and waits for its end.
    pub async fn crash(mut self) {
        self.child.kill().await.unwrap();
    }

    /// Waits until the command exits and returns its exit code.
    pub async fn exit_code(&mut self) -> Option<i32> {
        exit_code(&mut self.child).await
    }
}

/// Sends a process a signal, such as `TERM`.
pub(crate) fn signal(process: u32, name: &str) {
    assert!(Command::new("kill").args(["-s", name, &process.to_string()]).status().unwrap().success());
}

/// The exit code of a program that is about to exit.
pub(crate) async fn exit_code(child: &mut Child) -> Option<i32> {
    in_time("the program exits", child.wait()).await.unwrap().code()
}

/// The processor time that a process has used; `None` where the system has no `/proc`.
pub fn processor_time(process: u32) -> Option<Duration> {
    let text = std::fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    // The second field, the name in parentheses, may contain spaces. User and system time are fields 14 and 15.
    let (_, fields) = text.rsplit_once(')')?;
    let ticks = fields.split_whitespace().skip(11).take(2).filter_map(|field| field.parse::<u64>().ok());
    // Linux reports them in hundredths of a second (USER_HZ).
    Some(Duration::from_millis(ticks.sum::<u64>() * 10))
}

/// A value of a process's memory, such as `VmRSS` or `VmHWM`, in bytes; `None` where the system has no `/proc`.
pub fn memory(process: u32, field: &str) -> Option<u64> {
    let text = std::fs::read_to_string(format!("/proc/{process}/status")).ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':'))?;
    line.trim().strip_suffix(" kB")?.parse::<u64>().ok().map(|kibibytes| kibibytes * 1024)
}

async fn run(program: PathBuf, kubeconfig: &Path, args: &[&str]) -> Outcome {
    let mut command = tokio::process::Command::new(program);
    outcome(command.args(args).env("KUBECONFIG", kubeconfig).env_remove("NO_COLOR")).await
}

/// Runs a command without a terminal.
pub(crate) async fn outcome(command: &mut tokio::process::Command) -> Outcome {
    let output = command.stdin(Stdio::null()).kill_on_drop(true).output();
    let output = in_time("the command exits", output).await.unwrap();
    Outcome {
        code: output.status.code(),
        stdout: String::from_utf8(output.stdout).unwrap(),
        stderr: String::from_utf8(output.stderr).unwrap(),
    }
}
