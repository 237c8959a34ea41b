//! The workloads that the drain of the open node has left without a ready pod, as they were last read. Pods that left before the
//! node was opened are not shown, and nothing else would name their workloads.

use jiff::{SignedDuration, Timestamp};

/// A read that is this old is repeated: it takes several requests.
const REREAD_AFTER: SignedDuration = SignedDuration::from_secs(60);

#[derive(Debug, Clone, Default)]
pub(crate) struct Outages {
    requested: Option<Timestamp>,
    /// The workloads, each with its namespace.
    pub(crate) down: Vec<String>,
}

impl Outages {
    /// Whether they have to be read now. `is_unseen`: pods have left that are not shown.
    pub(crate) fn begin(&mut self, is_unseen: bool, now: Timestamp) -> bool {
        if !is_unseen {
            self.down.clear();
            return false;
        }
        let is_due = self.requested.is_none_or(|requested| now.duration_since(requested) >= REREAD_AFTER);
        if is_due {
            self.requested = Some(now);
        }
        is_due
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn outages_are_read_once_a_minute_while_pods_have_left_unseen() {
        let at = |second: i64| Timestamp::from_second(second).unwrap();
        let mut outages = Outages::default();
        let begun: Vec<bool> =
            [(false, 1), (true, 2), (true, 61), (true, 62), (false, 63), (true, 64), (true, 122)]
                .map(|(is_unseen, second)| outages.begin(is_unseen, at(second)))
                .to_vec();
        assert_eq!(begun, [false, true, false, true, false, false, true]);
    }
}
