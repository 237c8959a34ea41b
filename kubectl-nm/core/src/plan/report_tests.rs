//! Plans of simulated clusters, and their output.

use k8s_openapi::api::core::v1::{Node, PersistentVolume, Pod};
use nm_shared::api::pod_selector::PodSelector;
use nm_shared::api::status::BlockReason;
use nm_shared::cluster::volumes::Volumes;
use nm_shared::drain::plan::DaemonSets;
use nm_shared::{CompletionSpec, ReturningPods};
use serde_json::{Value, json};

use super::*;
use crate::plan::document;
use crate::plan::pods_elsewhere::PodsElsewhere;
use crate::plan::snapshot_pods::SnapshotPods;
use crate::plan::text;
use crate::testing::objects::{named, requested, stopping};

pub(in crate::plan) const NOW: &str = "2026-01-01T00:00:00Z";

pub(in crate::plan) fn node(name: &str) -> Node {
    let labels =
        if name.starts_with("cp") { json!({"node-role.kubernetes.io/control-plane": ""}) } else { json!({}) };
    serde_json::from_value(json!({
        "metadata": {"name": name, "labels": labels},
        "status": {"allocatable": {"cpu": "4", "pods": "10"}, "conditions": [{"type": "Ready", "status": "True"}]},
    }))
    .unwrap()
}

pub(in crate::plan) fn pod(name: &str, volume: &Value) -> Arc<Pod> {
    let owner =
        json!({"apiVersion": "apps/v1", "kind": "StatefulSet", "name": "db", "uid": "o", "controller": true});
    Arc::new(
        serde_json::from_value(json!({
            "metadata": {"namespace": "shop", "name": name, "uid": name, "ownerReferences": [owner]},
            "spec": {"containers": [], "volumes": [volume]},
            "status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]},
        }))
        .unwrap(),
    )
}

pub(in crate::plan) fn scratch() -> Value {
    json!({"name": "v", "emptyDir": {}})
}

pub(in crate::plan) fn snapshot(nodes: &[&str], pods: Vec<Arc<Pod>>) -> ClusterSnapshot {
    let mut known = SnapshotPods::default();
    known.elsewhere = Some(PodsElsewhere::default());
    known.planned.insert("n1".into(), pods);
    ClusterSnapshot {
        is_openshift: false,
        has_external_etcd: false,
        nodes: Some(nodes.iter().map(|name| node(name)).collect()),
        maintenances: Vec::new(),
        older: Vec::new(),
        pods: Some(known),
        daemon_sets: DaemonSets::default(),
        budgets: Vec::new(),
        are_budgets_known: true,
        growing: BTreeMap::new(),
        pods_of_budgets: crate::plan::pods_of_budgets::PodsOfBudgets::default(),
        volumes: Volumes::default(),
        deleted_claims: BTreeSet::new(),
        machines: Vec::new(),
        jobs: Vec::new(),
        limit: MaxUnavailableLimit::None("deployment nm/nm-reconciler".into()),
        accounts: Vec::new(),
        denied: BTreeSet::new(),
        unknown: Vec::new(),
    }
}

#[expect(clippy::needless_pass_by_value, reason = "each test makes a snapshot of its own")]
pub(in crate::plan) fn report(
    planned: &[&str],
    requested: Option<&DrainSpec>,
    snapshot: ClusterSnapshot,
    answers: &[(&str, EvictionOutcome)],
) -> PlanReport {
    let (planned, now) = (planned.iter().map(ToString::to_string).collect::<Vec<_>>(), NOW.parse().unwrap());
    let preview = preview(&planned, requested, &snapshot, now).unwrap();
    let answers = answers.iter().map(|(uid, answer)| ((*uid).to_owned(), answer.clone())).collect();
    PlanReport::new(&planned, requested, preview.as_ref(), &snapshot, &answers, now)
}

fn lines(report: &PlanReport) -> String {
    text::lines(report).iter().map(|line| line.to_string().trim_end().to_owned() + "\n").collect()
}

#[test]
fn an_existing_maintenance_keeps_its_drain_settings_unless_others_are_requested() {
    let careful = DrainSpec { delete_empty_dir_data: false, ..DrainSpec::default() };
    let is_blocked = |asked: Option<&DrainSpec>| {
        let mut snapshot = snapshot(&["n1", "n2"], vec![pod("db-0", &scratch())]);
        let mut existing = requested("n1");
        existing.spec.drain = Some(careful.clone());
        snapshot.maintenances.push(existing);
        let report = report(&["n1"], asked, snapshot, &[]);
        assert!(lines(&report).contains("node/n1: already in maintenance: Requested\n"));
        report.is_blocked()
    };
    assert!(is_blocked(None));
    assert!(!is_blocked(Some(&DrainSpec::default())));
}

