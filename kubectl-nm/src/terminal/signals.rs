//! Requests to end the program.

/// Returns on Ctrl-C and on a request to terminate. After the first call, neither ends the process by itself.
pub(crate) async fn interrupted() {
    tokio::select! {
        received = tokio::signal::ctrl_c() => if received.is_err() { std::future::pending::<()>().await },
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
        // The signal then ends the process, as it does by default.
        Err(_) => std::future::pending().await,
    }
}

#[cfg(not(unix))]
async fn terminated() {
    std::future::pending().await
}
