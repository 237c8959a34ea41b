//! Hooks, and load balancers that let go of the node first.

use super::*;
use crate::api::group::Group;
use crate::api::names::{LOAD_BALANCER_LABEL, PRE_DRAIN_HOOK, PRE_RETURN_HOOK};
use crate::api::pod_state::PodCounts;
use crate::drain::node_patch::is_cordoned;

fn at(second: i64) -> Timestamp {
    now().checked_add(SignedDuration::from_secs(second)).unwrap()
}

fn hooked(domain: &str, extra: &Value) -> NodeMaintenance {
    let mut all = json!({"metadata": {"annotations": {format!("{domain}/flush"): "cache"}}});
    json_patch_merge(&mut all, extra);
    maintenance(&all)
}

fn without_hooks(maintenance: &NodeMaintenance) -> NodeMaintenance {
    let mut changed = maintenance.clone();
    changed.metadata.annotations = None;
    changed
}

fn status(decision: &Decision) -> &NodeMaintenanceStatus {
    decision.status.as_ref().unwrap()
}

#[test]
fn no_pod_is_evicted_before_the_hooks_are_removed() {
    let new = hooked(PRE_DRAIN_HOOK, &json!({}));
    let decision = decide(&new, &observed(), now());
    assert!(decision.node.is_some() && asked(&decision).is_empty());
    let held = status(&decision);
    assert_eq!(condition(held, "Drained"), ("False", "WaitingForHooks"));
    assert_eq!(
        held.conditions.iter().find(|one| one.type_ == "Drained").unwrap().message,
        "0 of 2 pods are gone, waiting for hook flush (owner: cache)"
    );
    assert_eq!(
        (held.phase, held.pod_counts.waiting, held.last_error.as_str()),
        (Some(Phase::Running), 2, "")
    );
    let waiting = after(&new, &decision);
    let later = decide(&waiting, &cordoned(), at(600));
    assert!(asked(&later).is_empty() && later.status.is_none(), "it waits without a limit");

    let released = decide(&without_hooks(&waiting), &cordoned(), at(601));
    assert_eq!(asked(&released), ["a", "b"]);
    assert_eq!(status(&released).hold, None);
}

#[test]
fn a_node_without_pods_is_not_drained_before_the_hooks_are_removed() {
    let empty = |cluster: ClusterState| ClusterState { pods: Some(vec![]), ..cluster };
    let new = hooked(PRE_DRAIN_HOOK, &json!({}));
    let decision = decide(&new, &empty(observed()), now());
    assert_eq!(
        (status(&decision).phase, condition(status(&decision), "Drained").0),
        (Some(Phase::Running), "False")
    );
    let released = without_hooks(&after(&new, &decision));
    assert_eq!(status(&decide(&released, &empty(cordoned()), at(5))).phase, Some(Phase::Succeeded));
}

#[test]
fn a_hook_that_is_set_after_the_first_eviction_comes_too_late() {
    let begun = maintenance(&json!({}));
    let begun = after(&begun, &decide(&begun, &observed(), now()));
    let mut hooked = hooked(PRE_DRAIN_HOOK, &json!({}));
    hooked.status = begun.status;
    assert_eq!(asked(&decide(&hooked, &cordoned(), at(5))), ["a", "b"]);
}

#[test]
fn no_pod_is_evicted_before_the_status_shows_the_end_of_the_hold() {
    let new = hooked(PRE_DRAIN_HOOK, &json!({}));
    let released = without_hooks(&after(&new, &decide(&new, &observed(), now())));
    let just_written = ClusterState { status_written: Some(now()), ..cordoned() };
    let early = decide(&released, &just_written, now());
    assert!(early.status.is_none() && asked(&early).is_empty(), "or a crash would leave it held");
    assert!(early.requeue_after.is_some_and(|wait| wait <= Duration::from_secs(1)));
}

