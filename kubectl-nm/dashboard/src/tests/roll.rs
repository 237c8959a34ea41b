//! The dashboard of a roll: whole screens, and what keys do.

use std::sync::Arc;

use crossterm::event::{Event, KeyCode, KeyEvent, KeyModifiers};
use insta::assert_snapshot;
use jiff::{SignedDuration, Timestamp};
use nm_roll::command::NodeOutputLine;
use nm_roll::decide::{NodeProgress, ReadyTime, RollState};
use nm_roll::record::{DoneNodes, Halt, NodeRecord, Roll, RollNode, RollRecord, Runner, Step};
use nm_roll::settings::NodeAction;
use nm_roll::view::{RollInput, RollView};
use ratatui::buffer::Buffer;
use serde_json::json;

use crate::config::action_table::Action;
use crate::config::appearance::{Appearance, ThemeName};
use crate::config::key_map::KeyMap;
use crate::model::{NOTICE_STAYS, Options};
use crate::roll::model::{RollEffect, RollModel, action_words};
use crate::roll::row::RowState;
use crate::roll::view::draw;
use crate::tests::painted::{drawn, lines, painted_buffer};
use crate::tests::scenes::{maintenance, now};

/// A roll of eight nodes in waves of one, three and four, at a moment of its life.
pub(super) struct Scene {
    pub(super) record: RollRecord,
    pub(super) progress: Vec<NodeProgress>,
    pub(super) state: RollState,
    is_current: bool,
    /// Whether the objects have the details of actions under way and of blocked pods.
    pub(super) is_detailed: bool,
}

fn ago(seconds: i64) -> Timestamp {
    now() - SignedDuration::from_secs(seconds)
}

pub(super) fn at_step(
    position: usize,
    step: Step,
    seconds: i64,
    pods: (i64, i64),
    detail: &str,
) -> NodeProgress {
    NodeProgress {
        node: format!("worker-{}", position + 1),
        wave: [0, 1, 1, 1, 2, 2, 2, 2][position],
        position,
        step,
        since: ago(seconds),
        detail: detail.into(),
        ready_time: None,
        pods,
        by_now: None,
    }
}

fn planned(position: usize) -> NodeProgress {
    at_step(position, Step::Planned, 900, (0, 0), "")
}

impl Scene {
    pub(super) fn beginning() -> Self {
        let runner = Some(Runner {
            id: "1".into(),
            who: "ada@laptop".into(),
            at: now(),
            in_cluster: false,
            node: None,
        });
        let record = RollRecord { runner, ..RollRecord::default() };
        let progress = (0..8).map(planned).collect();
        Self { record, progress, state: RollState::Working, is_current: true, is_detailed: false }
    }

    /// Two nodes run their command, and pods block the drain of a third.
    pub(super) fn working() -> Self {
        let mut scene = Self::beginning();
        scene.progress[0] = at_step(0, Step::Soaking, 20, (12, 12), "");
        scene.progress[1] = at_step(1, Step::Acting, 42, (11, 11), "");
        scene.progress[2] = at_step(2, Step::Acting, 4, (9, 9), "");
        let why =
            "blocked by pod shop/cart-0: The disruption budget cart needs 3 healthy pods and has 3 currently";
        scene.progress[3] = at_step(3, Step::Draining, 75, (3, 14), why);
        scene
    }

    /// The first node is done.
    pub(super) fn later() -> Self {
        let mut scene = Self::working();
        scene.progress.remove(0);
        scene.record.done =
            DoneNodes { nodes: 1, pods: 12, seconds: 210, slowest_seconds: 210, ..DoneNodes::default() };
        scene.record.released = vec!["worker-1".into()];
        scene.record.worked_millis = 210_000;
        scene
    }

