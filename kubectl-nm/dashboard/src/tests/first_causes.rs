//! The first cause behind a budget, on the screen of an open node.

use std::collections::HashMap;

use jiff::SignedDuration;
use nm_core::explain::cluster_facts::{ClusterFacts, GuardedPods, Unseen};
use nm_shared::PodReference;
use serde_json::json;

use crate::message::{Effect, Message};
use crate::model::Model;
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

#[test]
fn the_time_that_is_left_is_that_of_the_moment_when_it_is_drawn() {
    let mut model = node(options());
    tick(&mut model, 1);
    let mut facts = never_allowing("worker-07");
    let guarded = facts.budgets.get_mut(&cart()).unwrap();
    let deadline = now() + SignedDuration::from_secs(20);
    let pod = json!({"metadata": {"name": "cart-1", "namespace": "shop", "deletionTimestamp": deadline.to_string(),
        "deletionGracePeriodSeconds": 30}, "spec": {"nodeName": "worker-08", "containers": []}});
    let budget = json!({
        "metadata": {"name": "cart", "namespace": "shop", "generation": 1},
        "spec": {"maxUnavailable": 1, "selector": {"matchLabels": {"app": "cart"}}},
        "status": {"observedGeneration": 1, "expectedPods": 3, "desiredHealthy": 2, "currentHealthy": 2,
            "disruptionsAllowed": 0},
    });
    guarded.budget = Ok(Some(serde_json::from_value(budget).unwrap()));
    let ready = json!({"metadata": {"name": "cart-0", "namespace": "shop"}, "spec": {"nodeName": "worker-07", "containers": []},
        "status": {"conditions": [{"type": "Ready", "status": "True"}]}});
    guarded.pods = Ok([ready, pod].map(|pod| serde_json::from_value(pod).unwrap()).into());
    send(&mut model, read(facts));
    let left = |model: &Model| model.remedy().unwrap().0;
    assert!(left(&model).contains("19s of its grace period"), "{}", left(&model));
    assert_eq!(tick(&mut model, 14), [], "nothing has to be read to count down");
    assert!(left(&model).contains("6s of its grace period"), "{}", left(&model));
    let effects = tick(&mut model, 21);
    assert!(matches!(effects[..], [Effect::ReadCauses { .. }]), "the pod may be gone: {effects:?}");
}
