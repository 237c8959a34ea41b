//! Whether the terminal is ours to draw on: a shell with job control lends it to one job at a time.
//!
//! A job in the background may print, but whatever changes or reads the terminal stops it (SIGTTOU, SIGTTIN).

#[cfg(unix)]
use futures::FutureExt;
#[cfg(unix)]
use tokio::signal::unix::{Signal, SignalKind, signal};

/// This process as a job of a shell.
#[cfg(unix)]
pub(crate) struct Job {
    /// Told when somebody has us go on after a stop. None where the system does not let us listen.
    continued: Option<Signal>,
}

#[cfg(unix)]
impl Job {
    /// Begins to listen for stops. Needs the runtime.
    pub(crate) fn watched() -> Self {
        let continued = SignalKind::from_raw(rustix::process::Signal::CONT.as_raw());
        Self { continued: signal(continued).ok() }
    }

    /// Whether it is in the foreground, where it may draw.
    pub(crate) fn is_in_foreground() -> bool {
        let owner = rustix::termios::tcgetpgrp(std::io::stdout());
        owner.is_ok_and(|owner| owner == rustix::process::getpgrp())
    }

    /// Whether it was stopped since this was asked last, so that others may have written to the terminal.
    pub(crate) fn was_stopped(&mut self) -> bool {
        let Some(continued) = &mut self.continued else { return false };
        let mut stopped = false;
        while continued.recv().now_or_never().is_some() {
            stopped = true;
        }
        stopped
    }
}

/// Without job control the terminal is always ours.
#[cfg(not(unix))]
pub(crate) struct Job;

#[cfg(not(unix))]
impl Job {
    /// Listens for nothing.
    pub(crate) fn watched() -> Self {
        Self
    }

    /// Always.
    pub(crate) fn is_in_foreground() -> bool {
        true
    }

    /// Never.
    pub(crate) fn was_stopped(&mut self) -> bool {
        false
    }
}
