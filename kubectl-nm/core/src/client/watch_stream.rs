//! The watch of the plugin: the objects of a resource, and every change of them, for as long as the caller wants.
//!
//! kube's own watcher hides what people have to see here: whether the data is still current. This one reports when the
//! server has accepted a watch ([`WatchUpdate::Live`]) and when nothing can be known any more ([`WatchUpdate::Lost`]),
//! even if a connection dies silently. It lists in pages, retries with backoff, and lists again when the server no longer
//! has the version that it would resume from. Commands and the dashboard differ only in their [`WatchPolicy`].

use std::convert::Infallible;
use std::fmt::Debug;
use std::future::ready;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use futures::stream::{self, BoxStream, StreamExt};
use jiff::Timestamp;
use kube::Resource;
use kube::api::{Api, ListParams, WatchEvent, WatchParams};
use nm_shared::NodeMaintenance;
use serde::de::DeserializeOwned;
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep, timeout, timeout_at};

use crate::client::cluster::Cluster;
use crate::error::{Error, RESOURCE, UnreachableCause};

/// How much later than asked a server may end a watch.
const WATCH_END_GRACE: Duration = Duration::from_secs(2);

/// The least time from one watch to the next, for servers and proxies that end each at once.
const REWATCH_INTERVAL: Duration = Duration::from_secs(1);

const MAX_RETRY_INTERVAL: Duration = Duration::from_secs(10);

/// The objects in a page of a list. Each page is reduced to what the caller keeps before the next is requested.
const PAGE_SIZE: u32 = 500;

/// The objects to watch.
#[derive(Clone)]
pub struct WatchTarget<K> {
    /// API of the objects: their kind, and a namespace or all.
    pub api: Api<K>,
    /// Field selector; `None` watches all objects of the API.
    pub field_selector: Option<String>,
    /// Label selector; `None` watches objects with any labels.
    pub label_selector: Option<String>,
    /// The name of the resource in RBAC.
    pub resource: String,
    /// Address of the API server, for errors.
    pub server: String,
}

impl<K> WatchTarget<K> {
    /// All objects of an API.
    pub fn all(api: Api<K>, resource: &str, server: &str) -> Self {
        Self {
            api,
            field_selector: None,
            label_selector: None,
            resource: resource.to_owned(),
            server: server.to_owned(),
        }
    }
}

/// Timeouts and retries of a watch.
#[derive(Clone, Copy, Debug)]
pub struct WatchPolicy {
    /// How long a server may take to answer a page of a list, or to accept a watch.
    pub(crate) request_timeout: Duration,
    /// For how long the data of a connection that died silently may look current. The server is asked to end the watch
    /// after this time, and the next one shows whether it is still there. Starting a watch again is cheap: the server
    /// resumes it from memory.
    pub(crate) staleness: Duration,
    /// Whether a watch that failed resumes from the last version. Otherwise everything is listed again.
    pub(crate) resumes: bool,
    /// Which errors are retried. Any other ends the watch.
    pub(crate) is_retried: fn(&Error) -> bool,
}

impl WatchPolicy {
    /// Stale data has to be visible within seconds. Only missing permission ends the watch.
    pub const DASHBOARD: Self = Self {
        request_timeout: Duration::from_secs(15),
        staleness: Duration::from_secs(8),
        resumes: true,
        is_retried: |error| !error.is_forbidden(),
    };

    /// For data beside that of another watch on the same server, which shows within seconds that it is lost. Many such
    /// watches cost few requests.
    pub const BACKGROUND: Self = Self { staleness: Duration::from_secs(30), ..Self::DASHBOARD };

    /// A lost connection is noticed within a minute, and what a proxy cuts for being idle does not matter. Errors that
    /// retrying cannot fix end the command.
    pub const COMMAND: Self = Self {
        request_timeout: Duration::from_secs(60),
        staleness: Duration::from_secs(55),
        resumes: false,
        is_retried: Error::is_transient,
    };

    /// Like [`Self::COMMAND`] for a command that runs for hours: it outlives a login that has expired.
    pub const LONG_COMMAND: Self = Self { is_retried: Error::is_waited_for, ..Self::COMMAND };
}

/// Change of the watched objects.
#[derive(Clone, Debug)]
pub enum WatchChange<T> {
    /// All objects: at first, and whenever the watch could not resume.
    Listed(Vec<Arc<T>>),
    /// An object was created or updated; its new state.
    Applied(Arc<T>),
    /// An object was deleted; its last state.
    Deleted(Arc<T>),
}

