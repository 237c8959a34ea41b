//! The floor: what no program that sees a cluster from outside can be much faster than.
//!
//! It does nothing but evict, and see the pods end by the cheapest watch there is: one on each node's pods that tells
//! their metadata only. The nodes are cordoned, 64 connections are open and the pods are listed before the clock starts;
//! where nothing stands in the way all evictions are posted at once. With budgets it looks into the sandbox's own memory,
//! and posts a pod's eviction in the moment in which its budget allows one more: it never asks in vain.

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

use crate::ends::Ends;
use crate::run::{Run, Stopwatch};
use crate::scenario::{Ground, Pod, set_unschedulable};

const CONNECTIONS: usize = 64;
const AGENT: &str = "floor";

type Asks = mpsc::UnboundedSender<Pod>;
type Answers = mpsc::UnboundedReceiver<(Pod, bool)>;

/// Drains the nodes of `ground`.
pub(crate) async fn drain(ground: &Ground, budgets: bool, limit: Duration) -> Run {
    set_unschedulable(&ground.cluster, &ground.nodes, true).await;
    let (asks, answers) = connect(ground).await;
    let ends = Ends::watch(client(ground).await, ground).await;
    let watch = Stopwatch::start(ground);
    let post = async {
        if budgets {
            post_as_allowed(ground, &asks, answers).await;
        } else {
            for pod in &ground.pods {
                asks.send(pod.clone()).unwrap();
            }
            // What is answered is the witness's to say; here it is only kept open.
            std::future::pending::<()>().await;
            drop(answers);
        }
    };
    let see = async {
        let seen = ends.all(watch.left_of(limit)).await;
        (seen, watch.witness.until(watch.left_of(limit), |sight| sight.all_gone.is_some()).await)
    };
    let (seen, sight) = tokio::select! {
        both = see => both,
        () = async { post.await; std::future::pending::<()>().await } => unreachable!("it is pending"),
    };
    let mut run = watch.stop(ground, AGENT, sight);
    run.told = seen.map(|at| at - watch.began);
    run
}

/// Opens the connections: each evicts one pod after another.
async fn connect(ground: &Ground) -> (Asks, Answers) {
    let (asks, asked) = mpsc::unbounded_channel::<Pod>();
    let (tell, answers) = mpsc::unbounded_channel();
    let asked = Arc::new(Mutex::new(asked));
    for _ in 0..CONNECTIONS {
        let client = client(ground).await;
        client.apiserver_version().await.unwrap();
        let (asked, tell) = (asked.clone(), tell.clone());
        tokio::spawn(async move {
            loop {
                let next = asked.lock().await.recv().await;
                let Some(pod) = next else { return };
                let pods: Api<core::Pod> = Api::namespaced(client.clone(), &pod.namespace);
                let accepted = pods.evict(&pod.name, &EvictParams::default()).await.is_ok();
                // Nobody listens when the drain is over.
                let _ = tell.send((pod, accepted));
            }
        });
    }
    (asks, answers)
}

/// A client of its own has a connection of its own.
async fn client(ground: &Ground) -> Client {
    let kubeconfig = Kubeconfig::read_from(ground.cluster.kubeconfig()).unwrap();
    let mut config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await.unwrap();
    config.default_retry = false;
    config.headers.push(("user-agent".parse().unwrap(), AGENT.parse().unwrap()));
    Client::try_from(config).unwrap()
}

/// The pods of each budget, and how many of them are being asked.
#[derive(Default)]
struct Line {
    waiting: Vec<Pod>,
    asked: usize,
}

/// Posts evictions as budgets allow them, until none waits.
async fn post_as_allowed(ground: &Ground, asks: &Asks, mut answers: Answers) {
    let mut lines: HashMap<Key, Line> = HashMap::new();
    for pod in &ground.pods {
        lines.entry(Key::new(&*pod.namespace, &*pod.app)).or_default().waiting.push(pod.clone());
    }
    let store = &ground.cluster.sandbox().unwrap().cluster().store;
    let mut wake = store.subscribe();
    let mut seen = store.read(State::revision);
    let mut changed: HashSet<Key> = lines.keys().cloned().collect();
    while lines.values().any(|line| !line.waiting.is_empty() || line.asked > 0) {
        for key in changed.drain() {
            let Some(line) = lines.get_mut(&key) else { continue };
            let budget = store.read(|state| state.get(&BUDGETS, &key));
            let allowed =
                budget.and_then(|budget| budget["status"]["disruptionsAllowed"].as_u64()).unwrap_or(0);
            // Those that are under way may be counted already or not.
            let free = usize::try_from(allowed).unwrap_or(usize::MAX).saturating_sub(line.asked);
            for pod in line.waiting.drain(..free.min(line.waiting.len())) {
                line.asked += 1;
                asks.send(pod).unwrap();
            }
        }
        tokio::select! {
            answer = answers.recv() => {
                let Some((pod, accepted)) = answer else { return };
                let key = Key::new(&*pod.namespace, &*pod.app);
                let Some(line) = lines.get_mut(&key) else { continue };
                line.asked -= 1;
                if !accepted {
                    line.waiting.push(pod);
                }
                changed.insert(key);
            }
            grown = wake.changed() => {
                if grown.is_err() {
                    return;
                }
                store.read(|state| {
                    let news = state.changes_since(&BUDGETS, seen).expect("the floor keeps up");
                    changed.extend(news.filter_map(|change| change.after).map(|budget| Key::of(&budget)));
                    seen = state.revision();
                });
            }
        }
    }
}
