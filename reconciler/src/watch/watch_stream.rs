//! Following a watch: what it tells, and one line when it is interrupted.
//!
//! A connection can die without a word, and then a watch is as silent as one on which nothing happens. So the API server
//! is asked to end each watch soon, in good order, and one that is silent for longer than that is begun anew.

use std::fmt::Debug;
use std::future::ready;
use std::time::Duration;

use futures::{Stream, StreamExt, stream};
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, Resource, ResourceExt};
use serde::de::DeserializeOwned;
use tracing::{info, warn};

use crate::telemetry::readiness::Check;

/// A watch is asked to last so many seconds; after five more of silence it is taken for dead.
const TERM: u32 = 30;

/// A connection that is silent for so long is dead, whatever it is for: a watch has ended by then, an answer has come or
/// is not waited for any more. It is what notices a list or a new watch that is never answered.
pub(crate) const SILENCE: Duration = Duration::from_secs(40);

/// What a watch tells.
#[derive(Debug)]
pub(crate) enum News<'a, K> {
    /// An object is new, changed or gone.
    Changed(&'a K),
    /// All objects are known: for the first time, or again after an interruption in which anything may have happened.
    Listed,
    /// The watch is interrupted: until all objects are known again, what is known may be out of date.
    Interrupted,
    /// The API server refuses, with this sentence.
    Forbidden(String),
}

/// Whether what a watch is on is known.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Known {
    /// It has not been listed yet.
    Unlisted,
    /// All of it.
    Listed,
    /// The API server refuses to list it, with this sentence.
    Forbidden(String),
}

/// What a watch sends.
type Event<K> = watcher::Result<watcher::Event<K>>;

/// A watch that goes on for ever. After a failure it begins anew with a list, which tells when all is well again: a watch
/// that is taken up where it broke off says nothing until something changes.
pub(crate) fn watched<K>(api: Api<K>, config: watcher::Config) -> impl Stream<Item = Event<K>> + Send + use<K>
where
    K: Resource + Clone + Debug + DeserializeOwned + Send + 'static,
{
    let config = config.timeout(TERM);
    let watches = stream::unfold(None, move |going: Option<stream::BoxStream<'static, Event<K>>>| {
        let going = going.unwrap_or_else(|| watcher(api.clone(), config.clone()).boxed());
        async move {
            let (event, rest) = going.into_future().await;
            let event = event?;
            let goes_on = event.is_ok();
            Some((event, goes_on.then_some(rest)))
        }
    });
    watches.default_backoff()
}

/// The same for one object: its state at each change, none while there is no such object.
pub(crate) fn watched_object<K>(
    api: Api<K>,
    name: &str,
) -> impl Stream<Item = watcher::Result<Option<K>>> + Send + use<K>
where
    K: Resource + Clone + Debug + DeserializeOwned + Send + 'static,
{
    let only = watcher::Config::default().fields(&format!("metadata.name={name}"));
    let mut listed = None;
    watched(api, only).filter_map(move |event| {
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

/// Hears a watch to its end, which is that of the program. The store behind it is up to date at each piece of news.
/// `check` holds while the watch goes on; a refusal is told once, and again when its sentence is another.
pub(crate) async fn follow<K>(
    what: &str,
    check: Option<Check>,
    stream: impl Stream<Item = Event<K>>,
    mut hear: impl FnMut(News<'_, K>),
) where
    K: Resource + Clone + Debug + DeserializeOwned + Send + 'static,
{
    let mut stream = std::pin::pin!(stream);
    let mut interruption = Interruption::of(what, check);
    let mut told = None;
    while let Some(event) = stream.next().await {
        interruption.note(&event);
        match &event {
            // The store takes a list in only once it is whole.
            Ok(watcher::Event::Init | watcher::Event::InitApply(_)) => {}
            Ok(watcher::Event::InitDone) => {
                told = None;
                hear(News::Listed);
            }
            Ok(watcher::Event::Apply(object) | watcher::Event::Delete(object)) => hear(News::Changed(object)),
            Err(error) => match refusal(error) {
                None => hear(News::Interrupted),
                Some(sentence) if told.as_ref() != Some(&sentence) => {
                    told = Some(sentence.clone());
                    hear(News::Forbidden(sentence));
                }
                Some(_) => {}
            },
        }
    }
}

/// Says once that a watch is interrupted, and once that it goes on.
#[derive(Debug)]
pub(crate) struct Interruption {
    what: String,
    check: Option<Check>,
    interrupted: bool,
    /// What failed last was to take the watch up, though what is watched may be listed: a list does not tell that it is
    /// over.
    unwatched: bool,
}

impl Interruption {
    /// That of the watch on `what`. The check, if it has one, holds from its first list on, while it is not interrupted.
    pub(crate) fn of(what: impl Into<String>, check: Option<Check>) -> Self {
        Self { what: what.into(), check, interrupted: false, unwatched: false }
    }

    /// Notes what came of a watch that begins with a list after each failure.
    pub(crate) fn note<K>(&mut self, event: &Event<K>) {
        let what = &self.what;
        match event {
            Ok(watcher::Event::InitDone) => {
                if let Some(check) = &self.check {
                    check.pass();
                }
                if self.interrupted && !self.unwatched {
                    self.interrupted = false;
                    info!(what, "watch goes on");
                }
            }
            Ok(watcher::Event::Apply(_) | watcher::Event::Delete(_)) if self.interrupted => {
                self.interrupted = false;
                info!(what, "watch goes on");
            }
            Ok(_) => {}
            Err(error) => {
                let refuses_list = refusal(error).is_some();
                self.unwatched = matches!(error, watcher::Error::WatchStartFailed(_));
                if let Some(check) = &self.check {
                    check.fail(if refuses_list {
                        "the API server refuses to list them"
                    } else {
                        "the watch is interrupted"
                    });
                }
                if !std::mem::replace(&mut self.interrupted, true) {
                    warn!(what, %error, "watch interrupted; it will be resumed");
                }
            }
        }
    }
}

/// The API server's sentence, if it refuses a list for want of a right. Where it refuses only the watch, there is a list
/// with each attempt, and so all is known.
fn refusal(error: &watcher::Error) -> Option<String> {
    let watcher::Error::InitialListFailed(kube::Error::Api(status)) = error else { return None };
    (status.code == 403).then(|| status.message.clone())
}

/// Server-side apply's bookkeeping is often the larger half of an object, and nobody here reads it.
pub(crate) fn without_managed_fields<K: ResourceExt>(object: &mut K) {
    object.managed_fields_mut().clear();
}

#[cfg(test)]
#[path = "watch_stream_tests.rs"]
mod tests;
