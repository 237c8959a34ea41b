//! Evictions as dry runs: the API server and its webhooks judge them and carry nothing out.

use std::cell::RefCell;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use futures::stream::{self, StreamExt, TryStreamExt};
use nm_shared::cluster::pod::{self, DrainPod};
use nm_shared::drain::eviction_outcome::EvictionOutcome;
use serde_json::json;

use crate::client::cluster::Cluster;
use crate::error::Error;

/// How many dry runs are under way at once. Each may call webhooks.
const MAX_CONCURRENT: usize = 20;

/// How often a throttled dry run is attempted, and the limits of the time between two attempts.
const MAX_ATTEMPTS: u32 = 5;
const MIN_RETRY_INTERVAL: Duration = Duration::from_millis(200);
const MAX_RETRY_INTERVAL: Duration = Duration::from_secs(5);

/// Adds the API server's answers to the evictions of these pods to `answers`, by the pods' uids, each as soon as it is there.
///
/// # Errors
///
/// If the API server does not respond to an eviction. A refusal is not an error.
pub(crate) async fn dry_run_evictions(
    cluster: &Cluster,
    pods: &[&Arc<DrainPod>],
    grace: Option<i64>,
    answers: &RefCell<HashMap<String, EvictionOutcome>>,
) -> Result<(), Error> {
    // Access is granted by namespace: if one pod is forbidden, the others of its namespace are not attempted.
    let forbidden: RefCell<HashMap<String, EvictionOutcome>> = RefCell::default();
    stream::iter(pods)
        .map(async |pod| {
            let pod::PodNames { namespace, uid, .. } = pod::names(pod);
            let known = forbidden.borrow().get(namespace).cloned();
            let outcome = match known {
                Some(outcome) => outcome,
                None => dry_run(cluster, pod, grace).await?,
            };
            if matches!(outcome, EvictionOutcome::Forbidden(_)) {
                forbidden.borrow_mut().insert(namespace.to_owned(), outcome.clone());
            }
            answers.borrow_mut().insert(uid.to_owned(), outcome);
            Ok(())
        })
        .buffer_unordered(MAX_CONCURRENT)
        .try_collect()
        .await
}

