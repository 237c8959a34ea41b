//! Progress messages while a command waits, and timeouts.

use std::cell::Cell;
use std::time::Duration;

use futures::stream::{self, StreamExt};
use tokio::time::{Instant, timeout_at};

use crate::client::cluster::MAX_CONCURRENT_REQUESTS;
use crate::terminal::output::Output;
use crate::terminal::text::Line;

const FIRST_MESSAGE_DELAY: Duration = Duration::from_secs(1);

/// The time until the second message. It doubles with each.
const MESSAGE_INTERVAL: Duration = Duration::from_secs(5);

/// Waits for `work`. If that takes longer than a second, prints messages on stderr, whose text `doing` returns.
pub async fn during<T>(out: &mut Output, doing: impl Fn() -> String, work: impl Future<Output = T>) -> T {
    let mut work = std::pin::pin!(work);
    let begun = Instant::now();
    let (mut due, mut pause) = (begun + FIRST_MESSAGE_DELAY, MESSAGE_INTERVAL);
    loop {
        if let Ok(done) = timeout_at(due, &mut work).await {
            return done;
        }
        let since = begun.elapsed().as_secs();
        let since = if since < 2 { String::new() } else { format!(" ({since}s)") };
        out.message(&Line::new(format!("{} ...{since}", doing())));
        (due, pause) = (due + pause, pause * 2);
    }
}

/// Sends a request for each item, several at once, and returns the answers in the order of the items. If that takes longer
/// than a second, prints how many of `what` are done, unless there is only one.
pub async fn for_each<I, T>(
    out: &mut Output,
    items: impl ExactSizeIterator<Item = I>,
    what: &str,
    send: impl AsyncFn(I) -> T,
) -> Vec<T> {
    let (count, done) = (items.len(), Cell::new(0));
    let answers = stream::iter(items)
        .map(async |item| {
            let answer = send(item).await;
            done.set(done.get() + 1);
            answer
        })
        .buffered(MAX_CONCURRENT_REQUESTS)
        .collect();
    let message = || match count {
        1 => String::from("waiting for the API server"),
        _ => format!("{} of {count} {what}", done.get()),
    };
    during(out, message, answers).await
}

/// Waits for `work` until the timeout, and returns `None` then. A timeout of zero means no timeout.
pub async fn within<T>(timeout: Duration, work: impl Future<Output = T>) -> Option<T> {
    if timeout.is_zero() { Some(work.await) } else { tokio::time::timeout(timeout, work).await.ok() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::terminal::output::captured::output;

    #[tokio::test(start_paused = true)]
    async fn a_timeout_of_zero_is_no_timeout() {
        let work = || tokio::time::sleep(Duration::from_secs(60));
        assert_eq!(within(Duration::from_secs(59), work()).await, None);
        assert_eq!(within(Duration::ZERO, work()).await, Some(()));
    }

    #[tokio::test(start_paused = true)]
    async fn one_item_is_not_counted() {
        for (items, expected) in [(1, "waiting for the API server ...\n"), (2, "0 of 2 nodes ...\n")] {
            let (mut out, captured) = output();
            let send = async |_| tokio::time::sleep(Duration::from_secs(2)).await;
            for_each(&mut out, 0..items, "nodes", send).await;
            assert_eq!(captured.messages(), expected);
        }
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
        assert_eq!(captured.messages(), "2 of 9 ...\n9 of 9 ... (6s)\n");
        assert_eq!(captured.data(), "");

        let (mut out, captured) = output();
        during(&mut out, String::new, tokio::time::sleep(Duration::from_millis(999))).await;
        assert_eq!(captured.messages(), "");
    }
}
