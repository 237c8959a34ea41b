//! The points at which a life is disturbed: each kind of request, in each step, with each fault.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use kube_sandbox::faults::{Action, Failure, Moment, Rule, RuleId, When};
use kube_sandbox::request_log::Entry;
use serde::{Deserialize, Serialize};

use crate::world::World;

/// A kind of request: what is done to which resource.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct RequestKind {
    pub(crate) verb: &'static str,
    pub(crate) group: String,
    pub(crate) resource: String,
    pub(crate) subresource: String,
}

impl From<&Entry> for RequestKind {
    fn from(entry: &Entry) -> Self {
        Self {
            verb: entry.verb,
            group: entry.group.clone(),
            resource: entry.resource.clone(),
            subresource: entry.subresource.clone(),
        }
    }
}

impl fmt::Display for RequestKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.verb, self.resource)?;
        if !self.subresource.is_empty() {
            write!(f, "/{}", self.subresource)?;
        }
        if !self.group.is_empty() {
            write!(f, ".{}", self.group)?;
        }
        Ok(())
    }
}

/// What goes wrong with a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) enum Fault {
    Conflict,
    Invalid,
    TooManyRequests,
    Throttled,
    Internal,
    Unavailable,
    Timeout,
    TimeoutAfterEffect,
    LostBefore,
    LostAfter,
    NeverAnsweredBefore,
    NeverAnsweredAfter,
    KilledBefore,
    KilledAfter,
    LeadershipLostBefore,
    LeadershipLostAfter,
    /// The request reaches the API server only after another replica has begun to work.
    LeadershipLostAndLate,
}

impl Fault {
    pub(crate) const ALL: [Self; 17] = [
        Self::Conflict,
        Self::Invalid,
        Self::TooManyRequests,
        Self::Throttled,
        Self::Internal,
        Self::Unavailable,
        Self::Timeout,
        Self::TimeoutAfterEffect,
        Self::LostBefore,
        Self::LostAfter,
        Self::NeverAnsweredBefore,
        Self::NeverAnsweredAfter,
        Self::KilledBefore,
        Self::KilledAfter,
        Self::LeadershipLostBefore,
        Self::LeadershipLostAfter,
        Self::LeadershipLostAndLate,
    ];

    pub(crate) fn action(self) -> Action {
        let (before, after) = (Moment::BeforeEffect, Moment::AfterEffect);
        match self {
            Self::Conflict => Action::Fail(Failure::Conflict, before),
            Self::Invalid => Action::Fail(Failure::DeniedByPolicy, before),
            Self::TooManyRequests => Action::Fail(Failure::TooManyRequests { retry_after: 3 }, before),
            Self::Throttled => Action::Fail(Failure::Throttled { retry_after: 3 }, before),
            Self::Internal => Action::Fail(Failure::Internal, before),
            Self::Unavailable => Action::Fail(Failure::Unavailable, before),
            Self::Timeout => Action::Fail(Failure::Timeout, before),
            Self::TimeoutAfterEffect => Action::Fail(Failure::Timeout, after),
            Self::LostBefore => Action::Disconnect(before),
            Self::LostAfter => Action::Disconnect(after),
            Self::NeverAnsweredBefore | Self::KilledBefore | Self::LeadershipLostBefore => {
                Action::NeverAnswer(before)
            }
            Self::NeverAnsweredAfter | Self::KilledAfter | Self::LeadershipLostAfter => {
                Action::NeverAnswer(after)
            }
            Self::LeadershipLostAndLate => Action::Delay(Duration::from_secs(8)),
        }
    }

    /// Whether the replica that sent the request is killed.
    pub(crate) fn kills(self) -> bool {
        matches!(self, Self::KilledBefore | Self::KilledAfter)
    }

    /// Whether the replica that sent the request loses its leadership.
    pub(crate) fn takes_leadership(self) -> bool {
        matches!(self, Self::LeadershipLostBefore | Self::LeadershipLostAfter | Self::LeadershipLostAndLate)
    }

    /// What happens to the replica that sent the request.
    async fn follow(self, world: &Arc<World>) {
        if self.kills() {
            world.kill_replica();
            world.pass(1).await;
            world.start_replica();
        } else if self.takes_leadership() {
            let old = world.swap_replica(true);
            // It still reads for a moment.
            world.pass(2).await;
            drop(old);
        }
    }
}

/// Where a fault is applied.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Place {
    pub(crate) step: String,
    pub(crate) kind: RequestKind,
    /// Which of the requests of this kind in the step, from one.
    pub(crate) nth: u64,
}

/// A fault at a place.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Point {
    pub(crate) place: Place,
    pub(crate) fault: Fault,
}

impl fmt::Display for Point {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Place { step, kind, nth } = &self.place;
        write!(f, "{step} / {kind} #{nth} / {:?}", self.fault)
    }
}

impl Point {
    /// Applies the fault to the request when it comes.
    pub(crate) fn arm(&self, world: &Arc<World>) -> RuleId {
        let kind = &self.place.kind;
        let target = World::by_reconciler()
            .verb(kind.verb)
            .group(&kind.group)
            .resource(&kind.resource)
            .subresource(&kind.subresource);
        let rule = world.add_rule(Rule::new(target, self.fault.action()).when(When::Nth(self.place.nth)));
        let (world, fault) = (world.clone(), self.fault);
        tokio::spawn(async move {
            let faults = world.sandbox.faults();
            faults.until_played(rule).await;
            // It was removed before a request came.
            if faults.played(rule) == 0 {
                return;
            }
            world.met();
            fault.follow(&world).await;
        });
        rule
    }
}

/// How often each kind of request was sent in each step.
pub(crate) fn learn(world: &World) -> BTreeMap<(String, RequestKind), u64> {
    let steps = world.steps();
    let mut counts = BTreeMap::new();
    for entry in world.requests() {
        let step = steps.iter().rev().find(|step| step.began <= entry.at);
        let step = step.map(|step| step.name.clone()).unwrap_or_default();
        *counts.entry((step, RequestKind::from(&entry))).or_default() += 1;
    }
    counts
}
