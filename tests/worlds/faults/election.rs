//! Faults at the requests of the leader election, learned from the request log as those of a maintenance's life are.
//!
//! kube-lease-manager reads the system's clock, by which no lease expires on paused time. So the replicas are the built
//! program, and the lives run in real time, many at once. In each, a maintenance is under way while a leader is found,
//! renews its lease, hands it over and is killed.

use std::any::Any;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use futures::StreamExt;
use futures::stream;
use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use kube_sandbox::faults::{Rule, RuleId, When};
use kube_sandbox::request_log::Entry;
use kube_sandbox::resource::LEASES;
use kube_sandbox::store::Change;
use nm_shared::cluster::leader_lease;
use nm_tests::cluster::Cluster;
use nm_tests::invariants::{NodeMarks, TimedRequest, node_is_as_before, one_removal_at_a_time, one_writer};
use nm_tests::leader_election::{SHORT_LEASE, leader_leases, sandbox};
use nm_tests::maintenance::{start, stop, until_drained, until_status};
use nm_tests::manifests;
use nm_tests::reconciler::Reconciler;
use nm_tests::requests::{by_reconciler, evictions, is_by, is_by_reconciler, is_write, user_agent};
use nm_tests::wait::wait_until;
use nm_tests::workload::Workload;
use serde_json::json;

use crate::point::{Fault, Place, Point, RequestKind};
use crate::sample::{FILTER, is_long, selected};

/// How many lives run at once. They mostly wait.
const CONCURRENT: usize = 8;

/// How many lives the short form has.
const SHORT_RUNS: usize = 36;

/// How long a replica is frozen if no other one takes the lease.
const LONGEST_FREEZE: Duration = Duration::from_secs(15);

const MAINTENANCE: &str = "election";

/// How often each kind of request was sent in each step, by the replica that sent the most.
type Requests = BTreeMap<(String, RequestKind), u64>;

struct Election {
    cluster: Cluster,
    namespace: String,
    replicas: Mutex<BTreeMap<u32, Reconciler>>,
    steps: Mutex<Vec<(&'static str, Timestamp)>>,
    point: Option<Point>,
    is_met: AtomicBool,
    /// One for each replica, until the first is played.
    rules: Mutex<Vec<RuleId>>,
    leases: Arc<Mutex<Vec<Lease>>>,
}

impl Election {
    async fn new(point: Option<Point>) -> Arc<Self> {
        let cluster = Cluster::of_sandbox(1, 0, |sandbox| sandbox).await;
        let namespace = manifests::service_account().metadata.namespace.unwrap();
        let leases = record_leases(&cluster, &namespace);
        Arc::new(Self {
            cluster,
            namespace,
            replicas: Mutex::default(),
            steps: Mutex::default(),
            point,
            is_met: AtomicBool::new(false),
            rules: Mutex::default(),
            leases,
        })
    }

    /// Begins a step. The fault of the life is armed for each replica in its step.
    fn step(self: &Arc<Self>, name: &'static str) {
        self.steps.lock().unwrap().push((name, Timestamp::now()));
        let pids: Vec<u32> = self.replicas.lock().unwrap().keys().copied().collect();
        for pid in pids {
            self.arm(pid);
        }
    }

    fn arm(self: &Arc<Self>, pid: u32) {
        let step = self.steps.lock().unwrap().last().map(|(name, _)| *name);
        let is_due =
            |point: &Point| step == Some(point.place.step.as_str()) && !self.is_met.load(Ordering::Relaxed);
        let Some(point) = self.point.clone().filter(is_due) else { return };
        let kind = &point.place.kind;
        let target = by_reconciler().user_agent(&user_agent(pid)).namespace(&self.namespace);
        let target = target.verb(kind.verb).group(&kind.group).resource(&kind.resource);
        let rule = Rule::new(target, point.fault.action()).when(When::Nth(point.place.nth));
        let rule = sandbox(&self.cluster).faults().add(rule);
        self.rules.lock().unwrap().push(rule);
        let election = Arc::clone(self);
        tokio::spawn(async move {
            let faults = sandbox(&election.cluster).faults();
            faults.until_played(rule).await;
            let was_met = faults.played(rule) == 0 || election.is_met.swap(true, Ordering::Relaxed);
            if !was_met {
                // The other replicas do not meet it as well.
                election.rules.lock().unwrap().drain(..).for_each(|rule| faults.remove(rule));
                election.follow(point.fault, pid).await;
            }
        });
    }

