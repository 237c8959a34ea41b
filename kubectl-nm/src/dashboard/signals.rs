//! The signals that the dashboard handles while it has the screen.

use std::io;

#[cfg(unix)]
use rustix::process;
#[cfg(unix)]
use tokio::signal::unix::{Signal as UnixSignal, SignalKind, signal};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Signal {
    /// End the program: from the user, the system, or a terminal that was closed.
    End,
    /// Suspend.
    Stop,
    /// Continue after a suspension.
    Continue,
}

/// A listener for these signals. They no longer end or stop the process by themselves.
#[cfg(unix)]
pub(crate) struct Signals {
    interrupt: UnixSignal,
    terminate: UnixSignal,
    hang_up: UnixSignal,
    stop: UnixSignal,
    resume: UnixSignal,
}

#[cfg(unix)]
impl Signals {
    /// Starts listening.
    pub(crate) fn listen() -> io::Result<Self> {
        let other = |which: process::Signal| signal(SignalKind::from_raw(which.as_raw()));
        Ok(Self {
            interrupt: signal(SignalKind::interrupt())?,
            terminate: signal(SignalKind::terminate())?,
            hang_up: signal(SignalKind::hangup())?,
            stop: other(process::Signal::TSTP)?,
            resume: other(process::Signal::CONT)?,
        })
    }

    pub(crate) async fn next(&mut self) -> Signal {
        tokio::select! {
            _ = self.interrupt.recv() => Signal::End,
            _ = self.terminate.recv() => Signal::End,
            _ = self.hang_up.recv() => Signal::End,
            _ = self.stop.recv() => Signal::Stop,
            _ = self.resume.recv() => Signal::Continue,
        }
    }
}

/// Ctrl-C, the only signal here.
#[cfg(not(unix))]
pub(crate) struct Signals;

#[cfg(not(unix))]
impl Signals {
    /// Starts listening.
    pub(crate) fn listen() -> io::Result<Self> {
        Ok(Self)
    }

    pub(crate) async fn next(&mut self) -> Signal {
        match tokio::signal::ctrl_c().await {
            Ok(()) => Signal::End,
            Err(_) => std::future::pending().await,
        }
    }
}
