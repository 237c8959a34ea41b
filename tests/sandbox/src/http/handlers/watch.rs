//! Watching a collection: what is there, if that is asked for, and then every change, until somebody has enough.
//!
//! A watch holds a revision and nothing else. Whenever the store has grown it reads the changes since, and says those
//! that its selection sees; so a slow reader costs no memory, and one that is too slow is told that history is gone.

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
use crate::http::response::answer;
use crate::http::response::answer::HandlerResult;
use crate::http::response::representation::Representation;
use crate::http::selector::Selection;
use crate::model::status_error::StatusError;

/// How often a quiet watch that asks for bookmarks is told how far it has come.
const BOOKMARK_EVERY: Duration = Duration::from_secs(60);
/// How many changes a watch that is behind takes in at a time.
const AT_ONCE: usize = 500;
/// How long a watch runs that names no end of its own.
const LONGEST: Duration = Duration::from_secs(30 * 60);
/// The most seconds that a watch may name: moments end before numbers do.
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
    let mut watch = Watch {
        // Followed before the first look, so that nothing falls between.
        grown: cluster.store.follow(call.resource.storage(), node),
        api: api.clone(),
        collection: call.resource.storage().clone(),
        selection,
        show,
        said_any: false,
        since: from.unwrap_or_default(),
        ends_at: Instant::now() + seconds.map_or(LONGEST, Duration::from_secs),
        bookmark_every: bookmarks.then_some(BOOKMARK_EVERY),
        bookmark_at: Instant::now() + BOOKMARK_EVERY,
        over: false,
    };
    let wants_initial = streams || (from.is_none() && call.query.get("sendInitialEvents").is_none());
    let first = if wants_initial {
        // The end is told to whoever takes bookmarks, also without having asked for a stream by name.
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
    /// Whether an event was said, which carried a table's columns.
    said_any: bool,
    /// Everything up to this revision is said.
    since: u64,
    grown: signal::Receiver<u64>,
    ends_at: Instant,
    bookmark_every: Option<Duration>,
    bookmark_at: Instant,
    over: bool,
}

/// The events, in pieces as they come.
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
    /// Waits for something to say; none when it is over.
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
                () = sleep_until(self.bookmark_at), if self.bookmark_every.is_some() => return Some(self.bookmark()),
            }
        }
        None
    }

    /// What has changed since the last look, or that this is not known any more.
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

    /// History is told from later on only, and the watch is over.
    fn expired(&mut self, revision: u64) -> Vec<u8> {
        self.over = true;
        let message = format!("too old resource version: {} ({revision})", self.since);
        let mut said = Vec::new();
        line(&mut said, "ERROR", &json_bytes(&StatusError::expired(message).to_status()));
        said
    }

    /// The next changes that it may have to tell of. One that watches a node's pods looks at no others.
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

    /// The objects that are there, and where the watch begins after them.
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
        // A version from the future is waited for, as if nothing had been there.
        self.since = self.since.max(revision);
        if with_end {
            let metadata = json!({"resourceVersion": revision.to_string(),
                "annotations": {"k8s.io/initial-events-end": "true"}});
            line(&mut said, "BOOKMARK", &json_bytes(&self.show.bookmark(&metadata)));
        }
        said
    }

    /// How far it has come, which is as far as the cluster where nothing of its own has changed.
    fn bookmark(&mut self) -> Vec<u8> {
        self.bookmark_at = Instant::now() + BOOKMARK_EVERY;
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

/// An object that left a selection: as it was when it was last seen, at the revision at which it left.
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
