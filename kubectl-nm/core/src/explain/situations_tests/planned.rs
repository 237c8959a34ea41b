//! What `plan` forecasts in each situation of the table, compared with what `explain` says. It reads the same objects from an API server
//! that answers evictions as a real one does.
//!
//! A plan forecasts what the status of a drain will show: a pod that waits for a budget counts as blocked once nothing has moved the
//! budget for a while, even if the pods that it lacks become Ready by themselves later. So each row is planned twice.

use std::cell::RefCell;
use std::collections::HashMap;

use nm_shared::drain::budget_allowance::{BudgetPrediction, Budgets};
use nm_shared::forecast::PodOutcome;

use super::rows::{Row, rows};
use super::*;
use crate::explain::cause::CommonGround;
use crate::explain::first_cause::FirstCause;
use crate::explain::obstacle::Obstacle;
use crate::plan::planning::Planning;
use crate::plan::{harm, text};
use crate::terminal::text::Line;
use crate::testing::fake_server::{cluster, failure};

/// When the budget has changed last: so recently that pods still wait for it, and too long ago for that.
const RECENTLY: &str = "2026-01-02T03:07:15Z";
const LONG_AGO: &str = "2026-01-02T03:00:00Z";

/// What a plan forecasts of the pod.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fate {
    Evicted,
    Waits,
    Blocked,
    Surged,
}

/// The same, and in words: a line for each harm, as `start` has it, and for each pod and budget.
#[derive(Debug)]
struct Planned {
    fate: Fate,
    harms: Vec<String>,
    lines: Vec<String>,
}

impl Planned {
    /// Compares the words with the first cause.
    fn check_words(&self, name: &str, first: &FirstCause) {
        let stays = self.harms.iter().any(|harm| {
            let beginnings = ["never leaves: ", "stays blocked: ", "may stay blocked: "];
            beginnings.iter().any(|words| harm.starts_with(words)) && harm.contains("shop/web-0")
        });
        // What may pass is no harm of the drain.
        assert!(self.fate == Fate::Blocked || !stays, "{name}: {self:#?}");
        // It may be named because no node has room for its replacement.
        let is_told = self.harms.iter().any(|harm| harm.contains("shop/web-0"));
        // A plan does not read what keeps a pod from being created, and leaves it open how long gates and phases last.
        let is_open = match first {
            // Nor whether the budget is counted again, or its third pod appears.
            FirstCause::NotCreated(_) | FirstCause::Outdated | FirstCause::ItsOwnPods(_) => true,
            FirstCause::OtherPods(obstacle) => {
                matches!(obstacle, Obstacle::SchedulingGates(_) | Obstacle::Ended(_))
            }
            _ => false,
        };
        let is_stuck = self.fate == Fate::Blocked && first.is_stuck() && !is_open;
        assert!(is_told || !is_stuck, "{name}: {self:#?}");
        let is_uncountable = matches!(first, FirstCause::CannotCount(_));
        for line in self.harms.iter().chain(&self.lines) {
            let numbers = line.split_once(" needs ").and_then(|(_, rest)| {
                let (needed, rest) = rest.split_once(" healthy pods and has ")?;
                Some((needed.parse::<i32>().ok()?, rest.split_once(' ')?.0.parse::<i32>().ok()?))
            });
            assert!(numbers.is_none_or(|(needed, healthy)| healthy <= needed), "{name}: {line}");
            assert!(!is_uncountable || !line.contains(" yet"), "{name}: {line}");
        }
    }
}

