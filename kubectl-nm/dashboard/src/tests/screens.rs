//! Whole screens, in every view, size, theme and situation.

use std::sync::Arc;

use crossterm::event::{Event, KeyCode};
use insta::assert_snapshot;
use jiff::SignedDuration;
use nm_core::client::watch_stream::WatchChange;
use nm_shared::DrainSpec;

use crate::config::appearance::{Appearance, ThemeName};
use crate::layout::ScreenLayout;
use crate::message::{CommandError, Message};
use crate::model::{Model, Options};
use crate::objects::watch_state::{WatchKind, WatchState};
use crate::tests::painted::{buffer, painted, text};
use crate::tests::scenes::{
    all_nodes, empty, fleet, maintenance, maintenances, moving, node, now, options, press, send, set_watch,
    type_in, worker_07,
};

fn sized(width: u16, height: u16) -> Options {
    Options { size: (width, height), ..options() }
}

fn themed(theme: ThemeName, options: Options) -> Options {
    Options { appearance: Appearance { theme, ..options.appearance }, ..options }
}

fn in_ascii(options: Options) -> Options {
    Options { appearance: Appearance { ascii: true, ..options.appearance }, ..options }
}

#[test]
fn the_fleet() {
    for (width, height) in [(200, 50), (120, 30), (80, 24), (50, 20), (45, 20), (30, 6)] {
        assert_snapshot!(format!("fleet_{width}x{height}"), painted(&fleet(sized(width, height))));
    }
}

#[test]
fn a_node() {
    for (width, height) in [(50, 20), (30, 6)] {
        assert_snapshot!(format!("node_{width}x{height}"), painted(&moving(sized(width, height))));
    }
}

#[test]
fn a_list_that_scrolls_shows_which_rows_are_on_the_screen() {
    for (width, height) in [(80, 14), (120, 16), (80, 24)] {
        let mut model = node(sized(width, height));
        let position = |model: &Model| {
            let shown = text(model);
            let words: Vec<&str> = shown.split_whitespace().collect();
            words.windows(3).find(|words| words[1] == "of" && words[0].contains('-')).map(|it| it.join(" "))
        };
        let (rows, total) = (ScreenLayout::whole(&model).rows(), model.rows().len());
        let at_first = (rows < total).then(|| format!("1-{rows} of {total}"));
        assert_eq!(position(&model), at_first, "{}", text(&model));
        press(&mut model, KeyCode::End);
        let rows = ScreenLayout::whole(&model).rows();
        let at_last = (rows < total).then(|| format!("{}-{total} of {total}", total - rows + 1));
        assert_eq!(position(&model), at_last, "{}", text(&model));
    }
    assert!(ScreenLayout::whole(&node(sized(80, 14))).rows() < node(options()).rows().len());
}

#[test]
fn themes_and_ascii_show_the_same_information() {
    for (name, theme) in
        [("light", ThemeName::Light), ("colour_blind", ThemeName::ColourBlind), ("mono", ThemeName::Mono)]
    {
        assert_snapshot!(format!("fleet_{name}"), painted(&fleet(themed(theme, sized(80, 24)))));
    }
    assert_snapshot!("node_mono", painted(&node(themed(ThemeName::Mono, sized(80, 24)))));
    for (name, model) in [("fleet", fleet as fn(Options) -> _), ("node", node)] {
        let model = model(in_ascii(sized(80, 24)));
        assert!(text(&model).is_ascii());
        assert_snapshot!(format!("{name}_ascii"), painted(&model));
    }
}

#[test]
fn the_mono_theme_uses_no_colours() {
    let options = themed(ThemeName::Mono, options());
    let mut model = node(options);
    send(&mut model, Message::Answered { id: 1, outcome: Err(CommandError::refused("worker-12")) });
    type_in(&mut model, "e");
    let looks = painted(&model);
    let legend = looks.rsplit("~~~\n").next().unwrap().to_lowercase();
    for word in legend.split_whitespace().filter(|word| !word.ends_with(':')) {
        assert!(["bold", "dim", "underlined", "reversed"].contains(&word), "{word} in {legend}");
    }
}

#[test]
fn side_panes() {
    let mut model = node(sized(120, 30));
    type_in(&mut model, "e");
    assert_snapshot!("events", painted(&model));
    type_in(&mut model, "y");
    press(&mut model, KeyCode::Tab);
    assert_snapshot!("yaml", text(&model));
    let mut model = node(sized(80, 24));
    type_in(&mut model, "e");
    assert_snapshot!("events_80x24", text(&model));
}