#[test]
fn a_pod_that_tolerates_the_cordon_may_come_back_and_needs_no_other_node() {
    let on = |nodes: &[&str], owners: &str, returning_pods: ReturningPods, zone: &str| {
        let mut operator = Pod::clone(&pod("operator-0", &json!({"name": "v"})));
        let tolerations = json!([{"operator": "Exists"}]);
        operator.spec = serde_json::from_value(json!({"containers": [], "tolerations": tolerations,
            "nodeSelector": {"zone": zone}}))
        .unwrap();
        if owners == "nobody" {
            operator.metadata.owner_references = None;
        }
        let mut snapshot = snapshot(&["n1", "n2"], vec![Arc::new(operator)]);
        let of_zone = |known: &&mut Node| nodes.contains(&node::name(known));
        for known in snapshot.nodes.as_mut().unwrap().iter_mut().filter(of_zone) {
            known.metadata.labels.get_or_insert_default().insert("zone".into(), "a".into());
        }
        let drain = DrainSpec { returning_pods, ..DrainSpec::default() };
        report(&["n1"], Some(&drain), snapshot, &[])
    };
    let owned_by = |owners: &str, returning_pods, zone: &str| on(&["n1"], owners, returning_pods, zone);
    let planned = |returning_pods, zone| owned_by("a controller", returning_pods, zone);
    let stays = planned(ReturningPods::Stay, "a");
    let text = lines(&stays);
    assert!(
        text.contains("may return to the node and stay there, because it tolerates the cordon"),
        "{text}"
    );
    assert!(
        text.contains("1 pod may return to the node, because it tolerates the cordon: shop/operator-0\n"),
        "{text}"
    );
    assert!(!stays.is_blocked() && !stays.lacks_capacity(), "{text}");
    let document = document::document(&stays)["pods"][0].clone();
    assert_eq!((&document["outcome"], &document["mayComeBack"]), (&json!("evicted"), &json!(true)));
    let pinned = planned(ReturningPods::Wait, "a");
    let text = lines(&pinned);
    assert!(
        text.contains("it tolerates the cordon and fits on no other node") && pinned.is_blocked(),
        "{text}"
    );
    let harms = crate::plan::harm::harms(&pinned, None);
    assert!(harms.iter().any(|harm| harm.line().to_string().starts_with("never leaves: ")), "{harms:?}");
    let may = on(&["n1", "n2"], "a controller", ReturningPods::Wait, "a");
    let text = lines(&may);
    assert!(
        text.contains("block the drain after the third return, because it tolerates the cordon"),
        "{text}"
    );
    let verdict =
        "Nothing would block the drain, unless pods that tolerate the cordon return again and again.";
    assert!(text.contains(verdict) && !may.is_blocked(), "{text}");
    assert!(!lines(&owned_by("nobody", ReturningPods::Stay, "a")).contains("may return"));
    let elsewhere = planned(ReturningPods::Stay, "b");
    assert!(!lines(&elsewhere).contains("may return") && elsewhere.lacks_capacity());
}

#[test]
fn a_pod_that_fits_a_node_that_is_not_ready_now_may_leave() {
    let mut operator = Pod::clone(&pod("operator-0", &scratch()));
    let tolerations = json!([{"operator": "Exists", "effect": "NoSchedule"}]);
    operator.spec = serde_json::from_value(json!({"containers": [], "tolerations": tolerations})).unwrap();
    let mut snapshot = snapshot(&["n1", "n2"], vec![Arc::new(operator)]);
    let rebooting = &mut snapshot.nodes.as_mut().unwrap()[1];
    let taints = json!([{"key": "node.kubernetes.io/not-ready", "effect": "NoExecute"}]);
    rebooting.spec = serde_json::from_value(json!({"taints": taints})).unwrap();
    rebooting.status =
        serde_json::from_value(json!({"conditions": [{"type": "Ready", "status": "False"}]})).unwrap();
    let drain = DrainSpec { returning_pods: ReturningPods::Wait, ..DrainSpec::default() };
    let report = report(&["n1"], Some(&drain), snapshot, &[]);
    let text = lines(&report);
    assert!(text.contains("block the drain after the third return") && !report.is_blocked(), "{text}");
}

