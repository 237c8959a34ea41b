//! How many requests it takes to explain hundreds of maintenances.

use super::*;
use crate::explain::cluster_facts::ClusterFacts;
use crate::explain::read_facts;
use crate::testing::fake_server::{cluster, failure};
use crate::testing::objects::stopping;

/// What is read of so many maintenances, and with how many requests. The first node does not exist, nor does n99. A list of the
/// nodes has this code.
async fn read(count: usize, code: u16, object: impl Fn(&str) -> NodeMaintenance) -> (ClusterFacts, usize) {
    let exists = |name: &str| !["n0", "n99"].contains(&name);
    let names: Vec<String> = (0..count).map(|at| format!("n{at}")).collect();
    let nodes: Vec<Value> =
        names.iter().filter(|name| exists(name)).map(|name| node(name, json!({}))).collect();
    let list = json!({"kind": "List", "apiVersion": "v1", "metadata": {}, "items": nodes});
    let (server, requests) = cluster(move |_, path| match path.rsplit('/').next().unwrap_or_default() {
        "nodes" if code == 200 => (200, list.clone()),
        "nodes" if code == 403 => failure(403, "Forbidden", "nodes is forbidden"),
        "nodes" => failure(code, "Timeout", "the list takes too long"),
        "pods" => (200, json!({"kind": "List", "apiVersion": "v1", "metadata": {}, "items": []})),
        name if !exists(name) => failure(404, "NotFound", name),
        name => (200, node(name, json!({}))),
    });
    let objects: Vec<NodeMaintenance> = names.iter().map(|name| object(name)).collect();
    let facts = read_facts::read(&server, &objects, &objects, NOW.parse().unwrap()).await;
    let requests = requests.lock().unwrap().len();
    (facts, requests)
}

#[tokio::test]
async fn the_nodes_of_hundreds_of_maintenances_are_listed_once() {
    let stopped = |name: &str| stopping(with_status(name, json!({"phase": "Succeeded"})));
    let (first, both) = (&["n0"][..], &["n0", "n99"][..]);
    for (count, code, expected, deleted) in
        [(500, 200, 1, both), (3, 200, 3, first), (500, 403, 51, first), (500, 504, 501, both)]
    {
        let (facts, requests) = read(count, code, stopped).await;
        assert_eq!(requests, expected, "{count} {code}");
        assert_eq!(facts.deleted.iter().collect::<Vec<_>>(), deleted, "{count} {code}");
    }
}

#[tokio::test]
async fn the_terminating_pods_of_hundreds_of_nodes_are_read_of_the_first() {
    let object = |name: &str| with_status(name, json!({"phase": "Running", "podCounts": {"terminating": 1}}));
    let (facts, requests) = read(500, 200, object).await;
    assert_eq!((facts.terminating.len(), requests), (100, 101));
}

#[tokio::test]
async fn nodes_and_volumes_that_are_known_are_not_read_again_but_the_volumes_of_more_pods_are() {
    let claims = json!([{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}]);
    let pod = edited(pending("Unschedulable", "0/1 nodes are available"), "/spec/volumes", claims);
    let (server, requests) = cluster(|_, path| match path.rsplit('/').next().unwrap_or_default() {
        "data" => (200, json!({"metadata": {"name": "data"}, "spec": {"volumeName": "lq1"}})),
        "lq1" => {
            let claim = json!({"namespace": "shop", "name": "data"});
            (200, json!({"metadata": {"name": "lq1"}, "spec": {"local": {"path": "/d"}, "claimRef": claim}}))
        }
        name => failure(404, "NotFound", name),
    });
    let nodes = vec![node("n2", json!({}))];
    let mut facts = Situation { pods: vec![pod.clone()], nodes, ..Situation::default() }.facts();
    read_facts::read_nodes(&server, &mut facts).await;
    assert_eq!(facts.volumes.local(&parse(&pod)), ["lq1"]);
    assert_eq!(
        (requests.lock().unwrap().len(), facts.nodes.as_ref().unwrap().as_ref().unwrap().len()),
        (2, 1)
    );
    read_facts::read_nodes(&server, &mut facts).await;
    assert_eq!(facts.volumes.local(&parse(&pod)), ["lq1"]);
    assert_eq!(requests.lock().unwrap().len(), 2, "the volume is known by now");
}

