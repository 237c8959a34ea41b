//! The opened node of a roll: why it is blocked, and what to do about it.

use crossterm::event::KeyCode;

use crate::roll::model::RollEffect;
use crate::tests::first_causes::never_allowing;
use crate::tests::roll::{detailed, press, text};

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
