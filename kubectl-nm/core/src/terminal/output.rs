//! The only module that prints: data to stdout, messages to stderr.
//!
//! Whether to use colour is decided here, for each stream. When the reader of stdout goes away (`| head -1`), the program
//! ends silently with [`StdoutError`]. Messages that cannot be written are dropped.

use std::fmt;
use std::io::{self, IsTerminal, Write};

use crate::terminal::command_context;
use crate::terminal::text::{Line, harmless, harmless_document};

/// When to use colour.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum Colour {
    /// On a terminal, unless `NO_COLOR` is set or TERM is dumb
    #[default]
    Auto,
    /// Always
    Always,
    /// Never
    Never,
}

/// Standard output cannot be written.
#[derive(Debug, thiserror::Error)]
#[error("cannot write to standard output: {0}")]
pub struct StdoutError(#[from] io::Error);

impl StdoutError {
    /// Whether the reader went away, which is not reported.
    pub fn is_broken_pipe(&self) -> bool {
        self.0.kind() == io::ErrorKind::BrokenPipe
    }
}

/// Where a command prints data and messages.
#[expect(clippy::struct_excessive_bools, reason = "independent facts")]
pub struct Output {
    /// What was asked for.
    colour: Colour,
    data: Sink,
    messages: Sink,
    terminal: bool,
    can_prompt: bool,
    /// Whether the data is complete, so that every further line is a message.
    is_data_complete: bool,
    is_verbose: bool,
    on_stdout_error: OnStdoutError,
    /// The connection flags for commands in messages, with a leading blank.
    flags: String,
    /// The command line, without credentials; empty if it is not known.
    command: String,
}

/// What a command does when stdout cannot be written.
enum OnStdoutError {
    End,
    /// It continues. Keeps the first error.
    Continue(Option<StdoutError>),
}

struct Sink {
    to: Box<dyn Write>,
    coloured: bool,
}

impl Output {
    /// The standard streams of this process. `flags` are the connection flags, each with a leading blank.
    pub fn from_process(colour: Colour, flags: String) -> Self {
        let (data_terminal, stderr_is_terminal) = (io::stdout().is_terminal(), io::stderr().is_terminal());
        let data = Sink { to: Box::new(io::stdout()), coloured: is_coloured(colour, data_terminal) };
        let messages = Sink { to: Box::new(io::stderr()), coloured: is_coloured(colour, stderr_is_terminal) };
        let can_prompt = io::stdin().is_terminal() && stderr_is_terminal && is_in_foreground();
        let terminal = can_prompt && data_terminal && !is_dumb();
        Self {
            colour,
            terminal,
            can_prompt,
            data,
            messages,
            is_data_complete: false,
            is_verbose: false,
            on_stdout_error: OnStdoutError::End,
            flags,
            command: String::new(),
        }
    }

    /// The same for this command line, which questions show.
    #[must_use]
    pub fn with_command(self, command: impl Into<String>) -> Self {
        Self { command: command.into(), ..self }
    }

    /// The command line, for questions.
    pub(crate) fn command(&self) -> Option<&str> {
        Some(self.command.as_str()).filter(|command| !command.is_empty())
    }

    /// Lets commands report every pod, and not only nodes.
    #[must_use]
    pub fn verbose(self, is_verbose: bool) -> Self {
        Self { is_verbose, ..self }
    }

    /// Whether every pod is reported, and not only nodes.
    pub fn is_verbose(&self) -> bool {
        self.is_verbose
    }

    /// Whether stdin, stdout and stderr are a terminal on which live output can be drawn.
    pub fn is_on_terminal(&self) -> bool {
        self.terminal
    }

    /// Whether stdin and stderr are a terminal, so that the user can be asked.
    pub fn can_ask(&self) -> bool {
        self.can_prompt
    }

    /// Whether data is printed with colours.
    pub fn is_coloured(&self) -> bool {
        self.data.coloured
    }

    /// What turns colours off on standard output, if something does.
    pub fn without_colours(&self) -> Option<&'static str> {
        (!self.is_coloured()).then_some(if self.colour == Colour::Never {
            "--color never"
        } else {
            "NO_COLOR"
        })
    }

    /// Prints a line of data.
    ///
    /// # Errors
    ///
    /// If stdout cannot be written, unless the command continues ([`Self::continue_on_stdout_error`]).
    pub fn data(&mut self, line: &Line) -> Result<(), StdoutError> {
        if self.is_data_complete {
            self.message(line);
            return Ok(());
        }
        let written = self.data.line(line);
        if written.is_err() && matches!(self.on_stdout_error, OnStdoutError::Continue(_)) {
            self.message(line);
        }
        self.handle(written)
    }

    /// From now on the command continues when stdout cannot be written, because stopping halfway would be worse. Data is
    /// then printed as messages, and [`Self::finish`] returns the error.
    pub fn continue_on_stdout_error(&mut self) {
        self.on_stdout_error = OnStdoutError::Continue(None);
    }

    /// Ends the data of a command that continued.
    ///
    /// # Errors
    ///
    /// When stdout could not be written for another reason than that the reader went away.
    pub fn finish(&mut self) -> Result<(), StdoutError> {
        match std::mem::replace(&mut self.on_stdout_error, OnStdoutError::End) {
            OnStdoutError::Continue(Some(error)) if !error.is_broken_pipe() => Err(error),
            _ => Ok(()),
        }
    }

    fn handle(&mut self, written: Result<(), StdoutError>) -> Result<(), StdoutError> {
        match (&mut self.on_stdout_error, written) {
            (OnStdoutError::Continue(first), Err(error)) => {
                first.get_or_insert(error);
                self.is_data_complete = true;
                Ok(())
            }
            (_, written) => written,
        }
    }

    /// The data is complete: from now on every line is a message.
    pub fn end_data(&mut self) {
        self.is_data_complete = true;
    }

    pub(crate) fn document(&mut self, document: &str) -> Result<(), StdoutError> {
        let written = self.data.write(&harmless_document(document));
        self.handle(written)
    }

    /// Prints a text of this program as it is.
    ///
    /// # Errors
    ///
    /// If stdout cannot be written, unless the command continues ([`Self::continue_on_stdout_error`]).
    pub fn text(&mut self, text: &str) -> Result<(), StdoutError> {
        let written = self.data.write(text);
        self.handle(written)
    }

    /// Prints a question, and leaves the cursor behind it for the answer.
    pub fn question(&mut self, text: &str) {
        let _ = self.messages.write(&format!("{} ", harmless(text)));
    }

    /// Prints a line on stderr.
    pub fn message(&mut self, line: &Line) {
        // The command continues without readers of its messages.
        let _ = self.messages.line(line);
    }

    /// Prints a line of our own words on stderr, with the connection flags inserted into its commands in backticks. Words of others
    /// stay as they are.
    pub fn message_with_commands(&mut self, line: &Line) {
        self.message(&line.with_flags(&self.flags));
    }

    /// The same, broken between words where the terminal is narrower.
    pub fn wrapped_message_with_commands(&mut self, line: &Line) {
        self.wrapped_message(&line.with_flags(&self.flags));
    }

    /// Prints a line on stderr, broken between words where the terminal is narrower.
    pub fn wrapped_message(&mut self, line: &Line) {
        match columns(false) {
            Some(columns) => line.wrapped(columns).iter().for_each(|line| self.message(line)),
            None => self.message(line),
        }
    }

    /// Prints a line of data for people, with the connection flags inserted into its commands in backticks.
    ///
    /// # Errors
    ///
    /// As [`Self::data`].
    pub fn data_with_commands(&mut self, line: &Line) -> Result<(), StdoutError> {
        self.data(&line.with_flags(&self.flags))
    }

    /// The same, broken between words where the terminal is narrower.
    ///
    /// # Errors
    ///
    /// As [`Self::data`].
    pub fn wrapped_data(&mut self, line: &Line) -> Result<(), StdoutError> {
        self.broken_data(line, columns(true))
    }

    fn broken_data(&mut self, line: &Line, columns: Option<usize>) -> Result<(), StdoutError> {
        let line = line.with_flags(&self.flags);
        match columns {
            Some(columns) => line.wrapped(columns).iter().try_for_each(|line| self.data(line)),
            None => self.data(&line),
        }
    }

    /// Prints a message that contains commands in backticks. Where no question can be asked, the commands ask none.
    pub fn advise(&mut self, advice: &str) {
        let advice =
            if self.can_prompt { advice.to_owned() } else { command_context::with_confirmation(advice) };
        self.message_with_commands(&Line::new(advice));
    }

    /// Prints a message with the prefix `error:`.
    pub fn error(&mut self, message: impl fmt::Display) {
        self.message(&Line::new(format!("error: {message}")));
    }

    /// Prints what to do about an error.
    pub fn hint(&mut self, hint: &str) {
        self.advise(&format!("hint: {hint}"));
    }

    /// Prints what the command line parser returns: help and versions are data, everything else is a message.
    pub fn parser_error(&mut self, error: &clap::Error) {
        let sink = if error.use_stderr() { &mut self.messages } else { &mut self.data };
        let text = error.render();
        let text = if sink.coloured { text.ansi().to_string() } else { text.to_string() };
        let _ = sink.write(&text);
    }
}

