//! The runtime on which a leader works. It belongs to one term, so that nothing outlives the term, and has a thread of
//! its own, so that reading a long list does not delay probes and webhook reviews.

use std::io;

use tokio::runtime::{Builder, Handle, Runtime};
use tokio::task::JoinHandle;

/// The runtime of one term. Dropping it ends all of its tasks without waiting.
pub(crate) struct LeaderRuntime {
    handle: Handle,
    runtime: Option<Runtime>,
}

impl LeaderRuntime {
    pub(crate) fn new() -> io::Result<Self> {
        let runtime = Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
        Ok(Self { handle: runtime.handle().clone(), runtime: Some(runtime) })
    }

    /// Calls `build` on this runtime: a client's connections belong to the runtime on which it is built.
    pub(crate) fn build<T>(&self, build: impl FnOnce() -> T) -> T {
        let _guard = self.handle.enter();
        build()
    }

    pub(crate) fn handle(&self) -> Handle {
        self.handle.clone()
    }

    pub(crate) fn spawn<W>(&self, task: W) -> JoinHandle<W::Output>
    where
        W: Future<Output: Send> + Send + 'static,
    {
        self.handle.spawn(task)
    }
}

impl Drop for LeaderRuntime {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}
