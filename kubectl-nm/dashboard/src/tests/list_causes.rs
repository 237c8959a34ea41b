//! The first cause behind the blocked pods of a node that is only selected.

use crossterm::event::KeyCode;

use crate::message::Effect;
use crate::tests::first_causes::{cart, never_allowing, read, tick};
use crate::tests::painted;
use crate::tests::scenes::{fleet, options, press, send, type_in};

#[test]
fn the_cause_of_the_selected_row_is_read_once_the_cursor_rests_and_dropped_with_the_selection() {
    let mut model = fleet(options());
    assert_eq!(tick(&mut model, 1), [], "the cursor may be on its way");
    let effects = tick(&mut model, 2);
    let [Effect::ReadCauses { node, wanted, .. }] = &effects[..] else { panic!("{effects:?}") };
    assert_eq!(node, "worker-07");
    assert!(wanted.budgets.contains(&cart()), "{wanted:?}");
    assert_eq!(tick(&mut model, 121), [], "it is not read again at once");
    assert!(matches!(tick(&mut model, 122)[..], [Effect::ReadCauses { .. }]), "it is old");

    let by_status = model.remedy().unwrap().1.command;
    send(&mut model, read(never_allowing("worker-07")));
    let patch = r#"kubectl -n shop patch pdb cart --type=merge -p '{"spec":{"maxUnavailable":1}}'"#;
    let (why, remedy) = model.remedy().unwrap();
    assert!(why.starts_with("worker-07: ") && why.contains("can never allow an eviction"), "{why}");
    assert_eq!((remedy.command.as_str(), model.copy_text().as_deref()), (patch, Some(patch)));
    type_in(&mut model, "v");
    let details = painted::text(&model);
    assert!(details.contains("kubectl -n shop patch pdb cart"), "{details}");
    type_in(&mut model, "v");

    // An open node has what was read of it in the list, and the list has it again afterwards.
    press(&mut model, KeyCode::Enter);
    assert_eq!((tick(&mut model, 123), model.remedy().unwrap().1.command.as_str()), (vec![], patch));
    press(&mut model, KeyCode::Esc);
    assert_eq!(model.remedy().unwrap().1.command, patch);

    press(&mut model, KeyCode::Down);
    assert_ne!(model.remedy().unwrap().1.command, patch, "another node");
    assert_eq!(tick(&mut model, 124), []);
    press(&mut model, KeyCode::Up);
    assert_eq!(model.remedy().unwrap().1.command, by_status, "it has been dropped");
    // Nothing blocks a pod of the last node.
    press(&mut model, KeyCode::End);
    assert_eq!((tick(&mut model, 125), tick(&mut model, 126)), (vec![], vec![]));
}
