//! The question whether a roll continues with a drained node, on the terminal that runs the roll and elsewhere.

use std::sync::Arc;

use crossterm::event::KeyCode;
use jiff::SignedDuration;
use nm_core::maintenance::ROLL_LABEL;
use nm_core::testing::objects::with_status;
use nm_roll::view::RollInput;
use serde_json::json;

use crate::roll::model::{RollEffect, RollModel};
use crate::tests::roll::{Scene, confirming, press, shown, text};
use crate::tests::scenes::now;

const QUESTION: &str = "worker-1 is drained. Continue with it? [y] yes";

/// The drained node as its roll marks it.
fn mark(model: &mut RollModel) {
    let mut object = with_status("worker-1", json!({"phase": "Succeeded"}));
    object.metadata.labels = Some([(ROLL_LABEL.to_owned(), String::from("kernel-6.12"))].into());
    let step = json!({"step": "Confirming"}).to_string();
    object.metadata.annotations = Some([("kubectl-nm.dev/roll-node".to_owned(), step)].into());
    model.maintenances.insert(String::from("worker-1"), Arc::new(object));
}

#[test]
fn the_opened_node_leaves_the_question_in_sight_and_is_answered_there() {
    for size in [(80, 24), (45, 12), (120, 30)] {
        let mut model = confirming(size.0, size.1);
        mark(&mut model);
        press(&mut model, KeyCode::Enter);
        let shown = text(&model);
        assert!(shown.contains("Answer the question below."), "{shown}");
        assert!(shown.contains("worker-1 is drained. Continue"), "{shown}");
        assert!(!shown.contains("on the terminal where"), "{shown}");
        let answer = Some(RollEffect::Input(RollInput::Answer(true)));
        assert_eq!(press(&mut model, KeyCode::Char('y')), answer);
    }
}

#[test]
fn a_question_about_one_node_is_in_sight_while_another_is_open() {
    let mut model = confirming(80, 24);
    press(&mut model, KeyCode::Char('G'));
    press(&mut model, KeyCode::Enter);
    let shown = text(&model);
    assert!(shown.contains("worker-8: ") && shown.contains(QUESTION), "{shown}");
    assert!(!shown.contains("Answer the question below."), "{shown}");
}

#[test]
fn elsewhere_the_roll_waits_for_a_confirmation_on_the_terminal_of_who_runs_it() {
    let mut model = shown(&Scene::confirming(), 120, 24);
    model.only_shows = true;
    let words = "worker-1 waits for a confirmation on the terminal where ada@laptop runs the roll.";
    let screen = text(&model);
    assert!(screen.contains(words) && screen.contains(" CONFIRM"), "{screen}");
    assert!(!screen.contains("working"), "{screen}");
    let (mut paused, mut left) = (Scene::confirming(), Scene::confirming());
    paused.record.paused = true;
    left.record.runner.as_mut().unwrap().at = now() - SignedDuration::from_mins(5);
    for scene in [paused, left] {
        scene.show(&mut model);
        assert!(!text(&model).contains(words), "{}", text(&model));
    }
}
