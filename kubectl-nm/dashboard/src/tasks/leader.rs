//! Reads now and then whether a reconciler leads.
//!
//! Usually that is one request for the lease of the leader. Its times come from the leader's clock, which may differ from the
//! local one, so an expired lease counts once a second read finds that nobody has renewed it. Where the user may not read it,
//! nothing is reported.

use std::time::Duration;

use jiff::Timestamp;
use nm_core::client::cluster::Cluster;
use nm_core::plan::leader::{self, Evidence, LeaderGap};
use nm_core::plan::unread::Unread;
use tokio::sync::mpsc::Sender;
use tokio::time::{Instant, sleep};

use crate::message::Message;

/// How often the lease is read.
const LEASE_INTERVAL: Duration = Duration::from_secs(10);

/// How often Deployments are read while the lease does not decide, and the lease while the user may not read it.
const SLOW_INTERVAL: Duration = Duration::from_secs(60);

/// What earlier reads showed.
#[derive(Default)]
struct LeaderReads {
    /// When the lease was last renewed, if it had expired.
    lapsed: Option<Timestamp>,
    /// When Deployments were last read, and what they showed.
    deployments: Option<(Instant, Option<LeaderGap>)>,
}

/// Reports whether there is a gap in the leadership, at first and when that changes.
pub(crate) async fn watch(cluster: Cluster, to: Sender<Message>) {
    let mut reads = LeaderReads::default();
    let mut reported = None;
    loop {
        let read = reads.next(&cluster, Timestamp::now()).await;
        let after = if read.is_ok() { LEASE_INTERVAL } else { SLOW_INTERVAL };
        let gap = read.unwrap_or_default();
        // The receiver is gone when the dashboard has ended.
        if reported.as_ref() != Some(&gap) && to.send(Message::Leader(gap.clone())).await.is_err() {
            return;
        }
        reported = Some(gap);
        sleep(after).await;
    }
}

impl LeaderReads {
    async fn next(&mut self, cluster: &Cluster, now: Timestamp) -> Result<Option<LeaderGap>, Unread> {
        let lapsed = self.lapsed.take();
        match leader::read_lease(cluster, now).await? {
            Evidence::Served => self.deployments = None,
            Evidence::Gap(gap) => {
                if let LeaderGap::Lapsed { renewed, .. } = &gap {
                    self.lapsed = Some(*renewed);
                }
                if lapsed != self.lapsed {
                    self.deployments = None;
                    return Ok(None);
                }
                if let Some((at, gap)) = &self.deployments
                    && at.elapsed() < SLOW_INTERVAL
                {
                    return Ok(gap.clone());
                }
                let gap = leader::unless_left_over(cluster, gap, now).await;
                self.deployments = Some((Instant::now(), gap.clone()));
                return Ok(gap);
            }
            Evidence::Undecided { released } => {
                if let Some((at, gap)) = &self.deployments
                    && at.elapsed() < SLOW_INTERVAL
                {
                    return Ok(gap.clone());
                }
                let gap = leader::read_deployments(cluster, released, now).await?;
                self.deployments = Some((Instant::now(), gap.clone()));
                return Ok(gap);
            }
        }
        Ok(None)
    }
}

#[cfg(test)]
mod tests {
    use jiff::SignedDuration;
    use nm_core::testing::fake_server::{cluster, failure};
    use serde_json::{Value, json};
    use tokio::sync::mpsc;

    use super::*;

    fn lease(holder: &Value, renewed: Timestamp) -> Value {
        json!({"metadata": {"namespace": "nm", "name": "nm-reconciler"},
            "spec": {"holderIdentity": holder, "renewTime": format!("{renewed:.6}"), "leaseDurationSeconds": 15}})
    }

    fn list(items: &[Value]) -> (u16, Value) {
        (200, json!({"kind": "List", "apiVersion": "v1", "metadata": {}, "items": items}))
    }

    /// What successive reads report, where the leases are those, and how often Deployments were read.
    async fn reported(leases: Vec<Value>) -> (Vec<bool>, usize) {
        let count = leases.len();
        let left = std::sync::Mutex::new(leases.into_iter());
        let deployment = json!({"metadata": {"namespace": "nm", "name": "nm-reconciler"},
            "spec": {"selector": {}, "template": {}}, "status": {"readyReplicas": 0}});
        let (cluster, requests) = cluster(move |_, path| {
            if path.ends_with("/leases") {
                return list(&left.lock().unwrap().next().into_iter().collect::<Vec<_>>());
            }
            list(std::slice::from_ref(&deployment))
        });
        let mut reads = LeaderReads::default();
        let mut gaps = Vec::new();
        for _ in 0..count {
            gaps.push(reads.next(&cluster, Timestamp::now()).await.unwrap().is_some());
        }
        let requests = requests.lock().unwrap().len();
        (gaps, requests - count)
    }

    #[tokio::test]
    async fn an_expired_lease_counts_once_nobody_has_renewed_it_meanwhile() {
        let held = json!("a");
        let ago = |seconds| Timestamp::now() - SignedDuration::from_secs(seconds);
        let old = ago(100);
        let leases = vec![lease(&held, old), lease(&held, old), lease(&held, ago(0)), lease(&held, ago(90))];
        assert_eq!(reported(leases).await, (vec![false, true, false, false], 1));
        // The leader's clock is behind, and it renews its lease.
        let leases = (0..3).map(|at| lease(&held, ago(100 - at * 10))).collect();
        assert_eq!(reported(leases).await, (vec![false, false, false], 0));
    }

    #[tokio::test]
    async fn a_released_lease_reads_the_deployments_once_in_a_while() {
        let released = lease(&Value::Null, Timestamp::UNIX_EPOCH);
        assert_eq!(reported(vec![released; 3]).await, (vec![true, true, true], 1));
    }

    #[tokio::test(start_paused = true)]
    async fn without_permission_nothing_is_reported() {
        let (cluster, requests) = cluster(|_, _| failure(403, "Forbidden", "x"));
        let (to, mut from) = mpsc::channel(4);
        let watched = watch(cluster, to);
        let _ = tokio::time::timeout(SLOW_INTERVAL + LEASE_INTERVAL, watched).await;
        assert!(matches!(from.try_recv(), Ok(Message::Leader(None))));
        assert!(from.try_recv().is_err());
        assert_eq!(requests.lock().unwrap().len(), 2, "it is read once a minute");
    }
}
