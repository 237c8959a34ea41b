//! The state of the watches, and how fresh the view is.

use std::collections::BTreeMap;

use jiff::Timestamp;

use crate::objects::watch_state::{WatchKind, WatchState};

#[derive(Debug, Clone, Default)]
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
            WatchState::Connecting | WatchState::Forbidden(_) | WatchState::Unrecorded => {
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

    /// How current a view of maintenances is; with the pods of an open node, or all nodes, beside them, as current as the
    /// older of both. `beside` has whether these are listed: their watch may be live before.
    pub(crate) fn overall(&self, beside: Option<(WatchKind, bool)>) -> &WatchState {
        let maintenances = self.of(WatchKind::Maintenances);
        let Some((kind, is_listed)) = beside else { return maintenances };
        match (maintenances, self.of(kind)) {
            (WatchState::Live, others @ (WatchState::Lost { .. } | WatchState::Connecting)) => others,
            (WatchState::Live, WatchState::Live) if !is_listed => &WatchState::Connecting,
            (WatchState::Lost { since, .. }, others @ WatchState::Lost { since: earlier, .. })
                if earlier < since =>
            {
                others
            }
            // Without permission to list the others, only maintenances are shown.
            _ => maintenances,
        }
    }

    /// Notes that a watch restarts.
    pub(crate) fn restart(&mut self, kind: WatchKind, now: Timestamp) {
        self.set(kind, WatchState::Connecting, now);
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
        let pods = |is_listed| Some((WatchKind::Pods, is_listed));
        let (fleet, awaited, complete) = (None, pods(false), pods(true));
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
