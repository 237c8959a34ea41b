//! Plans put together from what a cluster would say, and how they are told.

use k8s_openapi::api::core::v1::{Node, PersistentVolume};
use nm_shared::api::status::BlockReason;
use nm_shared::cluster::volumes::Volumes;
use nm_shared::drain::plan::DaemonSets;
use serde_json::{Value, json};

use super::*;
use crate::maintenance::fixture::{named, requested, stopping};
use crate::plan::cluster_snapshot::Pods;
use crate::plan::document;
use crate::plan::text;

const NOW: &str = "2026-01-01T00:00:00Z";

fn node(name: &str) -> Node {
    let labels =
        if name.starts_with("cp") { json!({"node-role.kubernetes.io/control-plane": ""}) } else { json!({}) };
    serde_json::from_value(json!({
        "metadata": {"name": name, "labels": labels},
        "status": {"allocatable": {"cpu": "4", "pods": "10"}, "conditions": [{"type": "Ready", "status": "True"}]},
    }))
    .unwrap()
}

fn pod(name: &str, volume: &Value) -> Arc<Pod> {
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

fn scratch() -> Value {
    json!({"name": "v", "emptyDir": {}})
}

fn readings(nodes: &[&str], pods: Vec<Arc<Pod>>) -> Readings {
    let mut known = Pods::default();
    known.planned.insert("n1".into(), pods);
    Readings {
        is_openshift: false,
        nodes: Some(nodes.iter().map(|name| node(name)).collect()),
        maintenances: Vec::new(),
        older: Vec::new(),
        pods: Some(known),
        daemon_sets: DaemonSets::default(),
        budgets: Vec::new(),
        volumes: Volumes::default(),
        limit: Limit::None("deployment nm/nm-reconciler".into()),
        missing: Vec::new(),
    }
}

fn outlook(
    planned: &[&str],
    asked: Option<&DrainSpec>,
    readings: Readings,
    answers: &[(&str, EvictionOutcome)],
) -> Outlook {
    let (planned, now) = (planned.iter().map(ToString::to_string).collect::<Vec<_>>(), NOW.parse().unwrap());
    let draft = draft(&planned, asked, &readings, now).unwrap();
    let answers = answers.iter().map(|(uid, answer)| ((*uid).to_owned(), answer.clone())).collect();
    Outlook::of(&planned, asked, draft.as_ref(), readings, &answers, now)
}

fn said(outlook: &Outlook) -> String {
    text::lines(outlook).iter().map(|line| line.to_string().trim_end().to_owned() + "\n").collect()
}

#[test]
fn a_maintenance_that_exists_drains_as_it_says_itself_unless_something_else_is_asked_for() {
    let careful = DrainSpec { delete_empty_dir_data: false, ..DrainSpec::default() };
    let fates = |asked: Option<&DrainSpec>| {
        let mut readings = readings(&["n1", "n2"], vec![pod("db-0", &scratch())]);
        let mut existing = requested("n1");
        existing.spec.drain = Some(careful.clone());
        readings.maintenances.push(existing);
        let outlook = outlook(&["n1"], asked, readings, &[]);
        assert!(said(&outlook).contains("node/n1: is in maintenance already\n"));
        outlook.is_blocked()
    };
    assert!(fates(None));
    assert!(!fates(Some(&DrainSpec::default())));
}

#[test]
fn pods_that_are_force_deleted_are_warned_of() {
    let forced = DrainSpec { grace_period_seconds: 0, ..DrainSpec::default() };
    let warning = forced.warning().unwrap();
    let planned = |asked: Option<&DrainSpec>, own: Option<&DrainSpec>| {
        let mut readings = readings(&["n1", "n2"], vec![]);
        let mut existing = requested("n1");
        existing.spec.drain = own.cloned();
        readings.maintenances.push(existing);
        outlook(&["n1", "n2"], asked, readings, &[])
    };
    for (asked, own, warned) in [
        (Some(&forced), None, true),
        (None, Some(&forced), true),
        (Some(&DrainSpec::default()), Some(&forced), false),
        (None, None, false),
    ] {
        let outlook = planned(asked, own);
        let lines = said(&outlook).lines().filter(|line| *line == format!("warning: {warning}")).count();
        assert_eq!(lines, usize::from(warned), "once, however many nodes: {}", said(&outlook));
        let listed = if warned { json!([warning]) } else { json!([]) };
        assert_eq!(document::document(&outlook)["warnings"], listed);
    }
}

#[test]
fn a_pod_that_is_deleted_past_its_budget_blocks_nothing_and_says_when() {
    let budget = || EvictionOutcome::RefusedByBudget("no".into());
    let patient = DrainSpec { delete_after_seconds: 600, ..DrainSpec::default() };
    let planned = |drain: &DrainSpec, answer: EvictionOutcome| {
        outlook(
            &["n1"],
            Some(drain),
            readings(&["n1", "n2"], vec![pod("db-0", &json!({"name": "v"}))]),
            &[("db-0", answer)],
        )
    };
    let blocked = planned(&DrainSpec::default(), budget());
    assert!(blocked.is_blocked() && said(&blocked).contains(" block "), "{}", said(&blocked));
    let deleted = planned(&patient, budget());
    assert!(!deleted.is_blocked());
    let told = said(&deleted);
    assert!(told.contains("be deleted") && told.contains("; deleted after 10m, past its budget\n"), "{told}");
    assert!(
        told.ends_with("1 node, 1 pod: 1 be deleted\nNothing blocks this plan. Nothing was changed.\n"),
        "{told}"
    );
    let pods = &document::document(&deleted)["pods"];
    assert_eq!((&pods[0]["would"], &pods[0]["deletedAfterSeconds"]), (&json!("be deleted"), &json!(600)));
    let webhook = EvictionOutcome::RefusedByWebhook { webhook: "w".into(), message: "no".into() };
    let told = said(&planned(&patient, webhook));
    assert!(told.contains("; deleted after 10m, past what refuses it\n"), "{told}");
}

#[test]
fn what_keeps_a_node_out_of_maintenance_blocks_the_plan() {
    let cps = || readings(&["cp1", "cp2", "cp3"], vec![]);
    assert!(!outlook(&["cp1"], None, cps(), &[]).is_blocked());
    let both = outlook(&["cp1", "cp2"], None, cps(), &[]);
    assert!(both.is_blocked());
    assert!(
        said(&both).contains("node/cp2: can not put master/control-plane node into maintenance"),
        "{}",
        said(&both)
    );
    let mut older = cps();
    older.older.push(requested("cp1"));
    let older = outlook(&["cp1", "cp2"], None, older, &[]);
    assert!(said(&older).contains("node/cp1: is in maintenance already\n"), "{}", said(&older));
    assert_eq!(older.nodes[1].refusal, both.nodes[1].refusal, "by an object of an older group");
    let mut namesake = cps();
    namesake.older.push(named("cp1", "cp2", "u"));
    assert!(
        said(&outlook(&["cp1"], None, namesake, &[])).contains("node/cp1: can not put master"),
        "a name in another group is not taken"
    );
    let mut ending = readings(&["n1"], vec![]);
    ending.maintenances.push(stopping(requested("n1")));
    let ending = outlook(&["n1"], None, ending, &[]);
    assert!(ending.is_blocked());
    assert!(said(&ending).contains("node/n1: node \"n1\" is returning to service"), "{}", said(&ending));
}

#[test]
fn a_local_volume_stays_behind_and_ties_its_pod_to_the_node() {
    let claim = json!({"name": "v", "persistentVolumeClaim": {"claimName": "data"}});
    let mut readings = readings(&["n1", "n2"], vec![pod("db-0", &claim)]);
    let here = json!({"key": "metadata.name", "operator": "In", "values": ["n1"]});
    let volume: PersistentVolume = serde_json::from_value(json!({
        "metadata": {"name": "pv-1"},
        "spec": {"local": {"path": "/data"}, "claimRef": {"namespace": "shop", "name": "data"},
            "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchFields": [here]}]}}},
    }))
    .unwrap();
    readings.volumes = Volumes::new([volume]);
    let outlook = outlook(&["n1"], None, readings, &[]);
    let expected = "\
NODE   POD         WOULD   BECAUSE
n1     shop/db-0   go      its local volume pv-1 stays behind

