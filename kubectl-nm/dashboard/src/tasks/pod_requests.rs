//! The requests about a single pod: what is known of it, its eviction, and its deletion.

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kube::ResourceExt;
use kube::api::{Api, ListParams};
use nm_core::client::cluster::{Cluster, Deletion};
use nm_core::client::objects::{Permission, is_allowed_in, user_name};
use nm_core::error::Error;
use nm_core::explain::remedy::in_short;
use nm_shared::cluster::disruption_budget::Budget;
use nm_shared::cluster::metadata::foreign_finalizers;
use nm_shared::cluster::pod::{self, Deletion as PodDeletion, DrainPod, PodPhase, ReceivedPod};
use nm_shared::drain::eviction_outcome::EvictionOutcome;
use nm_shared::drain::returning::is_assigned_by_template;
use nm_shared::drain::virtual_machine;
use nm_shared::{BlockFacts, BlockReason, BudgetFacts, ForbiddenAccess};
use serde_json::json;
use tokio::sync::mpsc::Sender;

use crate::message::{CommandError, Message};
use crate::model::dialogs::pod_dialog::{
    GuardingBudgets, MachinePart, PodAction, PodFacts, PodTarget, denial, in_words,
};
use crate::objects::node_pod::NodePod;

/// Finds out what an action on a pod costs, and whether the user has the permission for it.
pub(crate) async fn look_up(cluster: Cluster, action: PodAction, target: PodTarget, to: Sender<Message>) {
    let result = facts(&cluster, action, &target).await.map(Box::new);
    // The receiver is gone if the dashboard has ended.
    let _ = to.send(Message::PodFacts { action, target, result }).await;
}

async fn facts(cluster: &Cluster, action: PodAction, target: &PodTarget) -> Result<PodFacts, Error> {
    let PodTarget { namespace, name, .. } = target;
    let (pods, received): (Api<Pod>, Api<ReceivedPod>) =
        (Api::namespaced(cluster.client(), namespace), Api::namespaced(cluster.client(), namespace));
    let pod = async { cluster.request("get pods", async || pods.get(name).await).await };
    let (pod, budgets, denied) =
        tokio::join!(pod, budgets(cluster, namespace), denied(cluster, action, namespace));
    let pod = pod?;
    let is_assigned = is_assigned_by_template(&pod);
    let pod = DrainPod::from(&pod);
    let guards = |budget: &PodDisruptionBudget| Budget::from(budget).guards(&pod);
    let budgets = match budgets {
        Ok(budgets) => {
            GuardingBudgets::Known(budgets.iter().filter(|budget| guards(budget)).map(numbers).collect())
        }
        Err(error) => GuardingBudgets::Unknown(in_words(&error)),
    };
    let finalizers = foreign_finalizers(&pod.finalizers).cloned().collect();
    let kept_by = kept_by(&pod, Timestamp::now());
    let is_terminating = pod.deletion.is_some();
    let (has_empty_dir, machine) = (pod.has_empty_dir, machine_part(&pod, &received).await);
    let id = NodePod::from(pod).id;
    Ok(PodFacts {
        uid: id.key.clone(),
        owner: id.owner.clone(),
        has_empty_dir,
        is_terminating,
        is_assigned,
        machine,
        budgets,
        finalizers,
        kept_by,
        denied,
    })
}

/// The finalizers that alone keep a pod, whose deletion is requested and whose containers have terminated.
fn kept_by(pod: &DrainPod, now: Timestamp) -> Vec<String> {
    let is_over = |deletion: PodDeletion| pod.phase == PodPhase::Finished || deletion.deadline <= now;
    if pod.deletion.is_some_and(is_over) { pod.finalizers.to_vec() } else { Vec::new() }
}

