//! The program's shutdown: the signals, and how long work that has begun may take.

use std::time::Duration;

use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;
use tracing::info;

/// Work that has begun when a signal arrives may take this long.
const SHUTDOWN_GRACE_PERIOD: Duration = Duration::from_secs(3);

/// A channel that turns true at the first SIGTERM or SIGINT.
pub(crate) fn shutdown_signal() -> std::io::Result<watch::Receiver<bool>> {
    let (sender, receiver) = watch::channel(false);
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    tokio::spawn(async move {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
        info!("shutting down");
        sender.send_replace(true);
        // The channel stays open: receivers take a closed one for a shutdown before they read the value.
        sender.closed().await;
    });
    Ok(receiver)
}

/// Resolves once shutdown begins.
pub(crate) async fn shutdown_begins(mut shutdown: watch::Receiver<bool>) {
    // An error means that the sender is gone, which is a shutdown too.
    let _ = shutdown.wait_for(|begun| *begun).await;
}

/// Resolves once shutdown has begun and its grace period is over.
pub(crate) async fn grace_period_ends(shutdown: watch::Receiver<bool>) {
    shutdown_begins(shutdown).await;
    tokio::time::sleep(SHUTDOWN_GRACE_PERIOD).await;
}