#[test]
fn the_own_pod_of_a_roll_is_not_said_to_be_excluded_by_a_pod_selector() {
    let label = "kubectl-nm.dev/roll";
    let drain: DrainSpec = serde_json::from_value(json!({"podSelector":
        {"matchExpressions": [{"key": label, "operator": "DoesNotExist"}]}}))
    .unwrap();
    let mut own = Pod::clone(&pod("kernel-0", &json!({"name": "v"})));
    own.metadata.labels = Some([(label.to_owned(), String::from("kernel"))].into());
    let text = lines(&report(&["n1"], Some(&drain), snapshot(&["n1", "n2"], vec![Arc::new(own)]), &[]));
    assert!(text.contains(" staying   runs the action of roll kernel\n"), "{text}");
    assert!(!text.contains("podSelector"), "{text}");
}

#[test]
fn force_deletion_is_warned_of() {
    let forced = DrainSpec { grace_period_seconds: 0, ..DrainSpec::default() };
    let warning = forced.warning().unwrap();
    let planned = |asked: Option<&DrainSpec>, own: Option<&DrainSpec>| {
        let mut snapshot = snapshot(&["n1", "n2"], vec![]);
        let mut existing = requested("n1");
        existing.spec.drain = own.cloned();
        snapshot.maintenances.push(existing);
        report(&["n1", "n2"], asked, snapshot, &[])
    };
    for (asked, own, warned) in [
        (Some(&forced), None, true),
        (None, Some(&forced), true),
        (Some(&DrainSpec::default()), Some(&forced), false),
        (None, None, false),
    ] {
        let report = planned(asked, own);
        let count = lines(&report).lines().filter(|line| *line == format!("warning: {warning}")).count();
        assert_eq!(count, usize::from(warned), "once, however many nodes: {}", lines(&report));
        let listed = if warned { json!([warning]) } else { json!([]) };
        assert_eq!(document::document(&report)["warnings"], listed);
    }
}

#[test]
fn a_pod_that_is_left_to_end_by_itself_does_not_block_and_shows_for_how_long() {
    let planned = |timeout_seconds: i64| {
        let completion = CompletionSpec { pod_selector: Some(PodSelector::default()), timeout_seconds };
        let drain = DrainSpec { wait_for_completion: Some(completion), ..DrainSpec::default() };
        let pods = vec![pod("import-0", &json!({"name": "v"}))];
        let report = report(&["n1"], Some(&drain), snapshot(&["n1", "n2"], pods), &[]);
        assert!(!report.is_blocked());
        let document = document::document(&report)["pods"][0].clone();
        assert_eq!((&document["outcome"], &document["reason"]), (&json!("completing"), &json!("Completing")));
        (lines(&report), document["completionTimeoutSeconds"].clone())
    };
    let (text, limit) = planned(0);
    assert!(text.contains("not evicted: the drain waits until it terminates on its own\n"), "{text}");
    assert!(text.contains("1 pod: 1 completing\n"), "{text}");
    assert_eq!(limit, json!(null));
    let (text, limit) = planned(3600);
    assert!(text.contains("evicted 1h after the cordon, unless it terminates on its own before"), "{text}");
    assert_eq!(limit, json!(3600));
}

#[test]
fn a_pod_that_is_deleted_in_the_end_does_not_block_and_shows_when() {
    let budget = || EvictionOutcome::RefusedByBudget("no".into());
    let patient = DrainSpec { delete_after_seconds: 600, ..DrainSpec::default() };
    let planned = |drain: &DrainSpec, answer: EvictionOutcome| {
        report(
            &["n1"],
            Some(drain),
            snapshot(&["n1", "n2"], vec![pod("db-0", &json!({"name": "v"}))]),
            &[("db-0", answer)],
        )
    };
    let blocked = planned(&DrainSpec::default(), budget());
    assert!(blocked.is_blocked() && lines(&blocked).contains(" blocked "), "{}", lines(&blocked));
    let deleted = planned(&patient, budget());
    assert!(!deleted.is_blocked());
    let shown = lines(&deleted);
    assert!(
        shown.contains("deleted") && shown.contains("; deleted after 10m, bypassing its budget\n"),
        "{shown}"
    );
    assert!(
        shown.ends_with("1 node, 1 pod: 1 deleted\nNothing would block the drain. Nothing was changed.\n"),
        "{shown}"
    );
    let pods = &document::document(&deleted)["pods"];
    assert_eq!((&pods[0]["outcome"], &pods[0]["deletedAfterSeconds"]), (&json!("deleted"), &json!(600)));
    let webhook = EvictionOutcome::RefusedByWebhook { webhook: "w".into(), message: "no".into() };
    let shown = lines(&planned(&patient, webhook));
    assert!(shown.contains("; deleted after 10m, bypassing the refusal\n"), "{shown}");
}

