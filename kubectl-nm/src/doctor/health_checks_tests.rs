use k8s_openapi::api::coordination::v1::Lease;
use kube::core::ObjectMeta;
use nm_core::maintenance::{ROLL_FINALIZER, ROLL_LABEL};
use nm_shared::api::names::{DRAIN_TAINT, FINALIZER, KUBEVIRT_DRAIN_TAINT, UNDO_ANNOTATION};
use nm_shared::{Group, NodeMaintenance, NodeMaintenanceSpec};

use super::*;
use crate::doctor::finding::CheckResult;

const NOW: &str = "2026-01-02T03:04:05Z";

fn now() -> Timestamp {
    NOW.parse().unwrap()
}

fn deployment(available: u64) -> Value {
    json!({"metadata": {"name": "nm-reconciler", "namespace": "node-maintenance"},
        "spec": {"replicas": 2, "template": {"spec": {"containers": [{"image": format!("x:{OWN_VERSION}")}]}}},
        "status": {"updatedReplicas": 2, "availableReplicas": available}})
}

fn lease(renewed: &str) -> LeaderLease {
    let spec = json!({"holderIdentity": "pod-a", "renewTime": renewed, "leaseDurationSeconds": 15});
    held(json!({"metadata": {"name": "nm-reconciler"}, "spec": spec}))
}

fn held(lease: Value) -> LeaderLease {
    let lease: Lease = serde_json::from_value(lease).unwrap();
    LeaderLease::read_at(Some(lease), now())
}

fn crd() -> Value {
    let mut found = manifests::crd();
    found["spec"]["conversion"] = json!({"strategy": "None"});
    found["status"] = json!({"conditions": [{"type": "Established", "status": "True"}]});
    found
}

/// A healthy cluster.
fn healthy() -> ClusterReport {
    let installed = Installation {
        namespace: "node-maintenance".into(),
        deployment: Some(deployment(2)),
        other_operator: None,
    };
    ClusterReport {
        server: "v1.36.0".into(),
        flags: String::new(),
        installation: Ok(installed),
        pods: Ok(Vec::new()),
        crd: Ok(Some(crd())),
        lease: Ok(lease("2026-01-02T03:04:01.000000Z")),
        webhook_configuration: Ok(Some(json!({"webhooks": []}))),
        policies: Ok(service_account::policies([])
            .into_iter()
            .map(|policy| (policy.clone(), Some(policy)))
            .collect()),
        grants: Grant::ALL.map(|grant| (grant, Ok(false))).into(),
        webhook: Ok(ProbeResult::Works),
        earlier: Vec::new(),
        nodes: Ok(vec![json!({"metadata": {"name": "n1"}})]),
        maintenances: Ok(Vec::new()),
    }
}

/// The only finding of a check, after a change to a healthy cluster.
#[track_caller]
fn finding(check: &str, change: impl FnOnce(&mut ClusterReport)) -> (CheckResult, String) {
    let mut report = healthy();
    change(&mut report);
    let found = findings(&report, now());
    let about: Vec<&Finding> = found.iter().filter(|finding| finding.check == check).collect();
    assert_eq!(about.len(), 1, "{found:?}");
    let needs_remedy =
        about[0].result != CheckResult::Ok && !about[0].message.starts_with("cannot be checked: ");
    assert_eq!(about[0].remedy.is_some(), needs_remedy, "{:?}", about[0]);
    (about[0].result, about[0].message.clone())
}

#[track_caller]
fn check(check: &str, result: CheckResult, expected: &str, change: impl FnOnce(&mut ClusterReport)) {
    let (found, message) = finding(check, change);
    assert_eq!(found, result, "{message}");
    assert!(message.contains(expected), "{message}");
}

#[test]
fn every_check_of_a_healthy_cluster_is_ok() {
    let found = findings(&healthy(), now());
    assert!(found.iter().all(|finding| finding.result == CheckResult::Ok), "{found:#?}");
    check("leader", CheckResult::Ok, "pod-a is the leader and renewed its lease 4s ago", |_| {});
}

