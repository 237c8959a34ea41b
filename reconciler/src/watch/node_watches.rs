//! The watches on the pods and the virtual machines of one node, which run only while the node is in maintenance.
//!
//! A cluster without KubeVirt costs nothing extra: discovery is requested only once a node in maintenance has a pod with
//! KubeVirt's labels, and virtual machines are watched only while the node has such pods.

use std::collections::HashSet;
use std::fmt::Debug;
use std::sync::Arc;

use kube::runtime::{WatchStreamExt, reflector, watcher};
use kube::{Api, Client, Resource};
use nm_shared::api::latency_budget::POD_EVENT_COALESCING;
use nm_shared::cluster::pod::{self, DrainPod};
use nm_shared::drain::virtual_machine::{self, NODE_LABEL, VirtualMachineInstance};
use serde::de::DeserializeOwned;
use tokio::sync::{Semaphore, watch};
use tracing::warn;

use crate::cache::leader_state::{LeaderState, ListForbidden, ListState, NodeWatch};
use crate::cache::triggers::Triggers;
use crate::client::discovery::KubevirtDiscovery;
use crate::runtime::tasks::TaskSpawner;
use crate::watch::watch_stream::{
    WatchUpdate, drop_managed_fields, run_watch, watch_stream, with_list_permits,
};

/// Starts the watches of nodes in maintenance. [`LeaderState`] keeps them and ends them.
pub(crate) struct NodeWatches {
    client: Client,
    triggers: Triggers,
    tasks: TaskSpawner,
    state: Arc<LeaderState>,
    kubevirt: KubevirtDiscovery,
    list_permits: Arc<Semaphore>,
}

/// How many nodes' pods are listed at once. A list of a hundred pods is up to a MiB of JSON.
const MAX_CONCURRENT_LISTS: usize = 8;

impl NodeWatches {
    /// No watch runs yet. Each change of a pod or virtual machine triggers the reconciles of its node.
    pub(crate) fn new(
        client: Client,
        triggers: Triggers,
        tasks: TaskSpawner,
        state: Arc<LeaderState>,
    ) -> Self {
        let kubevirt = KubevirtDiscovery::new(client.clone(), triggers.clone(), tasks.clone());
        let list_permits = Arc::new(Semaphore::new(MAX_CONCURRENT_LISTS));
        Self { client, triggers, tasks, state, kubevirt, list_permits }
    }

    /// The pods on `node`; none until they have been listed. The first call starts the watch.
    ///
    /// # Errors
    /// When the API server refuses to list them.
    pub(crate) fn pods(&self, node: &str) -> Result<Option<Vec<Arc<DrainPod>>>, ListForbidden> {
        self.state.node(node, |state| {
            let watch = state.pods.get_or_insert_with(|| {
                let config = watcher::Config::default().fields(&format!("spec.nodeName={node}"));
                self.start("pods", node, config, |_| ())
            });
            match &*watch.list_state.borrow() {
                ListState::NotListed => Ok(None),
                ListState::Listed => Ok(Some(watch.objects.state())),
                ListState::Forbidden(refusal) => Err(refusal.clone()),
            }
        })
    }

    /// The virtual machines on `node`, as far as they are known; none if its pods show that there are none.
    pub(crate) fn virtual_machines(
        &self,
        node: &str,
        pods: &[Arc<DrainPod>],
    ) -> Option<Vec<Arc<VirtualMachineInstance>>> {
        let launchers = pods.iter().filter(|pod| virtual_machine::run_by(pod).is_some());
        let launchers: HashSet<&str> = launchers.map(|pod| pod::uid(pod)).collect();
        if launchers.is_empty() {
            self.state.node(node, |state| state.virtual_machines = None);
            return None;
        }
        if !self.kubevirt.is_present(node, &launchers) {
            return None;
        }
        self.state.node(node, |state| {
            let watch = state.virtual_machines.get_or_insert_with(|| {
                let config = watcher::Config::default().labels(&format!("{NODE_LABEL}={node}"));
                self.start("virtualmachineinstances", node, config, |refusal| {
                    warn!(
                        "virtual machine migrations are reported without source, target and age: {refusal}"
                    );
                })
            });
            let is_listed = matches!(*watch.list_state.borrow(), ListState::Listed);
            is_listed.then(|| watch.objects.state())
        })
    }

