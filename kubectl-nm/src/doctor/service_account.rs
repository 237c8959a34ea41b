//! What the reconciler's service account may do, and whether that is neither too little nor too much.
//!
//! Everything here is pure.

use nm_shared::{Grant, Grouped};
use serde_json::{Value, json};

use crate::client::reconciler_settings::{Given, NODE_CONDITIONS};
use crate::doctor::finding::{Finding, Known, ok, unknown, warn};
use crate::install::difference::first_deviation;
use crate::install::manifests;

/// What of a policy there is in the cluster, beside what is installed.
pub(crate) type Policies = Vec<(Value, Option<Value>)>;

/// Whether the permission to patch the webhook configuration is narrowed to what the reconciler writes there.
pub(crate) fn policy(server: &str, policies: &Known<Policies>, install: &str) -> Finding {
    const CHECK: &str = "policy";
    let policies = match policies {
        Err(why) => return unknown(CHECK, why),
        Ok(policies) => policies,
    };
    if minor(server).is_some_and(|minor| minor < 30) {
        return warn(
            CHECK,
            "nm-reconciler may change all of its webhook configuration: Kubernetes has no ValidatingAdmissionPolicy before 1.30",
            "Kubernetes 1.30 or later narrows that; `kubectl nm install` then applies the policy",
        );
    }
    let wrong = policies.iter().find_map(|(wanted, found)| {
        let kind = wanted["kind"].as_str().unwrap_or_default();
        match found {
            None => Some(format!("there is no {kind} nm-reconciler")),
            Some(found) => {
                let deviation = first_deviation(&json!({"spec": wanted["spec"]}), found)?;
                Some(format!("{deviation} of the {kind} nm-reconciler differs"))
            }
        }
    });
    match wrong {
        None => ok(CHECK, "nm-reconciler may change only the certificate and the path of its webhook"),
        Some(wrong) => warn(
            CHECK,
            format!("nm-reconciler may change all of its webhook configuration: {wrong}"),
            install,
        ),
    }
}

/// The `30` of `v1.30.4`.
fn minor(server: &str) -> Option<u32> {
    let minor = server.trim_start_matches('v').split('.').nth(1)?;
    minor.trim_end_matches('+').parse().ok()
}

/// Whether the reconciler has the permissions that features in use need. `may` says for each whether it has it.
pub(crate) fn permissions(
    deployment: &Value,
    maintenances: &Known<Vec<Grouped>>,
    may: &[(Grant, Known<bool>)],
) -> Finding {
    const CHECK: &str = "grants";
    let (mut granted, mut untold) = (Vec::new(), None);
    for (grant, may) in may {
        // Whoever has a permission needs no question whether it is used.
        let is_missed = match may {
            Ok(true) => {
                granted.push(grant.as_str());
                continue;
            }
            Ok(false) => is_used(*grant, deployment, maintenances),
            Err(why) => Err(why.clone()),
        };
        match is_missed {
            Ok(false) => {}
            Ok(true) => {
                let (verb, resource) = grant.permission();
                return warn(
                    CHECK,
                    format!("nm-reconciler may not {verb} {resource}, which {} needs", grant.feature()),
                    format!("`kubectl nm install --grant {grant}` grants it"),
                );
            }
            Err(why) => untold = untold.or(Some(why)),
        }
    }
    if let Some(why) = untold {
        return unknown(CHECK, &why);
    }
    match granted.as_slice() {
        [] => ok(CHECK, "nm-reconciler has the permissions of the features in use"),
        granted => ok(
            CHECK,
            format!("nm-reconciler has the permissions of the features in use, and {}", granted.join(", ")),
        ),
    }
}

fn is_used(grant: Grant, deployment: &Value, maintenances: &Known<Vec<Grouped>>) -> Known<bool> {
    match grant {
        Grant::NodeConditions => match NODE_CONDITIONS.switch_of(deployment) {
            Given::Nothing => Ok(false),
            Given::Value(value) => Ok(value == "true"),
            Given::Elsewhere => Err(String::from("NM_NODE_CONDITIONS is set from elsewhere")),
        },
        Grant::PodDeletion => maintenances.as_ref().map_err(Clone::clone).map(|maintenances| {
            maintenances.iter().any(|object| {
                let drain = object.maintenance.spec.drain.as_ref();
                drain.is_some_and(|drain| drain.delete_after_seconds > 0)
            })
        }),
    }
}

/// The policies as they are installed.
pub(crate) fn policies() -> Vec<Value> {
    let is_policy = |object: &Value| {
        object["kind"].as_str().is_some_and(|kind| kind.starts_with("ValidatingAdmissionPolicy"))
    };
    manifests::objects(&manifests::Settings::default()).into_iter().filter(is_policy).collect()
}

#[cfg(test)]
mod tests {
    use nm_shared::{DrainSpec, Group, NodeMaintenance, NodeMaintenanceSpec};

    use super::*;
    use crate::doctor::finding::Grade;

    #[track_caller]
    fn check(finding: &Finding, result: Grade, said: &str) {
        assert_eq!(finding.result, result, "{finding:?}");
        assert!(finding.message.contains(said), "{said} in {finding:?}");
    }

