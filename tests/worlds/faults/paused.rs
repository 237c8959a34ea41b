//! Threads that run futures on paused time, and return their panics.

use std::cell::RefCell;
use std::panic::AssertUnwindSafe;
use std::sync::Once;

/// The name of the threads whose panics are kept.
const RUNNER: &str = "lives";

thread_local! {
    static LAST_PANIC: RefCell<String> = const { RefCell::new(String::new()) };
}

/// Keeps the message of a panic instead of printing it.
fn keep_panics() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let usual = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            if std::thread::current().name() == Some(RUNNER) {
                LAST_PANIC.set(panic.to_string());
            } else {
                usual(panic);
            }
        }));
    });
}

/// Runs a future on a runtime of its own, on paused time. An error is the message of a panic, if the thread is one of
/// [`on_all_processors`].
pub(crate) fn on_paused_time<T>(future: impl Future<Output = T>) -> Result<T, String> {
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
    let ended = std::panic::catch_unwind(AssertUnwindSafe(|| runtime.block_on(future)));
    ended.map_err(|_| LAST_PANIC.take())
}

/// Runs the same work with the number of each thread, on as many threads as there are processors.
pub(crate) fn on_all_processors(work: impl Fn(usize) + Sync) {
    keep_panics();
    let threads = std::thread::available_parallelism().map_or(2, std::num::NonZero::get);
    std::thread::scope(|scope| {
        for number in 0..threads {
            let runner = std::thread::Builder::new().name(RUNNER.to_owned());
            let work = &work;
            runner.spawn_scoped(scope, move || work(number)).unwrap();
        }
    });
}
