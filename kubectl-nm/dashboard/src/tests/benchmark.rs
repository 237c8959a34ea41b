//! How long the dashboard takes to draw a frame in a large cluster, alone and after a change, a second or a key.
//!
//! `docs/performance.md` has the command: alone, the release profile leaves this library unoptimized until it is linked into the
//! program. The 99th percentile has to be at most 5 ms; at ten frames a second a frame has 100 ms.

use std::io::{self, Sink};
use std::sync::Arc;
use std::time::{Duration, Instant};

use crossterm::event::KeyCode;
use jiff::SignedDuration;
use nm_core::client::watch_stream::WatchChange;
use nm_shared::NodeMaintenance;
use nm_shared::drain::cordon_owner::CordonOwner;
use ratatui::backend::CrosstermBackend;
use ratatui::layout::Rect;
use ratatui::{Terminal, TerminalOptions, Viewport};
use serde_json::{Value, json};

use crate::message::Message;
use crate::model::lists::listing::Rows;
use crate::model::{Model, Options};
use crate::objects::node_metadata::{NodeDetails, NodeMetadata, NodeReadiness};
use crate::objects::node_pod::NodePod;
use crate::objects::watch_state::{WatchKind, WatchState};
use crate::tests::scenes::{self, empty, options, press, send, set_watch};
use crate::view::draw;

/// Columns and rows of the screen.
const SIZE: (u16, u16) = (200, 50);

/// Keys that make sense in all views. The last one removes the filter that was typed before it.
const KEYS: &str = "jjjjkGkgjsjsjfjf/a\x1b";

/// How often each step is measured.
const TIMES: usize = 2000;

/// The limit of the 99th percentile.
const LIMIT: Duration = Duration::from_millis(5);

#[test]
#[ignore = "a benchmark"]
fn frame_times() {
    let mut within = true;
    println!("{:<38} {:<22} {:>10} {:>10} {:>10}", "view", "step", "p50", "p99", "worst");
    for (view, nodes, pods, all) in [
        ("fleet of 500 nodes", 500, 0, 0),
        ("node of 10,000 pods, of 500 nodes", 500, 10_000, 0),
        ("all of 5,000 nodes, 500 of them busy", 500, 0, 5_000),
    ] {
        let mut dashboard = SimulatedDashboard::new(nodes, pods, all);
        dashboard.frame();
        let nothing: fn(&mut SimulatedDashboard) = |_| ();
        let steps = [
            ("frame without a change", nothing, nothing),
            ("change to frame", SimulatedDashboard::prepare_change, SimulatedDashboard::apply_change),
            ("second to frame", nothing, SimulatedDashboard::tick),
            ("key to frame", nothing, SimulatedDashboard::key),
        ];
        for (step, prepare, apply) in steps {
            let mut times = Vec::with_capacity(TIMES);
            for _ in 0..TIMES {
                prepare(&mut dashboard);
                let started = Instant::now();
                apply(&mut dashboard);
                dashboard.frame();
                times.push(started.elapsed());
            }
            times.sort_unstable();
            let (p50, p99, worst) = (times[TIMES / 2], times[TIMES * 99 / 100], times[TIMES - 1]);
            within &= p99 <= LIMIT;
            println!("{view:<38} {step:<22} {p50:>10.1?} {p99:>10.1?} {worst:>10.1?}");
        }
    }
    assert!(within, "the 99th percentile is at most {LIMIT:?}");
}

#[test]
fn the_simulation_has_the_size_that_was_asked_for() {
    let mut simulated = SimulatedDashboard::new(20, 300, 0);
    for _ in 0..100 {
        simulated.prepare_change();
        simulated.apply_change();
        simulated.key();
        simulated.tick();
        simulated.frame();
    }
    assert_eq!(simulated.model.fleet.rows.total(), 20);
    let open = simulated.model.open.as_ref().unwrap();
    assert_eq!(open.pods.rows.total(), 300);
    assert!(
        open.pods.rows.all().any(|row| row.progress.reason.is_some()),
        "blocked pods come from the status"
    );
}

#[test]
fn the_simulation_of_all_nodes_has_the_size_that_was_asked_for() {
    let mut simulated = SimulatedDashboard::new(20, 0, 100);
    for _ in 0..100 {
        simulated.prepare_change();
        simulated.apply_change();
        simulated.key();
        simulated.tick();
        simulated.frame();
    }
    assert!(simulated.model.shows_nodes());
    assert_eq!(simulated.model.rows().total(), 100);
    let rows = &simulated.model.nodes.rows;
    assert_eq!(rows.all().filter(|row| row.state.is_some()).count(), 20);
    assert!(rows.all().any(|row| row.cordon().is_some()), "changes cordon nodes");
}

/// A dashboard on a large cluster, without a cluster or a terminal.
struct SimulatedDashboard {
    model: Model,
    terminal: Terminal<CrosstermBackend<Sink>>,
    nodes: usize,
    pods: usize,
    /// The nodes of the cluster, if all are shown.
    all: usize,
    step: usize,
    pressed: usize,
    changes: Vec<Message>,
}

