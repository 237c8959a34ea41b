//! Requests to end the program.

/// Returns on Ctrl-C, on a request to terminate, and when the terminal is closed. After the first call, none of them ends the
/// process by itself.
pub async fn interrupted() {
    tokio::select! {
        received = tokio::signal::ctrl_c() => if received.is_err() { std::future::pending::<()>().await },
        () = terminated() => {}
    }
}

#[cfg(unix)]
async fn terminated() {
    use tokio::signal::unix::SignalKind;

    let hung_up = async {
        // A program that was started with nohup survives the end of its terminal.
        if is_hangup_ignored() { std::future::pending().await } else { received(SignalKind::hangup()).await }
    };
    tokio::select! {
        () = received(SignalKind::terminate()) => {}
        () = hung_up => {}
    }
}

#[cfg(unix)]
async fn received(kind: tokio::signal::unix::SignalKind) {
    match tokio::signal::unix::signal(kind) {
        Ok(mut signals) => {
            signals.recv().await;
        }
        // The signal then ends the process, as it does by default.
        Err(_) => std::future::pending().await,
    }
}

/// Whether the program was started with SIGHUP ignored. Where the system does not show that: whether it has no terminal, as
/// with nohup.
#[cfg(unix)]
fn is_hangup_ignored() -> bool {
    use std::io::{IsTerminal, stderr, stdout};

    let shown = std::fs::read_to_string("/proc/self/status").ok();
    shown
        .and_then(|status| ignores_hangup(&status))
        .unwrap_or_else(|| !stdout().is_terminal() && !stderr().is_terminal())
}

/// Whether a process ignores SIGHUP, by its status in `/proc`. Source: `proc_pid_status(5)`.
#[cfg(unix)]
fn ignores_hangup(status: &str) -> Option<bool> {
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"))?;
    let mask = u64::from_str_radix(mask.trim(), 16).ok()?;
    Some(mask & 1 == 1)
}

#[cfg(not(unix))]
async fn terminated() {
    std::future::pending().await
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;

    #[test]
    fn the_status_of_a_process_shows_whether_it_ignores_the_end_of_its_terminal() {
        let status = |mask: &str| format!("Name:\tx\nSigBlk:\t0000000000000001\nSigIgn:\t{mask}\n");
        assert_eq!(ignores_hangup(&status("0000000000001001")), Some(true));
        assert_eq!(ignores_hangup(&status("0000000000001000")), Some(false));
        assert_eq!(ignores_hangup("Name:\tx\n"), None);
    }
}