/// The dialog that starts several maintenances.
pub(super) fn start_many(options: Options) -> Model {
    let mut model = fleet(options);
    type_in(&mut model, "nworker-1* cp-1 worker-07");
    press(&mut model, KeyCode::Tab);
    type_in(&mut model, "new kernel");
    press(&mut model, KeyCode::Enter);
    type_in(&mut model, "1");
    model
}

/// The same view after the connection was lost.
pub(super) fn stale(mut model: Model) -> Model {
    let since = now() - SignedDuration::from_secs(12);
    let lost = WatchState::Lost { since, error: "connection refused".into() };
    set_watch(&mut model, WatchKind::Maintenances, lost);
    model
}

#[test]
fn dialogs_on_screens_of_few_rows() {
    for (name, keys) in [
        ("help", "?"),
        ("stop_one", "x"),
        ("stop_two", "  x2"),
        ("start", "n"),
        ("start_refused", "nworker-05 nobody worker-01 z* Worker"),
    ] {
        let mut model = fleet(sized(45, 12));
        type_in(&mut model, keys);
        assert_snapshot!(format!("{name}_45x12"), painted(&model));
    }
    assert_snapshot!("start_many_45x12", painted(&start_many(sized(45, 12))));
    let mut model = fleet(sized(30, 6));
    type_in(&mut model, "?");
    assert_snapshot!("help_30x6", text(&model));
    press(&mut model, KeyCode::Esc);
    type_in(&mut model, "x");
    assert_snapshot!("stop_30x6", painted(&model));
    let mut model = fleet(options());
    type_in(&mut model, "?");
    assert_snapshot!("help_painted", painted(&model));
}

#[test]
fn the_filter_is_visible_while_typed_and_afterwards() {
    let mut model = fleet(sized(80, 24));
    type_in(&mut model, "/state:blocked ns:sh");
    assert_snapshot!("filter_typed", text(&model));
    press(&mut model, KeyCode::Enter);
    assert_snapshot!("filter_kept", text(&model));
    type_in(&mut model, "/zzz");
    assert_snapshot!("filter_too_narrow", text(&model));
}

#[test]
fn stale_data_does_not_look_live_on_a_small_screen() {
    assert_snapshot!("stale_small", painted(&stale(fleet(sized(30, 6)))));
}

/// No node is in maintenance.
pub(super) fn no_maintenance(options: Options) -> Model {
    let mut model = empty(options);
    set_watch(&mut model, WatchKind::Maintenances, WatchState::Live);
    send(&mut model, Message::Maintenances(WatchChange::Listed(vec![])));
    model
}

/// A node whose pods are not known yet.
pub(super) fn node_loading(options: Options) -> Model {
    let mut model = fleet(options);
    press(&mut model, KeyCode::Enter);
    model
}

/// A node without a maintenance.
pub(super) fn node_idle(options: Options) -> Model {
    let node = String::from("worker-05");
    let mut model = no_maintenance(Options { nodes: vec![node.clone()], ..options });
    set_watch(&mut model, WatchKind::Pods, WatchState::Live);
    send(&mut model, Message::Pods { node, change: WatchChange::Listed(super::scenes::pods()) });
    model
}

#[test]
fn a_named_node_that_does_not_exist_is_reported() {
    let mut model = no_maintenance(Options { nodes: vec!["worker-5".into()], ..sized(80, 12) });
    assert!(!text(&model).contains("does not exist"), "the nodes are not known yet");
    set_watch(&mut model, WatchKind::Nodes, WatchState::Live);
    send(&mut model, Message::Nodes(WatchChange::Listed(super::scenes::nodes())));
    assert!(text(&model).contains("Node worker-5 does not exist."), "{}", text(&model));
    assert!(!text(&model).contains("[n] starts"));
}

#[test]
fn a_drained_node_without_pods_has_a_full_bar() {
    let drained = serde_json::json!({"phase": "Succeeded", "drainProgress": 100, "evictionPods": 0});
    let failed = serde_json::json!({"phase": "Failed", "drainProgress": 0, "evictionPods": 0});
    for (status, percent, bar) in [(drained, "100%", "##########"), (failed, "0%", "----------")] {
        let mut model = fleet(in_ascii(sized(120, 30)));
        let object = maintenance("worker-07", 60, status);
        send(&mut model, Message::Maintenances(WatchChange::Listed(vec![Arc::new(object)])));
        let row = |model: &_| text(model).lines().find(|line| line.contains(percent)).map(str::to_owned);
        let of_fleet = row(&model).unwrap();
        assert!(of_fleet.contains(&format!(" {bar}")), "{of_fleet}");
        press(&mut model, KeyCode::Enter);
        let of_node = row(&model).unwrap();
        assert!(of_node.contains(&bar[..1].repeat(24)), "{of_node}");
    }
}

