//! The first cause behind a budget, on the screen of an open node.

use std::collections::HashMap;

use jiff::SignedDuration;
use nm_core::explain::cluster_facts::{ClusterFacts, GuardedPods, Unseen};
use nm_shared::PodReference;
use serde_json::json;

use crate::message::{Effect, Message};
use crate::model::Model;
use crate::tests::painted::text;
use crate::tests::scenes::{node, now, options, send};

fn cart() -> PodReference {
    PodReference { namespace: "shop".into(), name: "cart".into() }
}

/// What a tick asks for, except that nodes are followed.
fn tick(model: &mut Model, seconds: i64) -> Vec<Effect> {
    let mut effects = send(model, Message::Tick(now() + SignedDuration::from_secs(seconds)));
    effects.retain(|effect| !matches!(effect, Effect::Follow(_) | Effect::ReadOutages(_)));
    effects
}

/// What is read of a budget that guards `shop/cart-0` and can never allow its eviction.
pub(super) fn never_allowing(node: &str) -> Box<ClusterFacts> {
    let budget = json!({
        "metadata": {"name": "cart", "namespace": "shop", "generation": 1},
        "spec": {"maxUnavailable": 0, "selector": {"matchLabels": {"app": "cart"}}},
        "status": {"observedGeneration": 1, "expectedPods": 3, "desiredHealthy": 3, "currentHealthy": 3,
            "disruptionsAllowed": 0},
    });
    let pod = json!({"metadata": {"name": "cart-0", "namespace": "shop"}, "spec": {"nodeName": node, "containers": []}});
    let guarded = GuardedPods {
        budget: Ok(Some(serde_json::from_value(budget).unwrap())),
        pods: Ok(vec![serde_json::from_value(pod).unwrap()]),
        incomplete_owners: vec![],
        warnings: HashMap::default(),
    };
    of_cart(guarded)
}

fn of_cart(guarded: GuardedPods) -> Box<ClusterFacts> {
    let budgets = [(cart(), guarded)].into();
    Box::new(ClusterFacts { budgets, ..ClusterFacts::default() })
}

fn read(facts: Box<ClusterFacts>) -> Message {
    Message::CauseFacts { node: "worker-07".into(), facts }
}

#[test]
fn the_cause_of_an_open_node_is_read_once_and_shown() {
    let mut model = node(options());
    let effects = tick(&mut model, 1);
    let [Effect::ReadCauses { node, wanted, in_maintenance }] = &effects[..] else { panic!("{effects:?}") };
    assert_eq!(node, "worker-07");
    assert!(wanted.budgets.contains(&cart()), "{wanted:?}");
    assert!(in_maintenance.contains("worker-07"), "{in_maintenance:?}");
    assert_eq!(tick(&mut model, 2), [], "it is not read again at once");

    send(&mut model, read(never_allowing("worker-07")));
    let (why, remedy) = model.remedy().unwrap();
    assert!(
        why.ends_with("The budget can never allow an eviction: maxUnavailable is 0, and it has 3 pods"),
        "{why}"
    );
    assert_eq!(
        remedy.command,
        r#"kubectl -n shop patch pdb cart --type=merge -p '{"spec":{"maxUnavailable":1}}'"#
    );
}

#[test]
fn workloads_that_are_down_since_pods_left_before_the_node_was_opened_are_named() {
    let mut model = node(options());
    let effects: Vec<Effect> = (1..4)
        .flat_map(|second| send(&mut model, Message::Tick(now() + SignedDuration::from_secs(second))))
        .collect();
    let reads = effects.iter().filter(|effect| matches!(effect, Effect::ReadOutages(_)));
    assert_eq!(reads.count(), 1, "{effects:?}");
    let down = vec![String::from("shop/deploy/solo"), String::from("shop/deploy/crash")];
    send(&mut model, Message::Outages { node: "worker-07".into(), down });
    let screen = text(&model);
    for expected in ["2 workloads are down", "kubectl nm explain worker-07", "shop/deploy/solo"] {
        assert!(screen.contains(expected), "{expected}: {screen}");
    }
    send(&mut model, Message::Outages { node: "worker-07".into(), down: vec![] });
    assert!(!text(&model).contains("down since"), "{}", text(&model));
}

#[test]
fn what_could_not_be_read_is_shown_and_no_change_of_the_budget_suggested() {
    let mut model = node(options());
    let hidden = GuardedPods {
        budget: Err(Unseen::Forbidden("get poddisruptionbudgets.policy".into())),
        pods: Ok(vec![]),
        incomplete_owners: vec![],
        warnings: HashMap::default(),
    };
    send(&mut model, read(of_cart(hidden)));
    let (why, remedy) = model.remedy().unwrap();
    assert!(
        why.ends_with("Not known, because you have no permission to get poddisruptionbudgets.policy"),
        "{why}"
    );
    assert_eq!(remedy.command, "kubectl nm explain worker-07");
}
