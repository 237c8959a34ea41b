//! The state of the watches, and how fresh the view is.

use std::collections::BTreeMap;

use jiff::Timestamp;

use crate::dashboard::message::{WatchKind, WatchState};

#[derive(Debug, Default)]
pub(crate) struct WatchHealth {
    watches: BTreeMap<WatchKind, WatchState>,
    /// Since when data may be out of date, for each watch whose data is not known to be current.
    old: BTreeMap<WatchKind, Timestamp>,
    pub(crate) last_change: Option<Timestamp>,
}

impl WatchHealth {
    pub(crate) fn set(&mut self, kind: WatchKind, mut state: WatchState, now: Timestamp) {
        match &mut state {
            WatchState::Live => {
                self.old.remove(&kind);
            }
            WatchState::Lost { since, .. } => *since = self.mark_old(kind, *since),
            WatchState::Connecting | WatchState::Forbidden(_) => {
                self.mark_old(kind, now);
            }
        }
        self.watches.insert(kind, state);
    }

    /// Notes that all watches restart: their data may be out of date since then.
    pub(crate) fn renew(&mut self, since: Timestamp) {
        for kind in std::mem::take(&mut self.watches).into_keys() {
            self.mark_old(kind, since);
        }
    }

    /// Losing the connection again does not make old data newer. Returns since when it is old.
    fn mark_old(&mut self, kind: WatchKind, since: Timestamp) -> Timestamp {
        let old = self.old.entry(kind).or_insert(since);
        *old = since.min(*old);
        *old
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

    pub(crate) fn of(&self, kind: WatchKind) -> &WatchState {
        self.watches.get(&kind).unwrap_or(&WatchState::Connecting)
    }

    /// How current a view of maintenances is; with an open node, as current as the older of them and its pods.
    /// `pods_listed` is whether these are known: their watch may be live before.
    pub(crate) fn overall(&self, pods_listed: Option<bool>) -> &WatchState {
        let maintenances = self.of(WatchKind::Maintenances);
        let Some(pods_listed) = pods_listed else { return maintenances };
        match (maintenances, self.of(WatchKind::Pods)) {
            (WatchState::Live, pods @ (WatchState::Lost { .. } | WatchState::Connecting)) => pods,
            (WatchState::Live, WatchState::Live) if !pods_listed => &WatchState::Connecting,
            (WatchState::Lost { since, .. }, pods @ WatchState::Lost { since: earlier, .. })
                if earlier < since =>
            {
                pods
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
        let stale = lost;
        let mut health = WatchHealth::default();
        let (fleet, awaited, complete) = (None, Some(false), Some(true));
        assert_eq!(*health.overall(complete), WatchState::Connecting);
        health.set(WatchKind::Maintenances, WatchState::Live, at(20));
        assert_eq!(*health.overall(fleet), WatchState::Live);
        assert_eq!(*health.overall(complete), WatchState::Connecting);
        health.set(WatchKind::Pods, WatchState::Live, at(20));
        assert_eq!(*health.overall(awaited), WatchState::Connecting);
        assert_eq!(*health.overall(complete), WatchState::Live);
        health.set(WatchKind::Pods, lost(5), at(20));
        assert_eq!(*health.overall(awaited), stale(5));
        assert_eq!(*health.overall(complete), stale(5));
        assert_eq!(*health.overall(fleet), WatchState::Live);
        health.set(WatchKind::Maintenances, lost(9), at(20));
        assert_eq!(*health.overall(complete), stale(5));
        assert_eq!(*health.overall(fleet), stale(9));
        health.set(WatchKind::Pods, WatchState::Forbidden("no".into()), at(20));
        assert_eq!(*health.overall(awaited), stale(9));
        health.close();
        assert_eq!(*health.of(WatchKind::Pods), WatchState::Connecting);
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
            (&WatchState::Connecting, Some(at(5)))
        );
        health.set(WatchKind::Nodes, lost(9), at(9));
        assert_eq!(*health.of(WatchKind::Nodes), lost(5));
        health.set(WatchKind::Nodes, WatchState::Live, at(11));
        health.set(WatchKind::Nodes, WatchState::Forbidden("no".into()), at(13));
        assert_eq!(health.stale_since(WatchKind::Nodes), Some(at(13)));
    }
}
