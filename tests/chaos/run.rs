//! A run: harm by plan, then everything settles, then the history is checked.

use std::path::PathBuf;
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use nm_shared::SurgeObstacle;
use nm_tests::cluster::Cluster;
use nm_tests::fault_proxy::FaultProxy;
use nm_tests::programs::RunningCommand;
use nm_tests::requests::by_reconciler;
use nm_tests::wait::in_time;
use nm_tests::workload::Workload;
use tokio::task::JoinSet;

use crate::history::{History, Seen, leader, terms};
use crate::network::disturb;
use crate::node_story::{self, Story};
use crate::people::{People, create_apps};
use crate::plan::{Act, NODES, Victim};
use crate::replicas::Replicas;
use crate::report::Acts;
use crate::requests::{self, Sent, audited, evictions, surges, writes};
use crate::settings::Settings;
use crate::settled;
use crate::soak::Measured;

/// How long everything may take to settle after the harm. A connection that is silent counts as lost after 40 s, and
/// requests are retried within 10 s.
const SETTLE_TIMEOUT: Duration = Duration::from_secs(120);

/// How much later than at the proxy a request may arrive at the API server: as long as a pause and a delay take together.
const AUDIT_LATENESS: SignedDuration = SignedDuration::from_secs(8);

/// A pause of an API server takes at most this long, whatever the command says.
const PAUSE_TIMEOUT: Duration = Duration::from_secs(30);

/// A reboot takes at most this long, whatever the command says.
const REBOOT_TIMEOUT: Duration = Duration::from_secs(100);

/// Everything that takes part.
struct World {
    cluster: Cluster,
    sandbox: Option<RunningCommand>,
    proxy: FaultProxy,
    replicas: Replicas,
    history: History,
    people: People,
    acts: Acts,
    measured: Measured,
    pause: Option<String>,
    reboot: Option<String>,
    /// One machine is away at a time.
    rebooting: tokio::sync::Mutex<()>,
}

/// Runs, and prints what was done.
///
/// # Panics
/// On a violation, with the seed, the history and the command that does the same again.
pub(crate) async fn run(settings: &Settings) {
    let world = Arc::new(World::start(settings).await);
    let mut violations = world.do_harm(settings).await;
    violations.extend(world.settle().await);
    let (logs, of_replicas) = world.replicas.stop().await;
    violations.extend(of_replicas);
    let all = world.proxy.requests().all();
    let (sent, requests) = (writes(all.clone()), all.len());
    let story = {
        let seen = world.history.seen();
        let story = world.check_nodes(&seen);
        violations.extend(story.violations.iter().cloned());
        let resumed = world.people.resumed();
        let in_time: Vec<Sent> =
            sent.iter().filter(|sent| !world.replicas.was_on_its_way(sent)).cloned().collect();
        violations.extend(requests::check(&in_time, &seen, &resumed, SignedDuration::ZERO));
        if let Some(log) = &settings.audit {
            let arrived = writes(audited(log, world.cluster.since()));
            violations.extend(compare(&sent, &arrived));
            violations.extend(requests::check(&arrived, &seen, &resumed, AUDIT_LATENESS));
        }
        story
    };
    let left = world.people.clean_up().await;
    violations.extend(left.err().map(|error| format!("the nodes cannot be cleaned up: {error}")));
    let seen = world.history.seen();
    let folder = world.acts.write(settings.seed, &logs, &sent, &seen);
    if !violations.is_empty() {
        world.acts.fail(settings, &violations, &folder);
    }
    eprintln!(
        "seed {}: {} s, {} acts, {} replicas, {} terms, {requests} requests, {} writes, {} evictions, {} surges, \
         {} statuses with a stalled rollout, {} maintenances, {} times a node went into maintenance: no violation",
        settings.seed,
        settings.length.as_secs(),
        settings.acts().len(),
        logs.len(),
        terms(&seen).len(),
        sent.len(),
        evictions(&sent).count(),
        surges(&sent).count(),
        seen.statuses_with(SurgeObstacle::Stalled),
        seen.maintenances.all().count(),
        story.maintenances,
    );
}