#[test]
fn a_node_that_cannot_be_put_into_maintenance_blocks_the_plan() {
    let cps = || snapshot(&["cp1", "cp2", "cp3"], vec![]);
    assert!(!report(&["cp1"], None, cps(), &[]).is_blocked());
    let both = report(&["cp1", "cp2"], None, cps(), &[]);
    assert!(both.is_blocked());
    assert!(
        lines(&both).contains("node/cp2: can not put master/control-plane node into maintenance"),
        "{}",
        lines(&both)
    );
    let mut older = cps();
    older.older.push(requested("cp1"));
    let older = report(&["cp1", "cp2"], None, older, &[]);
    assert!(lines(&older).contains("node/cp1: already in maintenance: Requested\n"), "{}", lines(&older));
    assert_eq!(older.nodes[1].refusal, both.nodes[1].refusal, "by an object of an older group");
    let mut namesake = cps();
    namesake.older.push(named("cp1", "cp2", "u"));
    assert!(
        lines(&report(&["cp1"], None, namesake, &[])).contains("node/cp1: can not put master"),
        "a name in another group is not taken"
    );
    let mut ending = snapshot(&["n1"], vec![]);
    ending.maintenances.push(stopping(requested("n1")));
    let ending = report(&["n1"], None, ending, &[]);
    assert!(ending.is_blocked());
    assert!(lines(&ending).contains("node/n1: node \"n1\" is returning to service"), "{}", lines(&ending));
}

#[test]
fn a_local_volume_ties_its_pod_to_the_node() {
    let claim = json!({"name": "v", "persistentVolumeClaim": {"claimName": "data"}});
    let mut snapshot = snapshot(&["n1", "n2"], vec![pod("db-0", &claim)]);
    let here = json!({"key": "metadata.name", "operator": "In", "values": ["n1"]});
    let volume: PersistentVolume = serde_json::from_value(json!({
        "metadata": {"name": "pv-1"},
        "spec": {"local": {"path": "/data"}, "claimRef": {"namespace": "shop", "name": "data"},
            "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchFields": [here]}]}}},
    }))
    .unwrap();
    snapshot.volumes = Volumes::new([volume]);
    let report = report(&["n1"], None, snapshot, &[]);
    let expected = "\
NODE   POD         OUTCOME   DETAILS
n1     shop/db-0   evicted   its local volume pv-1 stays on the node

1 pod leaves its local volumes on the node: shop/db-0
capacity for 0 of 1 pod on 1 other node, estimated from requests, taints, selectors and volumes
no capacity for shop/db-0 (1 other node: 1 cannot access its volume)
no Ready pod until a replacement is Ready: 1 workload (StatefulSet shop/db)
1 node, 1 pod: 1 evicted
Nothing would block the drain, but other nodes do not have the capacity for all pods. Nothing was changed.
";
    assert_eq!(lines(&report), expected);
    assert!(report.lacks_capacity());
}

