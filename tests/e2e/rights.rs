//! The reconciler's rights: every suite runs it with those of the manifests alone, so that one too few fails a test;
//! here one too many does. Only a sandbox tells which rights were used.

use std::collections::BTreeSet;

use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::rbac::v1::PolicyRule;
use kube::api::{Patch, PatchParams};
use kube::{Api, ResourceExt};
use nm_sandbox::request_log::{Entry, RequestLog};
use nm_shared::names::LEASE_NAMESPACE;
use nm_shared::{Phase, node_lease};
use nm_tests::cluster::Cluster;
use nm_tests::manifests;
use nm_tests::older_groups::{OLDER, install};
use nm_tests::programs::skipped;
use nm_tests::reconciler::Reconciler;
use nm_tests::until::{PATIENCE, until};
use nm_tests::webhook::serving;
use nm_tests::workload::{Workload, node_of};
use serde_json::json;

use crate::older_groups::{in_phase, start_of, stop_of};
use crate::virtual_machines::{LONG, machine_on, migrating};
use crate::{drained, start, stop};

/// `VERB RESOURCE.GROUP`, with the subresource.
type Right = String;

fn right(verb: &str, group: &str, resource: &str) -> Right {
    format!("{verb} {resource}.{group}")
}

fn granted(rules: &[PolicyRule]) -> BTreeSet<Right> {
    let mut rights = BTreeSet::new();
    for rule in rules {
        assert!(rule.non_resource_urls.is_none(), "the reconciler reads no other paths: {rule:?}");
        for group in rule.api_groups.iter().flatten() {
            for resource in rule.resources.iter().flatten() {
                rights.extend(rule.verbs.iter().map(|verb| right(verb, group, resource)));
            }
        }
    }
    rights
}

/// What an account asked for, and what of it was refused.
fn used(log: &RequestLog, account: &str) -> (BTreeSet<Right>, Vec<Right>) {
    let (mut rights, mut refused) = (BTreeSet::new(), Vec::new());
    // Discovery, which has paths and no resources, is everyone's.
    let is_ours = |entry: &&Entry| entry.user == account && !entry.resource.starts_with('/');
    for entry in log.all().iter().filter(is_ours) {
        let below = if entry.subresource.is_empty() { "" } else { "/" };
        let resource = format!("{}{below}{}", entry.resource, entry.subresource);
        // Of a longer path below a resource the API server asks for the first part, and who serves it for all of it.
        let mut parts = resource.splitn(3, '/');
        if let (Some(plural), Some(first), Some(_)) = (parts.next(), parts.next(), parts.next()) {
            rights.insert(right(entry.verb, &entry.group, &format!("{plural}/{first}")));
        }
        let right = right(entry.verb, &entry.group, &resource);
        if entry.code == 403 {
            refused.push(right.clone());
        }
        rights.insert(right);
    }
    (rights, refused)
}

/// A reconciler that leads and serves the webhook, and a drain that a budget holds up until the pod is deleted past it, a
/// lease that is to be renewed, the same node twice, so that an event repeats, a virtual machine that is called back, and
/// a maintenance of each older group.
async fn everything(cluster: &Cluster) -> Reconciler {
    let workload = Workload::new(cluster, "rights").await;
    let node = node_of(&workload.pod_behind_budget("cart").await).to_owned();
    // Certificates that are renewed meanwhile.
    let flags = ["--node-conditions", "--leader-elect", "--webhook-cert-lifetime", "12"];
    let reconciler = serving(cluster, &flags).await;
    start(cluster, "e2e-rights", &node).await;
    let blocked = |found: Option<&nm_shared::NodeMaintenance>| {
        found.and_then(|found| found.status.as_ref()).is_some_and(|status| !status.blocked_pods.is_empty())
    };
    until(&cluster.maintenances(), "e2e-rights", "blocked", blocked).await;
    let impatient = Patch::Merge(json!({"spec": {"drain": {"deleteAfterSeconds": 1}}}));
    cluster.maintenances().patch("e2e-rights", &PatchParams::default(), &impatient).await.unwrap();
    drained(cluster, "e2e-rights").await;
    let leases: Api<Lease> = Api::namespaced(cluster.client.clone(), LEASE_NAMESPACE);
    let old = Patch::Merge(json!({"spec": {"renewTime": "2026-01-01T00:00:00.000000Z"}}));
    leases.patch(&node_lease::name(&node), &PatchParams::default(), &old).await.unwrap();
    until(&leases, &node_lease::name(&node), "renewed", |lease| {
        let spec = lease.and_then(|lease| lease.spec.as_ref());
        let renewed = spec.and_then(|spec| spec.renew_time.as_ref());
        renewed.is_some_and(|at| at.0.to_string().as_str() > "2026-02")
    })
    .await;
    stop(cluster, "e2e-rights").await;
    start(cluster, "e2e-again", &node).await;
    drained(cluster, "e2e-again").await;
    stop(cluster, "e2e-again").await;
    machine_on(cluster, workload.namespace(), "vm", &node).await;
    start(cluster, "e2e-machine", &node).await;
    migrating(cluster, "e2e-machine").await;
    stop(cluster, "e2e-machine").await;
    for group in OLDER {
        install(&cluster.client, group).await;
        start_of(cluster, group, "e2e-older", &node).await;
        in_phase(cluster, group, "e2e-older", Phase::Running).await;
        stop_of(cluster, group, "e2e-older").await;
    }
    reconciler
}

#[tokio::test(flavor = "multi_thread")]
async fn the_reconciler_has_the_rights_that_it_uses_and_no_others() {
    if std::env::var_os("NM_E2E_KUBECONFIG").is_some() {
        skipped("only a sandbox tells which rights are used");
        return;
    }
    let cluster = Cluster::of_sandbox(2, 0, |sandbox| sandbox.with_kubevirt(LONG).unwrap()).await;
    let _reconciler = everything(&cluster).await;
    let account = manifests::service_account();
    let account = format!("system:serviceaccount:{}:{}", account.namespace().unwrap(), account.name_any());
    let granted = granted(&manifests::rules());
    let log = cluster.sandbox().unwrap().requests();
    // The last events are published when the objects are gone already.
    let all_used = log.until(|log| granted.is_subset(&used(log, &account).0));
    let _ = tokio::time::timeout(PATIENCE, all_used).await;
    let (used, refused) = used(log, &account);
    assert!(refused.is_empty(), "refused: {refused:?}");
    let unused: Vec<_> = granted.difference(&used).collect();
    assert!(unused.is_empty(), "granted in manifests/ and never used: {unused:?}");
    let uncovered: Vec<_> = used.difference(&granted).collect();
    assert!(uncovered.is_empty(), "used by other rights than those of the manifests: {uncovered:?}");
}
