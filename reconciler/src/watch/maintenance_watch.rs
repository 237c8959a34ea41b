//! The watch on the maintenances of one group, for as long as the cluster serves that group.

use std::sync::Arc;

use futures::StreamExt;
use futures::stream::{self, Stream};
use kube::runtime::reflector::ObjectRef;
use kube::runtime::reflector::store::Writer;
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, Client};
use nm_shared::{Group, GroupedMaintenance};

use crate::cache::shared_state::SharedState;
use crate::telemetry::readiness::ReadinessCheck;
use crate::watch::served_groups::GroupServed;
use crate::watch::watch_stream::{WatchHealth, drop_managed_fields, watch_stream};

type MaintenanceEvent = watcher::Result<watcher::Event<GroupedMaintenance>>;

/// The watch, which fills a store and the state. The check, if any, passes while it is healthy. `removed` is called after a
/// maintenance was deleted, with its node, and after a list, before which any may have been.
pub(crate) fn maintenance_watch<R: Fn(Option<&str>) + Send>(
    client: &Client,
    group: Group,
    served: GroupServed,
    writer: Writer<GroupedMaintenance>,
    state: Arc<SharedState>,
    removed: R,
    check: Option<ReadinessCheck>,
) -> impl Stream<Item = watcher::Result<GroupedMaintenance>> + Send + use<R> {
    let api = Api::<GroupedMaintenance>::all_with(client.clone(), &group);
    let mut health = WatchHealth::new(format!("nodemaintenances of {}", group.name()), check);
    let store = writer.as_reader();
    while_served(served, move || watch_stream(api.clone(), watcher::Config::default()))
        .modify(drop_managed_fields)
        .reflect(writer)
        .inspect(move |event| {
            health.record(event);
            match event {
                Ok(watcher::Event::Apply(maintenance)) => {
                    if let Some(received) = store.get(&ObjectRef::from_obj_with(maintenance, group)) {
                        state.lock().maintenance_applied(received);
                    }
                }
                Ok(watcher::Event::Delete(maintenance)) => {
                    state.lock().maintenance_deleted(maintenance);
                    // The older definitions allow the node to be changed.
                    removed((group == Group::Medik8s).then_some(&*maintenance.spec.node_name));
                }
                Ok(watcher::Event::InitDone) => {
                    state.lock().maintenances_listed(group, store.state());
                    removed(None);
                }
                Ok(watcher::Event::Init | watcher::Event::InitApply(_)) | Err(_) => {}
            }
        })
        .applied_objects()
}

/// The events of a watch while the group is served, and an empty list when it is not.
fn while_served<W>(
    served: GroupServed,
    watch: impl Fn() -> W + Send,
) -> impl Stream<Item = MaintenanceEvent> + Send
where
    W: Stream<Item = MaintenanceEvent> + Send + 'static,
{
    stream::unfold((served, watch), |(mut served, watch)| async move {
        let events = match *served.borrow_and_update() {
            Some(true) => watch().boxed(),
            Some(false) => {
                let empty = [watcher::Event::Init, watcher::Event::InitDone].map(Ok);
                stream::iter(empty).chain(stream::pending()).boxed()
            }
            None => stream::pending().boxed(),
        };
        let mut changes = served.clone();
        let until_changed = async move {
            if changes.changed().await.is_err() {
                // The definition's watch is gone, and with it the term.
                std::future::pending::<()>().await;
            }
        };
        Some((events.take_until(until_changed), (served, watch)))
    })
    .flatten()
}