/// Every write that the audit log has was sent by a replica of this run through the proxy.
fn compare(sent: &[Sent], arrived: &[Sent]) -> Vec<String> {
    let count = |all: &[Sent]| all.iter().filter(|one| (200..300).contains(&one.entry.code)).count();
    let (answered, done) = (count(sent), count(arrived));
    // Answers may be lost on the way.
    if answered <= done {
        return Vec::new();
    }
    vec![format!("the audit log has {done} successful writes of replicas, but {answered} were answered")]
}

impl World {
    async fn start(settings: &Settings) -> Self {
        let (kubeconfig, sandbox) = if let Some(kubeconfig) = settings.kubeconfig.clone() {
            (kubeconfig, None)
        } else {
            let nodes = NODES.to_string();
            let mut sandbox = RunningCommand::sandbox(&["--nodes", &nodes, "--pods", "0"]);
            // `export KUBECONFIG=FILE`
            let line = sandbox.line().await.unwrap();
            (PathBuf::from(line.split_once('=').unwrap().1.trim_matches('\'')), Some(sandbox))
        };
        let cluster = Cluster::of_kubeconfig(kubeconfig, NODES).await;
        settings.check_pause(&cluster);
        let nodes: Vec<String> = cluster.nodes().await.into_iter().take(NODES).collect();
        cluster.grant("surge").await;
        let workload = Workload::new(&cluster, "chaos").await;
        create_apps(&workload, &nodes).await;
        let history = History::start(&cluster, workload.pods()).await;
        let proxy = FaultProxy::start(cluster.kubeconfig()).await.unwrap();
        let kubeconfig = settings.replica_kubeconfig(&cluster);
        std::fs::write(&kubeconfig, proxy.kubeconfig_of(&kubeconfig)).unwrap();
        let replicas = Replicas::start(kubeconfig, settings.is_soak);
        let people = People::new(&cluster, workload, nodes);
        Self {
            cluster,
            sandbox,
            proxy,
            replicas,
            history,
            people,
            acts: Acts::begin(),
            measured: Measured::default(),
            pause: settings.pause.clone(),
            reboot: settings.reboot.clone(),
            rebooting: tokio::sync::Mutex::default(),
        }
    }

    /// Carries out the plan. Returns what broke on the way.
    async fn do_harm(self: &Arc<Self>, settings: &Settings) -> Vec<String> {
        let mut running = JoinSet::new();
        let began = tokio::time::Instant::now();
        let measuring = settings.is_soak.then(|| {
            let (world, since) = (self.clone(), began);
            tokio::spawn(async move { world.measured.measure(&world.replicas, since).await })
        });
        for (at, act) in settings.acts() {
            tokio::time::sleep_until(began + at).await;
            for pid in self.replicas.revive().await {
                self.acts.add(Timestamp::now(), format!("{pid} exited by itself, and was started again"));
            }
            let world = self.clone();
            running.spawn(async move {
                let at = Timestamp::now();
                let result = world.act(&act).await;
                world.acts.add(at, format!("{act:?}: {result}"));
            });
        }
        let mut violations = Vec::new();
        while let Some(ended) = in_time("all acts are over", running.join_next()).await {
            violations.extend(ended.err().map(|error| format!("an act failed: {error}")));
        }
        if let Some(measuring) = measuring {
            let has_failed = measuring.is_finished();
            measuring.abort();
            violations
                .extend(has_failed.then(|| String::from("what the replicas hold could not be measured")));
            violations.extend(self.measured.grown());
        }
        violations
    }