data left behind: local volumes of 1 pod: shop/db-0
room for 0 of 1 pod on 1 other node: an estimate by requests, taints, selectors and volumes
no room: shop/db-0 (of 1 other node: 1 out of reach of its volume)
1 node, 1 pod: 1 go
Nothing blocks this plan, but not everything has room elsewhere. Nothing was changed.
";
    assert_eq!(said(&outlook), expected);
    assert!(outlook.lacks_room());
}

#[test]
fn a_lack_of_room_is_a_finding_and_so_are_budgets_that_wait_for_it() {
    let planned = |nodes: &[&str], seconds: i64| {
        let pods = ["db-0", "db-1", "db-2"].map(|name| pod(name, &json!({"name": "v"}))).to_vec();
        let mut readings = readings(nodes, pods);
        readings.budgets = vec![
            serde_json::from_value(json!({
                "metadata": {"namespace": "shop", "name": "db"}, "spec": {"selector": {}},
                "status": {"currentHealthy": 3, "desiredHealthy": 2, "disruptionsAllowed": 1, "expectedPods": 3},
            }))
            .unwrap(),
        ];
        outlook(
            &["n1"],
            Some(&DrainSpec { delete_after_seconds: seconds, ..DrainSpec::default() }),
            readings,
            &[],
        )
    };
    let alone = planned(&["n1"], 0);
    assert!(alone.is_blocked() && alone.lacks_room());
    let expected = "\
NODE   POD         WOULD   BECAUSE
n1     shop/db-0   go
n1     shop/db-1   block   budget shop/db waits for replacements that fit on no other node
n1     shop/db-2   block   budget shop/db waits for replacements that fit on no other node

budget shop/db: guards 3 pods, lets 1 go now and 1 at once when all its pods are healthy, but 2 never: replacements of the \
others fit on no other node
room for 0 of 3 pods on 0 other nodes: an estimate by requests, taints, selectors and volumes
no room: shop/db-0, shop/db-1, shop/db-2 (of 0 other nodes: there is none)
1 node, 3 pods: 2 block, 1 go
Something blocks this plan. Nothing was changed.
";
    assert_eq!(said(&alone), expected);
    assert_eq!(document::document(&alone)["lacksRoom"], json!(true));
    let past = planned(&["n1"], 600);
    assert!(!past.is_blocked() && past.lacks_room(), "{}", said(&past));
    let two = planned(&["n1", "n2"], 0);
    assert!(!two.is_blocked() && !two.lacks_room(), "{}", said(&two));
}

