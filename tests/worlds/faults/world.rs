//! The world of one life: a sandbox, replicas of the reconciler and the person who runs the cluster, on paused time.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use http::Method;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::Node;
use kube_sandbox::faults::{Action, Rule, RuleId, Target};
use kube_sandbox::request_log::Entry;
use kube_sandbox::resource::{NODES, PODS};
use kube_sandbox::sandbox::{Options, Sandbox};
use kube_sandbox::store::{Collection, Key, State};
use kube_sandbox::workload::{App, seed_namespace};
use nm_reconciler::in_process::Clock;
use nm_shared::NodeMaintenance;
use nm_shared::api::names::LEASE_NAMESPACE;
use nm_tests::invariants::NodeMarks;
use nm_tests::manifests;
use serde_json::{Value, json};

use crate::history::Recorder;
use crate::person::Person;
use crate::replica::{Replica, Report, Surroundings, Writes};

/// The maintenances of the group that is installed.
pub(crate) const MAINTENANCES: Collection =
    Collection::fixed("nodemaintenance.medik8s.io", "nodemaintenances");

/// Their path.
pub(crate) const PATH: &str = "/apis/nodemaintenance.medik8s.io/v1beta1/nodemaintenances";

/// How long a request takes to reach the API server, and its answer to return.
const LATENCY: Duration = Duration::from_millis(4);

/// What a step of a life fails with.
pub(crate) type Done = Result<(), String>;

/// A cluster of so many nodes, and what its replicas are started with.
#[derive(Debug, Clone)]
pub(crate) struct Setup {
    pub(crate) nodes: usize,
    pub(crate) flags: &'static [&'static str],
    /// No life needs as many requests of one replica; more are an endless loop.
    pub(crate) max_requests: usize,
    /// How long virtual machines take to migrate, if there is KubeVirt.
    pub(crate) kubevirt: Option<Duration>,
}

impl Default for Setup {
    fn default() -> Self {
        Self { nodes: 2, flags: &[], max_requests: 20_000, kubevirt: None }
    }
}

/// A step of a life, and when it began.
#[derive(Debug, Clone)]
pub(crate) struct Step {
    pub(crate) name: String,
    pub(crate) began: Timestamp,
}

/// Called when a step begins.
pub(crate) type StepHook = Box<dyn Fn(&Arc<World>, &str) + Send + Sync>;

pub(crate) struct World {
    pub(crate) sandbox: Sandbox,
    pub(crate) writes: Writes,
    pub(crate) recorder: Recorder,
    setup: Setup,
    /// The longest wait of a life. Paused time passes at once.
    timeout: Duration,
    replica: Mutex<Option<Replica>>,
    started: AtomicU64,
    steps: Mutex<Vec<Step>>,
    hook: StepHook,
    /// By how many seconds the clock of each replica is ahead, by its number; of all others that of 0.
    skews: Mutex<BTreeMap<u64, Arc<AtomicI64>>>,
    /// Whether a clock of the reconciler was wrong at any time.
    pub(crate) wrong_clocks: AtomicBool,
    before: Mutex<BTreeMap<String, NodeMarks>>,
    failures: Arc<Mutex<Vec<String>>>,
    met: AtomicUsize,
    pub(crate) person: Person,
}

impl World {
    /// A cluster without workload and without a reconciler.
    pub(crate) async fn new(setup: Setup, timeout: Duration, hook: StepHook) -> Arc<Self> {
        let (start_delay, stop_delay) = (Duration::from_millis(200), Duration::from_millis(1500));
        let options = Options { nodes: setup.nodes, pods: 0, start_delay, stop_delay, ..Options::default() };
        let mut sandbox = Sandbox::start(options).await.unwrap();
        if let Some(migration) = setup.kubevirt {
            sandbox = sandbox.with_kubevirt(migration).unwrap();
        }
        sandbox.install_crd(manifests::read("crd.yaml")).unwrap();
        seed_namespace(sandbox.cluster(), LEASE_NAMESPACE).unwrap();
        // Requests take time, so that others come in between.
        for action in [Action::Delay(LATENCY), Action::DelayAnswer(LATENCY)] {
            sandbox.faults().add(Rule::new(Self::by_reconciler(), action));
        }
        let recorder = Recorder::start(sandbox.cluster());
        Arc::new(Self {
            sandbox,
            writes: Writes::default(),
            recorder,
            setup,
            timeout,
            replica: Mutex::default(),
            started: AtomicU64::new(0),
            steps: Mutex::default(),
            hook,
            skews: Mutex::default(),
            wrong_clocks: AtomicBool::default(),
            before: Mutex::default(),
            failures: Arc::default(),
            met: AtomicUsize::new(0),
            person: Person::default(),
        })
    }

