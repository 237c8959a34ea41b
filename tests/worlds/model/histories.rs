//! Histories that violated an invariant once, each as the checker printed it.

use crate::check::replay;

fn check(history: &str) {
    assert_eq!(replay(history, |_, _| {}), Ok(()), "{history}");
}

#[test]
fn a_lost_undo_record_is_noticed_by_a_maintenance_that_takes_the_node_over_before_it_is_adopted() {
    check("4: deliver m1; reconcile m1; write m1; write m1; write m1; person StripRecord; deliver node");
    check(
        "5: deliver m1; reconcile m1; write m1; write m1; lose-answer m1; person StripRecord; deliver node",
    );
}

#[test]
fn a_lost_undo_record_is_noticed_also_without_the_label() {
    check(
        "3: deliver m0; reconcile m0; write m0; write m0; write m0; lose-write m0; person StripLabel; \
         person StripRecord",
    );
}

#[test]
fn a_lease_is_released_although_the_answer_to_its_creation_was_lost() {
    check(
        "3: deliver m0; reconcile m0; write m0; lose-answer m0; delete m0; deliver m0; reconcile m0; deliver lease",
    );
}

#[test]
fn a_cordon_that_arrives_after_its_maintenance_has_ended_is_refused() {
    check(
        "3: deliver m0; reconcile m0; write m0; write m0; delete m0; crash-while-writing m0; reconcile m0; write m0; \
         write m0; write m0; late-write-arrives",
    );
    check("3: deliver m0; reconcile m0; write m0; write m0; delete m0; crash-while-writing m0; reconcile m0");
}

#[test]
fn a_cordon_that_arrives_after_its_maintenance_has_ended_is_refused_although_the_lease_before_it_was_just_deleted()
 {
    check(
        "20: remove-PreReturn m0; deliver m0; reconcile m0; write m0; write m0; write m0; create m0; deliver m0; \
         reconcile m0; write m0; delete m0; crash-while-writing m0; reconcile m0",
    );
}

#[test]
fn a_history_is_replayed() {
    let Ok(history) = std::env::var("NM_MODEL_HISTORY") else { return };
    let result = replay(&history, |action, state| println!("{action}\n  {:?}", state.api));
    assert_eq!(result, Ok(()));
}
