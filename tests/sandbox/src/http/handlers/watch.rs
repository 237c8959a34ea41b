//! Watches: the existing objects, if requested, then every change.
//!
//! A watch stores only a revision. Whenever the store changes it reads the changes since then and sends those that
//! match its selectors. So a slow client costs no memory, and one that is too slow gets a 410.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::{Stream, stream};
use serde_json::{Value, json};
use tokio::sync::watch as signal;
use tokio::time::{Instant, sleep_until};

use crate::cluster::store::{Change, Collection, Object, State, StoredObject};
use crate::http::api::Api;
use crate::http::handlers::read;
use crate::http::request::call::Call;
use crate::http::request::options;
use crate::http::response::answer::{self, HandlerResult};
use crate::http::response::representation::Representation;
use crate::http::selector::Selection;
use crate::model::status_error::StatusError;

/// How often a watch with bookmarks gets one.
const BOOKMARK_EVERY: Duration = Duration::from_secs(60);
/// How long before its timeout a watch gets its last bookmark, from which the next watch continues, as in kube-apiserver
/// (`nextBookmarkTime`).
const LAST_BOOKMARK: Duration = Duration::from_secs(2);
/// How many changes a watch reads at once.
const AT_ONCE: usize = 500;
/// The timeout of a watch without `timeoutSeconds`.
const LONGEST: Duration = Duration::from_secs(30 * 60);
/// The maximum of `timeoutSeconds`, within the range of tokio's clock.
const MOST_SECONDS: u64 = 24 * 60 * 60;

/// `GET` of a collection with `watch=1`.
pub(crate) fn answer(api: &Arc<Api>, call: &Call) -> HandlerResult {
    options::check_list(&call.query)?;
    let selection = call.selection()?;
    let from = match call.query.get("resourceVersion") {
        None | Some("0") => None,
        Some(text) => Some(options::revision(text).map_err(StatusError::internal)?),
    };
    let streams = call.query.flag("sendInitialEvents");
    let seconds = call.query.number("timeoutSeconds").map(|seconds: u64| seconds.min(MOST_SECONDS));
    let cluster = api.cluster();
    let bookmarks = call.query.flag("allowWatchBookmarks");
    let show =
        Representation::new(&call.resource, call.form, call.query.get("includeObject"), cluster.clock.now());
    let node = read::node(call.resource.storage(), &selection);
    let ends_at = Instant::now() + seconds.map_or(LONGEST, Duration::from_secs);
    let mut watch = Watch {
        // Subscribed before the first read, so that no change is missed.
        grown: cluster.store.follow(call.resource.storage(), node),
        api: api.clone(),
        collection: call.resource.storage().clone(),
        selection,
        show,
        said_any: false,
        since: from.unwrap_or_default(),
        ends_at,
        bookmark_at: if bookmarks { next_bookmark(ends_at) } else { None },
        over: false,
    };
    let wants_initial = streams || (from.is_none() && call.query.get("sendInitialEvents").is_none());
    let first = if wants_initial {
        // Clients that accept bookmarks get one at the end.
        watch.initial(call, bookmarks)
    } else {
        let (compacted, revision) = cluster
            .store
            .read(|state| (state.is_compacted(&watch.collection, watch.since), state.revision()));
        watch.since = from.unwrap_or(revision);
        if from.is_some() && compacted { watch.expired(revision) } else { Vec::new() }
    };
    Ok(answer::stream(events(watch, first)))
}

struct Watch {
    api: Arc<Api>,
    collection: Collection,
    selection: Selection,
    show: Representation,
    /// Whether an event was sent, which contained the columns of a table.
    said_any: bool,
    /// Everything up to this revision was sent.
    since: u64,
    grown: signal::Receiver<u64>,
    ends_at: Instant,
    /// When it gets its next bookmark, if it gets any.
    bookmark_at: Option<Instant>,
    over: bool,
}

/// The events as a stream.
fn events(watch: Watch, first: Vec<u8>) -> impl Stream<Item = Bytes> + Send {
    stream::unfold((watch, first), |(mut watch, first)| async move {
        if !first.is_empty() {
            return Some((Bytes::from(first), (watch, Vec::new())));
        }
        let said = watch.next().await?;
        Some((Bytes::from(said), (watch, Vec::new())))
    })
}

impl Watch {
    /// Waits for the next events; none when the watch is over.
    async fn next(&mut self) -> Option<Vec<u8>> {
        while !self.over {
            let grown = self.grown.borrow_and_update().to_owned();
            let said = self.catch_up(grown);
            if !said.is_empty() {
                return Some(said);
            }
            if self.since < grown {
                continue;
            }
            tokio::select! {
                biased;
                changed = self.grown.changed() => if changed.is_err() { return None },
                () = sleep_until(self.ends_at) => return None,
                () = sleep_until(self.bookmark_at.unwrap_or(self.ends_at)), if self.bookmark_at.is_some() => {
                    return Some(self.bookmark());
                }
            }
        }
        None
    }

