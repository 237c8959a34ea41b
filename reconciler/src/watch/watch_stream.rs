//! Watch streams that never end: how they resume, what they deliver, and how their health is reported.
//!
//! A connection can be lost without notice, and then a watch is as silent as one without events. The API server is
//! therefore asked to end each watch after a short time, and a connection that stays silent for longer is replaced.

use std::fmt::Debug;
use std::future::ready;
use std::sync::Arc;
use std::time::Duration;

use futures::{FutureExt, Stream, StreamExt, stream};
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, Resource, ResourceExt};
use nm_shared::api::latency_budget::POD_EVENT_COALESCING;
use nm_shared::drain::eviction_outcome::AccessDenied;
use serde::de::DeserializeOwned;
use tokio::sync::{Notify, Semaphore};
use tracing::{info, warn};

use crate::cache::watched::WatchUpdate;
use crate::telemetry::readiness::ReadinessCheck;

/// How long the API server is asked to keep a watch open. After five more seconds of silence kube ends it.
const WATCH_TIMEOUT_SECONDS: u32 = 30;

/// A connection that is silent for this long is lost, whatever it is used for: by then a watch has ended and every other
/// request has timed out. This also catches lists and new watches that are never answered.
pub(crate) const SILENCE_TIMEOUT: Duration = Duration::from_secs(40);

type WatchResult<K> = watcher::Result<watcher::Event<K>>;

/// A watch that never ends, and waits longer after each failure in a row.
pub(crate) fn watch_stream<K>(
    api: Api<K>,
    config: watcher::Config,
) -> impl Stream<Item = WatchResult<K>> + Send + use<K>
where
    K: Resource + Clone + Debug + DeserializeOwned + Send + 'static,
{
    restarted_watch(api, config).default_backoff()
}

/// A watch that never ends. After a failure it starts again at once with a list, so that recovery is always visible: a watch
/// that resumes where it failed delivers nothing until something changes.
pub(crate) fn restarted_watch<K>(
    api: Api<K>,
    config: watcher::Config,
) -> impl Stream<Item = WatchResult<K>> + Send + use<K>
where
    K: Resource + Clone + Debug + DeserializeOwned + Send + 'static,
{
    let config = config.timeout(WATCH_TIMEOUT_SECONDS);
    stream::unfold(None, move |current: Option<stream::BoxStream<'static, WatchResult<K>>>| {
        let current = current.unwrap_or_else(|| watcher(api.clone(), config.clone()).boxed());
        async move {
            let (event, rest) = current.into_future().await;
            let event = event?;
            let is_healthy = event.is_ok();
            Some((event, is_healthy.then_some(rest)))
        }
    })
}

/// The configuration of a watch on one object.
pub(crate) fn only(name: &str) -> watcher::Config {
    watcher::Config::default().fields(&format!("metadata.name={name}"))
}

/// The same stream, which waits for a permit with each list: an answer takes much more memory than what is kept of it, and
/// many watches may begin together.
pub(crate) fn with_list_permits<K: Send + 'static>(
    stream: impl Stream<Item = WatchResult<K>> + Send + 'static,
    permits: Arc<Semaphore>,
) -> impl Stream<Item = WatchResult<K>> + Send {
    stream::unfold((stream.boxed(), None, permits), |(mut stream, permit, permits)| async move {
        let event = stream.next().await?;
        let permit = match &event {
            // The semaphore is never closed.
            Ok(watcher::Event::Init) => permits.clone().acquire_owned().await.ok(),
            Ok(watcher::Event::InitApply(_)) => permit,
            _ => None,
        };
        Some((event, (stream, permit, permits)))
    })
}

/// A watch on one object: its state after each change, none while it does not exist.
pub(crate) fn object_watch_stream<K>(
    api: Api<K>,
    name: &str,
) -> impl Stream<Item = watcher::Result<Option<K>>> + Send + use<K>
where
    K: Resource + Clone + Debug + DeserializeOwned + Send + 'static,
{
    object_states(watch_stream(api, only(name)))
}

/// The states of the one object of a watch, none while it does not exist.
pub(crate) fn object_states<K>(
    events: impl Stream<Item = WatchResult<K>>,
) -> impl Stream<Item = watcher::Result<Option<K>>> {
    let mut listed = None;
    events.filter_map(move |event| {
        ready(match event {
            Ok(watcher::Event::Init) => {
                listed = None;
                None
            }
            Ok(watcher::Event::InitApply(object)) => {
                listed = Some(object);
                None
            }
            Ok(watcher::Event::InitDone) => Some(Ok(listed.take())),
            Ok(watcher::Event::Apply(object)) => Some(Ok(Some(object))),
            Ok(watcher::Event::Delete(_)) => Some(Ok(None)),
            Err(error) => Some(Err(error)),
        })
    })
}

/// An event of a watch with another form of its object.
pub(crate) fn map_object<W, K>(event: watcher::Event<W>, convert: impl FnOnce(W) -> K) -> watcher::Event<K> {
    match event {
        watcher::Event::Init => watcher::Event::Init,
        watcher::Event::InitDone => watcher::Event::InitDone,
        watcher::Event::InitApply(object) => watcher::Event::InitApply(convert(object)),
        watcher::Event::Apply(object) => watcher::Event::Apply(convert(object)),
        watcher::Event::Delete(object) => watcher::Event::Delete(convert(object)),
    }
}

