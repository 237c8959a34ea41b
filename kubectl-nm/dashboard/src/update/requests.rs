//! Requests that change the cluster: each has a number, and its words are shown until the answer with this number.

use crate::message::{ClusterRequest, Effect};
use crate::model::Model;

/// The effect that sends a request, of which these words are shown until it is answered.
pub(super) fn send(model: &mut Model, words: String, request: ClusterRequest) -> Effect {
    Effect::Send { id: model.note_request(words), request }
}
