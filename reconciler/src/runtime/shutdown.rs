//! How the program is told to stop.

use std::time::Duration;

use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;
use tracing::info;

/// What is under way when a signal comes may finish within this time.
const LAST_WORDS: Duration = Duration::from_secs(3);

/// Turns true at the first SIGTERM or SIGINT.
pub(crate) fn stop_signal() -> std::io::Result<watch::Receiver<bool>> {
    let (sender, receiver) = watch::channel(false);
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    tokio::spawn(async move {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
        info!("stopping");
        sender.send_replace(true);
        // Kept alive: a dropped sender would read as a stop as well, but only after this one was seen.
        sender.closed().await;
    });
    Ok(receiver)
}

/// Resolves once a signal has come.
pub(crate) async fn stopped(mut stop: watch::Receiver<bool>) {
    // An error means that the sender is gone, which is a stop too.
    let _ = stop.wait_for(|stopped| *stopped).await;
}

/// Resolves once a signal has come and what is under way has had its time.
pub(crate) async fn give_up(stop: watch::Receiver<bool>) {
    stopped(stop).await;
    tokio::time::sleep(LAST_WORDS).await;
}
