//! The loop that every wait runs in: news, the time, and Ctrl-C, whichever comes first.

use std::ops::ControlFlow;
use std::pin::pin;
use std::time::Duration;

use futures::{Stream, StreamExt};
use tokio::time::{Instant, MissedTickBehavior, interval_at, sleep_until};

use crate::client::watch_stream::News;
use crate::error::Error;
use crate::error::exit::Exit;

/// When a wait first says what it waits for.
const FIRST_REMINDER: Duration = Duration::from_secs(5);

/// How often it says so again.
const REMINDERS: Duration = Duration::from_secs(30);

const SECOND: Duration = Duration::from_secs(1);

/// Something that a wait reacts to.
#[derive(Debug)]
pub(crate) enum Moment {
    /// The watch brought something.
    News(News),
    /// It has been going on for a while.
    Reminder,
    /// A second has passed, for what shows the time.
    Second,
    /// The time given ran out.
    TimedOut(Duration),
    /// The user gave up.
    Interrupted,
}

/// Hands every moment to `react` until it breaks off with an exit code.
///
/// # Errors
///
/// When the watch cannot go on, or `react` fails.
pub(crate) async fn follow(
    news: impl Stream<Item = Result<News, Error>>,
    timeout: Option<Duration>,
    interrupted: impl Future<Output = ()>,
    mut react: impl FnMut(Moment) -> Result<ControlFlow<Exit>, Error>,
) -> Result<Exit, Error> {
    let (mut news, mut interrupted) = (pin!(news), pin!(interrupted));
    let begun = Instant::now();
    // A time too far to be written down never comes.
    let deadline = timeout.and_then(|after| Some((begun.checked_add(after)?, after)));
    let mut reminders = interval_at(begun + FIRST_REMINDER, REMINDERS);
    reminders.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut seconds = interval_at(begun + SECOND, SECOND);
    seconds.set_missed_tick_behavior(MissedTickBehavior::Skip);
    loop {
        let moment = tokio::select! {
            biased;
            () = &mut interrupted => Moment::Interrupted,
            brought = news.next() => match brought {
                Some(brought) => Moment::News(brought?),
                // It ends only with an error, which has ended us before.
                None => return Ok(Exit::Error),
            },
            after = past(deadline) => Moment::TimedOut(after),
            _ = reminders.tick() => Moment::Reminder,
            _ = seconds.tick() => Moment::Second,
        };
        if let ControlFlow::Break(exit) = react(moment)? {
            return Ok(exit);
        }
    }
}

/// Returns at the deadline with the time that was given; never without one.
pub(crate) async fn past(deadline: Option<(Instant, Duration)>) -> Duration {
    match deadline {
        Some((at, given)) => {
            sleep_until(at).await;
            given
        }
        None => std::future::pending().await,
    }
}

#[cfg(test)]
mod tests {
    use std::future::{pending, ready};

    use futures::stream;
    use kube::runtime::watcher::Event;

    use super::*;

    fn exit_at(moment: &Moment) -> ControlFlow<Exit> {
        match moment {
            Moment::TimedOut(_) => ControlFlow::Break(Exit::TimedOut),
            Moment::Interrupted => ControlFlow::Break(Exit::Interrupted),
            Moment::News(News::Restored) => ControlFlow::Break(Exit::Done),
            Moment::News(_) | Moment::Reminder | Moment::Second => ControlFlow::Continue(()),
        }
    }

    #[tokio::test(start_paused = true)]
    async fn the_time_runs_out_after_reminders() {
        let mut reminders = 0;
        let begun = Instant::now();
        let silence = stream::pending::<Result<News, Error>>();
        let exit = follow(silence, Some(Duration::from_secs(60)), pending(), |moment| {
            reminders += i32::from(matches!(moment, Moment::Reminder));
            Ok(exit_at(&moment))
        });
        assert_eq!(exit.await.unwrap(), Exit::TimedOut);
        assert_eq!((begun.elapsed(), reminders), (Duration::from_secs(60), 2));
    }

    #[tokio::test(start_paused = true)]
    async fn what_ends_it_first_decides() {
        let good = || stream::iter([Ok(News::Event(Box::new(Event::Init))), Ok(News::Restored)]);
        let react = |moment: Moment| Ok(exit_at(&moment));
        assert_eq!(follow(good(), Some(Duration::ZERO), pending(), react).await.unwrap(), Exit::Done);
        assert_eq!(follow(good(), None, ready(()), react).await.unwrap(), Exit::Interrupted);
        assert_eq!(follow(good(), Some(Duration::MAX), pending(), react).await.unwrap(), Exit::Done);
        let bad = stream::iter([Err(Error::NotInMaintenance(vec![]))]);
        assert!(follow(bad, None, pending(), react).await.is_err());
    }
}
