//! Whether the conditions of nodes may be written. They are for those who wish to know, so where the right to write them is
//! missing, nobody asks for it at every look.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

/// What was refused is tried again so soon.
const PAUSE: Duration = Duration::from_secs(10);

/// What the API server said last to whoever wrote conditions: when it refused, if it did.
#[derive(Debug, Default)]
pub(crate) struct NodeConditions(Mutex<Option<Instant>>);

impl NodeConditions {
    /// Notes a refusal, and says whether it is news.
    pub(crate) fn refused(&self) -> bool {
        self.set(Some(Instant::now())).is_none()
    }

    /// Notes that they were written.
    pub(crate) fn granted(&self) {
        self.set(None);
    }

    /// For how long they are not written, after a refusal.
    pub(crate) fn rest(&self) -> Option<Duration> {
        let refused = *self.0.lock().unwrap_or_else(PoisonError::into_inner);
        PAUSE.checked_sub(refused?.elapsed()).filter(|rest| !rest.is_zero())
    }

    fn set(&self, state: Option<Instant>) -> Option<Instant> {
        std::mem::replace(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner), state)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_refusal_is_news_once_and_is_tried_again_later() {
        let conditions = NodeConditions::default();
        assert_eq!(conditions.rest(), None);
        assert!(conditions.refused());
        assert_eq!(conditions.rest(), Some(PAUSE));
        tokio::time::advance(PAUSE).await;
        assert_eq!(conditions.rest(), None);
        assert!(!conditions.refused(), "nobody is told twice");
        conditions.granted();
        assert_eq!(conditions.rest(), None);
        assert!(conditions.refused(), "a right that is withdrawn again");
    }
}
