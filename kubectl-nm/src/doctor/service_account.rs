//! The permissions of nm-reconciler's service account: enough for the features in use, and limited by a policy.
//!
//! Everything here is pure.

use nm_core::client::reconciler_deployment::{NODE_CONDITIONS, SettingValue};
use nm_shared::{DrainSpec, Grant, GroupedMaintenance, SurgePolicy};
use serde_json::{Value, json};

use crate::doctor::finding::{Fetched, Finding, Unavailable, ok, read, warn};
use crate::install::difference::first_deviation;
use crate::install::manifests;

/// Policies as in the manifests, each with the object in the cluster.
pub(crate) type Policies = Vec<(Value, Option<Value>)>;

/// Whether policies limit the permissions to patch objects to the fields that nm-reconciler writes.
pub(crate) fn policy(server: &str, policies: &Fetched<Policies>, install: &str) -> Fetched<Finding> {
    let policies = read(policies)?;
    if minor(server).is_some_and(|minor| minor < 30) {
        return warn(
            "nm-reconciler can change all fields of what it patches: Kubernetes before 1.30 has no ValidatingAdmissionPolicy",
            "upgrade to Kubernetes 1.30 or later, then run `kubectl nm install` to apply the policies",
        );
    }
    let wrong = policies.iter().find_map(|(wanted, found)| {
        let kind = wanted["kind"].as_str().unwrap_or_default();
        let name = wanted["metadata"]["name"].as_str().unwrap_or_default();
        match found {
            None => Some(format!("there is no {kind} {name}")),
            Some(found) => {
                let deviation = first_deviation(&json!({"spec": wanted["spec"]}), found)?;
                Some(format!("{deviation} of the {kind} {name} differs"))
            }
        }
    });
    match wrong {
        None => ok("nm-reconciler can change only the fields that it writes"),
        Some(wrong) => warn(format!("nm-reconciler can change more fields than it writes: {wrong}"), install),
    }
}

/// The `30` of `v1.30.4`.
fn minor(server: &str) -> Option<u32> {
    let minor = server.trim_start_matches('v').split('.').nth(1)?;
    minor.trim_end_matches('+').parse().ok()
}

/// Whether nm-reconciler has the optional permissions that the features in use need. `grants` are those that it has.
pub(crate) fn permissions(
    deployment: &Value,
    maintenances: &Fetched<Vec<GroupedMaintenance>>,
    grants: &[(Grant, Fetched<bool>)],
) -> Fetched<Finding> {
    let (mut granted, mut unavailable) = (Vec::new(), None);
    for (grant, is_granted) in grants {
        let is_missing = match is_granted {
            Ok(true) => {
                granted.push(grant.as_str());
                continue;
            }
            Ok(false) => is_used(*grant, deployment, maintenances),
            Err(why) => Err(why.clone()),
        };
        match is_missing {
            Ok(false) => {}
            Ok(true) => {
                return warn(
                    format!("nm-reconciler cannot {}, which {} needs", grant.permits(), grant.feature()),
                    format!("`kubectl nm install --grant {grant}` grants it"),
                );
            }
            Err(why) => unavailable = unavailable.or(Some(why)),
        }
    }
    if let Some(why) = unavailable {
        return Err(why);
    }
    match granted.as_slice() {
        [] => ok("nm-reconciler has the permissions for the features in use"),
        granted => ok(format!(
            "nm-reconciler has the permissions for the features in use, and {}",
            granted.join(", ")
        )),
    }
}