#[test]
fn a_drain_that_times_out_says_of_pods_that_terminate_that_they_do() {
    let new = maintenance(&json!({"spec": {"drain": {"timeoutSeconds": 60}}}));
    let begun = after(&new, &decide(&new, &observed(), now()));
    let error = |pods: Vec<Arc<DrainPod>>| {
        let seen = ClusterState { pods: Some(pods), ..cordoned() };
        decide(&begun, &seen, at(60)).status.unwrap().last_error
    };
    let ending = |name: &str| pod_named(name, &json!({"deletionTimestamp": "2026-01-01T01:02:00Z"}));
    let stays = |name: &str| pod_named(name, &json!({}));
    assert_eq!(error(vec![ending("a")]), "the drain timed out after 60 s, 1 pod is still terminating");
    assert_eq!(
        error(vec![ending("a"), ending("b")]),
        "the drain timed out after 60 s, 2 pods are still terminating"
    );
    assert_eq!(
        error(vec![ending("a"), stays("b"), stays("c")]),
        "the drain timed out after 60 s, 2 pods are left, 1 pod is still terminating"
    );
}

#[test]
fn a_drain_that_times_out_while_it_waits_says_what_for() {
    let new = hooked(PRE_DRAIN_HOOK, &json!({"spec": {"drain": {"timeoutSeconds": 60}}}));
    let waiting = after(&new, &decide(&new, &observed(), now()));
    let failed = decide(&waiting, &cordoned(), at(61));
    assert_eq!(status(&failed).phase, Some(Phase::Failed));
    assert_eq!(
        status(&failed).last_error,
        "the drain timed out after 60 s, waiting for hook flush (owner: cache), 2 pods are left"
    );
    let mut extended = after(&waiting, &failed);
    extended.spec.drain.as_mut().unwrap().timeout_seconds = 0;
    let again = decide(&extended, &cordoned(), at(70));
    assert!(asked(&again).is_empty());
    assert_eq!(condition(status(&again), "Drained"), ("False", "WaitingForHooks"));
}

#[test]
fn load_balancers_have_their_time_before_the_first_eviction() {
    let new =
        maintenance(&json!({"spec": {"drain": {"loadBalancers": {"exclude": true, "delaySeconds": 20}}}}));
    let decision = decide(&new, &observed(), now());
    assert_eq!(decision.node.as_ref().unwrap().0["metadata"]["labels"][LOAD_BALANCER_LABEL], "true");
    assert_eq!(condition(status(&decision), "Drained"), ("False", "WaitingForLoadBalancers"));
    assert_eq!(status(&decision).hold.as_ref().unwrap().load_balancers_until.as_ref().unwrap().0, at(20));
    assert_eq!(decision.requeue_after, Some(Duration::from_secs(20)));
    let waiting = after(&new, &decision);
    let mut node = serde_json::to_value(observed().node.unwrap().as_ref()).unwrap();
    json_patch_merge(&mut node, &decision.node.unwrap().0);
    let cluster = ClusterState { node: Some(Arc::new(serde_json::from_value(node).unwrap())), ..observed() };
    let before = decide(&waiting, &cluster, at(19));
    assert!(asked(&before).is_empty());
    assert_eq!(before.requeue_after, Some(Duration::from_secs(1)));
    assert_eq!(asked(&decide(&waiting, &cluster, at(20))), ["a", "b"]);
}

#[test]
fn the_node_is_not_returned_before_the_hooks_are_removed() {
    let deletion = json!({"metadata": {"deletionTimestamp": "2026-01-01T01:00:00Z"}});
    let begun = maintenance(&json!({}));
    let begun = after(&begun, &decide(&begun, &observed(), now()));
    let mut ending = hooked(PRE_RETURN_HOOK, &deletion);
    let mut of_drain = begun.status.unwrap();
    of_drain.blocked_pods = vec![
        serde_json::from_value(
            json!({"namespace": "shop", "name": "a", "reason": "DisruptionBudget", "message": "m",
            "since": "2026-01-01T00:30:00Z", "attempts": 3}),
        )
        .unwrap(),
    ];
    of_drain.pod_counts = PodCounts { blocked: 1, waiting: 1, staying: 2, ..PodCounts::default() };
    ending.status = Some(of_drain);
    let held = decide(&ending, &cordoned(), at(5));
    assert!(status(&held).blocked_pods.is_empty(), "nothing is drained any more");
    assert_eq!(status(&held).pod_counts, PodCounts { staying: 4, ..PodCounts::default() });
    assert!(
        held.node.is_none() && held.remove_finalizer.is_none() && !held.node_released && held.lease.is_some()
    );
    assert!(
        asked(&held).is_empty() && held.evictable.as_ref().is_some_and(HashSet::is_empty),
        "no pod is evicted any more"
    );
    let shown = status(&held).conditions.iter().find(|one| one.type_ == "Cordoned").unwrap();
    assert_eq!((&*shown.status, &*shown.reason), ("True", "WaitingForHooks"));
    assert_eq!(shown.message, "node n1 stays cordoned, waiting for hook flush (owner: cache)");
    let again = decide(&after(&ending, &held), &cordoned(), at(600));
    assert!(again.status.is_none() && again.remove_finalizer.is_none());

    let released = decide(&without_hooks(&after(&ending, &held)), &cordoned(), at(601));
    assert!(released.node.is_some() && released.remove_finalizer.is_some() && released.node_released);
}

