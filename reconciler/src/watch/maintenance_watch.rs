//! The watch on the maintenances of a group, for as long as the cluster has that group.

use std::sync::Arc;

use futures::StreamExt;
use futures::channel::mpsc::UnboundedSender;
use futures::stream::{self, Stream};
use kube::runtime::reflector::store::Writer;
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, Client};
use nm_shared::{Group, Grouped};

use crate::cache::maintenances::Maintenances;
use crate::telemetry::readiness::Check;
use crate::watch::served_groups::Served;
use crate::watch::watch_stream::{Interruption, watched, without_managed_fields};

/// A maintenance that is gone, or, as none, the news that all of a group are known anew and some may have gone meanwhile.
pub(crate) type Departure = Option<Grouped>;

/// What a watch tells.
type Told = watcher::Result<watcher::Event<Grouped>>;

/// The watch, which keeps a store and also tells of those that are gone. The check, where it has one, holds while it goes
/// on.
pub(crate) fn maintenance_watch(
    client: &Client,
    group: Group,
    served: Served,
    writer: Writer<Grouped>,
    maintenances: Arc<Maintenances>,
    departures: UnboundedSender<Departure>,
    check: Option<Check>,
) -> impl Stream<Item = watcher::Result<Grouped>> + Send + use<> {
    let api = Api::<Grouped>::all_with(client.clone(), &group);
    let mut interruption = Interruption::of(format!("nodemaintenances of {}", group.name()), check);
    while_served(served, move || watched(api.clone(), watcher::Config::default()))
        .modify(without_managed_fields)
        .reflect(writer)
        .inspect(move |event| {
            interruption.note(event);
            let departure = match event {
                Ok(watcher::Event::Delete(maintenance)) => Some(maintenance.clone()),
                Ok(watcher::Event::InitDone) => {
                    maintenances.listed(group);
                    None
                }
                _ => return,
            };
            // The receiver is gone only when the program ends.
            let _ = departures.unbounded_send(departure);
        })
        .applied_objects()
}

/// What a watch tells while there is something to watch, and the news that there is nothing while there is not.
fn while_served<W>(served: Served, watch: impl Fn() -> W + Send) -> impl Stream<Item = Told> + Send
where
    W: Stream<Item = Told> + Send + 'static,
{
    stream::unfold((served, watch), |(mut served, watch)| async move {
        let told = match *served.borrow_and_update() {
            Some(true) => watch().boxed(),
            Some(false) => {
                let nothing = [watcher::Event::Init, watcher::Event::InitDone].map(Ok);
                stream::iter(nothing).chain(stream::pending()).boxed()
            }
            None => stream::pending().boxed(),
        };
        let mut changes = served.clone();
        let until = async move {
            if changes.changed().await.is_err() {
                // Nobody will ever say otherwise.
                std::future::pending::<()>().await;
            }
        };
        Some((told.take_until(until), (served, watch)))
    })
    .flatten()
}
