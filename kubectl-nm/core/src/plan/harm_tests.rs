//! Each harm of small plans, and its words.

use nm_shared::drain::eviction_outcome::EvictionOutcome;
use nm_shared::{DrainSpec, ReturningPods};
use serde_json::{Value, json};

use super::*;
use crate::maintenance::start::Existing;
use crate::plan::report::tests::{NOW, node, pod, report, scratch, snapshot};
use crate::testing::objects::requested;

fn shown(report: &PlanReport) -> Vec<String> {
    lines(&harms(report, None)).iter().map(ToString::to_string).collect()
}

/// A volume that holds nothing.
fn none() -> Value {
    json!({"name": "v"})
}

/// A pod without a controller.
fn bare(name: &str) -> std::sync::Arc<k8s_openapi::api::core::v1::Pod> {
    let mut bare = (*pod(name, &none())).clone();
    bare.metadata.owner_references = None;
    bare.into()
}

/// A plan that harms nothing: another pod of the workload is Ready on another node.
fn harmless() -> crate::plan::cluster_snapshot::ClusterSnapshot {
    let mut snapshot = snapshot(&["n1", "n2"], vec![pod("db-0", &none())]);
    let elsewhere = crate::plan::pods_elsewhere::ready_pod(&pod("db-1", &none()));
    snapshot.pods.as_mut().unwrap().elsewhere.as_mut().unwrap().ready.extend(elsewhere);
    snapshot
}

#[test]
fn a_drain_that_harms_nothing_has_no_lines() {
    assert_eq!(harms(&report(&["n1"], None, harmless(), &[]), None), []);
}

#[test]
fn pods_of_a_namespace_that_is_deleted_are_no_harm_and_need_no_capacity() {
    let mut snapshot = snapshot(&["n1", "n2"], vec![pod("db-0", &none())]);
    snapshot.nodes.as_mut().unwrap()[1].status = None;
    let report = report(&["n1"], None, snapshot, &[("db-0", EvictionOutcome::NamespaceTerminating)]);
    assert_eq!(shown(&report), [""; 0]);
    assert!(!report.is_blocked() && !report.lacks_capacity());
    let plan: Vec<String> = crate::plan::text::lines(&report).iter().map(ToString::to_string).collect();
    assert!(
        plan[1].contains("terminating   its namespace is being deleted, together with the pod"),
        "{plan:?}"
    );
}

#[test]
fn a_pod_that_fits_only_instead_of_others_is_a_harm() {
    let sized = |name: &str, priority: i32| {
        let mut sized = (*pod(name, &none())).clone();
        let container = json!({"name": "c", "resources": {"requests": {"cpu": "3"}}});
        sized.spec =
            serde_json::from_value(json!({"containers": [container], "priority": priority})).unwrap();
        std::sync::Arc::new(sized)
    };
    let mut snapshot = harmless();
    let pods = snapshot.pods.as_mut().unwrap();
    pods.planned.insert("n1".into(), vec![sized("db-0", 100)]);
    pods.elsewhere.as_mut().unwrap().used.entry("n2".into()).or_default().add(&sized("low-0", 0));
    let report = report(&["n1"], None, snapshot, &[]);
    let expected = "fits only by preemption: shop/db-0, probably on n2 instead of shop/low-0, which then fits on no node";
    assert_eq!(shown(&report), [expected]);
    let plan: Vec<String> = crate::plan::text::lines(&report).iter().map(ToString::to_string).collect();
    assert!(plan.iter().any(|line| line == expected) && report.lacks_capacity(), "{plan:?}");
    let verdict = "Nothing would block the drain, but some pods fit only by preemption. Nothing was changed.";
    assert_eq!(plan.last().map(String::as_str), Some(verdict));
}