impl SimulatedDashboard {
    /// The fleet view with so many nodes in maintenance; with `pods`, the view of the first node, which has that many; with
    /// `all`, the view of all nodes, which are that many.
    fn new(nodes: usize, pods: usize, all: usize) -> Self {
        let viewport = Viewport::Fixed(Rect::new(0, 0, SIZE.0, SIZE.1));
        let backend = CrosstermBackend::new(io::sink());
        let mut simulated = Self {
            model: empty(Options { size: SIZE, ..options() }),
            terminal: Terminal::with_options(backend, TerminalOptions { viewport }).unwrap(),
            nodes,
            pods,
            all,
            step: 0,
            pressed: 0,
            changes: Vec::new(),
        };
        let model = &mut simulated.model;
        set_watch(model, WatchKind::Maintenances, WatchState::Live);
        let metadata =
            (0..nodes).map(|node| Arc::new(NodeMetadata { name: name(node), ..NodeMetadata::default() }));
        send(model, Message::Nodes(WatchChange::Listed(metadata.collect())));
        let objects = (0..nodes).map(|node| Arc::new(maintenance(node, pods, 0)));
        send(model, Message::Maintenances(WatchChange::Listed(objects.collect())));
        if all > 0 {
            press(model, KeyCode::Tab);
            set_watch(model, WatchKind::Nodes, WatchState::Live);
            send(model, Message::Nodes(WatchChange::Listed((0..all).map(|at| node(at, 0)).collect())));
        }
        if pods > 0 {
            press(model, KeyCode::Enter);
            set_watch(model, WatchKind::Pods, WatchState::Live);
            let change = WatchChange::Listed((0..pods).map(|number| pod(number, false)).collect());
            send(model, Message::Pods { node: name(0), change });
        }
        simulated
    }

    /// Prepares the next change in the cluster: of a maintenance, or of a pod and now and then its maintenance.
    fn prepare_change(&mut self) {
        self.step += 1;
        let step = self.step;
        if self.all > 0 {
            let change = WatchChange::Applied(node(step * 7919 % self.all, step));
            self.changes.push(Message::Nodes(change));
            return;
        }
        let apply = |object| self.changes.push(Message::Maintenances(WatchChange::Applied(Arc::new(object))));
        if self.pods == 0 {
            return [maintenance(step % self.nodes, 0, step)].into_iter().for_each(apply);
        }
        step.is_multiple_of(10).then(|| maintenance(0, self.pods, step)).into_iter().for_each(apply);
        let number = step * 7919 % self.pods;
        let change = match step % 3 {
            0 => WatchChange::Deleted(pod(number, true)),
            1 => WatchChange::Applied(pod(number, true)),
            _ => WatchChange::Applied(pod(number, false)),
        };
        self.changes.push(Message::Pods { node: name(0), change });
    }

    fn apply_change(&mut self) {
        for message in std::mem::take(&mut self.changes) {
            send(&mut self.model, message);
        }
    }

    fn tick(&mut self) {
        let now = self.model.now + SignedDuration::from_secs(1);
        send(&mut self.model, Message::Tick(now));
    }

    fn key(&mut self) {
        self.pressed += 1;
        let key = KEYS.chars().nth(self.pressed % KEYS.len()).unwrap();
        press(&mut self.model, if key == '\x1b' { KeyCode::Esc } else { KeyCode::Char(key) });
    }

    fn frame(&mut self) {
        self.terminal.draw(|frame| draw(&self.model, frame)).unwrap();
    }
}

fn name(node: usize) -> String {
    format!("worker-{node:04}")
}

/// A node of a cluster with a few pools; every seventh step cordons it.
fn node(at: usize, step: usize) -> Arc<NodeMetadata> {
    let details = NodeDetails {
        readiness: NodeReadiness::Ready,
        ready_since: None,
        cordon: step.is_multiple_of(7).then_some(CordonOwner::Person).filter(|_| step > 0),
        pool: Some(format!("pool-{}", at % 12)),
        zone: Some(format!("zone-{}", at % 3)),
        version: format!("v1.36.{}", step % 9),
        boot_id: String::new(),
        created: None,
    };
    Arc::new(NodeMetadata { name: name(at), details: Some(details), ..NodeMetadata::default() })
}

fn maintenance(node: usize, pods: usize, step: usize) -> NodeMaintenance {
    let pods = if node == 0 && pods > 0 { pods } else { 40 };
    let listed = if node.is_multiple_of(5) { pods.min(50) } else { 0 };
    let blocked: Vec<Value> = (0..listed)
        .map(|number| {
            json!({"namespace": format!("team-{}", number % 9), "name": format!("pod-{number:05}"),
                "reason": "DisruptionBudget", "since": "1970-01-01T00:00:00Z", "attempts": step,
                "message": format!("The disruption budget app-{} needs 3 healthy pods and has 3 currently", number % 4)})
        })
        .collect();
    let status = json!({
        "phase": "Running", "drainProgress": step % 100, "evictionPods": pods, "totalpods": pods,
        "podCounts": {"blocked": blocked.len(), "gone": step % pods, "waiting": 3}, "blockedPods": blocked,
    });
    let mut object = scenes::maintenance(&name(node), 300, status);
    object.metadata.resource_version = Some(step.to_string());
    object
}

fn pod(number: usize, terminating: bool) -> Arc<NodePod> {
    let more = if terminating {
        json!({"deletionTimestamp": "2026-01-02T03:10:30Z", "deletionGracePeriodSeconds": 30})
    } else {
        json!({})
    };
    let (namespace, owner) = (format!("team-{}", number % 9), format!("ReplicaSet/app-{}", number % 40));
    scenes::pod(&namespace, &format!("pod-{number:05}"), &owner, &more)
}
