//! A life: what happens in it, the end of harm, and what is checked.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use jiff::SignedDuration;
use kube_sandbox::faults::{Action, Failure, Moment, Rule, When};
use kube_sandbox::resource::{NODES as NODE_OBJECTS, PODS};
use kube_sandbox::store::{Key, State};
use kube_sandbox::workload::{App as Workload, Kind};
use nm_shared::NodeMaintenance;
use nm_shared::api::names::{DRAIN_TAINT, EXCLUDE_LABEL, UNDO_ANNOTATION};
use nm_tests::invariants::{Violation, maintenance_has_settled};
use serde_json::{Value, json};

use crate::act::{Act, App, Drain, NODES, NodeChange, Step};
use crate::history::{Lateness, is_done, is_removal, node_of};
use crate::judge::judge;
use crate::paused::on_paused_time;
use crate::point::{Place, Point, RequestKind, learn};
use crate::view::Watched;
use crate::world::{MAINTENANCES, PATH, Setup, World};

/// How long everything may take to settle: a clock that is set back by an hour delays what waits for it by an hour.
const SETTLING_TIMEOUT: Duration = Duration::from_secs(3 * 3600);

/// After this all faults that last for a while are over.
const HARM: u64 = 45;

/// For how long a replica may act on what it saw before: it notices a silent watch after 40 s.
const LATENESS: Lateness = Lateness(SignedDuration::from_secs(120));

/// What a life has shown.
#[derive(Default)]
pub(crate) struct Outcome {
    pub(crate) violations: Vec<String>,
    /// The kinds of requests that the reconciler sent.
    pub(crate) kinds: BTreeSet<RequestKind>,
    /// How many nodes were returned to service.
    pub(crate) returned: usize,
    /// How many pods were evicted or deleted.
    pub(crate) removals: usize,
    /// What happened, as text.
    pub(crate) log: String,
}

/// Lives, with faults at these kinds of requests.
pub(crate) fn live(kinds: &[RequestKind], steps: &[Step]) -> Outcome {
    on_paused_time(async move {
        let life = Life::begin(kinds.to_vec()).await;
        for (number, Step(act, pause)) in steps.iter().enumerate() {
            life.world.step(&format!("{number}: {act:?}"));
            life.perform(number, act).await;
            tokio::time::sleep(Duration::from_millis(*pause)).await;
        }
        life.end().await
    })
    .unwrap_or_else(|panic| Outcome { violations: vec![panic], ..Outcome::default() })
}

fn node_name(number: u8) -> String {
    format!("node-{:02}", number + 1)
}

fn node_path(number: u8) -> String {
    format!("/api/v1/nodes/{}", node_name(number))
}

fn maintenance_path(name: u8) -> String {
    format!("{PATH}/m{name}")
}

struct Life {
    world: Arc<World>,
    kinds: Vec<RequestKind>,
    /// The nodes at first.
    nodes: Vec<Value>,
}

impl Life {
    async fn begin(kinds: Vec<RequestKind>) -> Self {
        let setup = Setup { nodes: usize::from(NODES), ..Setup::default() };
        let world = World::new(setup, SETTLING_TIMEOUT, Box::new(|_, _| {})).await;
        Workload::new(Kind::DaemonSet, "kube-system", "agent").create(world.sandbox.cluster()).unwrap();
        for (name, replicas) in [("web", 4), ("db", 2)] {
            let app = Workload::new(Kind::Deployment, "default", name).replicas(replicas);
            app.budget(json!({"maxUnavailable": 1})).create(world.sandbox.cluster()).unwrap();
        }
        world.pass(10).await;
        let nodes =
            world.read(|state| state.list(&NODE_OBJECTS, None).map(|node| Value::clone(&node)).collect());
        world.step("begin");
        world.pass(1).await;
        Self { world, kinds, nodes }
    }

