//! Lends the terminal to kubectl, which opens an editor.
//!
//! Meanwhile nothing is drawn and no key is read. What kubectl writes to standard error is shown on the terminal, and its
//! last line is reported in the dashboard afterwards, because the dashboard covers the terminal again.

use std::future::pending;
use std::io;
use std::pin::pin;
use std::process::Stdio;
use std::time::Duration;

use crossterm::event::{Event, EventStream};
use futures::StreamExt;
use tokio::io::{AsyncRead, AsyncReadExt, sink};
use tokio::process::Command;
use tokio::task::{JoinSet, spawn_local};
use tokio::time::timeout;

use crate::message::CommandError;
#[cfg(unix)]
use crate::screen::standard_streams::{input as standard_input, write_to_terminal as show};
use crate::tasks::kubectl::not_started;

/// How long the last output of kubectl may take after it has ended. An editor that goes on in the background keeps the output
/// open.
const LAST_WORDS: Duration = Duration::from_millis(200);

/// The input of the terminal, unless another program has it.
pub(crate) struct Inputs(Option<EventStream>);

impl Inputs {
    pub(crate) fn open() -> Self {
        Self(Some(EventStream::new()))
    }

    pub(crate) fn close(&mut self) {
        self.0 = None;
    }

    /// The next event; none if the terminal is gone. Without the input, it waits for ever.
    pub(crate) async fn next(&mut self) -> Option<io::Result<Event>> {
        match &mut self.0 {
            Some(inputs) => inputs.next().await,
            None => pending().await,
        }
    }
}

/// The editor that has the terminal, if one has.
#[derive(Default)]
pub(crate) struct Editor(JoinSet<Result<String, CommandError>>);

impl Editor {
    /// Starts it. `shown` is the command as it was shown.
    pub(crate) fn start(&mut self, command: Command, shown: String) {
        self.0.spawn_local(edit(command, shown));
    }

    pub(crate) fn is_running(&self) -> bool {
        !self.0.is_empty()
    }

    /// Waits until it ends. Returns what happened; never, if none is running.
    pub(crate) async fn ended(&mut self) -> Result<String, CommandError> {
        loop {
            match self.0.join_next().await {
                Some(Ok(result)) => return result,
                // A task that panicked ends the program.
                Some(Err(_)) => {}
                None => pending().await,
            }
        }
    }
}

async fn edit(mut command: Command, shown: String) -> Result<String, CommandError> {
    let failed = |command: &str, why: String| CommandError::Kubectl { command: command.to_owned(), why };
    let child = standard_input().and_then(|input| command.stdin(input).stderr(Stdio::piped()).spawn());
    let mut child = match child {
        Ok(child) => child,
        Err(error) => return Err(failed(&shown, not_started(&error).to_string())),
    };
    let mut said = Vec::new();
    let mut stderr = child.stderr.take();
    let status = {
        let mut copied = pin!(async {
            if let Some(stderr) = &mut stderr {
                copy(stderr, &mut said).await;
            }
        });
        tokio::select! {
            status = child.wait() => {
                let _ = timeout(LAST_WORDS, copied).await;
                status
            }
            () = &mut copied => child.wait().await,
        }
    };
    if let Some(mut stderr) = stderr {
        // What goes on in the background would end by a signal if nobody read what it writes.
        spawn_local(async move { tokio::io::copy(&mut stderr, &mut sink()).await });
    }
    let said = String::from_utf8_lossy(&said);
    let last = said.lines().rev().find(|line| !line.trim().is_empty()).unwrap_or_default().trim().to_owned();
    match status {
        Ok(status) if status.success() && last.is_empty() => Ok(format!("ended: {shown}")),
        Ok(status) if status.success() => Ok(last),
        Ok(status) if last.is_empty() => Err(failed(&shown, status.to_string())),
        Ok(_) => Err(failed(&shown, last)),
        Err(error) => Err(failed(&shown, error.to_string())),
    }
}

#[cfg(not(unix))]
fn standard_input() -> io::Result<Stdio> {
    Ok(Stdio::inherit())
}

#[cfg(not(unix))]
fn show(bytes: &[u8]) -> io::Result<()> {
    io::Write::write_all(&mut io::stderr(), bytes)
}

/// Copies what a program writes to the terminal, and keeps the last of it.
async fn copy(from: &mut (impl AsyncRead + Unpin), said: &mut Vec<u8>) {
    const MAX_OUTPUT_BYTES: usize = 4096;
    let mut buffer = [0; 1024];
    while let Ok(count) = from.read(&mut buffer).await
        && count > 0
    {
        // Nothing is lost if the terminal is gone: then the dashboard ends too.
        let _ = show(&buffer[..count]);
        said.extend_from_slice(&buffer[..count]);
        said.drain(..said.len().saturating_sub(MAX_OUTPUT_BYTES));
    }
}

#[cfg(all(test, unix))]
mod tests {
    use tokio::task::LocalSet;

    use super::*;

    async fn run(script: &str) -> Result<String, String> {
        let mut command = Command::new("/bin/sh");
        command.args(["-c", script]);
        let ended = async {
            let mut editor = Editor::default();
            editor.start(command, String::from("kubectl edit pdb a"));
            assert!(editor.is_running());
            let ended = editor.ended().await;
            assert!(!editor.is_running());
            ended.map_err(|error| error.to_string())
        };
        LocalSet::new().run_until(ended).await
    }

    #[tokio::test]
    async fn the_last_line_of_an_editor_is_reported() {
        assert_eq!(run("true").await, Ok("ended: kubectl edit pdb a".into()));
        assert_eq!(run("echo Edit cancelled >&2").await, Ok("Edit cancelled".into()));
        assert_eq!(run("echo no >&2; exit 1").await, Err("kubectl edit pdb a: no".into()));
        assert_eq!(run("exit 1").await, Err("kubectl edit pdb a: exit status: 1".into()));
    }

    #[tokio::test]
    async fn an_editor_that_goes_on_in_the_background_does_not_keep_the_terminal() {
        let ended = run("sleep 300 & echo $! >&2");
        let Ok(Ok(background)) = timeout(Duration::from_secs(60), ended).await else {
            panic!("it still waits")
        };
        Command::new("kill").arg(&background).status().await.unwrap();
    }
}
