//! Ctrl-C, and being asked to terminate.

/// Returns when the user or the system wants us to end. From the first call on, neither ends the process by itself.
pub(crate) async fn interrupted() {
    tokio::select! {
        heard = tokio::signal::ctrl_c() => if heard.is_err() { std::future::pending::<()>().await },
        () = terminated() => {}
    }
}

#[cfg(unix)]
async fn terminated() {
    use tokio::signal::unix::{SignalKind, signal};

    match signal(SignalKind::terminate()) {
        Ok(mut signals) => {
            signals.recv().await;
        }
        // It then ends us the hard way, as it would any program.
        Err(_) => std::future::pending().await,
    }
}

#[cfg(not(unix))]
async fn terminated() {
    std::future::pending().await
}
