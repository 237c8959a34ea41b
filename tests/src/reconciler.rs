//! The reconciler as a process, with the permissions that it has where it is installed.

use std::net::SocketAddr;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, Command};
use tokio::sync::watch;

use crate::cluster::Cluster;
use crate::programs::{exit_code, processor_time, program, signal};
use crate::wait::TEST_TIMEOUT;

/// A running reconciler. It is killed when dropped, and its log is printed if the test fails.
pub struct Reconciler {
    child: Child,
    log: watch::Receiver<Vec<String>>,
}

impl Reconciler {
    /// Starts a reconciler for `cluster`, with the permissions of its service account and no others.
    pub fn start(cluster: &Cluster) -> Self {
        Self::start_with(cluster, &[])
    }

    /// Starts a reconciler with more flags.
    pub fn start_with(cluster: &Cluster, flags: &[&str]) -> Self {
        let flags = [&["--log-format", "text", "--log-level", "debug"], flags].concat();
        Self::start_with_only(cluster, &flags)
    }

    /// Starts a reconciler with these flags and no others, so that it logs as it does where it is installed.
    pub fn start_with_only(cluster: &Cluster, flags: &[&str]) -> Self {
        Self::start_build(&cluster.reconciler_kubeconfig(), &program("nm-reconciler"), flags)
    }

    /// Starts a reconciler without flags, configured by environment variables.
    pub fn start_with_env(cluster: &Cluster, variables: &[(&str, &str)]) -> Self {
        let mut command = without_settings(&program("nm-reconciler"));
        command.envs(variables.iter().copied());
        Self::spawn(&cluster.reconciler_kubeconfig(), command, &[])
    }

    /// Starts any build of the reconciler with any kubeconfig, and with these flags and no others.
    pub fn start_build(kubeconfig: &Path, program: &Path, flags: &[&str]) -> Self {
        Self::spawn(kubeconfig, without_settings(program), flags)
    }

    fn spawn(kubeconfig: &Path, command: std::process::Command, flags: &[&str]) -> Self {
        let mut child = Command::from(command)
            .args(flags)
            .env("KUBECONFIG", kubeconfig)
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

    /// The lines of the log so far.
    pub fn log(&self) -> Vec<String> {
        self.log.borrow().clone()
    }

    /// The first line of the log that `is_wanted`, once there is one.
    pub async fn until_logged(&self, what: &str, is_wanted: impl Fn(&str) -> bool) -> String {
        let mut log = self.log.clone();
        let found = |log: &Vec<String>| log.iter().find(|line| is_wanted(line)).cloned();
        let logged = tokio::time::timeout(TEST_TIMEOUT, log.wait_for(|log| found(log).is_some()));
        let log = logged.await.unwrap_or_else(|_| panic!("the reconciler does not log {what}"));
        found(&log.unwrap_or_else(|_| panic!("the reconciler exited and has not logged {what}"))).unwrap()
    }

    /// Where the probes and metrics are served, from the log. It needs `--metrics-addr`.
    pub async fn metrics_address(&self) -> SocketAddr {
        self.logged_address("serving the probes and metrics").await
    }

    /// Where the webhook is served, from the log. It needs `--webhook-addr`.
    pub async fn webhook_address(&self) -> SocketAddr {
        self.logged_address("serving the webhook").await
    }

    async fn logged_address(&self, message: &str) -> SocketAddr {
        let line = self.until_logged(message, |line| line.contains(message)).await;
        let (_, address) = line.split_once("address=").unwrap();
        address.split_whitespace().next().unwrap().parse().unwrap()
    }

    /// The processor time used so far; `None` where the system has no `/proc`.
    pub fn processor_time(&self) -> Option<Duration> {
        processor_time(self.pid())
    }

    /// The process id. The user agent ends with it, too.
    pub fn pid(&self) -> u32 {
        self.child.id().unwrap()
    }

    /// Sends a signal, such as `TERM`.
    pub fn signal(&self, name: &str) {
        signal(self.pid(), name);
    }

    /// Whether the reconciler has exited by itself.
    pub fn has_exited(&mut self) -> bool {
        self.child.try_wait().unwrap().is_some()
    }

    /// Waits until the reconciler exits and returns its exit code.
    pub async fn exit_code(&mut self) -> Option<i32> {
        exit_code(&mut self.child).await
    }

    /// Kills the reconciler (SIGKILL).
    pub async fn crash(mut self) {
        self.child.kill().await.unwrap();
    }
}

/// A command without the variables `NM_*` that configure the tests: the reconciler refuses unknown settings.
pub fn without_settings(program: &Path) -> std::process::Command {
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