#[test]
fn a_node_that_waits_in_line_has_room_until_its_turn() {
    for (limit, lacks) in
        [(Limit::Unknown("x".into()), true), (Limit::Set("1".parse().unwrap(), "x".into()), false)]
    {
        let mut readings = readings(&["n1", "n2"], vec![pod("db-0", &json!({"name": "v"}))]);
        readings.limit = limit;
        let outlook = outlook(&["n1", "n2"], None, readings, &[]);
        assert_eq!(outlook.lacks_room(), lacks, "{}", said(&outlook));
    }
}

#[test]
fn what_needs_attention_stands_last_and_nothing_steers_the_terminal() {
    let pods = ["db-0", "db-1", "db-2"].map(|name| pod(name, &scratch())).to_vec();
    let denied = EvictionOutcome::RefusedByWebhook { webhook: "w".into(), message: "no\x1b[31m".into() };
    let outlook = outlook(&["n1"], None, readings(&["n1", "n2"], pods), &[("db-0", denied)]);
    let told = said(&outlook);
    let rows: Vec<&str> = told.lines().skip(1).take(3).collect();
    assert!(rows[2].contains("shop/db-0   block   no^[[31m"), "{told}");
    assert!(told.contains("\n1 node, 3 pods: 1 block, 2 go\n"), "{told}");
    assert!(
        told.contains("data lost: emptyDir volumes of 3 pods: shop/db-0, shop/db-1, shop/db-2\n"),
        "{told}"
    );
    assert!(!told.contains('\x1b'));
    let document = document::document(&outlook);
    assert_eq!(
        (&document["blocked"], &document["pods"][0]["reason"]),
        (&json!(true), &json!(BlockReason::AdmissionWebhook))
    );
    assert_eq!(document["maxUnavailable"], json!({"limit": null, "from": "deployment nm/nm-reconciler"}));
}

#[test]
fn without_pods_nobody_knows() {
    let unread = || Readings {
        pods: None,
        missing: vec!["what becomes of the pods: you may not list pods".into()],
        ..readings(&["n1"], vec![])
    };
    let unknown = outlook(&["n1"], None, unread(), &[]);
    assert!(!unknown.is_blocked());
    assert_eq!(
        said(&unknown),
        "not known: what becomes of the pods: you may not list pods\n1 node\n\
         Nobody knows whether something blocks this plan. Nothing was changed.\n"
    );
    let document = document::document(&unknown);
    assert_eq!((&document["blocked"], &document["pods"]), (&Value::Null, &Value::Null));
    assert_eq!(document["notKnown"].as_array().map(Vec::len), Some(1));
    let nothing = outlook(&["n1"], None, readings(&["n1"], vec![]), &[]);
    assert_eq!(said(&nothing), "1 node, 0 pods\nNothing blocks this plan. Nothing was changed.\n");
}
