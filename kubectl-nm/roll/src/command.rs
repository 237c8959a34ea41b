//! The command that a roll runs on this machine for each drained node.
//!
//! A command does not outlive the program, so that it does not run twice at once: a shell beside it reads from a pipe of
//! the program, and ends the process group when the pipe is closed. The system closes it even if the program is killed.

use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use jiff::Timestamp;
use nm_core::args::duration;
use tokio::fs::File;
use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::process::{Child, Command};
use tokio::sync::mpsc;
use tokio::time::timeout;

use crate::record::ActionState;

/// The exit code of ssh when its connection ends, also because the node reboots.
const DISCONNECTED: i32 = 255;

/// The most bytes of a line that are shown. The log has all of it.
const MAX_LINE: usize = 4096;

/// The most bytes of a line that are read at once, without its line break. A longer one becomes several: what a command prints may
/// come from a node that somebody else controls, and must not use up the memory.
const MAX_READ: usize = 64 << 10;

/// A line that the command or the Job of a node printed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeOutputLine {
    /// Node whose command or Job printed the line.
    pub node: String,
    /// The line without its line break.
    pub text: String,
}

/// The command of a node.
#[derive(Clone, Debug)]
pub(crate) struct NodeCommand {
    pub(crate) command: String,
    pub(crate) roll: String,
    pub(crate) node: String,
    pub(crate) timeout: Duration,
    /// Where the output is kept; nowhere if there is no such folder.
    pub(crate) log: Option<PathBuf>,
    /// The kubeconfig that a flag of the roll names.
    pub(crate) kubeconfig: Option<PathBuf>,
}

impl NodeCommand {
    /// Runs the command, and returns how it ended. If the future is dropped, or this program is killed, the command and what it
    /// started are ended.
    pub(crate) async fn run(self, lines: mpsc::Sender<NodeOutputLine>) -> ActionState {
        let mut group = match self.spawn().and_then(ProcessGroup::new) {
            Ok(group) => group,
            Err(error) => return ActionState::Failed(format!("cannot start the command: {error}")),
        };
        let child = &mut group.child;
        let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
        let mut log = self.open_log().await;
        let (sender, mut receiver) = mpsc::channel::<Vec<u8>>(64);
        let (mut last_of_stdout, mut last_of_stderr) = (Vec::new(), Vec::new());
        let read = async {
            tokio::join!(
                read_lines(stdout, &mut last_of_stdout, sender.clone()),
                read_lines(stderr, &mut last_of_stderr, sender.clone())
            );
            drop(sender);
        };
        let show = async {
            while let Some(line) = receiver.recv().await {
                self.show(line, &mut log, &lines).await;
            }
        };
        // What the command leaves in the background may keep its output open: its own end counts.
        let ended = async {
            let output = async { tokio::join!(read, show) };
            tokio::pin!(output);
            tokio::select! {
                status = child.wait() => {
                    let _ = timeout(Duration::from_millis(500), &mut output).await;
                    status
                }
                _ = &mut output => child.wait().await,
            }
        };
        let ended = timeout(self.timeout, ended).await;
        // What was read by then is shown, also a last line without a line break.
        let mut rest = Vec::new();
        while let Ok(line) = receiver.try_recv() {
            rest.push(line);
        }
        rest.extend([last_of_stdout, last_of_stderr].into_iter().filter(|line| !line.is_empty()));
        for line in rest {
            self.show(line, &mut log, &lines).await;
        }
        match ended {
            Err(_) => {
                ActionState::Failed(format!("the command still runs after {}", duration::show(self.timeout)))
            }
            Ok(Err(error)) => ActionState::Failed(format!("cannot wait for the command: {error}")),
            Ok(Ok(status)) => match status.code() {
                Some(0) => ActionState::Succeeded,
                Some(DISCONNECTED) => ActionState::Disconnected,
                Some(code) => ActionState::Failed(format!("the command ended with exit code {code}")),
                None => ActionState::Failed(format!("the command ended: {status}")),
            },
        }
    }

