//! Which groups of maintenances the cluster has: ours always, the older ones for as long as their definitions are
//! installed.
//!
//! The definitions are watched one by one, by name, so that the right to read them is one to these and no others.

use std::future::Future;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::runtime::{WatchStreamExt, reflector, watcher};
use kube::{Api, Client};
use nm_shared::Group;
use tokio::sync::watch;
use tracing::{info, warn};

use crate::watch::watch_stream::{News, follow, watched, without_managed_fields};

/// Whether the cluster has a group, once that is known, and what changes when it does.
pub(crate) type Served = watch::Receiver<Option<bool>>;

/// Begins to watch for a group. The future runs the watch for ever.
pub(crate) fn start(client: &Client, group: Group) -> (Served, impl Future<Output = ()> + Send + use<>) {
    let is_ours = group == Group::Medik8s;
    let (sender, served) = watch::channel(is_ours.then_some(true));
    let client = client.clone();
    let run = async move {
        if is_ours {
            sender.closed().await;
        } else {
            listen(client, group, &sender).await;
        }
    };
    (served, run)
}

async fn listen(client: Client, group: Group, sender: &watch::Sender<Option<bool>>) {
    let (definitions, writer) = reflector::store();
    let only = watcher::Config::default().fields(&format!("metadata.name={}", group.definition()));
    let stream = watched(Api::<CustomResourceDefinition>::all(client), only)
        .modify(without_managed_fields)
        .reflect(writer);
    let name = group.name();
    follow(&format!("definition of {name}"), None, stream, |news| match news {
        News::Changed(_) | News::Listed => {
            let is_served = definitions.state().iter().any(|definition| group.is_served_by(definition));
            // Who hears of a change begins a watch, or ends one.
            let mut before = None;
            let is_news = sender.send_if_modified(|served| {
                before = served.replace(is_served);
                before != Some(is_served)
            });
            match (is_news, before, is_served) {
                (true, _, true) => info!(group = name, "maintenances of this group are served"),
                (true, Some(true), false) => info!(group = name, "this group is gone"),
                _ => {}
            }
        }
        News::Interrupted => {}
        News::Forbidden(sentence) => {
            let is_news =
                sender.send_if_modified(|served| served.is_none() && served.replace(false).is_none());
            if is_news {
                warn!(group = name, "maintenances of this group are not served: {sentence}");
            }
        }
    })
    .await;
}
