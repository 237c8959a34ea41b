//! The only place that prints: data to stdout, talk to stderr.

use std::io::{self, Write};

/// One line of data, seen at once by whoever reads it.
///
/// # Errors
/// When stdout is closed.
pub(super) fn print(line: &str) -> io::Result<()> {
    let mut stdout = io::stdout().lock();
    writeln!(stdout, "{line}")?;
    stdout.flush()
}

/// One line of talk.
pub(super) fn say(line: &str) {
    // When stderr is closed nobody listens.
    let _ = writeln!(io::stderr().lock(), "{line}");
}
