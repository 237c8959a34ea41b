//! The plan of the drains that a dialog begins, as it is typed.

use nm_core::plan::cost::DrainCost;
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

/// What the drains would harm, as a dialog shows it.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct DrainPlan {
    pub(crate) lines: Vec<Line>,
    /// Whether all of it is known, and nothing would be harmed.
    pub(crate) is_harmless: bool,
}

impl From<&DrainCost> for DrainPlan {
    fn from(cost: &DrainCost) -> Self {
        let is_harmless = cost.harms.is_empty() && cost.unknown.is_empty();
        Self { lines: cost.summary(), is_harmless }
    }
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
    /// It is being made, and the drains begin if it is harmless: they were confirmed before it was there.
    Checking(PlanRequest),
    Made(PlanRequest, DrainPlan),
}

/// What to do about the plan.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum PreviewStep {
    Make(PlanRequest),
    /// Make it at once.
    Check(PlanRequest),
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
        let was_pending = self.is_pending();
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

    /// Makes the plan at once, for drains that were confirmed before it was there. Once is enough.
    pub(crate) fn check(&mut self, wanted: PlanRequest) -> Option<PreviewStep> {
        let checking = Self::Checking(wanted.clone());
        (std::mem::replace(self, checking.clone()) != checking).then_some(PreviewStep::Check(wanted))
    }

    /// Does not begin the drains after all when the plan is there.
    pub(crate) fn hold(&mut self) {
        if let Self::Checking(request) = self {
            *self = Self::Pending(request.clone());
        }
    }

    /// Takes the plan, unless something else has been typed since it was requested. Returns whether the drains begin.
    pub(crate) fn take(&mut self, request: PlanRequest, plan: DrainPlan) -> bool {
        if !self.is_pending() || self.request() != Some(&request) {
            return false;
        }
        let begins = self.is_checking() && plan.is_harmless;
        *self = Self::Made(request, plan);
        begins
    }

    /// Whether the plan for this is there.
    pub(crate) fn is_made_for(&self, wanted: &PlanRequest) -> bool {
        matches!(self, Self::Made(request, _) if request == wanted)
    }

    pub(crate) fn is_pending(&self) -> bool {
        matches!(self, Self::Pending(_) | Self::Checking(_))
    }

    pub(crate) fn is_checking(&self) -> bool {
        matches!(self, Self::Checking(_))
    }

    /// Whether the plan names harm, or that something is not known.
    pub(crate) fn warns(&self) -> bool {
        matches!(self, Self::Made(_, plan) if !plan.is_harmless)
    }

    fn request(&self) -> Option<&PlanRequest> {
        match self {
            Self::Nothing | Self::OnRequest => None,
            Self::Pending(request) | Self::Checking(request) | Self::Made(request, _) => Some(request),
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
        let plan = |text: &str| DrainPlan { lines: vec![Line::new(text)], is_harmless: true };
        assert!(!preview.take(of("a"), plan("a")));
        assert_eq!(preview, StartPreview::Pending(of("b")), "the answer is about what was typed before");
        assert!(!preview.take(of("b"), plan("b")), "nobody has confirmed it");
        assert_eq!(preview, StartPreview::Made(of("b"), plan("b")));
        assert_eq!(preview.follow(Some(of("b")), small), None);
        preview.follow(Some(of("c")), small);
        assert_eq!(preview.follow(None, small), Some(PreviewStep::Cancel));
        assert_eq!(preview, StartPreview::Nothing);
    }

    #[test]
    fn what_is_confirmed_before_its_plan_is_there_begins_if_the_plan_is_harmless() {
        let plan = |is_harmless| DrainPlan { is_harmless, ..DrainPlan::default() };
        let checking = || {
            let mut preview = StartPreview::OnRequest;
            assert_eq!(preview.check(of("a")), Some(PreviewStep::Check(of("a"))));
            assert_eq!(preview.check(of("a")), None, "it is being made");
            preview
        };
        for is_harmless in [true, false] {
            let mut preview = checking();
            assert_eq!(preview.take(of("a"), plan(is_harmless)), is_harmless);
            assert_eq!((preview.is_made_for(&of("a")), preview.warns()), (true, !is_harmless));
        }
        let mut held = checking();
        held.hold();
        assert!(!held.take(of("a"), plan(true)) && held.is_made_for(&of("a")));
        let mut changed = checking();
        assert_eq!(changed.follow(Some(of("b")), None), Some(PreviewStep::Cancel));
        assert!(!changed.take(of("a"), plan(true)));
        assert_eq!(checking().follow(Some(of("b")), Some(3)), Some(PreviewStep::Make(of("b"))));
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
