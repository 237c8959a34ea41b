//! Makes the plans of the dialogs that begin drains: a moment after the last key, or at once if a drain is confirmed before its
//! plan is there. Only the last one that was requested is made.

use std::time::Duration;

use jiff::Timestamp;
use nm_core::client::cluster::Cluster;
use nm_core::plan::cost;
use tokio::sync::mpsc::Sender;
use tokio::time::sleep;

use crate::message::Message;
use crate::model::dialogs::start_preview::{DrainPlan, PlanRequest};

/// How long nothing has to be typed before the cluster is read.
const TYPING_PAUSE: Duration = Duration::from_millis(500);

/// How long a plan may take that nobody waits for.
const TIME_LIMIT: Duration = Duration::from_secs(30);

/// Makes a plan, unless this is dropped meanwhile.
pub(crate) async fn make(cluster: Cluster, request: PlanRequest, to: Sender<Message>) {
    sleep(TYPING_PAUSE).await;
    plan(cluster, request, TIME_LIMIT, to).await;
}

/// Makes the plan that a start waits for, unless this is dropped meanwhile.
pub(crate) async fn check(cluster: Cluster, request: PlanRequest, to: Sender<Message>) {
    plan(cluster, request, cost::TIME_LIMIT, to).await;
}

async fn plan(cluster: Cluster, request: PlanRequest, limit: Duration, to: Sender<Message>) {
    let PlanRequest { nodes, drain } = request.clone();
    let cost = Box::pin(cost::assess(nodes, drain, &cluster, Timestamp::now(), limit)).await;
    // The receiver is gone if the dashboard has ended.
    let _ = to.send(Message::Planned { request, plan: DrainPlan::from(&cost) }).await;
}

#[cfg(test)]
mod tests {
    use nm_core::testing::fake_server::{self, NEVER, cluster, failure};
    use serde_json::Value;
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
        let lines: Vec<String> = plan.lines.iter().map(ToString::to_string).collect();
        assert_eq!(lines[0], "As far as is known, the drain would harm nothing.");
        assert!(lines[1].starts_with("unknown: whether nm-reconciler leads, "), "{lines:?}");
        assert!(from.try_recv().is_err(), "the others were cancelled");
    }

    #[tokio::test(start_paused = true)]
    async fn a_plan_that_a_start_waits_for_is_read_at_once_and_limited_to_two_seconds() {
        let (cluster, requests) = cluster(|_, _| failure(403, "Forbidden", "x"));
        let (to, mut from) = mpsc::channel(4);
        let begun = tokio::time::Instant::now();
        check(cluster, of("a"), to.clone()).await;
        assert!(begun.elapsed() < TYPING_PAUSE && !requests.lock().unwrap().is_empty());
        let Some(Message::Planned { plan, .. }) = from.recv().await else { panic!("no plan") };
        assert!(!plan.is_harmless, "nothing is known");

        let (silent, _) = fake_server::cluster(|_, _| (NEVER, Value::Null));
        check(silent, of("a"), to).await;
        assert_eq!(begun.elapsed().as_secs(), cost::TIME_LIMIT.as_secs());
        let Some(Message::Planned { plan, .. }) = from.recv().await else { panic!("no plan") };
        let lines: Vec<String> = plan.lines.iter().map(ToString::to_string).collect();
        assert!(!plan.is_harmless && lines[1].ends_with("took longer than 2s"), "{lines:?}");
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
