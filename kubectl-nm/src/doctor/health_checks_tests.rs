use kube::core::ObjectMeta;
use nm_shared::api::names::{DRAIN_TAINT, FINALIZER, KUBEVIRT_DRAIN_TAINT, UNDO_ANNOTATION};
use nm_shared::{Group, NodeMaintenance, NodeMaintenanceSpec};

use super::*;
use crate::doctor::finding::Grade;

const NOW: &str = "2026-01-02T03:04:05Z";

fn now() -> Timestamp {
    NOW.parse().unwrap()
}

fn deployment(available: u64) -> Value {
    json!({"metadata": {"name": "nm-reconciler", "namespace": "node-maintenance"},
        "spec": {"replicas": 2, "template": {"spec": {"containers": [{"image": format!("x:{OWN}")}]}}},
        "status": {"updatedReplicas": 2, "availableReplicas": available}})
}

fn lease(renewed: &str) -> Observed {
    let spec = json!({"holderIdentity": "pod-a", "renewTime": renewed, "leaseDurationSeconds": 15});
    held(json!({"metadata": {"name": "nm-reconciler"}, "spec": spec}))
}

fn held(lease: Value) -> Observed {
    let lease: Lease = serde_json::from_value(lease).unwrap();
    Some(lease).into()
}

fn definition() -> Value {
    let mut found = manifests::definition();
    found["spec"]["conversion"] = json!({"strategy": "None"});
    found["status"] = json!({"conditions": [{"type": "Established", "status": "True"}]});
    found
}

/// A cluster in which all is well.
fn healthy() -> Facts {
    let installed = Installed {
        namespace: "node-maintenance".into(),
        deployment: Some(deployment(2)),
        other_operator: None,
    };
    Facts {
        server: "v1.36.0".into(),
        flags: String::new(),
        installed: Ok(installed),
        pods: Ok(Vec::new()),
        definition: Ok(Some(definition())),
        lease: Ok(lease("2026-01-02T03:04:01.000000Z")),
        node_leases: Ok(Vec::new()),
        configuration: Ok(Some(json!({"webhooks": []}))),
        policies: Ok(service_account::policies()
            .into_iter()
            .map(|policy| (policy.clone(), Some(policy)))
            .collect()),
        granted: Grant::ALL.map(|grant| (grant, Ok(false))).into(),
        answer: Ok(Answer::Given),
        nodes: Ok(vec![json!({"metadata": {"name": "n1"}})]),
        maintenances: Ok(Vec::new()),
        missing: vec![("start", Ok(Vec::new()))],
    }
}

/// The one finding about something, with something else than usual.
#[track_caller]
fn finding(check: &str, change: impl FnOnce(&mut Facts)) -> (Grade, String) {
    let mut facts = healthy();
    change(&mut facts);
    let found = findings(&facts, now());
    let about: Vec<&Finding> = found.iter().filter(|finding| finding.check == check).collect();
    assert_eq!(about.len(), 1, "{found:?}");
    let needs_remedy = about[0].result != Grade::Ok && !about[0].message.starts_with("nobody can tell: ");
    assert_eq!(about[0].remedy.is_some(), needs_remedy, "{:?}", about[0]);
    (about[0].result, about[0].message.clone())
}

#[track_caller]
fn check(check: &str, result: Grade, said: &str, change: impl FnOnce(&mut Facts)) {
    let (found, message) = finding(check, change);
    assert_eq!(found, result, "{message}");
    assert!(message.contains(said), "{message}");
}

#[test]
fn where_all_is_well_nothing_else_is_said() {
    let found = findings(&healthy(), now());
    assert!(found.iter().all(|finding| finding.result == Grade::Ok), "{found:#?}");
    check("leader", Grade::Ok, "pod-a leads and renewed its lease 4s ago", |_| {});
}

/// What is said of a healthy cluster in which something is otherwise.
fn said(change: impl FnOnce(&mut Facts)) -> Vec<(&'static str, Grade, String)> {
    let mut facts = healthy();
    change(&mut facts);
    findings(&facts, now()).into_iter().map(|found| (found.check, found.result, found.message)).collect()
}

#[test]
fn an_installation_by_the_operator_lifecycle_manager_is_whole_too() {
    // It gives the webhook's configuration a name of its own making.
    let found = said(|facts| facts.configuration = Ok(None));
    assert!(found.iter().all(|(_, result, _)| *result == Grade::Ok), "{found:#?}");
    assert!(found.contains(&("webhook", Grade::Ok, "it answers".into())), "{found:#?}");
}

