//! The watches on the pods and the virtual machines of one node, which run only while the node is in maintenance.
//!
//! A cluster without KubeVirt costs nothing extra: virtual machines are watched only while the node has pods with KubeVirt's
//! labels. Where such pods only look like it, because the cluster does not serve virtual machines, one list shows that.

use std::fmt::Debug;
use std::future::ready;
use std::sync::{Arc, Mutex, PoisonError};

use futures::{StreamExt, TryStreamExt};
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, Client, Resource};
use nm_shared::cluster::pod::{DrainPod, ReceivedPod};
use nm_shared::drain::eviction_outcome::AccessDenied;
use nm_shared::drain::virtual_machine::{self, NODE_LABEL, VirtualMachineInstance};
use serde::de::DeserializeOwned;
use tokio::sync::{Notify, Semaphore};
use tracing::warn;

use crate::cache::common_parts::CommonParts;
use crate::cache::nodes::{NodeState, NodeWatch};
use crate::cache::shared_state::SharedState;
use crate::cache::term_state::TermState;
use crate::cache::watched::{Keyed, ListState, WatchUpdate, Watched};
use crate::runtime::tasks::TaskSpawner;
use crate::watch::watch_stream::{
    coalesced, drop_managed_fields, is_served, map_object, run_watch, watch_stream, with_list_permits,
};

/// How many nodes' pods are listed at once. A list of a hundred pods is up to a MiB of JSON.
const MAX_CONCURRENT_LISTS: usize = 8;

/// Starts the watches of nodes in maintenance. [`TermState`] keeps them and ends them.
pub(crate) struct NodeWatches {
    client: Client,
    tasks: TaskSpawner,
    state: Arc<SharedState>,
    list_permits: Arc<Semaphore>,
    common: Arc<Mutex<CommonParts>>,
}

impl NodeWatches {
    /// No watch runs yet. Each change of a pod or virtual machine triggers the reconciles of its node.
    pub(crate) fn new(client: Client, tasks: TaskSpawner, state: Arc<SharedState>) -> Self {
        let list_permits = Arc::new(Semaphore::new(MAX_CONCURRENT_LISTS));
        Self { client, tasks, state, list_permits, common: Arc::default() }
    }

    /// The pods on `node`; none until they have been listed. The first call starts the watch.
    ///
    /// # Errors
    /// When the API server refuses to list them.
    pub(crate) fn pods(
        &self,
        state: &mut TermState,
        node: &str,
    ) -> Result<Option<Vec<Arc<DrainPod>>>, AccessDenied> {
        let watch = state.nodes.memory(node).pods.get_or_insert_with(|| {
            let config = watcher::Config::default().fields(&format!("spec.nodeName={node}"));
            let common = self.common.clone();
            let convert = move |ReceivedPod { mut pod, .. }: ReceivedPod| {
                common.lock().unwrap_or_else(PoisonError::into_inner).share(&mut pod);
                pod
            };
            self.start("pods", node, config, convert, |state| &mut state.pods, |_| ())
        });
        match &watch.objects.list_state {
            ListState::NotListed => Ok(None),
            ListState::Listed => Ok(Some(watch.objects.all())),
            ListState::Forbidden(refusal) => Err(refusal.clone()),
        }
    }

    /// The virtual machines on `node`, as far as they are known; none if its pods show that there are none.
    pub(crate) fn virtual_machines(
        &self,
        state: &mut TermState,
        node: &str,
        pods: &[Arc<DrainPod>],
    ) -> Option<Vec<Arc<VirtualMachineInstance>>> {
        if !pods.iter().any(|pod| virtual_machine::run_by(pod).is_some()) {
            state.nodes.memory(node).virtual_machines = None;
            return None;
        }
        let watch = state.nodes.memory(node).virtual_machines.get_or_insert_with(|| {
            let config = watcher::Config::default().labels(&format!("{NODE_LABEL}={node}"));
            self.start(
                "virtualmachineinstances",
                node,
                config,
                |machine| machine,
                |state| &mut state.virtual_machines,
                |refusal| {
                    warn!(
                        "virtual machine migrations are reported without source, target and age: {refusal}"
                    );
                },
            )
        });
        watch.objects.is_listed().then(|| watch.objects.all())
    }

    /// What the API server sends is converted to what is kept of it.
    fn start<W, K>(
        &self,
        resource: &str,
        node: &str,
        config: watcher::Config,
        convert: impl Fn(W) -> K + Send + 'static,
        watch_of: fn(&mut NodeState) -> &mut Option<NodeWatch<K>>,
        on_refusal: fn(&AccessDenied),
    ) -> NodeWatch<K>
    where
        W: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned + Send + Sync + 'static,
        K: Keyed + Send + Sync + 'static,
    {
        let stream = watch_stream(Api::<W>::all(self.client.clone()), config);
        let stream = with_list_permits(stream, self.list_permits.clone()).modify(drop_managed_fields);
        let stream = stream.take_while(|event| ready(event.as_ref().err().is_none_or(is_served)));
        let stream = stream.map_ok(move |event| map_object(event, &convert));
        let (state, node) = (self.state.clone(), node.to_owned());
        let what = format!("{resource} on {node}");
        let task = self.tasks.spawn_scoped(format!("the watch on {what}"), async move {
            let changed = Notify::new();
            let watch = run_watch(&what, None, stream, |update| {
                match &update {
                    WatchUpdate::Forbidden(refusal) => on_refusal(refusal),
                    WatchUpdate::Interrupted => return,
                    _ => {}
                }
                if let Some(watch) =
                    state.lock().nodes.remembered(&node).and_then(|node| watch_of(node).as_mut())
                {
                    watch.objects.apply(update);
                }
                changed.notify_one();
            });
            tokio::join!(watch, coalesced(&changed, || state.lock().trigger_node(&node)));
        });
        NodeWatch { objects: Watched::default(), _task: task }
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;
    use std::num::NonZeroUsize;
    use std::time::Duration;

    use axum::body::Body;
    use futures::stream;
    use nm_shared::GroupedMaintenance;
    use nm_shared::api::latency_budget::POD_EVENT_COALESCING;
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
        let maintenance = json!({"apiVersion": "nodemaintenance.medik8s.io/v1beta1", "metadata": {"name": "m"},
            "spec": {"nodeName": "n"}});
        let maintenance: GroupedMaintenance = serde_json::from_value(maintenance).unwrap();
        let (state, [(_, mut triggered), ..]) = SharedState::new([], NonZeroUsize::MIN);
        state.lock().maintenance_applied(Arc::new(maintenance));
        let began = Instant::now();
        let client = server(&[1_000, 5, 5, 5, 1_000]);
        let watches = NodeWatches::new(client, TaskSpawner::new().0, state.clone());
        let pods = || watches.pods(&mut state.lock(), "n");
        assert_eq!(pods(), Ok(None));
        for (after, count) in [(0, 0), (1_000, 4), (2_015, 5)] {
            triggered.next().await.unwrap();
            let pods = pods().unwrap().expect("they are listed");
            let triggered_after = began.elapsed().saturating_sub(POD_EVENT_COALESCING).as_millis();
            // Timers of a paused clock advance by whole milliseconds, and some follow each other.
            assert!((after..after + 5).contains(&triggered_after), "{triggered_after} ms for {count}");
            assert_eq!(pods.len(), count);
        }
    }
}
