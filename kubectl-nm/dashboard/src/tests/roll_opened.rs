//! The opened node of a roll: why it is blocked, and what to do about it.

use std::sync::Arc;

use crossterm::event::KeyCode;
use jiff::SignedDuration;
use nm_core::explain::cluster_facts::ClusterFacts;
use nm_core::leader::gap::LeaderGap;
use nm_core::maintenance::ROLL_LABEL;
use nm_roll::decide::RollState;
use nm_roll::record::{NodeRecord, Roll, RollNode, RollRecord, STATE, Step, annotation};
use nm_roll::view::RollView;
use nm_shared::NodeMaintenance;
use serde_json::json;

use crate::roll::model::{RollEffect, RollModel};
use crate::tests::first_causes::{allowing, never_allowing};
use crate::tests::roll::{Scene, at_step, detailed, press, shown, text};
use crate::tests::scenes::{maintenance, now};

#[test]
fn a_blocked_node_shows_why_and_what_to_do_and_enter_shows_all_of_it() {
    let mut model = detailed(120, 24);
    let (why, remedy) = model.remedy("worker-4").unwrap();
    let closed = text(&model);
    assert!(closed.contains(&why) && closed.contains(&remedy.command), "{closed}");
    assert_eq!(press(&mut model, KeyCode::Enter), Some(RollEffect::ReadCauses(String::from("worker-4"))));
    let opened = text(&model);
    assert!(opened.contains("worker-4: Blocked") && opened.contains("shop/cart-0"), "{opened}");
    assert!(opened.contains("kubectl -n shop describe pdb cart"), "{opened}");
    assert!(opened.contains("[Esc] close") && !opened.contains("[Enter] open"), "{opened}");
    model.learn("worker-3", never_allowing("worker-3"));
    assert_eq!(text(&model), opened, "another node");
    model.learn("worker-4", never_allowing("worker-4"));
    let explained = text(&model);
    assert!(explained.contains("kubectl -n shop patch pdb cart"), "the first cause: {explained}");
    press(&mut model, KeyCode::Esc);
    let below = text(&model);
    assert!(below.contains("can never allow an eviction"), "what was read is shown below the rows: {below}");
}

#[test]
fn the_first_cause_of_a_blocked_node_is_read_and_shown_below_the_rows() {
    let mut model = detailed(200, 30);
    let tick = |model: &mut RollModel| model.tick(model.now + SignedDuration::from_secs(1));
    assert_eq!(tick(&mut model), None, "the cursor may be on its way");
    assert_eq!(tick(&mut model), Some(RollEffect::ReadCauses(String::from("worker-4"))));
    assert_eq!(tick(&mut model), None);
    model.learn("worker-4", never_allowing("worker-4"));
    let shown = text(&model);
    assert!(shown.contains("can never allow an eviction") && shown.contains("patch pdb cart"), "{shown}");
    press(&mut model, KeyCode::Home);
    tick(&mut model);
    model.learn("worker-4", never_allowing("worker-4"));
    assert!(!text(&model).contains("can never allow an eviction"), "another node: {}", text(&model));
}

#[test]
fn a_cause_that_is_over_has_no_advice() {
    let mut scene = Scene::working();
    scene.is_detailed = true;
    scene.progress[3].detail = String::from("blocked; the drain timed out");
    let mut model = shown(&scene, 120, 30);
    // The first key selects the node that has been under way for longest.
    for key in [KeyCode::Down; 4].into_iter().chain([KeyCode::Enter]) {
        press(&mut model, key);
    }
    model.learn("worker-4", allowing("worker-4"));
    let (lines, _) = model.opened_lines().unwrap();
    let over = lines.iter().position(|line| line == "By now, the budget allows 1 eviction.").unwrap();
    assert_eq!(lines[over + 1..], ["Pods: shop/cart-0"], "{lines:#?}");
}

/// Shows a roll whose only node drains, or is paused with the roll.
fn show_paused(model: &mut RollModel, paused: bool) -> NodeMaintenance {
    let record = RollRecord { paused, revision: 2 + u64::from(paused), ..Scene::beginning().record };
    let reason = if paused { ("Suspended", "True", "Paused") } else { ("Drained", "False", "Draining") };
    let condition = json!({"type": reason.0, "status": reason.1, "reason": reason.2, "message": "",
        "lastTransitionTime": now()});
    let mut object = maintenance("worker-1", 900, json!({"phase": "Running", "conditions": [condition]}));
    object.spec.suspend = paused;
    object.metadata.labels = Some([(ROLL_LABEL.to_owned(), "kernel".to_owned())].into());
    object.metadata.annotations = Some([(STATE.to_owned(), annotation(&record))].into());
    let progress = [at_step(0, Step::Draining, 75, (3, 14), "")];
    let node = NodeRecord { step: Step::Draining, ..NodeRecord::planned(0, 0, now()) };
    let nodes = vec![RollNode { object: Arc::new(object.clone()), record: node, revision: None }];
    let settings = json!({"waves": [1], "maxUnavailable": 1, "minReadySeconds": 30, "actionTimeoutSeconds": 1,
        "returnTimeoutSeconds": 1, "recoveryTimeoutSeconds": 1});
    let settings = serde_json::from_value(settings).unwrap();
    let roll = Roll { name: "kernel".into(), settings, nodes, record: None };
    let (state, record, progress) = (&RollState::Working, &record, &progress);
    model.show(&RollView {
        roll: &roll,
        record,
        progress,
        state,
        aborted: None,
        is_current: true,
        now: now(),
    });
    object
}

#[test]
fn the_opened_node_of_a_roll_that_is_paused_meanwhile_is_continued_by_the_roll() {
    let mut model = shown(&Scene::beginning(), 120, 30);
    let before = Box::new(ClusterFacts::of_maintenances([&show_paused(&mut model, false)]));
    press(&mut model, KeyCode::Enter);
    model.learn("worker-1", before.clone());
    show_paused(&mut model, true);
    let is_by_roll = |model: &RollModel| {
        let (lines, _) = model.opened_lines().unwrap();
        let commands: Vec<&str> = lines.iter().filter_map(|line| line.strip_prefix("  ")).collect();
        assert_eq!(commands, ["kubectl nm roll resume kernel"], "{lines:#?}");
    };
    is_by_roll(&model);
    // The answer to a read that began before the pause.
    model.learn("worker-1", before);
    is_by_roll(&model);
}

#[test]
fn a_roll_of_which_a_node_needs_a_leader_says_that_nobody_leads() {
    let mut model = shown(&Scene::beginning(), 120, 30);
    show_paused(&mut model, false);
    let words = "No nm-reconciler leads: the last one has released its lease.";
    assert!(!text(&model).contains(words));
    model.leader_gap = Some(LeaderGap::Released { at: now() });
    assert!(text(&model).contains(words), "{}", text(&model));
    press(&mut model, KeyCode::Enter);
    let (lines, _) = model.opened_lines().unwrap();
    assert!(
        lines.contains(&"No nm-reconciler leads, so the maintenance makes no progress.".into()),
        "{lines:#?}"
    );
    press(&mut model, KeyCode::Esc);
    model.leader_gap = Some(LeaderGap::NotInstalled);
    assert!(!text(&model).contains("No nm-reconciler"), "something drains the node");
    model.leader_gap = Some(LeaderGap::Released { at: now() });
    show_paused(&mut model, true);
    assert!(!text(&model).contains(words), "a paused drain needs none");
}