    async fn act(&self, act: &Act) -> String {
        match *act {
            Act::Replica { victim, harm, lasts } => match self.slot(victim) {
                Some(slot) => self.replicas.harm(slot, harm, lasts).await,
                None => "nobody leads".to_owned(),
            },
            Act::Network { victim: None, fault, requests, percent, lasts } => {
                disturb(&self.proxy, None, fault, requests, percent, lasts).await
            }
            Act::Network { victim: Some(victim), fault, requests, percent, lasts } => {
                match self.slot(victim).and_then(|slot| self.replicas.pid(slot)) {
                    Some(pid) => disturb(&self.proxy, Some(pid), fault, requests, percent, lasts).await,
                    None => "nobody leads, or the replica is harmed already".to_owned(),
                }
            }
            Act::PauseServer { lasts } => self.pause_server(lasts).await,
            Act::Reboot { node } => self.reboot(node).await,
            Act::Hand { node, hand } => self.people.hand(&self.history, node, hand).await,
            Act::Start { name, node, suspend, drain } => self.people.start(name, node, suspend, drain).await,
            Act::Stop { name } => self.people.stop(name).await,
            Act::Restart { name, node } => self.people.restart(&self.history, name, node).await,
            Act::Suspend { name, suspend } => self.people.suspend(name, suspend).await,
            Act::Budget { app, open } => self.people.set_budget(app, open).await,
            Act::Rollout { app, stalls } => self.people.set_rollout(app, stalls).await,
            Act::LatePod { node } => self.people.late_pod(node).await,
        }
    }

    fn slot(&self, victim: Victim) -> Option<usize> {
        match victim {
            Victim::Slot(slot) => Some(slot),
            Victim::Leader => self.replicas.slot_of(leader(&self.history.seen())?),
        }
    }

    async fn pause_server(&self, lasts: Duration) -> String {
        if let Some(sandbox) = &self.sandbox {
            sandbox.signal("STOP");
            tokio::time::sleep(lasts).await;
            sandbox.signal("CONT");
            return "paused".to_owned();
        }
        let Some(command) = &self.pause else { return "not allowed".to_owned() };
        run_shell(command, PAUSE_TIMEOUT).await
    }

    async fn reboot(&self, node: usize) -> String {
        let Ok(_one) = self.rebooting.try_lock() else { return "another one is away".to_owned() };
        let Some(command) = &self.reboot else { return "not allowed".to_owned() };
        run_shell(&command.replace("{}", self.people.node(node)), REBOOT_TIMEOUT).await
    }

    /// Ends the harm, and waits until everything is as the objects say: with the maintenances that are left, with none of
    /// them suspended, and without any.
    async fn settle(&self) -> Vec<String> {
        self.proxy.faults().clear();
        self.proxy.faults().end_watches(&by_reconciler(), 0);
        self.replicas.revive().await;
        self.people.open_all_budgets().await;
        self.people.end_all_rollouts().await;
        let mut violations = Vec::new();
        let mut note = |when: &str, result: Result<(), String>| {
            self.acts.add(Timestamp::now(), format!("== {when}: {result:?}"));
            violations.extend(result.err().map(|why| format!("{when}, after {SETTLE_TIMEOUT:?}: {why}")));
        };
        self.acts.add(Timestamp::now(), "== the harm is over".to_owned());
        note("after the harm", self.history.until(SETTLE_TIMEOUT, settled::maintenances).await);
        self.people.resume_all(&self.history).await;
        note("after all were resumed", self.history.until(SETTLE_TIMEOUT, settled::maintenances).await);
        self.people.stop_all(&self.history).await;
        let nothing_is_left = |seen: &Seen| {
            settled::nothing_is_left(seen)?;
            self.check_nodes(seen).in_maintenance.map_or(Ok(()), Err)
        };
        note("after all were deleted", self.history.until(SETTLE_TIMEOUT, nothing_is_left).await);
        violations
    }

    /// The stories of all nodes together.
    fn check_nodes(&self, seen: &Seen) -> Story {
        let versions = self.people.versions();
        let mut all = Story::default();
        for node in seen.nodes.all() {
            let story = node_story::check(node, &versions);
            all.maintenances += story.maintenances;
            all.in_maintenance = all.in_maintenance.or(story.in_maintenance);
            all.violations.extend(story.violations);
        }
        all
    }
}

/// Runs a command for so long. Returns how it ended.
async fn run_shell(command: &str, at_most: Duration) -> String {
    let mut shell = tokio::process::Command::new("sh");
    let running =
        shell.args(["-c", command]).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    match tokio::time::timeout(at_most, running.status()).await {
        Ok(Ok(status)) => status.to_string(),
        Ok(Err(error)) => error.to_string(),
        Err(_) => "timed out".to_owned(),
    }
}
