//! Which Deployments can surge, and how far they are.

use k8s_openapi::api::core::v1::Node;
use serde_json::{Value, json};

use super::*;

fn merge(target: &mut Value, patch: &Value) {
    match (target, patch) {
        (Value::Object(target), Value::Object(patch)) => {
            for (key, value) in patch {
                merge(target.entry(key).or_insert(Value::Null), value);
            }
        }
        (target, patch) => *target = patch.clone(),
    }
}

/// A Deployment of one pod, completely rolled out at revision 3.
fn deployment(extra: &Value) -> Arc<Deployment> {
    let mut object = json!({
        "metadata": {"namespace": "shop", "name": "web", "uid": "d", "resourceVersion": "9", "generation": 5,
            "annotations": {REVISION_ANNOTATION: "3"}},
        "spec": {"replicas": 1, "selector": {}, "template": {},
            "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": "25%", "maxUnavailable": "25%"}}},
        "status": {"observedGeneration": 5, "replicas": 1, "updatedReplicas": 1, "availableReplicas": 1},
    });
    merge(&mut object, extra);
    Arc::new(serde_json::from_value(object).unwrap())
}

fn workload(extra: &Value, revision: i64) -> Workload {
    Workload { revision: Some(revision), deployment: Some(deployment(extra)), ..Workload::default() }
}

fn word(surge: &Surge) -> &'static str {
    match surge {
        Surge::Required => "Required",
        Surge::Rolling => "Rolling",
        Surge::Waiting => "Waiting",
        Surge::Impossible(block) => block.reason.as_str(),
    }
}

#[track_caller]
fn check(extra: &Value, expected: &str) {
    assert_eq!(word(&judge(&DrainPod::default(), &workload(extra, 3))), expected, "{extra}");
}

#[test]
fn a_deployment_surges_where_no_pod_goes_before_its_replacement_is_ready() {
    let rolling = |surge: Value, unavailable: Value, replicas: i32| {
        json!({"spec": {"replicas": replicas,
            "strategy": {"rollingUpdate": {"maxSurge": surge, "maxUnavailable": unavailable}}},
            "status": {"replicas": replicas, "updatedReplicas": replicas}})
    };
    check(&json!({}), "Required");
    check(&rolling(json!("25%"), json!("25%"), 3), "Required");
    check(&rolling(json!("25%"), json!("25%"), 4), "Unavailable");
    check(&rolling(json!("25%"), json!(0), 4), "Required");
    check(&rolling(json!(1), json!(1), 1), "Unavailable");
    check(&rolling(json!(0), json!(1), 1), "NoSurge");
    check(&rolling(json!("0%"), json!("100%"), 1), "NoSurge");
    check(&json!({"spec": {"strategy": null}}), "Required");
    check(&json!({"spec": {"strategy": {"type": "Recreate", "rollingUpdate": null}}}), "Recreate");
    check(&json!({"spec": {"paused": true}}), "Paused");
    check(&json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}}), "NoDeployment");
    let volume =
        |source: Value| json!({"spec": {"template": {"spec": {"containers": [], "volumes": [source]}}}});
    let mut claimed = volume(json!({"name": "v", "persistentVolumeClaim": {"claimName": "data"}}));
    check(&claimed, "SharedVolume");
    // No other strategy would help.
    claimed["spec"]["strategy"] = json!({"type": "Recreate", "rollingUpdate": null});
    check(&claimed, "SharedVolume");
    check(&volume(json!({"name": "v", "ephemeral": {"volumeClaimTemplate": {"spec": {}}}})), "Required");
}

#[test]
fn a_rollout_that_is_under_way_is_not_repeated() {
    let unobserved = json!({"metadata": {"generation": 6}});
    check(&unobserved, "Rolling");
    assert_eq!(
        word(&judge(&DrainPod::default(), &workload(&json!({}), 2))),
        "Rolling",
        "the pod is of an older revision"
    );
    let recreate = json!({"spec": {"strategy": {"type": "Recreate", "rollingUpdate": null}}});
    assert_eq!(
        word(&judge(&DrainPod::default(), &workload(&recreate, 2))),
        "Rolling",
        "nothing has to be restarted"
    );
    check(&json!({"status": {"replicas": 2}}), "Waiting");
    check(&json!({"spec": {"replicas": 2}}), "Waiting");
    check(&json!({"status": {"updatedReplicas": 0}}), "Waiting");
    // The pod itself may not be available.
    check(&json!({"status": {"availableReplicas": 0}}), "Required");
}

