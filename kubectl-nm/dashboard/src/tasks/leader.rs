//! Reads now and then whether a reconciler leads. Where the user may not read it, nothing is reported.

use jiff::Timestamp;
use nm_core::client::cluster::Cluster;
use nm_core::leader::reads::{LEASE_INTERVAL, LeaderReads, SLOW_INTERVAL};
use tokio::sync::mpsc::Sender;
use tokio::time::sleep;

use crate::message::Message;

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

#[cfg(test)]
mod tests {
    use nm_core::testing::fake_server::{cluster, failure};
    use tokio::sync::mpsc;

    use super::*;

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
