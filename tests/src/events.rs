//! Events about an object.

use k8s_openapi::api::events::v1::Event;
use kube::runtime::watcher;
use kube::{Api, ResourceExt};

use crate::cluster::Cluster;
use crate::wait::wait_until_all;

/// The reasons of the events about an object, oldest first, once `expected` is among them. Events of earlier tests, which
/// may have been about the same node, are left out.
pub async fn until_event(cluster: &Cluster, subject: &impl ResourceExt, expected: &str) -> Vec<String> {
    until_events(cluster, subject, &[expected]).await
}

/// The same with several reasons. Events that follow each other closely are published at once, and any may be stored first.
pub async fn until_events(cluster: &Cluster, subject: &impl ResourceExt, expected: &[&str]) -> Vec<String> {
    let events: Api<Event> = Api::namespaced(cluster.client.clone(), "default");
    let is_about_it = |event: &&Event| {
        let at = event.event_time.as_ref();
        event.regarding.as_ref().is_some_and(|it| it.uid == subject.meta().uid)
            && at.is_none_or(|at| at.0 >= cluster.since())
    };
    let reasons = |events: &[Event]| -> Vec<String> {
        let mut about: Vec<&Event> = events.iter().filter(is_about_it).collect();
        about.sort_by_key(|event| event.event_time.as_ref().map(|time| time.0));
        about.iter().filter_map(|event| event.reason.clone()).collect()
    };
    let what = format!("the events {expected:?} about {}", subject.name_any());
    let enough = |events: &[Event]| {
        let found = reasons(events);
        expected.iter().all(|reason| found.iter().any(|found| found == reason))
    };
    reasons(&wait_until_all(&events, watcher::Config::default(), &what, enough).await)
}