    pub(crate) fn now(&self) -> Timestamp {
        self.sandbox.cluster().clock.now()
    }

    pub(crate) fn read<R>(&self, look: impl FnOnce(&State) -> R) -> R {
        self.sandbox.cluster().store.read(look)
    }

    /// What failed beside the steps of the life.
    pub(crate) fn failures(&self) -> Vec<String> {
        self.failures.lock().unwrap().clone()
    }

    /// Counts a fault that met a request.
    pub(crate) fn met(&self) {
        self.met.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn points_met(&self) -> usize {
        self.met.load(Ordering::Relaxed)
    }

    /// The steps and the requests of the reconciler, as text.
    pub(crate) fn log(&self) -> String {
        let began = self.steps().first().map_or_else(|| self.now(), |step| step.began);
        let at = |time: Timestamp| time.duration_since(began).as_secs_f64();
        let steps = self.steps().into_iter().map(|step| (at(step.began), format!("== {}", step.name)));
        let is_told = |entry: &Entry| entry.verb != "watch" || entry.code != 200;
        let requests = self.requests().into_iter().filter(is_told).map(|entry| {
            let replica =
                entry.user_agent.rsplit('-').next().unwrap_or_default().trim_end_matches(')').to_owned();
            let Entry { verb, resource, subresource, name, code, took, .. } = &entry;
            (
                at(entry.at),
                format!("replica {replica} {verb} {resource} {subresource} {name} {code} {took:?}"),
            )
        });
        let mut lines: Vec<(f64, String)> = steps.chain(requests).filter(|(at, _)| *at >= 0.0).collect();
        lines.sort_by(|one, other| one.0.total_cmp(&other.0));
        lines.into_iter().map(|(at, line)| format!("    {at:9.3} {line}")).collect::<Vec<_>>().join("\n")
    }

    pub(crate) fn steps(&self) -> Vec<Step> {
        self.steps.lock().unwrap().clone()
    }

    /// The marks on each node before its first maintenance.
    pub(crate) fn before(&self) -> BTreeMap<String, NodeMarks> {
        self.before.lock().unwrap().clone()
    }

    /// The requests of the reconciler.
    pub(crate) fn requests(&self) -> Vec<Entry> {
        let all = self.sandbox.requests().all();
        all.into_iter().filter(|entry| entry.user_agent.starts_with("nm-reconciler/")).collect()
    }

    /// All requests of the reconciler, as a target for faults.
    pub(crate) fn by_reconciler() -> Target {
        Target::any().user_agent("nm-reconciler/*")
    }

    pub(crate) fn add_rule(&self, rule: Rule) -> RuleId {
        self.sandbox.faults().add(rule)
    }

    /// Begins a step. The first one starts the reconciler; what the nodes are then is what they have to be in the end.
    pub(crate) fn step(self: &Arc<Self>, name: &str) {
        let is_first = {
            let mut steps = self.steps.lock().unwrap();
            steps.push(Step { name: name.to_owned(), began: self.now() });
            steps.len() == 1
        };
        if is_first {
            *self.before.lock().unwrap() = self.marks();
        }
        (self.hook)(self, name);
        if is_first {
            self.start_replica();
        }
    }

    fn marks(&self) -> BTreeMap<String, NodeMarks> {
        let nodes: Vec<Value> =
            self.read(|state| state.list(&NODES, None).map(|node| Value::clone(&node)).collect());
        let nodes = nodes.into_iter().map(|node| serde_json::from_value::<Node>(node).unwrap());
        nodes.map(|node| (node.metadata.name.clone().unwrap(), NodeMarks::of(&node))).collect()
    }

    /// Starts a replica that leads; an earlier one is killed.
    pub(crate) fn start_replica(self: &Arc<Self>) {
        drop(self.swap_replica(true));
    }

    /// Kills the replica.
    pub(crate) fn kill_replica(self: &Arc<Self>) {
        drop(self.swap_replica(false));
    }

    /// Replaces the replica by a new one, or by none, and returns the old one, which still runs.
    pub(crate) fn swap_replica(self: &Arc<Self>, start: bool) -> Option<Replica> {
        let mut current = self.replica.lock().unwrap();
        let old = current.take();
        if let Some(old) = &old {
            old.lose_leadership();
        }
        *current = start.then(|| self.new_replica());
        old
    }

    /// The number of the replica that was started last.
    pub(crate) fn last_replica(&self) -> u64 {
        self.started.load(Ordering::Relaxed)
    }

    /// By how many seconds the clock of a replica is ahead of the others.
    pub(crate) fn skew(&self, replica: u64) -> Arc<AtomicI64> {
        self.skews.lock().unwrap().entry(replica).or_default().clone()
    }

    fn new_replica(self: &Arc<Self>) -> Replica {
        let number = self.started.fetch_add(1, Ordering::Relaxed) + 1;
        let (clock, skew) = (self.sandbox.cluster().clock, self.skew(number));
        let failures = self.failures.clone();
        let report: Report = Arc::new(move |failure| failures.lock().unwrap().push(failure));
        let world = Arc::downgrade(self);
        let context = move |_: &Method, path: &str| {
            world.upgrade().map(|world| world.context(path)).unwrap_or_default()
        };
        Replica::start(Surroundings {
            number,
            server: self.sandbox.service(),
            flags: self.setup.flags,
            max_requests: self.setup.max_requests,
            clock: Clock::new(move || clock.now() + SignedDuration::from_secs(skew.load(Ordering::Relaxed))),
            now: Arc::new(move || clock.now()),
            context: Arc::new(context),
            writes: self.writes.clone(),
            report,
        })
    }

    /// What a removal of a pod is judged by: the pod, its node, and the node's maintenances when it is sent.
    fn context(&self, path: &str) -> Value {
        let parts: Vec<&str> = path.split('/').collect();
        let Some(at) = parts.iter().position(|part| *part == "pods") else { return Value::Null };
        let (namespace, name) = (parts[at - 1], parts[at + 1]);
        self.read(|state| {
            let Some(pod) = state.get(&PODS, &Key::new(namespace, name)) else { return Value::Null };
            let node = pod["spec"]["nodeName"].as_str().unwrap_or_default();
            let of_node =
                || state.list(&MAINTENANCES, None).filter(|object| object["spec"]["nodeName"] == node);
            let maintenances: Vec<Value> = of_node().map(|object| object["metadata"].clone()).collect();
            let has_status =
                self.has_restored() || of_node().any(|object| object["status"]["phase"].is_string());
            let node = state.get(&NODES, &Key::cluster(node)).map(|node| Value::clone(&node));
            json!({
                "pod": pod["metadata"]["uid"], "node": node, "maintenances": maintenances, "hasStatus": has_status,
            })
        })
    }

    /// Lets time pass.
    pub(crate) async fn pass(&self, seconds: u64) {
        tokio::time::sleep(Duration::from_secs(seconds)).await;
    }

    /// Waits until a condition holds.
    pub(crate) async fn until(&self, what: &str, holds: impl Fn(&State) -> bool) -> Done {
        let mut changes = self.sandbox.cluster().store.subscribe();
        let reached = async {
            loop {
                changes.borrow_and_update();
                if self.read(&holds) {
                    return;
                }
                let _ = changes.changed().await;
            }
        };
        match tokio::time::timeout(self.timeout, reached).await {
            Ok(()) => Ok(()),
            Err(_) => Err(format!("not within {:?}: {what}; {}", self.timeout, self.summary())),
        }
    }

    /// The maintenances, the marks of the nodes and their pods.
    fn summary(&self) -> String {
        self.read(|state| {
            let maintenances: Vec<Value> = state
                .list(&MAINTENANCES, None)
                .map(|one| {
                    json!({"name": one["metadata"]["name"], "status": one["status"],
                    "deleted": one["metadata"]["deletionTimestamp"]})
                })
                .collect();
            let nodes: Vec<Value> = state
                .list(&NODES, None)
                .map(|node| json!([node["metadata"]["name"], node["spec"], node["metadata"]["annotations"]]))
                .collect();
            let pods: Vec<Value> = state
                .list(&PODS, None)
                .map(|pod| {
                    json!([
                        pod["metadata"]["name"],
                        pod["spec"]["nodeName"],
                        pod["metadata"]["deletionTimestamp"]
                    ])
                })
                .collect();
            json!({"maintenances": maintenances, "nodes": nodes, "pods": pods}).to_string()
        })
    }

    /// Waits until the maintenance satisfies a condition.
    pub(crate) async fn until_maintenance(
        &self,
        name: &str,
        what: &str,
        holds: impl Fn(&NodeMaintenance) -> bool,
    ) -> Done {
        self.until(&format!("{name} {what}"), |state| {
            let found = state.get(&MAINTENANCES, &Key::cluster(name));
            found.is_some_and(|found| holds(&serde_json::from_value(Value::clone(&found)).unwrap()))
        })
        .await
    }

    pub(crate) async fn until_phase(&self, name: &str, phase: &str) -> Done {
        self.until(&format!("{name} is {phase}"), |state| {
            state
                .get(&MAINTENANCES, &Key::cluster(name))
                .is_some_and(|found| found["status"]["phase"] == phase)
        })
        .await
    }

    pub(crate) async fn until_blocked(&self, name: &str) -> Done {
        let is_blocked = |maintenance: &NodeMaintenance| {
            maintenance.status.as_ref().is_some_and(|status| !status.blocked_pods.is_empty())
        };
        self.until_maintenance(name, "is blocked", is_blocked).await
    }

    /// Waits until the node has all marks of a maintenance.
    pub(crate) async fn until_marked(&self, node: &str) -> Done {
        self.until(&format!("{node} has all marks"), |state| {
            let node: Option<Node> = state
                .get(&NODES, &Key::cluster(node))
                .map(|node| serde_json::from_value(Value::clone(&node)).unwrap());
            node.is_some_and(|node| {
                nm_shared::drain::node_patch::is_cordoned(&node, nm_shared::Group::Medik8s)
            })
        })
        .await
    }

    pub(crate) async fn until_gone(&self, name: &str) -> Done {
        self.until(&format!("{name} is gone"), |state| {
            state.get(&MAINTENANCES, &Key::cluster(name)).is_none()
        })
        .await
    }

    /// Runs an app whose pods all start on `node`.
    pub(crate) async fn run_on(&self, node: &str, app: &App) {
        let others: Vec<String> = self.read(|state| {
            let names = state.list(&NODES, None).map(|node| Key::of(&node).name);
            names.filter(|name| name != node).collect()
        });
        self.set_unschedulable(&others, json!(true)).await;
        let before = self.read(ready_pods);
        app.create(self.sandbox.cluster()).unwrap();
        let wanted = before + app.pods(1);
        self.until("the pods are ready", |state| ready_pods(state) >= wanted).await.unwrap();
        self.set_unschedulable(&others, Value::Null).await;
    }

    async fn set_unschedulable(&self, nodes: &[String], value: Value) {
        for node in nodes {
            self.patch(&format!("/api/v1/nodes/{node}"), json!({"spec": {"unschedulable": value}})).await;
        }
        // The sandbox marks them with a taint a moment later.
        self.pass(1).await;
    }
}

fn ready_pods(state: &State) -> usize {
    let is_ready = |pod: &Value| {
        let conditions = pod["status"]["conditions"].as_array();
        conditions.into_iter().flatten().any(|one| one["type"] == "Ready" && one["status"] == "True")
    };
    state.list(&PODS, None).filter(|pod| is_ready(pod)).count()
}
