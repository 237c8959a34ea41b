//! Pods that their Deployments replace first, and what their replacements wait for.

use nm_shared::cluster::resource_quota::FullQuota;
use serde_json::{Value, json};

use super::*;
use crate::explain::cluster_facts::{FactsToRead, ReadPod};
use crate::explain::read_facts;
use crate::testing::fake_server::{cluster, failure};

const ROLLOUT: &str = "kubectl -n shop rollout status deployment/web";

fn surging() -> NodeMaintenance {
    let pod = json!({"namespace": "shop", "name": "web-0", "deployment": "web", "restarted": true,
        "replacement": {"name": "web-2", "ready": false}, "since": "2026-01-02T03:04:05Z"});
    with_status("n1", json!({"phase": "Running", "podCounts": {"surging": 1}, "surgingPods": [pod]}))
}

fn web_2() -> PodReference {
    PodReference { namespace: "shop".into(), name: "web-2".into() }
}

fn with_replacement(read: Result<Option<Value>, Unseen>, nodes: &[Value]) -> Cause {
    let read = read.map(|pod| pod.map(|pod| ReadPod { pod: parse(&pod), warnings: vec![] }));
    let facts = ClusterFacts {
        replacements: [(web_2(), read)].into(),
        nodes: Some(Ok(nodes.iter().map(parse::<Node>).collect())),
        in_maintenance: [String::from("n1")].into(),
        ..ClusterFacts::default()
    };
    let mut causes = explained(&surging(), &facts);
    assert_eq!(causes.len(), 1, "{causes:#?}");
    causes.remove(0)
}

#[test]
fn a_replacement_that_is_not_ready_is_read() {
    let web_0 = PodReference { namespace: "shop".into(), name: "web-0".into() };
    assert_eq!(FactsToRead::of([&surging()]).replacements, [web_0, web_2()].into());
    let mut ready = surging();
    let pods = ready.status.as_mut().unwrap().surging_pods.as_mut().unwrap();
    pods[0].replacement.as_mut().unwrap().ready = true;
    assert!(FactsToRead::of([&ready]).is_empty());
}

#[test]
fn a_replacement_that_the_scheduler_places_nowhere_is_named_with_the_schedulers_words() {
    let message = format!(
        "{UNFIT} no new claims to deallocate, preemption: 0/2 nodes are available: 2 Preemption is not helpful for scheduling."
    );
    let unfit = || pending("Unschedulable", &message);
    let cause = with_replacement(Ok(Some(unfit())), &[cordoned("n1"), node("n2", json!({}))]);
    let pending = format!("shop/web-2 is Pending, because the scheduler finds no node: {UNFIT}");
    assert!(
        cause.what[0].starts_with("shop/web-0 is replaced first. Deployment web: not scheduled yet: web-2")
    );
    assert_eq!(cause.what[1..], [pending]);
    assert_eq!(
        (cause.outlook, cause.commands.as_slice()),
        (Outlook::WillBlock, [DESCRIBE.into(), "kubectl nm stop n1".into(), ROLLOUT.into()].as_slice())
    );
    assert_eq!(
        cause.advice,
        "Add capacity, or check what the pods request and select, and their volume claims; or stop the maintenance: \
         the pods may fit on its node"
    );
    // On a cluster of one node, or pinned to it.
    let left = with_replacement(Ok(Some(unfit())), &[cordoned("n1")]);
    assert_eq!(left.what[1..], ["No node is left for the replacement shop/web-2: n1 is in maintenance."]);
    assert_eq!((left.outlook, left.commands[0].as_str()), (Outlook::WillBlock, "kubectl nm stop n1"));
}

