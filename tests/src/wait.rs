//! Waits for what watches report.
//!
//! No test sleeps: a wait ends with the event that it is for, or fails after [`TEST_TIMEOUT`].

use std::fmt::Debug;
use std::hash::Hash;
use std::time::Duration;

use futures::{StreamExt, TryStreamExt};
use kube::runtime::reflector::{self, Store};
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, Resource};
use serde::de::DeserializeOwned;

/// No event that a test waits for takes longer, even on a slow machine.
pub const TEST_TIMEOUT: Duration = Duration::from_secs(90);

/// The output of `future`; `what` describes it in the panic message.
///
/// # Panics
/// After [`TEST_TIMEOUT`].
pub async fn in_time<T>(what: &str, future: impl Future<Output = T>) -> T {
    match tokio::time::timeout(TEST_TIMEOUT, future).await {
        Ok(output) => output,
        Err(_) => panic!("waited {TEST_TIMEOUT:?}: {what}"),
    }
}

/// The first state of the named object for which `condition` is true; `None` stands for an object that does not exist.
///
/// # Panics
/// After [`TEST_TIMEOUT`], with the last state seen.
pub async fn wait_until<K>(
    api: &Api<K>,
    name: &str,
    what: &str,
    condition: impl Fn(Option<&K>) -> bool,
) -> Option<K>
where
    K: Resource + Clone + Debug + DeserializeOwned + Send + 'static,
{
    let mut last = None;
    let search = async {
        let mut states = watcher::watch_object(api.clone(), name).boxed();
        while let Some(state) = states.next().await {
            let Ok(state) = state else { continue };
            last.clone_from(&state);
            if condition(state.as_ref()) {
                return;
            }
        }
        panic!("the watch on {name} ended");
    };
    if tokio::time::timeout(TEST_TIMEOUT, search).await.is_err() {
        panic!("waited {TEST_TIMEOUT:?} for {name}: {what}; last seen: {last:#?}");
    }
    last
}

/// The selected objects, once `condition` is true for all of them together.
///
/// # Panics
/// After [`TEST_TIMEOUT`].
pub async fn wait_until_all<K>(
    api: &Api<K>,
    selection: watcher::Config,
    what: &str,
    condition: impl Fn(&[K]) -> bool,
) -> Vec<K>
where
    K: Resource + Clone + Debug + DeserializeOwned + Send + Sync + 'static,
    K::DynamicType: Default + Eq + Hash + Clone,
{
    wait_for_store(api, selection, what, |store| {
        let all: Vec<K> = store.state().iter().map(|object| K::clone(object)).collect();
        condition(&all).then_some(all)
    })
    .await
}

/// Waits until there is no object of a kind. Unlike [`wait_until_all`], it copies nothing, however many there are.
///
/// # Panics
/// After [`TEST_TIMEOUT`].
pub async fn wait_until_none<K>(api: &Api<K>, what: &str)
where
    K: Resource + Clone + Debug + DeserializeOwned + Send + Sync + 'static,
    K::DynamicType: Default + Eq + Hash + Clone,
{
    wait_for_store(api, watcher::Config::default(), what, |store| store.is_empty().then_some(())).await;
}

/// What `find` finds in the store of the selected objects, once they have been listed.
async fn wait_for_store<K, T>(
    api: &Api<K>,
    selection: watcher::Config,
    what: &str,
    find: impl Fn(&Store<K>) -> Option<T>,
) -> T
where
    K: Resource + Clone + Debug + DeserializeOwned + Send + Sync + 'static,
    K::DynamicType: Default + Eq + Hash + Clone,
{
    let (store, writer) = reflector::store();
    let mut listed = false;
    let search = async {
        let mut events = watcher(api.clone(), selection).default_backoff().reflect(writer).boxed();
        while let Ok(event) = events.try_next().await.transpose().unwrap() {
            listed |= matches!(event, watcher::Event::InitDone);
            if listed && let Some(found) = find(&store) {
                return found;
            }
        }
        panic!("the watch ended");
    };
    in_time(what, search).await
}

/// The uids of the selected objects, deleted ones included, in the order of their creation, once there are `count`.
///
/// # Panics
/// After [`TEST_TIMEOUT`].
pub async fn wait_for_uids<K>(api: Api<K>, selection: watcher::Config, count: usize) -> Vec<String>
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
    if tokio::time::timeout(TEST_TIMEOUT, search).await.is_err() {
        panic!("waited {TEST_TIMEOUT:?} for {count} objects; seen: {uids:?}");
    }
    uids
}
