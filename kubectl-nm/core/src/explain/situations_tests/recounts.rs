//! Budgets whose status is older than their pods.

use serde_json::json;

use super::*;

#[test]
fn a_budget_that_would_allow_an_eviction_once_it_is_counted_again_is_not_to_be_changed() {
    let two = Situation {
        budget: min_available(json!(1), (1, 1, 1)),
        pods: vec![ready("web-0", "n1"), ready("web-1", "n2")],
        ..Situation::default()
    };
    let mut beside_crashing = beside(crashing("web-2", "n2", 1, "Error"));
    beside_crashing.budget = min_available(json!(1), (3, 1, 1));
    for situation in [two, beside_crashing] {
        let causes = situation.causes();
        assert_eq!(causes[0].commands.join("\n"), RECOUNT, "{causes:#?}");
    }
}

#[test]
fn a_budget_that_demands_all_pods_that_there_are_is_not_to_be_counted_again() {
    for (spec, value) in [("maxUnavailable", json!(0)), ("minAvailable", json!("100%"))] {
        let mut situation = never(spec, value, 2);
        situation.budget["status"]["currentHealthy"] = json!(1);
        let causes = situation.causes();
        assert!(causes[0].what.iter().any(|what| what.contains("can never allow")), "{causes:#?}");
    }
}