#[test]
fn lost_data_and_pods_without_a_controller_are_harms() {
    let mut snapshot = harmless();
    let pods = vec![pod("db-0", &scratch()), bare("bare"), bare("other")];
    snapshot.pods.as_mut().unwrap().planned.insert("n1".into(), pods);
    let report = report(&["n1"], None, snapshot, &[]);
    assert_eq!(
        shown(&report),
        ["1 pod loses its emptyDir data: shop/db-0", "no controller replaces 2 pods: shop/bare, shop/other"]
    );
}

#[test]
fn a_job_without_a_further_attempt_is_a_harm_unless_it_may_finish() {
    let mut job_pod = (*pod("report-x", &none())).clone();
    let owner =
        json!({"apiVersion": "batch/v1", "kind": "Job", "name": "report", "uid": "j", "controller": true});
    job_pod.metadata.owner_references = Some(vec![serde_json::from_value(owner).unwrap()]);
    let job_pod = std::sync::Arc::new(job_pod);
    let job = |limit: i32| {
        let spec = json!({"backoffLimit": limit, "template": {}});
        json!({"metadata": {"namespace": "shop", "name": "report"}, "spec": spec, "status": {"failed": 1}})
    };
    let waits = serde_json::from_value(json!({"waitForCompletion": {}})).unwrap();
    for (limit, drain, expected) in [
        (
            1,
            None,
            &["1 Job fails for good (backoffLimit): shop/report; --wait-for-completion lets it finish"][..],
        ),
        (2, None, &[]),
        (1, Some(&waits), &[]),
    ] {
        let mut snapshot = harmless();
        snapshot.pods.as_mut().unwrap().planned.insert("n1".into(), vec![job_pod.clone()]);
        snapshot.jobs = vec![serde_json::from_value(job(limit)).unwrap()];
        assert_eq!(shown(&report(&["n1"], drain, snapshot, &[])), expected, "{limit}");
    }
}

#[test]
fn a_workload_without_a_ready_pod_is_a_harm_unless_a_pod_stays_elsewhere() {
    let expected = "no Ready pod until a replacement is Ready: 1 workload (StatefulSet shop/db)";
    let alone = || snapshot(&["n1", "n2"], vec![pod("db-0", &none())]);
    assert_eq!(shown(&report(&["n1"], None, alone(), &[])), [expected]);
    let mut unread = alone();
    unread.are_budgets_known = false;
    let unless = "no Ready pod until a replacement is Ready, unless a disruption budget prevents it: 1 workload (StatefulSet shop/db)";
    assert_eq!(shown(&report(&["n1"], None, unread, &[])), [unless]);
    let mut both = alone();
    both.pods.as_mut().unwrap().planned.insert("n2".into(), vec![pod("db-1", &none())]);
    assert_eq!(shown(&report(&["n1"], None, both, &[])), [""; 0], "one stays on another planned node");
}

#[test]
fn pods_that_fit_nowhere_and_the_last_schedulable_node_are_harms() {
    let mut snapshot = harmless();
    snapshot.nodes = Some(vec![node("n1")]);
    let report = report(&["n1"], None, snapshot, &[]);
    assert_eq!(
        shown(&report),
        ["no capacity for shop/db-0 (0 other nodes)", "no schedulable node is left in the cluster"]
    );
}

#[test]
fn nodes_in_maintenance_are_not_left_for_pods() {
    let mut snapshot = harmless();
    snapshot.maintenances.push(requested("n2"));
    assert!(matches!(Existing::find("n2", &snapshot.maintenances), Existing::Maintenance(_)));
    let report = report(&["n1"], None, snapshot, &[]);
    assert_eq!(shown(&report), ["no schedulable node is left in the cluster"]);
}

