//! The one place that prints: data to stdout, talk to stderr.
//!
//! Colour is decided here, once for each of the two. A reader that goes away (`| head -1`) is no error worth a word:
//! it surfaces as [`Closed`] and ends the program quietly. Talk that nobody reads is dropped.

use std::io::{self, IsTerminal, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::terminal::command_context;
use crate::terminal::text::{Line, harmless, harmless_document};

/// When to colour.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Colour {
    /// On a terminal, unless `NO_COLOR` is set or TERM is dumb.
    #[default]
    Auto,
    /// Always.
    Always,
    /// Never.
    Never,
}

/// Whoever read our output does so no longer, or it cannot be written.
#[derive(Debug, thiserror::Error)]
#[error("cannot write to standard output: {0}")]
pub(crate) struct Closed(#[from] io::Error);

impl Closed {
    /// Whether the reader merely went away, which needs no words.
    pub(crate) fn is_quiet(&self) -> bool {
        self.0.kind() == io::ErrorKind::BrokenPipe
    }
}

/// Whether the cluster has answered anything yet: who asks it notes it, and who waits is told.
#[derive(Clone, Debug, Default)]
pub(crate) struct FirstAnswer(Arc<AtomicBool>);

impl FirstAnswer {
    /// Whether it has.
    pub(crate) fn has_come(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    /// Notes that it has.
    pub(crate) fn note(&self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Where everything is printed to.
pub(crate) struct Output {
    data: Sink,
    talk: Sink,
    terminal: bool,
    /// Whether a question can be put to a person.
    asks: bool,
    /// Whether all that was asked for is printed, so that every further line is talk.
    done: bool,
    when_closed: WhenClosed,
    /// Lines that somebody else will print, while somebody else has the terminal.
    held: Option<Vec<Line>>,
    /// The flags that lead to the cluster, each with a blank before it.
    flags: String,
    /// Whether the cluster has answered, if one is asked.
    first: Option<FirstAnswer>,
}

/// What becomes of the work when stdout is closed.
enum WhenClosed {
    /// It ends.
    End,
    /// It goes on, and this is why stdout is closed, if it is.
    GoOn(Option<Closed>),
}

struct Sink {
    to: Box<dyn Write>,
    coloured: bool,
    terminal: bool,
    /// How this program was called.
    command: &'static str,
}

impl Output {
    /// The standard streams of this process, which was called as `command`.
    pub(crate) fn of_this_process(colour: Colour, command: &'static str) -> Self {
        let data = Sink::of(Box::new(io::stdout()), colour, io::stdout().is_terminal(), command);
        let talk = Sink::of(Box::new(io::stderr()), colour, io::stderr().is_terminal(), command);
        let asks = io::stdin().is_terminal() && talk.terminal;
        let terminal = asks && data.terminal && !is_dumb();
        Self {
            terminal,
            asks,
            data,
            talk,
            done: false,
            when_closed: WhenClosed::End,
            held: None,
            flags: String::new(),
            first: None,
        }
    }

    /// The same where these flags lead to the cluster, each with a blank before it, and this tells whether it has answered.
    pub(crate) fn leading(self, flags: String, first: FirstAnswer) -> Self {
        Self { flags, first: Some(first), ..self }
    }

    /// Whether the cluster has not answered anything yet.
    pub(crate) fn awaits_first_answer(&self) -> bool {
        self.first.as_ref().is_some_and(|first| !first.has_come())
    }

    /// Whether a person sits at a terminal that can be drawn on, and reads and types there.
    pub(crate) fn is_on_terminal(&self) -> bool {
        self.terminal
    }

    /// Whether a question can be put to a person: one who reads stderr and types.
    pub(crate) fn can_ask(&self) -> bool {
        self.asks
    }

    /// Whether what was asked for is coloured.
    pub(crate) fn is_coloured(&self) -> bool {
        self.data.coloured
    }

    /// A line of what was asked for.
    ///
    /// # Errors
    ///
    /// When stdout is closed.
    pub(crate) fn data(&mut self, line: &Line) -> Result<(), Closed> {
        if let Some(held) = &mut self.held {
            held.push(line.clone());
            return Ok(());
        }
        if self.done {
            self.talk(line);
            return Ok(());
        }
        let written = self.data.line(line);
        if written.is_err() && matches!(self.when_closed, WhenClosed::GoOn(_)) {
            self.talk(line);
        }
        self.go_on(written)
    }

    /// From now on the work goes on when stdout is closed: half of it would be worse than none. What there is to print is
    /// then talk, and [`Self::finish`] tells of it.
    pub(crate) fn go_on_when_closed(&mut self) {
        self.when_closed = WhenClosed::GoOn(None);
    }

    /// Whether all that was asked for could be written, or the reader merely went away before.
    ///
    /// # Errors
    ///
    /// When it could not be written for another reason.
    pub(crate) fn finish(&mut self) -> Result<(), Closed> {
        match std::mem::replace(&mut self.when_closed, WhenClosed::End) {
            WhenClosed::GoOn(Some(closed)) if !closed.is_quiet() => Err(closed),
            _ => Ok(()),
        }
    }

    fn go_on(&mut self, written: Result<(), Closed>) -> Result<(), Closed> {
        match (&mut self.when_closed, written) {
            (WhenClosed::GoOn(why), Err(closed)) => {
                why.get_or_insert(closed);
                self.done = true;
                Ok(())
            }
            (_, written) => written,
        }
    }

    /// From now on every line is talk: what was asked for is printed, and something else would spoil it.
    pub(crate) fn only_talk(&mut self) {
        self.done = true;
    }

    /// A whole JSON or YAML document.
    ///
    /// # Errors
    ///
    /// When stdout is closed.
    pub(crate) fn document(&mut self, document: &str) -> Result<(), Closed> {
        let written = self.data.write(&harmless_document(document));
        self.go_on(written)
    }

    /// Text to the byte, for programs; a terminal gets it with everything visible that it would obey, but for tabs and
    /// the ends of lines.
    ///
    /// # Errors
    ///
    /// When stdout is closed.
    pub(crate) fn text(&mut self, text: &str) -> Result<(), Closed> {
        let harmless = |line: &str| line.split('\t').map(harmless).collect::<Vec<_>>().join("\t");
        let written = if self.data.terminal {
            self.data.write(&text.split('\n').map(harmless).collect::<Vec<_>>().join("\n"))
        } else {
            self.data.write(text)
        };
        self.go_on(written)
    }

    /// A question, for whose answer the cursor stays on the line.
    pub(crate) fn question(&mut self, text: &str) {
        let _ = self.talk.write(&format!("{} ", harmless(text)));
    }

    /// A line about what goes on.
    pub(crate) fn talk(&mut self, line: &Line) {
        if let Some(held) = &mut self.held {
            held.push(line.clone());
            return;
        }
        // Nobody listens: what is asked for is still worth doing.
        let _ = self.talk.line(line);
    }

    /// A line with advice: its commands, which are in backticks, are led to the cluster that it is about.
    pub(crate) fn advise(&mut self, advice: &str) {
        self.talk(&Line::new(command_context::with_flags(advice, &self.flags)));
    }

    /// What to do about what was said, with its commands led to the cluster.
    pub(crate) fn hint(&mut self, hint: &str) {
        self.advise(&format!("hint: {hint}"));
    }

    /// Keeps lines from now on for [`Self::held`], because somebody else has the terminal.
    pub(crate) fn hold(&mut self) {
        self.held.get_or_insert_default();
    }

    /// The lines kept since this was asked last.
    pub(crate) fn held(&mut self) -> Vec<Line> {
        self.held.as_mut().map(std::mem::take).unwrap_or_default()
    }

    /// Prints again, and what is still kept first.
    pub(crate) fn release(&mut self) {
        for line in self.held.take().unwrap_or_default() {
            self.talk(&line);
        }
    }

    /// What the command line parser has to say: help and versions are data, everything else is talk.
    pub(crate) fn parser(&mut self, said: &clap::Error) {
        let sink = if said.use_stderr() { &mut self.talk } else { &mut self.data };
        let text = said.render();
        let text = if sink.coloured { text.ansi().to_string() } else { text.to_string() };
        let _ = sink.write(&text.replace("kubectl nm", sink.command));
    }
}

impl Sink {
    fn of(to: Box<dyn Write>, colour: Colour, terminal: bool, command: &'static str) -> Self {
        Self { to, coloured: coloured(colour, terminal), terminal, command }
    }

    fn line(&mut self, line: &Line) -> Result<(), Closed> {
        let text = if self.coloured { line.painted() } else { line.to_string() };
        // Only what is a hint of ours: a name or a reason from the API stays as it is.
        let text = text.replace("`kubectl nm ", &format!("`{} ", self.command));
        self.write(&format!("{}\n", text.trim_end()))
    }

    fn write(&mut self, text: &str) -> Result<(), Closed> {
        self.to.write_all(text.as_bytes())?;
        Ok(self.to.flush()?)
    }
}

/// Whether a stream is coloured, by the environment of this process.
fn coloured(colour: Colour, terminal: bool) -> bool {
    let set = |name: &str| std::env::var_os(name).is_some_and(|value| !value.is_empty());
    decide(colour, terminal, set("NO_COLOR"), is_dumb())
}

/// Whether the terminal can do nothing but print.
fn is_dumb() -> bool {
    std::env::var_os("TERM").is_some_and(|term| term == "dumb")
}

/// Whether to colour. `--color` has the last word, then <https://no-color.org>.
fn decide(colour: Colour, terminal: bool, no_color: bool, dumb: bool) -> bool {
    match colour {
        Colour::Always => true,
        Colour::Never => false,
        Colour::Auto => terminal && !no_color && !dumb,
    }
}

/// Output that a test can read afterwards.
#[cfg(test)]
pub(crate) mod captured {
    use std::{cell::RefCell, rc::Rc};

    use super::*;

    #[derive(Clone, Default)]
    struct Shared(Rc<RefCell<Vec<u8>>>);

    impl Write for Shared {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.borrow_mut().extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    /// What was printed so far.
    #[derive(Clone)]
    pub(crate) struct Captured {
        data: Shared,
        talk: Shared,
    }

    impl Captured {
        /// The text on stdout.
        pub(crate) fn data(&self) -> String {
            String::from_utf8(self.data.0.borrow().clone()).unwrap()
        }

        /// The text on stderr.
        pub(crate) fn talk(&self) -> String {
            String::from_utf8(self.talk.0.borrow().clone()).unwrap()
        }
    }

    /// An output without colour, and what it printed.
    pub(crate) fn output() -> (Output, Captured) {
        printing(false)
    }

    /// The same where stdout is a terminal, if it is to be one.
    pub(super) fn printing(terminal: bool) -> (Output, Captured) {
        called(terminal, "kubectl nm")
    }

    /// The same of a program that was called like this.
    pub(super) fn called(terminal: bool, command: &'static str) -> (Output, Captured) {
        let captured = Captured { data: Shared::default(), talk: Shared::default() };
        let sink = |to: &Shared| Sink { to: Box::new(to.clone()), coloured: false, terminal, command };
        let (data, talk) = (sink(&captured.data), sink(&captured.talk));
        let flags = String::new();
        let out = Output {
            data,
            talk,
            terminal: false,
            asks: false,
            done: false,
            when_closed: WhenClosed::End,
            held: None,
            flags,
            first: None,
        };
        (out, captured)
    }

    /// An output whose stdout fails like this.
    pub(crate) fn closed(by: io::ErrorKind) -> (Output, Captured) {
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
mod tests {
    use super::*;

    #[test]
    fn colour_needs_a_terminal_and_nobody_who_objects() {
        for (colour, terminal, no_color, dumb, expected) in [
            (Colour::Auto, true, false, false, true),
            (Colour::Auto, false, false, false, false),
            (Colour::Auto, true, true, false, false),
            (Colour::Auto, true, false, true, false),
            (Colour::Always, false, true, true, true),
            (Colour::Never, true, false, false, false),
        ] {
            assert_eq!(
                decide(colour, terminal, no_color, dumb),
                expected,
                "{colour:?} {terminal} {no_color} {dumb}"
            );
        }
    }

    #[test]
    fn lines_are_kept_while_somebody_else_has_the_terminal() {
        let (mut out, captured) = captured::output();
        out.hold();
        out.data(&Line::new("a")).unwrap();
        out.talk(&Line::new("b"));
        assert_eq!(out.held(), [Line::new("a"), Line::new("b")]);
        assert_eq!((out.held().len(), captured.data().len()), (0, 0));
        out.talk(&Line::new("c"));
        out.release();
        out.talk(&Line::new("d"));
        assert_eq!(captured.talk(), "c\nd\n");
    }

    #[test]
    fn programs_read_text_to_the_byte_and_terminals_harmless() {
        for (terminal, shown) in [(false, "a\tb\u{1b}[31m\r\n\n"), (true, "a\tb^[[31m\n\n")] {
            let (mut out, captured) = captured::printing(terminal);
            out.text("a\tb\u{1b}[31m\r\n\n").unwrap();
            assert_eq!(captured.data(), shown);
        }
    }

    #[test]
    fn hints_name_the_command_as_it_was_called() {
        let (mut out, captured) = captured::called(false, "oc nm");
        out.talk(&Line::new("hint: `kubectl nm install` and `kubectl get nodes`"));
        out.data(&Line::new("the reason says kubectl nm")).unwrap();
        assert_eq!(captured.talk(), "hint: `oc nm install` and `kubectl get nodes`\n");
        assert_eq!(captured.data(), "the reason says kubectl nm\n");
    }

    #[test]
    fn what_is_printed_whole_is_not_spoilt() {
        let (mut out, captured) = captured::output();
        out.document("{}").unwrap();
        out.only_talk();
        out.data(&Line::new("node/n1 drained")).unwrap();
        assert_eq!((captured.data(), captured.talk()), ("{}".into(), "node/n1 drained\n".into()));
    }

    #[test]
    fn work_that_goes_on_without_a_reader_is_told_on_stderr() {
        for (by, is_error) in [(io::ErrorKind::BrokenPipe, false), (io::ErrorKind::StorageFull, true)] {
            let (mut out, captured) = captured::closed(by);
            assert!(out.data(&Line::new("a")).is_err());
            out.go_on_when_closed();
            out.data(&Line::new("b")).unwrap();
            out.document("{}").unwrap();
            out.data(&Line::new("c")).unwrap();
            assert_eq!(captured.talk(), "b\nc\n");
            assert_eq!(out.finish().is_err(), is_error);
        }
    }

    #[test]
    fn work_that_goes_on_is_not_ended_by_text_that_nobody_reads() {
        for (by, is_error) in [(io::ErrorKind::BrokenPipe, false), (io::ErrorKind::StorageFull, true)] {
            let (mut out, _captured) = captured::closed(by);
            assert!(out.text("a").is_err());
            out.go_on_when_closed();
            out.text("deployment.apps/nm-reconciler\n").unwrap();
            assert_eq!(out.finish().is_err(), is_error);
        }
    }

    #[test]
    fn data_and_talk_go_their_ways() {
        let (mut out, captured) = captured::output();
        out.data(&Line::new("node/n1 drained  ")).unwrap();
        out.talk(&Line::new("waiting"));
        assert_eq!((captured.data(), captured.talk()), ("node/n1 drained\n".into(), "waiting\n".into()));
    }
}
