//! The opened node of a roll: why it is blocked, and what to do about it.

use crossterm::event::KeyCode;

use crate::roll::model::RollEffect;
use crate::tests::first_causes::{allowing, never_allowing};
use crate::tests::roll::{Scene, detailed, press, shown, text};

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
    assert_eq!(text(&model), closed);
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
