//! The sandbox's request log, read as what the reconciler sent and when.
//!
//! A request is logged when it is answered, a watch when it begins. So a watch may show a write before the log has it:
//! wait with [`until_requests`] instead of counting at once, or compare [`Entry::at`], the time at which a request came.

use std::time::Duration;

use kube_sandbox::faults::{RuleId, Target};
use kube_sandbox::request_log::Entry;
use kube_sandbox::sandbox::Sandbox;

use crate::wait::{TEST_TIMEOUT, in_time};

/// How often [`until_fault_played`] checks.
const POLL_INTERVAL: Duration = Duration::from_millis(10);

/// Whether a reconciler sent this request.
pub fn is_by_reconciler(entry: &Entry) -> bool {
    entry.user_agent.starts_with("nm-reconciler/")
}

/// Whether the reconciler with this process id sent the request.
pub fn is_by(entry: &Entry, pid: u32) -> bool {
    is_by_reconciler(entry) && entry.user_agent.ends_with(&format!("-{pid})"))
}

/// The user agent of the reconciler with this process id, as a pattern for [`Target::user_agent`].
pub fn user_agent(pid: u32) -> String {
    format!("nm-reconciler/*-{pid})")
}

/// All requests of reconcilers, as a target for faults.
pub fn by_reconciler() -> Target {
    Target::any().user_agent("nm-reconciler/*")
}

/// Whether the request is more than a read.
pub fn is_write(entry: &Entry) -> bool {
    !matches!(entry.verb, "get" | "list" | "watch")
}

/// Whether a reconciler sent this request to evict a pod.
pub fn is_eviction(entry: &Entry) -> bool {
    is_by_reconciler(entry) && entry.subresource == "eviction"
}

/// The reconcilers' evictions so far, oldest first.
pub fn evictions(sandbox: &Sandbox) -> Vec<Entry> {
    sandbox.requests().all().into_iter().filter(is_eviction).collect()
}

/// All requests that match, oldest first, once there are at least `count` of them.
///
/// # Panics
/// After [`TEST_TIMEOUT`].
pub async fn until_requests(
    sandbox: &Sandbox,
    count: usize,
    what: &str,
    is_wanted: impl Fn(&Entry) -> bool,
) -> Vec<Entry> {
    let log = sandbox.requests();
    let enough = log.until(|log| log.count(&is_wanted) >= count);
    if tokio::time::timeout(TEST_TIMEOUT, enough).await.is_err() {
        panic!(
            "waited {TEST_TIMEOUT:?}: {what}; {} of {count} requests in {:#?}",
            log.count(&is_wanted),
            log.all()
        );
    }
    log.all().into_iter().filter(is_wanted).collect()
}

/// Waits until a reconciler watches a resource.
pub async fn until_watched(sandbox: &Sandbox, resource: &str) {
    let is_watch =
        |entry: &Entry| is_by_reconciler(entry) && entry.verb == "watch" && entry.resource == resource;
    until_requests(sandbox, 1, &format!("the reconciler watches {resource}"), is_watch).await;
}

/// Waits until a request has met a fault. It may be unanswered, and so not be in the log yet.
pub async fn until_fault_played(sandbox: &Sandbox, rule: RuleId) {
    let played = async {
        let mut interval = tokio::time::interval(POLL_INTERVAL);
        while sandbox.faults().played(rule) == 0 {
            interval.tick().await;
        }
    };
    in_time("a request meets the fault", played).await;
}
