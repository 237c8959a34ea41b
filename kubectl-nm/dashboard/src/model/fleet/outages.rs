//! The workloads that drains have left without a ready pod, as they were last read. The status of a maintenance does not name
//! them, and neither do the pods that are still on its node.

use std::collections::{BTreeMap, BTreeSet};

use jiff::{SignedDuration, Timestamp};
use nm_core::explain::lasting_outages::{SETTLED, SeenOutages};
use nm_core::maintenance::{pods_gone, status, uid};
use nm_shared::NodeMaintenance;

/// How often there is a read at most, whichever nodes pods leave.
const MIN_INTERVAL: SignedDuration = SignedDuration::from_secs(30);

/// A read of a node that pods have left lately, or of workloads that are down, is repeated after this time.
const REREAD_AFTER: SignedDuration = SignedDuration::from_secs(60);

/// A read of any other node is repeated after this time: it takes several requests.
const QUIET_AFTER: SignedDuration = SignedDuration::from_mins(5);

/// After the last pod has left, its replacement may take so long to become Ready, or to fail.
const LATELY: SignedDuration = SignedDuration::from_mins(5);

#[derive(Debug, Clone, Default)]
pub(crate) struct Outages {
    requested: Option<Timestamp>,
    /// Whether the last read has not ended. One that takes longer than the time until the next read ends without an answer.
    is_reading: bool,
    /// By the uids of maintenances, because a node may have had another one before.
    nodes: BTreeMap<String, NodeOutages>,
}

#[derive(Debug, Clone)]
struct NodeOutages {
    gone: i32,
    /// When the number of gone pods was seen to change.
    changed: Timestamp,
    requested: Option<Timestamp>,
    seen: SeenOutages,
}

impl NodeOutages {
    fn is_due(&self, now: Timestamp) -> bool {
        let is_watched = !self.seen.down.is_empty() || now.duration_since(self.changed) < LATELY;
        let after = if is_watched { REREAD_AFTER } else { QUIET_AFTER };
        let settled = self.changed.saturating_add(SETTLED).unwrap_or(Timestamp::MAX);
        self.requested.is_none_or(|requested| {
            now.duration_since(requested) >= after || (requested < settled && now >= settled)
        })
    }
}

impl Outages {
    /// Whether the time has come to ask whether a read is due.
    pub(crate) fn may_begin(&self, now: Timestamp) -> bool {
        let interval = if self.is_reading { REREAD_AFTER } else { MIN_INTERVAL };
        self.requested.is_none_or(|requested| now.duration_since(requested) >= interval)
    }

    /// Whether the outages of these maintenances have to be read now.
    pub(crate) fn begin<'a>(
        &mut self,
        shown: impl Iterator<Item = &'a NodeMaintenance>,
        now: Timestamp,
    ) -> bool {
        let mut is_due = false;
        let mut uids = Vec::new();
        for maintenance in shown {
            let (uid, gone) = (uid(maintenance), pods_gone(status(maintenance)));
            let new = NodeOutages { gone, changed: now, requested: None, seen: SeenOutages::default() };
            let known = self.nodes.entry(uid.clone()).or_insert(new);
            if known.gone != gone {
                (known.gone, known.changed) = (gone, now);
            }
            is_due |= known.is_due(now);
            uids.push(uid);
        }
        if is_due {
            (self.requested, self.is_reading) = (Some(now), true);
            for uid in &uids {
                self.nodes.entry(uid.clone()).and_modify(|known| known.requested = Some(now));
            }
        }
        is_due
    }

    /// Notes that the last read has ended.
    pub(crate) fn end(&mut self) {
        self.is_reading = false;
    }

    /// Takes over what was read of a maintenance.
    pub(crate) fn set(&mut self, uid: &str, seen: SeenOutages) {
        if let Some(known) = self.nodes.get_mut(uid) {
            known.seen = seen;
        }
    }

    pub(crate) fn retain(&mut self, mut is_left: impl FnMut(&str) -> bool) {
        self.nodes.retain(|uid, _| is_left(uid));
    }

    /// The workloads that are down since pods left the node of a maintenance, each with its namespace.
    pub(crate) fn of(&self, uid: &str) -> &[String] {
        self.nodes.get(uid).map_or(&[], |known| known.seen.down.as_slice())
    }

    /// The workloads of all of these maintenances, each once.
    pub(crate) fn of_all<'a>(&self, uids: impl Iterator<Item = &'a str>) -> BTreeSet<&str> {
        uids.flat_map(|uid| self.of(uid)).map(String::as_str).collect()
    }

    /// The permissions that the user lacks to find the workloads of all of these maintenances.
    pub(crate) fn denied<'a>(&self, uids: impl Iterator<Item = &'a str>) -> BTreeSet<&str> {
        uids.filter_map(|uid| self.nodes.get(uid))
            .flat_map(|known| &known.seen.denied)
            .map(String::as_str)
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use nm_core::testing::objects::{running, with_status};

    use super::*;

    #[test]
    fn outages_are_read_when_replacements_had_their_time_then_once_a_minute_and_rarely_afterwards() {
        let mut outages = Outages::default();
        let node = with_status("n1", running(40, &[]));
        let mut reads = |seconds: std::ops::Range<i64>| {
            let at = |second: i64| Timestamp::from_second(second).unwrap();
            seconds
                .filter(|second| {
                    let begins =
                        outages.may_begin(at(*second)) && outages.begin(std::iter::once(&node), at(*second));
                    outages.end();
                    begins
                })
                .collect::<Vec<i64>>()
        };
        assert_eq!(reads(0..301), [0, 31, 91, 151, 211, 271]);
        assert_eq!(reads(301..1000), [571, 871]);
        let down = vec![String::from("shop/deploy/web")];
        outages.set(&uid(&node), SeenOutages { down, ..SeenOutages::default() });
        let is_read = |outages: &mut Outages, second: i64| {
            outages.begin(std::iter::once(&node), Timestamp::from_second(second).unwrap())
        };
        assert!(is_read(&mut outages, 1000), "it may be up again");
        assert!(!is_read(&mut outages, 1059));
        assert!(is_read(&mut outages, 1060));
        outages.retain(|_| false);
        assert_eq!(outages.of(&uid(&node)), [] as [String; 0]);
    }
}
