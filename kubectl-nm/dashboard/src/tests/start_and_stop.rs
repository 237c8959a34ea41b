//! The dialogs that start, stop, pause and resume maintenances.

use std::sync::Arc;

use crossterm::event::{Event, KeyCode};
use jiff::SignedDuration;
use kube::ResourceExt;
use nm_core::client::watch_stream::WatchChange;
use nm_core::maintenance::uid;
use nm_shared::NodeMaintenance;
use serde_json::json;

use crate::message::{ClusterRequest, CommandError, Effect, Message};
use crate::model::Model;
use crate::model::Options;
use crate::model::dialogs::start_preview::PlanRequest;
use crate::objects::watch_state::{WatchKind, WatchState};
use crate::tests::painted::text;
use crate::tests::scenes::{
    confirm, fleet, maintenance, node, now, options, press, send, set_watch, type_in, with_planned,
};

/// The names and uids of the maintenances to delete.
fn stopped(effects: &[Effect]) -> Vec<(String, String)> {
    let [Effect::Send { request: ClusterRequest::Stop(targets), .. }] = effects else {
        panic!("{effects:?}")
    };
    targets.iter().map(|target| (target.name_any(), uid(target))).collect()
}

fn with_uids(nodes: &[&str]) -> Vec<(String, String)> {
    nodes.iter().map(|node| ((*node).to_owned(), format!("uid-{node}"))).collect()
}

/// The nodes of the objects to create, with their reasons.
fn started(effects: &[Effect]) -> Vec<(String, Option<String>)> {
    let [Effect::Send { request: ClusterRequest::Start(objects), .. }] = effects else {
        panic!("{effects:?}")
    };
    objects.iter().map(|object| (object.spec.node_name.clone(), object.spec.reason.clone())).collect()
}

#[test]
fn enter_stops_one_maintenance() {
    let mut model = fleet(options());
    assert_eq!(type_in(&mut model, "jx"), []);
    assert_eq!(stopped(&press(&mut model, KeyCode::Enter)), with_uids(&["worker-12"]));
    assert!(model.dialog.is_none());
    let mut model = node(options());
    type_in(&mut model, "jjx");
    assert_eq!(stopped(&press(&mut model, KeyCode::Enter)), with_uids(&["worker-07"]));
}

#[test]
fn tab_leaves_the_nodes_cordoned() {
    let mut model = fleet(Options { size: (120, 24), ..options() });
    type_in(&mut model, "jx");
    press(&mut model, KeyCode::Tab);
    let shown = text(&model);
    assert!(shown.contains("the node stays cordoned") && shown.contains("--keep-cordon"), "{shown}");
    let effects = press(&mut model, KeyCode::Enter);
    assert!(
        matches!(&effects[..], [Effect::Send { request: ClusterRequest::StopKeepingCordons(targets), .. }] if targets.len() == 1),
        "{effects:?}"
    );
}

#[test]
fn a_planned_node_which_is_not_cordoned_cannot_be_kept_cordoned() {
    let mut model = with_planned();
    type_in(&mut model, "x");
    let shown = text(&model);
    assert!(shown.contains("[Enter] stop  [Esc] cancel") && !shown.contains("cordoned"), "{shown}");
    press(&mut model, KeyCode::Tab);
    assert_eq!(stopped(&press(&mut model, KeyCode::Enter)), with_uids(&["worker-12"]));
}

#[test]
fn a_stop_says_what_ends_and_what_becomes_of_the_cordon() {
    let mut model = fleet(Options { size: (120, 24), ..options() });
    let mut said = |node: &str| {
        type_in(&mut model, &format!("/{node}"));
        press(&mut model, KeyCode::Enter);
        type_in(&mut model, "x");
        let shown = text(&model);
        press(&mut model, KeyCode::Esc);
        press(&mut model, KeyCode::Esc);
        let end = shown.split("The ").find(|part| part.contains(" ends, and ")).map(str::to_owned);
        end.unwrap_or(shown).split(':').next().unwrap().to_owned()
    };
    assert_eq!(said("worker-07"), "drain ends, and the node returns to service");
    assert_eq!(said("worker-02"), "maintenance ends, and the node returns to service", "it is drained");
    assert_eq!(said("worker-03"), "maintenance ends, and the node stays cordoned", "it was cordoned before");
}

