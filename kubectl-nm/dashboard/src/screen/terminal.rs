//! The one place that takes the terminal's screen and releases it.
//!
//! The terminal is restored however the program ends: [`Screen`] releases it when dropped, and a panic hook does before
//! the panic message is printed. Signals are handled in `run`, which drops the screen. Output of other programs is kept
//! off by [`streams`].

use std::io::{self, Stdout, Write};
use std::sync::Once;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};

use crossterm::clipboard::CopyToClipboard;
use crossterm::cursor::Show;
use crossterm::event::{DisableBracketedPaste, EnableBracketedPaste};
use crossterm::terminal::{
    BeginSynchronizedUpdate, Clear, ClearType, EndSynchronizedUpdate, EnterAlternateScreen,
    LeaveAlternateScreen,
};
use crossterm::{execute, queue, style, terminal};
use ratatui::backend::CrosstermBackend;
use ratatui::{Frame, Terminal};
use tokio::sync::mpsc::Sender;

use crate::screen::standard_streams;

/// Whether we have the screen. Static, because there is one terminal and a panic hook takes no arguments.
static TAKEN: AtomicBool = AtomicBool::new(false);

type Backend = Terminal<CrosstermBackend<FrameWriter<Stdout>>>;

/// Collects what is drawn, so that each frame is written at once. A frame that cannot be written is dropped: no rest of it
/// may follow what restores the terminal.
struct FrameWriter<W> {
    to: W,
    frame: Vec<u8>,
}

impl<W: Write> Write for FrameWriter<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.frame.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        let written = self.to.write_all(&self.frame).and_then(|()| self.to.flush());
        self.frame.clear();
        written
    }
}

/// The terminal's screen, while we have it.
pub(crate) struct Screen {
    terminal: Backend,
    /// Receives what other programs write to standard error, on Unix.
    #[cfg_attr(not(unix), expect(dead_code, reason = "nothing is diverted"))]
    to: Sender<String>,
    /// Whether we have resumed from a suspension of our own, so that the SIGCONT for it is still to come.
    resumed: bool,
}

impl Screen {
    /// Takes the screen. What other programs write to standard error is sent to `to`.
    pub(crate) fn take(to: Sender<String>) -> io::Result<Self> {
        release_on_panic();
        // Under NO_COLOR crossterm would drop reverse video along with colours. Our themes handle that.
        style::force_color_output(true);
        let mut screen = Self { terminal: blank()?, to, resumed: false };
        screen.enter()?;
        Ok(screen)
    }

    pub(crate) fn size(&self) -> io::Result<(u16, u16)> {
        self.terminal.size().map(|size| (size.width, size.height))
    }

    /// Draws a frame. The terminal receives what changed since the last one as a whole.
    pub(crate) fn draw(&mut self, draw: impl FnOnce(&mut Frame<'_>)) -> io::Result<()> {
        if !TAKEN.load(SeqCst) {
            return Err(io::Error::other("the screen was released after a panic"));
        }
        queue!(self.terminal.backend_mut(), BeginSynchronizedUpdate)?;
        self.terminal.draw(draw)?;
        execute!(self.terminal.backend_mut(), EndSynchronizedUpdate)
    }

    /// Has the next frame drawn in full, whatever others did to the screen.
    pub(crate) fn wipe(&mut self) -> io::Result<()> {
        // (`Terminal::clear` would query the cursor position and wait for the answer.)
        self.terminal = blank()?;
        // The next frame ends this synchronized update, so that no empty screen shows.
        queue!(self.terminal.backend_mut(), BeginSynchronizedUpdate, Clear(ClearType::All))?;
        self.terminal.hide_cursor()
    }

    /// Copies a text to the clipboard of the user's terminal, also over ssh (OSC 52).
    pub(crate) fn copy(&mut self, text: &str) -> io::Result<()> {
        execute!(self.terminal.backend_mut(), CopyToClipboard::to_clipboard_from(text))
    }

    /// Releases the screen, stops the job as Ctrl-Z does, and takes the screen again when the job continues.
    pub(crate) fn suspend(&mut self) -> io::Result<()> {
        #[cfg(unix)]
        if has_job_control() {
            release();
            stop()?;
            self.resumed = true;
            self.enter()?;
        }
        Ok(())
    }

    /// Takes the screen again after a stop and continue from outside: meanwhile a shell had the terminal. After
    /// [`Self::suspend`] the screen is ours already; taking it twice would flash and lose keys.
    pub(crate) fn retake(&mut self) -> io::Result<()> {
        if std::mem::take(&mut self.resumed) {
            return Ok(());
        }
        release();
        self.enter()
    }

    fn enter(&mut self) -> io::Result<()> {
        TAKEN.store(true, SeqCst);
        #[cfg(unix)]
        standard_streams::divert(self.to.clone())?;
        terminal::enable_raw_mode()?;
        let out = self.terminal.backend_mut();
        execute!(out, EnterAlternateScreen, EnableBracketedPaste)?;
        self.wipe()
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        release();
    }
}

fn blank() -> io::Result<Backend> {
    Terminal::new(CrosstermBackend::new(FrameWriter { to: io::stdout(), frame: Vec::new() }))
}

/// Restores the terminal, once for every time that the screen was taken, and standard error.
fn release() {
    if TAKEN.swap(false, SeqCst) {
        restore_modes(&mut io::stdout());
        let _ = terminal::disable_raw_mode();
    }
    #[cfg(unix)]
    standard_streams::restore();
}

/// Restores the modes that are set by what is written. Errors are ignored: a terminal that is gone needs no restoring, and
/// after one that fails the others are still needed.
fn restore_modes(out: &mut impl Write) {
    let _ = execute!(out, EndSynchronizedUpdate);
    let _ = execute!(out, DisableBracketedPaste);
    let _ = execute!(out, LeaveAlternateScreen);
    let _ = execute!(out, Show);
}

/// Restores the terminal before a panic message is printed, in whatever task.
fn release_on_panic() {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            release();
            before(panic);
        }));
    });
}

/// Whether a shell can continue us: with job control, each job is a process group of its own in the shell's session.
#[cfg(unix)]
fn has_job_control() -> bool {
    use rustix::process::{getpgrp, getsid};

    getsid(None).is_ok_and(|session| session != getpgrp())
}

/// Stops the whole job, as the terminal does after Ctrl-Z. Returns when it is continued.
#[cfg(unix)]
fn stop() -> io::Result<()> {
    use rustix::process::{Signal, kill_current_process_group};

    Ok(kill_current_process_group(Signal::STOP)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A terminal that refuses some writes at first, as one does whose buffer is full.
    struct Busy {
        refusals: usize,
        written: String,
    }

    impl Write for Busy {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            if self.refusals > 0 {
                self.refusals -= 1;
                return Err(io::ErrorKind::WouldBlock.into());
            }
            self.written.push_str(std::str::from_utf8(bytes).unwrap());
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_mode_that_cannot_be_restored_leaves_none_of_the_others() {
        let mut out = Busy { refusals: 2, written: String::new() };
        restore_modes(&mut out);
        assert_eq!(out.written, "\x1b[?1049l\x1b[?25h");
    }

    #[test]
    fn a_frame_that_cannot_be_written_does_not_follow_later() {
        let mut writer = FrameWriter { to: Busy { refusals: 1, written: String::new() }, frame: Vec::new() };
        writer.write_all(b"a frame").unwrap();
        assert!(writer.flush().is_err());
        writer.write_all(b"the next").unwrap();
        writer.flush().unwrap();
        assert_eq!(writer.to.written, "the next");
    }
}