#[test]
fn a_replacement_does_not_fit_the_drained_node_if_the_replaced_pod_leaves_it_no_room_there() {
    let requests = |pod: Value, cpu: &str| {
        edited(pod, "/spec/containers/0/resources", json!({"requests": {"cpu": cpu, "memory": "1Gi"}}))
    };
    let drained =
        edited(cordoned("n1"), "/status/allocatable", json!({"cpu": "4", "memory": "8Gi", "pods": "110"}));
    for (cpu, phase, fits) in [("3", "Running", false), ("2", "Running", true), ("3", "Failed", true)] {
        let read = |pod: Value| {
            let pod = parse(&requests(pod, cpu));
            Ok(Some(ReadPod { pod, warnings: vec![] }))
        };
        let old = edited(ready("web-0", "n1"), "/status/phase", json!(phase));
        let name = PodReference { namespace: "shop".into(), name: "web-0".into() };
        let facts = ClusterFacts {
            replacements: [(web_2(), read(pending("Unschedulable", UNFIT))), (name, read(old))].into(),
            nodes: Some(Ok([&drained, &node("n2", json!({}))].map(parse::<Node>).into())),
            in_maintenance: [String::from("n1")].into(),
            ..ClusterFacts::default()
        };
        let causes = explained(&surging(), &facts);
        let [cause] = causes.as_slice() else { panic!("{causes:#?}") };
        assert_eq!(cause.advice.contains("may fit"), fits, "{cpu} {phase}: {cause:#?}");
        assert_eq!(
            cause.commands.contains(&String::from("kubectl nm stop n1")),
            fits,
            "{cpu} {phase}: {cause:#?}"
        );
    }
}

#[test]
fn a_pod_that_waits_for_another_rollout_names_the_pod_that_keeps_the_rollout_from_ending() {
    let mut object = surging();
    let pod = &mut object.status.as_mut().unwrap().surging_pods.as_mut().unwrap()[0];
    (pod.restarted, pod.replacement) = (false, None);
    assert_eq!(FactsToRead::of([&object]).rollouts, [web()].into());
    let facts = |read: Result<Vec<Value>, Unseen>| {
        let read_pod = |pod: &Value| ReadPod { pod: parse(pod), warnings: vec![] };
        ClusterFacts {
            rollouts: [(web(), read.map(|pods| pods.iter().map(read_pod).collect()))].into(),
            nodes: Some(Ok([node("n2", json!({})), cordoned("n1")].iter().map(parse::<Node>).collect())),
            in_maintenance: [String::from("n1")].into(),
            ..ClusterFacts::default()
        }
    };
    let explained = |read| explained(&object, &facts(read)).remove(0);
    let under_way = "shop/web-0 is replaced first. Deployment web: another rollout is under way.";
    let stuck = explained(Ok(vec![ready("web-0", "n1"), pending("Unschedulable", UNFIT)]));
    let pending = format!("shop/web-2 is Pending, because the scheduler finds no node: {UNFIT}");
    assert_eq!(stuck.what, [under_way, pending.as_str()]);
    assert_eq!((stuck.outlook, stuck.commands[0].as_str()), (Outlook::WillBlock, DESCRIBE));
    let moving = explained(Ok(vec![ready("web-0", "n1"), waiting("ContainerCreating", "")]));
    assert_eq!((moving.what, moving.outlook), (vec![under_way.to_owned()], Outlook::Passes));
    let hidden = explained(Err(Unseen::Forbidden("list pods".into())));
    assert_eq!(hidden.unseen, ["Not known, because you have no permission to list pods."]);
}

#[tokio::test]
async fn the_pods_of_a_rollout_are_those_of_its_deployment() {
    let other = edited(ready("api-0", "n2"), "/metadata/ownerReferences/0/name", json!("api-7d5"));
    let pods = json!([ready("web-0", "n1"), pending("Unschedulable", UNFIT), other]);
    let (server, _) = cluster(move |_, path| match path.rsplit('/').next().unwrap_or_default() {
        "web" => (
            200,
            json!({"metadata": {"name": "web"}, "spec": {"selector": {"matchLabels": {"app": "web"}}, "template": {}}}),
        ),
        "pods" => (200, json!({"kind": "List", "apiVersion": "v1", "metadata": {}, "items": pods})),
        name => failure(404, "NotFound", name),
    });
    let wanted = FactsToRead { rollouts: [web()].into(), ..FactsToRead::default() };
    let facts =
        read_facts::read_wanted(&server, &wanted, ClusterFacts::default(), NOW.parse().unwrap()).await;
    let read = facts.rollouts[&web()].as_ref().unwrap();
    let names: Vec<_> = read.iter().map(|read| read.pod.metadata.name.as_deref().unwrap()).collect();
    assert_eq!(names, ["web-2", "web-0"]);
}