/// What the pod is to a virtual machine. The pod of a disk is owned by the pod of its virtual machine.
async fn machine_part(pod: &DrainPod, pods: &Api<ReceivedPod>) -> Option<MachinePart> {
    if let Some(machine) = virtual_machine::run_by(pod) {
        return Some(MachinePart::Launcher(machine.to_owned()));
    }
    let owner = pod::controller(pod).filter(|_| virtual_machine::is_disk(pod))?;
    let launcher = pods.get(&owner.name).await.ok().map(DrainPod::from);
    let launcher = launcher.filter(|launcher| pod::uid(launcher) == owner.uid);
    let machine = launcher.as_ref().and_then(virtual_machine::machine);
    Some(MachinePart::Disk(machine.unwrap_or(&owner.name).to_owned()))
}

async fn budgets(cluster: &Cluster, namespace: &str) -> Result<Vec<PodDisruptionBudget>, Error> {
    let api: Api<PodDisruptionBudget> = Api::namespaced(cluster.client(), namespace);
    cluster.list(&api, "poddisruptionbudgets.policy", &ListParams::default()).await
}

fn numbers(budget: &PodDisruptionBudget) -> BudgetFacts {
    let status = budget.status.as_ref();
    BudgetFacts {
        name: budget.name_any(),
        desired_healthy: status.map(|status| status.desired_healthy),
        current_healthy: status.map(|status| status.current_healthy),
        disruptions_allowed: status.map(|status| status.disruptions_allowed),
        expected_pods: status.map(|status| status.expected_pods),
    }
}

/// The permission that the user lacks. Where that cannot be found out, the request itself will show it.
async fn denied(cluster: &Cluster, action: PodAction, namespace: &str) -> Option<ForbiddenAccess> {
    let (verb, resource) = action.permission();
    let permission = Permission { verb, group: String::new(), resource: resource.to_owned() };
    if is_allowed_in(cluster, namespace, &permission).await.unwrap_or(true) {
        return None;
    }
    let user = user_name(cluster).await.ok().filter(|user| !user.is_empty());
    Some(ForbiddenAccess {
        user: user.unwrap_or_else(|| String::from("you")),
        verb: verb.to_owned(),
        resource: permission.qualified_resource(),
    })
}

/// Requests the eviction once. The result is the answer in words.
pub(crate) async fn evict(cluster: &Cluster, target: &PodTarget, uid: &str) -> Result<String, CommandError> {
    let PodTarget { namespace, name, grace, .. } = target;
    let mut options = json!({"preconditions": {"uid": uid}});
    if let Some(seconds) = grace {
        options["gracePeriodSeconds"] = json!(seconds);
    }
    let body = json!({"apiVersion": "policy/v1", "kind": "Eviction", "deleteOptions": options,
        "metadata": {"namespace": namespace, "name": name}});
    let path = format!("/api/v1/namespaces/{namespace}/pods/{name}/eviction");
    match cluster.post_for_status("create pods/eviction", &path, &body).await {
        Ok(status) => answer(target, &EvictionOutcome::from(&status)),
        Err(error) => Err(CommandError::NotEvicted { pod: target.path(), answer: error.to_string() }),
    }
}

/// The answer to an eviction in words; an error if the pod does not leave.
fn answer(target: &PodTarget, outcome: &EvictionOutcome) -> Result<String, CommandError> {
    let pod = target.path();
    let answer = match outcome {
        EvictionOutcome::Accepted => return Ok(format!("{pod}: eviction accepted")),
        EvictionOutcome::Gone => return Ok(format!("{pod}: is gone already")),
        EvictionOutcome::Migrating(_) => {
            return Ok(format!("{pod}: KubeVirt migrates its virtual machine"));
        }
        EvictionOutcome::RefusedByBudget(refusal) => {
            let facts = BlockFacts { budget: refusal.budget.clone(), ..BlockFacts::default() };
            let why = in_short(&target.namespace, BlockReason::DisruptionBudget, &facts, &refusal.message);
            format!("eviction refused: {why}")
        }
        EvictionOutcome::MultipleBudgets(message)
        | EvictionOutcome::NotMigratable(message)
        | EvictionOutcome::HotplugPod(message) => {
            format!("eviction refused: {message}")
        }
        EvictionOutcome::RefusedByWebhook { webhook, message } => {
            format!("eviction refused by the webhook {webhook}: {message}")
        }
        EvictionOutcome::RefusedByPolicy { policy: Some(policy), message } => {
            format!("eviction refused by the policy {}: {message}", policy.name)
        }
        EvictionOutcome::RefusedByPolicy { policy: None, message } => format!("eviction refused: {message}"),
        EvictionOutcome::NamespaceTerminating => {
            String::from("eviction refused: the namespace is being deleted, together with the pod")
        }
        EvictionOutcome::Forbidden(denied) => {
            denied.access.as_ref().map_or_else(|| denied.message.clone(), denial)
        }
        EvictionOutcome::Throttled { message, .. } => format!("the API server is busy: {message}"),
        EvictionOutcome::Unknown(message) => format!("it is unknown whether it was evicted: {message}"),
    };
    Err(CommandError::NotEvicted { pod, answer })
}

