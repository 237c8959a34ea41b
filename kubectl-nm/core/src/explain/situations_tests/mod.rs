//! The table of situations: what a cluster shows, and what is said about it.
//!
//! `rows` has the situations of one budget. The objects are as a real API server, scheduler and kubelet write them. Each row has the sentence
//! that follows the numbers of the budget, and the commands. `table` compares with facts what `explain`, the dashboard and the status
//! alone say of each row, and `planned` what `plan` forecasts.

#![allow(clippy::needless_pass_by_value, reason = "the rows of the table read better with values")]

use k8s_openapi::api::core::v1::{Node, Pod};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use nm_shared::cluster::disruption_budget::Budget;
use nm_shared::cluster::pod::{self as drain_pod, DrainPod};
use nm_shared::{NodeMaintenance, PodReference};
use serde_json::{Value, json};

use crate::explain::cause::{Cause, Outlook};
use crate::explain::cluster_facts::{ClusterFacts, GuardedPods, IncompleteOwner, Unseen};
use crate::explain::explanation::causes;
use crate::explain::obstacle::PodWarning;
use crate::explain::owner::{Owner, OwnerKind};
use crate::explain::unsatisfiable_budget::deployments;
use crate::leader::Reconcilers;
use crate::testing::objects::with_status;

mod alone;
mod beyond_the_table;
mod claims;
mod completing;
mod many_nodes;
mod nodes;
mod nodes_off;
mod planned;
mod preemption;
mod recounts;
mod returning;
mod rolls;
mod rows;
mod spread;
mod surge;
mod surroundings;
mod table;
mod turns;
mod volumes;
mod without_progress;

const NOW: &str = "2026-01-02T03:07:25Z";