#[test]
fn an_update_of_the_reconciler_is_reported_with_the_replicas_that_are_available() {
    let updating = |available: u64| {
        move |report: &mut ClusterReport| {
            let mut found = deployment(available);
            (found["status"]["updatedReplicas"], found["status"]["replicas"]) = (json!(1), json!(3));
            report.installation.as_mut().unwrap().deployment = Some(found);
        }
    };
    let all = "2 of 2 replicas are available, and an update is under way (1 of 2 updated)";
    check("reconciler", CheckResult::Ok, all, updating(2));
    check("reconciler", CheckResult::Warn, "1 of 2 replicas are available, and an update", updating(1));
}

#[test]
fn replicas_that_were_just_started_are_no_failure_and_those_that_do_not_start_are() {
    let scaled = |created: &str| {
        let pod = json!({"metadata": {"name": "pod-a", "creationTimestamp": created}});
        move |report: &mut ClusterReport| {
            report.installation.as_mut().unwrap().deployment = Some(deployment(0));
            report.lease = Ok(lease("2026-01-02T03:00:00.000000Z"));
            report.webhook = Ok(ProbeResult::Failed("connection refused".into()));
            report.pods = Ok(vec![pod]);
        }
    };
    for name in ["reconciler", "leader", "webhook"] {
        let starting = "; its replicas are starting";
        check(name, CheckResult::Warn, starting, scaled("2026-01-02T03:03:55Z"));
        check(name, CheckResult::Fail, "", scaled("2026-01-02T03:00:00Z"));
    }
}

#[test]
fn a_leader_on_a_node_that_is_not_ready_is_missed_because_of_the_node() {
    let node = "pod pod-a is on node n1, which is not Ready";
    check("leader", CheckResult::Fail, node, |report| {
        report.installation.as_mut().unwrap().deployment = Some(deployment(0));
        report.lease = Ok(lease("2026-01-02T03:00:00.000000Z"));
        report.pods = Ok(vec![json!({"metadata": {"name": "pod-a"}, "spec": {"nodeName": "n1"}})]);
        let unready = json!([{"type": "Ready", "status": "Unknown"}]);
        report.nodes = Ok(vec![json!({"metadata": {"name": "n1"}, "status": {"conditions": unready}})]);
    });
}

/// The findings after a change to a healthy cluster.
fn findings_after(change: impl FnOnce(&mut ClusterReport)) -> Vec<(&'static str, CheckResult, String)> {
    let mut report = healthy();
    change(&mut report);
    findings(&report, now()).into_iter().map(|found| (found.check, found.result, found.message)).collect()
}

#[test]
fn an_installation_by_the_operator_lifecycle_manager_is_healthy() {
    // OLM names the webhook configuration itself.
    let found = findings_after(|report| report.webhook_configuration = Ok(None));
    assert!(found.iter().all(|(_, result, _)| *result == CheckResult::Ok), "{found:#?}");
    assert!(found.contains(&("webhook", CheckResult::Ok, "it works".into())), "{found:#?}");
}

#[test]
fn no_check_fails_if_the_medik8s_operator_serves_maintenances() {
    let found = findings_after(|report| {
        report.installation = Ok(Installation {
            namespace: "ns".into(),
            deployment: None,
            other_operator: Some("nmo/node-maintenance-operator".into()),
        });
        (report.lease, report.webhook_configuration) = (Ok(LeaderLease::default()), Ok(None));
        report.webhook =
            Ok(ProbeResult::RefusedByOther("admission webhook \"vnodemaintenance.kb.io\" denied".into()));
        report.maintenances = Ok(vec![ending(&[FINALIZER], NOW)]);
    });
    let wrong: Vec<_> = found.iter().filter(|(_, result, _)| *result != CheckResult::Ok).collect();
    assert!(
        matches!(wrong[..], [("reconciler", CheckResult::Warn, expected)] if expected.contains("serves the objects")),
        "{wrong:#?}"
    );
    let leader = found.iter().find(|(check, ..)| *check == "leader").unwrap();
    assert!(leader.2.contains("nmo/node-maintenance-operator"), "{leader:?}");
}

