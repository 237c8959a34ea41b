//! Whether maintenances stand still because no reconciler leads.

use std::cell::Cell;
use std::time::Duration;

use jiff::Timestamp;
use nm_shared::NodeMaintenance;
use tokio::time::sleep;

use crate::client::cluster::Cluster;
use crate::maintenance::{State, kept_by_roll};
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
    /// What these maintenances need one for.
    pub fn of_all<'a>(maintenances: impl IntoIterator<Item = &'a NodeMaintenance>) -> Self {
        maintenances.into_iter().map(Self::of).max().unwrap_or_default()
    }

    /// Whether this does not happen because of a gap. If no reconciler is seen at all, something else works on what is under way.
    pub fn is_hindered_by(self, gap: &LeaderGap) -> bool {
        match self {
            Self::Nothing => false,
            Self::ToContinue => *gap != LeaderGap::NotInstalled,
            Self::ToBegin => true,
        }
    }

    /// What a maintenance needs one for.
    pub(crate) fn of(maintenance: &NodeMaintenance) -> Self {
        match State::of(maintenance) {
            State::Requested if maintenance.spec.suspend => Self::Nothing,
            State::Requested => Self::ToBegin,
            // The node is back in service, and the rest is left to its roll.
            State::Stopping if kept_by_roll(maintenance).is_some() => Self::Nothing,
            State::Queued | State::Draining | State::Blocked | State::Stopping => Self::ToContinue,
            State::Planned | State::Paused | State::Drained | State::Failed => Self::Nothing,
        }
    }
}

/// Waits until a maintenance stands still because no reconciler leads. Never returns if the user may not see who leads.
///
/// At a failover, nobody leads for a moment: only what two checks in a row show counts.
pub async fn until_nobody_leads(cluster: &Cluster, need: &Cell<LeaderNeed>) -> LeaderGap {
    let (mut wait, mut last, mut was_gap) = (FIRST_CHECK, LeaderNeed::Nothing, false);
    loop {
        sleep(wait).await;
        let now = need.get();
        // What is under way is checked if it was at the last check, too.
        let is_due =
            now == LeaderNeed::ToBegin || (now == LeaderNeed::ToContinue && last != LeaderNeed::Nothing);
        let gap = if is_due { gap_for(cluster, now).await } else { None };
        match gap {
            Some(gap) if was_gap => return gap,
            gap => was_gap = gap.is_some(),
        }
        // A maintenance that does not start is not left without a word for long.
        let is_soon = now == LeaderNeed::Nothing || (now == LeaderNeed::ToBegin && was_gap);
        (wait, last) = (if is_soon { FIRST_CHECK } else { CHECK_INTERVAL }, now);
    }
}