async fn dry_run(cluster: &Cluster, pod: &DrainPod, grace: Option<i64>) -> Result<EvictionOutcome, Error> {
    let pod::PodNames { namespace, name, uid } = pod::names(pod);
    // The dry run is in the body and in the query: a proxy that drops one of them must not cause an eviction.
    let mut options = json!({"dryRun": ["All"], "preconditions": {"uid": uid}});
    if let Some(seconds) = grace {
        options["gracePeriodSeconds"] = json!(seconds);
    }
    let metadata = json!({"namespace": namespace, "name": name});
    let body = json!({
        "apiVersion": "policy/v1", "kind": "Eviction", "metadata": metadata, "deleteOptions": options,
    });
    let path = format!("/api/v1/namespaces/{namespace}/pods/{name}/eviction?dryRun=All");
    let mut attempts = 1;
    loop {
        match EvictionOutcome::from(&cluster.post_for_status("create pods/eviction", &path, &body).await?) {
            EvictionOutcome::Throttled { retry_after, .. } if attempts < MAX_ATTEMPTS => {
                tokio::time::sleep(
                    retry_after.unwrap_or_default().clamp(MIN_RETRY_INTERVAL, MAX_RETRY_INTERVAL),
                )
                .await;
            }
            outcome => return Ok(outcome),
        }
        attempts += 1;
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use serde_json::Value;

    use super::*;
    use crate::testing::fake_server::{cluster, failure, slow_cluster};

    fn pods(namespace: &str, count: usize) -> Vec<Arc<DrainPod>> {
        let pod = |at: usize| {
            let name = format!("p{at}");
            let metadata =
                json!({"namespace": namespace, "name": name, "uid": format!("{namespace}-{name}")});
            Arc::new(serde_json::from_value(json!({"metadata": metadata})).unwrap())
        };
        (0..count).map(pod).collect()
    }

    async fn asked(
        pods: &[Arc<DrainPod>],
        answer: impl Fn(&str, &str) -> (u16, Value) + Send + Sync + 'static,
    ) -> (HashMap<String, EvictionOutcome>, usize) {
        let (cluster, requests) = cluster(answer);
        let answers = RefCell::default();
        dry_run_evictions(&cluster, &pods.iter().collect::<Vec<_>>(), None, &answers).await.unwrap();
        let answers = answers.into_inner();
        assert_eq!(answers.len(), pods.len());
        let requests = requests.lock().unwrap().len();
        (answers, requests)
    }

    #[tokio::test]
    async fn each_pod_has_an_answer_and_a_refusal_is_an_answer() {
        let (answers, requests) = asked(&pods("shop", 50), |method, path| match (method, path) {
            ("POST", "/api/v1/namespaces/shop/pods/p7/eviction") => failure(404, "NotFound", "gone"),
            ("POST", _) => (201, json!({"kind": "Status", "status": "Success"})),
            _ => failure(500, "InternalError", "x"),
        })
        .await;
        assert_eq!((answers.len(), requests), (50, 50));
        assert_eq!(answers["shop-p7"], EvictionOutcome::Gone);
        assert!(answers.values().filter(|answer| **answer == EvictionOutcome::Accepted).count() == 49);
    }

    #[tokio::test]
    async fn missing_access_is_not_attempted_for_every_pod() {
        let all = [pods("shop", 100), pods("bank", 100)].concat();
        let (answers, requests) = asked(&all, |_, path| {
            if path.contains("/shop/") {
                failure(
                    403,
                    "Forbidden",
                    "pods \"p\" is forbidden: User \"u\" cannot create resource \"pods/eviction\" in API group \"\"",
                )
            } else {
                (201, json!({"kind": "Status", "status": "Success"}))
            }
        })
        .await;
        assert!(answers.iter().all(|(uid, answer)| {
            uid.starts_with("shop") == matches!(answer, EvictionOutcome::Forbidden(_))
        }));
        assert!((101..=120).contains(&requests), "{requests}");
    }

    #[tokio::test(start_paused = true)]
    async fn no_more_than_twenty_dry_runs_are_under_way_at_once() {
        let (cluster, most) = slow_cluster(|_, _| (201, json!({"kind": "Status", "status": "Success"})));
        let (pods, answers) = (pods("shop", 100), RefCell::default());
        dry_run_evictions(&cluster, &pods.iter().collect::<Vec<_>>(), None, &answers).await.unwrap();
        assert_eq!((answers.into_inner().len(), most.load(Ordering::Relaxed)), (100, 20));
    }

    #[tokio::test(start_paused = true)]
    async fn a_throttled_dry_run_is_retried_and_a_refusing_budget_is_not() {
        let tried = AtomicUsize::new(0);
        let (answers, requests) = asked(&pods("shop", 1), move |_, _| {
            if tried.fetch_add(1, Ordering::Relaxed) < 2 {
                failure(429, "TooManyRequests", "slow down")
            } else {
                (201, json!({"kind": "Status", "status": "Success"}))
            }
        })
        .await;
        assert_eq!((answers["shop-p0"].clone(), requests), (EvictionOutcome::Accepted, 3));
        let (answers, requests) = asked(&pods("shop", 1), |_, _| {
            let cause =
                json!({"reason": "DisruptionBudget", "message": "The disruption budget cart needs 3"});
            (
                429,
                json!({"kind": "Status", "status": "Failure", "reason": "TooManyRequests", "code": 429,
                "message": "Cannot evict pod", "details": {"causes": [cause]}}),
            )
        })
        .await;
        assert!(matches!(answers["shop-p0"], EvictionOutcome::RefusedByBudget(_)));
        assert_eq!(requests, 1);
    }
}
