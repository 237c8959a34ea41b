//! Gets and lists, whole or in pages.

use serde_json::{Value, json};

use crate::cluster::Cluster;
use crate::cluster::catalog::resource::PODS;
use crate::cluster::store::{Collection, Key, ListScope, Object, State, StoredObject};
use crate::http::request::call::Call;
use crate::http::request::options;
use crate::http::response::answer;
use crate::http::response::answer::HandlerResult;
use crate::http::response::continue_token::Continue;
use crate::http::response::representation::Representation;
use crate::http::selector::Selection;
use crate::model::status_error::StatusError;

/// `GET` of an object or of its status.
pub(crate) fn get(cluster: &Cluster, call: &Call) -> HandlerResult {
    let oldest = call.query.get("resourceVersion").map(options::revision).transpose();
    let oldest = oldest.map_err(StatusError::internal)?.unwrap_or_default();
    let (found, current) =
        cluster.store.read(|state| (state.get(call.resource.storage(), &call.key()), state.revision()));
    if oldest > current {
        return Err(too_new(oldest, current));
    }
    let object = found.ok_or_else(|| call.not_found())?;
    Ok(object_answer(cluster, call, 200, &object))
}

/// An object in the requested format.
pub(crate) fn object_answer(
    cluster: &Cluster,
    call: &Call,
    code: u16,
    object: &Value,
) -> http::Response<answer::Body> {
    let show =
        Representation::new(&call.resource, call.form, call.query.get("includeObject"), cluster.clock.now());
    answer::bytes_of(code, "application/json", show.one(object))
}

/// `GET` of a collection.
pub(crate) fn list(cluster: &Cluster, call: &Call) -> HandlerResult {
    options::check_list(&call.query)?;
    let selection = call.selection()?;
    let limit = limit(call);
    let (start, oldest) = beginning(call, limit)?;
    let lost = if call.query.get("continue").is_some() { LOST_PAGE } else { LOST_REVISION };
    // If every object matches, the size of the rest is known without reading it.
    let at_most = if limit > 0 && selection.is_everything() { limit } else { usize::MAX };
    let (candidates, after, current) = cluster.store.read(|state| {
        if oldest > state.revision() {
            return Err(too_new(oldest, state.revision()));
        }
        let found = match &start {
            None => Some(find(state, call, &selection)),
            Some(start) => later(state, call, &selection, start),
        };
        let mut found = found.ok_or_else(|| StatusError::expired(lost))?;
        let candidates: Vec<StoredObject> = found.by_ref().take(at_most).cloned().collect();
        Ok((candidates, found.count(), state.revision()))
    })?;
    let revision = start.map_or(current, |start| start.revision);
    let page = page(candidates, after, &selection, limit, revision);
    let mut metadata = json!({"resourceVersion": page.revision.to_string()});
    if let Some(next) = &page.next {
        metadata["continue"] = json!(next);
        if selection.is_everything() {
            metadata["remainingItemCount"] = json!(page.remaining);
        }
    }
    let show =
        Representation::new(&call.resource, call.form, call.query.get("includeObject"), cluster.clock.now());
    let objects = page.objects.iter().map(StoredObject::open).filter(|object| selection.matches(object));
    Ok(answer::bytes_of(200, "application/json", show.list(&metadata, objects)))
}

/// The page size; 0 for all objects. A list at version 0 is served from a cache in a real server, and not in pages.
/// real server has in its cache.
fn limit(call: &Call) -> usize {
    let from_cache = call.query.get("resourceVersion") == Some("0") && call.query.get("continue").is_none();
    if from_cache { 0 } else { call.query.number("limit").unwrap_or_default() }
}

/// Where a list starts, and at which revision.
fn beginning(call: &Call, limit: usize) -> Result<(Option<Continue>, u64), StatusError> {
    let version = call.query.get("resourceVersion");
    if let Some(token) = call.query.get("continue") {
        let start = Continue::read(token)?;
        if version.is_some_and(|version| version != "0") {
            let because = "specifying resource version is not allowed when using continue";
            return Err(StatusError::bad_request(because));
        }
        return Ok((Some(start), 0));
    }
    let oldest = version.map(options::revision).transpose();
    let oldest =
        oldest.map_err(|because| StatusError::bad_request(format!("invalid resource version: {because}")));
    let revision = oldest?.unwrap_or_default();
    let exactly = match call.query.get("resourceVersionMatch") {
        Some(wanted) => wanted == "Exact",
        // The first page of a list at an exact version has that version too.
        None => limit > 0 && revision > 0,
    };
    Ok((exactly.then(|| Continue { revision, after: Key::new("", "") }), revision))
}