#[test]
fn a_replacement_that_starts_is_waited_for() {
    let starting = waiting("ContainerCreating", "");
    for read in [Ok(Some(starting)), Ok(Some(ready("web-2", "n2"))), Ok(None)] {
        let cause = with_replacement(read, &[]);
        assert_eq!(
            (cause.outlook, cause.what.len(), cause.commands.as_slice()),
            (Outlook::Passes, 1, [ROLLOUT.to_owned()].as_slice())
        );
    }
    let hidden = with_replacement(Err(Unseen::Forbidden("get pods".into())), &[]);
    assert_eq!(hidden.unseen, ["Not known, because you have no permission to get pods."]);
    assert!(hidden.passes());
}

#[test]
fn a_rollout_past_its_deadline_names_what_its_new_pod_waits_for() {
    let stalled = |third: Value| {
        let mut status = blocked_status("shop");
        status["blockedPods"][0]["surge"] = json!({"reason": "Stalled", "deployment": "web"});
        status["blockedPods"][0]["message"] = json!("the rollout exceeded its deadline");
        let situation = Situation { nodes: vec![node("n2", json!({}))], ..beside(third) };
        let mut causes = explained(&with_status("n1", status), &situation.facts());
        assert_eq!(causes.len(), 1, "{causes:#?}");
        causes.remove(0)
    };
    let describe = "kubectl -n shop describe deployment/web";
    let crashing = stalled(crashing("web-2", "n2", 1, "Error"));
    assert_eq!(
        crashing.what,
        [
            "The rollout exceeded its deadline.",
            "shop/web-2 on n2: container app keeps exiting with exit code 1, 3 restarts so far."
        ]
    );
    assert_eq!(crashing.commands, ["kubectl -n shop logs web-2 -c app --previous", describe]);
    // A pod of another Deployment under the same budget is no replacement.
    let other =
        edited(crashing_other(), "/metadata/labels", json!({"app": "web", "pod-template-hash": "7d5"}));
    let other = stalled(other);
    assert_eq!((other.what.len(), other.commands.as_slice()), (1, [describe.to_owned()].as_slice()));
}

fn crashing_other() -> Value {
    edited(crashing("web-2", "n2", 1, "Error"), "/metadata/ownerReferences/0/name", json!("other-7d5"))
}

