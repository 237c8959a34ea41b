//! The dashboard without a terminal: what it shows of a cluster, and what it copies, after each key.

use std::sync::Arc;

use crossterm::event::{Event as Input, KeyCode, KeyEvent, KeyModifiers};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Node;
use k8s_openapi::api::events::v1::Event;
use kube::ResourceExt;
use nm_core::client::watch_stream::WatchChange;
use nm_core::watch::goal_tracker::{ExitCondition, GoalTracker};
use nm_roll::command::NodeOutputLine;
use nm_roll::decide::{Decisions, decide};
use nm_roll::observed::{NodeView, Observed};
use nm_roll::record::{Roll, roll_names};
use nm_roll::view::RollView;
use nm_shared::NodeMaintenance;
use nm_shared::cluster::pod::DrainPod;
use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;

use crate::config::appearance::Appearance;
use crate::config::config_file::Config;
use crate::config::key_map::KeyMap;
use crate::message::{Effect, Message};
use crate::model::lists::filter::{self, Filter, FilterField, Searchable};
use crate::model::{Model, Options, RecordingMode};
use crate::objects::listed_node::ListedNode;
use crate::objects::node_metadata::NodeMetadata;
use crate::objects::node_pod::NodePod;
use crate::objects::watch_state::{WatchKind, WatchState};
use crate::roll::model::RollModel;
use crate::update::update;
use crate::{roll, view};

/// What the plugin receives from an API server and from other programs.
#[derive(Clone, Debug, Default, serde::Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Received {
    /// All maintenances.
    pub maintenances: Vec<NodeMaintenance>,
    /// All nodes.
    pub nodes: Vec<Node>,
    /// The pods of whichever node is opened.
    pub pods: Vec<DrainPod>,
    /// The events about that node.
    pub events: Vec<Event>,
    /// What a credential program prints, and why a connection is lost.
    pub message: String,
}

/// The screens of this many columns and rows after each key, and the texts that are copied. In `keys`, a line break is
/// Enter, a tab is Tab, escape is Esc and delete is Backspace.
pub fn screens(received: &Received, keys: &str, size: (u16, u16), now: Timestamp) -> Vec<String> {
    let options = Options {
        nodes: Vec::new(),
        all_nodes: false,
        context: String::from("test"),
        kubectl: String::from("kubectl"),
        readonly: false,
        recording: RecordingMode::Off,
        config: Config::default(),
        notice: None,
        appearance: Appearance::default(),
        without_colours: None,
        size,
        now,
    };
    let mut model = Model::new(options, GoalTracker::new(Vec::new(), ExitCondition::Never));
    let nodes = received.nodes.iter().filter_map(listed).map(Arc::new);
    let maintenances = received.maintenances.iter().cloned().map(Arc::new).collect();
    for kind in [WatchKind::Maintenances, WatchKind::Nodes] {
        update(&mut model, Message::Watch { kind, node: None, state: WatchState::Live });
    }
    update(&mut model, Message::Nodes(WatchChange::Listed(nodes.collect())));
    update(&mut model, Message::Maintenances(WatchChange::Listed(maintenances)));
    let Ok(mut terminal) = Terminal::new(TestBackend::new(size.0, size.1));
    let mut screen = |model: &Model| {
        let Ok(_) = terminal.draw(|frame| view::draw(model, frame));
        text(terminal.backend().buffer())
    };
    let mut shown = vec![screen(&model)];
    for key in keys.chars() {
        let code = match key {
            '\n' => KeyCode::Enter,
            '\t' => KeyCode::Tab,
            '\x1b' => KeyCode::Esc,
            '\x7f' => KeyCode::Backspace,
            other => KeyCode::Char(other),
        };
        let input = Input::Key(KeyEvent::new(code, KeyModifiers::NONE));
        match update(&mut model, Message::Input(input)) {
            Some(Effect::Open(node)) => open(&mut model, &node, received),
            Some(Effect::Copy(text)) => shown.push(text),
            Some(Effect::CountPods(nodes)) => {
                let counts = nodes.into_iter().map(|node| (node, received.pods.len())).collect();
                update(&mut model, Message::PodCounts { counts, error: None });
            }
            _ => {}
        }
        shown.push(screen(&model));
    }
    update(&mut model, Message::ProgramOutput(received.message.clone()));
    shown.push(screen(&model));
    let lost = WatchState::Lost { since: now, error: received.message.clone() };
    update(&mut model, Message::Watch { kind: WatchKind::Maintenances, node: None, state: lost });
    update(&mut model, Message::Tick(now));
    shown.push(screen(&model));
    shown
}