/// Report of a watch: a change, or whether the data is current.
#[derive(Debug)]
pub enum WatchUpdate<T> {
    /// Objects were listed, updated or deleted.
    Change(WatchChange<T>),
    /// The server has accepted the watch: the data is current, or will be after the changes that follow.
    Live,
    /// The data may be out of date. Reported again if the error becomes another.
    Lost {
        /// When the server last answered.
        since: Timestamp,
        /// Why the data may be out of date.
        error: Error,
    },
}

/// Watches a target. `keep` reduces an object to what the caller needs, or drops it. The stream ends with the first error
/// that the policy does not retry.
pub fn watch<K, T>(
    target: WatchTarget<K>,
    policy: WatchPolicy,
    keep: fn(K) -> Option<T>,
) -> BoxStream<'static, Result<WatchUpdate<T>, Error>>
where
    K: Resource + DeserializeOwned + Clone + Debug + Send + Sync + 'static,
    T: Send + Sync + 'static,
{
    let (to, from) = mpsc::channel(1);
    let watcher = Watcher {
        target,
        policy,
        keep,
        to,
        version: None,
        is_established: false,
        reported: Reported::Nothing,
        last_answer: None,
    };
    let run = watcher.run().into_stream().filter_map(|()| ready(None));
    let updates = stream::unfold(from, async |mut from| Some((from.recv().await?, from)));
    stream::select(run, updates).boxed()
}

struct Watcher<K, T> {
    target: WatchTarget<K>,
    policy: WatchPolicy,
    keep: fn(K) -> Option<T>,
    to: mpsc::Sender<Result<WatchUpdate<T>, Error>>,
    /// The resource version to resume from; none to list.
    version: Option<String>,
    /// Whether the server has accepted a watch since the last failure.
    is_established: bool,
    reported: Reported,
    last_answer: Option<Timestamp>,
}

#[derive(PartialEq, Eq)]
enum Reported {
    Nothing,
    Live,
    Lost { since: Timestamp, error: String },
}