#[test]
fn where_the_medik8s_operator_serves_nothing_fails() {
    let found = said(|facts| {
        facts.installed = Ok(Installed {
            namespace: "ns".into(),
            deployment: None,
            other_operator: Some("nmo/node-maintenance-operator".into()),
        });
        (facts.lease, facts.configuration) = (Ok(Observed::default()), Ok(None));
        facts.answer = Ok(Answer::Anothers("admission webhook \"vnodemaintenance.kb.io\" denied".into()));
        facts.maintenances = Ok(vec![ending(&[FINALIZER], NOW)]);
    });
    let wrong: Vec<_> = found.iter().filter(|(_, result, _)| *result != Grade::Ok).collect();
    assert!(
        matches!(wrong[..], [("reconciler", Grade::Warn, said)] if said.contains("serves the objects")),
        "{wrong:#?}"
    );
    let leader = found.iter().find(|(check, ..)| *check == "leader").unwrap();
    assert!(leader.2.contains("nmo/node-maintenance-operator"), "{leader:?}");
}

#[test]
fn a_definition_of_another_version_is_told_by_its_field() {
    check("definition", Grade::Fail, "not defined", |facts| facts.definition = Ok(None));
    check("definition", Grade::Fail, "not served", |facts| {
        let mut found = definition();
        found["status"] = Value::Null;
        facts.definition = Ok(Some(found));
    });
    check("definition", Grade::Warn, "spec.versions[0].", |facts| {
        let mut found = definition();
        found["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]["drain"] =
            Value::Null;
        facts.definition = Ok(Some(found));
    });
}

#[test]
fn a_reconciler_that_does_not_run_or_is_not_alone_is_told() {
    let installed = |deployment: Option<Value>, other: Option<&str>| {
        Ok(Installed { namespace: "ns".into(), deployment, other_operator: other.map(str::to_owned) })
    };
    check("reconciler", Grade::Fail, "not installed", |facts| facts.installed = installed(None, None));
    check("reconciler", Grade::Warn, "x/nmo", |facts| facts.installed = installed(None, Some("x/nmo")));
    check("reconciler", Grade::Fail, "x/nmo", |facts| {
        facts.installed = installed(Some(deployment(2)), Some("x/nmo"));
    });
    check("reconciler", Grade::Warn, "1 of 2", |facts| {
        facts.installed = installed(Some(deployment(1)), None);
    });
    check("reconciler", Grade::Fail, "0 of 2", |facts| {
        facts.installed = installed(Some(deployment(0)), None);
    });
    check("leader", Grade::Fail, "nobody leads", |facts| facts.lease = Ok(Observed::default()));
    check("leader", Grade::Unknown, "nobody can tell: there is no lease", |facts| {
        (facts.installed, facts.lease) = (installed(None, None), Ok(Observed::default()));
    });
    check("leader", Grade::Fail, "nobody leads", |facts| {
        facts.lease = Ok(lease("2026-01-02T03:03:00.000000Z"));
    });
}

#[test]
fn a_reconciler_without_leader_election_is_seen_by_its_work() {
    let status = json!({"phase": "Running", "lastUpdate": "2026-01-02T03:01:05Z"});
    let at_work = || {
        let mut ending = ending(&[FINALIZER], NOW);
        ending.maintenance.status = serde_json::from_value(status.clone()).unwrap();
        Ok(vec![ending])
    };
    let lapsed = || Ok(lease("2026-01-02T03:00:00.000000Z"));
    let said = "nobody leads, but a reconciler without leader election was at work 3m ago";
    check("leader", Grade::Warn, said, |facts| (facts.lease, facts.maintenances) = (lapsed(), at_work()));
    check("maintenances", Grade::Ok, "1 there", |facts| {
        (facts.lease, facts.maintenances) = (lapsed(), at_work());
    });
    check("leader", Grade::Fail, "nobody leads: ", |facts| facts.lease = lapsed());
    let holderless = || held(json!({"metadata": {"name": "nm-reconciler"}}));
    check("leader", Grade::Unknown, "nobody can tell: nobody holds the lease", |facts| {
        (facts.lease, facts.installed) = (Ok(holderless()), Ok(Installed::default()));
    });
}

#[test]
fn a_webhook_that_does_not_answer_is_told_from_one_that_nobody_asks() {
    let failed = || Ok(Answer::Failed("x509: unknown authority".into()));
    check("webhook", Grade::Fail, "x509: unknown authority", |facts| facts.answer = failed());
    check("webhook", Grade::Fail, "nothing against", |facts| facts.answer = Ok(Answer::NotAsked));
    check("webhook", Grade::Warn, "no webhook", |facts| {
        (facts.configuration, facts.answer) = (Ok(None), Ok(Answer::NotAsked));
    });
    check("webhook", Grade::Warn, "kb.io", |facts| facts.answer = Ok(Answer::Anothers("vnm.kb.io".into())));
    check("webhook", Grade::Ok, "it answers", |facts| facts.configuration = Err("forbidden".into()));
}

#[test]
fn a_certificate_is_told_before_it_expires() {
    for (until, result, said) in [
        ("2026-01-02T03:04:05Z", Grade::Fail, "has expired at 2026-01-02"),
        ("2026-01-08T00:00:00Z", Grade::Warn, "expires at 2026-01-08"),
        ("2026-03-01T00:00:00Z", Grade::Ok, "good until 2026-03-01"),
    ] {
        let bundle = certificate::tests::bundle(until.parse().unwrap());
        check("webhook", result, said, |facts| {
            facts.configuration = Ok(Some(json!({"webhooks": [{"clientConfig": {"caBundle": bundle}}]})));
        });
    }
}

/// What is done about a finding.
fn remedy(check: &str, change: impl FnOnce(&mut Facts)) -> String {
    let mut facts = healthy();
    change(&mut facts);
    let found = findings(&facts, now()).into_iter().find(|finding| finding.check == check).unwrap();
    found.remedy.unwrap_or_default()
}

#[test]
fn nobody_is_sent_to_the_log_of_a_deployment_that_is_not_there() {
    let lapsed = || Ok(lease("2026-01-02T03:03:00.000000Z"));
    assert!(remedy("leader", |facts| facts.lease = lapsed()).contains("logs deployment/nm-reconciler"));
    let gone = remedy("leader", |facts| {
        facts.lease = lapsed();
        facts.installed = Ok(Installed { namespace: "ns".into(), ..Installed::default() });
    });
    assert_eq!(gone, "`kubectl nm install` mends that");
}

#[test]
fn permissions_are_one_line_where_none_is_missing() {
    let all = "you have every permission that the commands need";
    check("permissions", Grade::Ok, all, |facts| {
        facts.missing =
            ["start", "start --wait", "plan", "install"].map(|command| (command, Ok(Vec::new()))).to_vec();
    });
}

#[test]
fn what_a_maintenance_left_behind_is_told_with_its_way_back() {
    let node = |name: &str, spec: Value| json!({"metadata": {"name": name, "annotations": {UNDO_ANNOTATION: "{}"}}, "spec": spec});
    let drained = |taint: &str| {
        node("n1", json!({"unschedulable": true, "taints": [{"key": taint, "effect": "NoSchedule"}]}))
    };
    for taint in [DRAIN_TAINT, KUBEVIRT_DRAIN_TAINT] {
        check("nodes", Grade::Warn, "1 cordoned by a maintenance that is gone: n1", |facts| {
            facts.nodes = Ok(vec![drained(taint)]);
        });
    }
    check("nodes", Grade::Warn, "1 cordoned, with a note of a maintenance that is gone: n2", |facts| {
        facts.nodes = Ok(vec![node("n2", json!({"unschedulable": true})), node("n3", json!({}))]);
    });
    check("nodes", Grade::Warn, "1 with a note of a maintenance that is gone: n2", |facts| {
        facts.nodes = Ok(vec![node("n2", json!({}))]);
    });
    let mut stripped = drained(DRAIN_TAINT);
    stripped["metadata"]["annotations"] = json!({});
    check("nodes", Grade::Warn, "1 tainted for a maintenance that does not exist: n1", |facts| {
        facts.nodes = Ok(vec![stripped]);
    });
    for group in Group::ALL {
        check("nodes", Grade::Ok, "none", |facts| {
            facts.nodes = Ok(vec![drained(group.drain_taint())]);
            facts.maintenances = Ok(vec![Grouped { group, ..ending(&[], NOW) }]);
        });
    }
}

#[test]
fn what_is_to_be_pasted_leads_to_the_same_cluster() {
    let mut facts = healthy();
    facts.flags = String::from(" --context=c");
    facts.definition = Ok(None);
    (facts.lease, facts.answer) = (Ok(Observed::default()), Ok(Answer::NotAsked));
    facts.installed = Ok(Installed { deployment: Some(deployment(0)), ..facts.installed.unwrap() });
    let left = |name: &str, taints: Value| {
        let metadata = json!({"name": name, "annotations": {UNDO_ANNOTATION: "{}"}});
        json!({"metadata": metadata, "spec": {"unschedulable": true, "taints": taints}})
    };
    for taints in [json!([]), json!([{"key": DRAIN_TAINT, "effect": "NoSchedule"}])] {
        facts.nodes = Ok(vec![left("n1", taints)]);
        for found in findings(&facts, now()) {
            let remedy = found.remedy.unwrap_or_default();
            let commands = remedy.split('`').skip(1).step_by(2).flat_map(|span| span.split(" && "));
            for command in commands {
                assert!(command.contains(" --context=c"), "{remedy}");
            }
        }
    }
}

#[test]
fn the_record_of_a_cordon_is_never_to_be_thrown_away_alone() {
    for spec in [
        json!({"unschedulable": true}),
        json!({"taints": [{"key": DRAIN_TAINT, "effect": "NoSchedule"}]}),
        json!({"taints": [{"key": KUBEVIRT_DRAIN_TAINT, "effect": "NoSchedule"}]}),
    ] {
        let mut facts = healthy();
        facts.nodes = Ok(vec![
            json!({"metadata": {"name": "n1", "annotations": {UNDO_ANNOTATION: "{}"}}, "spec": spec}),
        ]);
        let found = findings(&facts, now()).into_iter().find(|found| found.check == "nodes").unwrap();
        let remedy = found.remedy.unwrap();
        assert!(!remedy.contains("annotate") || remedy.contains("uncordon n1 && "), "{spec}: {remedy}");
    }
}

/// A maintenance of n1 that is being deleted.
fn ending(finalizers: &[&str], since: &str) -> Grouped {
    let spec = NodeMaintenanceSpec { node_name: "n1".into(), ..NodeMaintenanceSpec::default() };
    let mut maintenance = NodeMaintenance::new("n1", spec);
    maintenance.metadata = ObjectMeta {
        deletion_timestamp: Some(k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(
            since.parse().unwrap(),
        )),
        finalizers: Some(finalizers.iter().map(ToString::to_string).collect()),
        ..maintenance.metadata
    };
    Grouped { group: Group::default(), maintenance }
}

#[test]
fn a_maintenance_that_nobody_ends_is_told_at_once_and_a_slow_one_in_time() {
    check("maintenances", Grade::Fail, "nobody leads: n1", |facts| {
        facts.maintenances = Ok(vec![ending(&[FINALIZER], NOW)]);
        facts.lease = Ok(Observed::default());
    });
    check("maintenances", Grade::Ok, "1 there", |facts| {
        facts.maintenances = Ok(vec![ending(&[FINALIZER], NOW)]);
    });
    let long_ago = "2026-01-02T02:58:00Z";
    check("maintenances", Grade::Warn, "more than 5 minutes: n1", |facts| {
        facts.maintenances = Ok(vec![ending(&["others.example.com/hold"], long_ago)]);
    });
}

#[test]
fn a_version_that_does_not_fit_or_tell_is_told() {
    let image = |image: &str| {
        let mut found = deployment(2);
        found["spec"]["template"]["spec"]["containers"][0]["image"] = json!(image);
        Ok(Installed { namespace: "ns".into(), deployment: Some(found), other_operator: None })
    };
    check("versions", Grade::Warn, "9.0.0", |facts| facts.installed = image("x:9.0.0"));
    check("versions", Grade::Warn, "x:mine", |facts| facts.installed = image("x:mine"));
}

#[test]
fn what_cannot_be_learnt_is_never_fine() {
    let no = || String::from("forbidden");
    let mut facts = healthy();
    (facts.installed, facts.definition, facts.lease) = (Err(no()), Err(no()), Err(no()));
    (facts.answer, facts.nodes, facts.maintenances) = (Err(no()), Err(no()), Err(no()));
    facts.missing = vec![("start", Err(no()))];
    let fine: Vec<&str> = findings(&facts, now())
        .iter()
        .filter(|finding| finding.result != Grade::Unknown)
        .map(|finding| finding.check)
        .collect();
    assert_eq!(fine, ["cluster"]);
}

#[test]
fn clocks_that_differ_are_told_and_nobody_is_blamed() {
    let observed = |renewed: &str| Ok(Observed::renewed_at(lease(renewed).lease, now()));
    for renewed in ["2026-01-02T03:03:31.000000Z", "2026-01-02T03:04:39.000000Z"] {
        let said = "pod-a leads and renews its lease; its clock and that of this machine differ by 34s";
        check("leader", Grade::Ok, said, |facts| facts.lease = observed(renewed));
        check("maintenances", Grade::Ok, "1 there", |facts| {
            facts.maintenances = Ok(vec![ending(&[FINALIZER], NOW)]);
            facts.lease = observed(renewed);
        });
    }
}
