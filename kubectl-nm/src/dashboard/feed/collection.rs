//! One collection of the API: its list in pages, and its changes, with every way in which they can fail to come.
//!
//! kube's own watcher hides what the dashboard is about to show: whether what it said last is still so. Here a watch is
//! live from the moment at which the server took it up, and dead as soon as nothing can be known of it any more.

use std::convert::Infallible;
use std::fmt::Debug;
use std::pin::pin;
use std::time::Duration;

use futures::StreamExt;
use futures::stream::BoxStream;
use jiff::Timestamp;
use kube::Resource;
use kube::api::{Api, ListParams, WatchEvent, WatchParams};
use serde::de::DeserializeOwned;
use tokio::time::{Instant, sleep, timeout, timeout_at};

use crate::error::Error;

/// Seconds after which the server ends a watch that it is asked to begin anew. A connection that dies without a word
/// is noticed when this is over, so it bounds for how long old data can look live. To begin anew costs a server little:
/// it answers from memory, and from where it left off.
const WATCH_SECONDS: u32 = 8;

/// How much later than asked a server may end a watch.
const MARGIN: Duration = Duration::from_secs(2);

/// How long a server may take to answer.
const ANSWER: Duration = Duration::from_secs(15);

/// How long a list, or a watch that begins anew, may take before what was told counts as old.
const PATIENCE: Duration = Duration::from_secs(2);

/// The least time from one watch to the next, for servers and proxies that end each at once.
const BREATH: Duration = Duration::from_secs(1);

/// How many objects a page has: what is big is never in memory as a whole before it is slim.
const PAGE: u32 = 500;

/// A collection, or a part of one.
pub(super) struct Collection<K> {
    /// Where it is.
    pub(super) api: Api<K>,
    /// Which part of it.
    pub(super) fields: Option<String>,
    /// Its name, as RBAC knows it.
    pub(super) name: &'static str,
    /// The address of the server, for messages.
    pub(super) server: String,
}

/// What a watch says.
pub(super) enum Notice<K> {
    /// The server has taken it up: what it said before holds.
    Open,
    /// It has ended in good order, or so it seems, and begins anew.
    Closed,
    /// It, or the list before it, should have been answered by now. It may yet.
    Overdue,
    /// An object is new or changed.
    Applied(K),
    /// An object is gone; its last state.
    Gone(K),
}

/// How a watch ended, and since when nothing is known.
#[derive(Debug)]
pub(super) struct Broken {
    /// Why.
    pub(super) error: Error,
    /// Since when, if that is not since anything was heard last.
    pub(super) since: Option<Timestamp>,
}

impl From<Error> for Broken {
    fn from(error: Error) -> Self {
        Self { error, since: None }
    }
}

/// Who is told what a watch says. A trait and no closure, because tasks must be able to move between threads.
pub(super) trait Listener<K>: Sync {
    /// Takes it in.
    fn hear(&self, notice: Notice<K>) -> impl Future<Output = ()> + Send;
}

impl<K> Collection<K>
where
    K: Resource + DeserializeOwned + Clone + Debug + Send + 'static,
{
    /// Hands over every object there is, page by page, and returns the version from which changes are to be watched.
    ///
    /// # Errors
    ///
    /// When the server cannot be asked or refuses.
    pub(super) async fn list(
        &self,
        mut each: impl FnMut(K),
        listener: &impl Listener<K>,
    ) -> Result<String, Error> {
        let mut params =
            ListParams { field_selector: self.fields.clone(), ..ListParams::default() }.limit(PAGE);
        loop {
            let page = in_time(self.answered("list", self.api.list(&params)), listener).await?;
            page.items.into_iter().for_each(&mut each);
            match page.metadata.continue_.filter(|token| !token.is_empty()) {
                Some(token) => params.continue_token = Some(token),
                None => return Ok(page.metadata.resource_version.unwrap_or_default()),
            }
        }
    }

    /// Tells every change after `version`, which it keeps up to date, until something breaks.
    ///
    /// # Errors
    ///
    /// It ends with nothing else.
    pub(super) async fn follow(
        &self,
        version: &mut String,
        listener: &impl Listener<K>,
    ) -> Result<Infallible, Broken> {
        loop {
            let mut events = self.open(version, listener).await?;
            listener.hear(Notice::Open).await;
            let begun = Instant::now();
            let end = begun + Duration::from_secs(u64::from(WATCH_SECONDS)) + MARGIN;
            let mut heard = Timestamp::now();
            loop {
                let Ok(event) = timeout_at(end, events.next()).await else {
                    let cause = String::from("the connection is silent");
                    return Err(Broken { error: self.unreachable(cause), since: Some(heard) });
                };
                heard = Timestamp::now();
                match event {
                    Some(Ok(WatchEvent::Added(object) | WatchEvent::Modified(object))) => {
                        keep(version, &object);
                        listener.hear(Notice::Applied(object)).await;
                    }
                    Some(Ok(WatchEvent::Deleted(object))) => {
                        keep(version, &object);
                        listener.hear(Notice::Gone(object)).await;
                    }
                    Some(Ok(WatchEvent::Bookmark(mark))) => *version = mark.metadata.resource_version,
                    Some(Ok(WatchEvent::Error(status))) => {
                        let error = Error::Server { asked: self.asked("watch"), status };
                        return Err(Broken { error, since: Some(heard) });
                    }
                    Some(Err(error)) => {
                        return Err(Broken { error: self.failed("watch", error), since: Some(heard) });
                    }
                    // The time is over, or the connection was closed: what comes next tells which.
                    None => break,
                }
            }
            listener.hear(Notice::Closed).await;
            sleep(BREATH.saturating_sub(begun.elapsed())).await;
        }
    }

    /// A watch that the server has taken up.
    async fn open(
        &self,
        version: &str,
        listener: &impl Listener<K>,
    ) -> Result<BoxStream<'static, Result<WatchEvent<K>, kube::Error>>, Error> {
        let params = WatchParams {
            field_selector: self.fields.clone(),
            timeout: Some(WATCH_SECONDS),
            bookmarks: true,
            ..WatchParams::default()
        };
        let stream = in_time(self.answered("watch", self.api.watch(&params, version)), listener).await?;
        Ok(stream.boxed())
    }

    async fn answered<T>(
        &self,
        verb: &str,
        request: impl Future<Output = Result<T, kube::Error>>,
    ) -> Result<T, Error> {
        match timeout(ANSWER, request).await {
            Ok(answer) => answer.map_err(|error| self.failed(verb, error)),
            Err(_) => Err(Error::NoAnswer { server: self.server.clone(), after: ANSWER }),
        }
    }

    fn asked(&self, verb: &str) -> String {
        format!("{verb} {}", self.name)
    }

    fn failed(&self, verb: &str, error: kube::Error) -> Error {
        Error::from_client(error, &self.asked(verb), &self.server)
    }

    fn unreachable(&self, cause: String) -> Error {
        Error::Unreachable { server: self.server.clone(), cause }
    }
}

/// Waits for an answer, and says so when it is overdue.
async fn in_time<K, T>(answer: impl Future<Output = T>, listener: &impl Listener<K>) -> T {
    let mut answer = pin!(answer);
    if let Ok(answer) = timeout(PATIENCE, &mut answer).await {
        return answer;
    }
    listener.hear(Notice::Overdue).await;
    answer.await
}

fn keep(version: &mut String, object: &impl Resource) {
    if let Some(seen) = &object.meta().resource_version {
        version.clone_from(seen);
    }
}
