//! A simulated large cluster for the benchmark in `benches/dashboard.rs`: it drives `update` and `view` without a
//! cluster or a terminal.

use std::io::{self, Sink};
use std::sync::Arc;

use crossterm::event::{Event, KeyCode, KeyEvent, KeyModifiers};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use nm_shared::{NodeMaintenance, NodeMaintenanceSpec};
use ratatui::backend::CrosstermBackend;
use ratatui::layout::Rect;
use ratatui::{Terminal, TerminalOptions, Viewport};
use serde_json::{Value, json};

use crate::client::watch_stream::WatchChange;
use crate::dashboard::compact_pod::CompactPod;
use crate::dashboard::message::{Message, NodeMetadata, WatchKind, WatchState};
use crate::dashboard::model::Model;
use crate::dashboard::model::{Options, ThemeName};
use crate::dashboard::update::update;
use crate::dashboard::view::draw;

/// Columns and rows of the screen.
const SIZE: (u16, u16) = (200, 50);

/// Keys that make sense in both views.
const KEYS: &str = "jjjjkGkgjsjSjfjfyjy/a";

/// A dashboard on a large cluster.
pub struct SimulatedDashboard {
    model: Model,
    terminal: Terminal<CrosstermBackend<Sink>>,
    nodes: usize,
    pods: usize,
    step: usize,
    pressed: usize,
    changes: Vec<Message>,
}

impl SimulatedDashboard {
    /// The fleet view with so many nodes in maintenance; with `pods`, the view of the first node, which has that many.
    ///
    /// # Errors
    ///
    /// When the terminal cannot be created.
    pub fn new(nodes: usize, pods: usize) -> io::Result<Self> {
        let (width, height) = SIZE;
        let viewport = Viewport::Fixed(Rect { x: 0, y: 0, width, height });
        let terminal =
            Terminal::with_options(CrosstermBackend::new(io::sink()), TerminalOptions { viewport })?;
        let options = Options {
            nodes: Vec::new(),
            context: String::from("bench"),
            kubectl: String::from("kubectl"),
            readonly: false,
            theme: ThemeName::Dark,
            ascii: false,
            size: SIZE,
            now: Timestamp::UNIX_EPOCH,
        };
        let mut simulated = Self {
            model: Model::new(options),
            terminal,
            nodes,
            pods,
            step: 0,
            pressed: 0,
            changes: Vec::new(),
        };
        simulated.send(live(WatchKind::Maintenances, None));
        let metadata =
            (0..nodes).map(|node| Arc::new(NodeMetadata { name: name(node), ..NodeMetadata::default() }));
        simulated.send(Message::Nodes(WatchChange::Listed(metadata.collect())));
        let objects = (0..nodes).map(|node| Arc::new(maintenance(node, pods, 0)));
        simulated.send(Message::Maintenances(WatchChange::Listed(objects.collect())));
        if pods > 0 {
            simulated.press(KeyCode::Enter);
            simulated.send(live(WatchKind::Pods, Some(simulated.opened())));
            let all = (0..pods).map(|number| Arc::new(pod(number, false)));
            let change = WatchChange::Listed(all.collect());
            simulated.send(Message::Pods { node: simulated.opened(), change });
        }
        Ok(simulated)
    }

    /// Prepares the next change in the cluster: of a maintenance, or of a pod and now and then its maintenance.
    pub fn prepare_change(&mut self) {
        self.step += 1;
        let step = self.step;
        if self.pods == 0 {
            let object = maintenance(step % self.nodes, 0, step);
            self.changes.push(Message::Maintenances(WatchChange::Applied(Arc::new(object))));
            return;
        }
        let number = step * 7919 % self.pods;
        let change = match step % 3 {
            0 => WatchChange::Deleted(Arc::new(pod(number, true))),
            1 => WatchChange::Applied(Arc::new(pod(number, true))),
            _ => WatchChange::Applied(Arc::new(pod(number, false))),
        };
        self.changes.push(Message::Pods { node: self.opened(), change });
        if step.is_multiple_of(10) {
            let object = maintenance(0, self.pods, step);
            self.changes.push(Message::Maintenances(WatchChange::Applied(Arc::new(object))));
        }
    }

