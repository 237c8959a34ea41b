//! The reconciler's rights: every suite runs it with those of the manifests alone, so that one too few fails a test;
//! here one too many does. Only a sandbox tells which rights were used.

use std::collections::BTreeSet;

use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::rbac::v1::PolicyRule;
use kube::api::{Patch, PatchParams};
use kube::{Api, ResourceExt};
use kube_sandbox::request_log::{Entry, RequestLog};
use nm_shared::api::names::LEASE_NAMESPACE;
use nm_shared::cluster::node_lease;
use nm_shared::{Group, Phase};
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

/// `VERB RESOURCE.GROUP`, with the subresource, and with the namespace where it is for one.
type Right = String;

/// A rule, and the namespace that it is for; none where that is the cluster.
type Grant = (Option<String>, PolicyRule);

/// Of these others have some too, which are none of the reconciler's business.
const OF_OTHERS_TOO: [&str; 3] = ["customresourcedefinitions", "secrets", "validatingwebhookconfigurations"];

fn right(verb: &str, group: &str, resource: &str) -> Right {
    format!("{verb} {resource}.{group}")
}

fn in_namespace(right: &Right, namespace: &str) -> Right {
    format!("{right} in {namespace}")
}

fn granted(grants: &[Grant]) -> BTreeSet<Right> {
    let mut rights = BTreeSet::new();
    for (namespace, rule) in grants {
        assert!(rule.non_resource_urls.is_none(), "the reconciler reads no other paths: {rule:?}");
        for group in rule.api_groups.iter().flatten() {
            for resource in rule.resources.iter().flatten() {
                let here = rule.verbs.iter().map(|verb| right(verb, group, resource));
                rights.extend(here.map(|right| match namespace {
                    Some(namespace) => in_namespace(&right, namespace),
                    None => right,
                }));
            }
        }
    }
    rights
}

/// What an account asked for, and what of it was refused. What is granted in the whole cluster is used there.
fn used(log: &RequestLog, account: &str, granted: &BTreeSet<Right>) -> (BTreeSet<Right>, Vec<Right>) {
    let (mut rights, mut refused) = (BTreeSet::new(), Vec::new());
    let somewhere = |right: Right, namespace: &str| {
        let everywhere = granted.contains(&right) || namespace.is_empty();
        if everywhere { right } else { in_namespace(&right, namespace) }
    };
    for entry in of_account(log, account) {
        let below = if entry.subresource.is_empty() { "" } else { "/" };
        let resource = format!("{}{below}{}", entry.resource, entry.subresource);
        // Of a longer path below a resource the API server asks for the first part, and who serves it for all of it.
        let mut parts = resource.splitn(3, '/');
        if let (Some(plural), Some(first), Some(_)) = (parts.next(), parts.next(), parts.next()) {
            let first = right(entry.verb, &entry.group, &format!("{plural}/{first}"));
            rights.insert(somewhere(first, &entry.namespace));
        }
        let right = somewhere(right(entry.verb, &entry.group, &resource), &entry.namespace);
        if entry.code == 403 {
            refused.push(right.clone());
        }
        rights.insert(right);
    }
    (rights, refused)
}

/// What an account asked for but discovery, which has paths and no resources, and is everyone's.
fn of_account(log: &RequestLog, account: &str) -> Vec<Entry> {
    let is_its = |entry: &Entry| entry.user == account && !entry.resource.starts_with('/');
    log.all().into_iter().filter(is_its).collect()
}

/// What is narrowed to names is narrowed to those that are used. In the program's own namespace that is everything but
/// the making of an object, which cannot be.
fn check_names(grants: &[Grant], log: &RequestLog, account: &str, own: &str) {
    let requests = of_account(log, account);
    let definitions = OLDER.map(Group::definition);
    for (namespace, rule) in grants {
        let has = |list: &Option<Vec<String>>, wanted: &str| list.iter().flatten().any(|one| one == wanted);
        let names: BTreeSet<&str> = rule.resource_names.iter().flatten().map(String::as_str).collect();
        if names.is_empty() {
            let others = OF_OTHERS_TOO.iter().any(|resource| has(&rule.resources, resource));
            let may_be_narrower = others || namespace.as_deref() == Some(own);
            assert!(!may_be_narrower || rule.verbs == ["create"], "for all of them: {rule:?}");
            continue;
        }
        // A list or a watch is narrowed by a selector, which the log does not tell.
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

/// A reconciler that leads and serves the webhook, and a drain that a budget holds up until the pod is deleted past it, a
/// lease that is to be renewed, the same node twice, so that an event repeats, a virtual machine that is called back, and
/// a maintenance of each older group.
async fn everything(cluster: &Cluster) -> Reconciler {
    for component in manifests::GRANTED {
        cluster.grant(component).await;
    }
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
    let own = account.namespace().unwrap();
    let account = format!("system:serviceaccount:{own}:{}", account.name_any());
    let grants = manifests::rules();
    let granted = granted(&grants);
    let log = cluster.sandbox().unwrap().requests();
    // The last events are published when the objects are gone already.
    let all_used = log.until(|log| granted.is_subset(&used(log, &account, &granted).0));
    let _ = tokio::time::timeout(PATIENCE, all_used).await;
    let (used, refused) = used(log, &account, &granted);
    assert!(refused.is_empty(), "refused: {refused:?}");
    let unused: Vec<_> = granted.difference(&used).collect();
    assert!(unused.is_empty(), "granted in manifests/ and never used: {unused:?}");
    let uncovered: Vec<_> = used.difference(&granted).collect();
    assert!(uncovered.is_empty(), "used by other rights than those of the manifests: {uncovered:?}");
    check_names(&grants, log, &account, &own);
}