/// The node as a watch on whole nodes delivers it.
fn listed(node: &Node) -> Option<NodeMetadata> {
    let json = serde_json::to_value(node).ok()?;
    Some(serde_json::from_value::<ListedNode>(json).ok()?.shown())
}

/// Delivers the pods of a node and its events.
fn open(model: &mut Model, node: &str, received: &Received) {
    for kind in [WatchKind::Pods, WatchKind::Events] {
        update(model, Message::Watch { kind, node: Some(node.to_owned()), state: WatchState::Live });
    }
    let pods = received.pods.iter().cloned().map(|pod| Arc::new(NodePod::from(pod))).collect();
    update(model, Message::Pods { node: node.to_owned(), change: WatchChange::Listed(pods) });
    let events = received.events.iter().cloned().map(Arc::new).collect();
    update(model, Message::Events { node: node.to_owned(), change: WatchChange::Listed(events) });
}

/// The screens of the rolls among the maintenances, with the first page of the help and without.
pub fn roll_screens(received: &Received, size: (u16, u16), now: Timestamp) -> Vec<String> {
    let objects: Vec<_> = received.maintenances.iter().cloned().map(Arc::new).collect();
    let rolls =
        roll_names(&received.maintenances).into_iter().filter_map(|name| Roll::find(name, &objects).ok());
    rolls.flatten().flat_map(|roll| roll_screens_of(&roll, received, size, now)).collect()
}

fn roll_screens_of(roll: &Roll, received: &Received, size: (u16, u16), now: Timestamp) -> [String; 2] {
    let record = roll.record.clone().unwrap_or_default();
    let nodes = received.nodes.iter().map(|node| (node.name_any(), NodeView::of(node, None, now)));
    let observed = Observed::shown_at(now, roll, Some(nodes.collect()));
    let Decisions { progress, state, .. } = decide(roll, &record, &observed);
    let aborted = record.aborted.as_deref();
    let view = RollView {
        roll,
        record: &record,
        progress: &progress,
        state: &state,
        aborted,
        is_current: true,
        now,
    };
    let mut model = RollModel::new(&roll.name, Appearance::default(), KeyMap::default(), size, now);
    model.show(&view);
    for node in &progress {
        model.output(&NodeOutputLine { node: node.node.clone(), text: received.message.clone() });
    }
    let Ok(mut terminal) = Terminal::new(TestBackend::new(size.0, size.1));
    [None, Some(0)].map(|help| {
        model.help = help;
        let Ok(_) = terminal.draw(|frame| roll::view::draw(&model, frame));
        text(terminal.backend().buffer())
    })
}

/// The characters on a screen.
pub(super) fn text(screen: &Buffer) -> String {
    let Rect { width, height, .. } = screen.area;
    let line = |y| -> String { (0..width).map(|x| screen[(x, y)].symbol()).collect() };
    (0..height).map(line).collect::<Vec<_>>().join("\n")
}

/// A row with a node, a namespace, a state and a text.
struct SimpleRow<'a>([&'a str; 4]);

impl Searchable for SimpleRow<'_> {
    fn any(&self, field: FilterField, is_match: &dyn Fn(&str) -> bool) -> bool {
        let [node, namespace, state, text] = self.0;
        match field {
            FilterField::Node => is_match(node),
            FilterField::Namespace => is_match(namespace),
            FilterField::State => is_match(state),
            FilterField::Text => is_match(text),
            FilterField::Phase
            | FilterField::Reason
            | FilterField::Object
            | FilterField::Workload
            | FilterField::Path => false,
        }
    }
}

/// Whether a filter selects a row with this node, namespace, state and text.
pub fn is_selected(filter: &str, row: [&str; 4]) -> bool {
    Filter::new(filter).matches(&SimpleRow(row))
}

/// The words of a filter of the dashboard.
pub fn filter_words(filter: &str) -> Vec<String> {
    filter::words(filter)
}