/// Deletes the pod, whatever its budgets allow.
pub(crate) async fn delete(cluster: &Cluster, target: &PodTarget, uid: &str) -> Result<String, CommandError> {
    let api: Api<Pod> = Api::namespaced(cluster.client(), &target.namespace);
    match cluster.delete_exactly(&api, "pods", &target.name, Some(uid.to_owned())).await {
        Ok(Deletion::UnderWay) => Ok(format!("deleting: {}", target.path())),
        Ok(Deletion::Gone) => Ok(format!("deleted: {}", target.path())),
        Ok(Deletion::Replaced) => Ok(format!("gone already: {}; another pod has its name", target.path())),
        Err(error) => Err(CommandError::Refused {
            name: target.path(),
            others: 0,
            source: Box::new(error),
            succeeded: None,
        }),
    }
}

#[cfg(test)]
mod tests {
    use nm_core::testing::fake_server::{cluster, failure};
    use serde_json::Value;

    use super::*;

    fn target() -> PodTarget {
        PodTarget { namespace: "shop".into(), name: "cart-0".into(), uid: Some("u".into()), grace: None }
    }

    fn forbidden(verb: &str, resource: &str) -> (u16, Value) {
        let message =
            format!("pods is forbidden: User \"ann\" cannot {verb} resource \"{resource}\" in API group");
        failure(403, "Forbidden", &message)
    }

    #[test]
    fn finalizers_alone_keep_a_pod_that_was_deleted_and_has_terminated() {
        let at = |second: i64| Timestamp::from_second(second).unwrap();
        let kept = |deleted: Value, phase: &str| {
            let metadata = json!({"name": "cart-0", "namespace": "shop", "uid": "u", "finalizers": ["example.com/hold"],
                "deletionTimestamp": deleted, "deletionGracePeriodSeconds": 30});
            let pod: DrainPod =
                serde_json::from_value(json!({"metadata": metadata, "status": {"phase": phase}})).unwrap();
            kept_by(&pod, at(1000))
        };
        let (past, future) = (json!(at(1000)), json!(at(1010)));
        let none: [String; 0] = [];
        for (deleted, phase, is_kept) in [
            (Value::Null, "Succeeded", false),
            (future.clone(), "Running", false),
            (future, "Failed", true),
            (past, "Running", true),
        ] {
            let expected: &[String] = if is_kept { &[String::from("example.com/hold")] } else { &none };
            assert_eq!(kept(deleted.clone(), phase), expected, "{deleted} {phase}");
        }
    }

