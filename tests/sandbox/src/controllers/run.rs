//! What drives a controller: it sleeps until something changes or its time comes, and then gives it a turn.

use std::sync::Arc;
use std::time::Duration;

use crate::cluster::Cluster;

use super::controller::{Controller, Next};
use super::desk::Desk;
use super::feed::Feed;

/// Drives a controller for ever.
pub(crate) async fn run(cluster: Arc<Cluster>, mut controller: impl Controller) {
    let mut wake = cluster.store.subscribe();
    let mut feed = Feed::default();
    loop {
        // Marked as seen before it is read, so that a change in between wakes again.
        wake.borrow_and_update();
        let next = turn(&cluster, &mut feed, &mut controller);
        match next {
            Next::Now => tokio::task::yield_now().await,
            Next::Change => {
                if wake.changed().await.is_err() {
                    return;
                }
            }
            Next::At(time) => {
                let wait = Duration::try_from(time.duration_since(cluster.clock.now())).unwrap_or_default();
                tokio::select! {
                    changed = wake.changed() => if changed.is_err() { return },
                    () = tokio::time::sleep(wait) => {}
                }
            }
        }
    }
}

fn turn(cluster: &Cluster, feed: &mut Feed, controller: &mut impl Controller) -> Next {
    cluster.store.write(|state| {
        feed.read(state, &cluster.catalog, controller);
        controller.act(&mut Desk::new(state, &cluster.catalog, cluster.clock.now()))
    })
}
