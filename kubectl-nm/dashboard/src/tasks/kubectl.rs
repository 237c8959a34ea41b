//! Runs kubectl, and sends what it prints.

use std::io;
use std::process::Stdio;

use nm_core::terminal::text::plain;
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::process::{Child, Command};
use tokio::sync::mpsc::Sender;

use crate::message::Message;
use crate::model::panes::output::KubectlError;
use crate::model::panes::output::{OutputChange, OutputLine};

const PROGRAM: &str = "kubectl";

/// How many bytes of a line are kept together; a longer one becomes several.
const MAX_LINE: usize = 16 * 1024;

const BUFFER: usize = 32 * 1024;

/// Why kubectl could not be started.
fn not_started(error: &io::Error) -> KubectlError {
    if error.kind() == io::ErrorKind::NotFound {
        KubectlError::Missing
    } else {
        KubectlError::NotStarted(error.to_string())
    }
}

/// Runs kubectl with these arguments, and sends what it prints with the number of the run.
pub(crate) fn read(
    flags: &[String],
    arguments: &[String],
    id: u64,
    to: Sender<Message>,
) -> impl Future<Output = ()> + use<> {
    let mut command = Command::new(PROGRAM);
    // It ends when nobody waits for it any more.
    command.args(flags).args(arguments).kill_on_drop(true);
    run(command, id, to)
}

async fn run(mut command: Command, id: u64, to: Sender<Message>) {
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let ended = match command.spawn() {
        Ok(child) => forward(child, id, &to).await,
        Err(error) => Err(not_started(&error)),
    };
    // The receiver is gone if the dashboard has ended.
    let _ = to.send(Message::Output { id, change: OutputChange::Ended(ended) }).await;
}

/// Sends what a program prints until it ends.
async fn forward(mut child: Child, id: u64, to: &Sender<Message>) -> Result<(), KubectlError> {
    let (out, err) = (child.stdout.take(), child.stderr.take());
    tokio::join!(lines(out, false, id, to), lines(err, true, id, to));
    match child.wait().await {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(status.code().map_or(KubectlError::Signalled, KubectlError::Exited)),
        Err(error) => Err(KubectlError::NotStarted(error.to_string())),
    }
}

async fn lines(from: Option<impl AsyncRead + Unpin>, is_error: bool, id: u64, to: &Sender<Message>) {
    let Some(mut from) = from else { return };
    let mut buffer = vec![0; BUFFER];
    let mut partial = Vec::new();
    loop {
        let count = from.read(&mut buffer).await.unwrap_or(0);
        let mut lines = whole_lines(&mut partial, &buffer[..count]);
        if count == 0 && !partial.is_empty() {
            lines.push(text(&std::mem::take(&mut partial)));
        }
        if !lines.is_empty() {
            let lines = lines.into_iter().map(|text| OutputLine { text, is_error }).collect();
            let _ = to.send(Message::Output { id, change: OutputChange::Lines(lines) }).await;
        }
        if count == 0 {
            return;
        }
    }
}

/// The lines that are complete with these bytes. What follows them stays in `partial`.
fn whole_lines(partial: &mut Vec<u8>, bytes: &[u8]) -> Vec<String> {
    let mut lines = Vec::new();
    for byte in bytes {
        if *byte != b'\n' {
            partial.push(*byte);
        }
        if *byte == b'\n' || partial.len() >= MAX_LINE {
            lines.push(text(&std::mem::take(partial)));
        }
    }
    lines
}

fn text(bytes: &[u8]) -> String {
    plain(&String::from_utf8_lossy(bytes))
}

#[cfg(test)]
mod tests {
    use tokio::sync::mpsc;
    use tokio::task::LocalSet;

    use super::*;

    #[test]
    fn lines_are_without_colours_and_tabs_and_not_endless() {
        let mut partial = Vec::new();
        assert_eq!(
            whole_lines(&mut partial, b"a\tb\n\x1b[31mred\x1b[0m x\r\n\npart"),
            ["a       b", "red x", ""]
        );
        assert_eq!(whole_lines(&mut partial, b"ial\n"), ["partial"]);
        let long = whole_lines(&mut partial, &vec![b'x'; 2 * MAX_LINE + 1]);
        assert_eq!((long.len(), partial.len()), (2, 1));
    }

    #[cfg(unix)]
    #[tokio::test]
    async fn what_a_program_prints_is_sent_with_how_it_ended() {
        let run_shell = async |script: &str| {
            let (to, mut from) = mpsc::channel(16);
            let mut command = Command::new("/bin/sh");
            command.args(["-c", script]);
            LocalSet::new().run_until(run(command, 7, to)).await;
            let mut said = Vec::new();
            while let Ok(Message::Output { id: 7, change }) = from.try_recv() {
                said.push(match change {
                    OutputChange::Lines(lines) => {
                        let shown = lines.iter().map(|line| format!("{} {}", line.is_error, line.text));
                        shown.collect::<Vec<_>>().concat()
                    }
                    OutputChange::Ended(Ok(())) => String::from("ended"),
                    OutputChange::Ended(Err(error)) => error.to_string(),
                });
            }
            said
        };
        assert_eq!(run_shell("printf one").await, ["false one", "ended"]);
        assert_eq!(run_shell("echo no >&2; exit 3").await, ["true no", "kubectl exited with 3"]);
    }

    #[tokio::test]
    async fn a_missing_program_is_reported_by_name() {
        let (to, mut from) = mpsc::channel(1);
        LocalSet::new().run_until(run(Command::new("/no/such/kubectl"), 1, to)).await;
        let Some(Message::Output { change: OutputChange::Ended(Err(why)), .. }) = from.recv().await else {
            panic!("no answer")
        };
        assert_eq!(why.to_string(), "there is no kubectl in PATH, which this key needs");
    }
}