    pub(super) fn halted() -> Self {
        let mut scene = Self::later();
        let message = "the action for node worker-2 failed: the command ended with exit code 1".to_owned();
        scene.progress[0].detail.clone_from(&message);
        scene.record.halt = Some(Halt { node: "worker-2".into(), message, at: now(), cause: None });
        scene.state = RollState::Working;
        scene
    }

    pub(super) fn confirming() -> Self {
        let mut scene = Self::beginning();
        scene.progress[0] = at_step(0, Step::Confirming, 31, (12, 12), "waits for a confirmation");
        scene
    }

    pub(super) fn show(&self, model: &mut RollModel) {
        self.show_at(model, now());
    }

    pub(super) fn show_at(&self, model: &mut RollModel, now: Timestamp) {
        let settings = serde_json::from_value(json!({
            "waves": [1, 3, 4], "maxUnavailable": 3, "action": {"run": "ssh {} sudo dnf -y upgrade kernel && ssh {} sudo reboot"}, "minReadySeconds": 30, "actionTimeoutSeconds": 1800,
            "returnTimeoutSeconds": 900, "recoveryTimeoutSeconds": 600,
        }))
        .unwrap();
        let nodes = self.progress.iter().map(|progress| {
            let record = NodeRecord {
                step: progress.step,
                began: (progress.step != Step::Planned).then(|| ago(210)),
                action: (self.is_detailed && progress.step == Step::Acting)
                    .then(|| serde_json::from_value(json!({"attempt": 1, "state": "running"})).unwrap()),
                ..NodeRecord::planned(progress.wave, progress.position, progress.since)
            };
            let is_blocked = progress.detail.starts_with("blocked");
            let phase = if progress.detail.contains("timed out") { "Failed" } else { "Running" };
            let pod = json!({"namespace": "shop", "name": "cart-0", "reason": "DisruptionBudget", "message": "m",
                "since": now, "attempts": 3, "budget": {"name": "cart", "desiredHealthy": 3, "currentHealthy": 3}});
            let pods = Vec::from_iter((self.is_detailed && is_blocked).then_some(pod));
            let reason = match (phase, is_blocked) { ("Failed", _) => "TimedOut", (_, true) => "Blocked", _ => "Draining" };
            let status = json!({"phase": phase, "podCounts": {"blocked": i32::from(is_blocked)},
                "blockedPods": pods, "conditions": [
                {"type": "Drained", "status": "False", "reason": reason, "message": "", "lastTransitionTime": now},
            ]});
            RollNode { object: Arc::new(maintenance(&progress.node, 900, status)), record, revision: None }
        });
        let roll = Roll { name: "kernel-6.12".into(), settings, nodes: nodes.collect(), record: None };
        model.show(&RollView {
            roll: &roll,
            record: &self.record,
            progress: &self.progress,
            state: &self.state,
            aborted: self.record.aborted.as_deref(),
            is_current: self.is_current,
            now,
        });
    }
}

fn empty(width: u16, height: u16) -> RollModel {
    let mut model =
        RollModel::new("kernel-6.12", Appearance::default(), KeyMap::default(), (width, height), now());
    model.log_folder = Some("~/.local/state/kubectl-nm/roll/kernel-6.12".into());
    model
}

pub(super) fn shown(scene: &Scene, width: u16, height: u16) -> RollModel {
    let mut model = empty(width, height);
    scene.show(&mut model);
    model
}

pub(super) fn beginning(width: u16, height: u16) -> RollModel {
    shown(&Scene::beginning(), width, height)
}

fn print(model: &mut RollModel, node: &str, text: &str) {
    model.output(&NodeOutputLine { node: node.into(), text: text.into() });
}

/// A roll whose first node is done, with the output of the commands.
pub(super) fn working(width: u16, height: u16) -> RollModel {
    let mut model = shown(&Scene::working(), width, height);
    print(&mut model, "worker-1", "worker-1 rebooted");
    for line in 1..=20 {
        print(
            &mut model,
            "worker-2",
            &format!("({line}/20) Installing: kernel-core-6.12.{line}-1.x86_64.rpm for this node"),
        );
    }
    print(&mut model, "worker-3", "10%\r50%\r100%\r");
    print(&mut model, "worker-3", "\x1b[1mwarning:\x1b[0m no swap");
    Scene::later().show(&mut model);
    model
}

