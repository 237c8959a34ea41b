//! The signals that the dashboard handles while it has the screen.

use std::io;

use futures::StreamExt;
use futures::stream::{self, BoxStream};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Signal {
    /// End the program: from the user, the system, or a terminal that was closed.
    End,
    /// Ctrl-C, from a terminal that is not in raw mode.
    Interrupt,
    Stop,
    Continue,
}

impl Signal {
    /// Whether the program ends after it.
    pub(crate) fn ends(self) -> bool {
        matches!(self, Self::End | Self::Interrupt)
    }
}

/// The signals from now on. They no longer end or stop the process by themselves.
#[cfg(unix)]
pub(crate) fn listen() -> io::Result<BoxStream<'static, Signal>> {
    use rustix::process::Signal as Number;
    use tokio::signal::unix::{SignalKind, signal};

    let on = |number: Number, meaning: Signal| -> io::Result<BoxStream<'static, Signal>> {
        let received = signal(SignalKind::from_raw(number.as_raw()))?;
        let next = move |mut received: tokio::signal::unix::Signal| async move {
            received.recv().await.map(|()| (meaning, received))
        };
        Ok(stream::unfold(received, next).boxed())
    };
    let signals = [
        on(Number::INT, Signal::Interrupt)?,
        on(Number::TERM, Signal::End)?,
        on(Number::HUP, Signal::End)?,
        on(Number::TSTP, Signal::Stop)?,
        on(Number::CONT, Signal::Continue)?,
    ];
    Ok(stream::select_all(signals).boxed())
}

/// Ctrl-C, the only signal here.
#[cfg(not(unix))]
pub(crate) fn listen() -> io::Result<BoxStream<'static, Signal>> {
    let next = async |()| tokio::signal::ctrl_c().await.ok().map(|()| (Signal::Interrupt, ()));
    Ok(stream::unfold((), next).boxed())
}