/// What the cluster shows of a budget `web` in the namespace `shop`, which keeps `web-0` on node `n1`.
#[derive(Clone)]
struct Situation {
    budget: Value,
    /// The pods that the budget selects, `web-0` included.
    pods: Vec<Value>,
    nodes: Vec<Value>,
    in_maintenance: Vec<&'static str>,
    warnings: Vec<(&'static str, &'static str, &'static str)>,
    incomplete: Vec<IncompleteOwner>,
    drain: Value,
}

impl Default for Situation {
    /// Three pods, of which two have to be healthy, and one is not.
    fn default() -> Self {
        Self {
            budget: min_available(json!(2), (3, 2, 2)),
            pods: vec![ready("web-0", "n1"), ready("web-1", "n2")],
            nodes: vec![],
            in_maintenance: vec!["n1"],
            warnings: vec![],
            incomplete: vec![],
            drain: json!({}),
        }
    }
}

/// A third pod that is not Ready.
fn beside(third: Value) -> Situation {
    let base = Situation::default();
    Situation { pods: [base.pods.clone(), vec![third]].concat(), ..base }
}

/// `web-0` itself is not Ready.
fn own(pod: Value) -> Situation {
    Situation {
        budget: min_available(json!(2), (3, 2, 1)),
        pods: vec![pod, ready("web-1", "n2")],
        ..Situation::default()
    }
}

fn never(spec: &str, value: Value, pods: i32) -> Situation {
    let mut budget = min_available(json!(0), (pods, pods, pods));
    budget["spec"] = json!({"selector": {"matchLabels": {"app": "web"}}, spec: value});
    let pods = (0..pods).map(|at| ready(&format!("web-{at}"), if at == 0 { "n1" } else { "n2" }));
    Situation { budget, pods: pods.collect(), ..Situation::default() }
}

/// A budget with these numbers of expected, desired and current healthy pods, which allows nothing.
fn min_available(value: Value, (expected, desired, current): (i32, i32, i32)) -> Value {
    json!({
        "metadata": {"name": "web", "namespace": "shop", "generation": 1},
        "spec": {"minAvailable": value, "selector": {"matchLabels": {"app": "web"}}},
        "status": {"observedGeneration": 1, "expectedPods": expected, "desiredHealthy": desired,
            "currentHealthy": current, "disruptionsAllowed": 0, "conditions": []},
    })
}

fn pod(name: &str, node: &str, status: Value) -> Value {
    let mut spec = json!({"containers": [{"name": "app", "image": "shop/web:2"}]});
    if !node.is_empty() {
        spec["nodeName"] = json!(node);
    }
    let owner = json!([{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web-6c4", "uid": "rs", "controller": true}]);
    json!({
        "metadata": {"name": name, "namespace": "shop", "uid": format!("uid-{name}"),
            "labels": {"app": "web", "pod-template-hash": "6c4"}, "ownerReferences": owner},
        "spec": spec, "status": status,
    })
}

fn ready(name: &str, node: &str) -> Value {
    pod(name, node, json!({"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}))
}

fn pending(reason: &str, message: &str) -> Value {
    let condition = json!({"type": "PodScheduled", "status": "False", "reason": reason, "message": message});
    pod("web-2", "", json!({"phase": "Pending", "conditions": [condition]}))
}

fn container(state: Value, extra: Value) -> Value {
    let mut status = json!({"name": "app", "image": "shop/web:2", "imageID": "", "ready": false, "restartCount": 0,
        "state": state});
    for (key, value) in extra.as_object().into_iter().flatten() {
        status[key] = value.clone();
    }
    status
}

fn unready(name: &str, node: &str, container: Value) -> Value {
    let conditions = json!([{"type": "PodScheduled", "status": "True"}, {"type": "Ready", "status": "False",
        "reason": "ContainersNotReady"}]);
    pod(name, node, json!({"phase": "Running", "conditions": conditions, "containerStatuses": [container]}))
}

fn waiting(reason: &str, message: &str) -> Value {
    unready("web-2", "n2", container(json!({"waiting": {"reason": reason, "message": message}}), json!({})))
}

fn running(extra: Value) -> Value {
    unready("web-2", "n2", container(json!({"running": {"startedAt": "2026-01-02T03:06:00Z"}}), extra))
}

fn crashing(name: &str, node: &str, code: i32, reason: &str) -> Value {
    let last =
        json!({"terminated": {"exitCode": code, "reason": reason, "finishedAt": "2026-01-02T03:07:00Z"}});
    let state = json!({"waiting": {"reason": "CrashLoopBackOff", "message": "back-off 40s restarting failed container"}});
    unready(name, node, container(state, json!({"restartCount": 3, "lastState": last})))
}

fn edited(mut pod: Value, path: &str, value: Value) -> Value {
    let (parent, key) = path.rsplit_once('/').unwrap();
    pod.pointer_mut(parent).unwrap()[key] = value;
    pod
}

fn terminating(left: &str) -> Value {
    let pod = edited(ready("web-2", "n2"), "/metadata/deletionTimestamp", json!(left));
    edited(pod, "/metadata/deletionGracePeriodSeconds", json!(60))
}

fn node(name: &str, spec: Value) -> Value {
    json!({"metadata": {"name": name, "labels": {"pool": "blue"}}, "spec": spec,
        "status": {"conditions": [{"type": "Ready", "status": "True"}]}})
}

fn cordoned(name: &str) -> Value {
    let taint = |key: &str| json!({"key": key, "effect": "NoSchedule"});
    let taints = json!([taint("medik8s.io/drain"), taint("node.kubernetes.io/unschedulable")]);
    node(name, json!({"unschedulable": true, "taints": taints}))
}

fn parse<K: serde::de::DeserializeOwned>(value: &Value) -> K {
    serde_json::from_value(value.clone()).unwrap()
}

fn web() -> PodReference {
    PodReference { namespace: "shop".into(), name: "web".into() }
}

fn blocked_status(namespace: &str) -> Value {
    let pod = json!({"namespace": namespace, "name": "web-0", "reason": "DisruptionBudget", "message": "m",
        "since": "2026-01-02T03:04:05Z", "attempts": 3,
        "budget": {"name": "web", "desiredHealthy": 2, "currentHealthy": 2, "disruptionsAllowed": 0}});
    json!({"phase": "Running", "blockedPods": [pod], "podCounts": {"blocked": 1}})
}

/// Two pods that wait for the same budget.
fn waiting_for_their_turn() -> NodeMaintenance {
    let turn = |name: &str, ahead: i32| {
        json!({"namespace": "shop", "name": name, "reason": "BudgetTurn", "since": "2026-01-02T03:07:20Z", "ahead": ahead,
            "budget": {"name": "web", "desiredHealthy": 2, "currentHealthy": 2, "disruptionsAllowed": 0}})
    };
    let status = json!({"phase": "Running", "podCounts": {"waiting": 2}, "waitingPods": [turn("web-0", 1), turn("web-4", 2)]});
    with_status("n1", status)
}

impl Situation {
    fn budget(&self) -> Budget {
        Budget::from(&parse::<PodDisruptionBudget>(&self.budget))
    }

    /// The pods whose evictions the budget counts, as they were just accepted.
    fn evicted(&self) -> Option<&serde_json::Map<String, Value>> {
        self.budget["status"]["disruptedPods"].as_object()
    }

    fn has_evicted(&self, pod: &str) -> bool {
        self.evicted().is_some_and(|evicted| evicted.contains_key(pod))
    }

    fn guarded(&self) -> GuardedPods {
        let warning = |(reason, message): (&str, &str)| PodWarning {
            reason: reason.into(),
            message: message.into(),
            ..PodWarning::default()
        };
        let of = |(pod, reason, message): &(&str, &str, &str)| {
            (format!("uid-{pod}"), vec![warning((reason, message))])
        };
        let pods: Vec<Pod> = self.pods.iter().map(parse).collect();
        GuardedPods {
            may_surge: deployments(&pods).is_some_and(|found| !found.is_empty()),
            full_quota: None,
            budget: Ok(Some(parse::<PodDisruptionBudget>(&self.budget))),
            pods: Ok(pods),
            incomplete_owners: self.incomplete.clone(),
            warnings: self.warnings.iter().map(of).collect(),
        }
    }

    fn facts(&self) -> ClusterFacts {
        ClusterFacts {
            budgets: [(web(), self.guarded())].into(),
            nodes: Some(Ok(self.nodes.iter().map(parse::<Node>).collect())),
            in_maintenance: self.in_maintenance.iter().map(ToString::to_string).collect(),
            ..ClusterFacts::default()
        }
    }

    /// How many of these pods are Ready and not terminating.
    fn ready(&self, counts: impl Fn(&str) -> bool) -> i32 {
        let pods = self.pods.iter().map(|pod| DrainPod::from(&parse::<Pod>(pod)));
        let is_ready = |pod: &DrainPod| {
            let is_terminating = drain_pod::deadline(pod).is_some();
            drain_pod::is_ready(pod) && !is_terminating && counts(drain_pod::names(pod).name)
        };
        i32::try_from(pods.filter(is_ready).count()).unwrap()
    }

    fn object(&self) -> NodeMaintenance {
        let mut object = with_status("n1", blocked_status("shop"));
        object.spec.drain = Some(parse(&self.drain));
        object
    }

    fn causes(&self) -> Vec<Cause> {
        explained(&self.object(), &self.facts())
    }
}

fn explained(object: &NodeMaintenance, facts: &ClusterFacts) -> Vec<Cause> {
    causes(object, &Reconcilers::default(), facts, "kubectl", NOW.parse().unwrap())
}

/// Whether a command changes something, and what may justify that.
fn check_harmless(cause: &Cause) {
    for command in &cause.commands {
        let words = shlex::split(command).unwrap_or_else(|| panic!("{command}"));
        let verb = words
            .iter()
            .find(|word| ["edit", "patch", "scale", "delete", "uncordon", "drain"].contains(&word.as_str()));
        let says_never = cause.what.iter().any(|what| what.contains("can never allow an eviction"));
        let is_unready = command.contains("unhealthyPodEvictionPolicy");
        // An editor asks what to change.
        let selects = command.contains(" edit ")
            && (cause.what.iter().any(|what| what.contains("selects only"))
                || cause.advice.contains("in the pod template"));
        // Only under a condition.
        let uncordons = words.iter().skip_while(|word| *word != "uncordon").nth(1).is_some_and(|node| {
            cause.advice.to_lowercase().contains("uncordon ")
                && cause.advice.contains(node)
                && cause.advice.contains("not needed any more")
        });
        assert!(verb.is_none() || says_never || is_unready || selects || uncordons, "{cause:#?}");
        assert!(!words.contains(&"scale".into()) && !words.contains(&"delete".into()), "{cause:#?}");
        // One pod alone is never to be made unavailable by a command that is pasted.
        let takes_the_only_pod = words.contains(&"patch".into())
            && cause.what.iter().any(|what| what.contains("it has 1 pod."))
            && !command.contains("surge");
        assert!(!takes_the_only_pod, "{cause:#?}");
    }
    assert!(cause.passes() || !cause.commands.is_empty(), "{cause:#?}");
    assert!(!cause.advice.is_empty() && !cause.advice.ends_with('.'), "{cause:#?}");
    assert!(cause.what.iter().all(|what| what.ends_with('.') && !what.ends_with("..")), "{cause:#?}");
    assert!(cause.what.iter().all(|what| !what.contains("no controller ")), "{cause:#?}");
}

const DESCRIBE: &str = "kubectl -n shop describe pod web-2";
/// The node that is drained has room for the pod.
const DESCRIBE_OR_STOP: &str = "kubectl -n shop describe pod web-2\nkubectl nm stop n1";
const LOGS: &str = "kubectl -n shop logs web-2 -c app";
const BUDGET: &str = "kubectl -n shop describe pdb web";
const RECOUNT: &str = "kubectl -n shop annotate pdb web kubectl-nm.dev/recount=\"$(date +%s)\" --overwrite\n\
                       kubectl -n shop describe pdb web";
/// What somebody with more permissions can run.
const EXPLAIN: &str = "kubectl nm explain n1";
const ALWAYS_ALLOW: &str = "kubectl -n shop patch pdb web --type=merge -p '{\"spec\":{\"unhealthyPodEvictionPolicy\":\"AlwaysAllow\"}}'";
const UNFIT: &str = "0/2 nodes are available: 2 node(s) were unschedulable.";