#[test]
fn a_lack_of_capacity_is_reported_with_the_budgets_that_wait_for_it() {
    let planned = |nodes: &[&str], seconds: i64| {
        let pods = ["db-0", "db-1", "db-2"].map(|name| pod(name, &json!({"name": "v"}))).to_vec();
        let mut snapshot = snapshot(nodes, pods);
        snapshot.budgets = vec![
            serde_json::from_value(json!({
                "metadata": {"namespace": "shop", "name": "db"}, "spec": {"selector": {}},
                "status": {"currentHealthy": 3, "desiredHealthy": 2, "disruptionsAllowed": 1, "expectedPods": 3},
            }))
            .unwrap(),
        ];
        report(
            &["n1"],
            Some(&DrainSpec { delete_after_seconds: seconds, ..DrainSpec::default() }),
            snapshot,
            &[],
        )
    };
    let alone = planned(&["n1"], 0);
    assert!(alone.is_blocked() && alone.lacks_capacity());
    let expected = "\
NODE   POD         OUTCOME   DETAILS
n1     shop/db-0   evicted
n1     shop/db-1   blocked   budget shop/db waits for replacements that fit on no other node
n1     shop/db-2   blocked   budget shop/db waits for replacements that fit on no other node

budget shop/db (3 pods) allows 1 eviction now and 1 at once while all its pods are healthy: 2 never, because the \
replacements of the others fit on no other node
capacity for 0 of 3 pods on 0 other nodes, estimated from requests, taints, selectors and volumes
no capacity for shop/db-0, shop/db-1, shop/db-2 (0 other nodes)
no schedulable node is left in the cluster
1 node, 3 pods: 2 blocked, 1 evicted
The drain would be blocked. Nothing was changed.
";
    assert_eq!(lines(&alone), expected);
    assert_eq!(document::document(&alone)["lacksCapacity"], json!(true));
    let past = planned(&["n1"], 600);
    assert!(!past.is_blocked() && past.lacks_capacity(), "{}", lines(&past));
    let two = planned(&["n1", "n2"], 0);
    assert!(!two.is_blocked() && !two.lacks_capacity(), "{}", lines(&two));
}

#[test]
fn a_queued_node_counts_as_capacity() {
    for (limit, lacks) in [
        (MaxUnavailableLimit::Unknown("x".into()), true),
        (MaxUnavailableLimit::Set("1".parse().unwrap(), "x".into()), false),
    ] {
        let mut snapshot = snapshot(&["n1", "n2"], vec![pod("db-0", &json!({"name": "v"}))]);
        snapshot.limit = limit;
        let report = report(&["n1", "n2"], None, snapshot, &[]);
        assert_eq!(report.lacks_capacity(), lacks, "{}", lines(&report));
    }
}

#[test]
fn what_needs_attention_comes_last_and_control_characters_are_escaped() {
    let pods = ["db-0", "db-1", "db-2"].map(|name| pod(name, &scratch())).to_vec();
    let denied = EvictionOutcome::RefusedByWebhook { webhook: "w".into(), message: "no\x1b[31m".into() };
    let report = report(&["n1"], None, snapshot(&["n1", "n2"], pods), &[("db-0", denied)]);
    let shown = lines(&report);
    let rows: Vec<&str> = shown.lines().skip(1).take(3).collect();
    assert!(rows[2].contains("shop/db-0   blocked   no^[[31m"), "{shown}");
    assert!(shown.contains("\n1 node, 3 pods: 1 blocked, 2 evicted\n"), "{shown}");
    assert!(shown.contains("3 pods lose their emptyDir data: shop/db-0, shop/db-1, shop/db-2\n"), "{shown}");
    assert!(!shown.contains('\x1b'));
    let document = document::document(&report);
    assert_eq!(
        (&document["blocked"], &document["pods"][0]["reason"]),
        (&json!(true), &json!(BlockReason::AdmissionWebhook))
    );
    assert_eq!(document["maxUnavailable"], json!({"limit": null, "from": "deployment nm/nm-reconciler"}));
}

#[test]
fn without_access_to_pods_the_plan_is_unknown() {
    let unread = || ClusterSnapshot {
        pods: None,
        unknown: vec![Unread::forbidden("the pods", "list pods")],
        ..snapshot(&["n1"], vec![])
    };
    let unknown = report(&["n1"], None, unread(), &[]);
    assert!(!unknown.is_blocked());
    assert_eq!(
        lines(&unknown),
        "no schedulable node is left in the cluster\nunknown: the pods: you may not list pods\n1 node\n\
         It is unknown whether the drain would be blocked. Nothing was changed.\n"
    );
    let document = document::document(&unknown);
    assert_eq!((&document["blocked"], &document["pods"]), (&Value::Null, &Value::Null));
    assert_eq!(document["unknown"].as_array().map(Vec::len), Some(1));
    let nothing = report(&["n1"], None, snapshot(&["n1", "n2"], vec![]), &[]);
    assert_eq!(lines(&nothing), "1 node, 0 pods\nNothing would block the drain. Nothing was changed.\n");
}

