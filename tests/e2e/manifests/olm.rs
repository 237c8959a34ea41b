//! What the Operator Lifecycle Manager (OLM) makes of the bundle.
//!
//! OLM grants a bundle's `permissions` in its own namespace only if the operator watches that namespace only. This bundle
//! supports only `AllNamespaces`, and there OLM copies each generated Role to a `ClusterRole`, bound in the whole cluster
//! (`ensureSingletonRBAC` in `pkg/controller/operators/olm/operatorgroup.go` of operator-lifecycle-manager). What OLM grants to
//! every operator with webhooks is in `docs/reference/permissions.md`.

use std::collections::BTreeSet;

use k8s_openapi::api::rbac::v1::PolicyRule;
use kube::ResourceExt;
use kube::api::DynamicObject;
use nm_tests::manifests::{rules, service_account};
use nm_tests::olm_bundle::files;
use serde_json::{Value, json};

/// The objects of the bundle, without the files that only OLM's tools read.
fn bundle() -> Vec<Value> {
    let manifests = files().into_iter().filter(|(file, _)| file.starts_with("manifests/"));
    manifests.map(|(_, text)| serde_saphyr::from_str(&text).unwrap()).collect()
}

fn of_kind(kind: &str) -> Vec<Value> {
    bundle().into_iter().filter(|object| object["kind"] == kind).collect()
}

/// The rules for the account of a list of permissions in the `ClusterServiceVersion`.
fn permissions(list: &str) -> Vec<PolicyRule> {
    let versions = of_kind("ClusterServiceVersion");
    assert_eq!(versions.len(), 1);
    let permissions = &versions[0]["spec"]["install"]["spec"][list];
    let mut found = Vec::new();
    for permission in permissions.as_array().into_iter().flatten() {
        assert_eq!(permission["serviceAccountName"], service_account().name_any());
        found.extend(serde_json::from_value::<Vec<PolicyRule>>(permission["rules"].clone()).unwrap());
    }
    found
}

/// What the account may do in the whole cluster after OLM has installed the bundle.
fn in_cluster() -> Vec<PolicyRule> {
    let mut granted = permissions("clusterPermissions");
    let lifted = permissions("permissions");
    if !lifted.is_empty() {
        // OLM adds this rule to each copy.
        let namespaces =
            json!({"apiGroups": [""], "resources": ["namespaces"], "verbs": ["get", "list", "watch"]});
        granted.push(serde_json::from_value(namespaces).unwrap());
    }
    granted.extend(lifted);
    granted
}

/// What the account may do in its own namespace: OLM leaves the bundle's own Roles there.
fn in_namespace() -> Vec<PolicyRule> {
    let roles = of_kind("Role").into_iter();
    roles.flat_map(|role| serde_json::from_value::<Vec<PolicyRule>>(role["rules"].clone()).unwrap()).collect()
}

/// Each verb on each resource, with the names to which the rule is limited.
fn requests(rules: &[PolicyRule]) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    for rule in rules {
        let only = match rule.resource_names.as_deref().unwrap_or_default() {
            [] => String::new(),
            names => format!(" {}", names.join(",")),
        };
        for resource in rule.resources.iter().flatten() {
            for verb in &rule.verbs {
                found.insert(format!("{verb} {resource}{only}"));
            }
        }
    }
    found
}

#[test]
fn olm_grants_no_write_in_the_whole_cluster_but_those_of_a_drain() {
    let reads = ["get", "list", "watch"];
    let writes = requests(&in_cluster());
    let writes = writes.iter().filter(|request| !reads.contains(&request.split(' ').next().unwrap()));
    let writes: Vec<&str> = writes.map(String::as_str).collect();
    let expected = [
        "create pods/eviction",
        "patch nodemaintenances",
        "patch nodemaintenances/status",
        "patch nodes",
        "update virtualmachineinstances/evacuate",
        "update virtualmachineinstances/evacuate/cancel",
    ];
    assert_eq!(writes, expected);
}

#[test]
fn olm_grants_nothing_on_secrets_and_no_wildcard() {
    for rule in in_cluster().into_iter().chain(in_namespace()) {
        let named = rule.resources.iter().chain(&rule.api_groups).flatten().chain(&rule.verbs);
        let broad: Vec<&String> = named.filter(|name| *name == "*" || *name == "secrets").collect();
        assert!(broad.is_empty(), "{rule:?}");
    }
}

#[test]
fn olm_grants_the_leader_election_only_in_the_namespace_of_the_operator() {
    let lease = |rules: &[PolicyRule]| -> Vec<String> {
        requests(rules).into_iter().filter(|request| request.contains(" leases")).collect()
    };
    assert_eq!(lease(&in_cluster()), Vec::<String>::new());
    let own = service_account().namespace();
    let needed: Vec<PolicyRule> =
        rules().into_iter().filter(|(namespace, _)| *namespace == own).map(|(_, rule)| rule).collect();
    assert_eq!(lease(&in_namespace()), lease(&needed));
    // OLM writes its own namespace into them, but not into the subjects.
    for object in of_kind("RoleBinding") {
        let binding: DynamicObject = serde_json::from_value(object).unwrap();
        assert_eq!(binding.data["subjects"][0]["namespace"], json!(own));
        assert_eq!(binding.data["roleRef"]["name"], of_kind("Role")[0]["metadata"]["name"]);
    }
}
