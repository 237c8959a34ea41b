//! Whether maintenances stand still because no reconciler leads.

use std::cell::Cell;
use std::time::Duration;

use jiff::Timestamp;
use nm_shared::NodeMaintenance;
use tokio::time::sleep;

use crate::client::cluster::Cluster;
use crate::maintenance::State;
use crate::plan::leader::{self, LeaderGap};

/// A reconciler begins within moments.
const FIRST_CHECK: Duration = Duration::from_secs(5);

const CHECK_INTERVAL: Duration = Duration::from_secs(30);

/// What maintenances need a leader for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum LeaderNeed {
    /// None of them waits for it.
    #[default]
    Nothing,
    /// One is under way.
    ToContinue,
    /// One has not started.
    ToBegin,
}

impl LeaderNeed {
    /// What a maintenance needs one for.
    pub(crate) fn of(maintenance: &NodeMaintenance) -> Self {
        match State::of(maintenance) {
            State::Requested => Self::ToBegin,
            State::Queued | State::Draining | State::Blocked | State::Stopping => Self::ToContinue,
            State::Planned | State::Paused | State::Drained | State::Failed => Self::Nothing,
        }
    }
}

/// Waits until a maintenance stands still because no reconciler leads. Never returns if the user may not see who leads.
pub async fn until_nobody_leads(cluster: &Cluster, need: &Cell<LeaderNeed>) -> LeaderGap {
    let (mut wait, mut last) = (FIRST_CHECK, LeaderNeed::Nothing);
    loop {
        sleep(wait).await;
        let now = need.get();
        // What is under way is checked if it was at the last look, too.
        if now == LeaderNeed::ToBegin || (now == LeaderNeed::ToContinue && last != LeaderNeed::Nothing) {
            let gap = leader::gap(cluster, Timestamp::now()).await;
            // Something works on what is under way that is not seen.
            let is_gap = |gap: &LeaderGap| now == LeaderNeed::ToBegin || *gap != LeaderGap::NotInstalled;
            if let Some(gap) = gap.ok().flatten().filter(is_gap) {
                return gap;
            }
        }
        (wait, last) = (if now == LeaderNeed::Nothing { FIRST_CHECK } else { CHECK_INTERVAL }, now);
    }
}

#[cfg(test)]
mod tests {
    use futures::future::join;
    use serde_json::{Value, json};
    use tokio::time::timeout;

    use super::*;
    use crate::testing::fake_server::{cluster, failure};

    fn lapsed() -> (u16, Value) {
        let spec = json!({"holderIdentity": "a", "renewTime": "2026-01-02T03:04:05.000000Z", "leaseDurationSeconds": 15});
        let lease = json!({"metadata": {"namespace": "nm", "name": "nm-reconciler"}, "spec": spec});
        (200, json!({"kind": "List", "apiVersion": "v1", "metadata": {}, "items": [lease]}))
    }

    #[tokio::test(start_paused = true)]
    async fn nobody_leading_is_found_once_a_maintenance_does_not_begin_or_continue() {
        let (cluster, requests) = cluster(|_, _| lapsed());
        for wanted in [LeaderNeed::ToBegin, LeaderNeed::ToContinue] {
            requests.lock().unwrap().clear();
            let need = Cell::default();
            let request = async {
                sleep(Duration::from_secs(60)).await;
                assert_eq!(requests.lock().unwrap().len(), 0, "nothing is asked before");
                need.set(wanted);
            };
            let (gap, ()) = join(until_nobody_leads(&cluster, &need), request).await;
            assert!(matches!(gap, LeaderGap::Lapsed { .. }), "{gap:?}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn without_permission_nothing_is_found() {
        let (cluster, _) = cluster(|_, _| failure(403, "Forbidden", "x"));
        let need = Cell::new(LeaderNeed::ToBegin);
        let never = until_nobody_leads(&cluster, &need);
        // The clock of the test advances whenever nothing else is to be done.
        assert!(timeout(Duration::from_secs(600), never).await.is_err());
    }
}
