//! The time that a question waits for a plan: what has arrived by then counts, and the rest is unknown.

use std::time::Duration;

use tokio::time::{Instant, timeout_at};

use crate::args::duration;
use crate::error::Error;

/// When a plan that is read for a question has to be there.
#[derive(Debug, Clone, Copy)]
pub(crate) struct TimeLimit {
    deadline: Instant,
    limit: Duration,
}

/// Why a request has no answer.
#[derive(Debug)]
pub(crate) enum NoAnswer {
    /// It failed.
    Failed(Error),
    /// It took too long, as a sentence.
    TooLate(String),
}

impl TimeLimit {
    /// A limit that begins now.
    pub(crate) fn new(limit: Duration) -> Self {
        Self { deadline: Instant::now() + limit, limit }
    }

    /// What `work` results in; an error as a sentence if that takes too long.
    pub(crate) async fn wait<T>(self, work: impl Future<Output = T>) -> Result<T, String> {
        let too_late = |_| format!("the plan took longer than {}", duration::show(self.limit));
        timeout_at(self.deadline, work).await.map_err(too_late)
    }
}

/// The answer to a request, within the limit if there is one.
pub(crate) async fn within<T>(
    limit: Option<TimeLimit>,
    request: impl Future<Output = Result<T, Error>>,
) -> Result<T, NoAnswer> {
    let Some(limit) = limit else { return request.await.map_err(NoAnswer::Failed) };
    limit.wait(request).await.map_err(NoAnswer::TooLate)?.map_err(NoAnswer::Failed)
}
