//! Evictions that the API server judges and does not carry out.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use futures::stream::{self, StreamExt, TryStreamExt};
use k8s_openapi::api::core::v1::Pod;
use nm_shared::cluster::pod;
use nm_shared::drain::eviction_outcome::EvictionOutcome;
use serde_json::json;

use crate::client::cluster::Cluster;
use crate::error::Error;

/// How many are asked about at once: each may call webhooks.
const MAX_CONCURRENT_REQUESTS: usize = 20;

/// How often a server that asks for patience is asked, and how long it is waited for in between.
const TRIES: u32 = 5;
const SHORTEST: Duration = Duration::from_millis(200);
const LONGEST: Duration = Duration::from_secs(5);

/// What the API server would answer to the eviction of each of these pods, by uid. `done` counts the answers.
///
/// # Errors
///
/// When the server cannot be asked. That it refuses is an answer.
pub(crate) async fn answers(
    cluster: &Cluster,
    pods: impl Iterator<Item = &Arc<Pod>>,
    grace: Option<i64>,
    done: &Cell<usize>,
) -> Result<HashMap<String, EvictionOutcome>, Error> {
    // Rights are granted by namespace: who lacks one is not told so for every pod.
    let lacking: RefCell<HashMap<String, EvictionOutcome>> = RefCell::default();
    stream::iter(pods)
        .map(async |pod| {
            let pod::PodNames { namespace, uid, .. } = pod::names(pod);
            let known = lacking.borrow().get(namespace).cloned();
            let outcome = match known {
                Some(outcome) => outcome,
                None => ask(cluster, pod, grace).await?,
            };
            if matches!(outcome, EvictionOutcome::Forbidden(_)) {
                lacking.borrow_mut().insert(namespace.to_owned(), outcome.clone());
            }
            done.set(done.get() + 1);
            Ok((uid.to_owned(), outcome))
        })
        .buffer_unordered(MAX_CONCURRENT_REQUESTS)
        .try_collect()
        .await
}

async fn ask(cluster: &Cluster, pod: &Pod, grace: Option<i64>) -> Result<EvictionOutcome, Error> {
    let pod::PodNames { namespace, name, uid } = pod::names(pod);
    // Said twice, as the API allows: whoever stands in between and drops one of them must not turn a question into an
    // eviction.
    let mut options = json!({"dryRun": ["All"], "preconditions": {"uid": uid}});
    if let Some(seconds) = grace {
        options["gracePeriodSeconds"] = json!(seconds);
    }
    let metadata = json!({"namespace": namespace, "name": name});
    let body = json!({
        "apiVersion": "policy/v1", "kind": "Eviction", "metadata": metadata, "deleteOptions": options,
    });
    let path = format!("/api/v1/namespaces/{namespace}/pods/{name}/eviction?dryRun=All");
    let mut tried = 1;
    loop {
        match EvictionOutcome::from(&cluster.post_for_status("create pods/eviction", &path, &body).await?) {
            EvictionOutcome::Throttled { retry_after, .. } if tried < TRIES => {
                tokio::time::sleep(retry_after.unwrap_or_default().clamp(SHORTEST, LONGEST)).await;
            }
            outcome => return Ok(outcome),
        }
        tried += 1;
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use serde_json::Value;

    use super::*;
    use crate::client::cluster::tests::{cluster, failure, slow_cluster};

    fn pods(namespace: &str, count: usize) -> Vec<Arc<Pod>> {
        let pod = |at: usize| {
            let name = format!("p{at}");
            let metadata =
                json!({"namespace": namespace, "name": name, "uid": format!("{namespace}-{name}")});
            Arc::new(serde_json::from_value(json!({"metadata": metadata})).unwrap())
        };
        (0..count).map(pod).collect()
    }

    async fn asked(
        pods: &[Arc<Pod>],
        answer: impl Fn(&str, &str) -> (u16, Value) + Send + Sync + 'static,
    ) -> (HashMap<String, EvictionOutcome>, usize) {
        let (cluster, requests) = cluster(answer);
        let done = Cell::new(0);
        let answers = answers(&cluster, pods.iter(), None, &done).await.unwrap();
        assert_eq!(done.get(), pods.len());
        let requests = requests.lock().unwrap().len();
        (answers, requests)
    }

    #[tokio::test]
    async fn each_pod_has_an_answer_and_a_refusal_is_one() {
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
    async fn a_right_that_is_missing_is_not_asked_about_for_every_pod() {
        let all = [pods("shop", 100), pods("bank", 100)].concat();
        let (answers, requests) = asked(&all, |_, path| {
            if path.contains("/shop/") {
                failure(403, "Forbidden", "you may not")
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
    async fn no_more_than_twenty_are_asked_about_at_once() {
        let (cluster, most) = slow_cluster(|_, _| (201, json!({"kind": "Status", "status": "Success"})));
        let done = Cell::new(0);
        answers(&cluster, pods("shop", 100).iter(), None, &done).await.unwrap();
        assert_eq!((done.get(), most.load(Ordering::Relaxed)), (100, 20));
    }

    #[tokio::test(start_paused = true)]
    async fn a_server_that_asks_for_patience_is_asked_again_and_a_budget_is_not() {
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
