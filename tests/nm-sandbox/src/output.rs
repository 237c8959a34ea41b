//! The only place that prints: data to stdout, messages to stderr.

use std::io::{self, Write};

/// Prints one line of data and flushes it.
///
/// # Errors
/// When stdout is closed.
pub(crate) fn data(line: &str) -> io::Result<()> {
    let mut stdout = io::stdout().lock();
    writeln!(stdout, "{line}")?;
    stdout.flush()
}

/// Prints one message.
pub(crate) fn message(line: &str) {
    // Nobody reads a closed stderr.
    let _ = writeln!(io::stderr().lock(), "{line}");
}
