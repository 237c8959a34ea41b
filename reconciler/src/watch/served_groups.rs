//! Which groups of maintenances the cluster serves: ours always, the older ones while their definitions are installed.
//!
//! Each definition is watched by name, so that permission to read these few is enough.

use std::future::Future;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::{Api, Client};
use nm_shared::Group;
use tokio::sync::watch;
use tracing::{info, warn};

use crate::cache::watched::WatchUpdate;
use crate::watch::watch_stream::{only, run_watch, watch_stream};

/// Whether the cluster serves a group; none until that is known.
pub(crate) type GroupServed = watch::Receiver<Option<bool>>;

/// Starts to watch whether a group is served. The future runs the watch and never ends.
pub(crate) fn start(client: &Client, group: Group) -> (GroupServed, impl Future<Output = ()> + Send + use<>) {
    let is_ours = group == Group::Medik8s;
    let (sender, served) = watch::channel(is_ours.then_some(true));
    let client = client.clone();
    let run = async move {
        if is_ours {
            sender.closed().await;
        } else {
            watch_definition(client, group, &sender).await;
        }
    };
    (served, run)
}

async fn watch_definition(client: Client, group: Group, sender: &watch::Sender<Option<bool>>) {
    let api = Api::<CustomResourceDefinition>::all(client);
    let name = group.name();
    let is_served = |found: Option<CustomResourceDefinition>| {
        found.is_some_and(|definition| group.is_served_by(&definition))
    };
    run_watch(
        &format!("definition of {name}"),
        None,
        watch_stream(api, only(&group.definition())),
        |update| {
            let is_served = match update {
                WatchUpdate::Applied(definition) => is_served(Some(definition)),
                WatchUpdate::Listed(found) => is_served(found.into_iter().next()),
                WatchUpdate::Deleted(_) => false,
                WatchUpdate::Interrupted => return,
                WatchUpdate::Forbidden(refusal) => {
                    let is_changed =
                        sender.send_if_modified(|served| served.is_none() && served.replace(false).is_none());
                    if is_changed {
                        warn!(group = name, "maintenances of this group are ignored: {refusal}");
                    }
                    return;
                }
            };
            // Only a change is sent: each one starts or ends a watch.
            let mut before = None;
            let is_changed = sender.send_if_modified(|served| {
                before = served.replace(is_served);
                before != Some(is_served)
            });
            match (is_changed, before, is_served) {
                (true, _, true) => info!(group = name, "the group is served"),
                (true, Some(true), false) => info!(group = name, "the group is no longer served"),
                _ => {}
            }
        },
    )
    .await;
}
