//! Whether the API server is up, and how it last went down.

use tokio::sync::watch as signal;

/// The state that requests observe.
#[derive(Debug)]
pub(crate) struct ServerState(signal::Sender<ServerStatus>);

/// Counters only grow, so that nobody misses a restart.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct ServerStatus {
    up: bool,
    ends: u64,
    kills: u64,
}

/// How requests in flight end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Shutdown {
    /// Gracefully: watches end, responses are completed.
    Ended,
    /// At once: every connection is lost.
    Killed,
}

impl Default for ServerState {
    fn default() -> Self {
        Self(signal::Sender::new(ServerStatus { up: true, ends: 0, kills: 0 }))
    }
}

impl ServerState {
    /// Whether the server is up.
    pub(crate) fn is_up(&self) -> bool {
        self.0.borrow().up
    }

    /// Brings the server up.
    pub(crate) fn begin(&self) {
        self.0.send_modify(|life| life.up = true);
    }

    /// Brings the server down. Does nothing if it is down.
    pub(crate) fn cease(&self, how: Shutdown) {
        self.0.send_modify(|life| {
            let was_up = std::mem::replace(&mut life.up, false);
            match how {
                Shutdown::Ended => life.ends += u64::from(was_up),
                // A graceful shutdown may still be in progress.
                Shutdown::Killed => life.kills += 1,
            }
        });
    }

    /// A subscription to the end of the current run.
    pub(crate) fn life(&self) -> Subscription {
        let life = self.0.subscribe();
        let began = *life.borrow();
        Subscription { life, began }
    }
}

/// One run of the server, as a request sees it.
#[derive(Debug, Clone)]
pub(crate) struct Subscription {
    life: signal::Receiver<ServerStatus>,
    began: ServerStatus,
}

impl Subscription {
    /// Waits for the end of the run.
    pub(crate) async fn over(&mut self) -> Shutdown {
        let began = self.began;
        let is_over = |life: &ServerStatus| life.ends != began.ends || life.kills != began.kills;
        // A server that was dropped has ended.
        match self.life.wait_for(is_over).await {
            Ok(life) if life.kills != began.kills => Shutdown::Killed,
            _ => Shutdown::Ended,
        }
    }

    /// Waits until the server is killed.
    pub(crate) async fn killed(&mut self) {
        let kills = self.began.kills;
        if self.life.wait_for(|life| life.kills != kills).await.is_err() {
            std::future::pending::<()>().await;
        }
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;

    use super::*;

    #[test]
    fn an_end_is_heard_of_even_after_a_new_beginning() {
        let serving = ServerState::default();
        let (mut first, mut killed) = (serving.life(), serving.life());
        assert!(first.over().now_or_never().is_none());
        serving.cease(Shutdown::Ended);
        serving.begin();
        let mut second = serving.life();
        assert_eq!(first.over().now_or_never(), Some(Shutdown::Ended));
        assert!(second.over().now_or_never().is_none());
        assert!(killed.killed().now_or_never().is_none());
        serving.cease(Shutdown::Killed);
        assert!(!serving.is_up());
        assert_eq!(second.over().now_or_never(), Some(Shutdown::Killed));
        assert!(killed.killed().now_or_never().is_some());
    }
}