pub(super) fn halted(width: u16, height: u16) -> RollModel {
    let mut model = working(width, height);
    print(&mut model, "worker-2", "Error: no space left on device");
    Scene::halted().show(&mut model);
    model
}

pub(super) fn waiting(width: u16, height: u16) -> RollModel {
    let mut scene = Scene::beginning();
    scene.progress.drain(..4);
    scene.record.done =
        DoneNodes { nodes: 4, pods: 46, seconds: 800, slowest_seconds: 260, ..DoneNodes::default() };
    scene.state = RollState::Waiting(String::from("the window opens at Sat 2026-01-03 22:00 Europe/Berlin"));
    shown(&scene, width, height)
}

pub(super) fn confirming(width: u16, height: u16) -> RollModel {
    let mut model = shown(&Scene::confirming(), width, height);
    model.asked = Some(String::from("worker-1"));
    model
}

pub(super) fn text(model: &RollModel) -> String {
    lines(&drawn(model.size, |frame| draw(model, frame))).join("\n")
}

fn painted(model: &RollModel) -> String {
    painted_buffer(&drawn(model.size, |frame| draw(model, frame)))
}

pub(super) fn press(model: &mut RollModel, code: KeyCode) -> Option<RollEffect> {
    model.react(&Event::Key(KeyEvent::new(code, KeyModifiers::NONE)))
}

type Model = fn(u16, u16) -> RollModel;

/// What is drawn of a roll.
pub(super) fn screen(make: Model, options: &Options) -> Buffer {
    let mut model = make(options.size.0, options.size.1);
    model.appearance = options.appearance;
    drawn(model.size, |frame| draw(&model, frame))
}

#[test]
fn a_roll_that_is_not_known_yet_and_one_on_a_small_screen() {
    assert_snapshot!("connecting", text(&empty(80, 10)));
    assert_snapshot!("working_30x8", text(&working(30, 8)));
}

#[test]
fn the_mono_theme_uses_no_colours() {
    for mut model in [working(80, 24), halted(80, 24)] {
        model.appearance = Appearance { theme: ThemeName::Mono, ascii: true };
        assert!(!painted(&model).rsplit("~~~\n").next().unwrap().contains("on "), "no colours");
    }
}

#[test]
fn stale_data_never_looks_live() {
    let mut scene = Scene::later();
    scene.is_current = false;
    scene.state = RollState::Waiting(String::from("the cluster does not respond"));
    assert_snapshot!("stale", painted(&shown(&scene, 80, 24)));
    // A request without an answer holds up the roll.
    let mut model = working(80, 24);
    for (seconds, is_stale) in [(4, false), (5, true)] {
        model.now = now() + SignedDuration::from_secs(seconds);
        assert_eq!(text(&model).contains(&format!("data {seconds}s old")), is_stale, "{}", text(&model));
    }
    // While the connection is lost, the same data is shown again and again.
    scene.show_at(&mut model, now() + SignedDuration::from_secs(9));
    assert!(text(&model).contains("data 9s old"), "{}", text(&model));
}

#[test]
fn nodes_that_are_done_stay_in_the_table_and_on_the_terminal() {
    let model = working(80, 24);
    assert_eq!(model.rows[0].state, RowState::Done(Some(SignedDuration::from_secs(210))));
    assert_eq!(model.done_before(), 0);
    let last: Vec<String> = model.last_lines().iter().map(ToString::to_string).collect();
    assert_eq!(last, ["node/worker-1 Done in 3m30s: 12 pods gone"]);
    let model = waiting(80, 24);
    assert_eq!(model.done_before(), 4);
    assert_eq!(model.last_lines()[0].to_string(), "4 nodes were done before.");
    let last = halted(80, 24).last_lines();
    assert_eq!(last.len(), 11, "the node that is done, and ten lines of output");
    assert_eq!(last[10].to_string(), "  worker-2 | Error: no space left on device");
}

