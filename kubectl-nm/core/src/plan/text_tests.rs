//! The words of a plan.

use k8s_openapi::api::core::v1::Pod;
use nm_shared::Hook;
use nm_shared::api::names::ROLL_RUNNER_LABEL;
use nm_shared::forecast::{PodOutcome, ReplacedBy};
use serde_json::json;

use super::*;
use crate::plan::document::document;
use crate::plan::report::tests::{pod, report, snapshot};

#[test]
fn a_pod_that_would_be_replaced_first_needs_a_node_for_its_replacement() {
    let words = |pool: &str| {
        let mut web = Pod::clone(&pod("web-0", &json!({"name": "v"})));
        web.spec.as_mut().unwrap().node_selector = serde_json::from_value(json!({"pool": pool})).unwrap();
        let mut snapshot = snapshot(&["n1", "n2"], vec![web.into()]);
        for known in snapshot.nodes.as_mut().unwrap() {
            known.metadata.labels.get_or_insert_default().insert("pool".into(), "web".into());
        }
        let mut report = report(&["n1"], None, snapshot, &[]);
        let forecast = &mut report.forecast.as_mut().unwrap().pods[0];
        forecast.fate = PodOutcome::Surges(ReplacedBy::Restart);
        (details(&report.forecast.as_ref().unwrap().pods[0], &report), verdict(&report).to_string())
    };
    let restarted = "its Deployment is restarted, and replaces all of its pods before they leave";
    assert_eq!(words("web"), (restarted.to_owned(), String::from("Nothing would block the drain.")));
    let waits = "; but its replacement fits on no other node, and the rollout waits until it does";
    let stay = "Nothing would block the drain, but pods that are to be replaced first stay until their replacements fit on other nodes.";
    assert_eq!(words("gpu"), (restarted.to_owned() + waits, stay.to_owned()));
}

#[test]
fn the_pod_that_runs_a_roll_is_named_with_what_becomes_of_the_roll() {
    let mut runner = Pod::clone(&pod("nm-roll-kernel-x", &json!({"name": "v"})));
    let label = (ROLL_RUNNER_LABEL.to_owned(), "kernel".to_owned());
    runner.metadata.labels.get_or_insert_default().extend([label]);
    let report = report(&["n1"], None, snapshot(&["n1", "n2"], vec![runner.into()]), &[]);
    let words = details(&report.forecast.as_ref().unwrap().pods[0], &report);
    assert_eq!(words, "runs roll kernel; its Job starts another pod elsewhere, which continues the roll");
}

#[test]
fn the_hooks_that_delay_the_first_eviction_are_named_those_of_an_existing_maintenance_too() {
    let hook = |name: &str| Hook { name: name.to_owned(), owner: String::from("ada") };
    let planned = |with_own: bool, requested: &[Hook]| {
        let mut snapshot = snapshot(&["n1", "n2", "n3"], Vec::new());
        let mut existing = crate::testing::objects::requested("n1");
        existing.metadata.annotations = Some([(hook("own").annotation(), String::from("ada"))].into());
        snapshot.maintenances.extend(with_own.then_some(existing));
        let report = report(&["n1", "n2"], None, snapshot, &[]).with_hooks(requested);
        let lines: Vec<String> = hooks(&report.nodes).iter().map(ToString::to_string).collect();
        (lines, document(&report)["nodes"][1]["hooks"].clone())
    };
    assert_eq!(planned(false, &[]), (Vec::new(), json!([])));
    let two = [hook("flush"), hook("move")];
    let (lines, shown) = planned(false, &two);
    assert_eq!(lines, ["No pod is evicted until hooks flush (owner: ada), move (owner: ada) are removed"]);
    assert_eq!(shown, json!([{"name": "flush", "owner": "ada"}, {"name": "move", "owner": "ada"}]));
    let (lines, _) = planned(true, &[]);
    assert_eq!(lines, ["node/n1: no pod is evicted until hook own (owner: ada) is removed"]);
    let (lines, _) = planned(true, &[hook("new")]);
    let expected = ["n1: no pod is evicted until hook own", "n2: no pod is evicted until hook new"];
    assert_eq!(lines, expected.map(|line| format!("node/{line} (owner: ada) is removed")));
}

#[test]
fn a_budget_whose_status_is_older_than_its_pods_is_not_said_to_lack_ready_ones() {
    let planned = |is_outdated: bool| {
        let mut snapshot = snapshot(&["n1", "n2"], vec![pod("db-0", &json!({"name": "v"}))]);
        let budget = json!({"metadata": {"namespace": "shop", "name": "db"}, "spec": {"selector": {}},
            "status": {"currentHealthy": 1, "desiredHealthy": 1, "disruptionsAllowed": 0, "expectedPods": 2}});
        snapshot.budgets = vec![serde_json::from_value(budget).unwrap()];
        let key = BudgetKey { namespace: "shop".into(), name: "db".into() };
        snapshot.pods_of_budgets.outdated.extend(is_outdated.then(|| key.clone()));
        once_ready(&key, &report(&["n1"], None, snapshot, &[]))
    };
    assert_eq!(planned(false), "once 1 more of its pods is Ready");
    assert_eq!(planned(true), "once the disruption controller has counted its Ready pods");
}