#[tokio::test]
async fn a_plan_of_every_situation_agrees_with_its_explanation() {
    for Row { name, situation, .. } in rows() {
        let cause = situation.causes().remove(0);
        let Some(CommonGround::FirstCause(first)) = &cause.common else { panic!("{name}: {cause:#?}") };
        let recently = situation.planned(RECENTLY, first).await;
        let long_ago = situation.planned(LONG_AGO, first).await;
        let both = |fate| (Some(fate), Some(fate));
        let expected = match &**first {
            // Nothing of it is left to plan.
            FirstCause::PodsGone => (None, None),
            FirstCause::AllowsNow => both(Fate::Evicted),
            // No pod that becomes Ready changes a budget like these, and no kubelet confirms that a pod of a silent node has terminated.
            FirstCause::NeverAllows(_)
            | FirstCause::CannotCount(_)
            | FirstCause::ItsOwnPods(Obstacle::SilentNode(_))
            // A container that fails does not become Ready by itself.
            | FirstCause::OtherPods(
                Obstacle::Image { .. } | Obstacle::CrashLoop { .. } | Obstacle::ContainerCreation { .. },
            ) => both(Fate::Blocked),
            FirstCause::NotCreated(_) if situation.budget().is_unsatisfiable() => both(Fate::Blocked),
            // The budget itself shows when it has allowed evictions.
            _ if situation.evicted().is_some() => both(Fate::Waits),
            // Pods may become Ready, or be created, and a plan does not know when.
            _ => (Some(Fate::Waits), Some(Fate::Blocked)),
        };
        let fate = |planned: &Option<Planned>| planned.as_ref().map(|planned| planned.fate);
        assert_eq!((fate(&recently), fate(&long_ago)), expected, "{name}: {cause:#?}");
        for planned in [recently, long_ago].into_iter().flatten() {
            planned.check_words(name, first);
        }
        // A surge is advised where it replaces the pod, and nowhere else.
        let with_surge = Situation { drain: json!({"surge": "WhenBlocked"}), ..situation.clone() };
        let surged = fate(&with_surge.planned(LONG_AGO, first).await) == Some(Fate::Surged);
        let is_advised = cause.commands.iter().any(|command| command.contains("WhenBlocked"));
        assert_eq!(surged, is_advised, "{name}: {cause:#?}");
    }
}

impl Situation {
    /// The same as an API server has it: with nodes that have capacity, and with a budget that shows its last change.
    fn served(&self, changed: &str, first: &FirstCause) -> Self {
        let mut served = self.clone();
        if served.nodes.is_empty() {
            served.nodes = vec![cordoned("n1"), node("n2", json!({})), node("n3", json!({}))];
        }
        let silent = match first {
            FirstCause::ItsOwnPods(Obstacle::SilentNode(node))
            | FirstCause::OtherPods(Obstacle::SilentNode(node)) => Some(node.as_str()),
            _ => None,
        };
        for node in &mut served.nodes {
            node["status"]["allocatable"] = json!({"cpu": "8", "memory": "8Gi", "pods": "110"});
            if node["metadata"]["name"].as_str() == silent {
                node["status"]["conditions"] = json!([{"type": "Ready", "status": "Unknown"}]);
            }
        }
        let is_allowed = served.budget["status"]["disruptionsAllowed"] != 0;
        let (status, reason) =
            if is_allowed { ("True", "SufficientPods") } else { ("False", "InsufficientPods") };
        let conditions = served.budget["status"]["conditions"].as_array_mut().unwrap();
        if conditions.is_empty() {
            conditions.push(
                json!({"type": "DisruptionAllowed", "status": status, "reason": reason, "message": ""}),
            );
        }
        conditions[0]["lastTransitionTime"] = json!(changed);
        let of_pods = served.pods.iter_mut().filter_map(|pod| pod["status"]["conditions"].as_array_mut());
        for condition in of_pods.flatten().filter(|condition| condition["lastTransitionTime"].is_null()) {
            condition["lastTransitionTime"] = json!(changed);
        }
        served
    }

    fn answer(&self, method: &str, path: &str) -> (u16, Value) {
        match path {
            "/api/v1/namespaces/shop/pods/web-0/eviction" if method == "POST" => self.eviction(),
            "/api/v1/pods" | "/api/v1/namespaces/shop/pods" => list(&self.pods),
            "/api/v1/nodes" => list(&self.nodes),
            "/apis/policy/v1/poddisruptionbudgets" => list(std::slice::from_ref(&self.budget)),
            "/apis/apps/v1/namespaces/shop/replicasets/web-6c4"
            | "/apis/apps/v1/namespaces/shop/statefulsets/web-6c4"
            | "/apis/apps/v1/namespaces/shop/deployments/web" => (200, self.workload()),
            path if path.contains("kubevirt.io") => (404, json!("404 page not found")),
            path if path.contains("/namespaces/") && !path.ends_with("/resourcequotas") => {
                failure(404, "NotFound", path)
            }
            _ => list(&[]),
        }
    }