#[test]
fn volumes_that_are_still_attached_are_listed_below_the_pods() {
    let volume = |number: usize, error: Option<&str>| {
        serde_json::json!({"attachment": format!("csi-{number}"), "persistentVolume": format!("pvc-{number}"),
            "claim": {"namespace": "shop", "name": format!("data-{number}")}, "driver": "ebs.csi.aws.com",
            "since": "2026-01-02T03:08:30Z", "error": error})
    };
    let mut volumes = vec![volume(0, None), volume(1, Some("rpc error: the volume is busy"))];
    for (name, width, height) in [("volumes_120x30", 120, 30), ("volumes_80x24", 80, 24)] {
        let status = serde_json::json!({"phase": "Running", "drainProgress": 100, "evictionPods": 3,
            "podCounts": {"gone": 3}, "attachedVolumes": volumes});
        let mut model = fleet(sized(width, height));
        let object = Arc::new(maintenance("worker-07", 60, status));
        send(&mut model, Message::Maintenances(WatchChange::Listed(vec![object])));
        press(&mut model, KeyCode::Enter);
        assert_snapshot!(name, text(&model));
        // More than fit.
        volumes.extend((2..20).map(|number| volume(number, None)));
    }
}

/// The same view without permission to list maintenances.
pub(super) fn forbidden(mut model: Model) -> Model {
    let words = "nodemaintenances.nodemaintenance.medik8s.io is forbidden: User \"ann\" cannot list it";
    set_watch(&mut model, WatchKind::Maintenances, WatchState::Forbidden(words.into()));
    model
}

/// An open node without permission to list its pods.
pub(super) fn pods_forbidden(options: Options) -> Model {
    let mut model = fleet(options);
    press(&mut model, KeyCode::Enter);
    let words = "pods is forbidden: User \"ann\" cannot list resource \"pods\"";
    let mut object = worker_07();
    let status = object.status.as_mut().unwrap();
    let listed = status.blocked_pods.iter().map(|pod| (pod.namespace.clone(), pod.name.clone()));
    let migrating =
        status.migrating_pods.iter().flatten().map(|pod| (pod.namespace.clone(), pod.name.clone()));
    let others = ["a", "b", "c"].map(|name| ("web".to_owned(), format!("front-{name}")));
    let pending = listed.chain(migrating).chain(others);
    status.pending_pods_refs =
        pending.map(|(namespace, name)| nm_shared::PodReference { namespace, name }).collect();
    send(&mut model, Message::Maintenances(WatchChange::Applied(object.into())));
    set_watch(&mut model, WatchKind::Pods, WatchState::Forbidden(words.into()));
    model
}

/// Named nodes without a maintenance, in a read-only dashboard.
pub(super) fn named(options: Options) -> Model {
    let nodes = ["worker-02", "worker-05", "worker-07"].map(String::from).to_vec();
    fleet(Options { nodes, readonly: true, ..options })
}

#[test]
fn named_idle_nodes_are_rows_and_read_only_disables_stopping() {
    let mut model = named(sized(80, 12));
    for node in ["worker-02", "worker-05", "worker-07"] {
        assert!(text(&model).contains(node), "{}", text(&model));
    }
    type_in(&mut model, "x");
    assert!(text(&model).contains("read-only"));
    assert_eq!(maintenances().len(), 11);
}

#[test]
fn text_from_the_api_never_controls_the_terminal() {
    let (name, message) = ("x\u{1b}[31m", "held by \u{202e}y\u{9b}0m\r\nz");
    let mut object = worker_07();
    object.spec.reason = Some(message.into());
    let status = object.status.as_mut().unwrap();
    status.blocked_pods[0].name = name.into();
    status.blocked_pods[0].reason = nm_shared::BlockReason::Finalizers;
    status.blocked_pods[0].facts.budget = None;
    status.blocked_pods[0].message = message.into();
    let object = Arc::new(object);
    for mut model in [fleet(sized(200, 50)), node(sized(200, 50))] {
        send(&mut model, Message::Maintenances(WatchChange::Applied(object.clone())));
        let hostile = super::scenes::pod("shop", name, "", &serde_json::json!({}));
        send(&mut model, Message::Pods { node: "worker-07".into(), change: WatchChange::Applied(hostile) });
        type_in(&mut model, "y");
        let text = text(&model);
        assert!(text.chars().all(|c| c == '\n' || !c.is_control()), "{text}");
        assert!(!text.contains('\u{202e}'), "{text}");
        for shown in ["shop/x^[[31m", "held by \\u{202e}y\\u{9b}0m z"] {
            assert!(text.contains(shown), "{text}");
        }
    }
}

