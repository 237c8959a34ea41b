//! Progress messages while a command waits, and timeouts.

use std::time::Duration;

use tokio::time::{Instant, interval_at};

use crate::terminal::output::Output;
use crate::terminal::text::Line;

const FIRST_MESSAGE_DELAY: Duration = Duration::from_secs(1);

const MESSAGE_INTERVAL: Duration = Duration::from_secs(5);

/// Waits for `work`. If that takes longer than a second, prints messages on stderr, whose text `doing` returns.
pub(crate) async fn during<T>(
    out: &mut Output,
    doing: impl Fn() -> String,
    work: impl Future<Output = T>,
) -> T {
    let mut work = std::pin::pin!(work);
    let mut ticks = interval_at(Instant::now() + FIRST_MESSAGE_DELAY, MESSAGE_INTERVAL);
    loop {
        tokio::select! {
            biased;
            done = &mut work => return done,
            _ = ticks.tick() => out.talk(&Line::new(format!("{} ...", doing()))),
        }
    }
}

/// Waits for `work` until the timeout, and returns `None` then. A timeout of zero means no timeout.
pub(crate) async fn within<T>(timeout: Duration, work: impl Future<Output = T>) -> Option<T> {
    if timeout.is_zero() { Some(work.await) } else { tokio::time::timeout(timeout, work).await.ok() }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;
    use crate::terminal::output::captured::output;

    #[tokio::test(start_paused = true)]
    async fn a_timeout_of_zero_is_no_timeout() {
        let work = || tokio::time::sleep(Duration::from_secs(60));
        assert_eq!(within(Duration::from_secs(59), work()).await, None);
        assert_eq!(within(Duration::ZERO, work()).await, Some(()));
    }

    #[tokio::test(start_paused = true)]
    async fn only_long_waits_print_messages() {
        let (mut out, captured) = output();
        let done = Cell::new(0);
        let work = async {
            for _ in 0..9 {
                done.set(done.get() + 1);
                tokio::time::sleep(Duration::from_millis(750)).await;
            }
            "done"
        };
        assert_eq!(during(&mut out, || format!("{} of 9", done.get()), work).await, "done");
        assert_eq!(captured.talk(), "2 of 9 ...\n9 of 9 ...\n");
        assert_eq!(captured.data(), "");

        let (mut out, captured) = output();
        during(&mut out, String::new, tokio::time::sleep(Duration::from_millis(999))).await;
        assert_eq!(captured.talk(), "");
    }
}
