//! The reconciler as a process: started with the rights that it has where it is installed, and heard.

use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, Command};
use tokio::sync::watch;

use crate::cluster::Cluster;
use crate::programs::{exit_code, program, signal};
use crate::until::PATIENCE;

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
        Self::as_shipped(cluster, &flags)
    }

    /// The same with these flags and no others, so that it logs as it does where it is installed.
    pub fn as_shipped(cluster: &Cluster, flags: &[&str]) -> Self {
        Self::spawn(cluster, unconfigured(&program("nm-reconciler")), flags)
    }

    /// The same without flags, told by its environment what to do.
    pub fn told_by(cluster: &Cluster, variables: &[(&str, &str)]) -> Self {
        let mut command = unconfigured(&program("nm-reconciler"));
        command.envs(variables.iter().copied());
        Self::spawn(cluster, command, &[])
    }

    /// Starts another build of it, without any flags.
    pub fn of(cluster: &Cluster, program: &Path) -> Self {
        Self::spawn(cluster, unconfigured(program), &[])
    }

    fn spawn(cluster: &Cluster, command: std::process::Command, flags: &[&str]) -> Self {
        let mut child = Command::from(command)
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
        let logged = tokio::time::timeout(PATIENCE, log.wait_for(|log| found(log).is_some()));
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
        signal(self.pid(), name);
    }

    /// Waits for its end and returns its exit code.
    pub async fn exit_code(&mut self) -> Option<i32> {
        exit_code(&mut self.child).await
    }

    /// Kills it as a crash would.
    pub async fn crash(mut self) {
        self.child.kill().await.unwrap();
    }
}

/// A command without the variables by which the tests themselves are told what to do: to the reconciler they would be
/// settings that it does not know.
pub fn unconfigured(program: &Path) -> std::process::Command {
    let mut command = std::process::Command::new(program);
    for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("NM_")) {
        command.env_remove(name);
    }
    command
}

impl Drop for Reconciler {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("the reconciler's log:\n{}", self.log.borrow().join("\n"));
        }
    }
}