#[tokio::test]
async fn a_surge_is_advised_only_where_the_deployment_can_do_it_and_with_the_grant_that_it_lacks() {
    let told = async |deployment: Value, is_granted: bool, quotas: Value| {
        let situation = never("maxUnavailable", json!(0), 1);
        let list = |items: &Value| (200, json!({"kind": "List", "metadata": {}, "items": items}));
        let reconciler = json!([{"metadata": {"name": "nm-reconciler", "namespace": "nm"},
            "spec": {"selector": {}, "template": {"spec": {"containers": [], "serviceAccountName": "nm"}}}}]);
        let (budget, pods) = (situation.budget.clone(), json!(situation.pods));
        let (server, _) = cluster(move |_, path| match path {
            "/apis/policy/v1/namespaces/shop/poddisruptionbudgets/web" => (200, budget.clone()),
            "/api/v1/namespaces/shop/pods" => list(&pods),
            "/apis/apps/v1/namespaces/shop/deployments/web" => (200, deployment.clone()),
            "/apis/apps/v1/deployments" => list(&reconciler),
            "/api/v1/namespaces/shop/resourcequotas" if quotas.is_null() => failure(403, "Forbidden", "no"),
            "/api/v1/namespaces/shop/resourcequotas" => list(&quotas),
            "/apis/authorization.k8s.io/v1/subjectaccessreviews" => (
                201,
                json!({"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview", "metadata": {},
                    "status": {"allowed": is_granted}}),
            ),
            "/api/v1/nodes" => list(&json!([node("n2", json!({})), cordoned("n1")])),
            name => failure(404, "NotFound", name),
        });
        let object = with_status("n1", blocked_status("shop"));
        let wanted = FactsToRead::of([&object]);
        let facts = ClusterFacts::of_maintenances([&object]);
        let facts = Box::pin(read_facts::read_wanted(&server, &wanted, facts, NOW.parse().unwrap())).await;
        let cause = explained(&object, &facts).remove(0);
        check_harmless(&cause);
        (cause.advice, cause.commands)
    };
    let advice = async |deployment: Value, is_granted: bool| told(deployment, is_granted, json!([])).await.0;
    let surges = "Let the Deployment replace its only pod before the pod leaves, if other nodes have room (`kubectl nm plan n1 --surge` shows that)";
    let deployment = json!({"metadata": {"name": "web"}, "status": {}, "spec": {"replicas": 1, "strategy": {},
        "selector": {"matchLabels": {"app": "web"}}, "template": {}}});
    assert_eq!(advice(deployment.clone(), true).await, surges);
    assert_eq!(
        advice(deployment.clone(), false).await,
        format!("{surges}; this needs `kubectl nm install --grant surge` first")
    );
    let quota = json!([{"metadata": {"name": "few", "namespace": "shop"}, "status": {"hard": {"pods": "1"}, "used": {"pods": "1"}}}]);
    let (refused, commands) = told(deployment.clone(), true, quota).await;
    assert_eq!(
        refused,
        format!("{surges}; but quota shop/few allows no additional pod (pods: 1 of 1 used): raise it first")
    );
    assert_eq!(commands[0], "kubectl -n shop edit resourcequota few");
    assert!(commands[1].contains("WhenBlocked"), "{commands:?}");
    // Without permission to read quotas, nothing is known of them.
    assert_eq!(told(deployment.clone(), true, Value::Null).await.0, surges);
    let agrees = "Agree on a time with the owner of the pod, then set maxUnavailable to 1";
    let condition = |kind: &str, status: &str| json!([{"type": kind, "status": status}]);
    for (path, value) in [
        ("/spec/strategy", json!({"type": "Recreate"})),
        ("/spec/strategy", json!({"rollingUpdate": {"maxSurge": 0}})),
        ("/spec/paused", json!(true)),
        ("/metadata/deletionTimestamp", json!(NOW)),
        ("/status/conditions", condition("ReplicaFailure", "True")),
        ("/status/conditions", condition("Progressing", "False")),
    ] {
        let advice = advice(edited(deployment.clone(), path, value), true).await;
        assert!(advice.starts_with(agrees), "{path}: {advice}");
    }
}

#[test]
fn the_setting_that_replaces_one_pod_first_names_what_else_it_restarts() {
    let mut status = blocked_status("shop");
    let of_another = |reason: &str, budget: &str| {
        json!({"namespace": "pay", "name": "api-0", "reason": reason, "message": "m", "since": "2026-01-02T03:04:05Z",
            "attempts": 3, "budget": {"name": budget}})
    };
    let pods = status["blockedPods"].as_array_mut().unwrap();
    pods.extend([of_another("DisruptionBudget", "api"), of_another("DisruptionBudget", "open")]);
    let advice = |may_surge: bool| {
        let mut facts =
            ClusterFacts { is_surge_granted: Some(true), ..never("minAvailable", json!(1), 1).facts() };
        // The other budget needs another change, so that it is another cause.
        let api = Situation {
            budget: edited(never("maxUnavailable", json!(0), 1).budget, "/metadata/name", json!("api")),
            pods: vec![edited(ready("api-0", "n1"), "/metadata/namespace", json!("pay"))],
            ..Situation::default()
        };
        let mut guarded = api.guarded();
        guarded.may_surge = may_surge;
        facts.budgets.insert(PodReference { namespace: "pay".into(), name: "api".into() }, guarded);
        let causes = explained(&with_status("n1", status.clone()), &facts);
        let own = causes.iter().find(|cause| cause.pods == ["shop/web-0"]).unwrap();
        own.advice.clone()
    };
    let replaces = "Let the Deployment replace its only pod before the pod leaves, if other nodes have room (`kubectl nm plan n1 --surge` shows that)";
    let also = ". The setting is that of the whole drain: it also restarts pay/deploy/web";
    assert_eq!(advice(true), replaces.to_owned() + also);
    assert_eq!(advice(false), replaces);
}