#[test]
fn a_failed_or_queued_node_is_explained_below_the_rows() {
    for (node, advice, command) in [
        ("worker-33", "Check its events", "kubectl describe nm worker-33"),
        ("worker-21", "Check its events", "kubectl describe nm worker-21"),
    ] {
        let mut model = fleet(options());
        type_in(&mut model, &format!("/{node}"));
        press(&mut model, KeyCode::Enter);
        let shown = text(&model);
        assert!(shown.contains("why> ") && shown.contains(advice), "{shown}");
        assert!(shown.contains("do>  ") && shown.contains(command), "{shown}");
        press(&mut model, KeyCode::Enter);
        let shown = text(&model);
        assert!(shown.contains("do>  ") && shown.contains(command), "{shown}");
    }
}

#[test]
fn a_surge_that_takes_long_is_named_with_the_command_that_explains_it() {
    let mut model = fleet(options());
    let mut object = model.fleet.maintenance_of("worker-01").unwrap().as_ref().clone();
    let status = serde_json::json!({"phase": "Running", "evictionPods": 1, "podCounts": {"surging": 1},
        "conditions": [{"type": "Cordoned", "status": "True", "reason": "Cordoned", "message": "",
            "lastTransitionTime": "1970-01-01T00:00:00Z"}],
        "surgingPods": [{"namespace": "shop", "name": "web-x", "deployment": "web", "restarted": true,
            "since": "1970-01-01T00:00:00Z", "replacement": {"name": "web-y", "node": "n2", "ready": false}}]});
    object.status = Some(serde_json::from_value(status).unwrap());
    object.metadata.deletion_timestamp = None;
    send(&mut model, Message::Maintenances(WatchChange::Applied(Arc::new(object))));
    type_in(&mut model, "/worker-01");
    press(&mut model, KeyCode::Enter);
    let shown = text(&model);
    assert!(shown.contains("surge of Deployment"), "{shown}");
    assert!(shown.contains("why> ") && shown.contains("1 of its new pods is not Ready"), "{shown}");
    assert!(shown.contains("do>  ") && shown.contains("kubectl nm explain worker-01"), "{shown}");
    press(&mut model, KeyCode::Enter);
    assert!(text(&model).contains("no ETA while surging"), "{}", text(&model));
}

#[test]
fn a_foreign_finalizer_is_named() {
    let mut model = fleet(options());
    let mut object = model.fleet.maintenance_of("worker-01").unwrap().as_ref().clone();
    object.metadata.finalizers = Some(vec!["backup.example.com/hold".into()]);
    send(&mut model, Message::Maintenances(WatchChange::Applied(Arc::new(object))));
    type_in(&mut model, "/worker-01");
    press(&mut model, KeyCode::Enter);
    let shown = text(&model);
    assert!(!shown.contains("returning to service"), "{shown}");
    assert!(shown.contains("finalizers: backup.example.com/hold"), "{shown}");
    assert!(shown.contains("edit nm worker-01"), "{shown}");
}

#[test]
fn a_resize_keeps_the_selection_visible() {
    let mut model = fleet(options());
    type_in(&mut model, "G");
    for size in [(120, 12), (45, 12), (200, 50), (80, 9)] {
        model.size = (0, 0);
        send(&mut model, Message::Input(Event::Resize(size.0, size.1)));
        assert_eq!(model.size, size);
        assert!(text(&model).contains("worker-03"), "{size:?}\n{}", text(&model));
    }
}

#[test]
fn every_size_can_be_drawn() {
    for make in [fleet as fn(Options) -> Model, node, all_nodes] {
        for keys in ["", "e", "y", "?", "x", "n", "  x", "/a"] {
            let mut model = make(options());
            type_in(&mut model, keys);
            for width in [1, 2, 5, 39, 40, 49, 50, 79, 119, 120, 300] {
                for height in [1, 2, 7, 8, 9, 11, 13, 20, 60] {
                    send(&mut model, Message::Input(Event::Resize(width, height)));
                    buffer(&model);
                }
            }
        }
    }
}

#[test]
fn a_node_whose_refused_pods_are_deleted_says_when() {
    let mut model = fleet(Options { size: (200, 40), ..options() });
    assert!(!text(&model).contains("is deleted, regardless"), "{}", text(&model));
    let mut object = worker_07();
    object.spec.drain = Some(DrainSpec { delete_after_seconds: 14, ..DrainSpec::default() });
    object.status.as_mut().unwrap().blocked_pods[0].attempts = 1;
    send(&mut model, Message::Maintenances(WatchChange::Applied(Arc::new(object))));
    let (why, _) = model.remedy().unwrap();
    let announced = "A pod whose eviction has been refused for 14s is deleted, regardless of disruption budgets (--delete-after)";
    assert!(why.ends_with(announced), "{why}");
}