    /// Shows a line, and adds it to the log.
    async fn show(&self, mut line: Vec<u8>, log: &mut Option<File>, lines: &mpsc::Sender<NodeOutputLine>) {
        if let Some(log) = log {
            // A full disk does not stop the roll.
            let _ = log.write_all(&[line.as_slice(), b"\n"].concat()).await;
        }
        line.truncate(MAX_LINE);
        let text = String::from_utf8_lossy(&line).into_owned();
        // The receiver ends together with the roll.
        let _ = lines.send(NodeOutputLine { node: self.node.clone(), text }).await;
    }

    fn spawn(&self) -> io::Result<Child> {
        let command = self.command.replace("{}", &self.node);
        let mut shell = if cfg!(windows) { Command::new("cmd") } else { Command::new("sh") };
        shell.args([OsString::from(if cfg!(windows) { "/C" } else { "-c" }), command.into()]);
        shell.env("NM_NODE", &self.node).env("NM_ROLL", &self.roll);
        if let Some(kubeconfig) = &self.kubeconfig {
            shell.env("KUBECONFIG", kubeconfig);
        }
        shell.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true);
        #[cfg(unix)]
        shell.process_group(0);
        shell.spawn()
    }

    async fn open_log(&self) -> Option<File> {
        let path = self.log.as_ref()?;
        tokio::fs::create_dir_all(path.parent()?).await.ok()?;
        File::options().create(true).append(true).open(path).await.ok()
    }
}

/// A child that leads a process group, all of which is ended when this is dropped, or when this program is killed.
struct ProcessGroup {
    child: Child,
    #[cfg(unix)]
    guard: Child,
}

impl ProcessGroup {
    #[cfg(unix)]
    fn new(child: Child) -> io::Result<Self> {
        let guard = guard(child.id().unwrap_or_default())?;
        Ok(Self { child, guard })
    }

    #[cfg(not(unix))]
    #[expect(clippy::unnecessary_wraps, reason = "on Unix, it may fail")]
    fn new(child: Child) -> io::Result<Self> {
        Ok(Self { child })
    }
}

impl Drop for ProcessGroup {
    fn drop(&mut self) {
        #[cfg(unix)]
        {
            if let Some(leader) =
                self.child.id().and_then(|id| rustix::process::Pid::from_raw(id.cast_signed()))
            {
                // It may have ended meanwhile.
                let _ = rustix::process::kill_process_group(leader, rustix::process::Signal::TERM);
            }
            // What a command has left in the background stays.
            let _ = self.guard.start_kill();
        }
    }
}

/// Starts a process that ends a process group if this program is killed, which cannot do so itself then: the process reads
/// from a pipe, which the system closes at that moment.
#[cfg(unix)]
fn guard(leader: u32) -> io::Result<Child> {
    let script = "read -r _; kill -s TERM -- \"-$0\"";
    let mut shell = Command::new("sh");
    shell.args(["-c", script, &leader.to_string()]).process_group(0);
    shell.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null()).kill_on_drop(true).spawn()
}

/// Sends lines as they end. What was read of a `line` that has not ended stays in it when the future is dropped.
async fn read_lines(from: Option<impl AsyncRead + Unpin>, line: &mut Vec<u8>, to: mpsc::Sender<Vec<u8>>) {
    let Some(from) = from else { return };
    let mut from = BufReader::new(from);
    loop {
        // The byte after the last one shows whether the line ends there.
        let left = (MAX_READ + 1 - line.len()) as u64;
        let read = (&mut from).take(left).read_until(b'\n', line).await;
        if line.is_empty() && matches!(read, Ok(0) | Err(_)) {
            return;
        }
        let rest = match line.pop_if(|last| *last == b'\n') {
            Some(_) => Vec::new(),
            None => line.split_off(line.len().min(MAX_READ)),
        };
        if to.send(std::mem::replace(line, rest)).await.is_err() {
            return;
        }
    }
}

