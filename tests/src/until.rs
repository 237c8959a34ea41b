//! Waiting for what a watch tells.

use std::fmt::Debug;
use std::time::Duration;

use futures::{StreamExt, TryStreamExt};
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, Resource};
use serde::de::DeserializeOwned;

/// No event that a test waits for takes this long, on however slow a machine.
pub const PATIENCE: Duration = Duration::from_secs(90);

/// The first state of the named object that `holds`; `None` stands for an object that is not there.
///
/// # Panics
/// After [`PATIENCE`], with the last state seen.
pub async fn until<K>(api: &Api<K>, name: &str, what: &str, holds: impl Fn(Option<&K>) -> bool) -> Option<K>
where
    K: Resource + Clone + Debug + DeserializeOwned + Send + 'static,
{
    let mut last = None;
    let search = async {
        let mut states = watcher::watch_object(api.clone(), name).boxed();
        while let Some(state) = states.next().await {
            let Ok(state) = state else { continue };
            last.clone_from(&state);
            if holds(state.as_ref()) {
                return;
            }
        }
        panic!("the watch on {name} ended");
    };
    if tokio::time::timeout(PATIENCE, search).await.is_err() {
        panic!("waited {PATIENCE:?} for {name}: {what}; last seen: {last:#?}");
    }
    last
}

/// Waits until `enough` holds for all objects that a selection names.
///
/// # Panics
/// After [`PATIENCE`].
pub async fn until_all<K>(
    api: &Api<K>,
    selection: watcher::Config,
    what: &str,
    enough: impl Fn(&[K]) -> bool,
) -> Vec<K>
where
    K: Resource + Clone + Debug + DeserializeOwned + Send + Sync + 'static,
    K::DynamicType: Default + Eq + std::hash::Hash + Clone,
{
    let (store, writer) = kube::runtime::reflector::store();
    let mut listed = false;
    let search = async {
        let mut events = watcher(api.clone(), selection).default_backoff().reflect(writer).boxed();
        while let Ok(event) = events.try_next().await.transpose().unwrap() {
            listed |= matches!(event, watcher::Event::InitDone);
            let all: Vec<K> = store.state().iter().map(|object| K::clone(object)).collect();
            if listed && enough(&all) {
                return all;
            }
        }
        panic!("the watch ended");
    };
    match tokio::time::timeout(PATIENCE, search).await {
        Ok(all) => all,
        Err(_) => panic!("waited {PATIENCE:?}: {what}"),
    }
}

/// The uids of all objects that a selection ever named, in the order in which they came, once there are `count`.
///
/// # Panics
/// After [`PATIENCE`].
pub async fn until_seen<K>(api: Api<K>, selection: watcher::Config, count: usize) -> Vec<String>
where
    K: Resource + Clone + Debug + DeserializeOwned + Send + 'static,
{
    let mut uids: Vec<String> = Vec::new();
    let search = async {
        let mut objects = watcher(api, selection).default_backoff().applied_objects().boxed();
        while uids.len() < count {
            let Some(object) = objects.next().await else { panic!("the watch ended") };
            let uid = object.ok().and_then(|object| object.meta().uid.clone());
            uids.extend(uid.filter(|uid| !uids.contains(uid)));
        }
    };
    if tokio::time::timeout(PATIENCE, search).await.is_err() {
        panic!("waited {PATIENCE:?} for {count} objects; seen: {uids:?}");
    }
    uids
}
