//! Following a watch: what it tells, and one line when it is interrupted.

use std::fmt::Debug;

use futures::{Stream, StreamExt};
use kube::runtime::watcher;
use kube::{Resource, ResourceExt};
use serde::de::DeserializeOwned;
use tracing::{info, warn};

/// What a watch tells.
#[derive(Debug)]
pub(crate) enum News<'a, K> {
    /// An object is new, changed or gone.
    Changed(&'a K),
    /// All objects are known: for the first time, or again after an interruption in which anything may have happened.
    Listed,
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

/// Hears a watch to its end, which is that of the program. The store behind it is up to date at each piece of news.
pub(crate) async fn follow<K>(
    what: &str,
    stream: impl Stream<Item = watcher::Result<watcher::Event<K>>>,
    mut hear: impl FnMut(News<'_, K>),
) where
    K: Resource + Clone + Debug + DeserializeOwned + Send + 'static,
{
    let mut stream = std::pin::pin!(stream);
    let mut interruption = Interruption::default();
    while let Some(event) = stream.next().await {
        interruption.note(what, &event);
        match &event {
            // The store takes a list in only once it is whole.
            Ok(watcher::Event::Init | watcher::Event::InitApply(_)) => {}
            Ok(watcher::Event::InitDone) => hear(News::Listed),
            Ok(watcher::Event::Apply(object) | watcher::Event::Delete(object)) => hear(News::Changed(object)),
            Err(error) => {
                if let Some(sentence) = refusal(error) {
                    hear(News::Forbidden(sentence));
                }
            }
        }
    }
}

/// Says once that a watch is interrupted, and once that it goes on.
#[derive(Debug, Default)]
pub(crate) struct Interruption {
    interrupted: bool,
}

impl Interruption {
    /// Notes what came of a watch.
    pub(crate) fn note<K>(&mut self, what: &str, event: &watcher::Result<watcher::Event<K>>) {
        match event {
            // Said before each attempt to list, also by one that fails.
            Ok(watcher::Event::Init) => {}
            Ok(_) if self.interrupted => {
                self.interrupted = false;
                info!(what, "watch goes on");
            }
            Err(error) if !self.interrupted => {
                self.interrupted = true;
                warn!(what, %error, "watch interrupted; it will be resumed");
            }
            _ => {}
        }
    }
}

/// The API server's sentence, if it is a refusal for want of a right.
fn refusal(error: &watcher::Error) -> Option<String> {
    let (watcher::Error::InitialListFailed(kube::Error::Api(status))
    | watcher::Error::WatchStartFailed(kube::Error::Api(status))
    | watcher::Error::WatchError(status)) = error
    else {
        return None;
    };
    (status.code == 403).then(|| status.message.clone())
}

/// Server-side apply's bookkeeping is often the larger half of an object, and nobody here reads it.
pub(crate) fn without_managed_fields<K: ResourceExt>(object: &mut K) {
    object.managed_fields_mut().clear();
}
