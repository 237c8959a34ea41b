//! The loop in which every command watches maintenances: an event of the watch, the clock or Ctrl-C, whichever is first.

use std::ops::ControlFlow;
use std::pin::pin;
use std::time::Duration;

use futures::{Stream, StreamExt};
use tokio::time::{Instant, MissedTickBehavior, interval_at, sleep_until};

use nm_shared::NodeMaintenance;

use crate::client::watch_stream::WatchUpdate;
use crate::error::Error;
use crate::error::exit::Exit;
use crate::leader::changes::LeaderChange;
use crate::watch::outage_change::OutageChange;

const FIRST_HEARTBEAT: Duration = Duration::from_secs(5);

const HEARTBEAT_INTERVAL: Duration = Duration::from_secs(30);

/// What a watching command reacts to.
#[derive(Debug)]
pub enum LoopEvent {
    /// Update of the watch on maintenances.
    Watch(WatchUpdate<NodeMaintenance>),
    /// The time for a sign of life.
    Heartbeat,
    /// The timeout of the command expired; its duration.
    TimedOut(Duration),
    /// Ctrl-C, or a request to terminate.
    Interrupted,
    /// Something beside the watch failed, which goes on.
    Warning(String),
    /// Nobody leads who could work on the maintenances, or somebody does again.
    Leader(LeaderChange),
    /// A workload is down since a drain, or no longer.
    Outage(OutageChange),
}

/// Passes every event to `react` until that breaks with an exit code. `others` are events from beside the watch.
///
/// # Errors
///
/// If the watch ends with an error, or if `react` fails.
pub async fn run(
    watch: impl Stream<Item = Result<WatchUpdate<NodeMaintenance>, Error>>,
    timeout: Option<Duration>,
    interrupted: impl Future<Output = ()>,
    others: impl Stream<Item = LoopEvent>,
    mut react: impl FnMut(LoopEvent) -> Result<ControlFlow<Exit>, Error>,
) -> Result<Exit, Error> {
    let (mut watch, mut interrupted) = (pin!(watch), pin!(interrupted));
    let mut others = pin!(others.fuse());
    let start = Instant::now();
    // A timeout that overflows the clock never expires.
    let deadline = timeout.and_then(|after| Some((start.checked_add(after)?, after)));
    let mut heartbeats = interval_at(start + FIRST_HEARTBEAT, HEARTBEAT_INTERVAL);
    heartbeats.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        let event = tokio::select! {
            biased;
            () = &mut interrupted => LoopEvent::Interrupted,
            event = watch.next() => match event {
                Some(event) => LoopEvent::Watch(event?),
                // The stream ends only after an error, which has been returned.
                None => return Ok(Exit::Error),
            },
            Some(event) = others.next(), if !others.is_done() => event,
            after = expiry(deadline) => LoopEvent::TimedOut(after),
            _ = heartbeats.tick() => LoopEvent::Heartbeat,
        };
        if let ControlFlow::Break(exit) = react(event)? {
            return Ok(exit);
        }
    }
}

/// Returns at the deadline, with the timeout that led to it; never without a deadline.
pub async fn expiry(deadline: Option<(Instant, Duration)>) -> Duration {
    match deadline {
        Some((at, timeout)) => {
            sleep_until(at).await;
            timeout
        }
        None => std::future::pending().await,
    }
}

#[cfg(test)]
mod tests {
    use std::future::{pending, ready};

    use futures::stream;

    use super::*;
    use crate::client::watch_stream::WatchChange;

    fn exit_at(event: &LoopEvent) -> ControlFlow<Exit> {
        match event {
            LoopEvent::TimedOut(_) => ControlFlow::Break(Exit::TimedOut),
            LoopEvent::Interrupted => ControlFlow::Break(Exit::Interrupted),
            LoopEvent::Watch(WatchUpdate::Live) => ControlFlow::Break(Exit::Done),
            LoopEvent::Watch(_)
            | LoopEvent::Heartbeat
            | LoopEvent::Warning(_)
            | LoopEvent::Leader(_)
            | LoopEvent::Outage(_) => ControlFlow::Continue(()),
        }
    }

    #[tokio::test(start_paused = true)]
    async fn the_timeout_expires_after_heartbeats() {
        let mut heartbeats = 0;
        let start = Instant::now();
        let silence = stream::pending::<Result<WatchUpdate<NodeMaintenance>, Error>>();
        let exit = run(silence, Some(Duration::from_secs(60)), pending(), stream::empty(), |event| {
            heartbeats += i32::from(matches!(event, LoopEvent::Heartbeat));
            Ok(exit_at(&event))
        });
        assert_eq!(exit.await.unwrap(), Exit::TimedOut);
        assert_eq!((start.elapsed(), heartbeats), (Duration::from_secs(60), 2));
    }

    #[tokio::test(start_paused = true)]
    async fn the_first_event_that_breaks_decides() {
        let good =
            || stream::iter([Ok(WatchUpdate::Change(WatchChange::Listed(vec![]))), Ok(WatchUpdate::Live)]);
        let react = |event: LoopEvent| Ok(exit_at(&event));
        assert_eq!(
            run(good(), Some(Duration::ZERO), pending(), stream::empty(), react).await.unwrap(),
            Exit::Done
        );
        assert_eq!(run(good(), None, ready(()), stream::empty(), react).await.unwrap(), Exit::Interrupted);
        assert_eq!(
            run(good(), Some(Duration::MAX), pending(), stream::empty(), react).await.unwrap(),
            Exit::Done
        );
        let bad = stream::iter([Err(Error::NotInMaintenance(vec![]))]);
        assert!(run(bad, None, pending(), stream::empty(), react).await.is_err());
    }
}