#[test]
fn the_nodes_that_are_not_in_the_table_are_counted() {
    let whole = text(&shown(&Scene::working(), 120, 40));
    assert!(!whole.contains(" of 8") && !whole.contains("left the roll"), "{whole}");
    let cut = text(&shown(&Scene::working(), 80, 10));
    let rows = cut.lines().filter(|line| line.contains("worker-")).count();
    assert!(rows < 8 && cut.contains(" of 8"), "{cut}");
    let mut scene = Scene::beginning();
    scene.progress.pop();
    let left = text(&shown(&scene, 120, 40));
    assert!(left.contains("0/8 nodes done") && left.contains("1 left the roll"), "{left}");
    scene.record.skipped = vec!["worker-8".into()];
    let skipped = text(&shown(&scene, 120, 40));
    assert!(skipped.contains("1 skipped") && !skipped.contains("left the roll"), "{skipped}");
}

#[test]
fn a_node_that_has_to_stay_ready_shows_for_how_long_it_is() {
    let mut scene = Scene::beginning();
    scene.progress[0] = at_step(0, Step::Checking, 20, (12, 12), "must stay Ready for 30s");
    // It reported pressure for the first 8 seconds.
    scene.progress[0].ready_time = Some(ReadyTime { since: ago(12), wanted: 30 });
    let mut model = shown(&scene, 120, 24);
    for (seconds, expected) in
        [(0, "20s    12/12 Ready for 12s of 30s"), (5, "25s    12/12 Ready for 17s of 30s")]
    {
        model.now = now() + SignedDuration::from_secs(seconds);
        assert!(text(&model).contains(expected), "{}", text(&model));
    }
    // Where the table has no space for it, it is below.
    let narrow = text(&shown(&scene, 45, 24));
    assert!(narrow.contains("worker-1: Ready for 12s of 30s"), "{narrow}");
}

#[test]
fn the_time_of_a_node_that_is_done_is_without_halts_and_pauses() {
    let mut model = shown(&Scene::working(), 80, 24);
    let mut scene = Scene::later();
    // It began 210 s ago, and the roll was paused for 2 minutes of them.
    scene.record.worked_millis = 90_000;
    scene.show(&mut model);
    assert_eq!(model.rows[0].state, RowState::Done(Some(SignedDuration::from_secs(90))));
}

#[test]
fn a_maintenance_that_somebody_deleted_is_not_shown_as_done() {
    let mut model = working(80, 24);
    let mut scene = Scene::later();
    scene.progress.remove(2);
    scene.show(&mut model);
    assert_eq!(model.rows[3].state, RowState::Removed);
    assert_eq!(model.rows[3].progress.detail, "its maintenance was deleted");
    // What is seen again was not deleted.
    Scene::later().show(&mut model);
    assert_eq!(model.rows[3].state, RowState::Blocked);
    // The roll is aborted, which pauses it. The node at its command is finished.
    (scene.record.aborted, scene.record.paused) = (Some("ada@laptop".into()), true);
    scene.show(&mut model);
    assert_eq!(model.rows[3].progress.detail, "ada@laptop aborted the roll");
    let screen = text(&model);
    assert!(screen.contains("ABORTED") && screen.contains("ada@laptop aborted the roll. Nodes"), "{screen}");
    assert!(!screen.contains(" left, at ") && !screen.contains("drains are paused"), "{screen}");
}

