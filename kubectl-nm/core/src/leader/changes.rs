//! Whether maintenances stand still because no reconciler leads.

use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

use futures::{Stream, stream};
use jiff::Timestamp;
use nm_shared::NodeMaintenance;
use tokio::time::sleep;

use crate::client::cluster::Cluster;
use crate::leader::gap::LeaderGap;
use crate::leader::reads::{LEASE_INTERVAL, LeaderReads, SLOW_INTERVAL};
use crate::maintenance::{State, kept_by_roll};
use crate::terminal::text::{Line, Style};

/// A reconciler begins within moments. Also the time after which a gap that was found is checked again.
const FIRST_CHECK: Duration = Duration::from_secs(5);

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

/// A change in whether a reconciler leads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LeaderChange {
    /// Maintenances stand still because none leads.
    NobodyLeads(LeaderGap),
    /// That is over.
    LeadsAgain,
}

impl LeaderChange {
    /// The line about it.
    pub fn line(&self) -> Line {
        match self {
            Self::NobodyLeads(gap) => Line::new(format!("warning: {}", gap.words())),
            Self::LeadsAgain => Line::default().with(Style::Good, "nm-reconciler leads again"),
        }
    }
}

/// Reports when maintenances stand still because no reconciler leads, and when one leads again. Nothing if the user may not see who
/// leads.
pub fn leader_changes(cluster: Cluster, need: Rc<Cell<LeaderNeed>>) -> impl Stream<Item = LeaderChange> {
    stream::unfold(LeaderWatch::new(cluster, need), async |mut watch| Some((watch.next().await, watch)))
}

struct LeaderWatch {
    cluster: Cluster,
    need: Rc<Cell<LeaderNeed>>,
    reads: LeaderReads,
    /// How long to wait before the next check.
    wait: Duration,
    /// What a leader was needed for at the last check.
    last: LeaderNeed,
    /// Whether the last check found a gap.
    was_gap: bool,
    /// Whether a gap was reported that is not over.
    is_reported: bool,
}

impl LeaderWatch {
    fn new(cluster: Cluster, need: Rc<Cell<LeaderNeed>>) -> Self {
        let (reads, last) = (LeaderReads::default(), LeaderNeed::Nothing);
        Self { cluster, need, reads, wait: FIRST_CHECK, last, was_gap: false, is_reported: false }
    }