    fn start<K>(
        &self,
        resource: &str,
        node: &str,
        config: watcher::Config,
        on_refusal: fn(&ListForbidden),
    ) -> NodeWatch<K>
    where
        K: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned + Send + Sync + 'static,
    {
        let (objects, writer) = reflector::store();
        let stream = watch_stream(Api::<K>::all(self.client.clone()), config);
        let stream =
            with_list_permits(stream, self.list_permits.clone()).modify(drop_managed_fields).reflect(writer);
        let (sender, list_state) = watch::channel(ListState::NotListed);
        let (triggers, node, mut changes) = (self.triggers.clone(), node.to_owned(), list_state.clone());
        let what = format!("{resource} on {node}");
        let task = self.tasks.spawn_scoped(format!("the watch on {what}"), async move {
            let watch = run_watch(&what, None, stream, |update| {
                sender.send_replace(match update {
                    WatchUpdate::Changed(_) | WatchUpdate::Listed => ListState::Listed,
                    WatchUpdate::Interrupted => return,
                    WatchUpdate::Forbidden(refusal) => {
                        on_refusal(&refusal);
                        ListState::Forbidden(refusal)
                    }
                });
            });
            let trigger = async {
                while changes.changed().await.is_ok() {
                    tokio::time::sleep(POD_EVENT_COALESCING).await;
                    changes.mark_unchanged();
                    triggers.node(&node);
                }
            };
            tokio::join!(watch, trigger);
        });
        NodeWatch { objects, list_state, _task: task }
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;
    use std::time::Duration;

    use axum::body::Body;
    use futures::{StreamExt, stream};
    use kube::runtime::reflector::store::Writer;
    use nm_shared::{Group, GroupedMaintenance};
    use serde_json::json;
    use tokio::time::{Instant, sleep};

    use super::*;
    use crate::runtime::tasks::TaskSpawner;

    /// An API server with no pods at first, and a new one after each of these delays, in milliseconds.
    fn server(delays: &'static [u64]) -> Client {
        let server = tower::service_fn(move |request: http::Request<kube::client::Body>| async move {
            if !request.uri().query().unwrap_or_default().contains("watch=true") {
                let list = json!({"kind": "PodList", "metadata": {"resourceVersion": "7"}, "items": []});
                return Ok::<_, Infallible>(http::Response::new(Body::from(list.to_string())));
            }
            let events = stream::iter(delays.iter().enumerate()).then(|(number, delay)| async move {
                sleep(Duration::from_millis(*delay)).await;
                let pod = json!({"metadata": {"namespace": "ns", "name": format!("p-{number}"), "resourceVersion": "8"}});
                Ok::<_, Infallible>(format!("{}\n", json!({"type": "ADDED", "object": pod})))
            });
            Ok(http::Response::new(Body::from_stream(events.chain(stream::pending()))))
        });
        Client::new(server, "default")
    }

    #[tokio::test(start_paused = true)]
    async fn pod_events_that_arrive_together_trigger_one_reconcile() {
        let mut writer = Writer::new(Group::Medik8s);
        let maintenance = json!({"apiVersion": "nodemaintenance.medik8s.io/v1beta1", "metadata": {"name": "m"},
            "spec": {"nodeName": "n"}});
        let maintenance: GroupedMaintenance = serde_json::from_value(maintenance).unwrap();
        let state = Arc::new(LeaderState::new([(Group::Medik8s, writer.as_reader())]));
        writer.apply_watcher_event(&watcher::Event::Apply(maintenance.clone()));
        state.index(Arc::new(maintenance));
        let (triggers, [mut triggered, ..]) = Triggers::new(state.clone());
        let began = Instant::now();
        let client = server(&[1_000, 5, 5, 5, 1_000]);
        let watches = NodeWatches::new(client, triggers, TaskSpawner::new().0, state);
        assert_eq!(watches.pods("n"), Ok(None));
        for (after, count) in [(0, 0), (1_000, 4), (2_015, 5)] {
            triggered.next().await.unwrap();
            let pods = watches.pods("n").unwrap().expect("they are listed");
            let triggered_after = began.elapsed().saturating_sub(POD_EVENT_COALESCING).as_millis();
            // Timers of a paused clock advance by whole milliseconds, and some follow each other.
            assert!((after..after + 5).contains(&triggered_after), "{triggered_after} ms for {count}");
            assert_eq!(pods.len(), count);
        }
    }
}
