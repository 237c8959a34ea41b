//! From collections to messages: all objects first, then their changes, and at any time whether that still holds.
//!
//! A relay never ends by itself but where the user lacks the right. What breaks is taken up where it broke off, after
//! a pause that grows; only a server that forgot that place is asked for everything again.

use std::fmt::Debug;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures::future::try_join_all;
use jiff::Timestamp;
use kube::Resource;
use kube::core::Status;
use serde::de::DeserializeOwned;
use tokio::sync::mpsc::Sender;
use tokio::time::sleep;

use crate::dashboard::feed::collection::{Broken, Collection, Listener, Notice};
use crate::dashboard::message::{Change, Feed, Link, Message};
use crate::error::Error;

/// What a relay says, and to whom.
pub(super) struct Teller<K, T> {
    /// To whom.
    pub(super) to: Sender<Message>,
    /// Which watch this is.
    pub(super) feed: Feed,
    /// The node that it is on, if it is on one.
    pub(super) node: Option<String>,
    /// What is kept of an object; none if it is of no interest.
    pub(super) slim: fn(K) -> Option<T>,
    /// A change as a message.
    pub(super) message: Box<dyn Fn(Change<T>) -> Message + Send + Sync>,
}

/// Tells what there is in these collections taken together, and what becomes of it.
pub(super) async fn relay<K, T>(collections: Vec<Collection<K>>, teller: Teller<K, T>)
where
    K: Resource + DeserializeOwned + Clone + Debug + Send + 'static,
    T: Send + Sync,
{
    let relay = Relay {
        teller,
        of: collections.len(),
        open: AtomicUsize::new(0),
        worked: AtomicBool::new(false),
        link: Mutex::default(),
        heard: Mutex::default(),
    };
    let mut versions: Vec<String> = Vec::new();
    let mut failures = 0;
    loop {
        let Broken { error, since } = relay.attempt(&collections, &mut versions).await;
        let since = since.unwrap_or_else(|| relay.heard_last());
        if error.status().is_some_and(Status::is_forbidden) {
            return relay.say(Link::Forbidden(error.to_string())).await;
        }
        let worked = relay.worked.load(Relaxed);
        failures = if worked { 1 } else { failures + 1 };
        if error.status().is_some_and(|status| status.code == 410) {
            versions.clear();
            // That the server forgot where we were is no loss, unless it happens over and over.
            if worked {
                continue;
            }
        }
        relay.say(Link::Lost { since, error: error.to_string() }).await;
        sleep(pause(failures)).await;
    }
}

struct Relay<K, T> {
    teller: Teller<K, T>,
    /// How many collections there are.
    of: usize,
    /// How many of them are being watched.
    open: AtomicUsize,
    /// Whether any was since something broke last.
    worked: AtomicBool,
    /// What was said last of how it is doing.
    link: Mutex<Option<Link>>,
    /// When the server last said something.
    heard: Mutex<Option<Timestamp>>,
}

impl<K, T> Relay<K, T>
where
    K: Resource + DeserializeOwned + Clone + Debug + Send + 'static,
    T: Send + Sync,
{
    /// Lists what is not known yet and watches all, until something breaks.
    async fn attempt(&self, collections: &[Collection<K>], versions: &mut Vec<String>) -> Broken {
        self.open.store(0, Relaxed);
        self.worked.store(false, Relaxed);
        if versions.is_empty() {
            match self.list(collections).await {
                Ok((listed, objects)) => {
                    *versions = listed;
                    self.tell(Change::All(objects)).await;
                }
                Err(error) => return error.into(),
            }
        }
        let watches = collections.iter().zip(versions.iter_mut());
        match try_join_all(watches.map(|(collection, version)| collection.follow(version, self))).await {
            Ok(never) => match never.into_iter().next() {
                Some(never) => match never {},
                // Nothing to watch: nothing will ever change.
                None => std::future::pending().await,
            },
            Err(broken) => broken,
        }
    }

    async fn list(&self, collections: &[Collection<K>]) -> Result<(Vec<String>, Vec<Arc<T>>), Error> {
        let (mut versions, mut objects) = (Vec::new(), Vec::new());
        for collection in collections {
            let keep = |object| objects.extend((self.teller.slim)(object).map(Arc::new));
            versions.push(collection.list(keep, self).await?);
            self.note();
        }
        Ok((versions, objects))
    }

    /// The server said something.
    fn note(&self) {
        *self.heard.lock().unwrap_or_else(PoisonError::into_inner) = Some(Timestamp::now());
    }

    /// When the server last said something; now, if it never did.
    fn heard_last(&self) -> Timestamp {
        let heard = *self.heard.lock().unwrap_or_else(PoisonError::into_inner);
        heard.unwrap_or_else(Timestamp::now)
    }

    async fn tell(&self, change: Change<T>) {
        self.send((self.teller.message)(change)).await;
    }

    async fn say(&self, link: Link) {
        let news = {
            let mut said = self.link.lock().unwrap_or_else(PoisonError::into_inner);
            let news = news(said.as_ref(), link);
            if news.is_some() {
                said.clone_from(&news);
            }
            news
        };
        if let Some(link) = news {
            let Teller { feed, node, .. } = &self.teller;
            self.send(Message::Link { feed: *feed, node: node.clone(), link }).await;
        }
    }

    async fn send(&self, message: Message) {
        // Nobody listens when the dashboard ends; then this task does as well.
        let _ = self.teller.to.send(message).await;
    }
}

impl<K, T> Listener<K> for Relay<K, T>
where
    K: Resource + DeserializeOwned + Clone + Debug + Send + 'static,
    T: Send + Sync,
{
    async fn hear(&self, notice: Notice<K>) {
        if !matches!(notice, Notice::Overdue) {
            self.note();
        }
        match notice {
            Notice::Open => {
                self.worked.store(true, Relaxed);
                if self.open.fetch_add(1, Relaxed) + 1 == self.of {
                    self.say(Link::Live).await;
                }
            }
            Notice::Closed => {
                self.open.fetch_sub(1, Relaxed);
            }
            Notice::Overdue => {
                let error = String::from("the server does not answer");
                self.say(Link::Lost { since: self.heard_last(), error }).await;
            }
            Notice::Applied(object) => {
                if let Some(object) = (self.teller.slim)(object) {
                    self.tell(Change::Applied(Arc::new(object))).await;
                }
            }
            Notice::Gone(object) => {
                if let Some(object) = (self.teller.slim)(object) {
                    self.tell(Change::Gone(Arc::new(object))).await;
                }
            }
        }
    }
}

/// What to say, if it is anything new. What is lost stays lost since it was lost first, whatever was tried meanwhile.
fn news(said: Option<&Link>, link: Link) -> Option<Link> {
    match (said, link) {
        (Some(Link::Lost { since, error: before }), Link::Lost { error, .. }) => {
            (*before != error).then_some(Link::Lost { since: *since, error })
        }
        (Some(said), link) if *said == link => None,
        (_, link) => Some(link),
    }
}

/// How long to wait after so many failures in a row.
fn pause(failures: u32) -> Duration {
    Duration::from_millis(500 << failures.saturating_sub(1).min(5)).min(Duration::from_secs(10))
}

#[cfg(test)]
#[path = "watch_task_tests.rs"]
mod tests;
