//! Requests that change the cluster: each has a number, and its words are shown until the answer with this number.

use crate::message::{ClusterRequest, Effect};
use crate::model::Model;
use crate::model::dialogs::start_preview::PreviewStep;

/// The effect that sends a request, of which these words are shown until it is answered.
pub(super) fn send(model: &mut Model, words: String, request: ClusterRequest) -> Effect {
    Effect::Send { id: model.note_request(words), request }
}

/// What follows a change of what a dialog plans.
pub(super) fn plan(step: PreviewStep) -> Effect {
    match step {
        PreviewStep::Make(request) => Effect::Plan(request),
        PreviewStep::Check(request) => Effect::CheckPlan(request),
        PreviewStep::Cancel => Effect::CancelPlan,
    }
}