#[test]
fn the_output_is_that_of_all_running_commands_or_of_the_selected_node() {
    let nodes = |model: &RollModel| -> Vec<String> {
        model.outputs().iter().map(|(row, _)| row.progress.node.clone()).collect()
    };
    let mut model = working(80, 24);
    assert_eq!(nodes(&model), ["worker-2", "worker-3"]);
    press(&mut model, KeyCode::Home);
    assert_eq!(nodes(&model), ["worker-1"]);
    assert_snapshot!("selected", painted(&model));
    press(&mut model, KeyCode::End);
    assert_eq!((model.selected(), nodes(&model)), (Some(7), vec![]));
    press(&mut model, KeyCode::Esc);
    assert_eq!((model.selected(), nodes(&model).len()), (None, 2));
    press(&mut model, KeyCode::Down);
    assert_eq!(model.selected(), Some(1), "the first key selects the row that was followed");
    press(&mut model, KeyCode::Down);
    assert_eq!(model.selected(), Some(2));
}

#[test]
fn the_dashboard_says_since_when_it_runs_what_and_where_the_log_is() {
    let shown = text(&working(200, 50));
    for said in [
        "started 02:55 UTC, 15m ago  3 nodes at a time  runs ssh {} sudo dnf -y upgrade kernel && ssh {} sudo reboot",
        "log ~/.local/state/kubectl-nm/roll/kernel-6.12/worker-2.log",
    ] {
        assert!(shown.contains(said), "{shown}");
    }
    let mut later = working(200, 50);
    later.now = now() + SignedDuration::from_secs(60);
    assert!(text(&later).contains("16m ago"), "{}", text(&later));
    later.now = now() + SignedDuration::from_hours(24);
    assert!(text(&later).contains("started 2026-01-02 02:55 UTC, 24h ago"), "{}", text(&later));
    let narrow = text(&working(45, 20));
    assert!(narrow.contains("\n started 15m ago  3 nodes at a time  runs ss…\n"), "{narrow}");
    let job = json!({"metadata": {"generateName": "flash-"}});
    for (action, before, words) in [
        (Some(NodeAction::Job(job)), None, Some("creates Job flash-")),
        (Some(NodeAction::Job(json!({}))), None, Some("creates a Job")),
        (None, Some(NodeAction::Run("flush".into())), Some("before: runs flush")),
        (None, None, None),
    ] {
        let settings = json!({"waves": [1], "maxUnavailable": 1, "action": action, "before": before, "minReadySeconds": 1,
            "actionTimeoutSeconds": 1, "returnTimeoutSeconds": 1, "recoveryTimeoutSeconds": 1});
        let settings = serde_json::from_value(settings).unwrap();
        assert_eq!(action_words(&settings).as_deref(), words);
    }
}

#[test]
fn p_pauses_and_continues_once_at_a_time() {
    let pause = |paused| Some(RollEffect::Input(RollInput::Pause(paused)));
    let p = KeyCode::Char('p');
    let mut model = empty(80, 24);
    assert_eq!(press(&mut model, p), None, "the roll is not known yet");
    let mut scene = Scene::later();
    scene.show(&mut model);
    assert_eq!(press(&mut model, p), pause(true));
    assert!(text(&model).contains("[p] pausing"));
    assert_eq!(press(&mut model, p), None, "it is requested already");
    scene.record.paused = true;
    scene.show(&mut model);
    assert!(text(&model).contains("[p] continue") && text(&model).contains("paused"), "{}", text(&model));
    assert_eq!(press(&mut model, p), pause(false));
    model.fail(String::from("no access"));
    assert!(text(&model).contains("no access") && !text(&model).contains("[?] help"));
    model.tick(model.now + NOTICE_STAYS);
    assert!(text(&model).contains("[?] help"), "a notice hides the keys for a while only");
    assert_eq!(press(&mut model, p), pause(false), "it has failed, and is tried again");
}