    async fn perform(&self, number: usize, act: &Act) {
        let world = &self.world;
        let faults = world.sandbox.faults();
        match act {
            Act::Start { name, node, drain, suspend } => {
                let object = json!({
                    "apiVersion": "nodemaintenance.medik8s.io/v1beta1", "kind": "NodeMaintenance",
                    "metadata": {"name": format!("m{name}")},
                    "spec": {"nodeName": node_name(*node), "suspend": suspend, "drain": drain.spec()},
                });
                world.try_request("POST", PATH, object).await;
            }
            Act::Stop(name) => self.delete(&maintenance_path(*name)).await,
            Act::Suspend(name, suspend) => {
                self.patch(&maintenance_path(*name), json!({"spec": {"suspend": suspend}})).await;
            }
            Act::Edit(name, drain) => self.edit(&maintenance_path(*name), *drain).await,
            Act::Node(node, change) => self.change(*node, *change).await,
            Act::DeleteNode(node) => self.delete(&node_path(*node)).await,
            Act::JoinNode(node) => self.join(*node).await,
            Act::DeletePod(nth) => {
                let pods: Vec<String> = world
                    .read(|state| state.list(&PODS, Some("default")).map(|pod| Key::of(&pod).name).collect());
                if !pods.is_empty() {
                    let name = &pods[usize::from(*nth) % pods.len()];
                    self.delete(&format!("/api/v1/namespaces/default/pods/{name}")).await;
                }
            }
            Act::Budget(app, allows) => self.set_budget(*app, json!(i32::from(*allows))).await,
            Act::LatePod(node) => {
                let pod = json!({
                    "metadata": {"name": format!("late-{number}")},
                    "spec": {"nodeName": node_name(*node), "terminationGracePeriodSeconds": 2,
                        "containers": [{"name": "app", "image": "registry.example/late:1"}]},
                });
                world.try_request("POST", "/api/v1/namespaces/default/pods", pod).await;
            }
            Act::Refuse(count) => {
                let evictions =
                    World::by_reconciler().verb("create").resource("pods").subresource("eviction");
                let refused = Action::Fail(Failure::DeniedByPolicy, Moment::BeforeEffect);
                world.add_rule(Rule::new(evictions, refused).when(When::First(*count)));
            }
            Act::Fault(request, fault) => {
                if let Some(kind) = self.kind(request) {
                    let place = Place { step: String::new(), kind, nth: 1 };
                    Point { place, fault: *fault }.arm(world);
                }
            }
            Act::See(watch, view) => {
                if let Some(RequestKind { group, resource, .. }) = self.kind(watch) {
                    tokio::spawn(view.play(world.clone(), Watched { group, resource }));
                }
            }
            Act::Clock(fault) => {
                tokio::spawn(fault.play(world.clone()));
            }
            Act::EndWatches => {
                faults.end_watches(&World::by_reconciler(), 0);
            }
            Act::Slow(milliseconds) => {
                let delay = Action::Delay(Duration::from_millis(*milliseconds));
                let (world, rule) = (world.clone(), world.add_rule(Rule::new(World::by_reconciler(), delay)));
                tokio::spawn(async move {
                    world.pass(10).await;
                    world.sandbox.faults().remove(rule);
                });
            }
            Act::ServerDown(seconds) => {
                let (world, seconds) = (world.clone(), *seconds);
                tokio::spawn(async move {
                    world.sandbox.server_down().await;
                    world.pass(seconds).await;
                    world.sandbox.server_up().await.unwrap();
                });
            }
            Act::Kill(seconds) => {
                world.kill_replica();
                let (world, seconds) = (world.clone(), *seconds);
                tokio::spawn(async move {
                    world.pass(seconds).await;
                    world.start_replica();
                });
            }
            Act::Lead => world.start_replica(),
        }
    }

    fn kind(&self, name: &str) -> Option<RequestKind> {
        self.kinds.iter().find(|kind| kind.to_string() == name).cloned()
    }

    async fn patch(&self, path: &str, change: Value) {
        self.world.try_request("PATCH", path, change).await;
    }

    async fn delete(&self, path: &str) {
        self.world.try_request("DELETE", path, json!({})).await;
    }

    /// Replaces `spec.drain`.
    async fn edit(&self, path: &str, drain: Drain) {
        // A merge patch keeps what it does not name.
        self.patch(path, json!({"spec": {"drain": null}})).await;
        self.patch(path, json!({"spec": {"drain": drain.spec()}})).await;
    }

