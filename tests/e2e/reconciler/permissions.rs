//! The reconciler's permissions are exactly those that it uses.
//!
//! Every suite runs it with the permissions of the manifests alone, so a missing one fails a test. This suite detects
//! superfluous ones. Only a sandbox logs which permissions are used.

use std::collections::BTreeSet;

use k8s_openapi::api::rbac::v1::PolicyRule;
use kube::ResourceExt;
use kube::api::{Patch, PatchParams};
use kube_sandbox::request_log::{Entry, RequestLog};
use nm_shared::cluster::node_lease;
use nm_shared::{Group, Phase};
use nm_tests::cluster::{Cluster, has_sandbox};
use nm_tests::kubevirt::{LONG_MIGRATION, limit_migrations, run_migratable_vm_on};
use nm_tests::maintenance::{patch_drain, start, start_with_drain, stop, until_drained, until_status};
use nm_tests::manifests;
use nm_tests::older_groups::{OLDER, install, start_in_group, stop_in_group, until_phase_in_group};
use nm_tests::reconciler::Reconciler;
use nm_tests::volumes::Volumes;
use nm_tests::wait::{TEST_TIMEOUT, wait_until};
use nm_tests::webhook::serve_webhook;
use nm_tests::workload::{Workload, node_of};
use serde_json::json;

/// `VERB RESOURCE.GROUP`, with the subresource, and with the namespace if it is limited to one.
type Permission = String;

/// A rule and its namespace; `None` stands for the whole cluster.
type Grant = (Option<String>, PolicyRule);

/// Resources of which other programs have objects too: access must be limited to names.
const SHARED_RESOURCES: [&str; 3] =
    ["customresourcedefinitions", "secrets", "validatingwebhookconfigurations"];

fn permission(verb: &str, group: &str, resource: &str) -> Permission {
    format!("{verb} {resource}.{group}")
}

fn in_namespace(permission: &Permission, namespace: &str) -> Permission {
    format!("{permission} in {namespace}")
}

fn granted(grants: &[Grant]) -> BTreeSet<Permission> {
    let mut permissions = BTreeSet::new();
    for (namespace, rule) in grants {
        assert!(rule.non_resource_urls.is_none(), "the reconciler reads no other paths: {rule:?}");
        for group in rule.api_groups.iter().flatten() {
            for resource in rule.resources.iter().flatten() {
                let here = rule.verbs.iter().map(|verb| permission(verb, group, resource));
                permissions.extend(here.map(|permission| match namespace {
                    Some(namespace) => in_namespace(&permission, namespace),
                    None => permission,
                }));
            }
        }
    }
    permissions
}

/// The permissions that an account used, and those that it was refused. A cluster-wide permission counts as used in any
/// namespace.
fn used(
    log: &RequestLog,
    account: &str,
    granted: &BTreeSet<Permission>,
) -> (BTreeSet<Permission>, Vec<Permission>) {
    let (mut permissions, mut refused) = (BTreeSet::new(), Vec::new());
    let in_scope = |permission: Permission, namespace: &str| {
        let everywhere = granted.contains(&permission) || namespace.is_empty();
        if everywhere { permission } else { in_namespace(&permission, namespace) }
    };
    for entry in of_account(log, account) {
        let below = if entry.subresource.is_empty() { "" } else { "/" };
        let resource = format!("{}{below}{}", entry.resource, entry.subresource);
        // For a longer path below a resource the API server checks the first part, and the aggregated server the whole path.
        let mut parts = resource.splitn(3, '/');
        if let (Some(plural), Some(first), Some(_)) = (parts.next(), parts.next(), parts.next()) {
            let first = permission(entry.verb, &entry.group, &format!("{plural}/{first}"));
            permissions.insert(in_scope(first, &entry.namespace));
        }
        let permission = in_scope(permission(entry.verb, &entry.group, &resource), &entry.namespace);
        if entry.code == 403 {
            refused.push(permission.clone());
        }
        permissions.insert(permission);
    }
    (permissions, refused)
}

/// All requests of an account but discovery, whose paths are no resources and which is open to everyone.
fn of_account(log: &RequestLog, account: &str) -> Vec<Entry> {
    let is_its = |entry: &Entry| entry.user == account && !entry.resource.starts_with('/');
    log.all().into_iter().filter(is_its).collect()
}

/// Checks that `resourceNames` are exactly the names that are used. In the program's own namespace every rule but one for
/// `create`, which cannot be limited to names, must have them.
fn check_names(grants: &[Grant], log: &RequestLog, account: &str, own: &str) {
    let requests = of_account(log, account);
    let definitions = OLDER.map(Group::definition);
    for (namespace, rule) in grants {
        let has = |list: &Option<Vec<String>>, wanted: &str| list.iter().flatten().any(|one| one == wanted);
        let names: BTreeSet<&str> = rule.resource_names.iter().flatten().map(String::as_str).collect();
        if names.is_empty() {
            let others = SHARED_RESOURCES.iter().any(|resource| has(&rule.resources, resource));
            let may_be_narrower = others || namespace.as_deref() == Some(own);
            assert!(!may_be_narrower || rule.verbs == ["create"], "not limited to names: {rule:?}");
            continue;
        }
        // A list or a watch is limited to a name by its selector, which the log does not have.
        let of_rule = requests.iter().filter(|entry| {
            has(&rule.api_groups, &entry.group)
                && has(&rule.resources, &entry.resource)
                && namespace.as_ref().is_none_or(|namespace| *namespace == entry.namespace)
                && !entry.name.is_empty()
        });
        let mut used: BTreeSet<&str> = of_rule.map(|entry| entry.name.as_str()).collect();
        if has(&rule.resources, "customresourcedefinitions") {
            used.extend(definitions.iter().map(String::as_str));
        }
        assert_eq!(names, used, "{rule:?}");
    }
}