/// Every object that matches, from the best index.
pub(crate) fn selected(state: &State, call: &Call, selection: &Selection) -> Vec<Object> {
    find(state, call, selection).map(StoredObject::open).filter(|object| selection.matches(object)).collect()
}

/// The objects that may match, still folded: unfolding the objects of a large cluster takes too long while the store
/// is locked.
pub(crate) fn candidates(state: &State, call: &Call, selection: &Selection) -> Vec<StoredObject> {
    find(state, call, selection).cloned().collect()
}

fn find<'a>(state: &'a State, call: &Call, selection: &'a Selection) -> ListPage<'a> {
    let collection = call.resource.storage();
    let namespace = namespace(selection);
    if let Some(name) = selection.fields.exactly("metadata.name")
        && (namespace.is_some() || !call.resource.namespaced)
    {
        let key = Key::new(namespace.unwrap_or_default(), name);
        return Box::new(state.find(collection, &key).into_iter());
    }
    Box::new(state.seek(collection, scope(collection, selection)))
}

/// The rest of a list, as it was when the list started; `None` if the history does not go back that far.
fn later<'a>(
    state: &'a State,
    call: &Call,
    selection: &'a Selection,
    start: &Continue,
) -> Option<ListPage<'a>> {
    let collection = call.resource.storage();
    let found = state.seek_then(collection, scope(collection, selection), &start.after, start.revision)?;
    Some(Box::new(found))
}

fn scope<'a>(collection: &Collection, selection: &'a Selection) -> ListScope<'a> {
    match node(collection, selection) {
        Some(node) => ListScope::Node(node),
        None => namespace(selection).map_or(ListScope::Everything, ListScope::Namespace),
    }
}

fn namespace(selection: &Selection) -> Option<&str> {
    selection.namespace.as_deref().or_else(|| selection.fields.exactly("metadata.namespace"))
}

/// The node whose pods are selected, if it is one.
pub(crate) fn node<'a>(collection: &Collection, selection: &'a Selection) -> Option<&'a str> {
    let node = selection.fields.exactly("spec.nodeName")?;
    (*collection == PODS && !node.is_empty()).then_some(node)
}

/// Objects of a page, still folded.
type ListPage<'a> = Box<dyn Iterator<Item = &'a StoredObject> + 'a>;

const LOST_PAGE: &str = "The provided continue parameter is too old to display a consistent list result. You can start \
    a new list without the continue parameter, or use the continue token in this response to retrieve the remainder of \
    the results.";

const LOST_REVISION: &str = "The resourceVersion for the provided list is too old.";

struct Page {
    /// The objects that match, or all that may match if there is no limit.
    objects: Vec<StoredObject>,
    revision: u64,
    next: Option<String>,
    remaining: usize,
}

fn page(
    mut candidates: Vec<StoredObject>,
    after: usize,
    selection: &Selection,
    limit: usize,
    revision: u64,
) -> Page {
    let mut remaining = after;
    if limit > 0 && !selection.is_everything() {
        // One more than requested shows whether there are more.
        let chosen = candidates.into_iter().filter(|stored| selection.matches(&stored.open()));
        candidates = chosen.take(limit.saturating_add(1)).collect();
        remaining = candidates.len().saturating_sub(limit);
        candidates.truncate(limit);
    }
    let last = candidates.last().filter(|_| remaining > 0);
    let next = last.map(|last| Continue { revision, after: Key::of(&last.open()) }.write());
    Page { objects: candidates, revision, next, remaining }
}

/// 504 for a revision that does not exist yet.
fn too_new(wanted: u64, current: u64) -> StatusError {
    let mut refusal = StatusError::new(
        504,
        "Timeout",
        format!("Timeout: Too large resource version: {wanted}, current: {current}"),
    )
    .with_details(json!({
        "causes": [{"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}],
        "retryAfterSeconds": 1,
    }));
    refusal.retry_after = Some(1);
    refusal
}
