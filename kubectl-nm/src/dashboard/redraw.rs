//! When the screen is drawn: soon after something changed, and not more often than anybody sees.

use nm_shared::api::latency_budget::FRAME_INTERVAL;
use tokio::time::{Instant, sleep_until};

/// When to draw.
#[derive(Default)]
pub(super) struct Paint {
    dirty: bool,
    /// Not before then.
    next: Option<Instant>,
}

impl Paint {
    /// Something changed.
    pub(super) fn soon(&mut self) {
        self.dirty = true;
    }

    /// Something changed that somebody waits to see.
    pub(super) fn now(&mut self) {
        self.dirty = true;
        self.next = None;
    }

    /// Whether it is time to draw.
    pub(super) fn is_due(&self) -> bool {
        self.dirty && self.next.is_none_or(|next| next <= Instant::now())
    }

    /// It is drawn.
    pub(super) fn done(&mut self) {
        self.dirty = false;
        self.next = Some(Instant::now() + FRAME_INTERVAL);
    }

    /// Returns when it is time to draw, which is never if nothing changed.
    pub(super) async fn wait(&self) {
        match self.next {
            Some(next) if self.dirty => sleep_until(next).await,
            _ => std::future::pending().await,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_key_is_drawn_at_once_and_news_ten_times_a_second_at_most() {
        let mut paint = Paint::default();
        assert!(!paint.is_due());
        paint.soon();
        assert!(paint.is_due());
        paint.done();
        paint.soon();
        assert!(!paint.is_due());
        let begun = Instant::now();
        paint.wait().await;
        assert_eq!((paint.is_due(), begun.elapsed()), (true, FRAME_INTERVAL));
        paint.done();
        paint.now();
        assert!(paint.is_due());
    }
}