#[test]
fn another_version_of_the_crd_is_reported_with_the_field() {
    check("definition", CheckResult::Fail, "does not exist", |report| report.crd = Ok(None));
    check("definition", CheckResult::Fail, "not served", |report| {
        let mut found = crd();
        found["status"] = Value::Null;
        report.crd = Ok(Some(found));
    });
    check("definition", CheckResult::Warn, "spec.versions[0].", |report| {
        let mut found = crd();
        found["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]["drain"] =
            Value::Null;
        report.crd = Ok(Some(found));
    });
}

#[test]
fn a_missing_or_conflicting_reconciler_is_reported() {
    let installed = |deployment: Option<Value>, other: Option<&str>| {
        Ok(Installation { namespace: "ns".into(), deployment, other_operator: other.map(str::to_owned) })
    };
    check("reconciler", CheckResult::Fail, "not installed", |report| {
        report.installation = installed(None, None);
    });
    check("reconciler", CheckResult::Warn, "x/nmo", |report| {
        report.installation = installed(None, Some("x/nmo"));
    });
    check("reconciler", CheckResult::Fail, "x/nmo", |report| {
        report.installation = installed(Some(deployment(2)), Some("x/nmo"));
    });
    check("reconciler", CheckResult::Warn, "1 of 2", |report| {
        report.installation = installed(Some(deployment(1)), None);
    });
    check("reconciler", CheckResult::Fail, "0 of 2", |report| {
        report.installation = installed(Some(deployment(0)), None);
    });
    check("leader", CheckResult::Fail, "there is no leader", |report| {
        report.lease = Ok(LeaderLease::default());
    });
    check("leader", CheckResult::Unknown, "cannot be checked: there is no lease", |report| {
        (report.installation, report.lease) = (installed(None, None), Ok(LeaderLease::default()));
    });
    check("leader", CheckResult::Fail, "there is no leader", |report| {
        report.lease = Ok(lease("2026-01-02T03:03:00.000000Z"));
    });
}

#[test]
fn without_an_installation_a_lease_without_holder_tells_nothing() {
    let holderless = held(json!({"metadata": {"name": "nm-reconciler"}}));
    check("leader", CheckResult::Unknown, "cannot be checked: the lease has no holder", |report| {
        (report.lease, report.installation) = (Ok(holderless.clone()), Ok(Installation::default()));
    });
}

#[test]
fn a_webhook_that_does_not_respond_differs_from_one_that_is_not_called() {
    let failed = || Ok(ProbeResult::Failed("x509: unknown authority".into()));
    check("webhook", CheckResult::Fail, "x509: unknown authority", |report| report.webhook = failed());
    check("webhook", CheckResult::Fail, "admits", |report| report.webhook = Ok(ProbeResult::Admitted));
    check("webhook", CheckResult::Warn, "no webhook", |report| {
        (report.webhook_configuration, report.webhook) = (Ok(None), Ok(ProbeResult::Admitted));
    });
    check("webhook", CheckResult::Warn, "kb.io", |report| {
        report.webhook = Ok(ProbeResult::RefusedByOther("vnm.kb.io".into()));
    });
    check("webhook", CheckResult::Ok, "it works", |report| {
        report.webhook_configuration = Err(Unavailable("forbidden".into()));
    });
}

#[test]
fn a_certificate_is_reported_before_it_expires() {
    for (until, result, expected) in [
        ("2026-01-02T03:04:05Z", CheckResult::Fail, "expired at 2026-01-02"),
        ("2026-01-08T00:00:00Z", CheckResult::Warn, "expires at 2026-01-08"),
        ("2026-03-01T00:00:00Z", CheckResult::Ok, "valid until 2026-03-01"),
    ] {
        let bundle = certificate::tests::bundle(until.parse().unwrap());
        check("webhook", result, expected, |report| {
            report.webhook_configuration =
                Ok(Some(json!({"webhooks": [{"clientConfig": {"caBundle": bundle}}]})));
        });
    }
}

/// The remedy of a check, after a change to a healthy cluster.
fn remedy(check: &str, change: impl FnOnce(&mut ClusterReport)) -> String {
    let mut report = healthy();
    change(&mut report);
    let found = findings(&report, now()).into_iter().find(|finding| finding.check == check).unwrap();
    found.remedy.unwrap_or_default()
}

#[test]
fn no_remedy_names_the_log_of_a_missing_deployment() {
    let lapsed = || Ok(lease("2026-01-02T03:03:00.000000Z"));
    assert!(remedy("leader", |report| report.lease = lapsed()).contains("logs deployment/nm-reconciler"));
    let gone = remedy("leader", |report| {
        report.lease = lapsed();
        report.installation = Ok(Installation { namespace: "ns".into(), ..Installation::default() });
    });
    assert!(gone.contains("`kubectl nm install --image IMAGE`"), "{gone}");
}

#[test]
fn an_older_plugin_sets_nothing_back() {
    let found = remedy("definition", |report| {
        report.crd = Ok(None);
        let deployment = report.installation.as_mut().unwrap().deployment.as_mut().unwrap();
        deployment["spec"]["template"]["spec"]["containers"][0]["image"] = json!("r/nm-reconciler:9.0.0");
    });
    assert!(
        found.starts_with("first update the plugin, which is older than nm-reconciler 9.0.0; then "),
        "{found}"
    );
}

#[test]
fn orphaned_node_changes_are_reported_with_a_remedy() {
    let node = |name: &str, spec: Value| json!({"metadata": {"name": name, "annotations": {UNDO_ANNOTATION: "{}"}}, "spec": spec});
    let drained = |taint: &str| {
        node("n1", json!({"unschedulable": true, "taints": [{"key": taint, "effect": "NoSchedule"}]}))
    };
    for taint in [DRAIN_TAINT, KUBEVIRT_DRAIN_TAINT] {
        check("nodes", CheckResult::Warn, "1 cordoned by a deleted maintenance: n1", |report| {
            report.nodes = Ok(vec![drained(taint)]);
        });
    }
    check(
        "nodes",
        CheckResult::Warn,
        "1 cordoned, with the undo record of a deleted maintenance: n2",
        |report| {
            report.nodes = Ok(vec![node("n2", json!({"unschedulable": true})), node("n3", json!({}))]);
        },
    );
    check("nodes", CheckResult::Warn, "1 with the undo record of a deleted maintenance: n2", |report| {
        report.nodes = Ok(vec![node("n2", json!({}))]);
    });
    let mut stripped = drained(DRAIN_TAINT);
    stripped["metadata"]["annotations"] = json!({});
    check("nodes", CheckResult::Warn, "1 tainted without a maintenance: n1", |report| {
        report.nodes = Ok(vec![stripped]);
    });
    for group in Group::ALL {
        check("nodes", CheckResult::Ok, "none", |report| {
            report.nodes = Ok(vec![drained(group.drain_taint())]);
            report.maintenances = Ok(vec![GroupedMaintenance { group, ..ending(&[], NOW) }]);
        });
    }
}

#[test]
fn commands_to_paste_have_the_connection_flags() {
    let mut report = healthy();
    report.flags = String::from(" --context=c");
    report.crd = Ok(None);
    (report.lease, report.webhook) = (Ok(LeaderLease::default()), Ok(ProbeResult::Admitted));
    report.installation =
        Ok(Installation { deployment: Some(deployment(0)), ..report.installation.unwrap() });
    let left = |name: &str, taints: Value| {
        let metadata = json!({"name": name, "annotations": {UNDO_ANNOTATION: "{}"}});
        json!({"metadata": metadata, "spec": {"unschedulable": true, "taints": taints}})
    };
    for taints in [json!([]), json!([{"key": DRAIN_TAINT, "effect": "NoSchedule"}])] {
        report.nodes = Ok(vec![left("n1", taints)]);
        for found in findings(&report, now()) {
            let remedy = found.remedy.unwrap_or_default();
            let commands = remedy.split('`').skip(1).step_by(2).flat_map(|span| span.split(" && "));
            for command in commands {
                assert!(command.contains(" --context=c"), "{remedy}");
            }
        }
    }
}

#[test]
fn the_undo_record_of_a_cordoned_node_is_not_deleted_alone() {
    for spec in [
        json!({"unschedulable": true}),
        json!({"taints": [{"key": DRAIN_TAINT, "effect": "NoSchedule"}]}),
        json!({"taints": [{"key": KUBEVIRT_DRAIN_TAINT, "effect": "NoSchedule"}]}),
    ] {
        let mut report = healthy();
        report.nodes = Ok(vec![
            json!({"metadata": {"name": "n1", "annotations": {UNDO_ANNOTATION: "{}"}}, "spec": spec}),
        ]);
        let found = findings(&report, now()).into_iter().find(|found| found.check == "nodes").unwrap();
        let remedy = found.remedy.unwrap();
        assert!(!remedy.contains("annotate") || remedy.contains("uncordon n1 && "), "{spec}: {remedy}");
    }
}

/// A maintenance of n1 that is being deleted.
fn ending(finalizers: &[&str], since: &str) -> GroupedMaintenance {
    let spec = NodeMaintenanceSpec { node_name: "n1".into(), ..NodeMaintenanceSpec::default() };
    let mut maintenance = NodeMaintenance::new("n1", spec);
    maintenance.metadata = ObjectMeta {
        deletion_timestamp: Some(k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(
            since.parse().unwrap(),
        )),
        finalizers: Some(finalizers.iter().map(ToString::to_string).collect()),
        ..maintenance.metadata
    };
    GroupedMaintenance { group: Group::default(), maintenance }
}

#[test]
fn a_maintenance_without_a_reconciler_is_reported_at_once_and_a_slow_one_later() {
    check("maintenances", CheckResult::Fail, "there is no leader: n1", |report| {
        report.maintenances = Ok(vec![ending(&[FINALIZER], NOW)]);
        report.lease = Ok(LeaderLease::default());
    });
    check("maintenances", CheckResult::Ok, "1 in total", |report| {
        report.maintenances = Ok(vec![ending(&[FINALIZER], NOW)]);
    });
    let long_ago = "2026-01-02T02:58:00Z";
    check("maintenances", CheckResult::Warn, "more than 5 minutes: n1", |report| {
        report.maintenances = Ok(vec![ending(&["others.example.com/hold"], long_ago)]);
    });
}

#[test]
fn a_maintenance_that_a_roll_keeps_is_not_blocked_and_its_roll_is_named() {
    let kept = |label: Option<&str>| {
        let mut object = ending(&[ROLL_FINALIZER], "2026-01-01T00:00:00Z");
        object.maintenance.metadata.labels =
            label.map(|roll| [(ROLL_LABEL.to_owned(), roll.to_owned())].into());
        object
    };
    let expected =
        "1 kept by a roll after the node returned to service: n1; `kubectl nm roll status kernel` shows";
    check("maintenances", CheckResult::Ok, expected, |report| {
        report.maintenances = Ok(vec![kept(Some("kernel"))]);
        // nm-reconciler has done its part.
        report.lease = Ok(LeaderLease::default());
    });
    // No roll removes the finalizer, because none has the object.
    check("maintenances", CheckResult::Warn, "more than 5 minutes: n1", |report| {
        report.maintenances = Ok(vec![kept(None)]);
    });
}

#[test]
fn an_incompatible_or_unknown_version_is_reported() {
    let image = |image: &str| {
        let mut found = deployment(2);
        found["spec"]["template"]["spec"]["containers"][0]["image"] = json!(image);
        Ok(Installation { namespace: "ns".into(), deployment: Some(found), other_operator: None })
    };
    check("versions", CheckResult::Warn, "9.0.0", |report| report.installation = image("x:9.0.0"));
    check("versions", CheckResult::Unknown, "no replica runs", |report| {
        let installation = report.installation.clone().unwrap();
        report.installation = Ok(Installation { deployment: Some(deployment(0)), ..installation });
    });
    check("versions", CheckResult::Warn, "x:mine", |report| report.installation = image("x:mine"));
}

#[test]
fn what_cannot_be_checked_is_never_ok() {
    let no = || Unavailable("forbidden".into());
    let mut report = healthy();
    (report.installation, report.crd, report.lease) = (Err(no()), Err(no()), Err(no()));
    (report.webhook, report.nodes, report.maintenances) = (Err(no()), Err(no()), Err(no()));
    let fine: Vec<&str> = findings(&report, now())
        .iter()
        .filter(|finding| finding.result != CheckResult::Unknown)
        .map(|finding| finding.check)
        .collect();
    assert_eq!(fine, ["cluster"]);
}

#[test]
fn clocks_that_differ_are_reported_and_are_no_failure() {
    let observed = |renewed: &str| Ok(LeaderLease::renewed_at(lease(renewed).lease, now()));
    for renewed in ["2026-01-02T03:03:31.000000Z", "2026-01-02T03:04:39.000000Z"] {
        let expected =
            "pod-a is the leader and renews its lease; its clock and the local clock differ by 34s";
        check("leader", CheckResult::Ok, expected, |report| report.lease = observed(renewed));
        check("maintenances", CheckResult::Ok, "1 in total", |report| {
            report.maintenances = Ok(vec![ending(&[FINALIZER], NOW)]);
            report.lease = observed(renewed);
        });
    }
}