#[test]
fn a_pod_is_unknown_if_neither_the_budgets_nor_the_answer_to_its_eviction_are_known() {
    let of = |are_budgets_known, answer| {
        let pods = vec![pod("db-0", &json!({"name": "v"}))];
        let snapshot = ClusterSnapshot { are_budgets_known, ..snapshot(&["n1", "n2"], pods) };
        report(&["n1"], None, snapshot, &[("db-0", answer)])
    };
    let denied = || EvictionOutcome::Forbidden("you may not".into());
    let unknown = of(false, denied());
    assert_eq!((unknown.is_blocked(), unknown.blocks()), (false, None));
    let text = lines(&unknown);
    assert!(text.contains("shop/db-0   unknown\n"), "{text}");
    let last =
        "1 node, 1 pod: 1 unknown\nIt is unknown whether the drain would be blocked. Nothing was changed.\n";
    assert!(text.ends_with(last), "{text}");
    let document = document::document(&unknown);
    assert_eq!((&document["blocked"], &document["pods"][0]["outcome"]), (&Value::Null, &json!("unknown")));
    for known in [of(true, denied()), of(false, EvictionOutcome::Accepted)] {
        assert_eq!(known.blocks(), Some(false), "{}", lines(&known));
    }
}

#[test]
fn a_budget_that_lacks_a_ready_pod_elsewhere_is_waited_for_without_promising_rounds() {
    let ready = |name: &&str| pod(name, &json!({"name": "v"}));
    let of = |now: i32, healthy: i32, pods: Vec<Arc<Pod>>| {
        let mut snapshot = snapshot(&["n1", "n2"], pods);
        // It has just changed, so that the drain waits for it.
        let condition = json!({"type": "DisruptionAllowed", "status": "False", "reason": "InsufficientPods",
            "message": "", "lastTransitionTime": NOW});
        snapshot.budgets = vec![
            serde_json::from_value(json!({
                "metadata": {"namespace": "shop", "name": "db"}, "spec": {"selector": {}},
                "status": {"currentHealthy": healthy, "desiredHealthy": 2, "disruptionsAllowed": now,
                    "expectedPods": 3, "conditions": [condition]},
            }))
            .unwrap(),
        ];
        lines(&report(&["n1"], None, snapshot, &[]))
    };
    let planned = |now, healthy, pods: &[&str]| of(now, healthy, pods.iter().map(ready).collect());
    let alone = planned(0, 2, &["db-0"]);
    let pod = "budget shop/db allows the next eviction once 1 more of its pods is Ready\n";
    let line = "budget shop/db (1 pod) allows no eviction now: the first once 1 more of its pods is Ready\n";
    assert!([pod, line].iter().all(|text| alone.contains(text)) && !alone.contains("round"), "{alone}");
    assert!(planned(0, 1, &["db-0"]).contains("once 2 more of its pods are Ready"));
    let mut unready = Pod::clone(&ready(&"db-0"));
    unready.status.as_mut().unwrap().conditions = None;
    let unready = of(0, 1, vec![Arc::new(unready)]);
    assert!(unready.contains("once 1 more of its pods is Ready"), "it may leave itself: {unready}");
    let turns = planned(1, 3, &["db-0", "db-1"]);
    assert!(turns.contains("budget shop/db allows its eviction after those of other pods\n"), "{turns}");
    assert!(turns.contains("the drain takes at least 2 rounds\n"), "{turns}");
}

#[test]
fn nodes_that_take_no_pods_are_not_counted_as_capacity() {
    let mut snapshot = snapshot(&["n1", "n2", "n3", "n4"], vec![pod("db-0", &json!({"name": "v"}))]);
    let nodes = snapshot.nodes.as_mut().unwrap();
    nodes[2].spec = serde_json::from_value(json!({"unschedulable": true})).unwrap();
    let silent = json!({"conditions": [{"type": "Ready", "status": "Unknown"}]});
    nodes[3].status = serde_json::from_value(silent).unwrap();
    let text = lines(&report(&["n1"], None, snapshot, &[]));
    let expected =
        "capacity for 1 of 1 pod on 1 other node (2 more are cordoned or not Ready), estimated from";
    assert!(text.contains(expected), "{text}");
}

#[test]
fn a_pod_that_has_finished_is_deleted() {
    let mut finished = (*pod("db-0", &json!({"name": "v"}))).clone();
    finished.status = serde_json::from_value(json!({"phase": "Succeeded"})).unwrap();
    let pods = vec![Arc::new(finished), pod("db-1", &json!({"name": "v"}))];
    let text = lines(&report(&["n1"], None, snapshot(&["n1", "n2"], pods), &[]));
    assert!(text.contains("shop/db-0   deleted   finished before\n"), "{text}");
    assert!(text.contains("1 node, 2 pods: 1 deleted (finished before), 1 evicted\n"), "{text}");
}