    /// The changes since the last read, or an error if the history does not go back that far.
    fn catch_up(&mut self, grown: u64) -> Vec<u8> {
        if grown <= self.since {
            return Vec::new();
        }
        let store = &self.api.cluster().store;
        let (changes, revision) = store.read(|state| (self.changes(state), state.revision()));
        let Some(changes) = changes else { return self.expired(revision) };
        let mut said = Vec::new();
        for change in &changes {
            self.say(change, &mut said);
        }
        let more = changes.len() == AT_ONCE;
        self.since = changes.last().filter(|_| more).map_or(revision, |change| change.revision);
        said
    }

    /// The history was dropped, and the watch is over.
    fn expired(&mut self, revision: u64) -> Vec<u8> {
        self.over = true;
        let message = format!("too old resource version: {} ({revision})", self.since);
        let mut said = Vec::new();
        line(&mut said, "ERROR", &json_bytes(&StatusError::expired(message).to_status()));
        said
    }

    /// The next changes that may match. A watch of one node's pods reads only their changes.
    fn changes(&self, state: &State) -> Option<Vec<Change>> {
        let changes: Box<dyn Iterator<Item = Change>> = match read::node(&self.collection, &self.selection) {
            Some(node) => Box::new(state.changes_on_node(&self.collection, node, self.since)?),
            None => Box::new(state.changes_since(&self.collection, self.since)?),
        };
        Some(changes.take(AT_ONCE).collect())
    }

    fn say(&mut self, change: &Change, said: &mut Vec<u8>) {
        let seen = |object: &Option<Object>| {
            object.as_ref().filter(|object| self.selection.matches(object)).cloned()
        };
        let (kind, object) = match (seen(&change.before), seen(&change.after)) {
            (None, Some(after)) => ("ADDED", after),
            (Some(_), Some(after)) => ("MODIFIED", after),
            (Some(before), None) => {
                ("DELETED", change.last.clone().unwrap_or_else(|| left(&before, change.revision)))
            }
            (None, None) => return,
        };
        let shown = self.show.event(&object, !self.said_any);
        self.said_any = true;
        line(said, kind, &shown);
    }

    /// The existing objects, and the revision after which the watch continues.
    fn initial(&mut self, call: &Call, with_end: bool) -> Vec<u8> {
        let store = &self.api.cluster().store;
        let (candidates, revision) =
            store.read(|state| (read::candidates(state, call, &self.selection), state.revision()));
        let mut said = Vec::new();
        for object in
            candidates.iter().map(StoredObject::open).filter(|object| self.selection.matches(object))
        {
            let shown = self.show.event(&object, !self.said_any);
            self.said_any = true;
            line(&mut said, "ADDED", &shown);
        }
        // A watch at a future version waits for it.
        self.since = self.since.max(revision);
        if with_end {
            let metadata = json!({"resourceVersion": revision.to_string(),
                "annotations": {"k8s.io/initial-events-end": "true"}});
            line(&mut said, "BOOKMARK", &json_bytes(&self.show.bookmark(&metadata)));
        }
        said
    }

    /// The bookmark's revision: that of the store if nothing relevant has changed.
    fn bookmark(&mut self) -> Vec<u8> {
        self.bookmark_at = next_bookmark(self.ends_at);
        let revision = self.api.cluster().store.read(State::revision);
        let mut said = self.catch_up(revision);
        if self.over {
            return said;
        }
        let metadata = json!({"resourceVersion": self.since.to_string()});
        line(&mut said, "BOOKMARK", &json_bytes(&self.show.bookmark(&metadata)));
        said
    }
}

/// When a watch that ends at a time gets its next bookmark, if it gets one more.
fn next_bookmark(ends_at: Instant) -> Option<Instant> {
    let now = Instant::now();
    let last = ends_at.checked_sub(LAST_BOOKMARK).filter(|last| *last > now)?;
    Some(last.min(now + BOOKMARK_EVERY))
}

/// An object that no longer matches: its last matching state, at the revision of the change.
fn left(before: &Object, revision: u64) -> Object {
    let mut object = Value::clone(before);
    object["metadata"]["resourceVersion"] = json!(revision.to_string());
    Object::new(object)
}

fn line(said: &mut Vec<u8>, kind: &str, object: &[u8]) {
    said.extend(b"{\"type\":\"");
    said.extend(kind.as_bytes());
    said.extend(b"\",\"object\":");
    said.extend(object);
    said.extend(b"}\n");
}

fn json_bytes(value: &Value) -> Vec<u8> {
    serde_json::to_vec(value).unwrap_or_default()
}