#[test]
fn pods_that_never_leave_are_harms_and_those_that_only_wait_are_not() {
    let budget = |now: i32, healthy: i32, expected: i32| {
        serde_json::from_value(json!({
            "metadata": {"namespace": "shop", "name": "db"}, "spec": {"selector": {}},
            "status": {"currentHealthy": healthy, "desiredHealthy": 2, "disruptionsAllowed": now,
                "expectedPods": expected},
        }))
        .unwrap()
    };
    let planned = |now: i32, healthy: i32, expected: i32| {
        let mut snapshot = harmless();
        snapshot.budgets = vec![budget(now, healthy, expected)];
        shown(&report(&["n1"], None, snapshot, &[]))
    };
    let never = planned(0, 2, 2);
    assert!(matches!(&never[..], [line] if line.starts_with("never leaves: shop/db-0: ")), "{never:?}");
    assert_eq!(planned(0, 2, 3), [""; 0], "its third pod is not Ready yet");
    let crashing = |name: &str| {
        let mut pod = (*pod(name, &none())).clone();
        let status = json!({"phase": "Running", "containerStatuses": [{"name": "app", "image": "", "imageID": "", "ready": false,
            "restartCount": 1, "state": {"waiting": {"reason": "CrashLoopBackOff"}}}]});
        pod.status = serde_json::from_value(status).unwrap();
        pod.into()
    };
    let mut snapshot = harmless();
    snapshot.budgets = vec![budget(0, 1, 3)];
    snapshot.pods.as_mut().unwrap().planned.insert("n1".into(), vec![crashing("db-0"), crashing("db-2")]);
    assert_eq!(
        shown(&report(&["n1"], None, snapshot, &[])),
        [
            "stays blocked: shop/db-0, shop/db-2: The disruption budget db needs 2 healthy pods and has 1 currently; of its pods \
          that are not Ready, too many do not become Ready by themselves"
        ]
    );
    let mut snapshot = harmless();
    snapshot.budgets = vec![budget(0, 2, 2)];
    let deletes = DrainSpec { delete_after_seconds: 20, ..DrainSpec::default() };
    assert_eq!(
        shown(&report(&["n1"], Some(&deletes), snapshot, &[])),
        ["1 pod deleted after 20s although its eviction is refused: shop/db-0",]
    );
    let denied = EvictionOutcome::RefusedByWebhook { webhook: "w".into(), message: "no.".into() };
    let denied = shown(&report(&["n1"], None, harmless(), &[("db-0", denied)]));
    assert_eq!(denied, ["stays blocked: shop/db-0: no"]);
    let careful = DrainSpec { force: false, delete_empty_dir_data: false, ..DrainSpec::default() };
    let mut refused = harmless();
    refused.pods.as_mut().unwrap().planned.insert("n1".into(), vec![bare("bare"), pod("db-0", &scratch())]);
    let refused = harms(&report(&["n1"], Some(&careful), refused, &[]), None);
    let reasons: Vec<BlockReason> = refused
        .iter()
        .map(|harm| match harm {
            Harm::NeverLeave { reason, .. } => *reason,
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(reasons, [BlockReason::Unmanaged, BlockReason::LocalStorage]);
}

#[test]
fn of_pods_whose_replacements_fit_nowhere_those_beyond_what_their_budget_allows_are_counted_and_none_is_singled_out()
 {
    let budget = |expected: i32, desired: i32| {
        json!({"metadata": {"namespace": "shop", "name": "db"}, "spec": {"selector": {}},
            "status": {"currentHealthy": expected, "desiredHealthy": desired, "expectedPods": expected,
                "disruptionsAllowed": expected - desired}})
    };
    for (count, desired, expected) in [
        (2, 1, "1 of 2 pods never leaves: shop/db-0, shop/db-1: "),
        (4, 2, "2 of 4 pods never leave: shop/db-0, shop/db-1, shop/db-2 and 1 more: "),
    ] {
        let planned = |answers: &[(&str, EvictionOutcome)]| {
            let pods = (0..count).map(|at| pod(&format!("db-{at}"), &none())).collect();
            let mut snapshot = snapshot(&["n1"], pods);
            snapshot.budgets = vec![serde_json::from_value(budget(count, desired)).unwrap()];
            shown(&report(&["n1"], None, snapshot, answers))
        };
        let denied = EvictionOutcome::RefusedByWebhook { webhook: "w".into(), message: "no.".into() };
        let lines = planned(&[("db-0", denied)]);
        let own = String::from("stays blocked: shop/db-0: no");
        assert!(lines.contains(&own), "its budget is not the reason: {lines:?}");
        let lines = planned(&[]);
        let line = lines.iter().find(|line| line.contains("never leave")).unwrap();
        let why = "budget shop/db waits for replacements that fit on no other node";
        assert_eq!(*line, format!("{expected}{why}"), "{lines:?}");
    }
}

#[test]
fn pods_that_wait_for_one_whose_replacement_fits_nowhere_never_leave() {
    let db = |name: &str, status: &str| {
        let mut db = (*pod(name, &none())).clone();
        let ready = json!({"type": "Ready", "status": status});
        db.status = serde_json::from_value(json!({"phase": "Running", "conditions": [ready]})).unwrap();
        std::sync::Arc::new(db)
    };
    // It has just changed, so that the drain waits for it.
    let condition = json!({"type": "DisruptionAllowed", "status": "False", "reason": "InsufficientPods",
        "message": "", "lastTransitionTime": NOW});
    let budget = |healthy: i32| {
        json!({"metadata": {"namespace": "shop", "name": "db"}, "spec": {"selector": {}},
            "status": {"currentHealthy": healthy, "desiredHealthy": 2, "expectedPods": 3, "disruptionsAllowed": 0,
                "conditions": [condition]}})
    };
    let planned = |nodes: &[&str], healthy: i32| {
        let pods = vec![db("db-0", "False"), db("db-1", "True"), db("db-2", "True")];
        let mut snapshot = snapshot(nodes, pods);
        snapshot.budgets = vec![serde_json::from_value(budget(healthy)).unwrap()];
        shown(&report(&["n1"], None, snapshot, &[]))
    };
    let never =
        |lines: &[String]| lines.iter().any(|line| line.starts_with("never leaves: shop/db-1, shop/db-2: "));
    let alone = planned(&["n1"], 2);
    assert!(never(&alone), "{alone:?}");
    assert!(
        alone[2].ends_with("budget shop/db waits for replacements that fit on no other node"),
        "{alone:?}"
    );
    for (nodes, healthy) in [(&["n1", "n2"][..], 2), (&["n1"], 1)] {
        let lines = planned(nodes, healthy);
        assert!(!never(&lines), "there is room, or it does not leave before it is Ready: {lines:?}");
    }
}

#[test]
fn pods_that_are_only_starting_under_their_budget_are_no_harm_that_never_ends() {
    let pod = |phase: &str, is_ready: bool| {
        let mut starting = (*pod("db-0", &none())).clone();
        let ready = json!({"type": "Ready", "status": if is_ready { "True" } else { "False" }});
        starting.status = serde_json::from_value(json!({"phase": phase, "conditions": [ready]})).unwrap();
        std::sync::Arc::new(starting)
    };
    let budget = |spec: Value, (expected, desired, healthy): (i32, i32, i32), generation: i64| {
        let mut spec = spec;
        spec["selector"] = json!({});
        json!({"metadata": {"namespace": "shop", "name": "db", "generation": generation}, "spec": spec,
            "status": {"observedGeneration": 1, "expectedPods": expected, "desiredHealthy": desired,
                "currentHealthy": healthy, "disruptionsAllowed": 0}})
    };
    let known = |grows: Option<bool>, pod, budget: Value, answers: &[(&str, EvictionOutcome)]| {
        let mut snapshot = harmless();
        snapshot.budgets = vec![serde_json::from_value(budget).unwrap()];
        let db =
            nm_shared::cluster::disruption_budget::Budget::from(&snapshot.budgets[0]).version().key.clone();
        snapshot.growing = grows.map(|grows| (db, grows)).into_iter().collect();
        snapshot.pods.as_mut().unwrap().planned.insert("n1".into(), vec![pod]);
        let report = report(&["n1"], None, snapshot, answers);
        let plan: Vec<String> = crate::plan::text::lines(&report).iter().map(ToString::to_string).collect();
        let is_never = shown(&report).iter().any(|line| line.starts_with("never leaves: "));
        assert_eq!(is_never, plan.iter().any(|line| line.ends_with("until it is changed")), "{plan:?}");
        is_never
    };
    let planned = |pod, budget, answers: &[(&str, EvictionOutcome)]| known(None, pod, budget, answers);
    // A StatefulSet creates its pods one by one, and this budget counts those that there are.
    let number = || json!({"minAvailable": 2});
    assert!(!planned(pod("Running", false), budget(number(), (1, 2, 0), 1), &[]));
    assert!(planned(pod("Running", true), budget(number(), (2, 2, 2), 1), &[]));
    // This one counts the replicas.
    assert!(planned(pod("Running", false), budget(json!({"maxUnavailable": 0}), (2, 2, 1), 1), &[]));
    assert!(!planned(pod("Running", true), budget(number(), (2, 2, 2), 2), &[]), "not counted yet");
    // Its workloads are known to create no more pods.
    let only = || budget(json!({"minAvailable": 1}), (1, 1, 0), 1);
    assert!(!planned(pod("Running", false), only(), &[]));
    assert!(!known(Some(true), pod("Running", false), only(), &[]));
    assert!(known(Some(false), pod("Running", false), only(), &[]));
    // It was Pending when it was read, so that no budget mattered.
    let refused = [("db-0", EvictionOutcome::RefusedByBudget("needs 2".into()))];
    assert!(!planned(pod("Pending", false), budget(number(), (3, 2, 2), 1), &refused));
}

#[test]
fn a_finalizer_of_others_is_a_harm_and_blocks_nothing() {
    let mut snapshot = harmless();
    let mut kept = (*pod("db-0", &none())).clone();
    let finalizers = ["batch.kubernetes.io/job-tracking", "example.com/hold", "foregroundDeletion"];
    kept.metadata.finalizers = Some(finalizers.map(str::to_owned).into());
    snapshot.pods.as_mut().unwrap().planned.insert("n1".into(), vec![kept.into()]);
    let report = report(&["n1"], None, snapshot, &[]);
    let line =
        "finalizer example.com/hold keeps the object until its controller removes it: 1 pod: shop/db-0";
    assert_eq!(shown(&report), [line]);
    assert!(!report.is_blocked());
    let plan: Vec<String> = crate::plan::text::lines(&report).iter().map(ToString::to_string).collect();
    assert!(plan.contains(&format!("warning: {line}")), "{plan:?}");
}

#[test]
fn the_selector_that_no_other_node_matches_is_said_to_be_the_pods() {
    let selecting = |labels: Value, nodes: &[&str]| {
        let mut snapshot = snapshot(nodes, vec![]);
        let mut pinned = (*pod("db-0", &none())).clone();
        pinned.spec = serde_json::from_value(json!({"containers": [], "nodeSelector": labels})).unwrap();
        snapshot.pods.as_mut().unwrap().planned.insert("n1".into(), vec![pinned.into()]);
        let elsewhere = crate::plan::pods_elsewhere::ready_pod(&pod("db-1", &none()));
        snapshot.pods.as_mut().unwrap().elsewhere.as_mut().unwrap().ready.extend(elsewhere);
        shown(&report(&["n1"], None, snapshot, &[]))
    };
    assert_eq!(
        selecting(json!({"kubernetes.io/hostname": "n1"}), &["n1", "n2", "n3"]),
        ["no capacity for shop/db-0 (2 other nodes do not match its nodeSelector or affinity)"]
    );
    assert_eq!(
        selecting(json!({"kubernetes.io/hostname": "n1"}), &["n1", "n2"]),
        ["no capacity for shop/db-0 (1 other node does not match its nodeSelector or affinity)"]
    );
}

#[test]
fn the_quorum_of_etcd_is_a_harm() {
    let report = report(&["cp1", "cp2"], None, snapshot(&["cp1", "cp2", "cp3", "n2"], vec![]), &[]);
    let harms = harms(&report, None);
    assert!(matches!(&harms[..], [Harm::Quorum { node, .. }] if node == "cp2"), "{harms:?}");
    assert!(shown(&report)[0].starts_with("node/cp2: can not put master/control-plane node"));
}

#[test]
fn nobody_leading_is_the_first_harm() {
    let mut snapshot = harmless();
    snapshot.nodes = Some(vec![node("n1")]);
    let released = LeaderGap::Released { at: jiff::Timestamp::UNIX_EPOCH };
    let found = harms(&report(&["n1"], None, snapshot, &[]), Some(&released));
    assert_eq!(found[0], Harm::NobodyLeads(released));
    assert_eq!(found[0].line().to_string(), "no nm-reconciler leads: the last one has released its lease");
}

#[test]
fn harms_of_drains_that_follow_each_other_are_said_once() {
    let of = |name: &str| PodReference { namespace: "shop".into(), name: name.into() };
    let lost = |names: &[&str]| Harm::EmptyDirData(names.iter().map(|name| of(name)).collect());
    let never = |name: &str, message: &str| Harm::NeverLeave {
        pods: vec![of(name)],
        count: 1,
        reason: BlockReason::AdmissionWebhook,
        message: message.into(),
        lasting: Lasting::UntilAllowed,
    };
    let zone = || Harm::NoSchedulableNode(NodeGroup::Zone("a".into()));
    let merged = merged([lost(&["a"]), zone(), never("a", "x"), lost(&["a", "b"]), zone(), never("b", "x")]);
    let both = Harm::NeverLeave {
        pods: vec![of("a"), of("b")],
        count: 2,
        reason: BlockReason::AdmissionWebhook,
        message: "x".into(),
        lasting: Lasting::UntilAllowed,
    };
    assert_eq!(merged, [lost(&["a", "b"]), zone(), both]);
    let many: Vec<Harm> = (0..8).map(|at| never("a", &at.to_string())).collect();
    let many: Vec<String> = lines(&many).iter().map(ToString::to_string).collect();
    assert_eq!((many.len(), many[5].as_str()), (6, "and 3 more of these"));
}

#[test]
fn a_node_that_is_not_ready_is_a_harm_if_pods_should_leave_it() {
    let silent = |pods| {
        let mut snapshot = harmless();
        let conditions = json!([{"type": "Ready", "status": "Unknown"}]);
        snapshot.nodes.as_mut().unwrap()[0].status =
            serde_json::from_value(json!({"conditions": conditions})).unwrap();
        snapshot.pods.as_mut().unwrap().planned.insert("n1".into(), pods);
        snapshot
    };
    let shown = |snapshot| shown(&report(&["n1"], None, snapshot, &[]));
    assert_eq!(
        shown(silent(vec![pod("db-0", &none())])),
        ["node/n1 is not Ready: its pods do not leave until its kubelet reports"]
    );
    assert_eq!(shown(silent(vec![])), [""; 0]);
    let report = report(&["n1"], None, silent(vec![pod("db-0", &none())]), &[]);
    let plan: Vec<String> = crate::plan::text::lines(&report).iter().map(ToString::to_string).collect();
    assert!(
        plan[1].contains(
            "blocked   evicted, but its node n1 is not Ready, so no kubelet confirms that it has terminated"
        ),
        "{plan:?}"
    );
    assert_eq!(plan.last().unwrap(), "The drain would be blocked. Nothing was changed.");
}

#[test]
fn a_deletion_that_is_not_permitted_leaves_pods_blocked_and_is_a_harm() {
    let drain = DrainSpec { delete_after_seconds: 5, ..DrainSpec::default() };
    let denied = || ("db-0", EvictionOutcome::RefusedByWebhook { webhook: "w".into(), message: "no".into() });
    let planned = |drain: Option<&DrainSpec>, is_denied: bool| {
        let mut snapshot = harmless();
        snapshot.denied.extend(is_denied.then_some(Grant::PodDeletion));
        let report = report(&["n1"], drain, snapshot, &[denied()]);
        (report.is_blocked(), shown(&report).into_iter().next().unwrap_or_default())
    };
    let (is_blocked, line) = planned(Some(&drain), true);
    assert!(is_blocked);
    assert_eq!(
        line,
        "--delete-after has no effect: nm-reconciler has no permission to delete pods; `kubectl nm install --grant \
         pod-deletion` grants it"
    );
    assert!(!planned(Some(&drain), false).0);
    assert!(planned(None, true).1.starts_with("stays blocked"), "nothing is to be deleted");
}

#[test]
fn a_pod_whose_template_names_the_node_returns_and_blocks_the_drain() {
    let planned = |fields: Value, kind: &str, returning_pods: ReturningPods| {
        let mut web = (*pod("web-0", &none())).clone();
        let managed = json!([{"manager": "kube-controller-manager", "operation": "Update", "apiVersion": "v1",
            "fieldsType": "FieldsV1", "fieldsV1": {"f:spec": fields}}]);
        web.metadata.managed_fields = serde_json::from_value(managed).unwrap();
        web.metadata.owner_references = serde_json::from_value(json!([
            {"apiVersion": "apps/v1", "kind": kind, "name": "web", "uid": "w", "controller": true}]))
        .unwrap();
        let drain = DrainSpec { returning_pods, ..DrainSpec::default() };
        report(&["n1"], Some(&drain), snapshot(&["n1", "n2"], vec![web.into()]), &[])
    };
    for policy in [ReturningPods::Stay, ReturningPods::Wait] {
        let assigned = planned(json!({"f:nodeName": {}}), "ReplicaSet", policy);
        let text = shown(&assigned).join("\n");
        assert!(assigned.is_blocked() && text.contains("never leaves: "), "{text}");
        assert_eq!(assigned.capacity.unwrap().fit, 0, "it needs no other node");
    }
    for (fields, kind) in
        [(json!({"f:containers": {}}), "ReplicaSet"), (json!({"f:nodeName": {}}), "CloneSet")]
    {
        assert!(!planned(fields, kind, ReturningPods::Stay).is_blocked(), "{kind}");
    }
}

#[test]
fn a_job_that_fails_creates_no_pod_on_the_same_node_again() {
    for (limit, fails) in [(0, true), (6, false)] {
        let mut migrate = (*pod("migrate-x7k2p", &none())).clone();
        let managed = json!([{"manager": "kube-controller-manager", "operation": "Update", "apiVersion": "v1",
            "fieldsType": "FieldsV1", "fieldsV1": {"f:spec": {"f:nodeName": {}}}}]);
        migrate.metadata.managed_fields = serde_json::from_value(managed).unwrap();
        let owner = json!([{"apiVersion": "batch/v1", "kind": "Job", "name": "migrate", "uid": "m", "controller": true}]);
        migrate.metadata.owner_references = serde_json::from_value(owner).unwrap();
        let namespace = migrate.metadata.namespace.clone();
        let mut snapshot = snapshot(&["n1", "n2"], vec![migrate.into()]);
        let job = json!({"metadata": {"namespace": namespace, "name": "migrate"},
            "spec": {"backoffLimit": limit, "template": {}}});
        snapshot.jobs = vec![serde_json::from_value(job).unwrap()];
        let report = report(&["n1"], None, snapshot, &[]);
        let text = shown(&report).join("\n");
        assert_eq!(
            (report.is_blocked(), text.contains("fails for good")),
            (!fails, fails),
            "{limit}: {text}"
        );
    }
}