    /// Applies the prepared change.
    pub fn apply_change(&mut self) {
        for message in std::mem::take(&mut self.changes) {
            self.send(message);
        }
    }

    /// One second passes.
    pub fn tick(&mut self) {
        let now = self.model.now + SignedDuration::from_secs(1);
        self.send(Message::Tick(now));
    }

    /// A key is pressed.
    pub fn key(&mut self) {
        self.pressed += 1;
        let key = KEYS.chars().nth(self.pressed % KEYS.len()).map_or(KeyCode::Down, KeyCode::Char);
        self.press(key);
        if key == KeyCode::Char('a') {
            // A filter was typed: remove it again.
            self.press(KeyCode::Esc);
        }
    }

    /// Draws the screen.
    ///
    /// # Errors
    ///
    /// When drawing fails.
    pub fn frame(&mut self) -> io::Result<()> {
        self.terminal.draw(|frame| draw(&self.model, frame))?;
        Ok(())
    }

    fn opened(&self) -> String {
        self.model.opened().unwrap_or_default().to_owned()
    }

    fn press(&mut self, code: KeyCode) {
        self.send(Message::Input(Event::Key(KeyEvent::new(code, KeyModifiers::NONE))));
    }

    fn send(&mut self, message: Message) {
        update(&mut self.model, message);
    }
}

fn live(kind: WatchKind, node: Option<String>) -> Message {
    Message::Watch { kind, node, state: WatchState::Live }
}

fn name(node: usize) -> String {
    format!("worker-{node:04}")
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
    let spec = NodeMaintenanceSpec { node_name: name(node), ..NodeMaintenanceSpec::default() };
    let mut object = NodeMaintenance::new(&name(node), spec);
    object.metadata.uid = Some(name(node));
    object.metadata.resource_version = Some(step.to_string());
    object.metadata.creation_timestamp = Some(Time(Timestamp::UNIX_EPOCH));
    object.status = from(json!({
        "phase": "Running", "drainProgress": step % 100, "evictionPods": pods, "totalpods": pods,
        "podCounts": {"blocked": blocked.len(), "gone": step % pods, "waiting": 3}, "blockedPods": blocked,
    }));
    object
}

fn pod(number: usize, ending: bool) -> CompactPod {
    let mut value = json!({"metadata": {
        "namespace": format!("team-{}", number % 9), "name": format!("pod-{number:05}"), "uid": format!("uid-{number}"),
        "ownerReferences": [{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": format!("app-{}", number % 40),
            "uid": "o", "controller": true}],
    }});
    if ending {
        value["metadata"]["deletionTimestamp"] = json!("1970-01-01T00:00:30Z");
        value["metadata"]["deletionGracePeriodSeconds"] = json!(30);
    }
    CompactPod::from(&from(value).unwrap_or_default())
}

/// Returns nothing if the value does not parse; the test below covers that.
fn from<T: serde::de::DeserializeOwned>(value: Value) -> Option<T> {
    serde_json::from_value(value).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_simulation_has_the_size_that_was_asked_for() {
        let mut simulated = SimulatedDashboard::new(20, 300).unwrap();
        for _ in 0..100 {
            simulated.prepare_change();
            simulated.apply_change();
            simulated.key();
            simulated.tick();
            simulated.frame().unwrap();
        }
        assert_eq!(simulated.model.fleet.rows.total(), 20);
        let open = simulated.model.open.as_ref().unwrap();
        assert_eq!(open.pods.rows.total(), 300);
        assert!(
            open.pods.rows.all().any(|row| row.progress.reason.is_some()),
            "blocked pods come from the status"
        );
    }
}
