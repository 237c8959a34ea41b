//! What programs that we start can do to the terminal while the screen is ours: nothing.
//!
//! A credential plugin runs again when its token is about to expire, on our standard streams. What it says would stand
//! across the picture, and what it asks would take the keys away. So for as long as the screen is ours standard error is
//! a pipe, of which every word becomes a [`Message`], and no program gets standard input.

#[cfg(unix)]
pub(super) use unix::{divert, restore};

#[cfg(unix)]
mod unix {
    use std::io::{self, PipeReader, Read};
    use std::os::fd::{AsFd, OwnedFd};
    use std::sync::{Mutex, PoisonError};

    use rustix::io::{FdFlags, fcntl_setfd};
    use rustix::stdio::dup2_stderr;
    use tokio::sync::mpsc::Sender;

    use crate::dashboard::message::Message;

    /// The terminal, while standard error is not: there is one, and a panic hook can be handed nothing.
    static TERMINAL: Mutex<Option<OwnedFd>> = Mutex::new(None);

    /// Keeps the terminal from programs, and tells what they say.
    ///
    /// # Errors
    ///
    /// When the system has no descriptors left.
    pub(crate) fn divert(to: Sender<Message>) -> io::Result<()> {
        let mut terminal = TERMINAL.lock().unwrap_or_else(PoisonError::into_inner);
        if terminal.is_some() {
            return Ok(());
        }
        let (said, stderr) = io::pipe()?;
        *terminal = Some(io::stderr().as_fd().try_clone_to_owned()?);
        dup2_stderr(stderr)?;
        fcntl_setfd(io::stdin(), FdFlags::CLOEXEC)?;
        std::thread::spawn(move || listen(said, &to));
        Ok(())
    }

    /// Gives the streams back, if they were taken.
    pub(crate) fn restore() {
        let mut terminal = TERMINAL.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(terminal) = terminal.take() {
            // Descriptors that exist are not refused, and there would be nowhere to say so.
            let _ = dup2_stderr(terminal);
            let _ = fcntl_setfd(io::stdin(), FdFlags::empty());
        }
    }

    /// Tells what is said until nobody is left who could say something.
    fn listen(mut said: PipeReader, to: &Sender<Message>) {
        let mut bytes = [0; 4096];
        let mut heard = String::new();
        while let Ok(count) = said.read(&mut bytes)
            && count > 0
        {
            heard = last_lines(&(heard + &String::from_utf8_lossy(&bytes[..count])));
            // After the dashboard's end it goes unheard, but is still read: a full pipe would hold its writer up.
            let _ = to.blocking_send(Message::Overheard(heard.trim().replace('\n', " | ")));
        }
    }

    /// The last two lines with something in them, as long as a line on a screen may be. The last may be unfinished, as
    /// questions are.
    pub(super) fn last_lines(heard: &str) -> String {
        const LONGEST: usize = 500;
        let end = if heard.ends_with('\n') { "\n" } else { "" };
        let lines: Vec<&str> = heard.lines().filter(|line| !line.trim().is_empty()).collect();
        let last: Vec<String> = lines[lines.len().saturating_sub(2)..]
            .iter()
            .map(|line| line.chars().take(LONGEST).collect())
            .collect();
        last.join("\n") + end
    }
}

#[cfg(not(unix))]
mod elsewhere {
    use std::io;

    use tokio::sync::mpsc::Sender;

    use crate::dashboard::message::Message;

    /// Does nothing: descriptors are not to be had here without unsafe code.
    ///
    /// # Errors
    ///
    /// Never.
    #[allow(clippy::unnecessary_wraps, reason = "as where it can fail")]
    pub(crate) fn divert(_to: Sender<Message>) -> io::Result<()> {
        Ok(())
    }

    /// Does nothing.
    pub(crate) fn restore() {}
}

#[cfg(not(unix))]
pub(super) use elsewhere::{divert, restore};

#[cfg(unix)]
#[cfg(test)]
mod tests {
    use super::unix::last_lines;

    #[test]
    fn a_question_is_told_with_the_line_before_it() {
        for (heard, last) in [
            ("", ""),
            ("\n\n", "\n"),
            ("a\nb\n\nc\n", "b\nc\n"),
            ("visit https://login\nCode: ", "visit https://login\nCode: "),
        ] {
            assert_eq!(last_lines(heard), last);
        }
        assert_eq!(last_lines(&"x".repeat(10_000)).len(), 500);
    }
}