    /// What happens to the replica whose request met the fault.
    async fn follow(self: &Arc<Self>, fault: Fault, pid: u32) {
        if fault.kills() {
            self.kill(pid).await;
            self.start_replica();
        } else if fault.takes_leadership() {
            self.signal(pid, "STOP");
            let _ = tokio::time::timeout(LONGEST_FREEZE, self.until_led(Some(pid))).await;
            self.signal(pid, "CONT");
        }
    }

    fn start_replica(self: &Arc<Self>) {
        let replica = Reconciler::start_with(&self.cluster, SHORT_LEASE);
        let pid = replica.pid();
        self.replicas.lock().unwrap().insert(pid, replica);
        self.arm(pid);
    }

    fn signal(&self, pid: u32, name: &str) {
        if let Some(replica) = self.replicas.lock().unwrap().get(&pid) {
            replica.signal(name);
        }
    }

    async fn kill(&self, pid: u32) {
        let replica = self.replicas.lock().unwrap().remove(&pid);
        if let Some(replica) = replica {
            replica.crash().await;
        }
    }

    /// The replica that leads, other than this one.
    async fn until_led(&self, but: Option<u32>) -> u32 {
        let leader = |lease: Option<&Lease>| {
            let pid = holder(lease?.spec.as_ref()?)?;
            (Some(pid) != but && self.replicas.lock().unwrap().contains_key(&pid)).then_some(pid)
        };
        let leases = leader_leases(&self.cluster);
        let led = wait_until(&leases, leader_lease::NAME, "led by a replica that is there", |lease| {
            leader(lease).is_some()
        });
        leader(led.await.as_ref()).unwrap_or_default()
    }

    async fn live(self: &Arc<Self>) {
        let node = &self.cluster.nodes().await[0];
        let before = NodeMarks::of(&self.cluster.node(node).await);
        let workload = Workload::new(&self.cluster, MAINTENANCE).await;
        workload.pod_on(node, "one", json!({})).await;
        workload.pod_on(node, "cart", json!({})).await;
        workload.budget("cart", 1).await;

        self.step("begin");
        self.start_replica();
        self.start_replica();
        self.until_led(None).await;
        self.step("renew");
        start(&self.cluster, MAINTENANCE, node).await;
        let is_blocked = |status: &nm_shared::NodeMaintenanceStatus| !status.blocked_pods.is_empty();
        until_status(&self.cluster, MAINTENANCE, "blocked", is_blocked).await;
        for _ in 0..2 {
            self.until_renewed().await;
        }
        self.step("hand over");
        let leader = self.until_led(None).await;
        self.start_replica();
        self.signal(leader, "TERM");
        self.until_led(Some(leader)).await;
        self.step("expire");
        let leader = self.until_led(None).await;
        self.kill(leader).await;
        self.start_replica();
        self.until_led(Some(leader)).await;
        self.step("end");
        workload.delete_budget("cart").await;
        until_drained(&self.cluster, MAINTENANCE).await;
        stop(&self.cluster, MAINTENANCE).await;
        node_is_as_before(&self.cluster.node(node).await, &before).unwrap();
    }

