//! Runs a controller: it waits for a change or for the controller's time, then reconciles.

use std::sync::Arc;
use std::time::Duration;

use crate::cluster::Cluster;

use crate::controllers::engine::change_feed::ChangeFeed;
use crate::controllers::engine::context::ReconcileContext;
use crate::controllers::engine::controller::{Controller, Requeue};

/// Runs a controller until the cluster is dropped.
pub(crate) async fn run(cluster: Arc<Cluster>, mut controller: impl Controller) {
    let mut wake = cluster.store.subscribe();
    let mut feed = ChangeFeed::default();
    loop {
        // Marked as seen before the state is read, so that a change in between triggers another reconcile.
        wake.borrow_and_update();
        let next = turn(&cluster, &mut feed, &mut controller);
        match next {
            Requeue::Now => tokio::task::yield_now().await,
            Requeue::Change => {
                if wake.changed().await.is_err() {
                    return;
                }
            }
            Requeue::At(time) => {
                let wait = Duration::try_from(time.duration_since(cluster.clock.now())).unwrap_or_default();
                tokio::select! {
                    changed = wake.changed() => if changed.is_err() { return },
                    () = tokio::time::sleep(wait) => {}
                }
            }
        }
    }
}

fn turn(cluster: &Cluster, feed: &mut ChangeFeed, controller: &mut impl Controller) -> Requeue {
    cluster.store.write(|state| {
        feed.read(state, &cluster.catalog, controller);
        controller.sync(&mut ReconcileContext::new(state, &cluster.catalog, cluster.clock.now()))
    })
}
