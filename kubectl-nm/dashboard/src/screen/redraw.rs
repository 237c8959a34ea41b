//! When the screen is redrawn: at once after input, and otherwise at most ten times a second.

use nm_shared::api::latency_budget::FRAME_INTERVAL;
use tokio::time::{Instant, sleep_until};

#[derive(Default)]
pub(crate) struct Redraw {
    /// Whether something changed since the last frame.
    dirty: bool,
    /// The earliest time of the next frame.
    next: Option<Instant>,
}

impl Redraw {
    /// Requests a frame within the frame interval.
    pub(crate) fn soon(&mut self) {
        self.dirty = true;
    }

    /// Requests a frame at once, as the answer to input.
    pub(crate) fn now(&mut self) {
        self.dirty = true;
        self.next = None;
    }

    pub(crate) fn is_due(&self) -> bool {
        self.dirty && self.next.is_none_or(|next| next <= Instant::now())
    }

    pub(crate) fn done(&mut self) {
        self.dirty = false;
        self.next = Some(Instant::now() + FRAME_INTERVAL);
    }

    /// Returns when it is time to draw; never, if nothing changed.
    pub(crate) async fn wait(&self) {
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
    async fn input_is_drawn_at_once_and_cluster_changes_ten_times_a_second_at_most() {
        let mut redraw = Redraw::default();
        assert!(!redraw.is_due());
        redraw.soon();
        assert!(redraw.is_due());
        redraw.done();
        redraw.soon();
        assert!(!redraw.is_due());
        let started = Instant::now();
        redraw.wait().await;
        assert_eq!((redraw.is_due(), started.elapsed()), (true, FRAME_INTERVAL));
        redraw.done();
        redraw.now();
        assert!(redraw.is_due());
    }
}
