//! Reading one object and listing many, whole or in pages.

use std::collections::BTreeMap;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::{Value, json};

use super::Answer;
use super::answer;
use super::call::Call;
use super::show::Show;
use crate::cluster::Cluster;
use crate::refusal::Refusal;
use crate::resource::PODS;
use crate::selector::Selection;
use crate::store::{Collection, Key, Object, State};

/// `GET` of one object, or of its status, which shows the same.
pub(super) fn get(cluster: &Cluster, call: &Call) -> Answer {
    let found = cluster.store.read(|state| state.get(call.resource.storage(), &call.key()));
    let object = found.ok_or_else(|| call.not_found())?;
    Ok(object_answer(cluster, call, 200, &object))
}

/// An object in the form that the call asks for.
pub(super) fn object_answer(
    cluster: &Cluster,
    call: &Call,
    code: u16,
    object: &Value,
) -> http::Response<answer::Body> {
    let show = Show::new(&call.resource, call.form, call.query.get("includeObject"), cluster.clock.now());
    answer::bytes_of(code, "application/json", show.one(object))
}

/// `GET` of a collection.
pub(super) fn list(cluster: &Cluster, call: &Call) -> Answer {
    let selection = call.selection()?;
    let limit: usize = call.query.number("limit").unwrap_or_default();
    let start = call.query.get("continue").map(Continue::read).transpose()?;
    let oldest: u64 = call.query.number("resourceVersion").unwrap_or_default();
    let page = cluster.store.read(|state| {
        if oldest > state.revision() {
            return Err(too_new(oldest, state.revision()));
        }
        page(state, call, &selection, limit, start.as_ref())
    })?;
    let mut metadata = json!({"resourceVersion": page.revision.to_string()});
    if let Some(next) = &page.next {
        metadata["continue"] = json!(next);
        if selection.is_everything() {
            metadata["remainingItemCount"] = json!(page.remaining);
        }
    }
    let show = Show::new(&call.resource, call.form, call.query.get("includeObject"), cluster.clock.now());
    Ok(answer::bytes_of(200, "application/json", show.list(&metadata, &page.objects)))
}

/// Every object that a selection chooses, by the shortest way there is.
pub(super) fn selected(state: &State, call: &Call, selection: &Selection) -> Vec<Object> {
    let collection = call.resource.storage();
    let namespace = selection.namespace.as_deref().or_else(|| selection.fields.exactly("metadata.namespace"));
    let chosen = |object: &&Object| selection.matches(object);
    if let Some(name) = selection.fields.exactly("metadata.name")
        && (namespace.is_some() || !call.resource.namespaced)
    {
        let key = Key::new(namespace.unwrap_or_default(), name);
        return state.get(collection, &key).iter().filter(chosen).cloned().collect();
    }
    if let Some(node) = selection.fields.exactly("spec.nodeName").filter(|node| !node.is_empty())
        && *collection == PODS
    {
        return state.on_node(collection, node).filter(chosen).cloned().collect();
    }
    state.list(collection, namespace).filter(chosen).cloned().collect()
}

struct Page {
    objects: Vec<Object>,
    revision: u64,
    next: Option<String>,
    remaining: usize,
}

fn page(
    state: &State,
    call: &Call,
    selection: &Selection,
    limit: usize,
    start: Option<&Continue>,
) -> Result<Page, Refusal> {
    let collection = call.resource.storage();
    let revision = start.map_or_else(|| state.revision(), |start| start.revision);
    let mut objects = match start {
        None => selected(state, call, selection),
        Some(start) => later(state, collection, selection, start)?,
    };
    let remaining = if limit == 0 { 0 } else { objects.len().saturating_sub(limit) };
    objects.truncate(objects.len() - remaining);
    let last = objects.last().filter(|_| remaining > 0);
    let next = last.map(|last| Continue { revision, after: Key::of(last) }.write());
    Ok(Page { objects, revision, next, remaining })
}

/// The rest of a list, as it was when the list began: what has changed since is undone.
fn later(
    state: &State,
    collection: &Collection,
    selection: &Selection,
    start: &Continue,
) -> Result<Vec<Object>, Refusal> {
    let changes = state.changes_since(collection, start.revision).ok_or_else(|| {
        Refusal::expired(
            "The provided continue parameter is too old to display a consistent list result. You can start a new \
             list without the continue parameter, or use the continue token in this response to retrieve the \
             remainder of the results.",
        )
    })?;
    let mut then: BTreeMap<Key, Option<Object>> = BTreeMap::new();
    for change in changes {
        let known = change.before.as_ref().or(change.after.as_ref());
        if let Some(key) = known.map(|object| Key::of(object)).filter(|key| *key > start.after) {
            // Its first change since tells what it was.
            then.entry(key).or_insert(change.before);
        }
    }
    let in_place =
        |key: &Key| selection.namespace.as_deref().is_none_or(|namespace| key.namespace == namespace);
    let mut rest: BTreeMap<Key, Object> = state
        .list_after(collection, &start.after)
        .map(|object| (Key::of(object), object.clone()))
        .take_while(|(key, _)| in_place(key))
        .filter(|(key, _)| !then.contains_key(key))
        .collect();
    rest.extend(
        then.into_iter().filter_map(|(key, before)| Some((key, before?))).filter(|(key, _)| in_place(key)),
    );
    Ok(rest.into_values().filter(|object| selection.matches(object)).collect())
}

/// Where a list goes on, as an opaque token.
struct Continue {
    revision: u64,
    after: Key,
}

impl Continue {
    fn write(&self) -> String {
        let Key { namespace, name } = &self.after;
        let start = if namespace.is_empty() { format!("{name}\0") } else { format!("{namespace}/{name}\0") };
        let token = json!({"v": "meta.k8s.io/v1", "rv": self.revision, "start": start});
        URL_SAFE_NO_PAD.encode(token.to_string())
    }

    fn read(token: &str) -> Result<Self, Refusal> {
        let invalid = |because: &str| Refusal::bad_request(format!("invalid continue token: {because}"));
        let json = URL_SAFE_NO_PAD.decode(token).map_err(|error| {
            let at = match error {
                base64::DecodeError::InvalidByte(at, _) | base64::DecodeError::InvalidLastSymbol(at, _) => at,
                _ => token.len().saturating_sub(1),
            };
            invalid(&format!("continue key is not valid: illegal base64 data at input byte {at}"))
        })?;
        let token: Value = serde_json::from_slice(&json)
            .map_err(|error| invalid(&format!("continue key is not valid: {error}")))?;
        let start = token["start"].as_str().unwrap_or_default().trim_end_matches('\0');
        let (namespace, name) = start.split_once('/').unwrap_or(("", start));
        let revision = token["rv"].as_u64().unwrap_or_default();
        if revision == 0 || start.is_empty() {
            return Err(invalid("continue key is not valid: incorrect encoded start resourceVersion"));
        }
        Ok(Self { revision, after: Key::new(namespace, name) })
    }
}

/// 504 for a list at a revision that is not there yet.
fn too_new(wanted: u64, current: u64) -> Refusal {
    let mut refusal =
        Refusal::new(504, "Timeout", format!("Too large resource version: {wanted}, current: {current}"))
            .with_details(json!({
                "causes": [{"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}],
                "retryAfterSeconds": 1,
            }));
    refusal.retry_after = Some(1);
    refusal
}