impl<K, T> Watcher<K, T>
where
    K: Resource + DeserializeOwned + Clone + Debug + Send + Sync + 'static,
    T: Send + Sync + 'static,
{
    async fn run(mut self) {
        let mut failures = 0;
        loop {
            let error = match self.attempt().await {
                Err(error) => error,
                Ok(never) => match never {},
            };
            let is_expired = error.status().is_some_and(|status| status.code == 410);
            if !is_expired && !(self.policy.is_retried)(&error) {
                return self.send(Err(error)).await;
            }
            let was_established = std::mem::take(&mut self.is_established);
            failures = if was_established { 1 } else { failures + 1 };
            if is_expired || !self.policy.resumes {
                self.version = None;
            }
            // A server that dropped old versions has lost nothing, unless that happens over and over.
            if is_expired && was_established {
                sleep(REWATCH_INTERVAL).await;
                continue;
            }
            self.report_lost(error).await;
            sleep(retry_interval(failures)).await;
        }
    }

    async fn attempt(&mut self) -> Result<Infallible, Error> {
        if self.version.is_none() {
            let objects = self.list().await?;
            self.send(Ok(WatchUpdate::Change(WatchChange::Listed(objects)))).await;
        }
        loop {
            self.watch_once().await?;
        }
    }

    async fn list(&mut self) -> Result<Vec<Arc<T>>, Error> {
        let mut objects = Vec::new();
        let (field_selector, label_selector) =
            (self.target.field_selector.clone(), self.target.label_selector.clone());
        let mut params =
            ListParams { field_selector, label_selector, ..ListParams::default() }.limit(PAGE_SIZE);
        loop {
            let api = self.target.api.clone();
            let page = self.answer("list", async { api.list(&params).await }).await?;
            objects.extend(page.items.into_iter().filter_map(self.keep).map(Arc::new));
            let Some(token) = page.metadata.continue_.filter(|token| !token.is_empty()) else {
                self.version = Some(page.metadata.resource_version.unwrap_or_default());
                return Ok(objects);
            };
            params.continue_token = Some(token);
        }
    }

    async fn watch_once(&mut self) -> Result<(), Error> {
        let started = Instant::now();
        let mut events = self.open().await?;
        let deadline = Instant::now() + self.policy.staleness + WATCH_END_GRACE;
        self.is_established = true;
        self.report_live().await;
        loop {
            let Ok(event) = timeout_at(deadline, events.next()).await else {
                let server = self.target.server.clone();
                return Err(Error::Unreachable { server, cause: UnreachableCause::Silent });
            };
            self.last_answer = Some(Timestamp::now());
            match event {
                Some(Ok(WatchEvent::Added(object) | WatchEvent::Modified(object))) => {
                    self.report_change(object, WatchChange::Applied).await;
                }
                Some(Ok(WatchEvent::Deleted(object))) => {
                    self.report_change(object, WatchChange::Deleted).await;
                }
                Some(Ok(WatchEvent::Bookmark(bookmark))) => {
                    self.version = Some(bookmark.metadata.resource_version);
                }
                Some(Ok(WatchEvent::Error(status))) => {
                    return Err(Error::Server { asked: self.request("watch"), status });
                }
                Some(Err(error)) => return Err(self.error("watch", error)),
                // The time is over, or the connection was closed: the next watch shows which.
                None => break,
            }
        }
        sleep(REWATCH_INTERVAL.saturating_sub(started.elapsed())).await;
        Ok(())
    }

    async fn open(&mut self) -> Result<BoxStream<'static, Result<WatchEvent<K>, kube::Error>>, Error> {
        let params = WatchParams {
            field_selector: self.target.field_selector.clone(),
            label_selector: self.target.label_selector.clone(),
            timeout: u32::try_from(self.policy.staleness.as_secs()).ok(),
            bookmarks: true,
            ..WatchParams::default()
        };
        let (api, version) = (self.target.api.clone(), self.version.clone().unwrap_or_default());
        let request = async { api.watch(&params, &version).await.map(StreamExt::boxed) };
        self.answer("watch", request).await
    }

    /// Awaits an answer. While it is overdue, the watch is reported as lost.
    async fn answer<A>(
        &mut self,
        verb: &str,
        request: impl Future<Output = Result<A, kube::Error>>,
    ) -> Result<A, Error> {
        let server = self.target.server.clone();
        let no_answer = |after| Error::NoAnswer { server: server.clone(), after };
        let overdue = self.policy.staleness / 4;
        let mut request = pin!(timeout(self.policy.request_timeout, request));
        let answer = if let Ok(answer) = timeout(overdue, &mut request).await {
            answer
        } else {
            self.report_lost(no_answer(overdue)).await;
            request.await
        };
        let answer = answer.map_err(|_| no_answer(self.policy.request_timeout))?;
        let answer = answer.map_err(|error| self.error(verb, error))?;
        self.last_answer = Some(Timestamp::now());
        Ok(answer)
    }

    async fn report_change(&mut self, object: K, change: fn(Arc<T>) -> WatchChange<T>) {
        if let Some(version) = &object.meta().resource_version {
            self.version = Some(version.clone());
        }
        if let Some(object) = (self.keep)(object) {
            self.send(Ok(WatchUpdate::Change(change(Arc::new(object))))).await;
        }
    }

    async fn report_live(&mut self) {
        if self.reported != Reported::Live {
            self.reported = Reported::Live;
            self.send(Ok(WatchUpdate::Live)).await;
        }
    }

    /// Reports a loss, unless the same loss was reported last. Further failures do not change since when the data may be out of date.
    async fn report_lost(&mut self, error: Error) {
        let text = error.to_string();
        let since = match &self.reported {
            Reported::Lost { error, .. } if *error == text => return,
            Reported::Lost { since, .. } => *since,
            Reported::Nothing | Reported::Live => self.last_answer.unwrap_or_else(Timestamp::now),
        };
        self.reported = Reported::Lost { since, error: text };
        self.send(Ok(WatchUpdate::Lost { since, error })).await;
    }

    async fn send(&self, update: Result<WatchUpdate<T>, Error>) {
        // The receiver is dropped together with this future.
        let _ = self.to.send(update).await;
    }

    fn request(&self, verb: &str) -> String {
        format!("{verb} {}", self.target.resource)
    }

    fn error(&self, verb: &str, error: kube::Error) -> Error {
        Error::from_client(error, &self.request(verb), &self.target.server)
    }
}

fn retry_interval(failures: u32) -> Duration {
    Duration::from_millis(500 << failures.saturating_sub(1).min(5)).min(MAX_RETRY_INTERVAL)
}

/// Watches the maintenances of the current group.
pub fn watch_current_maintenances(
    cluster: &Cluster,
    policy: WatchPolicy,
) -> BoxStream<'static, Result<WatchUpdate<NodeMaintenance>, Error>> {
    watch(WatchTarget::all(Api::all(cluster.client()), RESOURCE, cluster.server()), policy, Some)
}

#[cfg(test)]
#[path = "watch_stream_tests.rs"]
mod tests;
