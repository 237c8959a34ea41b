//! The state of the watches, and how fresh the view is.

use std::collections::BTreeMap;

use jiff::Timestamp;

use crate::dashboard::message::{WatchKind, WatchState};

#[derive(Debug, Default)]
pub(crate) struct WatchHealth {
    watches: BTreeMap<WatchKind, WatchState>,
    /// Since when data may be out of date, for each watch whose data is not known to be current.
    old: BTreeMap<WatchKind, Timestamp>,
    /// When anything changed last.
    last_change: Option<Timestamp>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Freshness<'a> {
    /// Not listed yet, or not since the watches were restarted.
    Connecting,
    Live,
    /// Possibly out of date.
    Stale {
        since: Timestamp,
        error: &'a str,
    },
    /// The user has no permission; the text is the server's.
    Forbidden(&'a str),
}

/// Whether the pods of the open node have been listed: their watch may be live before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PodListing {
    /// Not yet.
    Pending,
    /// They are known.
    Complete,
}

impl WatchHealth {
    pub(crate) fn set(&mut self, kind: WatchKind, state: WatchState, now: Timestamp) {
        match &state {
            WatchState::Live => {
                self.old.remove(&kind);
            }
            WatchState::Lost { since, .. } => self.mark_old(kind, *since),
            WatchState::Forbidden(_) => self.mark_old(kind, now),
        }
        self.watches.insert(kind, state);
    }

    /// Notes that all watches restart: their data may be out of date since then.
    pub(crate) fn renew(&mut self, since: Timestamp) {
        for kind in std::mem::take(&mut self.watches).into_keys() {
            self.mark_old(kind, since);
        }
    }

    /// Losing the connection again does not make old data newer.
    fn mark_old(&mut self, kind: WatchKind, since: Timestamp) {
        let old = self.old.entry(kind).or_insert(since);
        *old = since.min(*old);
    }

    /// Since when the data of a watch may be out of date; none if it is current, or there is none.
    pub(crate) fn stale_since(&self, kind: WatchKind) -> Option<Timestamp> {
        self.old.get(&kind).copied()
    }

    /// Forgets the watches of a node that was closed.
    pub(crate) fn close(&mut self) {
        for kind in [WatchKind::Pods, WatchKind::Events] {
            self.watches.remove(&kind);
            self.old.remove(&kind);
        }
    }

    /// Notes a change.
    pub(crate) fn note_change(&mut self, now: Timestamp) {
        self.last_change = Some(now);
    }

    /// When anything changed last.
    pub(crate) fn last_change(&self) -> Option<Timestamp> {
        self.last_change
    }

    pub(crate) fn of(&self, kind: WatchKind) -> Freshness<'_> {
        match self.watches.get(&kind) {
            None => Freshness::Connecting,
            Some(WatchState::Live) => Freshness::Live,
            Some(WatchState::Lost { since, error }) => {
                Freshness::Stale { since: self.stale_since(kind).unwrap_or(*since), error }
            }
            Some(WatchState::Forbidden(why)) => Freshness::Forbidden(why),
        }
    }

    /// How fresh a view of maintenances is, and of pods if a node is open: as fresh as the oldest of them, and not live
    /// before the pods are known.
    pub(crate) fn overall(&self, pods: Option<PodListing>) -> Freshness<'_> {
        let maintenances = self.of(WatchKind::Maintenances);
        let Some(arrival) = pods else { return maintenances };
        match (&maintenances, self.of(WatchKind::Pods)) {
            (Freshness::Live, pods @ (Freshness::Stale { .. } | Freshness::Connecting)) => pods,
            (Freshness::Live, Freshness::Live) if arrival == PodListing::Pending => Freshness::Connecting,
            (Freshness::Stale { since, .. }, Freshness::Stale { since: earlier, error })
                if earlier < *since =>
            {
                Freshness::Stale { since: earlier, error }
            }
            // Without permission to list pods, only maintenances are shown.
            _ => maintenances,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_view_is_as_fresh_as_its_oldest_data() {
        let at = |second| Timestamp::from_second(second).unwrap();
        let lost = |second| WatchState::Lost { since: at(second), error: String::from("e") };
        let stale = |second| Freshness::Stale { since: at(second), error: "e" };
        let mut health = WatchHealth::default();
        let (fleet, awaited, complete) = (None, Some(PodListing::Pending), Some(PodListing::Complete));
        assert_eq!(health.overall(complete), Freshness::Connecting);
        health.set(WatchKind::Maintenances, WatchState::Live, at(20));
        assert_eq!(health.overall(fleet), Freshness::Live);
        assert_eq!(health.overall(complete), Freshness::Connecting);
        health.set(WatchKind::Pods, WatchState::Live, at(20));
        assert_eq!(health.overall(awaited), Freshness::Connecting);
        assert_eq!(health.overall(complete), Freshness::Live);
        health.set(WatchKind::Pods, lost(5), at(20));
        assert_eq!(health.overall(awaited), stale(5));
        assert_eq!(health.overall(complete), stale(5));
        assert_eq!(health.overall(fleet), Freshness::Live);
        health.set(WatchKind::Maintenances, lost(9), at(20));
        assert_eq!(health.overall(complete), stale(5));
        assert_eq!(health.overall(fleet), stale(9));
        health.set(WatchKind::Pods, WatchState::Forbidden("no".into()), at(20));
        assert_eq!(health.overall(awaited), stale(9));
        health.close();
        assert_eq!(health.of(WatchKind::Pods), Freshness::Connecting);
    }

    #[test]
    fn lost_data_is_old_since_it_was_last_known_to_be_current() {
        let at = |second| Timestamp::from_second(second).unwrap();
        let lost = |second| WatchState::Lost { since: at(second), error: String::from("e") };
        let mut health = WatchHealth::default();
        health.renew(at(1));
        assert_eq!(health.stale_since(WatchKind::Nodes), None, "nothing was listed yet");
        health.set(WatchKind::Nodes, WatchState::Live, at(2));
        assert_eq!(health.stale_since(WatchKind::Nodes), None);
        health.renew(at(5));
        health.renew(at(7));
        assert_eq!(
            (health.of(WatchKind::Nodes), health.stale_since(WatchKind::Nodes)),
            (Freshness::Connecting, Some(at(5)))
        );
        health.set(WatchKind::Nodes, lost(9), at(9));
        assert_eq!(health.of(WatchKind::Nodes), Freshness::Stale { since: at(5), error: "e" });
        health.set(WatchKind::Nodes, WatchState::Live, at(11));
        health.set(WatchKind::Nodes, WatchState::Forbidden("no".into()), at(13));
        assert_eq!(health.stale_since(WatchKind::Nodes), Some(at(13)));
    }
}
