//! Keeps other programs off the terminal while the dashboard has the screen.
//!
//! A credential plugin runs again when its token is about to expire, and inherits our standard streams: its messages
//! would garble the screen, and its prompts would take the keys. While the dashboard has the screen, standard error is
//! therefore a pipe whose text the dashboard shows, and child processes get no standard input. On systems other than Unix
//! that would need unsafe code.

use std::io::{self, PipeReader, Read};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Mutex, PoisonError};

use rustix::io::{FdFlags, fcntl_setfd};
use rustix::stdio::dup2_stderr;
use tokio::sync::mpsc::Sender;

/// The terminal's descriptor while standard error is diverted. Static, because there is one terminal and a panic
/// hook takes no arguments.
static TERMINAL: Mutex<Option<OwnedFd>> = Mutex::new(None);

/// Sends what is written to standard error to `to`, and closes standard input for child processes.
pub(crate) fn divert(to: Sender<String>) -> io::Result<()> {
    let mut terminal = TERMINAL.lock().unwrap_or_else(PoisonError::into_inner);
    if terminal.is_some() {
        return Ok(());
    }
    let (reader, stderr) = io::pipe()?;
    *terminal = Some(io::stderr().as_fd().try_clone_to_owned()?);
    dup2_stderr(stderr)?;
    fcntl_setfd(io::stdin(), FdFlags::CLOEXEC)?;
    std::thread::spawn(move || forward(reader, &to));
    Ok(())
}

pub(crate) fn restore() {
    let mut terminal = TERMINAL.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(terminal) = terminal.take() {
        // Restoring descriptors that exist does not fail, and there is nowhere to report it.
        let _ = dup2_stderr(terminal);
        let _ = fcntl_setfd(io::stdin(), FdFlags::empty());
    }
}

/// Sends what other programs write, until the other end of the pipe is closed.
fn forward(mut reader: PipeReader, to: &Sender<String>) {
    let mut bytes = [0; 4096];
    let mut text = String::new();
    while let Ok(count) = reader.read(&mut bytes)
        && count > 0
    {
        text = last_lines(&(text + &String::from_utf8_lossy(&bytes[..count])));
        // After the dashboard has ended there is no receiver. Keep reading: a full pipe would block its writer.
        let _ = to.blocking_send(text.trim().replace('\n', " | "));
    }
}

/// The last two lines that are not blank, cut to what a screen can show. The last line may be unfinished: prompts
/// are.
fn last_lines(text: &str) -> String {
    const MAX_CHARS: usize = 500;
    let end = if text.ends_with('\n') { "\n" } else { "" };
    let lines: Vec<&str> = text.lines().filter(|line| !line.trim().is_empty()).collect();
    let last: Vec<String> = lines[lines.len().saturating_sub(2)..]
        .iter()
        .map(|line| line.chars().take(MAX_CHARS).collect())
        .collect();
    last.join("\n") + end
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prompt_is_reported_with_the_line_before_it() {
        for (text, last) in [
            ("", ""),
            ("\n\n", "\n"),
            ("a\nb\n\nc\n", "b\nc\n"),
            ("visit https://login\nCode: ", "visit https://login\nCode: "),
        ] {
            assert_eq!(last_lines(text), last);
        }
        assert_eq!(last_lines(&"x".repeat(10_000)).len(), 500);
    }
}
