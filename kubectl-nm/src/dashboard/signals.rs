//! The signals that a program hears which has taken the screen.

use std::io;

#[cfg(unix)]
use rustix::process;
#[cfg(unix)]
use tokio::signal::unix::{Signal as Heard, SignalKind, signal};

/// What a signal asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Signal {
    /// To end: the user, the system, or a terminal that is closed.
    End,
    /// To stop for a while.
    Stop,
    /// To go on after that.
    Continue,
}

/// The signals from now on. None of them ends or stops the process by itself any more.
#[cfg(unix)]
pub(crate) struct Signals {
    interrupt: Heard,
    terminate: Heard,
    hang_up: Heard,
    stop: Heard,
    go_on: Heard,
}

#[cfg(unix)]
impl Signals {
    /// Begins to listen.
    ///
    /// # Errors
    ///
    /// When the system does not let us.
    pub(crate) fn listen() -> io::Result<Self> {
        let other = |which: process::Signal| signal(SignalKind::from_raw(which.as_raw()));
        Ok(Self {
            interrupt: signal(SignalKind::interrupt())?,
            terminate: signal(SignalKind::terminate())?,
            hang_up: signal(SignalKind::hangup())?,
            stop: other(process::Signal::TSTP)?,
            go_on: other(process::Signal::CONT)?,
        })
    }

    /// The next one.
    pub(crate) async fn next(&mut self) -> Signal {
        tokio::select! {
            _ = self.interrupt.recv() => Signal::End,
            _ = self.terminate.recv() => Signal::End,
            _ = self.hang_up.recv() => Signal::End,
            _ = self.stop.recv() => Signal::Stop,
            _ = self.go_on.recv() => Signal::Continue,
        }
    }
}

/// Ctrl-C, as far as it comes as a signal.
#[cfg(not(unix))]
pub(crate) struct Signals;

#[cfg(not(unix))]
impl Signals {
    /// Begins to listen.
    ///
    /// # Errors
    ///
    /// Never.
    pub(crate) fn listen() -> io::Result<Self> {
        Ok(Self)
    }

    /// The next one.
    pub(crate) async fn next(&mut self) -> Signal {
        match tokio::signal::ctrl_c().await {
            Ok(()) => Signal::End,
            Err(_) => std::future::pending().await,
        }
    }
}