#[test]
fn a_question_is_answered_once() {
    let answer = |answer| Some(RollEffect::Input(RollInput::Answer(answer)));
    for (key, expected) in [('y', true), ('N', false)] {
        let mut model = confirming(80, 24);
        assert_eq!(press(&mut model, KeyCode::Char(key)), answer(expected));
        assert_eq!(press(&mut model, KeyCode::Char('y')), None);
    }
    assert_eq!(press(&mut working(80, 24), KeyCode::Char('n')), None, "nobody asks");
}

#[test]
fn a_question_is_not_answered_by_a_letter_with_control_or_alt() {
    for (letter, modifiers) in
        [('n', KeyModifiers::CONTROL), ('y', KeyModifiers::ALT), ('n', KeyModifiers::ALT)]
    {
        let mut model = confirming(80, 24);
        assert_eq!(model.react(&Event::Key(KeyEvent::new(KeyCode::Char(letter), modifiers))), None);
        assert!(model.asked.is_some(), "{letter} {modifiers:?}");
    }
    let mut model = confirming(80, 24);
    let shifted = Event::Key(KeyEvent::new(KeyCode::Char('Y'), KeyModifiers::SHIFT));
    assert_eq!(model.react(&shifted), Some(RollEffect::Input(RollInput::Answer(true))));
}

#[test]
fn help_is_closed_by_any_key_and_leaving_needs_another() {
    let mut model = working(80, 24);
    press(&mut model, KeyCode::Char('?'));
    assert_snapshot!("help", text(&model));
    assert_eq!(press(&mut model, KeyCode::Char('q')), None);
    assert!(!model.is_leaving, "it closes the help");
    assert_eq!(press(&mut model, KeyCode::Char('q')), None);
    let leave = Some(RollEffect::Input(RollInput::Leave));
    assert_eq!(press(&mut model, KeyCode::Char('y')), leave);
    let control = |c| Event::Key(KeyEvent::new(KeyCode::Char(c), KeyModifiers::CONTROL));
    assert_eq!(model.react(&control('c')), leave);
    assert_eq!(model.react(&control('z')), Some(RollEffect::Suspend));
}

#[test]
fn keys_of_the_configuration_are_used_and_shown() {
    let mut model = working(80, 24);
    for (action, keys) in [
        (Action::Pause, &["F4"][..]),
        (Action::Quit, &["Ctrl-Alt-X", "F10"]),
        (Action::Down, &["n"]),
        (Action::Back, &["Backspace"]),
    ] {
        model.keys.assign(action, keys.iter().map(|key| (*key).to_owned()).collect());
    }
    assert!(text(&model).contains("[F10] leave  [?] help  [F4] pause  [n k] select"), "{}", text(&model));
    assert_eq!(press(&mut model, KeyCode::Char('q')), None);
    assert_eq!(press(&mut model, KeyCode::Char('p')), None);
    assert_eq!(press(&mut model, KeyCode::F(4)), Some(RollEffect::Input(RollInput::Pause(true))));
    press(&mut model, KeyCode::F(10));
    assert_eq!(press(&mut model, KeyCode::Char('y')), Some(RollEffect::Input(RollInput::Leave)));
    press(&mut model, KeyCode::Char('n'));
    assert!(model.selected().is_some());
    model.asked = Some(String::from("worker-1"));
    assert_eq!(
        press(&mut model, KeyCode::Char('n')),
        Some(RollEffect::Input(RollInput::Answer(false))),
        "a question goes first"
    );
    press(&mut model, KeyCode::Backspace);
    assert_eq!(model.selected(), None);
    press(&mut model, KeyCode::Char('?'));
    let help = text(&model);
    assert!(help.contains("Ctrl-Alt-X, F10, Ctrl-C") && help.contains("[Backspace] close"), "{help}");
    // Without a key, an action is not offered.
    model.help = None;
    model.keys.assign(Action::Pause, vec![]);
    assert!(!text(&model).contains("pause"), "{}", text(&model));
}

pub(super) fn detailed(width: u16, height: u16) -> RollModel {
    shown(&Scene { is_detailed: true, ..Scene::working() }, width, height)
}