    async fn until_renewed(&self) {
        let renewed = |lease: Option<&Lease>| lease?.spec.as_ref()?.renew_time.clone().map(|time| time.0);
        let leases = leader_leases(&self.cluster);
        let before = renewed(leases.get_opt(leader_lease::NAME).await.unwrap().as_ref());
        wait_until(&leases, leader_lease::NAME, "renewed", |lease| {
            renewed(lease).is_some_and(|time| Some(time) > before)
        })
        .await;
    }

    /// Every write but those of the election is of a replica that leads, and terms do not overlap.
    fn check_writes(&self) {
        let terms: Vec<LeaseSpec> =
            self.leases.lock().unwrap().iter().filter_map(|lease| lease.spec.clone()).collect();
        let pids: BTreeSet<u32> = terms.iter().filter_map(holder).collect();
        let all = sandbox(&self.cluster).requests().all();
        let writes = all.iter().filter(|entry| is_by_reconciler(entry) && is_write(entry));
        let writes: Vec<TimedRequest> = writes
            .filter(|entry| !self.is_of_election(entry))
            .map(|entry| {
                let ours = pids.iter().find(|pid| is_by(entry, **pid));
                let term = terms.iter().rev().find(|term| {
                    let acquired = term.acquire_time.as_ref().is_some_and(|time| time.0 <= entry.at);
                    acquired && holder(term).as_ref() == ours && ours.is_some()
                });
                let term = term.unwrap_or_else(|| panic!("written without leading: {entry:?}"));
                TimedRequest {
                    key: term.holder_identity.clone().unwrap_or_default(),
                    began: entry.at,
                    ended: entry.at + entry.took,
                }
            })
            .collect();
        assert!(!writes.is_empty(), "nothing was written");
        one_writer(&writes).unwrap();
    }

    /// No pod has two evictions in flight. The names of the pods are never used again.
    fn check_evictions(&self) {
        let evictions = evictions(sandbox(&self.cluster)).into_iter().map(|entry| TimedRequest {
            began: entry.at,
            ended: entry.at + entry.took,
            key: entry.name,
        });
        one_removal_at_a_time(&evictions.collect::<Vec<_>>()).unwrap();
    }

    fn is_of_election(&self, entry: &Entry) -> bool {
        entry.resource == LEASES.plural && entry.namespace == self.namespace
    }