impl Sink {
    fn line(&mut self, line: &Line) -> Result<(), StdoutError> {
        let text = if self.coloured { line.painted() } else { line.to_string() };
        self.write(&format!("{}\n", text.trim_end()))
    }

    fn write(&mut self, text: &str) -> Result<(), StdoutError> {
        self.to.write_all(text.as_bytes())?;
        Ok(self.to.flush()?)
    }
}

fn is_coloured(colour: Colour, terminal: bool) -> bool {
    let set = |name: &str| std::env::var_os(name).is_some_and(|value| !value.is_empty());
    use_colour(colour, terminal, set("NO_COLOR"), is_dumb())
}

/// Whether this process may read from its terminal, which would stop a background job.
fn is_in_foreground() -> bool {
    #[cfg(unix)]
    let is_in_background = rustix::termios::tcgetpgrp(io::stdin())
        .is_ok_and(|foreground| foreground != rustix::process::getpgrp());
    #[cfg(not(unix))]
    let is_in_background = false;
    !is_in_background
}

/// The width of the terminal on stdout or stderr, if that is one.
fn columns(is_stdout: bool) -> Option<usize> {
    #[cfg(unix)]
    let columns = {
        use rustix::termios::tcgetwinsize;
        let size = if is_stdout { tcgetwinsize(io::stdout()) } else { tcgetwinsize(io::stderr()) };
        size.ok().map(|size| usize::from(size.ws_col))
    };
    #[cfg(not(unix))]
    let columns = None::<usize>.filter(|_| is_stdout);
    columns.filter(|columns| *columns > 0)
}