fn is_used(
    grant: Grant,
    deployment: &Value,
    maintenances: &Fetched<Vec<GroupedMaintenance>>,
) -> Fetched<bool> {
    match grant {
        Grant::NodeConditions => match NODE_CONDITIONS.switch_of(deployment) {
            SettingValue::Unset => Ok(false),
            SettingValue::Value(value) => Ok(value == "true"),
            SettingValue::Elsewhere => {
                Err(Unavailable(String::from("the value of NM_NODE_CONDITIONS comes from another object")))
            }
        },
        Grant::PodDeletion => drains_with(maintenances, |drain| drain.delete_after_seconds > 0),
        Grant::VolumeDetach => drains_with(maintenances, |drain| drain.wait_for_volume_detach.is_some()),
        Grant::Surge => drains_with(maintenances, |drain| drain.surge == SurgePolicy::WhenBlocked),
        // Not a permission of nm-reconciler.
        Grant::Roll => Ok(false),
        Grant::VirtualMachines => {
            let maintenances = maintenances.as_ref().map_err(Clone::clone)?;
            let migrates = |object: &GroupedMaintenance| {
                object.maintenance.status.as_ref().is_some_and(|status| status.migrating_pods.is_some())
            };
            Ok(maintenances.iter().any(migrates))
        }
    }
}

/// Whether a maintenance has such a drain.
fn drains_with(
    maintenances: &Fetched<Vec<GroupedMaintenance>>,
    is_such: impl Fn(&DrainSpec) -> bool,
) -> Fetched<bool> {
    let maintenances = maintenances.as_ref().map_err(Clone::clone)?;
    Ok(maintenances.iter().any(|object| object.maintenance.spec.drain.as_ref().is_some_and(&is_such)))
}

/// The policies of an installation with these optional permissions.
pub(crate) fn policies(grants: impl IntoIterator<Item = Grant>) -> Vec<Value> {
    let settings = manifests::Settings { grants: grants.into_iter().collect(), ..Default::default() };
    manifests::objects(&settings).into_iter().filter(manifests::is_policy).collect()
}

#[cfg(test)]
mod tests {
    use nm_shared::{Group, NodeMaintenance, NodeMaintenanceSpec, WaitForVolumeDetach};

    use super::*;
    use crate::doctor::finding::{CheckResult, named};

    #[track_caller]
    fn check(found: &Fetched<Finding>, result: CheckResult, expected: &str) {
        let finding = named("x", found.clone());
        assert_eq!(finding.result, result, "{finding:?}");
        assert!(finding.message.contains(expected), "{expected} in {finding:?}");
    }

    #[test]
    fn a_missing_or_changed_policy_is_reported() {
        let whole: Policies = policies([]).into_iter().map(|policy| (policy.clone(), Some(policy))).collect();
        assert_eq!((whole.len(), policies([Grant::Surge]).len()), (6, 8));
        let found = |change: &dyn Fn(&mut Policies)| {
            let mut policies = whole.clone();
            change(&mut policies);
            policy("v1.36.2", &Ok(policies), "install")
        };
        check(&found(&|_| {}), CheckResult::Ok, "can change only");
        check(&found(&|all| all[1].1 = None), CheckResult::Warn, "no ValidatingAdmissionPolicyBinding");
        let audited = |all: &mut Policies| {
            let mut binding = all[1].0.clone();
            binding["spec"]["validationActions"] = json!(["Audit"]);
            all[1].1 = Some(binding);
        };
        check(&found(&audited), CheckResult::Warn, "spec.validationActions");
        check(&policy("v1.29.3", &Ok(Vec::new()), "install"), CheckResult::Warn, "before 1.30");
        check(
            &policy("v1.36.2", &Err(Unavailable("no".into())), "install"),
            CheckResult::Unknown,
            "cannot be checked: no",
        );
    }