#[test]
fn a_node_that_the_medik8s_operator_uncordons_is_not_promised_to_stay_cordoned() {
    let mut model = fleet(Options { size: (120, 30), ..options() });
    let mut theirs = maintenance("worker-12", 60, json!({"phase": "Running", "evictionPods": 9}));
    theirs.metadata.uid = Some(String::from("uid-worker-12"));
    theirs.spec.reason = Some(String::from("disk swap"));
    send(&mut model, Message::Maintenances(WatchChange::Applied(Arc::new(theirs))));
    for key in ['/', 'w', 'o', 'r', 'k', 'e', 'r', '-', '1', '2'] {
        press(&mut model, KeyCode::Char(key));
    }
    press(&mut model, KeyCode::Enter);
    press(&mut model, KeyCode::Char('x'));
    let ignored = "The medik8s node-maintenance-operator manages the maintenance of";
    assert!(!text(&model).contains(ignored), "{}", text(&model));
    assert!(text(&model).contains("(reason: disk swap)"), "{}", text(&model));
    press(&mut model, KeyCode::Tab);
    let shown = text(&model);
    assert!(shown.contains(ignored) && shown.contains("kubectl cordon worker-12"), "{shown}");
    assert!(!shown.contains("[Enter] stop"), "{shown}");
    assert_eq!(press(&mut model, KeyCode::Enter), []);
    press(&mut model, KeyCode::Tab);
    assert_eq!(stopped(&press(&mut model, KeyCode::Enter)), with_uids(&["worker-12"]));
}

#[test]
fn several_maintenances_are_stopped_only_after_typing_their_number() {
    let mut model = fleet(options());
    type_in(&mut model, "  x");
    assert_eq!(press(&mut model, KeyCode::Enter), []);
    type_in(&mut model, "3");
    assert_eq!(press(&mut model, KeyCode::Enter), []);
    press(&mut model, KeyCode::Backspace);
    type_in(&mut model, "2");
    assert_eq!(stopped(&press(&mut model, KeyCode::Enter)), with_uids(&["worker-07", "worker-12"]));
    assert!(model.fleet.marked.is_empty());
}

#[test]
fn space_toggles_a_mark_and_a_mark_disappears_with_its_row() {
    let mut model = fleet(options());
    type_in(&mut model, " k j ");
    assert_eq!(model.fleet.marked.len(), 1);
    let gone = model.fleet.maintenance_of("worker-33").cloned().unwrap();
    assert!(model.fleet.marked.contains("uid-worker-33"));
    send(&mut model, Message::Maintenances(WatchChange::Deleted(gone)));
    assert!(model.fleet.marked.is_empty());
}

#[test]
fn escape_cancels_and_q_is_a_letter_in_a_dialog() {
    let mut model = fleet(options());
    type_in(&mut model, "xq");
    assert_eq!(press(&mut model, KeyCode::Esc), []);
    assert!(model.dialog.is_none());
}

#[test]
fn a_stopping_maintenance_is_not_stopped_again() {
    let mut model = fleet(options());
    type_in(&mut model, "/worker-01");
    press(&mut model, KeyCode::Enter);
    type_in(&mut model, "x");
    assert_eq!(
        (model.dialog, model.notice.unwrap().text.as_str()),
        (None, "the maintenance is already stopping")
    );
}

#[test]
fn a_later_maintenance_of_the_same_name_is_not_stopped() {
    let mut model = fleet(options());
    type_in(&mut model, "x");
    let old = model.fleet.maintenance_of("worker-07").cloned().unwrap();
    send(&mut model, Message::Maintenances(WatchChange::Deleted(old)));
    assert!(text(&model).contains("already gone"));
    assert_eq!(
        stopped(&press(&mut model, KeyCode::Enter)),
        with_uids(&["worker-07"]),
        "the uid distinguishes them"
    );
}

#[test]
fn a_maintenance_is_paused_after_a_question_and_a_paused_one_is_resumed() {
    let mut model = fleet(options());
    assert_eq!(type_in(&mut model, "jp"), []);
    assert!(text(&model).contains("pause 1 maintenance"), "{}", text(&model));
    assert_eq!(press(&mut model, KeyCode::Esc), []);
    type_in(&mut model, "p");
    let effects = press(&mut model, KeyCode::Enter);
    let [Effect::Send { request: ClusterRequest::Pause { targets, pause: true }, .. }] = effects.as_slice()
    else {
        panic!("{effects:?}")
    };
    let [target] = targets.as_slice() else { panic!("{targets:?}") };
    assert_eq!(target.spec.node_name, "worker-12");

    let mut paused = NodeMaintenance::clone(target);
    paused.spec.suspend = true;
    let suspended = serde_json::json!({"type": "Suspended", "status": "True", "reason": "Paused", "message": "",
        "lastTransitionTime": "2026-01-02T03:05:00Z"});
    let status = paused.status.as_mut().unwrap();
    status.conditions.push(serde_json::from_value(suspended).unwrap());
    status.blocked_pods.clear();
    send(&mut model, Message::Maintenances(WatchChange::Applied(Arc::new(paused))));
    let shown = text(&model);
    assert!(shown.contains("Paused") && shown.contains("kubectl nm resume worker-12"), "{shown}");
    type_in(&mut model, "p");
    assert!(text(&model).contains("resume 1 maintenance"), "{}", text(&model));
    let effects = press(&mut model, KeyCode::Enter);
    assert!(
        matches!(
            effects.as_slice(),
            [Effect::Send { request: ClusterRequest::Pause { pause: false, .. }, .. }]
        ),
        "{effects:?}"
    );
}

