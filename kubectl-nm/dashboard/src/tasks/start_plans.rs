//! Makes the plans of the dialogs that begin drains: a moment after the last key, and only the last one that was requested.

use std::time::Duration;

use jiff::Timestamp;
use nm_core::client::cluster::Cluster;
use nm_core::plan::cost;
use nm_core::terminal::text::Line;
use tokio::sync::mpsc::Sender;
use tokio::time::sleep;

use crate::message::Message;
use crate::model::dialogs::start_preview::PlanRequest;

/// How long nothing has to be typed before the cluster is read.
const TYPING_PAUSE: Duration = Duration::from_millis(500);

/// How long a plan may take. The dialog does not wait for it.
const TIME_LIMIT: Duration = Duration::from_secs(30);

/// Makes a plan, unless this is dropped meanwhile.
pub(crate) async fn make(cluster: Cluster, request: PlanRequest, to: Sender<Message>) {
    sleep(TYPING_PAUSE).await;
    let plan = Box::pin(plan(&cluster, &request)).await;
    // The receiver is gone if the dashboard has ended.
    let _ = to.send(Message::Planned { request, plan }).await;
}

async fn plan(cluster: &Cluster, request: &PlanRequest) -> Vec<Line> {
    let PlanRequest { nodes, drain } = request.clone();
    cost::assess(nodes, drain, cluster, Timestamp::now(), TIME_LIMIT).await.summary()
}

#[cfg(test)]
mod tests {
    use nm_core::testing::fake_server::{cluster, failure};
    use tokio::sync::mpsc;
    use tokio::task::LocalSet;

    use super::*;
    use crate::tasks::latest_task::LatestTask;

    fn of(node: &str) -> PlanRequest {
        PlanRequest { nodes: vec![node.to_owned()], drain: None }
    }

    #[tokio::test(start_paused = true)]
    async fn only_the_last_of_several_requests_reads_the_cluster() {
        let (cluster, requests) = cluster(|_, _| failure(403, "Forbidden", "x"));
        let (to, mut from) = mpsc::channel(4);
        let made = async {
            let mut plans = LatestTask::default();
            for node in ["a", "b", "c"] {
                plans.run(make(cluster.clone(), of(node), to.clone()));
                sleep(TYPING_PAUSE / 2).await;
            }
            assert!(requests.lock().unwrap().is_empty(), "nothing is read while somebody types");
            from.recv().await
        };
        let Some(Message::Planned { request, plan }) = LocalSet::new().run_until(made).await else {
            panic!("no plan")
        };
        assert_eq!(request, of("c"));
        let lines: Vec<String> = plan.iter().map(ToString::to_string).collect();
        assert_eq!(lines[0], "As far as is known, the drain would harm nothing.");
        assert!(lines[1].starts_with("unknown: whether nm-reconciler leads, "), "{lines:?}");
        assert!(from.try_recv().is_err(), "the others were cancelled");
    }

    #[tokio::test(start_paused = true)]
    async fn a_plan_that_is_cancelled_reads_nothing() {
        let (cluster, requests) = cluster(|_, _| failure(403, "Forbidden", "x"));
        let (to, mut from) = mpsc::channel(4);
        let cancelled = async {
            let mut plans = LatestTask::default();
            plans.run(make(cluster.clone(), of("a"), to));
            plans.end();
            from.recv().await
        };
        assert!(LocalSet::new().run_until(cancelled).await.is_none());
        assert!(requests.lock().unwrap().is_empty());
    }
}