#[tokio::test]
async fn no_other_node_is_to_return_whose_pods_leave_no_room() {
    let requesting = |pod: Value| {
        let app = json!([{"name": "app", "image": "i", "resources": {"requests": {"cpu": "3"}}}]);
        edited(pod, "/spec/containers", app)
    };
    let four = |name: &str| edited(cordoned(name), "/status/allocatable", json!({"cpu": "4", "pods": "9"}));
    let stays = edited(requesting(ready("big-0", "n2")), "/metadata/namespace", json!("db"));
    let (server, requests) = cluster(move |_, path| match path.rsplit('/').next().unwrap_or_default() {
        "big" => (200, min_available(json!(1), (1, 1, 1))),
        "pods" => (200, json!({"kind": "List", "apiVersion": "v1", "metadata": {}, "items": [stays]})),
        name => failure(404, "NotFound", name),
    });
    let kept = json!({"namespace": "db", "name": "big-0", "reason": "DisruptionBudget", "message": "m", "attempts": 1,
        "since": "2026-01-02T03:04:05Z", "budget": {"name": "big", "desiredHealthy": 1, "currentHealthy": 1}});
    let other =
        with_status("n2", json!({"phase": "Running", "blockedPods": [kept], "podCounts": {"blocked": 1}}));
    let object = with_status("n1", blocked_status("shop"));
    let waits = || requesting(pending("Unschedulable", "0/2 nodes are available: 2 Insufficient cpu."));
    let situation = |third: Value| Situation {
        nodes: vec![four("n1"), four("n2")],
        in_maintenance: vec!["n1", "n2"],
        ..beside(third)
    };
    let stops = |facts: &ClusterFacts| {
        let commands = explained(&object, facts).into_iter().flat_map(|cause| cause.commands);
        commands.filter(|command| command.contains(" stop ")).collect::<Vec<_>>()
    };
    let mut facts = situation(waits()).facts();
    assert_eq!(stops(&facts), ["kubectl nm stop n2", "kubectl nm stop n1"], "nothing is known of n2");
    read_facts::add_neighbours(&mut facts, [&other], &server, NOW.parse().unwrap()).await;
    assert_eq!(stops(&facts), ["kubectl nm stop n1"]);
    let before = requests.lock().unwrap().len();
    let mut facts = situation(ready("web-2", "n3")).facts();
    read_facts::add_neighbours(&mut facts, [&other], &server, NOW.parse().unwrap()).await;
    assert_eq!(requests.lock().unwrap().len(), before, "every pod has a node");
}

#[test]
fn beside_a_node_that_does_not_report_the_replacement_is_named_that_waits_for_another_node() {
    let are_ready = container(json!({"running": {}}), json!({"ready": true, "started": true}));
    let silent = unready("web-0", "n1", are_ready);
    let own = own(silent);
    let pods = [own.pods.clone(), vec![pending("Unschedulable", UNFIT)]].concat();
    let nodes = ["n1", "n2"].map(cordoned).into();
    let causes = Situation { pods, nodes, in_maintenance: vec!["n1", "n2"], ..own }.causes();
    let what: Vec<&str> = causes.iter().flat_map(|cause| &cause.what).map(String::as_str).collect();
    assert!(what.contains(&"shop/web-0 is not Ready, because node n1 does not report."), "{causes:#?}");
    assert!(
        what.iter().any(|what| what.starts_with("No node is left for the replacement shop/web-2")),
        "{causes:#?}"
    );
    let commands: Vec<&String> = causes.iter().flat_map(|cause| &cause.commands).collect();
    // What helps at once comes first: nobody may be able to make the node Ready.
    let at = |of: &str| commands.iter().position(|command| command.contains(of));
    assert!(at("stop n2").is_some() && at("stop n2") < at("describe node n1"), "{causes:#?}");
}

#[test]
fn a_singleton_of_a_node_that_does_not_report_is_replaced_first_without_waiting_for_it() {
    let are_ready = container(json!({"running": {}}), json!({"ready": true, "started": true}));
    let mut situation = never("minAvailable", json!(1), 1);
    situation.pods = vec![unready("web-0", "n1", are_ready)];
    situation.budget["status"]["currentHealthy"] = json!(0);
    let causes = situation.causes();
    let surge = causes.iter().find(|cause| cause.advice.contains("Let the Deployment replace its only pod"));
    let surge = surge.unwrap_or_else(|| panic!("{causes:#?}"));
    assert!(
        surge.advice.starts_with("Let the Deployment") && surge.commands[0].contains("WhenBlocked"),
        "{surge:#?}"
    );
    assert!(causes[0].commands == surge.commands && causes.len() == 2, "{causes:#?}");
}

