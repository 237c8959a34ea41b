//! Workloads whose pods the replacements of a drain have preempted, and those that lack pods since a drain.

use serde_json::{Value, json};

use super::surroundings::{drained, outage};
use super::*;
use crate::explain::cluster_facts::{PreemptedPod, Preemptor};

const FULL: &str = "0/2 nodes are available: 1 Insufficient cpu, 1 node(s) were unschedulable.";

fn preempted(name: &str) -> PreemptedPod {
    let of = |name: &str| PodReference { namespace: "shop".into(), name: name.into() };
    PreemptedPod {
        pod: of(name),
        uid: name.into(),
        by_uid: "7d2f".into(),
        by: Some(Preemptor { pod: of("high-6c4-xyz12"), is_of_daemon_set: false }),
        at: "2026-01-02T03:05:00Z".parse().unwrap(),
    }
}

/// A Deployment of which `ready` of two pods are Ready, and these are not, after so many pods left `n1` and others were preempted.
fn lacking(ready: i32, left: usize, preempted: Vec<PreemptedPod>, pods: Vec<Value>) -> ClusterFacts {
    let mut facts = outage(2, Value::Null, pods);
    let mut outage = facts.outages.remove("n1").unwrap().remove(0);
    outage.workload.ready = ready;
    outage.left.truncate(left);
    outage.preempted = preempted;
    let kind = if ready == 0 { &mut facts.outages } else { &mut facts.lacking };
    kind.insert("n1".into(), vec![outage]);
    facts.nodes = Some(Ok(vec![parse(&cordoned("n1")), parse(&node("n2", json!({})))]));
    facts.in_maintenance = ["n1".into()].into();
    facts
}

#[test]
fn the_workloads_that_lack_pods_since_a_drain_are_named_with_what_took_them() {
    let pod = || pending("Unschedulable", FULL);
    let victims = || vec![preempted("web-6c4-bcdfg"), preempted("web-6c4-bcdfh")];
    let by = "preempted by shop/high-6c4-xyz12, probably in place of pods that left n1.";
    let two = format!("2 pods of this workload were {by}");
    let one = format!("1 pod of this workload was {by}");
    let left = "1 pod of this workload left n1 during the drain.";
    let down = "shop/deploy/web is down: its 2 pods are not ready.";
    let part = "shop/deploy/web has 1 of 2 pods ready.";
    for (facts, what) in [
        (lacking(0, 0, victims(), vec![pod(), pod()]), vec![down, &two]),
        (lacking(0, 1, vec![preempted("web-6c4-bcdfg")], vec![pod(), pod()]), vec![down, left, &one]),
        (lacking(1, 0, vec![preempted("web-6c4-bcdfg")], vec![pod()]), vec![part, &one]),
        (lacking(1, 1, vec![], vec![pod()]), vec![part, left]),
    ] {
        let causes = explained(&drained(), &facts);
        let [cause] = causes.as_slice() else { panic!("{what:?}: {causes:#?}") };
        let (why, rest) = cause.what.split_last().unwrap();
        assert_eq!(rest, what);
        assert!(why.contains("shop/web-2") && why.contains("Insufficient cpu"), "{why}");
        assert!(cause.commands.contains(&"kubectl nm stop n1".to_owned()), "{cause:#?}");
        assert!(cause.is_outage && !cause.passes(), "{cause:#?}");
        assert_eq!(cause.down.is_empty(), what[0] == part, "only a workload without a ready pod is down");
        check_harmless(cause);
    }
    let starting =
        edited(waiting("ContainerCreating", ""), "/status/startTime", json!("2026-01-02T03:07:00Z"));
    assert_eq!(explained(&drained(), &lacking(1, 1, vec![], vec![starting])), [], "it may just be starting");
    assert_eq!(explained(&drained(), &lacking(1, 1, vec![], vec![])), [], "it may be scaled");
}

#[test]
fn a_blocked_pod_whose_budget_waits_for_preempted_pods_says_since_when_and_by_whom() {
    let blocked = beside(pending("Unschedulable", FULL));
    let object = with_status("n1", blocked_status("shop"));
    let mut facts = blocked.facts();
    let said = |facts: &ClusterFacts| {
        let [cause] = <[Cause; 1]>::try_from(explained(&object, facts)).unwrap();
        cause.what.into_iter().filter(|what| what.contains("preempted")).collect::<Vec<_>>()
    };
    facts.preempted = vec![preempted("other-6c4-bcdfg")];
    assert_eq!(said(&facts), [""; 0]);
    facts.preempted.push(preempted("web-6c4-bcdfg"));
    assert_eq!(
        said(&facts),
        ["1 pod of deploy/web was preempted by shop/high-6c4-xyz12, at 2026-01-02T03:05:00Z."]
    );
    facts.preempted[1].by = None;
    assert_eq!(said(&facts), ["1 pod of deploy/web was preempted, at 2026-01-02T03:05:00Z."]);
}
