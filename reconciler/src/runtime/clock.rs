//! The wall clock.

use std::fmt;
use std::sync::Arc;

use jiff::Timestamp;

/// What time it is for a term. Cheap to clone. Tests replace the system's clock, so that hours pass at once and the
/// clocks of two replicas differ.
#[derive(Clone)]
pub struct Clock(Arc<dyn Fn() -> Timestamp + Send + Sync>);

impl Clock {
    /// The system's clock.
    pub fn system() -> Self {
        Self::new(Timestamp::now)
    }

    /// A clock that reads `now`.
    pub fn new(now: impl Fn() -> Timestamp + Send + Sync + 'static) -> Self {
        Self(Arc::new(now))
    }

    pub(crate) fn now(&self) -> Timestamp {
        (self.0)()
    }
}

impl fmt::Debug for Clock {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "Clock({})", self.now())
    }
}
