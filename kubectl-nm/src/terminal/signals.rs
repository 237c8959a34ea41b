//! Signals: requests to end, and whether a shell's job control lets this process draw on the terminal.
//!
//! A job in the background may print, but the system stops it (SIGTTOU, SIGTTIN) as soon as it changes or reads the
//! terminal.

#[cfg(unix)]
use futures::FutureExt;
#[cfg(unix)]
use tokio::signal::unix::{Signal, SignalKind, signal};

/// Returns on Ctrl-C and on a request to terminate. After the first call, neither ends the process by itself.
pub(crate) async fn interrupted() {
    tokio::select! {
        received = tokio::signal::ctrl_c() => if received.is_err() { std::future::pending::<()>().await },
        () = terminated() => {}
    }
}

#[cfg(unix)]
async fn terminated() {
    match signal(SignalKind::terminate()) {
        Ok(mut signals) => {
            signals.recv().await;
        }
        // The signal then ends the process, as it does by default.
        Err(_) => std::future::pending().await,
    }
}

#[cfg(not(unix))]
async fn terminated() {
    std::future::pending().await
}

#[cfg(unix)]
pub(crate) struct ShellJob {
    /// Receives SIGCONT, which follows each stop. None where the system does not deliver it.
    continued: Option<Signal>,
}

#[cfg(unix)]
impl ShellJob {
    /// Starts to listen for stops. Must be called within the runtime.
    pub(crate) fn watch() -> Self {
        let continued = SignalKind::from_raw(rustix::process::Signal::CONT.as_raw());
        Self { continued: signal(continued).ok() }
    }

    /// Whether this process is in the foreground, where it may draw.
    pub(crate) fn is_in_foreground() -> bool {
        let owner = rustix::termios::tcgetpgrp(std::io::stdout());
        owner.is_ok_and(|owner| owner == rustix::process::getpgrp())
    }

    /// Whether this process was stopped since the last call, so that others may have written to the terminal.
    pub(crate) fn was_stopped(&mut self) -> bool {
        let Some(continued) = &mut self.continued else { return false };
        let mut stopped = false;
        while continued.recv().now_or_never().is_some() {
            stopped = true;
        }
        stopped
    }
}

/// Without job control the process always has the terminal.
#[cfg(not(unix))]
pub(crate) struct ShellJob;

#[cfg(not(unix))]
impl ShellJob {
    pub(crate) fn watch() -> Self {
        Self
    }

    pub(crate) fn is_in_foreground() -> bool {
        true
    }

    pub(crate) fn was_stopped(&mut self) -> bool {
        false
    }
}