    #[test]
    fn an_optional_permission_is_missing_only_if_its_feature_is_used() {
        let container =
            |container: Value| json!({"spec": {"template": {"spec": {"containers": [container]}}}});
        let plain = container(json!({"name": "reconciler"}));
        let by_flag = container(json!({"args": ["--node-conditions"]}));
        let by_variable = container(json!({"env": [{"name": "NM_NODE_CONDITIONS", "value": "true"}]}));
        let off = container(json!({"env": [{"name": "NM_NODE_CONDITIONS", "value": "false"}]}));
        let drain = |delete_after_seconds| {
            let drain = Some(DrainSpec { delete_after_seconds, ..DrainSpec::default() });
            let spec = NodeMaintenanceSpec { drain, ..NodeMaintenanceSpec::default() };
            Ok(vec![GroupedMaintenance {
                maintenance: NodeMaintenance::new("m", spec),
                group: Group::Medik8s,
            }])
        };
        let may = |conditions: bool, deletion: bool| {
            [(Grant::NodeConditions, Ok(conditions)), (Grant::PodDeletion, Ok(deletion))]
        };
        for (deployment, after, may, result, expected) in [
            (&plain, 0, may(false, false), CheckResult::Ok, "features in use"),
            (&off, 0, may(false, true), CheckResult::Ok, "and pod-deletion"),
            (&by_flag, 0, may(false, false), CheckResult::Warn, "cannot patch nodes/status"),
            (&by_variable, 0, may(false, false), CheckResult::Warn, "--node-conditions needs"),
            (&by_flag, 0, may(true, false), CheckResult::Ok, "node-conditions"),
            (&plain, 5, may(false, false), CheckResult::Warn, "cannot delete pods"),
            (&plain, 5, may(false, true), CheckResult::Ok, "pod-deletion"),
        ] {
            check(&permissions(deployment, &drain(after), &may), result, expected);
        }
    }

    #[test]
    fn volumes_are_read_only_for_a_maintenance_that_waits_for_them() {
        let deployment = json!({"spec": {"template": {"spec": {"containers": [{"name": "reconciler"}]}}}});
        let found = |wait_for_volume_detach: Option<WaitForVolumeDetach>| {
            let drain = Some(DrainSpec { wait_for_volume_detach, ..DrainSpec::default() });
            let spec = NodeMaintenanceSpec { drain, ..NodeMaintenanceSpec::default() };
            let all = vec![GroupedMaintenance {
                maintenance: NodeMaintenance::new("m", spec),
                group: Group::Medik8s,
            }];
            permissions(&deployment, &Ok(all), &[(Grant::VolumeDetach, Ok(false))])
        };
        check(&found(None), CheckResult::Ok, "features in use");
        let missing =
            "cannot watch volumeattachments and get persistentvolumes, which spec.drain.waitForVolumeDetach";
        check(&found(Some(WaitForVolumeDetach::default())), CheckResult::Warn, missing);
    }

    #[test]
    fn only_settings_of_nm_reconciler_itself_use_a_permission() {
        let may = [(Grant::NodeConditions, Ok(false))];
        let found = |container: Value, beside: Value| {
            let deployment = json!({"spec": {"template": {"spec": {"containers": [beside, container]}}}});
            permissions(&deployment, &Ok(Vec::new()), &may)
        };
        let ours = |args: Value, env: Value| json!({"name": "reconciler", "args": args, "env": env});
        let variable = |value: &str| json!([{"name": "NM_NODE_CONDITIONS", "value": value}]);
        let sidecar = || json!({"name": "proxy"});
        let unset = ours(json!([]), json!([]));
        check(
            &found(unset, json!({"name": "proxy", "args": ["--node-conditions"]})),
            CheckResult::Ok,
            "in use",
        );
        check(&found(ours(json!([]), variable("true")), sidecar()), CheckResult::Warn, "cannot patch");
        check(&found(ours(json!([]), variable("false")), sidecar()), CheckResult::Ok, "in use");
        let by_flag =
            ours(json!(["--log-level", "info", "--node-conditions", "--leader-elect"]), variable("false"));
        check(&found(by_flag, sidecar()), CheckResult::Warn, "cannot patch");
        let source = json!([{"name": "NM_NODE_CONDITIONS", "valueFrom": {"configMapKeyRef": {"key": "k"}}}]);
        let unavailable = "cannot be checked: the value of NM_NODE_CONDITIONS comes from another object";
        check(&found(ours(json!([]), source), sidecar()), CheckResult::Unknown, unavailable);
    }

    #[test]
    fn without_maintenances_the_use_of_a_permission_is_unknown() {
        let deployment = json!({"spec": {"template": {"spec": {"containers": [{"name": "reconciler"}]}}}});
        let found = |may| {
            permissions(&deployment, &Err(Unavailable("forbidden".into())), &[(Grant::PodDeletion, Ok(may))])
        };
        check(&found(false), CheckResult::Unknown, "cannot be checked: forbidden");
        check(&found(true), CheckResult::Ok, "pod-deletion");
    }
}
