//! End-to-end: the built programs against a cluster.
//!
//! One file a subject; each test states a promise in its name. The numbers in comments are those of the cases that any
//! implementation of `NodeMaintenance` must pass, listed in CONTRIBUTING.md.

#![allow(clippy::unwrap_used, clippy::print_stderr)]

mod answers;
mod answers_played;
mod budgets;
mod callers_rights;
mod comes_back;
mod completion;
mod daemon_sets;
mod dashboard;
mod dashboard_surroundings;
mod delete_after;
mod doctor;
mod documentation;
mod drain_spec;
mod ended_midway;
mod explain;
mod gather;
mod grace;
mod ha;
mod ha_midway;
mod image;
mod independence;
mod inheritance;
mod install;
mod install_refused;
mod job_control;
mod kept_up;
mod krew;
mod krew_rules;
mod kubectl;
mod layout;
mod lease;
mod lifecycle;
mod limits;
mod links;
mod lost_answers;
mod machines_that_stay;
mod manifests;
mod manifests_applied;
mod manifests_deployment;
mod manifests_typed;
mod manifests_wiring;
mod no_cluster;
mod no_election;
mod node_conditions;
mod node_deleted;
mod object;
mod observability;
mod older_groups;
mod optional_permissions;
mod order;
mod output_forms;
mod plan;
mod plugin;
mod program;
mod readiness;
mod reference;
mod report;
mod requests;
mod rights;
mod same_name;
mod sample;
mod showroom;
mod start_flags;
mod start_stop;
mod status_writes;
mod takeover;
mod takeover_recorded;
mod takeover_steps;
mod time_limits;
mod undo_record;
mod virtual_machines;
mod webhook;
mod webhook_certificates;
mod webhook_policy;
mod webhook_quorum;
mod webhook_strangers;
mod whole_texts;
mod workflows;

use k8s_openapi::api::core::v1::Node;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use kube_sandbox::request_log::Entry;
use kube_sandbox::sandbox::Sandbox;
use nm_shared::api::condition::{ConditionType, is_true};
use nm_shared::{NodeMaintenance, NodeMaintenanceSpec, NodeMaintenanceStatus, Phase};
use nm_tests::cluster::Cluster;
use nm_tests::programs::skipped;
use nm_tests::until::until;
use serde_json::{Value, json};

/// Puts a node into maintenance.
async fn start(cluster: &Cluster, name: &str, node: &str) -> NodeMaintenance {
    let spec = NodeMaintenanceSpec { node_name: node.to_owned(), ..NodeMaintenanceSpec::default() };
    cluster.maintenances().create(&PostParams::default(), &NodeMaintenance::new(name, spec)).await.unwrap()
}

/// Deletes a maintenance and waits until it is gone.
async fn stop(cluster: &Cluster, name: &str) {
    cluster.maintenances().delete(name, &DeleteParams::default()).await.unwrap();
    until(&cluster.maintenances(), name, "gone", |found| found.is_none()).await;
}

/// The maintenance once its node is drained.
async fn drained(cluster: &Cluster, name: &str) -> NodeMaintenance {
    let done = |found: Option<&NodeMaintenance>| {
        let status = found.and_then(|found| found.status.as_ref());
        status.is_some_and(|status| {
            status.phase == Some(Phase::Succeeded) && is_true(&status.conditions, ConditionType::Drained)
        })
    };
    until(&cluster.maintenances(), name, "drained", done).await.unwrap()
}

/// The status of a maintenance once it is as wanted.
async fn once(
    cluster: &Cluster,
    name: &str,
    what: &str,
    holds: impl Fn(&NodeMaintenanceStatus) -> bool,
) -> NodeMaintenanceStatus {
    let wanted =
        |found: Option<&NodeMaintenance>| found.and_then(|found| found.status.as_ref()).is_some_and(&holds);
    until(&cluster.maintenances(), name, what, wanted).await.unwrap().status.unwrap()
}

/// A sandbox, for what only a sandbox plays; none, and that is said, where the suites run on another cluster.
async fn only_sandbox(nodes: usize, why: &str) -> Option<Cluster> {
    if std::env::var_os("NM_E2E_KUBECONFIG").is_some() {
        skipped(why);
        return None;
    }
    Some(Cluster::start(nodes).await)
}

/// Changes how a maintenance drains its node.
async fn change(cluster: &Cluster, name: &str, drain: Value) {
    let patch = Patch::Merge(json!({"spec": {"drain": drain}}));
    cluster.maintenances().patch(name, &PatchParams::default(), &patch).await.unwrap();
}

/// The evictions that the reconciler has asked for, oldest first. Only a sandbox tells.
fn evictions(sandbox: &Sandbox) -> Vec<Entry> {
    let ours =
        |entry: &Entry| entry.user_agent.starts_with("nm-reconciler/") && entry.subresource == "eviction";
    sandbox.requests().all().into_iter().filter(ours).collect()
}

/// All that a maintenance may change of a node, for comparing before and after. Status and heartbeats are the kubelet's.
fn configuration(node: &Node) -> Value {
    let mut taints = node.spec.as_ref().and_then(|spec| spec.taints.clone()).unwrap_or_default();
    taints.sort_by_key(|taint| (taint.key.clone(), taint.effect.clone()));
    json!({
        "labels": node.metadata.labels,
        "annotations": node.metadata.annotations,
        "unschedulable": node.spec.as_ref().and_then(|spec| spec.unschedulable),
        "taints": taints,
    })
}