    async fn change(&self, node: u8, change: NodeChange) {
        let found = self.world.read(|state| state.get(&NODE_OBJECTS, &Key::cluster(node_name(node))));
        let Some(found) = found else { return };
        let mut taints = found["spec"]["taints"].as_array().cloned().unwrap_or_default();
        let patch = match change {
            NodeChange::Cordon => json!({"spec": {"unschedulable": true}}),
            NodeChange::Uncordon => json!({"spec": {"unschedulable": null}}),
            NodeChange::StripTaint => {
                taints.retain(|taint| taint["key"] != DRAIN_TAINT);
                json!({"spec": {"taints": taints}})
            }
            NodeChange::StripLabel => json!({"metadata": {"labels": {EXCLUDE_LABEL: null}}}),
            NodeChange::StripRecord => json!({"metadata": {"annotations": {UNDO_ANNOTATION: null}}}),
            NodeChange::AddOwnMarks => {
                let own = json!({"key": "example.com/own", "effect": "PreferNoSchedule"});
                if !taints.contains(&own) {
                    taints.push(own);
                }
                json!({"metadata": {"labels": {"example.com/own": "yes"}}, "spec": {"taints": taints}})
            }
        };
        self.patch(&node_path(node), patch).await;
    }

    /// The node joins as it was at first.
    async fn join(&self, node: u8) {
        let mut object = self.nodes[usize::from(node)].clone();
        let name = object["metadata"]["name"].clone();
        object["metadata"] = json!({"name": name, "labels": object["metadata"]["labels"]});
        self.world.try_request("POST", "/api/v1/nodes", object).await;
    }

    async fn set_budget(&self, app: App, max_unavailable: Value) {
        let name = match app {
            App::Web => "web",
            App::Db => "db",
        };
        let path = format!("/apis/policy/v1/namespaces/default/poddisruptionbudgets/{name}");
        self.patch(&path, json!({"spec": {"maxUnavailable": max_unavailable}})).await;
    }

    /// Stops harm, waits until everything has settled, ends all maintenances, and checks what happened.
    async fn end(self) -> Outcome {
        let world = &self.world;
        world.pass(HARM).await;
        world.step("harm stops");
        self.stop_harm().await;
        let mut violations = Vec::new();
        violations.extend(world.until("everything settles", |state| settled(state).is_ok()).await.err().map(
            |late| {
                let why =
                    world.read(settled).err().map(|violation| violation.to_string()).unwrap_or_default();
                format!("{why}\n{late}")
            },
        ));
        world.step("stop");
        if violations.is_empty() {
            violations.extend(world.stop_all().await.err());
        }
        let verdict = judge(&world.recorder.changes(), &world.by_person(), &world.before());
        if violations.is_empty() {
            // What comes late may still do harm.
            world.pass(90).await;
            violations.extend(world.check_end(|node| verdict.before.get(node).cloned().flatten()));
        }
        violations.extend(verdict.violations);
        violations.extend(world.failures());
        violations.extend(world.check_requests(LATENESS));
        let kinds = learn(world).into_keys().map(|(_, kind)| kind).collect();
        let log = if violations.is_empty() { String::new() } else { world.log() };
        let removals = world.writes.all().iter().filter(|sent| is_removal(sent) && is_done(sent)).count();
        Outcome { violations, kinds, returned: verdict.returned, removals, log }
    }

    async fn stop_harm(&self) {
        let world = &self.world;
        world.sandbox.faults().clear();
        world.sandbox.faults().delay_watches(&World::by_reconciler(), Duration::ZERO);
        world.sandbox.server_up().await.unwrap();
        for replica in 0..=world.last_replica() {
            world.skew(replica).store(0, Ordering::Relaxed);
        }
        for app in [App::Web, App::Db] {
            self.set_budget(app, json!("100%")).await;
        }
        let names: Vec<String> =
            world.read(|state| state.list(&MAINTENANCES, None).map(|one| Key::of(&one).name).collect());
        for name in names {
            self.patch(&format!("{PATH}/{name}"), json!({"spec": {"suspend": false, "drain": null}})).await;
        }
    }
}

/// Whether every maintenance has ended as its object says.
fn settled(state: &State) -> Result<(), Violation> {
    let maintenances: Vec<NodeMaintenance> = state
        .list(&MAINTENANCES, None)
        .map(|found| serde_json::from_value(Value::clone(&found)).unwrap())
        .collect();
    for number in 0..NODES {
        let name = node_name(number);
        let of_node: Vec<&NodeMaintenance> =
            maintenances.iter().filter(|maintenance| maintenance.spec.node_name == name).collect();
        let node = state.get(&NODE_OBJECTS, &Key::cluster(&name)).map(|node| node_of(&node));
        let is_daemon = |pod: &Value| pod["metadata"]["ownerReferences"][0]["kind"] == "DaemonSet";
        let pending = state.on_node(&PODS, &name).filter(|pod| !is_daemon(pod)).count();
        maintenance_has_settled(node.as_ref(), &of_node, pending)?;
    }
    Ok(())
}
