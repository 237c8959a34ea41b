//! Whether a reconciler leads, read again and again.
//!
//! Usually that is one request for the lease of the leader. Its times come from the leader's clock, which may differ from the
//! local one, so an expired lease counts once a second read finds that nobody has renewed it.

use std::time::Duration;

use jiff::Timestamp;
use tokio::time::Instant;

use crate::client::cluster::Cluster;
use crate::client::unread::Unread;
use crate::leader::gap::{self, Evidence, LeaderGap};

/// How often the lease is read.
pub const LEASE_INTERVAL: Duration = Duration::from_secs(10);

/// How often Deployments are read while the lease does not decide, and the lease while the user may not read it.
pub const SLOW_INTERVAL: Duration = Duration::from_secs(60);

/// What earlier reads showed.
#[derive(Debug, Default)]
pub struct LeaderReads {
    /// When the lease was last renewed, if it had expired.
    lapsed: Option<Timestamp>,
    /// When Deployments were last read, and what they showed.
    deployments: Option<(Instant, Option<LeaderGap>)>,
}

impl LeaderReads {
    /// Whether the lease had expired at the last read, which does not count alone.
    pub fn is_suspicious(&self) -> bool {
        self.lapsed.is_some()
    }

    /// Lets the next read decide anew where the lease does not.
    pub fn forget_deployments(&mut self) {
        self.deployments = None;
    }

    /// Reads it once more: the gap, if there is one.
    ///
    /// # Errors
    ///
    /// What is not known, and why.
    pub async fn next(&mut self, cluster: &Cluster, now: Timestamp) -> Result<Option<LeaderGap>, Unread> {
        let before = self.lapsed.take();
        let evidence = gap::read_lease(cluster, now).await?;
        if let Evidence::Gap(LeaderGap::Lapsed { renewed, .. }) = &evidence {
            self.lapsed = Some(*renewed);
        }
        let is_first = matches!(evidence, Evidence::Gap(_)) && before != self.lapsed;
        if is_first || matches!(evidence, Evidence::Served) {
            self.forget_deployments();
            return Ok(None);
        }
        if let Some((at, gap)) = &self.deployments
            && at.elapsed() < SLOW_INTERVAL
        {
            return Ok(gap.clone());
        }
        let gap = match evidence {
            Evidence::Served => None,
            Evidence::Gap(gap) => gap::unless_left_over(cluster, gap, now).await,
            Evidence::Undecided { released } => gap::read_deployments(cluster, released, now).await?,
        };
        self.deployments = Some((Instant::now(), gap.clone()));
        Ok(gap)
    }
}

#[cfg(test)]
mod tests {
    use jiff::SignedDuration;
    use serde_json::{Value, json};

    use super::*;
    use crate::testing::fake_server::cluster;

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
}