#[test]
fn the_quota_of_one_namespace_is_not_to_be_raised_for_the_pods_of_another() {
    let mut status = blocked_status("shop");
    let mut other = status["blockedPods"][0].clone();
    other["namespace"] = json!("bank");
    status["blockedPods"].as_array_mut().unwrap().insert(0, other);
    let situation = never("minAvailable", json!(1), 1);
    let mut facts = ClusterFacts { is_surge_granted: Some(true), ..situation.facts() };
    let moved = |object: &Value| edited(object.clone(), "/metadata/namespace", json!("bank"));
    let of_bank = Situation {
        budget: moved(&situation.budget),
        pods: situation.pods.iter().map(moved).collect(),
        ..situation
    };
    let exceeded = vec![("pods".to_owned(), "1".to_owned(), "1".to_owned())];
    let full_quota = Some(FullQuota { namespace: "bank".into(), name: "few".into(), exceeded });
    let guarded = GuardedPods { full_quota, ..of_bank.guarded() };
    facts.budgets.insert(PodReference { namespace: "bank".into(), name: "web".into() }, guarded);
    let causes = explained(&with_status("n1", status), &facts);
    let [at_once, refused] = causes.as_slice() else { panic!("{causes:#?}") };
    assert_eq!((at_once.pods.as_slice(), at_once.commands.len()), (&["shop/web-0".to_owned()][..], 1));
    assert_eq!(refused.pods, ["bank/web-0"]);
    assert_eq!(refused.commands[0], "kubectl -n bank edit resourcequota few");
}

/// Of the pods of a situation, those that are not Ready, or the only one, may be on n1 and n2.
fn of_two_nodes(mut situation: Situation, n2: Value) -> Situation {
    let selected = json!([{"matchExpressions": [{"key": "kubernetes.io/hostname", "operator": "In", "values": ["n1", "n2"]}]}]);
    let affinity = json!({"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": selected}}});
    let last = situation.pods.pop().unwrap();
    situation.pods.push(edited(last, "/spec/affinity", affinity));
    let named = |node: Value| {
        let name = node["metadata"]["name"].clone();
        edited(node, "/metadata/labels", json!({"kubernetes.io/hostname": name}))
    };
    situation.nodes = [cordoned("n1"), n2, node("n3", json!({}))].map(named).into();
    situation
}

#[test]
fn the_command_that_uncordons_a_node_comes_where_the_words_have_it_and_under_their_condition() {
    let by_hand = || node("n2", json!({"unschedulable": true}));
    let told = |situation: Situation| {
        let [cause] = <[Cause; 1]>::try_from(of_two_nodes(situation, by_hand()).causes()).unwrap();
        check_harmless(&cause);
        (cause.advice, cause.commands)
    };
    let (advice, commands) = told(beside(pending("Unschedulable", UNFIT)));
    assert!(
        advice.starts_with("Uncordon n2 if the cordon is not needed any more, change the node affinity"),
        "{advice}"
    );
    assert_eq!(commands, ["kubectl uncordon n2", "kubectl -n shop edit deploy/web", "kubectl nm stop n1"]);
    let (advice, commands) = told(never("minAvailable", json!(1), 1));
    assert!(
        advice.starts_with(
            "Uncordon n2 if the cordon is not needed any more; then let the Deployment replace its only pod"
        ),
        "{advice}"
    );
    assert_eq!(commands[0], "kubectl uncordon n2", "{commands:#?}");
    assert!(commands[1].contains("WhenBlocked"), "{commands:#?}");
    assert_eq!(commands.last().unwrap(), "kubectl -n shop edit pdb web", "{commands:#?}");
}

#[test]
fn a_singleton_whose_affinity_selects_nodes_in_maintenance_is_replaced_first_once_one_of_them_is_back() {
    let mut situation = of_two_nodes(never("minAvailable", json!(1), 1), cordoned("n2"));
    situation.in_maintenance = vec!["n1", "n2"];
    let [cause] = <[Cause; 1]>::try_from(situation.causes()).unwrap();
    assert!(
        cause.advice.starts_with(
            "Return n2 to service, unless its machine is being worked on; then let the Deployment replace its only pod"
        ),
        "{cause:#?}"
    );
    assert_eq!(cause.commands[0], "kubectl nm stop n2", "{cause:#?}");
    assert_eq!(cause.commands.last().unwrap(), "kubectl -n shop edit pdb web", "{cause:#?}");
    check_harmless(&cause);
}