    #[tokio::test]
    async fn the_answer_to_an_eviction_is_in_words() {
        let refused = "The disruption budget cart needs 3 healthy pods and has 3 currently";
        let mut of_budget = failure(429, "TooManyRequests", "Cannot evict pod");
        of_budget.1["details"] = json!({"causes": [{"reason": "DisruptionBudget", "message": refused}]});
        for (response, expected) in [
            ((201, json!({"kind": "Status", "status": "Success"})), Ok("shop/cart-0: eviction accepted")),
            (failure(404, "NotFound", "cart-0"), Ok("shop/cart-0: is gone already")),
            (of_budget, Err("shop/cart-0: eviction refused: PDB shop/cart needs 3, has 3")),
            (forbidden("create", "pods/eviction"), Err("shop/cart-0: ann may not create pods/eviction")),
        ] {
            let (cluster, requests) = cluster(move |_, _| response.clone());
            let reported = evict(&cluster, &target(), "u").await.map_err(|error| error.to_string());
            assert_eq!(reported.as_deref().map_err(String::as_str), expected);
            assert_eq!(requests.lock().unwrap()[..], ["POST /api/v1/namespaces/shop/pods/cart-0/eviction"]);
        }
    }

    #[tokio::test]
    async fn a_deletion_reports_what_happened() {
        for (response, expected) in [
            ((200, json!({"kind": "Status", "status": "Success"})), Ok("deleted: shop/cart-0")),
            (failure(404, "NotFound", "cart-0"), Ok("deleted: shop/cart-0")),
            (failure(409, "Conflict", "cart-0"), Ok("gone already: shop/cart-0; another pod has its name")),
            (forbidden("delete", "pods"), Err("shop/cart-0: ann may not delete pods")),
        ] {
            let (cluster, _) = cluster(move |_, _| response.clone());
            let reported = delete(&cluster, &target(), "u").await.map_err(|error| error.to_string());
            assert_eq!(reported.as_deref().map_err(String::as_str), expected);
        }
    }

    #[tokio::test]
    async fn what_a_deletion_costs_is_looked_up() {
        let budget = |name: &str, app: &str| {
            json!({"metadata": {"name": name, "namespace": "shop"}, "spec": {"selector": {"matchLabels": {"app": app}}},
                "status": {"desiredHealthy": 3, "currentHealthy": 3, "disruptionsAllowed": 0, "expectedPods": 3}})
        };
        let (cluster, _) = cluster(move |method, path| match (method, path.rsplit('/').next().unwrap()) {
            ("GET", "cart-0") => {
                let volumes = json!([{"name": "a", "emptyDir": {}}]);
                let owner = json!({"apiVersion": "apps/v1", "kind": "StatefulSet", "name": "cart", "uid": "c",
                    "controller": true});
                let manager = json!({"manager": "kube-controller-manager", "operation": "Update", "apiVersion": "v1",
                    "fieldsType": "FieldsV1", "fieldsV1": {"f:spec": {"f:nodeName": {}}}});
                (
                    200,
                    json!({"metadata": {"name": "cart-0", "namespace": "shop", "uid": "u", "labels": {"app": "cart"},
                        "finalizers": ["example.com/hold"], "ownerReferences": [owner], "managedFields": [manager]},
                    "spec": {"containers": [], "volumes": volumes}}),
                )
            }
            ("GET", "poddisruptionbudgets") => {
                (200, json!({"metadata": {}, "items": [budget("cart", "cart"), budget("web", "web")]}))
            }
            ("POST", "selfsubjectaccessreviews") => {
                (201, json!({"metadata": {}, "status": {"allowed": false}}))
            }
            ("POST", "selfsubjectreviews") => {
                (201, json!({"metadata": {}, "status": {"userInfo": {"username": "ann"}}}))
            }
            other => panic!("{other:?}"),
        });
        let facts = facts(&cluster, PodAction::Delete, &target()).await.unwrap();
        let GuardingBudgets::Known(budgets) = facts.budgets else { panic!("{:?}", facts.budgets) };
        let names: Vec<String> = budgets.into_iter().map(|budget| budget.name).collect();
        let owner = facts.owner.unwrap().to_string();
        assert_eq!(
            (names, facts.has_empty_dir, owner),
            (vec!["cart".to_owned()], true, "sts/cart".to_owned())
        );
        assert_eq!((facts.is_assigned, facts.finalizers), (true, vec!["example.com/hold".to_owned()]));
        assert_eq!(denial(&facts.denied.unwrap()), "ann may not delete pods");
    }
}
