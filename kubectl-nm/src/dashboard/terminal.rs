//! The one place that takes the terminal's screen and gives it back.
//!
//! Whatever ends the program, the terminal is as it was: [`Screen`] gives it back when it is dropped, and a panic hook
//! does before the panic is told. Signals are the run loop's to hear; it drops the screen. What other programs would write
//! on it is [`streams`]' to keep off.

use std::io::{self, BufWriter, Stdout, Write};
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

use crate::dashboard::message::Message;
use crate::dashboard::streams;

/// A frame is written at once; this is more than any has.
const FRAME_BYTES: usize = 256 * 1024;

/// Buttons and the wheel, with coordinates of any size. Not every motion, as crossterm would have it: each would wake us.
const MOUSE_ON: &[u8] = b"\x1b[?1000h\x1b[?1006h";
const MOUSE_OFF: &[u8] = b"\x1b[?1006l\x1b[?1000l";

/// Whether the screen is ours: there is one terminal, and a panic hook can be handed nothing.
static TAKEN: AtomicBool = AtomicBool::new(false);

type Drawn = Terminal<CrosstermBackend<BufWriter<Stdout>>>;

/// The terminal's screen, while it is ours.
pub(crate) struct Screen {
    terminal: Drawn,
    mouse: bool,
    /// Who is told what others would have written on it.
    to: Sender<Message>,
    /// Whether we went on by ourselves after a stop, and are to be told of it still.
    resumed: bool,
}

impl Screen {
    /// Takes the screen. What programs that we start say meanwhile goes to `to`.
    ///
    /// # Errors
    ///
    /// When the terminal does not do as it is told.
    pub(crate) fn take(mouse: bool, to: Sender<Message>) -> io::Result<Self> {
        give_back_on_panic();
        // Under NO_COLOR crossterm would drop reverse video along with colours. Our themes know what to use.
        style::force_color_output(true);
        let mut screen = Self { terminal: blank()?, mouse, to, resumed: false };
        screen.enter()?;
        Ok(screen)
    }

    /// Columns and rows.
    ///
    /// # Errors
    ///
    /// When the terminal does not say.
    pub(crate) fn size(&self) -> io::Result<(u16, u16)> {
        self.terminal.size().map(|size| (size.width, size.height))
    }

    /// Draws a frame; what changed since the last one reaches the terminal as a whole.
    ///
    /// # Errors
    ///
    /// When the terminal is gone, or a panic elsewhere gave the screen back.
    pub(crate) fn draw(&mut self, draw: impl FnOnce(&mut Frame<'_>)) -> io::Result<()> {
        if !TAKEN.load(SeqCst) {
            return Err(io::Error::other("the screen was given back after a panic"));
        }
        queue!(self.terminal.backend_mut(), BeginSynchronizedUpdate)?;
        self.terminal.draw(draw)?;
        execute!(self.terminal.backend_mut(), EndSynchronizedUpdate)
    }

    /// Has the next frame drawn as a whole, whatever others did to the screen.
    ///
    /// # Errors
    ///
    /// When the terminal is gone.
    pub(crate) fn wipe(&mut self) -> io::Result<()> {
        // (`Terminal::clear` would ask where the cursor is, and wait for the answer.)
        self.terminal = blank()?;
        // The frame that follows ends the update, so that nobody sees an empty screen.
        queue!(self.terminal.backend_mut(), BeginSynchronizedUpdate, Clear(ClearType::All))?;
        self.terminal.hide_cursor()
    }

    /// Puts a text on the clipboard of the user's terminal, also through ssh (OSC 52).
    ///
    /// # Errors
    ///
    /// When the terminal is gone.
    pub(crate) fn copy(&mut self, text: &str) -> io::Result<()> {
        execute!(self.terminal.backend_mut(), CopyToClipboard::to_clipboard_from(text))
    }

    /// Gives the screen back, stops as after Ctrl-Z, and takes it again when somebody has us go on.
    ///
    /// # Errors
    ///
    /// When the terminal does not do as it is told.
    pub(crate) fn suspend(&mut self) -> io::Result<()> {
        if !has_job_control() {
            return Ok(());
        }
        give_back();
        stop()?;
        self.resumed = true;
        self.enter()
    }

    /// Takes the screen anew: while we were stopped, a shell did with the terminal as it liked. Whoever stopped by
    /// [`Self::suspend`] has taken it already: a second time the picture would flash, and keys pressed meanwhile be lost.
    ///
    /// # Errors
    ///
    /// When the terminal does not do as it is told.
    pub(crate) fn retake(&mut self) -> io::Result<()> {
        if std::mem::take(&mut self.resumed) {
            return Ok(());
        }
        give_back();
        self.enter()
    }

    fn enter(&mut self) -> io::Result<()> {
        TAKEN.store(true, SeqCst);
        streams::divert(self.to.clone())?;
        terminal::enable_raw_mode()?;
        let out = self.terminal.backend_mut();
        queue!(out, EnterAlternateScreen, EnableBracketedPaste)?;
        if self.mouse {
            out.write_all(MOUSE_ON)?;
        }
        out.flush()?;
        self.wipe()
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        give_back();
    }
}

/// A terminal of which nothing is known.
fn blank() -> io::Result<Drawn> {
    Terminal::new(CrosstermBackend::new(BufWriter::with_capacity(FRAME_BYTES, io::stdout())))
}

/// Makes the terminal what it was, once for every time that the screen was taken.
fn give_back() {
    if !TAKEN.swap(false, SeqCst) {
        return;
    }
    // A terminal that is gone needs nothing back, and nobody could be told.
    let mut out = io::stdout();
    let _ = queue!(out, EndSynchronizedUpdate);
    let _ = out.write_all(MOUSE_OFF);
    let _ = execute!(out, DisableBracketedPaste, LeaveAlternateScreen, Show);
    let _ = terminal::disable_raw_mode();
    streams::restore();
}

/// Has a panic, in whatever task, told on the screen where it can be read.
fn give_back_on_panic() {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            give_back();
            before(panic);
        }));
    });
}

/// Whether a shell is there to have us go on: with job control each job is a group of its own in the shell's session.
#[cfg(unix)]
fn has_job_control() -> bool {
    use rustix::process::{getpgrp, getsid};

    getsid(None).is_ok_and(|session| session != getpgrp())
}

/// Stops the whole job, as the terminal itself does after Ctrl-Z. Returns when somebody has it go on.
#[cfg(unix)]
fn stop() -> io::Result<()> {
    use rustix::process::{Signal, kill_current_process_group};

    Ok(kill_current_process_group(Signal::STOP)?)
}

#[cfg(not(unix))]
fn has_job_control() -> bool {
    false
}

#[cfg(not(unix))]
fn stop() -> io::Result<()> {
    Ok(())
}
