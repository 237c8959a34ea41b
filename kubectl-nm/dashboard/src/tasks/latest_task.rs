//! A task of which only the latest matters.

use tokio::task::JoinSet;

/// The task that was begun last, if it has not ended. Unlike commands, it ends with the dashboard.
#[derive(Default)]
pub(crate) struct LatestTask(JoinSet<()>);

impl LatestTask {
    /// Begins a task, and ends the one before.
    pub(crate) fn run(&mut self, task: impl Future<Output = ()> + 'static) {
        self.end();
        self.0.spawn_local(task);
    }

    pub(crate) fn end(&mut self) {
        self.0 = JoinSet::new();
    }
}
