//! The plan of the drains that a dialog begins, as it is typed.

use nm_core::terminal::text::Line;
use nm_shared::DrainSpec;

/// In clusters of more nodes than this, a plan is only made on request, because it reads all pods.
const AUTOMATIC_UP_TO: usize = 500;

/// What a plan depends on.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct PlanRequest {
    pub(crate) nodes: Vec<String>,
    pub(crate) drain: Option<DrainSpec>,
}

#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) enum StartPreview {
    /// There is nothing to plan, or what is typed has errors.
    #[default]
    Nothing,
    /// The cluster is large: a key begins it.
    OnRequest,
    /// It is being made.
    Pending(PlanRequest),
    Made(PlanRequest, Vec<Line>),
}

/// What to do about the plan.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum PreviewStep {
    Make(PlanRequest),
    Cancel,
}

impl StartPreview {
    /// Follows what is typed: `wanted` is what can be planned now. `nodes` is the number of nodes in the cluster, if it is
    /// known.
    pub(crate) fn follow(
        &mut self,
        wanted: Option<PlanRequest>,
        nodes: Option<usize>,
    ) -> Option<PreviewStep> {
        if wanted.is_some() && self.request() == wanted.as_ref() {
            return None;
        }
        let is_automatic = nodes.is_some_and(|nodes| !Self::takes_long(nodes));
        let was_pending = matches!(self, Self::Pending(_));
        match wanted {
            Some(wanted) if is_automatic => Some(self.make(wanted)),
            Some(_) => {
                *self = Self::OnRequest;
                was_pending.then_some(PreviewStep::Cancel)
            }
            None => {
                *self = Self::Nothing;
                was_pending.then_some(PreviewStep::Cancel)
            }
        }
    }

    /// Whether a plan in a cluster of so many nodes is only made on request.
    pub(crate) fn takes_long(nodes: usize) -> bool {
        nodes > AUTOMATIC_UP_TO
    }

    pub(crate) fn make(&mut self, wanted: PlanRequest) -> PreviewStep {
        *self = Self::Pending(wanted.clone());
        PreviewStep::Make(wanted)
    }

    /// Takes the plan, unless something else has been typed since it was requested.
    pub(crate) fn take(&mut self, request: PlanRequest, plan: Vec<Line>) {
        if *self == Self::Pending(request.clone()) {
            *self = Self::Made(request, plan);
        }
    }

    pub(crate) fn is_pending(&self) -> bool {
        matches!(self, Self::Pending(_))
    }

    fn request(&self) -> Option<&PlanRequest> {
        match self {
            Self::Nothing | Self::OnRequest => None,
            Self::Pending(request) | Self::Made(request, _) => Some(request),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(node: &str) -> PlanRequest {
        PlanRequest { nodes: vec![node.to_owned()], drain: None }
    }

    #[test]
    fn a_plan_is_made_for_what_is_typed_and_an_outdated_one_is_dropped() {
        let mut preview = StartPreview::default();
        let small = Some(3);
        assert_eq!(preview.follow(None, small), None);
        assert_eq!(preview.follow(Some(of("a")), small), Some(PreviewStep::Make(of("a"))));
        assert_eq!(preview.follow(Some(of("a")), small), None, "it is under way");
        assert_eq!(preview.follow(Some(of("b")), small), Some(PreviewStep::Make(of("b"))));
        preview.take(of("a"), vec![Line::new("a")]);
        assert_eq!(preview, StartPreview::Pending(of("b")), "the answer is about what was typed before");
        preview.take(of("b"), vec![Line::new("b")]);
        assert_eq!(preview, StartPreview::Made(of("b"), vec![Line::new("b")]));
        assert_eq!(preview.follow(Some(of("b")), small), None);
        preview.follow(Some(of("c")), small);
        assert_eq!(preview.follow(None, small), Some(PreviewStep::Cancel));
        assert_eq!(preview, StartPreview::Nothing);
    }

    #[test]
    fn a_large_cluster_is_planned_on_request() {
        for nodes in [Some(501), None] {
            let mut preview = StartPreview::default();
            assert_eq!(preview.follow(Some(of("a")), nodes), None);
            assert_eq!(preview, StartPreview::OnRequest);
            assert_eq!(preview.make(of("a")), PreviewStep::Make(of("a")));
            assert_eq!(preview.follow(Some(of("a")), nodes), None);
            assert_eq!(preview.follow(Some(of("b")), nodes), Some(PreviewStep::Cancel));
            assert_eq!(preview, StartPreview::OnRequest);
        }
    }
}
