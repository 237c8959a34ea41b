//! Where a leader works: a runtime of its own, so that nothing outlives the term, with a thread of its own, so that neither
//! the work nor what is answered beside it waits while the other reads a long list.

use std::io;

use tokio::runtime::{Builder, Handle, Runtime};
use tokio::task::JoinHandle;

/// A leader's runtime. Dropped, it ends whatever runs on it and waits for nothing.
pub(crate) struct Stage {
    handle: Handle,
    runtime: Option<Runtime>,
}

impl Stage {
    /// One on which nothing runs yet.
    pub(crate) fn new() -> io::Result<Self> {
        let runtime = Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
        Ok(Self { handle: runtime.handle().clone(), runtime: Some(runtime) })
    }

    /// Makes something there: connections live where their client is made.
    pub(crate) fn make<T>(&self, make: impl FnOnce() -> T) -> T {
        let _on_it = self.handle.enter();
        make()
    }

    /// Begins to work.
    pub(crate) fn perform<W>(&self, work: W) -> JoinHandle<W::Output>
    where
        W: Future<Output: Send> + Send + 'static,
    {
        self.handle.spawn(work)
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}