#[test]
fn a_hook_does_not_keep_a_maintenance_without_a_node_to_return() {
    let deletion = json!({"metadata": {"deletionTimestamp": "2026-01-01T01:00:00Z"}});
    let ending = hooked(PRE_RETURN_HOOK, &deletion);
    assert!(decide(&ending, &observed(), now()).remove_finalizer.is_some(), "it has not begun");
    let begun = maintenance(&json!({}));
    let begun = after(&begun, &decide(&begun, &observed(), now()));
    let ending = NodeMaintenance { status: begun.status, ..ending };
    let gone = ClusterState { node: None, ..observed() };
    assert!(decide(&ending, &gone, now()).remove_finalizer.is_some(), "its node was deleted");
}

#[test]
fn what_the_neighbours_do_follows_the_spec_without_another_cordon() {
    let plain = after(&maintenance(&json!({})), &decide(&maintenance(&json!({})), &observed(), now()));
    let mut changed = plain.clone();
    changed.spec.drain = Some(
        serde_json::from_value(json!({"loadBalancers": {"exclude": true}, "autoscalers": "Protect"}))
            .unwrap(),
    );
    let decision = decide(&changed, &cordoned(), at(60));
    let metadata = &decision.node.as_ref().unwrap().0["metadata"];
    assert_eq!(metadata["labels"][LOAD_BALANCER_LABEL], "true");
    assert_eq!(metadata["annotations"]["karpenter.sh/do-not-disrupt"], "true");
    assert!(decision.recordon_count.is_none() && reasons(&decision).is_empty());
    assert_eq!(asked(&decision), ["a", "b"], "evictions have begun");
    assert!(is_cordoned(cordoned().node.as_deref().unwrap(), Group::Medik8s));
}

#[test]
fn a_failure_in_between_does_not_end_a_hold() {
    let new = hooked(PRE_DRAIN_HOOK, &json!({}));
    let waiting = after(&new, &decide(&new, &observed(), now()));
    let lease = json!({"spec": {"holderIdentity": "nhc", "leaseDurationSeconds": 60, "renewTime": "2026-01-01T01:00:00.000000Z"}});
    let taken = ClusterState { lease: Some(Arc::new(serde_json::from_value(lease).unwrap())), ..cordoned() };
    let lost = after(&waiting, &decide(&waiting, &taken, at(5)));
    assert_eq!(lost.status.as_ref().unwrap().error_on_lease_count, 1);
    let again = decide(&lost, &cordoned(), at(70));
    assert!(asked(&again).is_empty(), "{:?}", again.status);

    let mut invalid = waiting.clone();
    invalid.spec.drain = Some(
        serde_json::from_value(json!({"podSelector": {"matchExpressions": [{"key": "a", "operator": "x"}]}}))
            .unwrap(),
    );
    let failed = after(&waiting, &decide(&invalid, &cordoned(), at(5)));
    assert_eq!(failed.status.as_ref().unwrap().phase, Some(Phase::Failed));
    assert!(asked(&decide(&failed, &cordoned(), at(10))).is_empty());
}

