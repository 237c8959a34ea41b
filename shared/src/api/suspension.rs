//! `spec.suspend`: a maintenance that is planned because it was created suspended, or paused because that was set later.
//!
//! The condition `Suspended` shows which, and since when. While a maintenance is paused its `timeoutSeconds` does not run:
//! `status.pausedSeconds` has the sum of all earlier pauses, and the condition the beginning of the present one. Both are
//! in the object, in whole seconds, so a restart neither loses nor repeats a pause.

use jiff::Timestamp;

use crate::api::condition::{self, ConditionReason, ConditionType, ConditionUpdate, whole_seconds};
use crate::api::maintenance::NodeMaintenance;
use crate::api::status::{NodeMaintenanceStatus, Phase};

/// How a maintenance is suspended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, strum::IntoStaticStr)]
pub enum Suspension {
    /// It has not begun: its node is in service.
    Planned,
    /// It has begun: its node stays cordoned and no pod is evicted.
    Paused,
}

impl Suspension {
    /// How the maintenance is suspended, by its status; none if it is not.
    pub fn in_status(status: &NodeMaintenanceStatus) -> Option<Self> {
        let suspended = condition::find(&status.conditions, ConditionType::Suspended)?;
        match suspended.status == "True" {
            true if ConditionReason::of(suspended) == Some(ConditionReason::Planned) => Some(Self::Planned),
            true => Some(Self::Paused),
            false => None,
        }
    }

    /// The value in metrics.
    pub fn as_str(self) -> &'static str {
        self.into()
    }
}

/// For how many seconds the maintenance has been paused since its node was cordoned and before it was first drained, up to `now`.
pub fn paused_seconds(status: &NodeMaintenanceStatus, now: Timestamp) -> i64 {
    let earlier = status.paused_seconds.unwrap_or_default();
    let suspended = condition::find(&status.conditions, ConditionType::Suspended);
    let suspended = suspended.filter(|suspended| suspended.status == "True");
    let (Some(begun), Some(suspended)) = (status.begun_at(), suspended) else { return earlier };
    let since = suspended.last_transition_time.0.max(begun);
    // A pause of a drained node delays nothing.
    let now = whole_seconds(now).0;
    let until = status.first_drained_at().map_or(now, |drained| drained.min(now));
    earlier + until.duration_since(since).as_secs().max(0)
}

/// Completes the `next` status of `maintenance` with its suspension.
pub fn record(next: &mut NodeMaintenanceStatus, maintenance: &NodeMaintenance, now: Timestamp) {
    let was_suspended = condition::is_true(&next.conditions, ConditionType::Suspended);
    if !maintenance.spec.suspend && was_suspended {
        let before = maintenance.status.as_ref().map_or(0, |before| paused_seconds(before, now));
        next.paused_seconds = Some(before).filter(|seconds| *seconds > 0);
    }
    let (begun, shows_begin) =
        (next.has_begun(), condition::find(&next.conditions, ConditionType::Cordoned).is_some());
    // The sum is counted from the cordon.
    if !begun {
        next.paused_seconds = None;
    }
    // The medik8s operator writes no conditions: a maintenance that it began has only a phase.
    let has_begun = if shows_begin { begun } else { next.phase == Some(Phase::Running) };
    let (reason, message) = match (maintenance.spec.suspend, has_begun) {
        (true, false) => (ConditionReason::Planned, "the maintenance starts when spec.suspend is removed"),
        (true, true) => (ConditionReason::Paused, "no pod is evicted until spec.suspend is removed"),
        (false, _) => (ConditionReason::Resumed, ""),
    };
    if maintenance.spec.suspend || condition::find(&next.conditions, ConditionType::Suspended).is_some() {
        let update = ConditionUpdate {
            type_: ConditionType::Suspended,
            is_true: maintenance.spec.suspend,
            reason,
            message: message.to_owned(),
        };
        condition::record(&mut next.conditions, update, maintenance.metadata.generation, now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::maintenance::NodeMaintenanceSpec;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(1_767_225_600 + second).unwrap()
    }

    /// A maintenance and what happens to it, one status after the other.
    struct History(NodeMaintenance);

    impl History {
        fn new(suspend: bool) -> Self {
            let spec = NodeMaintenanceSpec { node_name: "n1".to_owned(), suspend, ..Default::default() };
            Self(NodeMaintenance::new("m", spec))
        }

        fn write(&mut self, suspend: bool, cordoned: bool, second: i64) -> &mut Self {
            self.0.spec.suspend = suspend;
            let mut next = self.0.status.clone().unwrap_or_default();
            next.phase = Some(if cordoned { Phase::Running } else { Phase::Pending });
            let update = ConditionUpdate {
                type_: ConditionType::Cordoned,
                is_true: cordoned,
                reason: ConditionReason::Cordoned,
                message: String::new(),
            };
            condition::record(&mut next.conditions, update, None, at(second));
            record(&mut next, &self.0, at(second));
            self.0.status = Some(next);
            self
        }

        fn status(&self) -> &NodeMaintenanceStatus {
            self.0.status.as_ref().unwrap()
        }

        fn paused(&self, second: i64) -> i64 {
            paused_seconds(self.status(), at(second))
        }
    }

    #[test]
    fn a_maintenance_that_was_never_suspended_has_no_condition() {
        let mut history = History::new(false);
        history.write(false, true, 0);
        assert!(condition::find(&history.status().conditions, ConditionType::Suspended).is_none());
        assert_eq!((history.paused(99), history.status().paused_seconds), (0, None));
    }

    #[test]
    fn pauses_add_up_and_a_status_that_is_written_twice_counts_once() {
        let mut history = History::new(false);
        history.write(false, true, 0).write(true, true, 10).write(true, true, 20);
        assert_eq!(Suspension::in_status(history.status()), Some(Suspension::Paused));
        assert_eq!((history.paused(25), history.status().paused_seconds), (15, None));
        history.write(false, true, 30).write(false, true, 31);
        assert_eq!((history.paused(99), history.status().paused_seconds), (20, Some(20)));
        assert_eq!(Suspension::in_status(history.status()), None);
        history.write(true, true, 40).write(false, true, 45);
        assert_eq!(history.status().paused_seconds, Some(25));
    }

    #[test]
    fn the_time_before_the_cordon_does_not_count() {
        let mut history = History::new(true);
        history.write(true, false, 0);
        assert_eq!(Suspension::in_status(history.status()), Some(Suspension::Planned));
        history.write(false, true, 100);
        assert_eq!((history.paused(200), history.status().paused_seconds), (0, None));
        history.write(true, true, 110).write(false, false, 120);
        assert_eq!(history.status().paused_seconds, None, "the next cordon counts anew");
    }

    #[test]
    fn a_pause_counts_until_the_node_is_drained() {
        let mut history = History::new(false);
        history.write(false, true, 0).write(true, true, 10);
        history.0.status.as_mut().unwrap().first_drained = Some(whole_seconds(at(25)));
        assert_eq!((history.paused(20), history.paused(99)), (10, 15));
        history.write(false, true, 100).write(true, true, 110);
        assert_eq!((history.paused(200), history.status().paused_seconds), (15, Some(15)));
    }

    #[test]
    fn a_clock_that_was_set_back_makes_no_pause_negative() {
        let mut history = History::new(false);
        history.write(false, true, 0).write(true, true, 10);
        assert_eq!(history.paused(5), 0);
    }
}
