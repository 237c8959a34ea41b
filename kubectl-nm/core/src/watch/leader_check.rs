//! Whether a maintenance does not begin because no reconciler leads.

use std::cell::Cell;
use std::time::Duration;

use jiff::Timestamp;
use tokio::time::sleep;

use crate::client::cluster::Cluster;
use crate::plan::leader::{self, LeaderGap};

/// A reconciler begins within moments.
const FIRST_CHECK: Duration = Duration::from_secs(5);

const CHECK_INTERVAL: Duration = Duration::from_secs(30);

/// Waits until a maintenance stands still although it was requested, because no reconciler leads. Never returns if the user may
/// not see who leads. `is_requested`: whether a maintenance has not started.
pub async fn until_nobody_leads(cluster: &Cluster, is_requested: &Cell<bool>) -> LeaderGap {
    let mut wait = FIRST_CHECK;
    loop {
        sleep(wait).await;
        wait = if is_requested.get() { CHECK_INTERVAL } else { FIRST_CHECK };
        if is_requested.get()
            && let Ok(Some(gap)) = leader::gap(cluster, Timestamp::now()).await
        {
            return gap;
        }
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
    async fn nobody_leading_is_found_once_a_maintenance_does_not_begin() {
        let (cluster, requests) = cluster(|_, _| lapsed());
        let is_requested = Cell::new(false);
        let request = async {
            sleep(Duration::from_secs(60)).await;
            assert_eq!(requests.lock().unwrap().len(), 0, "nothing is asked before");
            is_requested.set(true);
        };
        let (gap, ()) = join(until_nobody_leads(&cluster, &is_requested), request).await;
        assert!(matches!(gap, LeaderGap::Lapsed { .. }), "{gap:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn without_permission_nothing_is_found() {
        let (cluster, _) = cluster(|_, _| failure(403, "Forbidden", "x"));
        let is_requested = Cell::new(true);
        let never = until_nobody_leads(&cluster, &is_requested);
        // The clock of the test advances whenever nothing else is to be done.
        assert!(timeout(Duration::from_secs(600), never).await.is_err());
    }
}