    /// How often each kind of request of the election was sent in each step.
    fn learn(&self) -> Requests {
        let steps = self.steps.lock().unwrap().clone();
        let mut counts: BTreeMap<(String, RequestKind), BTreeMap<String, u64>> = BTreeMap::new();
        let all = sandbox(&self.cluster).requests().all();
        for entry in all.iter().filter(|entry| is_by_reconciler(entry) && self.is_of_election(entry)) {
            let step = steps.iter().rev().find(|(_, began)| *began <= entry.at);
            let step = step.map(|(name, _)| (*name).to_owned()).unwrap_or_default();
            let of_replica = counts.entry((step, RequestKind::from(entry))).or_default();
            *of_replica.entry(entry.user_agent.clone()).or_default() += 1;
        }
        let most = |of: BTreeMap<String, u64>| of.into_values().max().unwrap_or_default();
        counts.into_iter().map(|(place, of)| (place, most(of))).collect()
    }
}

/// Records every version of the leader's lease from now on.
fn record_leases(cluster: &Cluster, namespace: &str) -> Arc<Mutex<Vec<Lease>>> {
    let recorded: Arc<Mutex<Vec<Lease>>> = Arc::default();
    let (leases, namespace) = (recorded.clone(), namespace.to_owned());
    let cluster = sandbox(cluster).cluster().clone();
    let mut revisions = cluster.store.subscribe();
    let seen = AtomicU64::new(*revisions.borrow_and_update());
    tokio::spawn(async move {
        while revisions.changed().await.is_ok() {
            revisions.borrow_and_update();
            let new: Vec<Change> = cluster.store.read(|state| {
                let since = seen.swap(state.revision(), Ordering::Relaxed);
                state.changes_since(&LEASES, since).into_iter().flatten().collect()
            });
            let of_leader = new.into_iter().filter_map(|change| change.after).filter(|lease| {
                lease["metadata"]["namespace"] == namespace.as_str()
                    && lease["metadata"]["name"] == leader_lease::NAME
            });
            let of_leader = of_leader.map(|lease| serde_json::from_value((*lease).clone()).unwrap());
            leases.lock().unwrap().extend(of_leader);
        }
    });
    recorded
}

/// The process that holds the lease.
fn holder(spec: &LeaseSpec) -> Option<u32> {
    let (replica, _) = spec.holder_identity.as_ref()?.rsplit_once('_')?;
    replica.rsplit_once('-')?.1.parse().ok()
}

/// What a life has shown.
struct Outcome {
    name: String,
    is_met: bool,
    requests: Requests,
    violation: Option<String>,
}

async fn run(point: Option<Point>) -> Outcome {
    let name = name(point.as_ref());
    let election = Election::new(point).await;
    let lived = tokio::spawn({
        let election = election.clone();
        async move {
            election.live().await;
            election.check_writes();
            election.check_evictions();
        }
    });
    let violation = lived.await.err().map(|failure| message(failure.into_panic().as_ref()));
    let replicas = std::mem::take(&mut *election.replicas.lock().unwrap());
    drop(replicas);
    Outcome { name, is_met: election.is_met.load(Ordering::Relaxed), requests: election.learn(), violation }
}

fn message(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(ToString::to_string);
    text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_default()
}

fn name(point: Option<&Point>) -> String {
    point.map_or_else(|| String::from("election: without a fault"), |point| format!("election: {point}"))
}

/// Each fault at each kind of request in each step: at its first occurrence, or at all.
fn points(requests: &Requests, all: bool) -> Vec<(Fault, Point)> {
    let places = requests.iter().filter(|((step, _), _)| !step.is_empty());
    let places = places.flat_map(|((step, kind), count)| {
        (1..=if all { *count } else { 1 }).map(|nth| Place { step: step.clone(), kind: kind.clone(), nth })
    });
    places.flat_map(|place| Fault::ALL.map(|fault| (fault, Point { place: place.clone(), fault }))).collect()
}

#[test]
fn a_leader_is_found_and_alone_after_each_fault_at_each_request_of_the_election() {
    if std::env::var(FILTER).is_ok_and(|wanted| !wanted.starts_with("election")) {
        return;
    }
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(async {
        let began = Instant::now();
        let undisturbed = run(None).await;
        assert_eq!(undisturbed.violation, None);
        let all = points(&undisturbed.requests, is_long() || std::env::var_os(FILTER).is_some());
        let kinds: BTreeSet<&RequestKind> = undisturbed.requests.keys().map(|(_, kind)| kind).collect();
        let kinds: Vec<String> = kinds.into_iter().map(ToString::to_string).collect();
        let of = all.len();
        let chosen = selected(all, SHORT_RUNS, |point| name(Some(point)));
        let runs = stream::iter(chosen).map(|point| tokio::spawn(run(Some(point))));
        let outcomes: Vec<Outcome> =
            runs.buffer_unordered(CONCURRENT).map(|outcome| outcome.unwrap()).collect().await;
        let met = outcomes.iter().filter(|outcome| outcome.is_met).count();
        let took = began.elapsed();
        eprintln!(
            "election ({}): {} of {of} runs, {met} disturbed, in {took:.1?}",
            kinds.join(", "),
            outcomes.len()
        );
        let broken: Vec<&Outcome> = outcomes.iter().filter(|outcome| outcome.violation.is_some()).collect();
        for Outcome { name, violation, .. } in &broken {
            eprintln!("\n{name}\n  {}", violation.as_deref().unwrap_or_default());
            eprintln!("  replay: {FILTER}='{name}' cargo test -p nm-worlds --test faults");
        }
        assert!(broken.is_empty(), "{} runs violate an invariant", broken.len());
    });
}
