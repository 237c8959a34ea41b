//! The tasks of a leader. Each has to run for the whole term: when one ends early, the term is over.
//!
//! A leader without one of its watches, or without its evictor, would keep renewing the lease and work on stale data.
//! Another replica, or this program restarted, starts from current data.

use std::any::Any;
use std::panic::AssertUnwindSafe;

use futures::channel::mpsc::{UnboundedReceiver, UnboundedSender, unbounded};
use futures::{FutureExt, StreamExt};
use tokio::task::AbortHandle;

/// A task, whatever it is called in the log.
pub(crate) type TaskId = tokio::task::Id;

/// Spawns tasks. Cheap to clone.
#[derive(Debug, Clone)]
pub(crate) struct TaskSpawner(UnboundedSender<TaskExit>);

/// The exits of spawned tasks.
#[derive(Debug)]
pub(crate) struct TaskExits(UnboundedReceiver<TaskExit>);

/// A task that is aborted when this is dropped.
#[derive(Debug)]
pub(crate) struct ScopedTask(AbortHandle);

impl Drop for ScopedTask {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// A task that ended without having been aborted.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum TaskExit {
    #[error("{task} panicked: {message}")]
    Panicked { task: String, message: String },
    #[error("{task} ended unexpectedly")]
    Returned { task: String, id: TaskId },
}

impl TaskSpawner {
    /// A spawner, and where the exits of its tasks are reported.
    pub(crate) fn new() -> (Self, TaskExits) {
        let (sender, receiver) = unbounded();
        (Self(sender), TaskExits(receiver))
    }

    /// Spawns a task that runs until shutdown. Its name is for log lines.
    pub(crate) fn spawn(
        &self,
        name: impl Into<String>,
        task: impl Future<Output = ()> + Send + 'static,
    ) -> TaskId {
        self.start(name.into(), true, task).id()
    }

    /// Spawns a task that runs until the result is dropped.
    pub(crate) fn spawn_scoped(
        &self,
        name: impl Into<String>,
        task: impl Future<Output = ()> + Send + 'static,
    ) -> ScopedTask {
        ScopedTask(self.start(name.into(), true, task))
    }

    /// Spawns a task that ends by itself, or when the result is dropped.
    pub(crate) fn spawn_scoped_finite(
        &self,
        name: impl Into<String>,
        task: impl Future<Output = ()> + Send + 'static,
    ) -> ScopedTask {
        ScopedTask(self.start(name.into(), false, task))
    }

    fn start(
        &self,
        task: String,
        is_endless: bool,
        work: impl Future<Output = ()> + Send + 'static,
    ) -> AbortHandle {
        let exits = self.0.clone();
        let watched = async move {
            let exit = match AssertUnwindSafe(work).catch_unwind().await {
                Err(panic) => TaskExit::Panicked { task, message: message(panic.as_ref()) },
                Ok(()) if is_endless => TaskExit::Returned { task, id: tokio::task::id() },
                Ok(()) => return,
            };
            // The receiver is gone only when the term ends.
            let _ = exits.unbounded_send(exit);
        };
        tokio::spawn(watched).abort_handle()
    }
}

impl TaskExits {
    /// The next exit. Never resolves if there is none.
    pub(crate) async fn next(&mut self) -> TaskExit {
        match self.0.next().await {
            Some(exit) => exit,
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
    async fn a_task_that_panics_or_ends_early_is_reported_by_name() {
        let (tasks, mut exits) = TaskSpawner::new();
        tasks.spawn("the watch on nodes", async { panic!("of {}", 7) });
        let exit = exits.next().await;
        assert_eq!(exit.to_string(), "the watch on nodes panicked: of 7");
        tasks.spawn("the evictor", ready(()));
        assert_eq!(exits.next().await.to_string(), "the evictor ended unexpectedly");
        let _restart = tasks.spawn_scoped_finite("a restart", async { panic!("at once") });
        assert_eq!(exits.next().await.to_string(), "a restart panicked: at once");
    }

    #[tokio::test]
    async fn a_task_that_is_aborted_or_finite_is_not_reported() {
        let (tasks, mut exits) = TaskSpawner::new();
        drop(tasks.spawn_scoped("aborted", pending()));
        let _brief = tasks.spawn_scoped_finite("brief", ready(()));
        tokio::task::yield_now().await;
        let id = tasks.spawn("last", ready(()));
        assert_eq!(exits.next().await, TaskExit::Returned { task: "last".to_owned(), id });
    }
}
