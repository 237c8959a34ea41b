//! The built programs, run as anyone would run them.

use std::ffi::OsStr;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;
use std::time::Duration;

use tokio::io::{AsyncBufReadExt, AsyncRead, BufReader, Lines};
use tokio::process::Child;
use tokio::sync::watch;

use crate::cluster::Cluster;

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

/// A running reconciler. It is killed when dropped, and its log is shown if the test fails.
pub struct Reconciler {
    child: Child,
    log: watch::Receiver<Vec<String>>,
}

impl Reconciler {
    /// Starts one for `cluster`, with the rights of its service account and no others.
    pub fn start(cluster: &Cluster) -> Self {
        Self::start_with(cluster, &[])
    }

    /// The same with more flags.
    pub fn start_with(cluster: &Cluster, flags: &[&str]) -> Self {
        let flags = [&["--log-format", "text", "--log-level", "debug"], flags].concat();
        Self::spawn(cluster, &program("nm-reconciler"), &flags)
    }

    /// Starts one for a benchmark, without any flags.
    pub fn as_shipped(cluster: &Cluster) -> Self {
        Self::spawn(cluster, &program_of_benchmark("nm-reconciler"), &[])
    }

    /// Starts another build of it, without any flags.
    pub fn of(cluster: &Cluster, program: &Path) -> Self {
        Self::spawn(cluster, program, &[])
    }

    fn spawn(cluster: &Cluster, program: &Path, flags: &[&str]) -> Self {
        let mut child = tokio::process::Command::new(program)
            .args(flags)
            .env("KUBECONFIG", cluster.reconciler_kubeconfig())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        let (sender, log) = watch::channel(Vec::new());
        let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
        tokio::spawn(async move {
            while let Ok(Some(line)) = lines.next_line().await {
                sender.send_modify(|log| log.push(line));
            }
        });
        Self { child, log }
    }

    /// The lines of its log so far.
    pub fn log(&self) -> Vec<String> {
        self.log.borrow().clone()
    }

    /// The first line of its log that `is_wanted`, once there is one.
    pub async fn until_logged(&self, what: &str, is_wanted: impl Fn(&str) -> bool) -> String {
        let mut log = self.log.clone();
        let found = |log: &Vec<String>| log.iter().find(|line| is_wanted(line)).cloned();
        let logged = tokio::time::timeout(crate::until::PATIENCE, log.wait_for(|log| found(log).is_some()));
        let log = logged.await.unwrap_or_else(|_| panic!("the reconciler does not log {what}"));
        found(&log.unwrap_or_else(|_| panic!("the reconciler ended and has not logged {what}"))).unwrap()
    }

    /// The processor time that it has used so far, where the system tells.
    pub fn processor_time(&self) -> Option<Duration> {
        let schedule = std::fs::read_to_string(format!("/proc/{}/stat", self.child.id()?)).ok()?;
        // The name, in parentheses, may contain spaces; user and system time are the 14th and 15th field of all.
        let (_, fields) = schedule.rsplit_once(')')?;
        let ticks = fields.split_whitespace().skip(11).take(2).filter_map(|field| field.parse::<u64>().ok());
        // Linux counts in hundredths of a second for programs, whatever it does itself.
        Some(Duration::from_millis(ticks.sum::<u64>() * 10))
    }

    /// By which the host knows it. It ends the name by which the API server's log does.
    pub fn pid(&self) -> u32 {
        self.child.id().unwrap()
    }

    /// Sends a signal, by its name.
    pub fn signal(&self, name: &str) {
        signal(&self.child, name);
    }

    /// Waits for its end and returns its exit code.
    pub async fn exit_code(&mut self) -> Option<i32> {
        self.child.wait().await.unwrap().code()
    }

    /// Kills it as a crash would.
    pub async fn crash(mut self) {
        self.child.kill().await.unwrap();
    }
}

impl Drop for Reconciler {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("the reconciler's log:\n{}", self.log.borrow().join("\n"));
        }
    }
}

fn signal(child: &Child, name: &str) {
    let pid = child.id().unwrap().to_string();
    assert!(Command::new("kill").args(["-s", name, &pid]).status().unwrap().success());
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
    lines: Lines<BufReader<Box<dyn AsyncRead + Send + Unpin>>>,
}

impl Talk {
    /// Starts `program` against `cluster`, without a terminal.
    pub fn begin(program: impl AsRef<OsStr>, cluster: &Cluster, args: &[&str]) -> Self {
        let mut child = tokio::process::Command::new(program)
            .args(args)
            .env("KUBECONFIG", cluster.kubeconfig())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        Self::hear(child.stdout.take().unwrap(), child)
    }

    /// Starts a reconciler as shipped, with the rights of its service account, and hears its log.
    pub fn reconciler(cluster: &Cluster, flags: &[&str]) -> Self {
        let mut child = tokio::process::Command::new(program("nm-reconciler"))
            .args(flags)
            .env("KUBECONFIG", cluster.reconciler_kubeconfig())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        Self::hear(child.stderr.take().unwrap(), child)
    }

    fn hear(output: impl AsyncRead + Send + Unpin + 'static, child: Child) -> Self {
        let output: Box<dyn AsyncRead + Send + Unpin> = Box::new(output);
        Self { child, lines: BufReader::new(output).lines() }
    }

    /// Sends a signal, by its name.
    pub fn signal(&self, name: &str) {
        signal(&self.child, name);
    }

    /// The next line of its output; none when that has ended.
    pub async fn line(&mut self) -> Option<String> {
        let line = tokio::time::timeout(crate::until::PATIENCE, self.lines.next_line());
        line.await.expect("the command goes on talking").unwrap()
    }

    /// Waits for its end and returns its exit code.
    pub async fn exit_code(&mut self) -> Option<i32> {
        self.child.wait().await.unwrap().code()
    }
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
    let output = tokio::process::Command::new(program)
        .args(args)
        .env("KUBECONFIG", kubeconfig)
        .env_remove("NO_COLOR")
        .stdin(Stdio::null())
        .kill_on_drop(true)
        .output();
    let output =
        tokio::time::timeout(crate::until::PATIENCE, output).await.expect("the command ends").unwrap();
    Outcome {
        code: output.status.code(),
        stdout: String::from_utf8(output.stdout).unwrap(),
        stderr: String::from_utf8(output.stderr).unwrap(),
    }
}
