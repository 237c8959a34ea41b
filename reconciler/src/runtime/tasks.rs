//! The tasks of a leader, which are to go on for as long as it leads: a term of which one has broken off is over.
//!
//! Without one of its watches, or without what sends evictions, a leader would go on renewing its lease and work on what
//! it knew before. Another replica, or this program begun anew, knows better.

use std::any::Any;
use std::panic::AssertUnwindSafe;

use futures::channel::mpsc::{UnboundedReceiver, UnboundedSender, unbounded};
use futures::{FutureExt, StreamExt};
use tokio::task::AbortHandle;

/// Begins tasks. Cheap to clone.
#[derive(Debug, Clone)]
pub(crate) struct Tasks(UnboundedSender<End>);

/// Tells of tasks that came to an end.
#[derive(Debug)]
pub(crate) struct Ends(UnboundedReceiver<End>);

/// A task that came to an end and was not aborted.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum End {
    #[error("{task} panicked: {message}")]
    Panicked { task: String, message: String },
    #[error("{task} ended, which nothing had told it to")]
    Returned { task: String },
}

impl Tasks {
    /// No task yet, and where their ends are told.
    pub(crate) fn new() -> (Self, Ends) {
        let (sender, receiver) = unbounded();
        (Self(sender), Ends(receiver))
    }

    /// Begins a task that goes on until it is told to end. Its name is for a person.
    pub(crate) fn spawn(
        &self,
        name: impl Into<String>,
        task: impl Future<Output = ()> + Send + 'static,
    ) -> AbortHandle {
        self.begin(name.into(), true, task)
    }

    /// Begins one that ends by itself.
    pub(crate) fn spawn_brief(
        &self,
        name: impl Into<String>,
        task: impl Future<Output = ()> + Send + 'static,
    ) -> AbortHandle {
        self.begin(name.into(), false, task)
    }

    fn begin(
        &self,
        task: String,
        goes_on: bool,
        work: impl Future<Output = ()> + Send + 'static,
    ) -> AbortHandle {
        let ends = self.0.clone();
        let watched = async move {
            let end = match AssertUnwindSafe(work).catch_unwind().await {
                Err(panic) => End::Panicked { task, message: message(panic.as_ref()) },
                Ok(()) if goes_on => End::Returned { task },
                Ok(()) => return,
            };
            // The receiver is gone only when the term ends.
            let _ = ends.unbounded_send(end);
        };
        tokio::spawn(watched).abort_handle()
    }
}

impl Ends {
    /// The next end. It waits for ever if there is none.
    pub(crate) async fn next(&mut self) -> End {
        match self.0.next().await {
            Some(end) => end,
            None => std::future::pending().await,
        }
    }
}

fn message(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().copied().or_else(|| panic.downcast_ref::<String>().map(|s| &**s));
    text.unwrap_or("without a message").to_owned()
}

#[cfg(test)]
mod tests {
    use std::future::{pending, ready};

    use super::*;

    #[tokio::test]
    async fn a_task_that_panics_or_ends_early_is_told_by_its_name() {
        let (tasks, mut ends) = Tasks::new();
        tasks.spawn("the watch on nodes", async { panic!("of {}", 7) });
        let end = ends.next().await;
        assert_eq!(end.to_string(), "the watch on nodes panicked: of 7");
        tasks.spawn("the evictor", ready(()));
        assert_eq!(ends.next().await.to_string(), "the evictor ended, which nothing had told it to");
        tasks.spawn_brief("discovery", async { panic!("at once") });
        assert_eq!(ends.next().await.to_string(), "discovery panicked: at once");
    }

    #[tokio::test]
    async fn a_task_that_is_aborted_or_was_to_end_is_no_news() {
        let (tasks, mut ends) = Tasks::new();
        tasks.spawn("aborted", pending()).abort();
        tasks.spawn_brief("brief", ready(()));
        tokio::task::yield_now().await;
        tasks.spawn("last", ready(()));
        assert_eq!(ends.next().await, End::Returned { task: "last".to_owned() });
    }
}