/// Uses every feature of the reconciler: leader election, the webhook, a pod deleted past its budget, the renewal of a
/// lease, an event that repeats because the same node is drained twice, a volume to wait for, a pod that is replaced first, a
/// cancelled virtual machine migration, and a maintenance of each older group.
async fn use_every_feature(cluster: &Cluster) -> Reconciler {
    for component in manifests::PERMISSION_COMPONENTS {
        cluster.grant(component).await;
    }
    let workload = Workload::new(cluster, "permissions").await;
    let node = node_of(&workload.pod_behind_budget("cart").await).to_owned();
    // Certificates are renewed meanwhile.
    let flags = ["--node-conditions", "--leader-elect", "--webhook-cert-lifetime", "12"];
    let reconciler = serve_webhook(cluster, &flags).await;
    start(cluster, "e2e-permissions", &node).await;
    until_status(cluster, "e2e-permissions", "blocked", |status| !status.blocked_pods.is_empty()).await;
    patch_drain(cluster, "e2e-permissions", json!({"deleteAfterSeconds": 1})).await;
    until_drained(cluster, "e2e-permissions").await;
    let leases = cluster.node_leases();
    let old = Patch::Merge(json!({"spec": {"renewTime": "2026-01-01T00:00:00.000000Z"}}));
    leases.patch(&node_lease::name(&node), &PatchParams::default(), &old).await.unwrap();
    wait_until(&leases, &node_lease::name(&node), "renewed", |lease| {
        let spec = lease.and_then(|lease| lease.spec.as_ref());
        let renewed = spec.and_then(|spec| spec.renew_time.as_ref());
        renewed.is_some_and(|at| at.0.to_string().as_str() > "2026-02")
    })
    .await;
    stop(cluster, "e2e-permissions").await;
    let volumes = Volumes::new(cluster).await;
    volumes.create(&workload, "e2e-permissions", json!({})).await;
    volumes.attach("e2e-permissions", "e2e-permissions", &node).await;
    start_with_drain(cluster, "e2e-again", &node, json!({"waitForVolumeDetach": {}})).await;
    until_status(cluster, "e2e-again", "the claim of the volume is known", |status| {
        status.attached_volumes.iter().flatten().any(|volume| volume.claim.is_some())
    })
    .await;
    volumes.detach("e2e-permissions").await;
    until_drained(cluster, "e2e-again").await;
    stop(cluster, "e2e-again").await;
    let surged = node_of(&workload.pod_behind_budget("web").await).to_owned();
    start_with_drain(cluster, "e2e-surge", &surged, json!({"surge": "WhenBlocked"})).await;
    until_drained(cluster, "e2e-surge").await;
    stop(cluster, "e2e-surge").await;
    limit_migrations(cluster, 1).await;
    for vm in ["vm", "other-vm"] {
        run_migratable_vm_on(cluster, workload.namespace(), vm, &node).await;
    }
    start(cluster, "e2e-vm", &node).await;
    until_status(cluster, "e2e-vm", "one moves and one would stay", |status| {
        let pods = status.migrating_pods.as_deref().unwrap_or_default();
        pods.iter().any(|pod| pod.since.is_some()) && pods.iter().any(|pod| pod.stays_on_stop)
    })
    .await;
    stop(cluster, "e2e-vm").await;
    for group in OLDER {
        install(&cluster.client, group).await;
        start_in_group(&cluster.client, group, "e2e-older", &node).await;
        until_phase_in_group(&cluster.client, group, "e2e-older", Phase::Running).await;
        stop_in_group(&cluster.client, group, "e2e-older").await;
    }
    reconciler
}

#[tokio::test(flavor = "multi_thread")]
async fn the_reconciler_has_exactly_the_permissions_that_it_uses() {
    if !has_sandbox("only a sandbox logs which permissions are used") {
        return;
    }
    let cluster = Cluster::of_sandbox(2, 0, |sandbox| sandbox.with_kubevirt(LONG_MIGRATION).unwrap()).await;
    let _reconciler = use_every_feature(&cluster).await;
    let account = manifests::service_account();
    let own = account.namespace().unwrap();
    let account = format!("system:serviceaccount:{own}:{}", account.name_any());
    let grants = manifests::rules();
    let granted = granted(&grants);
    let log = cluster.sandbox().unwrap().requests();
    // The last events may be published after their objects are gone.
    let all_used = log.until(|log| granted.is_subset(&used(log, &account, &granted).0));
    let _ = tokio::time::timeout(TEST_TIMEOUT, all_used).await;
    let (used, refused) = used(log, &account, &granted);
    assert!(refused.is_empty(), "refused: {refused:?}");
    let unused: Vec<_> = granted.difference(&used).collect();
    assert!(unused.is_empty(), "granted in manifests/ and never used: {unused:?}");
    let uncovered: Vec<_> = used.difference(&granted).collect();
    assert!(uncovered.is_empty(), "used without being granted in manifests/: {uncovered:?}");
    check_names(&grants, log, &account, &own);
}
