//! What a plan says of harm that settings of the drain ask for.

use std::sync::Arc;

use nm_shared::DrainSpec;
use nm_shared::cluster::disruption_budget::BudgetKey;
use nm_shared::cluster::pod::DrainPod;
use serde_json::json;

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