/// Runs a watch for as long as its stream lasts and passes each update to `handle`. `check` passes while the watch is
/// healthy. Consecutive refusals are passed on once, and again when the message changes.
pub(crate) async fn run_watch<K>(
    what: &str,
    check: Option<ReadinessCheck>,
    stream: impl Stream<Item = WatchResult<K>>,
    mut handle: impl FnMut(WatchUpdate<K>),
) {
    let mut stream = std::pin::pin!(stream);
    let mut health = WatchHealth::new(what, check);
    let (mut last_refusal, mut listed) = (None, Vec::new());
    while let Some(event) = stream.next().await {
        health.record(&event);
        handle(match event {
            Ok(watcher::Event::Init) => {
                listed = Vec::new();
                continue;
            }
            Ok(watcher::Event::InitApply(object)) => {
                listed.push(object);
                continue;
            }
            Ok(watcher::Event::InitDone) => {
                last_refusal = None;
                WatchUpdate::Listed(std::mem::take(&mut listed))
            }
            Ok(watcher::Event::Apply(object)) => WatchUpdate::Applied(object),
            Ok(watcher::Event::Delete(object)) => WatchUpdate::Deleted(object),
            Err(error) => match list_refusal(&error) {
                None => WatchUpdate::Interrupted,
                Some(refusal) if last_refusal.as_ref() == Some(&refusal) => continue,
                Some(refusal) => {
                    last_refusal = Some(refusal.clone());
                    WatchUpdate::Forbidden(refusal)
                }
            },
        });
    }
}

/// Calls `trigger` after each notification, once for those that follow within [`POD_EVENT_COALESCING`]. Never ends.
pub(crate) async fn coalesced(changed: &Notify, trigger: impl Fn()) {
    loop {
        changed.notified().await;
        tokio::time::sleep(POD_EVENT_COALESCING).await;
        // What was notified meanwhile.
        let _ = changed.notified().now_or_never();
        trigger();
    }
}

/// Logs once that a watch is interrupted and once that it has resumed, and keeps its readiness check.
#[derive(Debug)]
pub(crate) struct WatchHealth {
    what: String,
    check: Option<ReadinessCheck>,
    is_interrupted: bool,
    /// The last failure was that of a watch after a successful list. Another list does not show that it is over.
    is_watch_refused: bool,
}

impl WatchHealth {
    /// The health of the watch on `what`. The check passes from its first list on, except while it is interrupted.
    pub(crate) fn new(what: impl Into<String>, check: Option<ReadinessCheck>) -> Self {
        Self { what: what.into(), check, is_interrupted: false, is_watch_refused: false }
    }

    /// Records an event of a watch that starts with a list after each failure.
    pub(crate) fn record<K>(&mut self, event: &WatchResult<K>) {
        match event {
            Ok(watcher::Event::InitDone) => {
                if let Some(check) = &self.check {
                    check.pass();
                }
                if !self.is_watch_refused {
                    self.resumed();
                }
            }
            Ok(watcher::Event::Apply(_) | watcher::Event::Delete(_)) => self.resumed(),
            Ok(_) => {}
            Err(error) => {
                let what = &self.what;
                self.is_watch_refused = matches!(error, watcher::Error::WatchStartFailed(_));
                if let Some(check) = &self.check {
                    check.fail(match list_refusal(error) {
                        Some(_) => "the API server refuses to list them",
                        None => "the watch is interrupted",
                    });
                }
                if !std::mem::replace(&mut self.is_interrupted, true) {
                    warn!(what, %error, "watch interrupted; retrying");
                }
            }
        }
    }

    fn resumed(&mut self) {
        if std::mem::take(&mut self.is_interrupted) {
            info!(what = self.what, "watch resumed");
        }
    }
}

/// The refusal of a list for lack of permission. Where only the watch is refused, each attempt still lists all objects.
fn list_refusal(error: &watcher::Error) -> Option<AccessDenied> {
    let watcher::Error::InitialListFailed(kube::Error::Api(status)) = error else { return None };
    (status.code == 403).then(|| status.message.as_str().into())
}

/// Whether the API server serves the resource whose list failed.
pub(crate) fn is_served(error: &watcher::Error) -> bool {
    !matches!(error, watcher::Error::InitialListFailed(kube::Error::Api(status)) if status.code == 404)
}

/// Whether the API server refuses a list or a watch for lack of permission. Anything else, such as a lost connection, ends by
/// itself.
pub(crate) fn is_forbidden(error: &watcher::Error) -> bool {
    use watcher::Error::{InitialListFailed, WatchError, WatchFailed, WatchStartFailed};
    match error {
        InitialListFailed(kube::Error::Api(status))
        | WatchStartFailed(kube::Error::Api(status))
        | WatchFailed(kube::Error::Api(status))
        | WatchError(status) => status.code == 403,
        _ => false,
    }
}

/// Drops managed fields: nothing here reads them, and they are often the larger half of an object.
pub(crate) fn drop_managed_fields<K: ResourceExt>(object: &mut K) {
    object.managed_fields_mut().clear();
}

#[cfg(test)]
#[path = "watch_stream_tests.rs"]
mod tests;
