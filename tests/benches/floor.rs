//! The floor: a lower bound for the time that any client of the API server needs.
//!
//! It only sends evictions, and sees the deletions by the cheapest watch: one of the metadata of each node's pods. Before
//! the time starts, the nodes are cordoned, the connections are open (64, or `NM_DRAIN_FLOOR`) and the pods are listed. Without budgets all evictions are
//! sent at once. With budgets it reads them in the sandbox's memory, and sends an eviction as soon as the pod's budget allows
//! one more, so that none is refused.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1 as core;
use kube::api::EvictParams;
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Api, Client, Config};
use kube_sandbox::resource::BUDGETS;
use kube_sandbox::store::{Key, State};
use tokio::sync::{Mutex, mpsc};

use crate::pod_watch::PodWatch;
use crate::run::{Run, Stopwatch};
use crate::scenario::{Pod, PreparedCluster, number, set_unschedulable};

const CONNECTIONS: u64 = 64;
const AGENT: &str = "floor";
/// What the API server asks a throttled client to wait.
const RETRY_AFTER: Duration = Duration::from_secs(1);

type Requests = mpsc::UnboundedSender<Pod>;
type Responses = mpsc::UnboundedReceiver<(Pod, bool)>;

/// How many evictions are in progress at once.
pub(crate) fn connections() -> u64 {
    number("NM_DRAIN_FLOOR", CONNECTIONS)
}

/// Drains the nodes of `prepared`.
pub(crate) async fn drain(prepared: &PreparedCluster, budgets: bool, limit: Duration) -> Run {
    set_unschedulable(&prepared.cluster, &prepared.nodes, true).await;
    let (requests, responses) = connect(prepared).await;
    let pod_watch = PodWatch::start(client(prepared).await, prepared).await;
    let watch = Stopwatch::start(prepared).await;
    let send = async {
        if budgets {
            evict_as_allowed(prepared, &requests, responses).await;
        } else {
            for pod in &prepared.pods {
                requests.send(pod.clone()).unwrap();
            }
            // The observer sees the deletions; here the channel only stays open.
            std::future::pending::<()>().await;
            drop(responses);
        }
    };
    let see = async {
        let seen = pod_watch.all_deleted(watch.left_of(limit)).await;
        (seen, watch.observer.until(watch.left_of(limit), |observation| observation.all_gone.is_some()).await)
    };
    let (seen, observation) = tokio::select! {
        both = see => both,
        () = async { send.await; std::future::pending::<()>().await } => unreachable!("it is pending"),
    };
    let mut run = watch.stop(prepared, AGENT, observation);
    run.reported = seen.map(|at| at - watch.began);
    run
}

/// Opens the connections. Each sends one eviction after another.
async fn connect(prepared: &PreparedCluster) -> (Requests, Responses) {
    let (requests, queue) = mpsc::unbounded_channel::<Pod>();
    let (sender, responses) = mpsc::unbounded_channel();
    let queue = Arc::new(Mutex::new(queue));
    for _ in 0..connections() {
        let client = client(prepared).await;
        client.apiserver_version().await.unwrap();
        let (queue, sender, requests) = (queue.clone(), sender.clone(), requests.downgrade());
        tokio::spawn(async move {
            loop {
                let next = queue.lock().await.recv().await;
                let Some(pod) = next else { return };
                let pods: Api<core::Pod> = Api::namespaced(client.clone(), &pod.namespace);
                let answer = pods.evict(&pod.name, &EvictParams::default()).await;
                if is_throttled(&answer)
                    && let Some(requests) = requests.upgrade()
                {
                    // The connection does not wait for it.
                    tokio::spawn(async move {
                        tokio::time::sleep(RETRY_AFTER).await;
                        requests.send(pod).unwrap();
                    });
                    continue;
                }
                let accepted = answer.is_ok();
                // The receiver is gone after the drain.
                let _ = sender.send((pod, accepted));
            }
        });
    }
    (requests, responses)
}

/// Whether the API server throttles the client, in plain text. A budget's refusal has a cause.
fn is_throttled<T>(answer: &kube::Result<T>) -> bool {
    let Err(kube::Error::Api(status)) = answer else { return false };
    status.code == 429 && status.details.as_ref().is_none_or(|details| details.causes.is_empty())
}

/// Each client has a connection of its own.
async fn client(prepared: &PreparedCluster) -> Client {
    let kubeconfig = Kubeconfig::read_from(&prepared.route.kubeconfig).unwrap();
    let mut config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await.unwrap();
    config.default_retry = false;
    config.headers.push(("user-agent".parse().unwrap(), AGENT.parse().unwrap()));
    Client::try_from(config).unwrap()
}

/// The waiting pods of a budget, and how many evictions are in flight.
#[derive(Default)]
struct BudgetQueue {
    waiting: Vec<Pod>,
    in_flight: usize,
}

/// Sends evictions as budgets allow them, until no pod waits.
async fn evict_as_allowed(prepared: &PreparedCluster, requests: &Requests, mut responses: Responses) {
    let mut budget_queues: HashMap<Key, BudgetQueue> = HashMap::new();
    for pod in &prepared.pods {
        budget_queues.entry(Key::new(&*pod.namespace, &*pod.app)).or_default().waiting.push(pod.clone());
    }
    let store = &prepared.cluster.sandbox().unwrap().cluster().store;
    let mut wake = store.subscribe();
    let mut seen = store.read(State::revision);
    let mut changed: HashSet<Key> = budget_queues.keys().cloned().collect();
    while budget_queues.values().any(|queue| !queue.waiting.is_empty() || queue.in_flight > 0) {
        for key in changed.drain() {
            let Some(queue) = budget_queues.get_mut(&key) else { continue };
            let budget = store.read(|state| state.get(&BUDGETS, &key));
            let allowed =
                budget.and_then(|budget| budget["status"]["disruptionsAllowed"].as_u64()).unwrap_or(0);
            // The budget may or may not count the evictions in flight.
            let free = usize::try_from(allowed).unwrap_or(usize::MAX).saturating_sub(queue.in_flight);
            for pod in queue.waiting.drain(..free.min(queue.waiting.len())) {
                queue.in_flight += 1;
                requests.send(pod).unwrap();
            }
        }
        tokio::select! {
            response = responses.recv() => {
                let Some((pod, accepted)) = response else { return };
                let key = Key::new(&*pod.namespace, &*pod.app);
                let Some(queue) = budget_queues.get_mut(&key) else { continue };
                queue.in_flight -= 1;
                if !accepted {
                    queue.waiting.push(pod);
                }
                changed.insert(key);
            }
            grown = wake.changed() => {
                if grown.is_err() {
                    return;
                }
                store.read(|state| {
                    let updates = state.changes_since(&BUDGETS, seen).expect("the floor keeps up");
                    changed.extend(updates.filter_map(|change| change.after).map(|budget| Key::of(&budget)));
                    seen = state.revision();
                });
            }
        }
    }
}