#[test]
fn marked_maintenances_are_paused_together_after_typing_their_number() {
    let mut model = fleet(options());
    type_in(&mut model, "  p");
    assert!(text(&model).contains("kubectl nm pause worker-07 worker-12"), "{}", text(&model));
    assert_eq!(press(&mut model, KeyCode::Enter), []);
    type_in(&mut model, "2");
    let effects = press(&mut model, KeyCode::Enter);
    let [Effect::Send { request: ClusterRequest::Pause { targets, pause: true }, .. }] = effects.as_slice()
    else {
        panic!("{effects:?}")
    };
    let nodes: Vec<&str> = targets.iter().map(|target| target.spec.node_name.as_str()).collect();
    assert_eq!(nodes, ["worker-07", "worker-12"]);
    assert!(model.fleet.marked.is_empty());

    let mut model = fleet(options());
    let mut suspended = NodeMaintenance::clone(&targets[0]);
    suspended.spec.suspend = true;
    send(&mut model, Message::Maintenances(WatchChange::Applied(Arc::new(suspended))));
    for row in ["worker-07", "worker-12"] {
        type_in(&mut model, &format!("/{row}"));
        press(&mut model, KeyCode::Enter);
        type_in(&mut model, " ");
        press(&mut model, KeyCode::Esc);
    }
    type_in(&mut model, "p");
    let shown = text(&model);
    assert!(
        shown.contains("pause 1 maintenance") && shown.contains("nm pause worker-12"),
        "only what is not: {shown}"
    );
}

#[test]
fn enter_starts_one_maintenance_with_a_reason() {
    let mut model = fleet(options());
    type_in(&mut model, "nworker-05");
    press(&mut model, KeyCode::Tab);
    type_in(&mut model, "new kernel");
    let effects = confirm(&mut model);
    assert_eq!(started(&effects), [("worker-05".to_owned(), Some("new kernel".to_owned()))]);
    assert!(model.dialog.is_none());
}

#[test]
fn several_maintenances_are_started_only_after_typing_their_number() {
    let mut model = fleet(options());
    type_in(&mut model, "n");
    send(&mut model, Message::Input(Event::Paste("worker-05 worker-06\nworker-07".into())));
    assert_eq!(press(&mut model, KeyCode::Enter), []);
    assert_eq!(type_in(&mut model, "2"), []);
    let effects = confirm(&mut model);
    assert_eq!(started(&effects), [("worker-05".to_owned(), None), ("worker-06".to_owned(), None)]);
}

#[test]
fn nothing_is_started_while_there_are_errors() {
    for nodes in ["", "nobody", "worker-07", "worker-01", "worker-05 nobody"] {
        let mut model = fleet(options());
        type_in(&mut model, &format!("n{nodes}"));
        assert_eq!(press(&mut model, KeyCode::Enter), [], "{nodes}");
        assert!(model.dialog.is_some());
    }
}

#[test]
fn the_start_dialog_is_filled_with_idle_nodes() {
    let nodes = ["worker-04", "worker-05", "worker-07"].map(String::from).to_vec();
    let mut model = fleet(Options { nodes, ..options() });
    type_in(&mut model, "j  n");
    assert!(text(&model).contains("start 2 nodes"), "{}", text(&model));
    let mut model = fleet(Options { nodes: vec!["worker-05".into()], ..options() });
    let request = PlanRequest { nodes: vec!["worker-05".into()], drain: None };
    assert_eq!(type_in(&mut model, "n"), [Effect::Plan(request)]);
    assert_eq!(started(&confirm(&mut model)), [("worker-05".to_owned(), None)]);
}

#[test]
fn tab_cycles_through_the_fields_and_skips_those_that_one_node_does_not_need() {
    let typed = |model: &Model| text(model).lines().filter(|line| line.contains('▏')).collect::<String>();
    let mut model = fleet(options());
    type_in(&mut model, "nworker-05");
    for (key, field) in [
        (KeyCode::Tab, "Reason"),
        (KeyCode::Tab, "Options"),
        (KeyCode::Down, "Nodes"),
        (KeyCode::BackTab, "Options"),
        (KeyCode::BackTab, "Reason"),
    ] {
        press(&mut model, key);
        assert!(typed(&model).contains(field), "{field}");
    }
    press(&mut model, KeyCode::Up);
    type_in(&mut model, " worker-06");
    for (key, field) in [
        (KeyCode::Tab, "Reason"),
        (KeyCode::Tab, "Options"),
        (KeyCode::Tab, "Type 2"),
        (KeyCode::BackTab, "Options"),
        (KeyCode::BackTab, "Reason"),
        (KeyCode::Up, "Nodes"),
        (KeyCode::Up, "Type 2"),
        (KeyCode::Down, "Nodes"),
    ] {
        press(&mut model, key);
        assert!(typed(&model).contains(field), "{field}: {}", text(&model));
    }
}

