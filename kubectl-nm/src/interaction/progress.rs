//! Signs of life while something takes longer than a person likes to look at nothing, and an end to that.

use std::time::Duration;

use tokio::time::{Instant, interval_at};

use crate::interaction::hint::SLOW;
use crate::terminal::output::Output;
use crate::terminal::text::Line;

/// When somebody begins to wonder.
const FIRST: Duration = Duration::from_secs(1);

/// How often they are told again.
const AGAIN: Duration = Duration::from_secs(5);

/// When somebody doubts that the server is there at all.
const DOUBT: Duration = Duration::from_secs(4);

/// Waits for `work`, and says on stderr what is going on if that takes over a second: `doing` is asked each time. Where the
/// server has never answered, what to do about it is said before it is given up.
pub(crate) async fn during<T>(
    out: &mut Output,
    doing: impl Fn() -> String,
    work: impl Future<Output = T>,
) -> T {
    let mut work = std::pin::pin!(work);
    let mut ticks = interval_at(Instant::now() + FIRST, AGAIN);
    let mut doubt = std::pin::pin!(tokio::time::sleep(DOUBT));
    let mut doubted = false;
    loop {
        tokio::select! {
            biased;
            done = &mut work => return done,
            _ = ticks.tick() => out.talk(&Line::new(format!("{} ...", doing()))),
            () = &mut doubt, if !doubted => {
                doubted = true;
                if out.awaits_first_answer() {
                    out.talk(&Line::new(format!("{} ... no answer yet", doing())));
                    out.hint(SLOW);
                }
            }
        }
    }
}

/// Waits for `work`, but no longer than `limit`, after which there is nothing; a limit of zero is none.
pub(crate) async fn within<T>(limit: Duration, work: impl Future<Output = T>) -> Option<T> {
    if limit.is_zero() { Some(work.await) } else { tokio::time::timeout(limit, work).await.ok() }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;
    use crate::terminal::output::FirstAnswer;
    use crate::terminal::output::captured::output;

    #[tokio::test(start_paused = true)]
    async fn a_limit_of_zero_is_none() {
        let work = || tokio::time::sleep(Duration::from_secs(60));
        assert_eq!(within(Duration::from_secs(59), work()).await, None);
        assert_eq!(within(Duration::ZERO, work()).await, Some(()));
    }

    #[tokio::test(start_paused = true)]
    async fn only_what_takes_long_is_told() {
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

        let first = FirstAnswer::default();
        let (out, captured) = output();
        let mut out = out.leading(String::new(), first);
        during(&mut out, || "asking".into(), tokio::time::sleep(Duration::from_secs(5))).await;
        assert_eq!(captured.talk(), format!("asking ...\nasking ... no answer yet\nhint: {SLOW}\n"));

        let (mut out, captured) = output();
        during(&mut out, String::new, tokio::time::sleep(Duration::from_millis(999))).await;
        assert_eq!(captured.talk(), "");
    }
}
