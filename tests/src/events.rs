//! What events tell people.

use k8s_openapi::api::events::v1::Event;
use kube::runtime::watcher;
use kube::{Api, ResourceExt};

use crate::cluster::Cluster;
use crate::until::until_all;

/// The reasons of the events about an object, in the order in which they happened, once `expected` is among them. Those
/// of earlier tests, which may have been about the same node, are left out.
pub async fn events_until(cluster: &Cluster, subject: &impl ResourceExt, expected: &str) -> Vec<String> {
    let events: Api<Event> = Api::namespaced(cluster.client.clone(), "default");
    let about = |event: &&Event| {
        let at = event.event_time.as_ref();
        event.regarding.as_ref().is_some_and(|it| it.uid == subject.meta().uid)
            && at.is_none_or(|at| at.0 >= cluster.since())
    };
    let reasons = |events: &[Event]| -> Vec<String> {
        let mut about: Vec<&Event> = events.iter().filter(about).collect();
        about.sort_by_key(|event| event.event_time.as_ref().map(|time| time.0));
        about.iter().filter_map(|event| event.reason.clone()).collect()
    };
    let what = format!("an event {expected} about {}", subject.name_any());
    let enough = |events: &[Event]| reasons(events).iter().any(|reason| reason == expected);
    reasons(&until_all(&events, watcher::Config::default(), &what, enough).await)
}