    /// What controls the pods: a `ReplicaSet` or `StatefulSet`, and the Deployment of the former.
    fn workload(&self) -> Value {
        let (count, missing) =
            (self.pods.len(), self.incomplete.iter().map(|owner| owner.missing).sum::<i32>());
        let wanted = i32::try_from(count).unwrap() + missing;
        let failed = |owner: &IncompleteOwner| json!({"type": "ReplicaFailure", "status": "True", "reason": "FailedCreate", "message": owner.message});
        let failures: Vec<Value> = self.incomplete.iter().map(failed).collect();
        let owner = json!({"apiVersion": "apps/v1", "kind": "Deployment", "name": "web", "uid": "d", "controller": true});
        json!({
            "metadata": {"name": "web", "namespace": "shop", "generation": 1, "ownerReferences": [owner]},
            "spec": {"replicas": wanted, "selector": {"matchLabels": {"app": "web"}}, "template": {}},
            "status": {"observedGeneration": 1, "replicas": count, "updatedReplicas": count, "conditions": failures},
        })
    }

    /// The answer of the API server to the eviction of the pod.
    fn eviction(&self) -> (u16, Value) {
        let pod: Pod = parse(self.pods.iter().find(|pod| pod["metadata"]["name"] == "web-0").unwrap());
        let mut budgets = Budgets::from_objects([&parse(&self.budget)]);
        match budgets.use_disruption(&DrainPod::from(&pod), 0) {
            BudgetPrediction::Free | BudgetPrediction::Allowed(_) => {
                (201, json!({"kind": "Status", "status": "Success"}))
            }
            BudgetPrediction::Reserved(block) | BudgetPrediction::Exhausted(block) => {
                let cause = json!({"reason": "DisruptionBudget", "message": block.refusal.message});
                let message = "Cannot evict pod as it would violate the pod's disruption budget.";
                (
                    429,
                    json!({"kind": "Status", "status": "Failure", "reason": "TooManyRequests", "code": 429,
                    "message": message, "details": {"causes": [cause]}}),
                )
            }
        }
    }

    /// What a plan of the node forecasts of `web-0`; none if it does not list the pod.
    async fn planned(&self, changed: &str, first: &FirstCause) -> Option<Planned> {
        let served = self.served(changed, first);
        let (cluster, _) = cluster(move |method, path| served.answer(method, path));
        let (nodes, drain) = (vec!["n1".to_owned()], Some(parse(&self.drain)));
        let read = Box::pin(Planning::read(nodes, drain, &cluster, NOW.parse().unwrap()));
        let planning = read.await.unwrap();
        let answers = RefCell::new(HashMap::new());
        planning.dry_run(&cluster, &answers).await.unwrap();
        let report = planning.report(&answers.into_inner());
        assert!(report.unknown.is_empty(), "{:?}", report.unknown);
        let words = |lines: Vec<Line>| lines.iter().map(ToString::to_string).collect();
        let (harms, lines) = (words(harm::lines(&harm::harms(&report, None))), words(text::lines(&report)));
        let mut pods = report.forecast.unwrap().pods.into_iter();
        let web = pods.find(|expected| drain_pod::names(&expected.pod).name == "web-0")?;
        let fate = match web.fate {
            PodOutcome::Evicted => Fate::Evicted,
            PodOutcome::WaitsForBudget(_) => Fate::Waits,
            PodOutcome::Blocked(_) => Fate::Blocked,
            PodOutcome::Surges(_) => Fate::Surged,
            other => panic!("{other:?}"),
        };
        Some(Planned { fate, harms, lines })
    }
}

fn list(items: &[Value]) -> (u16, Value) {
    let metadata = json!({"resourceVersion": "1"});
    (200, json!({"kind": "List", "apiVersion": "v1", "metadata": metadata, "items": items}))
}
