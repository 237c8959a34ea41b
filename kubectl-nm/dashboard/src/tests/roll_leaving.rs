//! What leaving the dashboard of a roll stops, and what is asked before.

use crossterm::event::KeyCode;
use nm_roll::decide::RollState;
use nm_roll::record::Step;
use nm_roll::view::RollInput;

use crate::roll::model::RollEffect;
use crate::tests::roll::{Scene, at_step, detailed, press, shown, text};

const LEAVE: Option<RollEffect> = Some(RollEffect::Input(RollInput::Leave));

/// Whether leaving asks first; the question, in one line.
fn asked(scene: &Scene) -> Option<String> {
    let mut model = shown(scene, 120, 24);
    let effect = press(&mut model, KeyCode::Char('q'));
    assert_eq!(effect.is_none(), model.is_leaving);
    model.is_leaving.then(|| text(&model))
}

#[test]
fn leaving_asks_first_if_it_ends_a_command() {
    let mut model = detailed(120, 24);
    assert_eq!(press(&mut model, KeyCode::Char('q')), None);
    let question = "Leaving ends the command of worker-2, worker-3, and no further node starts until the roll is resumed.";
    assert!(text(&model).contains(question), "{}", text(&model));
    assert!(text(&model).contains("Leave? [y] yes"), "{}", text(&model));
    assert_eq!(press(&mut model, KeyCode::Char('n')), None);
    assert!(!text(&model).contains("Leave?"), "{}", text(&model));
    press(&mut model, KeyCode::Char('q'));
    assert_eq!(press(&mut model, KeyCode::Enter), None, "only y leaves");
    press(&mut model, KeyCode::Char('q'));
    assert_eq!(press(&mut model, KeyCode::Char('y')), LEAVE);
}

#[test]
fn leaving_asks_first_while_nodes_are_planned_or_drain() {
    let stops =
        "Leaving stops the roll: no further node is started and none returns to service until it is resumed";
    let mut draining = Scene::beginning();
    draining.progress[0] = at_step(0, Step::Draining, 20, (1, 12), "");
    let mut waiting = Scene::beginning();
    waiting.state = RollState::Waiting(String::from("the window opens at 22:00"));
    for scene in [Scene::beginning(), draining, waiting] {
        let question = asked(&scene).unwrap();
        assert!(question.contains(stops) && question.contains("[y] yes"), "{question}");
    }
    let mut narrow = shown(&Scene::beginning(), 45, 24);
    press(&mut narrow, KeyCode::Char('q'));
    assert!(text(&narrow).contains("[y] yes"), "{}", text(&narrow));
}

#[test]
fn a_roll_that_is_paused_done_or_halted_is_left_at_once() {
    let mut paused = Scene::beginning();
    paused.record.paused = true;
    let mut done = Scene::beginning();
    done.state = RollState::Done;
    for scene in [paused, done, Scene::halted()] {
        assert_eq!(asked(&scene), None);
    }
}

#[test]
fn a_roll_that_was_aborted_is_not_paused_or_continued() {
    let mut scene = Scene::working();
    (scene.record.aborted, scene.record.paused) = (Some("ada@laptop".into()), true);
    let mut model = shown(&scene, 120, 24);
    let screen = text(&model);
    assert!(screen.contains("[?] help  [") && !screen.contains("[p]"), "{screen}");
    assert_eq!(press(&mut model, KeyCode::Char('p')), None);
}