#[test]
fn nothing_is_confirmed_on_a_screen_too_small_to_list_it() {
    for key in ["n", "x", "p"] {
        let mut model = fleet(Options { size: (30, 6), ..options() });
        type_in(&mut model, key);
        assert!(model.dialog.is_none());
        assert!(text(&model).contains("window too small for that"), "{}", text(&model));

        let mut model = node(options());
        type_in(&mut model, "x");
        send(&mut model, Message::Input(Event::Resize(30, 6)));
        assert_eq!(press(&mut model, KeyCode::Enter), []);
        assert!(text(&model).contains("[Esc] cancel"), "{}", text(&model));
        send(&mut model, Message::Input(Event::Resize(80, 24)));
        assert_eq!(stopped(&press(&mut model, KeyCode::Enter)), with_uids(&["worker-07"]));
        type_in(&mut model, "x");
        send(&mut model, Message::Input(Event::Resize(30, 6)));
        press(&mut model, KeyCode::Esc);
        assert!(model.dialog.is_none());
    }
}

#[test]
fn dialogs_warn_about_stale_information_about_nodes() {
    for key in ["nworker-05", "x"] {
        let mut model = fleet(options());
        type_in(&mut model, key);
        assert!(!text(&model).contains("The information about nodes is out of date"));
        let lost = WatchState::Lost { since: now() - SignedDuration::from_secs(12), error: "e".into() };
        set_watch(&mut model, WatchKind::Nodes, lost);
        assert!(
            text(&model).contains("The information about nodes is out of date: data 12s old"),
            "{}",
            text(&model)
        );
    }
}

#[test]
fn read_only_disables_starting_and_stopping() {
    for mut model in [fleet as fn(Options) -> Model, node]
        .map(|scene| scene(Options { readonly: true, size: (120, 70), ..options() }))
    {
        for (key, action) in [("n", "start"), ("x", "stop")] {
            assert_eq!(type_in(&mut model, key), []);
            assert!(model.dialog.is_none());
            assert_eq!(model.notice.as_ref().unwrap().text, format!("read-only: {action} is disabled"));
        }
        assert!(!text(&model).contains("[x]"));
        type_in(&mut model, "?");
        for offer in ["put nodes into maintenance", "mark a node", "stop the marked"] {
            assert!(!text(&model).contains(offer), "{offer}");
        }
        assert!(text(&model).contains("quit; maintenances continue"), "{}", text(&model));
    }
}

#[test]
fn pasted_line_breaks_separate_names() {
    // A terminal sends a pasted line break as it sends Enter.
    for pasted in ["worker-05\rworker-06\r", "worker-05\r\nworker-06", "worker-05\u{a0}worker-06"] {
        let mut model = fleet(options());
        type_in(&mut model, "n");
        send(&mut model, Message::Input(Event::Paste(pasted.into())));
        assert!(text(&model).contains("start 2 nodes"), "{pasted:?}: {}", text(&model));
    }
}

#[test]
fn a_pending_request_is_shown_until_it_is_answered() {
    let mut model = fleet(options());
    type_in(&mut model, "nworker-05");
    confirm(&mut model);
    assert!(text(&model).contains("starting worker-05 ..."), "{}", text(&model));
    send(&mut model, Message::Tick(now() + SignedDuration::from_secs(60)));
    assert!(text(&model).contains("starting worker-05 ..."), "until it is answered");
    type_in(&mut model, "jx");
    press(&mut model, KeyCode::Enter);
    assert!(text(&model).contains("stopping worker-12 ..."), "{}", text(&model));
    // The answers arrive in another order.
    send(&mut model, Message::Answered { id: 2, outcome: Ok("stopping: worker-12".into()) });
    assert!(text(&model).contains("stopping: worker-12"), "{}", text(&model));
    send(&mut model, Message::Tick(now() + SignedDuration::from_secs(120)));
    assert!(text(&model).contains("starting worker-05 ..."), "{}", text(&model));
    send(&mut model, Message::Answered { id: 1, outcome: Err(CommandError::refused("worker-05")) });
    press(&mut model, KeyCode::Down);
    assert!(text(&model).contains("[q]quit"), "{}", text(&model));
}