#[test]
fn a_rollout_that_cannot_proceed_is_named() {
    let condition = |kind: &str, status: &str| {
        let failed = json!({"type": kind, "status": status, "reason": "R", "message": "exceeded quota: few"});
        json!({"status": {"conditions": [failed]}})
    };
    check(&condition("ReplicaFailure", "True"), "CreationFailed");
    check(&condition("Progressing", "False"), "Stalled");
    check(&condition("Progressing", "Unknown"), "Required");
    let Surge::Impossible(block) =
        judge(&DrainPod::default(), &workload(&condition("ReplicaFailure", "True"), 2))
    else {
        panic!()
    };
    assert!(block.message.ends_with("exceeded quota: few"), "{block:?}");
    assert_eq!(block.deployment.as_deref(), Some("web"));
}

#[test]
fn a_quota_that_allows_no_additional_pod_is_named_unless_a_rollout_is_under_way() {
    let named = |text: &str| text.to_owned();
    let full = FullQuota {
        namespace: named("shop"),
        name: named("few"),
        exceeded: vec![(named("pods"), named("3"), named("3"))],
    };
    let judged = |revision: i64| {
        judge(&DrainPod::default(), &Workload { quota: Some(full.clone()), ..workload(&json!({}), revision) })
    };
    let Surge::Impossible(block) = judged(3) else { panic!("{:?}", judged(3)) };
    assert_eq!(block.reason, SurgeObstacle::CreationFailed);
    assert_eq!(
        block.message,
        "Deployment web cannot create a pod: quota shop/few allows no additional pod (pods: 3 of 3 used)"
    );
    assert_eq!(judged(2), Surge::Rolling, "its additional pod may exist already");
}

#[test]
fn a_replica_set_without_a_deployment_cannot_surge() {
    let bare = Workload { revision: Some(3), ..Workload::default() };
    assert_eq!(word(&judge(&DrainPod::default(), &bare)), "NoDeployment");
    let set =
        |owner: Value| -> ObjectMeta { serde_json::from_value(json!({"ownerReferences": [owner]})).unwrap() };
    let owner = |version: &str, kind: &str, controller: bool| json!({"apiVersion": version, "kind": kind, "name": "web", "uid": "d", "controller": controller});
    assert_eq!(deployment_of(&set(owner("apps/v1", "Deployment", true))), Some("web"));
    assert_eq!(deployment_of(&set(owner("apps/v1", "Deployment", false))), None);
    assert_eq!(deployment_of(&set(owner("argoproj.io/v1alpha1", "Rollout", true))), None);
}

/// Why a Deployment is not restarted whose template has this spec, if it has so many replicas and these nodes are left.
fn obstacle_of(spec: &Value, replicas: i32, nodes: &[(&str, Value)]) -> Option<String> {
    let template = json!({"metadata": {"labels": {"app": "web"}}, "spec": spec});
    let node = |(name, spec): &(&str, Value)| -> Node {
        let ready = json!({"conditions": [{"type": "Ready", "status": "True"}]});
        serde_json::from_value(json!({"metadata": {"name": name}, "spec": spec, "status": ready})).unwrap()
    };
    let nodes: Vec<Node> = nodes.iter().map(node).collect();
    let status = json!({"replicas": replicas, "updatedReplicas": replicas});
    let mut workload =
        workload(&json!({"spec": {"replicas": replicas, "template": template}, "status": status}), 3);
    if keeps_pods_apart(workload.deployment.as_ref().unwrap()) {
        workload.nodes = nodes_for_replacements(&workload, &nodes);
    }
    match judge(&DrainPod::default(), &workload) {
        Surge::Impossible(block) if block.reason == SurgeObstacle::KeptApart => Some(block.message),
        judged => {
            assert_eq!(judged, Surge::Required);
            None
        }
    }
}