    #[test]
    fn a_policy_that_is_missing_or_changed_is_told() {
        let whole: Policies = policies().into_iter().map(|policy| (policy.clone(), Some(policy))).collect();
        assert_eq!(whole.len(), 2);
        let found = |change: &dyn Fn(&mut Policies)| {
            let mut policies = whole.clone();
            change(&mut policies);
            policy("v1.36.2", &Ok(policies), "install")
        };
        check(&found(&|_| {}), Grade::Ok, "may change only");
        check(&found(&|all| all[1].1 = None), Grade::Warn, "no ValidatingAdmissionPolicyBinding");
        let audited = |all: &mut Policies| {
            let mut binding = all[1].0.clone();
            binding["spec"]["validationActions"] = json!(["Audit"]);
            all[1].1 = Some(binding);
        };
        check(&found(&audited), Grade::Warn, "spec.validationActions");
        check(&policy("v1.29.3", &Ok(Vec::new()), "install"), Grade::Warn, "before 1.30");
        check(&policy("v1.36.2", &Err("no".into()), "install"), Grade::Unknown, "nobody can tell: no");
    }

    #[test]
    fn a_permission_is_missed_only_where_it_is_used() {
        let container =
            |container: Value| json!({"spec": {"template": {"spec": {"containers": [container]}}}});
        let plain = container(json!({"name": "reconciler"}));
        let by_flag = container(json!({"args": ["--node-conditions"]}));
        let by_variable = container(json!({"env": [{"name": "NM_NODE_CONDITIONS", "value": "true"}]}));
        let off = container(json!({"env": [{"name": "NM_NODE_CONDITIONS", "value": "false"}]}));
        let drain = |delete_after_seconds| {
            let drain = Some(DrainSpec { delete_after_seconds, ..DrainSpec::default() });
            let spec = NodeMaintenanceSpec { drain, ..NodeMaintenanceSpec::default() };
            Ok(vec![Grouped { maintenance: NodeMaintenance::new("m", spec), group: Group::Medik8s }])
        };
        let may = |conditions: bool, deletion: bool| {
            [(Grant::NodeConditions, Ok(conditions)), (Grant::PodDeletion, Ok(deletion))]
        };
        for (deployment, after, may, result, said) in [
            (&plain, 0, may(false, false), Grade::Ok, "features in use"),
            (&off, 0, may(false, true), Grade::Ok, "and pod-deletion"),
            (&by_flag, 0, may(false, false), Grade::Warn, "may not patch nodes/status"),
            (&by_variable, 0, may(false, false), Grade::Warn, "--node-conditions needs"),
            (&by_flag, 0, may(true, false), Grade::Ok, "node-conditions"),
            (&plain, 5, may(false, false), Grade::Warn, "may not delete pods"),
            (&plain, 5, may(false, true), Grade::Ok, "pod-deletion"),
        ] {
            check(&permissions(deployment, &drain(after), &may), result, said);
        }
    }

    #[test]
    fn only_what_the_reconciler_itself_is_set_to_uses_a_permission() {
        let may = [(Grant::NodeConditions, Ok(false))];
        let found = |container: Value, beside: Value| {
            let deployment = json!({"spec": {"template": {"spec": {"containers": [beside, container]}}}});
            permissions(&deployment, &Ok(Vec::new()), &may)
        };
        let ours = |args: Value, env: Value| json!({"name": "reconciler", "args": args, "env": env});
        let variable = |value: &str| json!([{"name": "NM_NODE_CONDITIONS", "value": value}]);
        let sidecar = || json!({"name": "proxy"});
        let unset = ours(json!([]), json!([]));
        check(&found(unset, json!({"name": "proxy", "args": ["--node-conditions"]})), Grade::Ok, "in use");
        check(&found(ours(json!([]), variable("true")), sidecar()), Grade::Warn, "may not patch");
        check(&found(ours(json!([]), variable("false")), sidecar()), Grade::Ok, "in use");
        let by_flag =
            ours(json!(["--log-level", "info", "--node-conditions", "--leader-elect"]), variable("false"));
        check(&found(by_flag, sidecar()), Grade::Warn, "may not patch");
        let source = json!([{"name": "NM_NODE_CONDITIONS", "valueFrom": {"configMapKeyRef": {"key": "k"}}}]);
        let told = "nobody can tell: NM_NODE_CONDITIONS is set from elsewhere";
        check(&found(ours(json!([]), source), sidecar()), Grade::Unknown, told);
    }

    #[test]
    fn maintenances_that_may_not_be_listed_leave_open_whether_a_permission_is_missed() {
        let deployment = json!({"spec": {"template": {"spec": {"containers": [{"name": "reconciler"}]}}}});
        let found =
            |may| permissions(&deployment, &Err("forbidden".into()), &[(Grant::PodDeletion, Ok(may))]);
        check(&found(false), Grade::Unknown, "nobody can tell: forbidden");
        check(&found(true), Grade::Ok, "pod-deletion");
    }
}