#[test]
fn a_budget_that_waits_for_pods_without_a_node_elsewhere_is_said_to_block_and_one_whose_replacements_are_new_is_not()
 {
    let planned = |since: &str, at_most: i32| {
        let mut snapshot = snapshot(&["n1", "n2"], vec![pod("db-0", &json!({"name": "v"}))]);
        let condition = json!([{"type": "DisruptionAllowed", "status": "False", "reason": "InsufficientPods", "message": "",
            "lastTransitionTime": "2025-12-31T23:59:50Z"}]);
        let budget = json!({"metadata": {"namespace": "shop", "name": "db"}, "spec": {"selector": {}},
            "status": {"currentHealthy": 2, "desiredHealthy": 4 - at_most, "disruptionsAllowed": 0, "expectedPods": 4,
                "conditions": condition}});
        snapshot.budgets = vec![serde_json::from_value(budget).unwrap()];
        let unscheduled = json!([{"type": "PodScheduled", "status": "False", "reason": "Unschedulable",
            "lastTransitionTime": since}]);
        for name in ["db-2", "db-3"] {
            let mut pending = Pod::clone(&pod(name, &json!({"name": "v"})));
            pending.status =
                serde_json::from_value(json!({"phase": "Pending", "conditions": unscheduled})).unwrap();
            snapshot.pods_of_budgets.unready_elsewhere.insert(name.into(), pending);
        }
        let report = report(&["n1"], None, snapshot, &[]);
        let harms: Vec<String> =
            harm::lines(&harm::harms(&report, None)).iter().map(ToString::to_string).collect();
        let budgets: Vec<String> =
            budgets(report.forecast.as_ref().unwrap(), &report).iter().map(ToString::to_string).collect();
        (harms, budgets, verdict(&report).to_string())
    };
    let waits = |lacking: &str| {
        let budget = format!("budget shop/db (1 pod) allows no eviction now: the first once {lacking}");
        (Vec::new(), vec![budget], String::from("Nothing would block the drain."))
    };
    let (long, just) = ("2025-12-31T23:50:00Z", "2025-12-31T23:59:50Z");
    let (harms, budgets, verdict) = planned(long, 1);
    let why = "the scheduler finds no node for pods that it counts on";
    let refused =
        "stays blocked: shop/db-0: The disruption budget db needs 3 healthy pods and has 2 currently";
    assert_eq!(harms.last(), Some(&format!("{refused}; {why}")));
    assert_eq!(budgets, [format!("budget shop/db (1 pod) allows no eviction now: {why}")]);
    assert_eq!(verdict, "The drain would be blocked.");
    assert_eq!(planned(just, 1), waits("2 more of its pods are Ready"), "they were created a moment ago");
    let (harms, budgets, _) = planned(long, 2);
    let refused = refused.replace("needs 3", "needs 2");
    assert_eq!(
        harms.last(),
        Some(&format!("{refused}; {why}")),
        "a Ready pod leaves only if another one can be spared"
    );
    assert_eq!(budgets, [format!("budget shop/db (1 pod) allows no eviction now: {why}")]);
}

#[test]
fn a_budget_that_only_has_to_be_counted_again_is_not_said_to_allow_none_until_it_is_changed() {
    let planned = |is_outdated: bool| -> Vec<String> {
        let mut snapshot = snapshot(&["n1", "n2"], vec![pod("db-0", &json!({"name": "v"}))]);
        let budget = json!({"metadata": {"namespace": "shop", "name": "db"}, "spec": {"selector": {}, "minAvailable": 1},
            "status": {"currentHealthy": 1, "desiredHealthy": 1, "disruptionsAllowed": 0, "expectedPods": 1}});
        snapshot.budgets = vec![serde_json::from_value(budget).unwrap()];
        snapshot.growing.insert(BudgetKey { namespace: "shop".into(), name: "db".into() }, false);
        let key = BudgetKey { namespace: "shop".into(), name: "db".into() };
        snapshot.pods_of_budgets.outdated.extend(is_outdated.then_some(key));
        let report = report(&["n1"], None, snapshot, &[]);
        let never = harm::harms(&report, None).into_iter();
        let never = never.filter(|harm| matches!(harm, Harm::NeverLeave { .. })).map(|harm| harm.line());
        let budgets = budgets(report.forecast.as_ref().unwrap(), &report);
        never.chain(budgets).map(|line| line.to_string()).collect()
    };
    let refused = "shop/db-0: The disruption budget db needs 1 healthy pods and has 1 currently";
    assert_eq!(
        planned(false),
        [
            format!("never leaves: {refused}; it allows no eviction even with all of its pods Ready"),
            String::from("budget shop/db (1 pod) allows no evictions until it is changed"),
        ]
    );
    assert_eq!(
        planned(true),
        [
            format!(
                "stays blocked: {refused}; more of its pods are Ready than the disruption controller has counted"
            ),
            String::from(
                "budget shop/db (1 pod) allows no eviction now: the first once the disruption controller has counted its Ready pods"
            ),
        ]
    );
}
