//! The processor time of a thread, for measurements that do not depend on what else the host does.

use std::time::Duration;

/// What `work` returns, and the processor time that this thread spends on it. Linux alone has the file.
pub(crate) fn measured<T>(work: impl FnOnce() -> T) -> (T, Duration) {
    let before = used();
    let done = work();
    (done, used().saturating_sub(before))
}

/// The processor time of this thread so far.
pub(crate) fn used() -> Duration {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    let nanoseconds = text.split_whitespace().next().and_then(|first| first.parse().ok());
    Duration::from_nanos(nanoseconds.unwrap_or_default())
}