#[test]
fn a_definition_that_prunes_the_hold_or_all_conditions_keeps_it() {
    let new = hooked(PRE_DRAIN_HOOK, &json!({}));
    let mut waiting = after(&new, &decide(&new, &observed(), now()));
    waiting.status.as_mut().unwrap().hold = None;
    assert!(asked(&decide(&waiting, &cordoned(), at(5))).is_empty(), "the conditions show it");
    waiting.status.as_mut().unwrap().conditions.clear();
    assert!(asked(&decide(&waiting, &cordoned(), at(5))).is_empty(), "nothing shows it");
}

#[test]
fn the_delay_counts_from_the_label_even_if_that_is_set_later() {
    let new = hooked(PRE_DRAIN_HOOK, &json!({}));
    let mut waiting = after(&new, &decide(&new, &observed(), now()));
    let balancers = json!({"loadBalancers": {"exclude": true, "delaySeconds": 20}});
    waiting.spec.drain = Some(serde_json::from_value(balancers).unwrap());
    let labelled = decide(&waiting, &cordoned(), at(600));
    let until = |decision: &Decision| {
        status(decision).hold.as_ref().unwrap().load_balancers_until.as_ref().map(|until| until.0)
    };
    assert_eq!(until(&labelled), Some(at(620)));
    let mut node = serde_json::to_value(cordoned().node.unwrap().as_ref()).unwrap();
    json_patch_merge(&mut node, &labelled.node.as_ref().unwrap().0);
    let cluster = ClusterState { node: Some(Arc::new(serde_json::from_value(node).unwrap())), ..observed() };
    let released = without_hooks(&after(&waiting, &labelled));
    let early = decide(&released, &cluster, at(610));
    assert!(asked(&early).is_empty());
    assert_eq!(until(&early), Some(at(620)));
    assert_eq!(asked(&decide(&after(&released, &early), &cluster, at(620))), ["a", "b"]);
}

#[test]
fn the_end_of_another_maintenance_does_not_return_a_node_that_a_hook_keeps() {
    let deletion = json!({"metadata": {"deletionTimestamp": "2026-01-01T01:00:00Z"}});
    let begun = maintenance(&json!({}));
    let begun = after(&begun, &decide(&begun, &observed(), now()));
    let mut first = hooked(PRE_RETURN_HOOK, &deletion);
    first.status = begun.status;
    let mut second = maintenance(&deletion);
    second.metadata.uid = Some("second".to_owned());
    let beside = |others: &[&NodeMaintenance]| {
        let node = cordoned().node.unwrap();
        let hooks = others.iter().flat_map(|other| crate::decide::hold::hooks_of_return(other, &node));
        ClusterState {
            other_uids: others.iter().filter_map(|other| other.metadata.uid.clone()).collect(),
            return_hooks: hooks.collect(),
            ..cordoned()
        }
    };
    let held = decide(&second, &beside(&[&first]), at(5));
    assert!(held.node.is_none() && held.release_lease.is_none() && held.remove_finalizer.is_none());
    assert_eq!(status(&held).hold.as_ref().unwrap().to_string(), "hook flush (owner: cache)");
    assert!(status(&held).conditions.is_empty(), "it has not cordoned the node");
    assert!(decide(&first, &beside(&[&second]), at(5)).remove_finalizer.is_none(), "nor does its own");

    let released = decide(&second, &beside(&[&without_hooks(&first)]), at(6));
    assert!(released.remove_finalizer.is_some());
}

#[test]
fn the_delay_ends_at_the_second_that_the_status_shows() {
    let begins = now() + SignedDuration::from_millis(700);
    let new =
        maintenance(&json!({"spec": {"drain": {"loadBalancers": {"exclude": true, "delaySeconds": 20}}}}));
    let decision = decide(&new, &observed(), begins);
    let mut node = serde_json::to_value(observed().node.unwrap().as_ref()).unwrap();
    json_patch_merge(&mut node, &decision.node.as_ref().unwrap().0);
    let cluster = ClusterState { node: Some(Arc::new(serde_json::from_value(node).unwrap())), ..observed() };
    let until = status(&decision).hold.as_ref().unwrap().load_balancers_until.as_ref().unwrap().0;
    assert_eq!(asked(&decide(&after(&new, &decision), &cluster, until)), ["a", "b"]);
}
