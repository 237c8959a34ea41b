//! The words for states in the lists.

use nm_core::maintenance::State;
use nm_shared::PodState;

use crate::model::fleet::fleet_row::IDLE;
use crate::model::open_node::pod_row::REMAINING;
use crate::model::tree::tree_row::DOWN;
use crate::objects::replacement_pod::ReplicaState;

/// Whether a state in any of the lists begins with this, whatever the case of letters.
pub(crate) fn begins_a_state(prefix: &str) -> bool {
    let begins = |word: &str| word.to_ascii_lowercase().starts_with(&prefix.to_ascii_lowercase());
    State::ALL.into_iter().any(|state| begins(state.word()))
        || PodState::ALL.into_iter().any(|state| begins(state.word()))
        || ReplicaState::WORDS.into_iter().chain([IDLE, REMAINING, DOWN]).any(begins)
}