#[test]
fn no_other_number_is_advised_for_a_budget_whose_pods_are_all_on_a_node_that_does_not_report() {
    let are_ready = || container(json!({"running": {}}), json!({"ready": true, "started": true}));
    let off = |name: &str| {
        edited(cordoned(name), "/status/conditions", json!([{"type": "Ready", "status": "Unknown"}]))
    };
    for (pods, nodes, advice) in [
        (2, vec![], "Let the Deployment replace its pods before they leave"),
        (2, vec![off("n1")], "Add a node; then let the Deployment replace its pods before they leave"),
        (
            1,
            vec![off("n1")],
            "Add a node; then let the Deployment replace its only pod before the pod leaves",
        ),
        (2, vec![off("n1"), cordoned("n2")], "Add a node, or return n2 to service"),
    ] {
        let mut situation = never("maxUnavailable", json!(0), pods);
        situation.pods = (0..pods).map(|at| unready(&format!("web-{at}"), "n1", are_ready())).collect();
        situation.budget["status"]["currentHealthy"] = json!(0);
        situation = Situation { nodes, in_maintenance: vec!["n1", "n2"], ..situation };
        let causes = situation.causes();
        let never =
            causes.iter().find(|cause| cause.what.iter().any(|what| what.contains("can never allow")));
        let never = never.unwrap_or_else(|| panic!("{causes:#?}"));
        assert!(never.advice.starts_with(advice), "{never:#?}");
        assert!(!never.advice.contains("maxUnavailable"), "{never:#?}");
        assert!(never.commands.iter().all(|command| !command.contains(" pdb ")), "{never:#?}");
    }
}

#[test]
fn pods_that_do_not_start_on_another_node_name_it() {
    let crashes = |name: &str| edited(crashing(name, "n3", 1, "Error"), "/metadata/uid", json!(name));
    let situation = Situation {
        budget: min_available(json!(2), (3, 1, 2)),
        pods: vec![ready("web-0", "n1"), crashes("web-1"), crashes("web-2")],
        ..Situation::default()
    };
    let [cause] = <[Cause; 1]>::try_from(situation.causes()).unwrap();
    let why =
        "shop/web-1, shop/web-2 on n3: container app keeps exiting with exit code 1, 3 restarts so far.";
    assert!(cause.what.iter().any(|what| what == why), "{cause:#?}");
}

#[test]
fn another_node_in_maintenance_may_take_what_lacks_resources_before_the_explained_one_does() {
    let unfit = "0/3 nodes are available: 1 Insufficient cpu, 2 node(s) were unschedulable.";
    let situation = Situation {
        nodes: vec![cordoned("n1"), node("n2", json!({})), cordoned("n3")],
        in_maintenance: vec!["n1", "n3"],
        ..beside(pending("Unschedulable", unfit))
    };
    let [cause] = <[Cause; 1]>::try_from(situation.causes()).unwrap();
    let stops: Vec<&String> = cause.commands.iter().filter(|command| command.contains(" stop ")).collect();
    assert_eq!(stops, ["kubectl nm stop n3", "kubectl nm stop n1"], "{cause:#?}");
    check_harmless(&cause);
}

#[tokio::test]
async fn of_thousands_of_pods_that_their_data_keeps_the_first_are_read() {
    let blocked = |at: usize| {
        json!({"namespace": "shop", "name": format!("cache-{at:02}"), "reason": "LocalStorage", "message": "m",
            "since": "2026-01-02T03:04:05Z", "attempts": 0})
    };
    let pods: Vec<Value> = (0..60).map(blocked).collect();
    let object =
        with_status("n1", json!({"phase": "Running", "blockedPods": pods, "podCounts": {"blocked": 60}}));
    let (server, requests) = cluster(|_, path| failure(404, "NotFound", path));
    let facts = read_facts::read(&server, [&object], [&object], NOW.parse().unwrap()).await;
    let read = requests.lock().unwrap().iter().filter(|asked| asked.contains("/pods/cache-")).count();
    assert_eq!((read, facts.replacements.len()), (50, 50));
}
