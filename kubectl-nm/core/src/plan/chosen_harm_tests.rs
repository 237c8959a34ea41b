//! What a plan says of harm that settings of the drain ask for.

use std::sync::Arc;

use nm_shared::DrainSpec;
use nm_shared::cluster::disruption_budget::BudgetKey;
use nm_shared::cluster::pod::DrainPod;
use serde_json::{Value, json};

use super::*;
use crate::plan::report::tests::{pod, report, snapshot};

#[test]
fn pods_that_a_selector_leaves_on_the_node_are_named() {
    let shown = |drain: &DrainSpec| -> Vec<String> {
        let mut pods = ["db-0", "db-1", "proxy"].map(|name| pod(name, &json!({"name": "v"})));
        let mut proxy = (*pods[2]).clone();
        let owner = json!([{"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "proxy", "uid": "d", "controller": true}]);
        proxy.metadata.owner_references = serde_json::from_value(owner).unwrap();
        pods[2] = Arc::new(proxy);
        let report = report(&["n1"], Some(drain), snapshot(&["n1", "n2"], pods.into()), &[]);
        lines(&harms(&report, None)).iter().map(ToString::to_string).collect()
    };
    let typo = json!({"podSelector": {"matchLabels": {"app": "wbe"}}});
    let stay = "2 pods stay on the node, because podSelector does not match them: shop/db-0, shop/db-1";
    assert_eq!(shown(&serde_json::from_value(typo).unwrap()), [stay]);
    assert!(!shown(&DrainSpec::default()).contains(&stay.to_owned()));
}

#[test]
fn a_budget_may_allow_evictions_while_a_pod_runs_that_crashes_again_and_again() {
    let budget = json!({"metadata": {"namespace": "shop", "name": "db"}, "spec": {"selector": {}},
        "status": {"currentHealthy": 1, "desiredHealthy": 2, "disruptionsAllowed": 0, "expectedPods": 3}});
    let crashing = |name: &str, probe: &Value| {
        let mut crashing = (*pod(name, &json!({"name": "v"}))).clone();
        let container = json!({"name": "app", "readinessProbe": probe});
        crashing.spec.as_mut().unwrap().containers = vec![serde_json::from_value(container).unwrap()];
        let status = json!({"phase": "Running", "containerStatuses": [{"name": "app", "image": "", "imageID": "", "ready": false,
            "restartCount": 3, "state": {"waiting": {"reason": "CrashLoopBackOff"}},
            "lastState": {"terminated": {"exitCode": 1}}}]});
        crashing.status = serde_json::from_value(status).unwrap();
        Arc::new(crashing)
    };
    let found_with = |probe: &Value, desired: i32| {
        let pods = ["db-0", "db-2"].map(|name| crashing(name, probe)).into();
        let mut snapshot = snapshot(&["n1", "n2"], pods);
        let mut budget = budget.clone();
        budget["status"]["desiredHealthy"] = json!(desired);
        snapshot.budgets = vec![serde_json::from_value(budget).unwrap()];
        let elsewhere = crate::plan::pods_elsewhere::ready_pod(&pod("db-1", &json!({"name": "v"})));
        snapshot.pods.as_mut().unwrap().elsewhere.as_mut().unwrap().ready.extend(elsewhere);
        let report = report(&["n1"], None, snapshot, &[]);
        let harm: Vec<String> = lines(&harms(&report, None)).iter().map(ToString::to_string).collect();
        let plan: Vec<String> = crate::plan::text::lines(&report).iter().map(ToString::to_string).collect();
        (harm, plan.into_iter().find(|line| line.starts_with("budget ")).unwrap())
    };
    let found = |probe: &Value| found_with(probe, 2);
    let [of, now] = [
        "shop/db-0, shop/db-2: The disruption budget db needs 2 healthy pods and has 1 currently",
        "budget shop/db (2 pods) allows no eviction now",
    ];
    let may = format!(
        "may stay blocked: {of}; pods that it counts on crash again and again, and it may allow an eviction while they run"
    );
    let while_run =
        format!("{now}: pods that it counts on crash again and again; it may allow one while they run");
    assert_eq!(found(&Value::Null), (vec![may], while_run));
    let stay = format!(
        "stays blocked: {of}; of its pods that are not Ready, too many do not become Ready by themselves"
    );
    let unless = format!("{now}: too many of its pods that are not Ready stay so unless somebody acts");
    assert_eq!(found(&json!({"httpGet": {"port": 80}})), (vec![stay], unless));
    let never = "never leaves: shop/db-0, shop/db-2: The disruption budget db needs 3 healthy pods and has 1 currently; pods that it counts \
                 on crash again and again; it allows no eviction even with all of its pods Ready";
    let unchanged = "budget shop/db (2 pods) allows no evictions until it is changed";
    assert_eq!(found_with(&Value::Null, 3), (vec![never.to_owned()], unchanged.to_owned()));
}

#[test]
fn budgets_of_one_name_in_several_namespaces_are_not_said_to_be_one() {
    let never = |namespaces: &[&str], reason| {
        let pod = |namespace: &&str| PodReference { namespace: (*namespace).into(), name: "web-0".into() };
        let pods: Vec<PodReference> = namespaces.iter().map(pod).collect();
        let message = "the budget web needs 8".to_owned();
        Harm::NeverLeave { count: pods.len(), pods, reason, message, lasting: Lasting::Forever }
            .line()
            .to_string()
    };
    let said = "never leaves: a/web-0, b/web-0: the budget web needs 8";
    assert_eq!(never(&["a", "b"], BlockReason::DisruptionBudget), format!("{said}, in each of 2 namespaces"));
    assert_eq!(never(&["a", "b"], BlockReason::AdmissionPolicy), said);
    let alone = "never leaves: a/web-0, a/web-0: the budget web needs 8";
    assert_eq!(never(&["a", "a"], BlockReason::DisruptionBudget), alone);
}

#[test]
fn pods_that_are_deleted_unless_their_budgets_allow_their_evictions_are_named() {
    let key = || BudgetKey { namespace: "shop".into(), name: "db".into() };
    let found = |now: usize, after: Option<i64>| -> Vec<String> {
        let waits = |name: &str| {
            let pod: DrainPod =
                serde_json::from_value(json!((*pod(name, &json!({"name": "v"}))).clone())).unwrap();
            PodForecast {
                node: String::from("n1"),
                pod: Arc::new(pod),
                fate: PodOutcome::WaitsForBudget(key()),
                warnings: Vec::new(),
                leaves: true,
                is_unanswered: false,
                deleted_after: after,
                guarded_by: None,
                returning: None,
                is_left_to_others: false,
            }
        };
        let guard = BudgetForecast {
            budget: key(),
            pods: 2,
            now,
            at_most: 1,
            rounds: Some(2),
            short_of: 0,
            lacks: None,
        };
        let pods = ["db-0", "db-1"].map(waits).into();
        let forecast = Forecast { pods, budgets: vec![guard], ..Forecast::default() };
        lines(&deleted_after_refusal(&forecast)).iter().map(ToString::to_string).collect()
    };
    let deleted =
        "2 pods deleted after 20s unless their budgets allow their evictions before: shop/db-0, shop/db-1";
    assert_eq!(found(0, Some(20)), [deleted]);
    assert_eq!(found(1, Some(20)), [deleted], "the replacement of the first may take longer");
    assert_eq!(found(1, Some(31)), [""; 0], "they leave in turn");
    assert_eq!(found(0, None), [""; 0]);
}

#[test]
fn a_pod_that_a_budget_keeps_and_whose_template_names_the_node_would_return() {
    let mut db = (*pod("db-0", &json!({"name": "v"}))).clone();
    let managed = json!([{"manager": "kube-controller-manager", "operation": "Update", "apiVersion": "v1",
        "fieldsType": "FieldsV1", "fieldsV1": {"f:spec": {"f:nodeName": {}}}}]);
    db.metadata.managed_fields = serde_json::from_value(managed).unwrap();
    let owner = json!([{"apiVersion": "apps/v1", "kind": "StatefulSet", "name": "db", "uid": "w", "controller": true}]);
    db.metadata.owner_references = serde_json::from_value(owner).unwrap();
    let mut snapshot = snapshot(&["n1", "n2"], vec![Arc::new(db)]);
    let budget = json!({"metadata": {"namespace": "shop", "name": "db"}, "spec": {"selector": {}},
        "status": {"currentHealthy": 1, "desiredHealthy": 1, "disruptionsAllowed": 0, "expectedPods": 1}});
    snapshot.budgets = vec![serde_json::from_value(budget).unwrap()];
    let report = report(&["n1"], None, snapshot, &[]);
    let harm: Vec<String> = lines(&harms(&report, None)).iter().map(ToString::to_string).collect();
    let returns = "evicted, it would return to the node, because its owner assigns it to this node, bypassing the scheduler";
    assert!(
        harm.iter().any(|line| line.starts_with("never leaves: shop/db-0: ") && line.contains(returns)),
        "{harm:#?}"
    );
}