/// That nobody leads who could do this, if the user may see that.
async fn gap_for(cluster: &Cluster, need: LeaderNeed) -> Option<LeaderGap> {
    let gap = leader::gap(cluster, Timestamp::now()).await.ok().flatten();
    gap.filter(|gap| need.is_hindered_by(gap))
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use futures::future::join;
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
    use nm_shared::api::names::FINALIZER;
    use serde_json::{Value, json};
    use tokio::time::{Instant, timeout};

    use super::*;
    use crate::maintenance::{ROLL_FINALIZER, ROLL_LABEL};
    use crate::testing::fake_server::{cluster, failure};
    use crate::testing::objects::{requested, with_status};

    fn lapsed() -> (u16, Value) {
        let spec = json!({"holderIdentity": "a", "renewTime": "2026-01-02T03:04:05.000000Z", "leaseDurationSeconds": 15});
        let lease = json!({"metadata": {"namespace": "nm", "name": "nm-reconciler"}, "spec": spec});
        (200, json!({"kind": "List", "apiVersion": "v1", "metadata": {}, "items": [lease]}))
    }

    fn held() -> (u16, Value) {
        let (code, mut leases) = lapsed();
        leases["items"][0]["spec"]["renewTime"] = json!(format!("{:.6}", Timestamp::now()));
        (code, leases)
    }

    fn reads(requests: &Mutex<Vec<String>>) -> usize {
        requests.lock().unwrap().iter().filter(|request| request.ends_with("/leases")).count()
    }

    async fn after(seconds: u64) {
        sleep(Duration::from_secs(seconds)).await;
    }

    #[test]
    fn a_node_that_is_back_in_service_needs_no_leader_while_its_roll_keeps_its_maintenance() {
        let mut stopping = with_status("n1", json!({"phase": "Succeeded"}));
        stopping.metadata.deletion_timestamp = Some(Time(Timestamp::UNIX_EPOCH));
        stopping.metadata.labels = Some([(ROLL_LABEL.to_owned(), "r".to_owned())].into());
        for (finalizers, need) in [
            (vec![FINALIZER, ROLL_FINALIZER], LeaderNeed::ToContinue),
            (vec![ROLL_FINALIZER], LeaderNeed::Nothing),
        ] {
            stopping.metadata.finalizers = Some(finalizers.into_iter().map(str::to_owned).collect());
            assert_eq!(LeaderNeed::of_all([&stopping]), need);
        }
        let mut planned = requested("n2");
        planned.spec.suspend = true;
        assert_eq!(LeaderNeed::of_all([&stopping, &planned]), LeaderNeed::Nothing);
        assert_eq!(LeaderNeed::of_all([&stopping, &requested("n2")]), LeaderNeed::ToBegin);
    }

    #[tokio::test(start_paused = true)]
    async fn nobody_leading_is_found_once_a_maintenance_does_not_begin_or_continue() {
        for (wanted, seconds) in [(LeaderNeed::ToBegin, 65), (LeaderNeed::ToContinue, 120)] {
            let (cluster, requests) = cluster(|_, _| lapsed());
            let need = Cell::default();
            let request = async {
                after(58).await;
                assert_eq!(reads(&requests), 0, "nothing is asked before");
                need.set(wanted);
            };
            let began = Instant::now();
            let (gap, ()) = join(until_nobody_leads(&cluster, &need), request).await;
            assert!(matches!(gap, LeaderGap::Lapsed { .. }), "{gap:?}");
            assert_eq!((began.elapsed().as_secs(), reads(&requests)), (seconds, 2));
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_moment_without_a_leader_is_a_failover() {
        for wanted in [LeaderNeed::ToBegin, LeaderNeed::ToContinue] {
            let answered = Mutex::new(0);
            let (cluster, requests) = cluster(move |_, path| {
                let mut answered = answered.lock().unwrap();
                *answered += i32::from(path.ends_with("/leases"));
                if [2, 4].contains(&*answered) { held() } else { lapsed() }
            });
            let gap = until_nobody_leads(&cluster, &Cell::new(wanted)).await;
            assert!(matches!(gap, LeaderGap::Lapsed { .. }), "{gap:?}");
            assert_eq!(reads(&requests), 6, "the lease has lapsed in the first, third, fifth and sixth");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn what_has_just_begun_or_begins_and_ends_between_two_checks_asks_nothing() {
        let (cluster, requests) = cluster(|_, _| lapsed());
        let need = Cell::default();
        let steps = async {
            for _ in 0..10 {
                need.set(LeaderNeed::ToContinue);
                after(6).await;
                need.set(LeaderNeed::Nothing);
                after(54).await;
            }
        };
        tokio::select! {
            gap = until_nobody_leads(&cluster, &need) => panic!("{gap:?}"),
            () = steps => {}
        }
        assert_eq!(reads(&requests), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_under_way_without_an_installation_is_served_by_something_that_is_not_seen() {
        let nothing = || (200, json!({"kind": "List", "apiVersion": "v1", "metadata": {}, "items": []}));
        let (cluster, requests) = cluster(move |_, _| nothing());
        let need = Cell::new(LeaderNeed::ToContinue);
        let never = timeout(Duration::from_secs(600), until_nobody_leads(&cluster, &need));
        assert!(never.await.is_err() && reads(&requests) > 0);
        need.set(LeaderNeed::ToBegin);
        assert_eq!(until_nobody_leads(&cluster, &need).await, LeaderGap::NotInstalled);
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
