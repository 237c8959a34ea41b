//! The sandbox's only clock.
//!
//! It follows tokio's time, so that under `tokio::time::pause` timestamps, kubelet delays and lease ages advance
//! together.

use jiff::{SignedDuration, Timestamp};
use tokio::time::Instant;

/// Wall-clock time that follows tokio's clock.
#[derive(Debug, Clone, Copy)]
pub struct Clock {
    started_at: Timestamp,
    origin: Instant,
}

impl Clock {
    /// A clock that starts at the current wall-clock time.
    pub fn start() -> Self {
        Self { started_at: Timestamp::now(), origin: Instant::now() }
    }

    /// The time, to the nanosecond.
    pub fn now(&self) -> Timestamp {
        let elapsed = SignedDuration::try_from(self.origin.elapsed()).unwrap_or(SignedDuration::MAX);
        self.started_at.saturating_add(elapsed).unwrap_or(Timestamp::MAX)
    }

    /// The time as `metav1.Time` writes it: RFC 3339, whole seconds.
    pub fn now_string(&self) -> String {
        metav1_time(self.now())
    }
}

/// `metav1.Time`: RFC 3339 in UTC with whole seconds.
pub fn metav1_time(at: Timestamp) -> String {
    at.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}