/// The folder in which the output of a roll's commands is kept: below `XDG_STATE_HOME`, or its default.
pub fn log_folder(roll: &str, env: impl Fn(&str) -> Option<OsString>) -> Option<PathBuf> {
    let set = |name: &str| env(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let state = set("XDG_STATE_HOME")
        .or_else(|| set("HOME").map(|home| home.join(".local").join("state")))
        .or_else(|| set("LOCALAPPDATA"))?;
    Some(state.join("kubectl-nm").join("roll").join(Path::new(roll)))
}

/// Where the output of the command of a node is kept on this machine: below the [`log_folder`] of its roll, if it was written to since
/// then. Another roll may have had the same name.
pub fn kept_output(folder: &Path, node: &str, since: Timestamp) -> Option<PathBuf> {
    let file = folder.join(log_name(node));
    let written = Timestamp::try_from(file.metadata().ok()?.modified().ok()?).ok()?;
    (written >= since).then_some(file)
}

/// The name of the file with the output of a node.
pub(crate) fn log_name(node: &str) -> String {
    format!("{node}.log")
}

#[cfg(all(test, unix))]
mod tests {
    use jiff::SignedDuration;

    use super::*;

    #[tokio::test]
    async fn a_line_as_long_as_the_limit_is_one_line_and_nothing_of_a_longer_one_is_lost() {
        let check = async |length: usize, expected: &[usize]| {
            for end in ["\n", "\nend\n", ""] {
                let output = format!("{}{end}", "x".repeat(length));
                let (sender, mut lines) = mpsc::channel(64);
                read_lines(Some(output.as_bytes()), &mut Vec::new(), sender).await;
                let mut lengths = Vec::new();
                while let Some(line) = lines.recv().await {
                    lengths.push(line.len());
                }
                let more: &[usize] = if end.contains("end") { &[3] } else { &[] };
                assert_eq!(lengths, [expected, more].concat(), "{length} bytes and {end:?}");
            }
        };
        check(1, &[1]).await;
        check(MAX_READ - 1, &[MAX_READ - 1]).await;
        check(MAX_READ, &[MAX_READ]).await;
        check(MAX_READ + 1, &[MAX_READ, 1]).await;
        check(2 * MAX_READ, &[MAX_READ, MAX_READ]).await;
        check(2 * MAX_READ + 1, &[MAX_READ, MAX_READ, 1]).await;
    }

    #[test]
    fn the_output_of_a_command_is_found_if_it_was_written_since_the_command_began() {
        let folder = tempfile::tempdir().unwrap();
        let now = Timestamp::now();
        let (before, after) = (now - SignedDuration::from_secs(60), now + SignedDuration::from_secs(60));
        assert_eq!(kept_output(folder.path(), "n1", before), None);
        let file = folder.path().join("n1.log");
        std::fs::write(&file, "cannot reboot").unwrap();
        assert_eq!(kept_output(folder.path(), "n1", before), Some(file));
        assert_eq!(kept_output(folder.path(), "n1", after), None, "it is of an earlier roll");
    }

    fn command(text: &str) -> NodeCommand {
        NodeCommand {
            command: text.to_owned(),
            roll: String::from("r"),
            node: String::from("n"),
            timeout: Duration::from_secs(60),
            log: None,
            kubeconfig: None,
        }
    }

    #[tokio::test]
    async fn a_last_line_without_a_line_break_is_kept_although_the_output_stays_open() {
        for background in ["", "sleep 60 & "] {
            let (sender, mut lines) = mpsc::channel(64);
            let ended =
                command(&format!("{background}echo first; printf 'cannot reboot'; exit 3")).run(sender);
            assert_eq!(ended.await, ActionState::Failed(String::from("the command ended with exit code 3")));
            let mut shown = Vec::new();
            while let Some(line) = lines.recv().await {
                shown.push(line.text);
            }
            assert_eq!(shown, ["first", "cannot reboot"], "{background}");
        }
    }

    #[tokio::test]
    async fn a_line_that_never_ends_is_read_in_parts() {
        let command = command("head -c 200000 /dev/zero | tr '\\0' x; echo; echo end");
        let (sender, mut lines) = mpsc::channel(64);
        assert_eq!(command.run(sender).await, ActionState::Succeeded);
        let mut lengths = Vec::new();
        while let Some(line) = lines.recv().await {
            lengths.push(line.text.len());
        }
        assert_eq!(lengths, [MAX_LINE, MAX_LINE, MAX_LINE, 3392, 3]);
    }
}