fn is_dumb() -> bool {
    std::env::var_os("TERM").is_some_and(|term| term == "dumb")
}

/// Whether to use colour: `--color` decides, then <https://no-color.org>.
fn use_colour(colour: Colour, terminal: bool, no_color: bool, dumb: bool) -> bool {
    match colour {
        Colour::Always => true,
        Colour::Never => false,
        Colour::Auto => terminal && !no_color && !dumb,
    }
}

/// Output that is kept instead of printed.
#[cfg(any(test, feature = "testing"))]
pub mod captured {
    use std::{cell::RefCell, rc::Rc};

    use super::{Colour, OnStdoutError, Output, Sink, Write, io};

    #[derive(Clone, Default)]
    struct SharedBuffer(Rc<RefCell<Vec<u8>>>);

    impl SharedBuffer {
        fn text(&self) -> String {
            String::from_utf8_lossy(&self.0.borrow()).into_owned()
        }
    }

    impl Write for SharedBuffer {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.borrow_mut().extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    /// What has been printed.
    #[derive(Clone)]
    pub struct Captured {
        data: SharedBuffer,
        messages: SharedBuffer,
    }

    impl Captured {
        /// The text on stdout.
        pub fn data(&self) -> String {
            self.data.text()
        }

        /// The text on stderr.
        pub fn messages(&self) -> String {
            self.messages.text()
        }
    }

    /// An output without colour, and what it prints.
    pub fn output() -> (Output, Captured) {
        capture(false)
    }

    /// An output with colour, and what it prints.
    pub fn coloured_output() -> (Output, Captured) {
        capture(true)
    }

    fn capture(coloured: bool) -> (Output, Captured) {
        let captured = Captured { data: SharedBuffer::default(), messages: SharedBuffer::default() };
        let sink = |to: &SharedBuffer| Sink { to: Box::new(to.clone()), coloured };
        let (data, messages) = (sink(&captured.data), sink(&captured.messages));
        let flags = String::new();
        let out = Output {
            data,
            messages,
            terminal: false,
            colour: Colour::Auto,
            can_prompt: false,
            is_data_complete: false,
            is_verbose: false,
            on_stdout_error: OnStdoutError::End,
            flags,
            command: String::new(),
        };
        (out, captured)
    }

    /// An output whose stdout fails with this error.
    pub fn closed(by: io::ErrorKind) -> (Output, Captured) {
        struct Failing(io::ErrorKind);

        impl Write for Failing {
            fn write(&mut self, _: &[u8]) -> io::Result<usize> {
                Err(self.0.into())
            }

            fn flush(&mut self) -> io::Result<()> {
                Ok(())
            }
        }

        let (mut out, captured) = output();
        out.data.to = Box::new(Failing(by));
        (out, captured)
    }
}

#[cfg(test)]
#[path = "output_tests.rs"]
mod tests;