fn apart(extra: &Value) -> Value {
    let mut term =
        json!({"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"app": "web"}}});
    merge(&mut term, extra);
    let required = json!({"requiredDuringSchedulingIgnoredDuringExecution": [term]});
    json!({"containers": [], "affinity": {"podAntiAffinity": required}})
}

fn with_port(port: &Value, host_network: bool) -> Value {
    json!({"containers": [{"name": "c", "ports": [port]}], "hostNetwork": host_network})
}

#[test]
fn a_deployment_whose_pods_must_be_on_different_nodes_is_restarted_only_if_there_is_a_node_for_each_replacement()
 {
    let plain = || json!({});
    let two = [("n2", plain()), ("n3", plain())];
    let port = json!({"containerPort": 80, "hostPort": 80});
    for (spec, expected) in [
        (apart(&json!({})), true),
        (apart(&json!({"labelSelector": {}})), true),
        // The old pods do not concern it, but each replacement needs a node.
        (apart(&json!({"matchLabelKeys": ["pod-template-hash"]})), true),
        (with_port(&port, false), true),
        (with_port(&json!({"containerPort": 80}), true), true),
        (with_port(&json!({"containerPort": 80}), false), false),
        (json!({"containers": []}), false),
        (apart(&json!({"topologyKey": "topology.kubernetes.io/zone"})), false),
        (apart(&json!({"labelSelector": {"matchLabels": {"app": "other"}}})), false),
        (apart(&json!({"mismatchLabelKeys": ["app"]})), false),
        (apart(&json!({"namespaces": ["elsewhere"]})), false),
    ] {
        assert_eq!(obstacle_of(&spec, 3, &two).is_some(), expected, "{spec}");
        assert_eq!(obstacle_of(&spec, 2, &two), None, "a node for each is enough: {spec}");
    }
    let spec = apart(&json!({}));
    let three = [("n2", plain()), ("n3", plain()), ("n4", plain())];
    assert_eq!(obstacle_of(&spec, 3, &three), None);
    let cordoned = [("n2", plain()), ("n3", plain()), ("n4", json!({"unschedulable": true}))];
    assert_eq!(
        obstacle_of(&spec, 3, &cordoned).as_deref(),
        Some(
            "the 3 pods of Deployment web must be on different nodes, and only 2 other nodes can take their replacements"
        )
    );
    assert_eq!(
        obstacle_of(&spec, 3, &cordoned[1..]).as_deref(),
        Some(
            "the 3 pods of Deployment web must be on different nodes, and only 1 other node can take one of their replacements"
        )
    );
    assert_eq!(obstacle_of(&spec, 3, &cordoned[2..]), None, "something else keeps the replacements off");
    assert_eq!(obstacle_of(&spec, 1, &cordoned[2..]), None, "it has no other pod");
}

/// Ends a rollout in each order that the `ReplicaSet` may choose. Returns whether it may leave an old pod on a node that takes
/// no replacement: the first `old` nodes have a pod, and those from `fit` on take replacements.
fn may_leave_a_pod(old: &[usize], new: &[usize], fit: std::ops::Range<usize>) -> bool {
    let is_free = |node: &usize| !old.contains(node) && !new.contains(node);
    match fit.clone().find(is_free) {
        None => old.iter().any(|node| !fit.contains(node)),
        Some(free) => (0..old.len()).any(|ended| {
            let mut left = old.to_vec();
            left.remove(ended);
            may_leave_a_pod(&left, &[new, &[free]].concat(), fit.clone())
        }),
    }
}

#[test]
fn with_a_node_for_each_replacement_each_pod_leaves_its_node_whichever_the_rollout_ends_first() {
    for replicas in 1..6 {
        for drained in 1..=replicas {
            for nodes in drained + 1..8 {
                let (old, fit): (Vec<usize>, _) = ((0..replicas).collect(), drained..nodes);
                let count = i32::try_from(fit.len()).unwrap();
                // Old pods have nodes.
                if nodes >= replicas {
                    let has_too_few = has_too_few_nodes(count, i32::try_from(replicas).unwrap());
                    assert_eq!(may_leave_a_pod(&old, &[], fit), has_too_few, "{replicas} {drained} {nodes}");
                }
            }
        }
    }
}

#[test]
fn each_replacement_is_for_one_pod_and_stays_with_it() {
    let pod = |name: &str, set: &str, node: &str, ready: &str, extra: &Value| {
        let mut pod = json!({
            "metadata": {"namespace": "shop", "name": name, "uid": name, "ownerReferences": [
                {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": set, "uid": set, "controller": true}]},
            "spec": {"nodeName": node}, "status": {"conditions": [{"type": "Ready", "status": ready}]},
        });
        merge(&mut pod, extra);
        Arc::new(serde_json::from_value::<DrainPod>(pod).unwrap())
    };
    let old = pod("old", "web-1", "n1", "True", &json!({}));
    let gone = json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}});
    let older = pod("older", "web-1", "n1", "True", &json!({}));
    let named = |replaced: &[(&DrainPod, Option<&str>)], pods: &[&Arc<DrainPod>]| {
        let pods = pods.iter().map(|pod| Arc::clone(pod)).collect();
        replacements(replaced, &Workload { pods, ..workload(&json!({}), 2) })
    };
    let with = |pods: &[&Arc<DrainPod>]| named(&[(&old, None)], pods).remove(0);
    assert_eq!(with(&[&old, &pod("gone", "web-2", "n2", "True", &gone)]), None);
    let ready = pod("a", "web-2", "n2", "True", &json!({}));
    let starting = pod("b", "web-2", "", "False", &json!({}));
    let found = with(&[&old, &ready, &starting]).unwrap();
    assert_eq!((found.name.as_str(), found.node, found.ready), ("b", None, false));
    let found = with(&[&old, &ready]).unwrap();
    assert_eq!((found.node.as_deref(), found.ready), (Some("n2"), true));

    let found = named(&[(&old, Some("a"))], &[&old, &ready, &starting]).remove(0).unwrap();
    assert_eq!(found.name, "b", "the one that is Ready has replaced a pod of another node");

    let both = |names: [Option<&str>; 2], pods: &[&Arc<DrainPod>]| {
        let found = named(&[(&old, names[0]), (&older, names[1])], pods).into_iter();
        found.map(|found| found.map(|found| found.name)).collect::<Vec<_>>()
    };
    let name = |name: &str| Some(name.to_owned());
    let other = pod("c", "web-2", "n3", "False", &json!({}));
    let bare =
        Arc::new(serde_json::from_value(json!({"metadata": {"namespace": "shop", "name": "0"}})).unwrap());
    assert_eq!(both([None, None], &[&bare, &starting]), [name("b"), None]);
    assert_eq!(both([None, None], &[&starting, &other]), [name("b"), name("c")]);
    assert_eq!(both([None, Some("b")], &[&starting, &other]), [name("c"), name("b")]);
    assert_eq!(both([Some("a"), None], &[&ready]), [name("a"), None], "it keeps the one that is Ready");
    assert_eq!(both([None, None], &[&ready]), [None, None], "it replaces a pod that has left");
}

#[test]
fn a_restart_changes_one_annotation_of_the_deployment_as_it_was_observed() {
    let now = "2026-01-01T00:00:00.123456Z".parse().unwrap();
    let set = WorkloadKey { namespace: "shop".into(), name: "web-1".into() };
    let restart = Restart::of(&deployment(&json!({})), &set, now).unwrap();
    assert_eq!(restart.deployment.to_string(), "shop/web");
    assert_eq!((restart.replica_set.name.as_str(), restart.replica_set.revision), ("web-1", 3));
    let annotations = json!({"kubectl.kubernetes.io/restartedAt": "2026-01-01T00:00:00.123456Z"});
    let expected = json!({
        "metadata": {"resourceVersion": "9", "uid": "d"},
        "spec": {"template": {"metadata": {"annotations": annotations}}},
    });
    assert_eq!(restart.patch, expected);
}

#[test]
fn a_restart_that_the_api_server_accepts_without_its_annotation_is_refused() {
    let set = WorkloadKey { namespace: "shop".into(), name: "web-3".into() };
    let restart =
        Restart::of(&deployment(&json!({})), &set, "2026-01-01T00:00:00Z".parse().unwrap()).unwrap();
    let answer = |annotations: Value| {
        deployment(&json!({"spec": {"template": {"metadata": {"annotations": annotations}}}}))
    };
    let requested = &restart.patch["spec"]["template"]["metadata"]["annotations"];
    assert_eq!(restart.undone_by(&answer(requested.clone())), None);
    for answer in [deployment(&json!({})), answer(json!({RESTARTED_AT_ANNOTATION: "2020-01-01T00:00:00Z"}))] {
        let Some(RestartRefusal::Refused(why)) = restart.undone_by(&answer) else { panic!("it is refused") };
        assert!(why.contains("mutating webhook"), "{why}");
    }
}