    /// At a failover, nobody leads for a moment: only what two checks in a row show counts.
    async fn next(&mut self) -> LeaderChange {
        loop {
            sleep(self.wait).await;
            let now = self.need.get();
            // What is under way is checked if it was at the last check, too: most of it ends within seconds.
            let is_due = self.is_reported
                || now == LeaderNeed::ToBegin
                || (now == LeaderNeed::ToContinue && self.last != LeaderNeed::Nothing);
            self.last = now;
            if !is_due {
                (self.wait, self.was_gap) = (FIRST_CHECK, false);
                continue;
            }
            let was_suspicious = self.reads.is_suspicious();
            if !self.is_reported {
                self.reads.forget_deployments();
            }
            let Ok(gap) = self.reads.next(&self.cluster, Timestamp::now()).await else {
                (self.wait, self.was_gap) = (SLOW_INTERVAL, false);
                continue;
            };
            let gap = gap.filter(|gap| self.is_reported || now.is_hindered_by(gap));
            let was_gap = std::mem::replace(&mut self.was_gap, gap.is_some());
            // Of a leader whose clock is behind, the lease has expired at each read.
            let may_be_gap = gap.is_some() || (self.reads.is_suspicious() && !was_suspicious);
            self.wait = if may_be_gap && !self.is_reported { FIRST_CHECK } else { LEASE_INTERVAL };
            match gap {
                Some(gap) if was_gap && !self.is_reported => {
                    self.is_reported = true;
                    return LeaderChange::NobodyLeads(gap);
                }
                // The next read shows whether a lease that has expired is another one.
                None if self.is_reported && !self.reads.is_suspicious() => {
                    self.is_reported = false;
                    return LeaderChange::LeadsAgain;
                }
                _ => {}
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use futures::StreamExt;
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

    fn need(now: LeaderNeed) -> Rc<Cell<LeaderNeed>> {
        Rc::new(Cell::new(now))
    }

    /// The lines of the changes within this time.
    async fn lines(cluster: Cluster, need: Rc<Cell<LeaderNeed>>, seconds: u64) -> Vec<String> {
        let (mut lines, changes) = (Vec::new(), leader_changes(cluster, need));
        let each = changes.for_each(|change| {
            lines.push(change.line().to_string());
            std::future::ready(())
        });
        assert!(timeout(Duration::from_secs(seconds), each).await.is_err(), "the changes never end");
        lines
    }

    const NOBODY: &str = "warning: no nm-reconciler leads: by this computer's clock, its lease expired at 2026-01-02T03:04:20Z";

    #[tokio::test(start_paused = true)]
    async fn nobody_leading_is_found_once_a_maintenance_does_not_begin_or_continue() {
        for (wanted, seconds) in [(LeaderNeed::ToBegin, 70), (LeaderNeed::ToContinue, 75)] {
            let (cluster, requests) =
                cluster(|_, path| if path.ends_with("/leases") { lapsed() } else { failure(403, "", "") });
            let need = need(LeaderNeed::Nothing);
            let mut watch = LeaderWatch::new(cluster, Rc::clone(&need));
            let request = async {
                after(58).await;
                assert_eq!(reads(&requests), 0, "nothing is asked before");
                need.set(wanted);
            };
            let began = Instant::now();
            let (change, ()) = join(watch.next(), request).await;
            assert_eq!(change.line().to_string(), NOBODY);
            assert_eq!((began.elapsed().as_secs(), reads(&requests)), (seconds, 3));
        }
    }

    #[tokio::test(start_paused = true)]
    async fn each_time_without_a_leader_is_reported_once_and_so_is_its_end() {
        let began = Instant::now();
        let (cluster, _) = cluster(move |_, path| match began.elapsed().as_secs() {
            _ if !path.ends_with("/leases") => failure(403, "Forbidden", "x"),
            // The leader is not read for a while, which is no leader.
            120..140 => failure(403, "Forbidden", "x"),
            0..300 | 400..500 => lapsed(),
            _ => held(),
        });
        let again = "nm-reconciler leads again";
        let lines = lines(cluster, need(LeaderNeed::ToContinue), 900).await;
        assert_eq!(lines, [NOBODY, again, NOBODY, again]);
    }

    #[tokio::test(start_paused = true)]
    async fn the_end_of_a_reported_gap_is_read_although_nothing_needs_a_leader_any_more() {
        let began = Instant::now();
        let (cluster, _) = cluster(move |_, path| match began.elapsed().as_secs() {
            _ if !path.ends_with("/leases") => failure(403, "Forbidden", "x"),
            0..100 | 300.. => lapsed(),
            _ => held(),
        });
        let need = need(LeaderNeed::ToContinue);
        let changes = async {
            after(99).await;
            need.set(LeaderNeed::Nothing);
            after(200).await;
            need.set(LeaderNeed::ToBegin);
        };
        let (lines, ()) = join(lines(cluster, Rc::clone(&need), 400), changes).await;
        assert_eq!(lines, [NOBODY, "nm-reconciler leads again", NOBODY]);
    }

    #[tokio::test(start_paused = true)]
    async fn deployments_that_are_not_ready_for_a_moment_are_no_gap() {
        let began = Instant::now();
        let (cluster, _) = cluster(move |_, path| {
            let items = if path.ends_with("/leases") {
                json!([])
            } else {
                let ready = i32::from(began.elapsed().as_secs() != 5);
                json!([{"metadata": {"namespace": "nm", "name": "nm-reconciler", "creationTimestamp": "2026-01-02T03:04:05Z"},
                    "spec": {"selector": {}, "template": {}}, "status": {"readyReplicas": ready, "availableReplicas": ready}}])
            };
            (200, json!({"kind": "List", "apiVersion": "v1", "metadata": {}, "items": items}))
        });
        assert_eq!(lines(cluster, need(LeaderNeed::ToBegin), 200).await, [""; 0]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_moment_without_a_leader_is_a_failover() {
        for wanted in [LeaderNeed::ToBegin, LeaderNeed::ToContinue] {
            let began = Instant::now();
            let (cluster, requests) = cluster(move |_, _| match began.elapsed().as_secs() % 60 {
                // Longer than a replica needs to take over a lease that has expired.
                20..28 => lapsed(),
                _ => held(),
            });
            assert_eq!(lines(cluster, need(wanted), 600).await, [""; 0]);
            assert!(reads(&requests) > 50);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_leader_whose_clock_is_behind_leads() {
        let began = Instant::now();
        let (cluster, _) = cluster(move |_, path| {
            if !path.ends_with("/leases") {
                return failure(403, "Forbidden", "x");
            }
            // It renews its lease every 5 s.
            let (code, mut leases) = lapsed();
            let renewed = Timestamp::UNIX_EPOCH
                + jiff::SignedDuration::from_secs(began.elapsed().as_secs().cast_signed() / 5 * 5);
            leases["items"][0]["spec"]["renewTime"] = json!(format!("{renewed:.6}"));
            (code, leases)
        });
        assert_eq!(lines(cluster, need(LeaderNeed::ToBegin), 600).await, [""; 0]);
    }

    #[tokio::test(start_paused = true)]
    async fn what_has_just_begun_or_begins_and_ends_between_two_checks_asks_nothing() {
        let (cluster, requests) = cluster(|_, _| lapsed());
        let need = need(LeaderNeed::Nothing);
        let steps = async {
            for _ in 0..10 {
                need.set(LeaderNeed::ToContinue);
                after(6).await;
                need.set(LeaderNeed::Nothing);
                after(54).await;
            }
        };
        let (found, ()) = join(lines(cluster, Rc::clone(&need), 599), steps).await;
        assert_eq!((found, reads(&requests)), (Vec::new(), 0));
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_under_way_without_an_installation_is_served_by_something_that_is_not_seen() {
        let nothing = || (200, json!({"kind": "List", "apiVersion": "v1", "metadata": {}, "items": []}));
        let (cluster, requests) = cluster(move |_, _| nothing());
        let need = need(LeaderNeed::ToContinue);
        assert_eq!(lines(cluster.clone(), Rc::clone(&need), 600).await, [""; 0]);
        assert!(reads(&requests) > 0);
        need.set(LeaderNeed::ToBegin);
        let found = LeaderWatch::new(cluster, need).next().await;
        assert_eq!(found, LeaderChange::NobodyLeads(LeaderGap::NotInstalled));
    }

    #[tokio::test(start_paused = true)]
    async fn without_permission_nothing_is_found() {
        let (cluster, _) = cluster(|_, _| failure(403, "Forbidden", "x"));
        // The clock of the test advances whenever nothing else is to be done.
        assert_eq!(lines(cluster, need(LeaderNeed::ToBegin), 600).await, [""; 0]);
    }
}
